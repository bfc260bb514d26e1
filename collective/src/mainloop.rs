//! Collective mainloops: bringing operand tiles into shared memory and multiplying them.
//!
//! A mainloop has two sides, each emitted into the branch of its warp role. The *producer* side copies the tiles
//! of a piece of work into the ring; the *consumer* side multiplies them into accumulators, which it hands to the
//! epilogue as [`Sums`]: a [`Fragment`] of the accumulators' type.
//!
//! The mainloops of this crate are made of parts that others are made of, too: see the crate's page.

mod block_scaled;
mod convert;
mod copy_wgmma;
mod fragments;
mod maps;
mod multiplier;
mod multistage;
mod of_spec;
mod places;
mod product;
mod promotion;
mod quantized;
mod sparse;
mod stages;
mod sums;
mod tensor_copy;
mod thread_copy;
mod tma_wgmma;

pub use block_scaled::ScaledCopies;
pub use copy_wgmma::{CopyWgmma, ThreadCopies};
pub use fragments::{Convert, Fragments};
pub use multistage::{MmaPair, MmaSync, MmaSyncWith, Simt, SimtElement, SimtPair};
pub use product::{Found, Product};
pub use quantized::QuantizedCopies;
pub use sparse::SparseCopies;
pub use stages::InFlight;
pub use sums::{Accumulator, Sums};
pub use tensor_copy::{Origin, TensorCopy};
pub use thread_copy::{ThreadCopy, ThreadOrigin};
pub use tma_wgmma::{TensorCopies, TmaWgmma};

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use cute_rs::atom::SwizzleMode;
use cute_rs::{CoordLayout, IntTuple, Layout, LayoutError, MmaAtom, Partition, TiledMma};
use ptx::abi::{Argument, TensorSwizzle};
use ptx::{Builder, Scalar, Value, Var};

use crate::extent::Extent;
use crate::form::Forms;
use crate::operand::Matrix;
use crate::pipeline::{ClusterPosition, Position, Release, Turns};
use crate::plan::{MainloopSpec, Plan};
use crate::record::RecordDevice;

/// The named barriers of the consumer warpgroups begin here; 0 is the CTA's.
const FIRST_BARRIER: u32 = 1;

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
    /// Columns that are computed, a multiple of the mainloop's step; `None` where those of a tile always are.
    pub columns: Option<Value<'f, u32>>,
    /// Which of several products it is of; `None` where there is but one.
    pub group: Option<Value<'f, u32>>,
    /// What memory says of the product, where it does.
    pub record: Option<RecordDevice<'f>>,
}

/// The part of an output tile that one consumer warpgroup holds in registers.
#[derive(Debug)]
pub struct Fragment<'f, T> {
    /// Accumulators by block, the rows of one instruction: `[block][value]`.
    pub blocks: Vec<Vec<Var<'f, T>>>,
    /// Which elements `(m, n)` of the tile the threads hold: part `(thread, part, _, _)` is `(value, block, side)`, where
    /// values go on in the instructions side by side.
    pub elements: Partition<CoordLayout>,
    /// Shared address of the CTA's dynamic shared memory.
    pub shared: Value<'f, u32>,
    /// The warpgroup's index among the consumers.
    pub warpgroup: Value<'f, u32>,
    /// First element `(m, n)` of the warpgroup's first block in the output.
    pub first: [Value<'f, u32>; 2],
    /// Columns that were multiplied: fewer than the tile's where it is narrowed. What lies behind them is not the piece's.
    pub columns: u32,
    /// The thread's index in its warpgroup.
    pub thread: Value<'f, u32>,
}

/// One row of a block as a thread holds it, or some neighbouring columns of it.
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
    pub fn columns_inside(&self, extent: Extent<'f>) -> Value<'f, u32> {
        let left = (extent.n - self.column).where_or(self.column.less_than(extent.n), 0);
        left.where_or(self.row.less_than(extent.m), 0)
    }
}

