//! The backward pass as a family of kernels: what is asked, the space of specs, and a prediction.

use kernel::operands::Contents;
use kernel::{Expected, Family, Inputs, Machine, Predicted, cheapest};

use super::call::BackwardCall;
use super::kernel::AttentionBackward;
use super::spec::BackwardSpec;
use crate::call::AttentionCall;
use crate::family::{self, AttentionRequest, differ};
use crate::kernel::Attention;
use crate::masks::of_mask;
use crate::problem::AttentionProblem;
use crate::spec::{AttentionSpec, Mask};

/// Operations of products, per SM and cycle of an H200.
const RATE: f64 = 3190.0;
/// Cycles of an SM for a score in addition to its products: what is not covered by those of the other consumer.
const SCORE: f64 = 0.06;
/// Factors of both: of one consumer, of two with the same keys (of three kernels on an H200), and more for each 32 queries that are missing to
/// 64.
const ONE: f64 = 1.4;
const PAIR: f64 = 1.27;
const NARROW: f64 = 0.3;
/// Cycles of a tile of queries, and of a block of keys, in addition.
const TILE: f64 = 250.0;
const BLOCK: f64 = 11500.0;
/// More cycles of a tile that adds to dQ in its order, of 64 columns, of more, and of two consumers with the same keys: of 14 problems on
/// an H200.
const ORDERED: [f64; 3] = [90.0, 200.0, 700.0];
/// Bytes per element of Q that the first and the last program move: with zeros for dQ, and without.
const BYTES: [f64; 2] = [14.0, 10.0];
/// Microseconds of three launches; and megabytes per microsecond of the first and the last program.
const LAUNCHES: f64 = 6.0;
/// By how much a kernel that adds in a fixed order must be faster, by the model, where that is not asked: at some sequences of some thousand
/// keys it takes it for faster, and it takes 1 to 4 % more on an H200.
const ORDER: f64 = 1.05;
const MEGABYTES: f64 = 2.5;

impl AttentionBackward {
    /// Predicted microseconds. The numbers of this model are from some 30 kernels at 14 problems on an H100.
    fn predict(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { heads: [heads, shared], .. } = request.problem;
        let BackwardSpec { tile: [rows, block], mask, deterministic, .. } = self.plan().spec;
        let ordered = usize::from(deterministic);
        let [wide, wide_v] = self.plan().wide.map(f64::from);
        let products = 3.0 * wide + 2.0 * wide_v;
        let scores = f64::from(rows) * f64::from(block);
        let [consumers, in_order] = match self.plan().pair {
            Some(_) => [PAIR, ORDERED[2]],
            None => [if block == 64 { ONE } else { 1.0 }, ORDERED[usize::from(wide > 64.0)]],
        };
        let narrow = 1.0 + NARROW * (2.0 - f64::from(rows) / 32.0).max(0.0);
        let tile = consumers * narrow * scores * (2.0 * products / (RATE * machine.tensor) + SCORE)
            + TILE
            + if deterministic { in_order } else { 0.0 };
        let share = f64::from(heads) / f64::from(shared.max(1));
        // Blocks of keys of all sequences, their tiles of queries, and all queries.
        let (mut blocks, mut tiles, mut all) = (0.0, 0.0, 0.0);
        for ([queries, keys], count) in request.kinds() {
            let (own, across) = (f64::from(keys.div_ceil(block)), f64::from(queries.div_ceil(rows)));
            let shared = f64::from(count) * f64::from(shared);
            blocks += shared * own;
            tiles += shared
                * own
                * match mask {
                    Mask::Full => across,
                    Mask::Causal => across / 2.0 + 0.5,
                    Mask::Window | Mask::Chunked => {
                        (across * request.seen([queries, keys]) + 1.0).min(across)
                    }
                };
            all += f64::from(count) * f64::from(queries);
        }
        let tiles = tiles / blocks.max(1.0);
        // CTAs of a mask differ, so no wave ends at once.
        let waves = blocks / f64::from(machine.multiprocessors);
        let waves = if mask == Mask::Full { waves.ceil() } else { waves.max(1.0) + 0.5 };
        let elements = f64::from(heads) * all * wide;
        let passes = elements * BYTES[ordered] / 1e6 / MEGABYTES;
        LAUNCHES + passes + waves * (tiles * share * tile + BLOCK) / machine.cycles
    }
}

impl AttentionRequest {
    /// Reads a problem of the backward pass: extents, and the words that it shares with the forward pass.
    ///
    /// # Errors
    /// The text is no problem, or has a word that only the forward pass has.
    pub fn of_backward(text: &str) -> Result<Self, String> {
        let known = ["format", "d", "mask", "left", "right", "chunk", "lengths", "fixed"];
        Self::read(text, AttentionBackward::NAME, &known)
    }
}

/// The request's part of a spec.
fn words(request: &AttentionRequest) -> Result<BackwardSpec, String> {
    let AttentionRequest { format, cache, output, head, mask, lengths, pages, fixed, .. } = *request;
    if pages.is_some() || cache.is_some() {
        return Err("pages and cache are words of the forward pass".to_owned());
    }
    if output != format {
        return Err(format!("output is {output}, {format} was needed: all tensors have one format"));
    }
    Ok(BackwardSpec { format, head, mask, lengths, deterministic: fixed, ..BackwardSpec::DEFAULT })
}

/// The words of a spec that decide what a call's memory is, and its bits: as those of the forward pass.
fn memory(spec: &BackwardSpec) -> Vec<(&'static str, String, bool)> {
    let BackwardSpec { format, head, lengths, deterministic, .. } = *spec;
    let of = AttentionSpec { format, output: format, head, lengths, ..AttentionSpec::DEFAULT };
    let mut words = family::memory(&of);
    words.retain(|(key, ..)| !["output", "cache", "pages"].contains(key));
    words.push(("deterministic", if deterministic { "on" } else { "off" }.to_owned(), deterministic));
    words
}

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
        (of_mask(spec.mask).name() == self.scores.name()).then_some(spec)
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
        let spec = words(request)?;
        // The plan refuses what does not fit; the first one says why, if nothing does.
        let queries = [64, 128, 80, 48, 32].into_iter();
        let tiles = queries.flat_map(|queries| [128, 64].into_iter().map(move |keys| [queries, keys]));
        // An order of adds costs time, and saves zeros: short sequences are faster with it.
        let orders = if spec.deterministic { &[true][..] } else { &[false, true] };
        let space = tiles.flat_map(|tile| {
            orders.iter().map(move |&deterministic| BackwardSpec { tile, deterministic, ..spec })
        });
        // Between the two, the model is off by some percent.
        let margin = |of: &Self| if of.plan().spec.deterministic && !request.fixed { ORDER } else { 1.0 };
        cheapest(space, most, |kernel: &Self| margin(kernel) * kernel.predict(request, machine))
    }

    fn said(request: &AttentionRequest) -> Vec<(&'static str, String)> {
        let mut said = words(request).map_or_else(|_| Vec::new(), |spec| family::said(memory(&spec)));
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
