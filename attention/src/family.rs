//! Attention as a family of kernels: what is asked, the space of specs, and a prediction.

use core::str::FromStr;

use collective::Format;
use kernel::{Family, Machine, Predicted, cheapest};

use crate::kernel::Attention;
use crate::plan::AttentionError;
use crate::problem::{AttentionCall, AttentionProblem, HeadsRef};
use crate::spec::{AttentionSpec, Mask, OutputStore};

/// What is asked of an attention kernel: types, mask and extents, for tensors `(batch, heads, length, d)` that are packed.
///
/// ```
/// use attention::{Attention, AttentionProblem, AttentionRequest};
/// use kernel::{Family, Machine};
///
/// let request = AttentionRequest::new(AttentionProblem::new(4, 16, [4096; 2], 128), 128);
/// let ranked = Attention::ranked(&request, &Machine::h200(), 3)?;
/// println!("{}: {:.0} us", ranked[0].kernel.plan().spec, ranked[0].microseconds);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionRequest {
    /// Format of Q, K and V.
    pub format: Format,
    /// Format of O.
    pub output: Format,
    /// Elements of a head of Q and K, and of V and O.
    pub head: [u32; 2],
    /// Which keys a query sees.
    pub mask: Mask,
    /// The extents.
    pub problem: AttentionProblem,
    /// Whether the log-sum-exp of each query's scores is stored.
    pub log_sum_exp: bool,
}

impl AttentionRequest {
    /// bf16 with heads of `d` elements, where every query sees every key.
    pub const fn new(problem: AttentionProblem, d: u32) -> Self {
        Self {
            format: Format::Bf16,
            output: Format::Bf16,
            head: [d, d],
            mask: Mask::Full,
            problem,
            log_sum_exp: false,
        }
    }

    /// The request's words of a spec.
    fn spec(&self) -> AttentionSpec {
        let Self { format, output, head, mask, .. } = *self;
        let store = if output == format { OutputStore::Tma } else { OutputStore::Direct };
        AttentionSpec { format, output, head, mask, store, ..AttentionSpec::DEFAULT }
    }
}

impl FromStr for AttentionRequest {
    type Err = String;

    /// Reads extents, and words of a spec: `4x16x4096 d=64 mask=causal`. Extents are sequences, heads, queries and keys; without the last one
    /// there are as many keys as queries. Heads of K and V follow those of Q where they are fewer: `4x16/4x4096x4096`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (extents, words) = text.trim().split_once([' ', ',']).unwrap_or((text.trim(), ""));
        let refused = || {
            format!(
                "`{extents}` was found, sequences x heads x queries x keys were needed, as 4x16/4x4096x4096"
            )
        };
        let parts: Vec<&str> = extents.split('x').collect();
        let (&[batch, heads, queries], keys) = (match parts.get(..3) {
            Some(first @ [..]) => <&[&str; 3]>::try_from(first).map(|first| (first, parts.get(3))),
            None => return Err(refused()),
        })
        .map_err(|_| refused())?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| refused());
        let (heads, shared) = heads.split_once('/').unwrap_or((heads, heads));
        let queries = number(queries)?;
        let keys = keys.map_or(Ok(queries), |keys| number(keys))?;
        if parts.len() > 4 {
            return Err(refused());
        }
        let spec: AttentionSpec = words.parse().map_err(|error: AttentionError| error.to_string())?;
        let AttentionSpec { format, output, head, mask, .. } = spec;
        if !matches!(mask, Mask::Full | Mask::Causal) {
            let name = mask.name();
            return Err(format!("mask={name} has numbers of its own: a problem's mask is full or causal"));
        }
        let problem = AttentionProblem::new(number(batch)?, number(heads)?, [queries, keys], head[0]);
        let problem = AttentionProblem { heads: [problem.heads[0], number(shared)?], ..problem };
        let request = Self { format, output, head, mask, problem, log_sum_exp: false };
        if request.spec() == (AttentionSpec { store: request.spec().store, ..spec }) {
            Ok(request)
        } else {
            Err(format!("`{words}` is of a kernel: format, output, d and mask are a problem's words"))
        }
    }
}

/// Operations of a `wgmma` of 16-bit formats, per SM and cycle of an H200.
const RATE: f64 = 4096.0;
/// Cycles of an SM for a score: its mask, its exponential, its sum, and its conversion.
const WEIGHT: f64 = 0.07;
/// The part of the shorter of products and weights that the longer one does not cover, while consumers take turns.
const UNCOVERED: f64 = 0.25;
/// Cycles of a block of keys, and of a tile, in addition.
const BLOCK: f64 = 250.0;
const TILE: f64 = 3500.0;
/// More cycles of a tile if there is one stage of Q, so that queries are loaded after the last tile was stored; if a
/// mask grows; and, fewer, if tiles overlap.
const ALONE: f64 = 3500.0;
const MASKED: f64 = 2000.0;
const OVERLAPPED: f64 = 450.0;
/// Factor of a block if O is rescaled lazily: with as many elements of O as scores per thread, or with fewer.
const LAZY: [f64; 2] = [0.985, 1.02];
/// Microseconds of a launch.
const LAUNCH: f64 = 3.0;

