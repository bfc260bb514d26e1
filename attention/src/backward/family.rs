//! The backward pass as a family of kernels: what is asked, the space of specs, and which are looked at.

use kernel::operands::Contents;
use kernel::{Card, Expected, Family, Inputs, Machine, Predicted, ShippedOf, cheapest, measured_first};

use super::call::BackwardCall;
use super::kernel::AttentionBackward;
use super::model::ORDER;
use super::spec::BackwardSpec;
use crate::call::AttentionCall;
use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::request::{AttentionRequest, ChoiceKey};
use crate::space::{self, differ};
use crate::spec::{AttentionSpec, Mask};

impl AttentionRequest {
    /// Reads a problem of the backward pass: extents, and the words that it shares with the forward pass.
    ///
    /// # Errors
    /// The text is no problem, or has a word that only the forward pass has.
    pub fn of_backward(text: &str) -> Result<Self, String> {
        let known = [
            "format", "d", "mask", "left", "right", "chunk", "softcap", "alibi", "score", "sees", "lengths",
            "fixed",
        ];
        Self::read(text, AttentionBackward::NAME, &known)
    }
}

impl AttentionRequest {
    /// How the blocks of keys of a spec may be divided: among the CTAs of a cluster, or that add up in memory; and how many are ordered together.
    fn divisions(&self, spec: BackwardSpec, machine: &Machine) -> Vec<BackwardSpec> {
        let AttentionProblem { batch, heads: [heads, shared], keys, .. } = self.problem;
        let (all, card) = (self.all_blocks(spec.tile[1]), machine.multiprocessors);
        let share = heads.checked_div(shared).unwrap_or(1);
        let at_once = |split: u32| machine.clusters[split as usize - 1].max(1);
        // With many blocks, CTAs end at about the same time without it; with many heads, the queries of fewer of them are read at a time.
        let splits = [1, 2, 4, 8].into_iter();
        let splits =
            splits.filter(|&split| split == 1 || split <= share || all < f64::from(8 * card / split));
        let divided = splits.map(|split| (BackwardSpec { split, ..spec }, at_once(split), all));
        // Whole heads of queries, if these share keys, and parts of them if there are few. Sums in memory have no order.
        let of_heads = all * f64::from(share);
        let is_useful = |parts: u32| match parts {
            _ if spec.deterministic => false,
            1 => share > 1,
            _ => of_heads < f64::from(8 * card / parts),
        };
        let apart = [1, 2, 4].into_iter().filter(|&parts| is_useful(parts));
        let apart = apart.flat_map(|apart| {
            // Of the last heads alone, whose CTAs are some rounds.
            let of_head = apart.saturating_mul(share).saturating_mul(keys.div_ceil(spec.tile[1]).max(1));
            let last = |rounds: u32| (rounds * card).div_ceil(of_head);
            let whole = [1, 3, 6, 12].map(|rounds| batch.saturating_mul(shared).saturating_sub(last(rounds)));
            let mut whole = [0].into_iter().chain(whole).collect::<Vec<_>>();
            whole.sort_unstable();
            whole.dedup();
            let spec = BackwardSpec { apart, ..spec };
            whole.into_iter().map(move |whole| (BackwardSpec { whole, ..spec }, card / apart, of_heads))
        });
        let orders = if self.mask == Mask::Causal { &[1, 2, 4][..] } else { &[1] };
        let ordered = |(spec, at_once, all): (BackwardSpec, u32, f64)| {
            // As many as there are, and those of which fewer are together.
            let fewer = move |times: u32| times == 1 || f64::from(at_once) * f64::from(times) < 2.0 * all;
            let orders = orders.iter().filter(move |&&times| fewer(times));
            orders.map(move |times| BackwardSpec { mixed: at_once * times, ..spec })
        };
        divided.chain(apart).flat_map(ordered).collect()
    }
}

/// The request's part of a spec.
fn words(request: &AttentionRequest) -> Result<BackwardSpec, String> {
    let AttentionRequest { format, cache, output, head, mask, lengths, pages, fixed, .. } = *request;
    if pages.is_some() || cache.is_some() {
        return Err("pages and cache are words of the forward pass".to_owned());
    }
    if request.sinks {
        return Err("sinks is a word of the forward pass, whose log-sum-exp has them".to_owned());
    }
    if format.bits() != 16 {
        return Err(format!(
            "format is {format}, bf16 or f16 was needed: tensors in 8 bits have no gradient"
        ));
    }
    if output != format {
        return Err(format!("output is {output}, {format} was needed: all tensors have one format"));
    }
    let AttentionRequest { alibi, score, sees, .. } = *request;
    let soft_cap = request.soft_cap.is_some();
    let scores = BackwardSpec { mask, soft_cap, alibi, score, sees, ..BackwardSpec::DEFAULT };
    Ok(BackwardSpec { format, head, lengths, deterministic: fixed, ..scores })
}

