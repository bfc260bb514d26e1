//! Attention as a family of kernels: what is asked, the space of specs, and a prediction.

use collective::Format;
use kernel::{Family, Machine, Predicted, cheapest};

use crate::kernel::Attention;
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
}

impl AttentionRequest {
    /// bf16 with heads of `d` elements, where every query sees every key.
    pub const fn new(problem: AttentionProblem, d: u32) -> Self {
        Self { format: Format::Bf16, output: Format::Bf16, head: [d, d], mask: Mask::Full, problem }
    }

    /// The request's words of a spec.
    fn spec(&self) -> AttentionSpec {
        let Self { format, output, head, mask, .. } = *self;
        let store = if output == format { OutputStore::Tma } else { OutputStore::Direct };
        AttentionSpec { format, output, head, mask, store, ..AttentionSpec::DEFAULT }
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
        AttentionCall::new(problem, read, packed(heads, queries, dv))
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