impl<'f, T: Scalar> Fragment<'f, T> {
    /// The named barrier of the warpgroup's 128 threads.
    pub fn barrier(&self) -> Value<'f, u32> {
        self.warpgroup + FIRST_BARRIER
    }

    /// The same accumulators once more.
    pub(crate) fn copied(&self) -> Self {
        Self { blocks: self.blocks.clone(), ..*self }
    }

    /// One block of a narrower tile that begins `offset` (m, n) behind this fragment's first element.
    pub(crate) fn narrowed(&self, plan: &Plan, block: Vec<Var<'f, T>>, [m, n]: [Value<'f, u32>; 2]) -> Self {
        let elements =
            output_elements(&plan.mainloop).expect("a plan admits only tiles that wgmma multiplies");
        let first = [self.first[0] + m, self.first[1] + n];
        Self { blocks: vec![block], elements, first, ..*self }
    }

    /// The element `(m, n)` of the output that is the thread's value 0.
    pub fn start(&self) -> [Value<'f, u32>; 2] {
        begin(&self.elements, self.first, [Some(self.thread), None])
    }

    /// The rows of a block that a thread holds, top to bottom, if its value 0 is element `start`.
    ///
    /// Every accumulator holds values in pairs: `v` and `v + 1` are neighbours of one row for even `v`.
    pub fn rows(&self, [row, column]: [Value<'f, u32>; 2], block: u32) -> Vec<FragmentRow<'f, T>> {
        let elements = self.elements.part();
        // Values of instructions side by side follow each other.
        let held = elements.mode(0).size();
        let accumulators = self.blocks.get(block as usize).map_or(&[][..], Vec::as_slice);
        let mut by_row = BTreeMap::<u32, Vec<FragmentPair<'f, T>>>::new();
        for (value, pair) in (0i64..).step_by(2).zip(accumulators.chunks_exact(2)) {
            let element = elements.at_modes(&[value % held, block.into(), value / held]);
            let [row, column] =
                [0, 1].map(|mode| u32::try_from(element.leaf(mode)).expect("a tile is small"));
            let values = [pair[0].get(), pair[1].get()];
            by_row.entry(row).or_default().push(FragmentPair { column, values });
        }
        let row = |(offset, pairs)| FragmentRow { row: row + offset, column, pairs };
        by_row.into_iter().map(row).collect()
    }
}

/// The multiply of a tile by all consumer warpgroups that share it: each has an equal share of the rows, in blocks that follow
/// each other. Instructions side by side that are not equally wide count as more of equal ones.
pub(crate) fn tiled_mma(spec: &MainloopSpec) -> Result<TiledMma, LayoutError> {
    tiled(spec, spec.atom.layout(spec.column_unit())?)
}

/// The same with other layouts of the multiply of a block's rows.
pub(crate) fn tiled(spec: &MainloopSpec, atom: MmaAtom) -> Result<TiledMma, LayoutError> {
    let (blocks, rows, tile_m) =
        (i64::from(spec.blocks()), i64::from(spec.atom.rows()), i64::from(spec.tile[0]));
    let parts = if blocks == 0 { 0 } else { tile_m / (rows * blocks) };
    let shares = Layout::flat(&[rows, parts, blocks], &[1, rows * blocks, rows])?;
    TiledMma::new(atom, [parts, 1, 1])?.permuted([Some(shares), None, None])
}

/// Which elements `(m, n)` of an output tile the threads of its consumer warpgroups hold.
pub(crate) fn output_elements(spec: &MainloopSpec) -> Result<Partition<CoordLayout>, LayoutError> {
    let [m, n, _] = spec.tile;
    let output = CoordLayout::identity(IntTuple::from((i64::from(m), i64::from(n))))?;
    tiled_mma(spec)?.partition(cute_rs::Operand::C, &output)
}

/// Where the part `(thread, part, _, _)` of a tile that begins at `tile` begins; what is `None` counts as the first.
pub(crate) fn begin<'f>(
    parts: &Partition<CoordLayout>,
    tile: [Value<'f, u32>; 2],
    [thread, part]: [Option<Value<'f, u32>>; 2],
) -> [Value<'f, u32>; 2] {
    let zero = tile[0].builder().constant(0);
    let coord = [thread, part, None, None].map(|coord| Some(coord.unwrap_or(zero)));
    parts.tensor(tile, &coord).expect("a matrix has two modes, and its parts four").start
}

/// The coordinates of up to three modes whose extents only the device knows: tiles go on behind the extent that stands for
/// them here.
pub(crate) fn unbounded(modes: usize) -> Result<CoordLayout, LayoutError> {
    CoordLayout::identity(IntTuple::int(1 << 20).repeat(modes)?)
}

/// The mainloops of this crate load A and B: a stage that lacks one is another mainloop's.
pub(crate) fn both_staged(f: &Builder, plan: &Plan) {
    if !plan.mainloop.operands.iter().all(|operand| operand.staged) {
        f.refuse("TmaWgmma and CopyWgmma bring both operands into stages: write a `DeviceMainloop` that loads those that there are");
    }
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

/// What becomes of a piece's sums. A mainloop whose tiles may be narrowed emits it for every width, and runs one.
pub type Finish<'a, 'f> = &'a dyn Fn(&Plan, Sums<'f>);

/// A collective mainloop as a type: the first role of a kernel.
///
/// The type says what a plan needs while it compiles, and gives the value that emits: a [`MainloopEmitter`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mainloop",
    note = "write `TmaWgmma<Operands<A, B>, Tile<M, N, K>, Cooperative<Consumers>>`, or `CopyWgmma` for operands \
            at any address"
)]
pub trait Mainloop: 'static {
    /// What it asks of the plan.
    const SPEC: MainloopSpec;
    /// The forms of kernels it can be part of: beyond one product, those whose operands it takes by
    /// [`Piece::group`] and [`Piece::record`].
    const FORMS: Forms = Forms::SINGLE;
    /// Arguments of its own on the host, beside the operands: indices to gather rows by, say. A mainloop without any has
    /// `()`.
    type Arguments: Default;

    /// The mainloop as a value.
    fn emitter() -> Arc<dyn MainloopEmitter>;

    /// Whether the arguments of its own are legal. Those that nobody has bound are the default ones.
    ///
    /// # Errors
    /// A sentence: which argument, its value, and what was needed.
    fn check(_own: &Self::Arguments, _a: Matrix, _b: Matrix) -> Result<(), String> {
        Ok(())
    }

    /// The values of the parameters that [`MainloopEmitter::declare`] declares, for arguments that were checked: by default
    /// those that the emitter has for the operands alone.
    fn arguments(plan: &Plan, a: Matrix, b: Matrix, _own: &Self::Arguments) -> Vec<Argument> {
        Self::emitter().arguments(plan, a, b)
    }
}

