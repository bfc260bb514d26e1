//! Collective mainloops: bringing operand tiles into shared memory and multiplying them.
//!
//! A mainloop has two sides, each emitted into the branch of its warp role. The *producer* side copies the tiles
//! of a piece of work into the ring; the *consumer* side multiplies them into accumulators, which it hands to the
//! epilogue as a [`Fragment`].

mod tma_wgmma;

pub use tma_wgmma::TmaWgmma;

use std::collections::BTreeMap;

use cute_rs::atom::SwizzleMode;
use cute_rs::{CoordLayout, IntTuple, Layout, LayoutError, ThreadValue};
use ptx::abi::{Argument, TensorSwizzle};
use ptx::{Builder, Scalar, Value, Var};

use crate::operand::Matrix;
use crate::pipeline::{ClusterPosition, Position, Release, Turns};
use crate::plan::{MainloopSpec, Plan};

/// A piece of work in elements: where the output tile begins, and which k-tiles are summed.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'f> {
    /// First row.
    pub m: Value<'f, u32>,
    /// First column.
    pub n: Value<'f, u32>,
    /// First k-tile.
    pub k_begin: Value<'f, u32>,
    /// One past the last k-tile.
    pub k_end: Value<'f, u32>,
}

/// The part of an output tile that one consumer warpgroup holds in registers.
#[derive(Debug)]
pub struct Fragment<'f, T> {
    /// Accumulators by 64-row block: `[block][value]`.
    pub blocks: Vec<Vec<Var<'f, T>>>,
    /// Which element of a 64-row block a thread's value is: `(thread, value) -> (m, n)`.
    pub layout: ThreadValue,
    /// Shared address of the CTA's dynamic shared memory.
    pub shared: Value<'f, u32>,
    /// The warpgroup's index among the consumers.
    pub warpgroup: Value<'f, u32>,
    /// First row of the warpgroup's first block in the output.
    pub m: Value<'f, u32>,
    /// First column of the tile in the output.
    pub n: Value<'f, u32>,
    /// The thread's index in its warpgroup.
    pub thread: Value<'f, u32>,
}

/// One row of a 64-row block as a thread holds it, or some neighbouring columns of it.
#[derive(Debug)]
pub struct FragmentRow<'f, T> {
    /// The row in the output.
    pub row: Value<'f, u32>,
    /// The output column of the thread's value 0.
    pub column: Value<'f, u32>,
    /// Pairs of neighbouring columns, in order.
    pub pairs: Vec<FragmentPair<'f, T>>,
}

/// Two neighbouring columns of a row.
#[derive(Clone, Copy, Debug)]
pub struct FragmentPair<'f, T> {
    /// The first column, counted from the thread's value 0.
    pub column: u32,
    /// The accumulators.
    pub values: [Value<'f, T>; 2],
}

impl<'f, T: Copy> FragmentRow<'f, T> {
    /// The pairs `first..first + count` alone.
    pub fn part(&self, first: usize, count: usize) -> Self {
        let pairs = self.pairs.iter().skip(first).take(count).copied().collect();
        Self { row: self.row, column: self.column, pairs }
    }
}

impl<'f, T> FragmentRow<'f, T> {
    /// How many columns lie between the thread's value 0 and the output's edge; zero where the row is outside.
    pub fn columns_inside(&self, extent: crate::Extent<'f>) -> Value<'f, u32> {
        let left = (extent.n - self.column).where_or(self.column.less_than(extent.n), 0);
        left.where_or(self.row.less_than(extent.m), 0)
    }
}

impl<'f, T: Scalar> Fragment<'f, T> {
    /// The rows of a block that a thread holds, top to bottom.
    ///
    /// Every accumulator holds values in pairs: `v` and `v + 1` are neighbours of one row for even `v`.
    pub fn rows(&self, block: u32) -> Vec<FragmentRow<'f, T>> {
        let regular = "each mode of an accumulator runs along rows or along columns";
        let (rows, columns) = (self.layout.rows().expect(regular), self.layout.columns().expect(regular));
        let of_thread = |layout: Layout| layout.mode(0).apply(self.thread).expect(regular);
        let of_value =
            |layout: Layout, value: u32| -> Result<u32, LayoutError> { layout.mode(1).apply(value) };
        let (thread_row, column) = (self.m + block * 64 + of_thread(rows), self.n + of_thread(columns));

