//! Attention as a family of kernels.

use collective::heads::{HeadsRef, Packed, Pages};
use kernel::operands::Contents;
use kernel::{
    Blocks, Card, Expected, Family, Inputs, Machine, Predicted, ShippedOf, cheapest, measured_first,
};

use crate::arrays;
use crate::call::AttentionCall;
use crate::factors::Factors;
use crate::kernel::Attention;
use crate::masks::of_spec;
use crate::numbers::HeadNumbers;
use crate::plan::HalvesPlan;
use crate::problem::AttentionProblem;
use crate::request::{AttentionRequest, ChoiceKey};
use crate::shortlist::Shortlist;
use crate::space::{differ, memory, said};
use crate::spec::{AttentionSpec, Lengths, OutputStore};

/// What was measured, and comes with the library.
static SHIPPED: ShippedOf<Attention, ChoiceKey> =
    ShippedOf::new(Card::H200, include_str!("h200.txt"), AttentionRequest::problem_key);

impl Family for Attention {
    const NAME: &'static str = "attention";
    const VERSIONED: bool = true;
    type Request<'r> = AttentionRequest;
    type Problem = String;
    type Spec = AttentionSpec;
    type Call = AttentionCall;

    fn of_spec(spec: &AttentionSpec) -> Result<Self, String> {
        Self::new(*spec).map_err(|error| error.to_string())
    }

    fn spec(&self) -> Option<AttentionSpec> {
        // A mask of one's own has no spec.
        let spec = self.plan.spec;
        (of_spec(&spec).name() == self.scores.name()).then_some(spec)
    }

    fn call(request: &AttentionRequest) -> AttentionCall {
        let AttentionRequest { head: [d, dv], problem, .. } = *request;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = problem;
        let at = |heads, length, d| HeadsRef::heads_first(0, [heads, length, d]);
        // As many keys as queries.
        let all = || (0..batch).fold(0, |all: u32, i| all.saturating_add(request.length(i)[0]));
        let [of_queries, of_keys] = match (request.lengths, request.pages) {
            (Lengths::Packed, _) => [all(); 2],
            (Lengths::Equal, Some(page)) => [queries, page],
            (Lengths::Equal, None) => [queries, keys],
        };
        let [q, k, o] = [at(heads, of_queries, d), at(shared, of_keys, d), at(heads, of_queries, dv)];
        let mut call = if request.spec().is_latent() {
            AttentionCall::latent(problem, [q, k], o)
        } else {
            AttentionCall::new(problem, [q, k, at(shared, of_keys, dv)], o)
        };
        // Any address that is not 0 says that it is stored.
        call.log_sum_exp = u64::from(request.log_sum_exp) << 8;
        (call.counts, call.reals) = (request.counts().to_vec(), request.reals());
        call.sinks = u64::from(request.sinks) << 8;
        call.head_numbers = HeadNumbers::new(vec![1 << 8; usize::from(request.alibi)]);
        if request.score.is_some() || request.sees.is_some() {
            call.arrays = arrays::of_problem(&*of_spec(&request.spec()), &problem);
        }
        if request.lengths == Lengths::Packed {
            call.packed = Packed { begins: [1 << 8; 2], rows: [of_queries, of_keys] };
        }
        if request.spec().is_scaled() {
            let of_q = if request.cache.is_some() { 0 } else { 1 << 8 };
            call.factors = Factors::of_heads([of_q, 1 << 8, 1 << 8]);
        }
        if let Some(page) = request.pages {
            let each = keys.div_ceil(page);
            let count = batch.saturating_mul(each);
            call.pages = Pages { lengths: 1 << 8, table: 1 << 8, each, count };
        }
        call
    }

    fn words(request: &AttentionRequest, contents: Contents) -> Vec<u32> {
        let lengths = request.lengths();
        if contents != Contents::Table {
            return Vec::new();
        }
        match request.lengths {
            Lengths::Packed => {
                let sums = lengths.iter().scan(0, |sum, of| {
                    *sum += of[1];
                    Some(*sum)
                });
                core::iter::once(0).chain(sums).collect()
            }
            Lengths::Equal => lengths.iter().map(|of| of[1]).collect(),
        }
    }

    fn serves(&self, request: &AttentionRequest) -> Result<(), String> {
        request.check().map_err(|error| error.to_string())?;
        // The mask decides no memory: a kernel with another one is wrong, and found to be.
        differ(memory(&self.plan().spec), memory(&request.spec()))
    }