impl Attention {
    /// Predicted microseconds. The numbers of this model are from some thirty kernels and shapes on an H100.
    fn predict(&self, request: &AttentionRequest, machine: &Machine) -> f64 {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = request.problem;
        let plan = self.plan();
        let AttentionSpec { head: [d, dv], tile: [rows, block], mask, turns, pack, lazy, .. } = plan.spec;
        let scores = f64::from(rows) * f64::from(block);
        let products = 2.0 * scores * f64::from(d + dv) / (RATE * machine.tensor);
        let weights = scores * WEIGHT;
        let both = if turns && rows > 64 {
            products.max(weights) + UNCOVERED * products.min(weights)
        } else {
            products + weights
        };
        let factor = if lazy { LAZY[usize::from(block > dv)] } else { 1.0 };
        let grows = mask == Mask::Causal;
        let tiles = f64::from(queries.div_ceil(rows / pack));
        let blocks = f64::from(keys.div_ceil(block));
        // Tiles of a causal mask are dealt out so that CTAs have about as many blocks.
        let seen = if grows && keys >= queries {
            let least = f64::from(keys - queries) / f64::from(block);
            (least + blocks) / 2.0 + 0.5
        } else {
            blocks
        };
        let tile =
            TILE + if plan.rings[0].stages == 1 { ALONE } else { 0.0 } + if grows { MASKED } else { 0.0 }
                - if plan.overlaps { OVERLAPPED } else { 0.0 };
        let all = f64::from(batch) * f64::from(heads / pack) * tiles;
        let waves = (all / f64::from(machine.multiprocessors)).ceil();
        let computed = waves * (seen * factor * (both + BLOCK) + tile) / machine.cycles;
        // Everything comes from memory once.
        let rows = f64::from(heads) * f64::from(queries) + f64::from(shared) * f64::from(keys);
        let bytes = f64::from(batch) * rows * f64::from(d + dv) * f64::from(plan.spec.format.bytes());
        LAUNCH + computed.max(bytes / machine.dram)
    }
}

impl Family for Attention {
    const NAME: &'static str = "attention";
    type Request<'r> = AttentionRequest;
    type Problem = String;
    type Spec = AttentionSpec;
    type Call = AttentionCall;

    fn of_spec(spec: &AttentionSpec) -> Result<Self, String> {
        Self::new(*spec).map_err(|error| error.to_string())
    }

    fn spec(&self) -> Option<AttentionSpec> {
        self.has_masks_of_specs().then_some(self.plan().spec)
    }

    /// For example `4x16/16x4096x4096 d=128 mask=causal`: sequences, heads of Q and of K, queries and keys, and the types.
    fn problem(request: &AttentionRequest) -> String {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = request.problem;
        let extents = format!("{batch}x{heads}/{shared}x{queries}x{keys}");
        format!("{extents} {}", request.spec()).trim_end().to_owned()
    }

    fn call(request: &AttentionRequest) -> AttentionCall {
        let AttentionRequest { head: [d, dv], problem, .. } = *request;
        let AttentionProblem { heads: [heads, shared], queries, keys, .. } = problem;
        let packed = |heads, length, d| HeadsRef::heads_first(0, [heads, length, d]);
        let read = [packed(heads, queries, d), packed(shared, keys, d), packed(shared, keys, dv)];
        // Any address that is not 0 says that it is stored.
        let log_sum_exp = u64::from(request.log_sum_exp) << 8;
        AttentionCall { log_sum_exp, ..AttentionCall::new(problem, read, packed(heads, queries, dv)) }
    }

    fn ranked(
        request: &AttentionRequest,
        machine: &Machine,
        most: usize,
    ) -> Result<Vec<Predicted<Self>>, String> {
        let spec = request.spec();
        // The plan refuses what does not fit; the spec's own tile says why, if nothing does.
        let tiles = [128, 192, 64].into_iter().flat_map(|rows| {
            [128, 176, 160, 144, 112, 96, 80, 64, 48].into_iter().map(move |keys| [rows, keys])
        });
        let [heads, shared] = request.problem.heads;
        let share = if shared > 0 && heads.is_multiple_of(shared) { heads / shared } else { 1 };
        let packs = [1, share].into_iter().take(if share > 1 && share <= 64 { 2 } else { 1 });
        let switches = [(false, false), (true, false), (false, true), (true, true)];
        let space = tiles.flat_map(|tile| {
            packs.clone().flat_map(move |pack| {
                switches.map(|(overlap, lazy)| AttentionSpec { tile, pack, overlap, lazy, ..spec })
            })
        });
        cheapest(space, most, |kernel: &Self| kernel.predict(request, machine))
    }

    fn operations(request: &AttentionRequest) -> f64 {
        request.spec().operations(&request.problem)
    }
}
