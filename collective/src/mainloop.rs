//! Collective mainloops: bringing operand tiles into shared memory and multiplying them.
//!
//! A mainloop has two sides, each emitted into the branch of its warp role. The *producer* side copies the tiles
//! of a piece of work into the ring; the *consumer* side multiplies them into accumulators, which it hands to the
//! epilogue as a [`Fragment`].

mod tma_wgmma;

pub use tma_wgmma::TmaWgmma;

use cute_rs::{Layout, LayoutError, ThreadValue};
use ptx::abi::Argument;
use ptx::{Builder, Scalar, Value, Var};

use crate::operand::Matrix;
use crate::pipeline::Position;
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
    /// First row of the warpgroup's first block in the output.
    pub m: Value<'f, u32>,
    /// First column of the tile in the output.
    pub n: Value<'f, u32>,
    /// The thread's index in its warpgroup.
    pub thread: Value<'f, u32>,
}

impl<'f, T> Fragment<'f, T> {
    const REGULAR: &'static str = "each mode of an accumulator runs along rows or along columns";

    /// The output row of the thread's value 0 in block 0.
    pub fn thread_row(&self) -> Value<'f, u32> {
        self.m + Self::of_thread(self.layout.rows(), self.thread)
    }

    /// The output column of the thread's value 0.
    pub fn thread_column(&self) -> Value<'f, u32> {
        self.n + Self::of_thread(self.layout.columns(), self.thread)
    }

    /// Rows from the thread's value 0 to its value `value`, in the same block.
    pub fn value_row(&self, value: u32) -> u32 {
        Self::of_value(self.layout.rows(), value)
    }

    /// Columns from the thread's value 0 to its value `value`.
    pub fn value_column(&self, value: u32) -> u32 {
        Self::of_value(self.layout.columns(), value)
    }

    fn of_thread(projection: Result<Layout, LayoutError>, thread: Value<'f, u32>) -> Value<'f, u32> {
        projection.and_then(|layout| layout.mode(0).apply(thread)).expect(Self::REGULAR)
    }

    fn of_value(projection: Result<Layout, LayoutError>, value: u32) -> u32 {
        projection.and_then(|layout| layout.mode(1).apply(value)).expect(Self::REGULAR)
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
    fn load<'f>(f: &'f Builder, plan: &Plan, device: Self::Device<'f>, ring: Position<'f>, piece: Piece<'f>);

    /// Emitted for a consumer warpgroup: multiplies a piece.
    fn multiply<'f>(
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) -> Fragment<'f, Self::Accumulator>;
}

/// Who a consumer thread is.
#[derive(Clone, Copy, Debug)]
pub struct Consumer<'f> {
    /// The warpgroup's index among the consumers, the same in all its threads.
    pub warpgroup: Value<'f, u32>,
    /// The thread's index in the warpgroup.
    pub thread: Value<'f, u32>,
    /// True in the one lane of each warp that speaks for it.
    pub leader: Value<'f, bool>,
}