    fn measured(
        request: &AttentionRequest,
        _machine: &Machine,
        times: &[(AttentionSpec, f64)],
    ) -> Option<Predicted<Self>> {
        let mut able = times.iter().filter(|(spec, _)| request.admits(spec));
        able.find_map(|&(spec, microseconds)| Some(Predicted::new(Self::new(spec).ok()?, microseconds)))
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
        AttentionRequest { recorded: false, ..*request }
    }

    /// By what was measured, or by a [`Shortlist`], which is kept: the space is ranked once for requests that are alike.
    fn first(request: &AttentionRequest, machine: &Machine) -> Result<Predicted<Self>, String> {
        request.check().map_err(|error| error.to_string())?;
        request.shipped(&SHIPPED, machine).map_or_else(|| Shortlist::first(request, machine), Ok)
    }

    fn said(request: &AttentionRequest) -> Vec<(&'static str, String)> {
        let spec = request.spec();
        let mut said = said(memory(&spec));
        let masks = [spec.mask, request.mask].into_iter().take(if spec.mask == request.mask { 1 } else { 2 });
        said.extend(masks.map(|mask| ("mask", mask.name().to_owned())));
        said.extend((spec.store == OutputStore::Direct).then(|| ("store", "direct".to_owned())));
        said
    }

    fn operations(request: &AttentionRequest) -> f64 {
        request.operations(|problem| request.spec().operations(problem))
    }

    fn expect(
        &self,
        request: &AttentionRequest,
        call: &AttentionCall,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        Ok(self.expected(request.mask, call, inputs))
    }

    fn numbers(&self) -> Vec<[String; 3]> {
        self.told()
    }

    fn blocks(&self, request: &AttentionRequest) -> Option<Blocks> {
        self.drawn(request)
    }
}

impl Attention {
    /// The kernels of its space, ranked by the model alone.
    pub(crate) fn modelled(
        request: &AttentionRequest,
        machine: &Machine,
        most: usize,
    ) -> Result<Vec<Predicted<Self>>, String> {
        let spec = request.spec();
        // Blocks of more keys that are converted were slower at every problem that was measured.
        let most_keys = if request.cache.is_some() { 128 } else { 192 };
        // The plan refuses what does not fit; the spec's own tile says why, if nothing does.
        let tiles = [128, 192, 64].into_iter().flat_map(|rows| {
            let all = [128, 192, 176, 160, 144, 112, 96, 80, 64, 48].into_iter();
            all.filter(move |&keys| keys <= most_keys).map(move |keys| [rows, keys])
        });
        // Two consumers with the same queries have one tile.
        let only = spec.is_halved().then(|| HalvesPlan::tile(&spec));
        let tiles = only.into_iter().chain(tiles.filter(move |_| only.is_none()));
        let time = |kernel: &Self| kernel.predict(request, machine);
        if request.fixed {
            if !request.workspace {
                return Err("fixed=on divides keys, a workspace was needed".to_owned());
            }
            let legal = request.fixed_specs().filter(|spec| Self::new(*spec).is_ok()).take(1);
            return cheapest(legal, most, time);
        }
        // Side by side, or by one thread, whose prediction is the same: what comes first is ranked first.
        let loaders = |spec: AttentionSpec| {
            let all = [1, HalvesPlan::MOST_LOADERS].into_iter().take(if spec.is_latent() { 2 } else { 1 });
            all.map(move |loaders| AttentionSpec { loaders, ..spec })
        };
        let share = request.share();
        let packs = [1, share].into_iter().take(if share > 1 { 2 } else { 1 });
        let switches = [(false, false), (true, false), (false, true), (true, true)];
        let whole = tiles.clone().flat_map(|tile| {
            packs.clone().flat_map(move |pack| {
                let of = AttentionSpec { tile, pack, ..spec };
                let orders = request.orders(&of, machine);
                let with =
                    move |order| switches.map(|(overlap, lazy)| AttentionSpec { order, overlap, lazy, ..of });
                let all = request.ctas(&of, machine).iter();
                // Of two CTAs one computes while the other begins or ends a tile.
                let among = move |ctas| {
                    let of = orders.iter().copied().flat_map(with);
                    of.filter(move |of| ctas == 1 || !of.overlap).map(move |of| AttentionSpec { ctas, ..of })
                };
                all.copied().flat_map(among)
            })
        });
        let lazy = [false, true].into_iter().take(if spec.is_halved() { 2 } else { 1 });
        let divided = tiles.flat_map(|tile| {
            let spec = AttentionSpec { tile, pack: share, ..spec };
            let lazy = lazy.clone();
            let of = move |parts| lazy.clone().map(move |lazy| AttentionSpec { parts, lazy, ..spec });
            request.parts(&spec, machine).into_iter().flat_map(of)
        });
        cheapest(whole.chain(divided).flat_map(loaders), most, time)
    }
}
