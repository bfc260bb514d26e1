//! The order in which a kernel adds up the products of an element of D.

use collective::{AccumulatorType, MmaKind, Plan};
use scheduler::{Rule, SchedulerSpec};

use crate::gemm::AnyGemm;
use crate::spec::KernelSpec;

/// The order in which a kernel adds up the products of an element of D. Use it to tell which kernels give the same bits.
///
/// Two kernels for the same [`Types`](crate::Types) with equal summations give an element of D the same bits from the same
/// row of A and the same column of B. Tiles, warp roles, clusters, stages, schedules, swap-AB, M, N, the other GEMMs of the launch and
/// the number of SMs do not matter. (Reductions of the epilogue across elements, such as sums of columns, have orders of their own.)
///
/// ```
/// use kernel::KernelSpec;
///
/// let summation = |text: &str| text.parse::<KernelSpec>().map(|spec| spec.summation());
/// let whole = summation("tile=128x256x64")?;
/// assert_eq!(summation("tile=64x32x128 consumers=1 swap=yes scheduler=dynamic")?, whole);
/// assert_ne!(summation("tile=128x128x64 scheduler=cluster-k splits=2")?, whole);
/// assert_eq!(summation("scheduler=stream-k")?, None); // it depends on M, N and the card
/// # Ok::<(), kernel::SpecError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Summation {
    /// Integers modulo 2^32: every order gives the same bits.
    Exact,
    /// Along K, instruction by instruction.
    Ordered {
        /// The instruction that multiplies.
        multiply: MmaKind,
        /// Its K in elements. The instruction adds that many products at once.
        k: u32,
        /// The accumulators' type.
        sums: AccumulatorType,
        /// Elements of K after which accumulators are added to sums: usually, and after the last whole interval. Zeros if they never
        /// are. With block scales: the blocks.
        promoted: [u32; 2],
        /// Number of parts of K that are summed apart and then added in order, and the number of elements that they are multiples of;
        /// `[1, 0]` if K is not split.
        parts: [u32; 2],
    },
}

impl Summation {
    /// The summation of a kernel of built-in parts; `None` if the order depends on the number of tiles, on the number of SMs, or on
    /// which CTA comes first.
    pub(crate) const fn of(plan: &Plan, scheduler: SchedulerSpec) -> Option<Self> {
        let (atom, tile_k) = (plan.mainloop.atom, plan.mainloop.tile[2]);
        if let AccumulatorType::S32 = atom.sums() {
            return Some(Self::Exact);
        }
        let parts = match scheduler.rule {
            Rule::OneTile | Rule::Persistent | Rule::Dynamic | Rule::NarrowTail { .. } => [1, 0],
            Rule::ClusterK { parts } => [parts, tile_k],
            Rule::DividedTail { .. } | Rule::StreamK { .. } => return None,
        };
        let every = atom.promote * atom.k();
        let promoted = if plan.mainloop.is_scaled() {
            [tile_k; 2]
        } else if every > 2 * tile_k {
            // What is left after the last whole interval is added up k-tile by k-tile.
            [every, tile_k]
        } else {
            [every; 2]
        };
        let multiply = atom.types.multiply();
        Some(Self::Ordered { multiply, k: atom.k(), sums: atom.sums(), promoted, parts })
    }

    /// Whether K is not split, so that the order depends on the types and the instruction alone.
    pub(crate) const fn is_whole(self) -> bool {
        matches!(self, Self::Exact | Self::Ordered { parts: [1, _], .. })
    }
}

impl KernelSpec {
    /// The order in which the kernel adds up products; `None` if it depends on more than the kernel and K, or if the spec is illegal.
    pub fn summation(&self) -> Option<Summation> {
        Summation::of(&self.plan().ok()?, self.scheduler)
    }
}

impl AnyGemm {
    /// The order in which the kernel adds up products; `None` if it depends on more than the kernel and K, or if the mainloop or the
    /// scheduler is not a built-in one.
    pub fn summation(&self) -> Option<Summation> {
        let scheduler = self.scheduler.spec().filter(|_| self.mainloop.is_built_in())?;
        Summation::of(&self.plan, scheduler)
    }
}