        let accumulators = self.blocks.get(block as usize).map_or(&[][..], Vec::as_slice);
        let mut by_row = BTreeMap::<u32, Vec<FragmentPair<'f, T>>>::new();
        for (value, pair) in (0u32..).step_by(2).zip(accumulators.chunks_exact(2)) {
            let (row, column) =
                (of_value(rows, value).expect(regular), of_value(columns, value).expect(regular));
            let values = [pair[0].get(), pair[1].get()];
            by_row.entry(row).or_default().push(FragmentPair { column, values });
        }
        let row = |(offset, pairs)| FragmentRow { row: thread_row + offset, column, pairs };
        by_row.into_iter().map(row).collect()
    }
}

/// The coordinates of up to three modes whose extents only the device knows: tiles go on behind the extent that stands for
/// them here.
pub(crate) fn unbounded(modes: usize) -> Result<CoordLayout, LayoutError> {
    CoordLayout::identity(IntTuple::int(1 << 20).repeat(modes)?)
}

/// A swizzle mode as a tensor map calls it.
pub(crate) fn tensor_swizzle(mode: SwizzleMode) -> TensorSwizzle {
    match mode {
        SwizzleMode::None => TensorSwizzle::None,
        SwizzleMode::B32 => TensorSwizzle::B32,
        SwizzleMode::B64 => TensorSwizzle::B64,
        SwizzleMode::B128 => TensorSwizzle::B128,
    }
}

/// A collective mainloop.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mainloop",
    note = "write `TmaWgmma<Operands<A, B>, Tile<M, N, K>, Cooperative<Consumers>>`"
)]
pub trait Mainloop: 'static {
    /// Type of the accumulators.
    type Accumulator: Scalar;
    /// Operand A's element.
    type A: crate::Element;
    /// Operand B's element.
    type B: crate::Element;
    /// What it asks of the plan.
    const SPEC: MainloopSpec;
    /// Its kernel parameters on the device.
    type Device<'f>: Copy;

    /// An identifier for kernel names.
    fn name() -> String;

    /// Declares its kernel parameters, in the order of [`Mainloop::arguments`].
    fn declare<'f>(f: &'f Builder, plan: &Plan) -> Self::Device<'f>;

    /// The values of its parameters for these operands.
    fn arguments(plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument>;

    /// Emitted for one thread at the start: fetches what copies will need.
    fn prefetch<'f>(f: &'f Builder, device: Self::Device<'f>);

    /// Emitted for one thread of the producer: starts every copy of a piece.
    fn load<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        cluster: ClusterPosition<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    );

    /// Emitted for a consumer warpgroup: multiplies a piece.
    fn multiply<'f>(
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) -> Fragment<'f, Self::Accumulator>;

    /// Emitted for every warpgroup where there is no producer: loads a piece and multiplies it. Of `[ring, ahead]` the
    /// first is the consumers' position, the second that of the thread that fills stages.
    fn load_and_multiply<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        consumer: Consumer<'f>,
        positions: [Position<'f>; 2],
        piece: Piece<'f>,
    ) -> Fragment<'f, Self::Accumulator>;
}

/// Who a consumer thread is.
#[derive(Clone, Copy, Debug)]
pub struct Consumer<'f> {
    /// Shared address of the CTA's dynamic shared memory.
    pub shared: Value<'f, u32>,
    /// The warpgroup's index among the consumers, the same in all its threads.
    pub warpgroup: Value<'f, u32>,
    /// Which of the parts of a tile, along M, is the warpgroup's.
    pub part: Value<'f, u32>,
    /// The thread's index in the warpgroup.
    pub thread: Value<'f, u32>,
    /// How the warpgroup gives stages back.
    pub release: Release<'f>,
    /// How it takes turns with the other consumers: a mainloop begins before it waits for its first stage, and passes
    /// when it has waited for its last.
    pub turns: Turns<'f>,
}
