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
        let (extents, words) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
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
const WEIGHT: f64 = 0.1;
/// The part of the shorter of products and weights that the longer one does not cover, while consumers take turns.
const UNCOVERED: f64 = 0.25;
/// Cycles of a block of keys, and of a tile, in addition.
const BLOCK: f64 = 100.0;
const TILE: f64 = 1500.0;
/// Microseconds of a launch.
const LAUNCH: f64 = 3.0;

impl Attention {
    /// Predicted microseconds. The numbers of this model are from a few kernels on an H100.
    fn predict(
        &self,
        AttentionProblem { batch, heads, queries, keys, .. }: &AttentionProblem,
        machine: &Machine,
    ) -> f64 {
        let AttentionSpec { head: [d, dv], tile: [rows, block], mask, turns, .. } = self.plan().spec;
        let scores = f64::from(rows) * f64::from(block);
        let products = 2.0 * scores * f64::from(d + dv) / (RATE * machine.tensor);
        let weights = scores * WEIGHT;
        let both = if turns && rows > 64 {
            products.max(weights) + UNCOVERED * products.min(weights)
        } else {
            products + weights
        };
        let tiles = f64::from(queries.div_ceil(rows));
        let blocks = f64::from(keys.div_ceil(block));
        // Tiles of a causal mask are dealt out so that CTAs have about as many blocks.
        let seen = if mask == Mask::Causal && keys >= queries {
            let least = f64::from(keys - queries) / f64::from(block);
            (least + blocks) / 2.0 + 0.5
        } else {
            blocks
        };
        let all = f64::from(*batch) * f64::from(heads[0]) * tiles;
        let waves = (all / f64::from(machine.multiprocessors)).ceil();
        LAUNCH + waves * (seen * (both + BLOCK) + TILE) / machine.cycles
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
        let space = tiles.flat_map(|tile| {
            [true, false].into_iter().map(move |turns| AttentionSpec { tile, turns, ..spec })
        });
        cheapest(space, most, |kernel: &Self| kernel.predict(&request.problem, machine))
    }

    fn operations(request: &AttentionRequest) -> f64 {
        request.spec().operations(&request.problem)
    }
}