/// A mainloop that emits itself.
pub trait MainloopEmitter: fmt::Debug + Send + Sync {
    /// An identifier for kernel names.
    fn name(&self, spec: &MainloopSpec) -> String;

    /// Whether the spec says all of it: a mainloop of this crate.
    fn is_built_in(&self) -> bool {
        false
    }

    /// Declares its kernel parameters, in the order of [`arguments`](Self::arguments).
    fn declare<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f>;

    /// The values of its parameters for these operands, where its own arguments are the default ones.
    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument>;
}

/// A mainloop in a kernel: its parameters on the device.
pub trait DeviceMainloop<'f> {
    /// Emitted for one thread at the start: fetches what copies will need.
    fn prefetch(&self, _f: &'f Builder) {}

    /// Emitted for the lanes of a CTA's first warp, after what global memory is waited for; a barrier follows.
    fn prepare(&self, _f: &'f Builder, _plan: &Plan) {}

    /// Emitted for the producer, one thread or a warpgroup as [`MainloopSpec::producer`] says: copies a piece into stages.
    /// By default the program is illegal: where there is a producer, it is needed.
    fn load(
        &self,
        f: &'f Builder,
        _plan: &Plan,
        _cluster: ClusterPosition<'f>,
        _ring: Position<'f>,
        _piece: Piece<'f>,
    ) {
        f.refuse("the mainloop's SPEC has a producer: write `DeviceMainloop::load`");
    }

    /// Emitted for a consumer warpgroup: multiplies a piece and hands the sums to `finish`, with the plan of a tile as wide as
    /// they are. By default by `wgmma` from stages that hold A's tile and then B's, each as [`Plan::operands`] says. A comes from
    /// registers where the spec's atom takes it from there.
    fn multiply(
        &self,
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
        finish: Finish<'_, 'f>,
    ) {
        multiplier::ring(f, plan, consumer, ring, piece, finish);
    }

    /// Emitted for every warpgroup where there is no producer ([`Roles::Unspecialised`](crate::Roles)): loads a piece and
    /// multiplies it. Of `[ring, ahead]` the first is the consumers' position, the second that of the thread that fills
    /// stages. By default the program is illegal: where nobody else loads, it is needed.
    fn load_and_multiply(
        &self,
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        _positions: [Position<'f>; 2],
        piece: Piece<'f>,
    ) -> Sums<'f> {
        f.refuse("the mainloop's SPEC has no producer: write `DeviceMainloop::load_and_multiply`");
        Sums::F32(Fragment {
            blocks: Vec::new(),
            elements: output_elements(&plan.mainloop)
                .expect("a plan admits only tiles that wgmma multiplies"),
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            first: [piece.m, piece.n],
            columns: plan.mainloop.tile[1],
            thread: consumer.thread,
        })
    }
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