/// The words of a spec that decide what a call's memory is, and its bits: as those of the forward pass.
fn memory(spec: &BackwardSpec) -> Vec<(&'static str, String, bool)> {
    let BackwardSpec { format, head, lengths, deterministic, .. } = *spec;
    let of = AttentionSpec { format, output: format, head, lengths, ..spec.of_forward() };
    let mut words = space::memory(&of);
    words.retain(|(key, ..)| !["output", "cache", "pages", "sinks"].contains(key));
    words.push(("deterministic", if deterministic { "on" } else { "off" }.to_owned(), deterministic));
    words
}

/// What was measured, and comes with the library.
static SHIPPED: ShippedOf<AttentionBackward, ChoiceKey> =
    ShippedOf::new(Card::H200, include_str!("h200.txt"), AttentionRequest::problem_key);

impl Family for AttentionBackward {
    const NAME: &'static str = "attention-backward";
    const VERSIONED: bool = true;
    type Request<'r> = AttentionRequest;
    type Problem = String;
    type Spec = BackwardSpec;
    type Call = BackwardCall;

    fn of_spec(spec: &BackwardSpec) -> Result<Self, String> {
        Self::new(*spec).map_err(|error| error.to_string())
    }

    fn spec(&self) -> Option<BackwardSpec> {
        let spec = self.plan().spec;
        (spec.scores().name() == self.scores.name()).then_some(spec)
    }

    fn request(text: &str) -> Result<AttentionRequest, String> {
        AttentionRequest::of_backward(text)
    }

    fn call(request: &AttentionRequest) -> BackwardCall {
        let forward = AttentionCall { log_sum_exp: 0, ..Attention::call(request) };
        let (d_o, gradients) = (forward.o, [forward.q, forward.k, forward.v]);
        BackwardCall::of(forward, d_o, gradients)
    }

    fn words(request: &AttentionRequest, contents: Contents) -> Vec<u32> {
        Attention::words(request, contents)
    }

    fn serves(&self, request: &AttentionRequest) -> Result<(), String> {
        request.check().map_err(|error| error.to_string())?;
        if !self.is_whole() {
            return Err("the kernel is one of three programs, all of them were needed".to_owned());
        }
        // One that adds in a fixed order serves where that is not asked, too.
        let spec = self.plan().spec;
        let own = BackwardSpec { deterministic: request.fixed && spec.deterministic, ..spec };
        differ(memory(&own), memory(&words(request)?))
    }

    fn ranked(
        request: &AttentionRequest,
        machine: &Machine,
        most: usize,
    ) -> Result<Vec<Predicted<Self>>, String> {
        request.check().map_err(|error| error.to_string())?;
        measured_first(request.shipped(&SHIPPED, machine), most, |most| {
            Self::modelled(request, machine, most)
        })
    }

    fn unrecorded<'r>(request: &Self::Request<'r>) -> Self::Request<'r> {
        Attention::unrecorded(request)
    }

    fn said(request: &AttentionRequest) -> Vec<(&'static str, String)> {
        let mut said = words(request).map_or_else(|_| Vec::new(), |spec| space::said(memory(&spec)));
        said.push(("mask", request.mask.name().to_owned()));
        said
    }

    fn operations(request: &AttentionRequest) -> f64 {
        words(request).map_or(0.0, |spec| request.operations(|problem| spec.operations(problem)))
    }

    fn expect(
        &self,
        request: &AttentionRequest,
        call: &BackwardCall,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        Ok(self.expected(request.mask, call, inputs))
    }

    fn numbers(&self) -> Vec<[String; 3]> {
        self.told()
    }
}

impl AttentionBackward {
    /// The kernels of its space, ranked by the model alone.
    fn modelled(
        request: &AttentionRequest,
        machine: &Machine,
        most: usize,
    ) -> Result<Vec<Predicted<Self>>, String> {
        let spec = words(request)?;
        // The plan refuses what does not fit; the first one says why, if nothing does.
        // Where windows and chunks mask a tile of 80 queries, up to 62 registers move to local memory.
        let has_80 = matches!(request.mask, Mask::Full | Mask::Causal);
        let queries = [64, 128, 80, 48, 32].into_iter().filter(move |&queries| has_80 || queries != 80);
        let tiles = queries.flat_map(|queries| [128, 64].into_iter().map(move |keys| [queries, keys]));
        // An order of adds costs time, and saves zeros: short sequences are faster with it.
        let orders = if spec.deterministic { &[true][..] } else { &[false, true] };
        let specs = tiles.flat_map(|tile| orders.iter().map(move |&order| (tile, order)));
        let space = specs.flat_map(|(tile, deterministic)| {
            request.divisions(BackwardSpec { tile, deterministic, ..spec }, machine)
        });
        // Between the two, the model is off by some percent.
        let margin = |of: &Self| if of.plan().spec.deterministic && !request.fixed { ORDER } else { 1.0 };
        cheapest(space, most, |kernel: &Self| margin(kernel) * kernel.predict(request, machine))
    }
}
