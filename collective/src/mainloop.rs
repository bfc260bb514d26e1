//! Collective mainloops: they load operand tiles into shared memory and multiply them.
//!
//! A mainloop has two sides. Each side is emitted into the branch of its warp role. The *producer* side
//! copies the tiles of a work unit into the stages of the ring. The *consumer* side multiplies them into
//! accumulators and hands these to the epilogue as [`Accumulators`]: a [`Fragment`] of the accumulator type.
//!
//! The mainloops of this crate are made of public parts, from which you can make your own: see the crate's
//! front page.

mod any;
mod block_scaled;
mod convert;
mod copy_wgmma;
mod device;
mod fragments;
mod group_scales;
mod maps;
mod metadata;
mod multiplier;
mod multistage;
mod of_spec;
mod places;
mod product;
mod promotion;
mod quantized;
mod scales;
mod sparse;
mod stages;
mod sums;
mod tensor_copy;
mod thread_copy;
mod tma_wgmma;

pub use any::AnyMainloop;
pub use copy_wgmma::CopyWgmma;
pub use device::DeviceMainloop;
pub use fragments::{Convert, Fragments};
pub use group_scales::{FACTORS, GroupScales};
pub(crate) use maps::OwnMaps;
pub use metadata::{METADATA, check_metadata};
pub use multistage::{MmaPair, MmaSync, MmaSyncWith, Simt, SimtPair};
pub use product::{MmaOperands, WarpgroupMma};
pub use scales::{BlockScales, SCALES};
pub use stages::{InFlight, Older};
pub use sums::{AccumulatorElement, Accumulators};
pub(crate) use tensor_copy::tensor_load;
pub use tensor_copy::{Origin, TensorCopy};
pub use thread_copy::{ThreadCopy, ThreadOrigin};
pub use tma_wgmma::TmaWgmma;

use std::collections::BTreeMap;

use cute_rs::atom::SwizzleMode;
use cute_rs::{CoordLayout, Partition};
use ptx::abi::TensorSwizzle;
use ptx::{Builder, Scalar, Special, Value, Var};

use crate::element::Format;
use crate::extent::Extent;
use crate::form::Forms;
use crate::operand::{Matrix, MatrixRef};
use crate::operands::{OwnSite, Visit};
use crate::pipeline::{ClusterPosition, Position, Release, Turns};
use crate::plan::{Arrivals, CtaPlan, MainloopNeeds, MainloopSpec, Plan, element_offset};
use crate::record::RecordDevice;

/// A work unit in elements: where its output tile begins, and the range of k-tiles to accumulate.
#[derive(Clone, Copy, Debug)]
pub struct WorkUnit<'f> {
    /// First row of the output tile.
    pub m: Value<'f, u32>,
    /// First column of the output tile.
    pub n: Value<'f, u32>,
    /// First k-tile.
    pub k_begin: Value<'f, u32>,
    /// One past the last k-tile.
    pub k_end: Value<'f, u32>,
    /// Number of columns to compute, a multiple of the mainloop's step. `None` if a tile always has all of
    /// its columns.
    pub columns: Option<Value<'f, u32>>,
    /// Index of the GEMM in a launch of several; `None` if the launch has only one.
    pub group: Option<Value<'f, u32>>,
    /// The GEMM's [`Record`](crate::Record) in device memory, if it has one.
    pub record: Option<RecordDevice<'f>>,
}

impl<'f> WorkUnit<'f> {
    /// The first row and the first column of the output tile.
    pub fn first(&self) -> [Value<'f, u32>; 2] {
        [self.m, self.n]
    }
}

/// The accumulators of one output tile that one consumer warpgroup holds in registers.
#[derive(Debug)]
pub struct Fragment<'f, T> {
    /// Accumulators by block, `[block][value]`. A block is the rows of one instruction.
    pub blocks: Vec<Vec<Var<'f, T>>>,
    /// Which elements `(m, n)` of the tile each thread holds. Part `(thread, part, _, _)` is `(value, block,
    /// side)`, where `side` is the index of an instruction among those next to each other along N. In
    /// `blocks`, the values of the next instruction follow those of the one before.
    pub elements: Partition<CoordLayout>,
    /// Address of the CTA's dynamic shared memory.
    pub shared: Value<'f, u32>,
    /// Index of the warpgroup among the consumers.
    pub warpgroup: Value<'f, u32>,
    /// First element `(m, n)` of the warpgroup's first block in the output.
    pub first: [Value<'f, u32>; 2],
    /// Number of columns that were multiplied, fewer than the tile's if the tile is narrowed. The columns
    /// after them do not belong to the work unit.
    pub columns: u32,
    /// Index of the thread in its warpgroup.
    pub thread: Value<'f, u32>,
}

/// The accumulators of one row of a block that a thread holds.
#[derive(Clone, Debug)]
pub struct RowVariables<'f, T> {
    /// Row, relative to the thread's value 0.
    pub row: u32,
    /// Each accumulator with its column, relative to the thread's value 0.
    pub elements: Vec<(u32, Var<'f, T>)>,
}

/// One row of a block as a thread holds it, or some neighbouring columns of that row.
#[derive(Debug)]
pub struct FragmentRow<'f, T> {
    /// Row in the output.
    pub row: Value<'f, u32>,
    /// Column in the output of the thread's value 0.
    pub column: Value<'f, u32>,
    /// Pairs of neighbouring columns, in order.
    pub pairs: Vec<FragmentPair<'f, T>>,
}

/// Two neighbouring columns of a row.
#[derive(Clone, Copy, Debug)]
pub struct FragmentPair<'f, T> {
    /// The first column, relative to the thread's value 0.
    pub column: u32,
    /// The accumulators.
    pub values: [Value<'f, T>; 2],
}

impl<'f, T: Copy> FragmentRow<'f, T> {
    /// Only the pairs `first..first + count`.
    pub fn part(&self, first: usize, count: usize) -> Self {
        let pairs = self.pairs.iter().skip(first).take(count).copied().collect();
        Self { row: self.row, column: self.column, pairs }
    }
}

impl<'f> FragmentRow<'f, f32> {
    /// Stores the row's elements in a format. `line` is where column 0 of the row is in global memory, so that a kernel puts the rows of a tile
    /// where it likes. Two neighbours are stored together if `pairs` holds, and always without it: they then begin at multiples of their size.
    #[track_caller]
    pub fn store(
        &self,
        f: &'f Builder,
        format: Format,
        line: Value<'f, u64>,
        pairs: Option<Value<'f, bool>>,
    ) {
        f.for_caller(|| {
            let base = line + self.column.mul_wide(format.bytes());
            let offset = |column: u32| (column * format.bytes()).cast_signed();
            let pack = |pair: &FragmentPair<'f, f32>| (pair.column, format.pack(f, pair.values));
            let packed: Vec<_> = self.pairs.iter().map(pack).collect();
            let together =
                || packed.iter().for_each(|&(column, pair)| pair.store_global(base, offset(column)));
            let apart = || {
                for &(column, pair) in &packed {
                    for (column, element) in (column..).zip(format.unpack(f, pair)) {
                        element.store_global(base, offset(column));
                    }
                }
            };
            match pairs {
                None => together(),
                Some(pairs) => f.if_else(pairs, together, apart),
            }
        });
    }
}

impl<'f, T> FragmentRow<'f, T> {
    /// Number of columns from the thread's value 0 to the edge of the output; zero if the row is outside.
    #[track_caller]
    pub fn columns_inside(&self, extent: Extent<'f>) -> Value<'f, u32> {
        let left = (extent.n - self.column).where_or(self.column.less_than(extent.n), 0);
        left.where_or(self.row.less_than(extent.m), 0)
    }
}

impl<'f, T: Scalar> Fragment<'f, T> {
    /// The named barrier of the warpgroup's 128 threads.
    #[track_caller]
    pub fn barrier(&self) -> Value<'f, u32> {
        CtaPlan::consumer_barrier(self.warpgroup)
    }

    /// A second view of the same accumulators.
    pub(crate) fn copied(&self) -> Self {
        Self { blocks: self.blocks.clone(), ..*self }
    }

    /// The accumulators with the two of each pair swapped.
    pub(crate) fn swapped(&self) -> Self {
        let swap =
            |block: &Vec<Var<'f, T>>| block.chunks(2).flat_map(|pair| pair.iter().rev().copied()).collect();
        Self { blocks: self.blocks.iter().map(swap).collect(), ..*self }
    }

    /// One block of a narrower tile that begins `offset` (m, n) after this fragment's first element.
    pub(crate) fn narrowed(&self, plan: &Plan, block: Vec<Var<'f, T>>, [m, n]: [Value<'f, u32>; 2]) -> Self {
        let elements = plan.mainloop.product().elements();
        let first = [self.first[0] + m, self.first[1] + n];
        Self { blocks: vec![block], elements, first, ..*self }
    }

    /// The output element `(m, n)` that is the thread's value 0.
    #[track_caller]
    pub fn start(&self) -> [Value<'f, u32>; 2] {
        self.thread.builder().for_caller(|| begin(&self.elements, self.first, [Some(self.thread), None]))
    }

    /// The rows of a block that a thread holds, top to bottom, when its value 0 is element `start`.
    ///
    /// Accumulators come in pairs: for even `v`, values `v` and `v + 1` are neighbours in one row.
    #[track_caller]
    pub fn rows(&self, start: [Value<'f, u32>; 2], block: u32) -> Vec<FragmentRow<'f, T>> {
        self.thread.builder().for_caller(|| self.rows_from(start, block))
    }

    fn rows_from(&self, [row, column]: [Value<'f, u32>; 2], block: u32) -> Vec<FragmentRow<'f, T>> {
        let accumulators = self.blocks.get(block as usize).map_or(&[][..], Vec::as_slice);
        let values: Vec<_> = accumulators.iter().map(|accumulator| accumulator.get()).collect();
        let pairs = |elements: Vec<(u32, Value<'f, T>)>| {
            let pair = |pair: &[(u32, _)]| FragmentPair { column: pair[0].0, values: [pair[0].1, pair[1].1] };
            elements.chunks_exact(2).map(pair).collect()
        };
        let row = |(offset, elements)| FragmentRow { row: row + offset, column, pairs: pairs(elements) };
        self.by_row(block, &values).into_iter().map(row).collect()
    }

    /// The accumulators of a block by row, top to bottom, as variables: to mask or to scale them in place. Rows and
    /// columns are relative to the thread's [first element](Self::start).
    pub fn variables(&self, block: u32) -> Vec<RowVariables<'f, T>> {
        let accumulators = self.blocks.get(block as usize).map_or(&[][..], Vec::as_slice);
        let row = |(row, elements)| RowVariables { row, elements };
        self.by_row(block, accumulators).into_iter().map(row).collect()
    }

    /// What there is one of per accumulator of a block: by row, each with its column.
    fn by_row<X: Copy>(&self, block: u32, values: &[X]) -> BTreeMap<u32, Vec<(u32, X)>> {
        let elements = self.elements.part();
        // The values of neighbouring instructions follow each other.
        let held = elements.mode(0).size();
        let mut by_row = BTreeMap::<u32, Vec<(u32, X)>>::new();
        for (value, &of_value) in (0i64..).zip(values) {
            let element = elements.at_modes(&[value % held, block.into(), value / held]);
            let [row, column] = [0, 1].map(|mode| element_offset(element.leaf(mode)));
            by_row.entry(row).or_default().push((column, of_value));
        }
        by_row
    }
}

/// First element of part `(thread, part, _, _)` of a tile that begins at `tile`. `None` stands for index 0.
pub(crate) fn begin<'f>(
    parts: &Partition<CoordLayout>,
    tile: [Value<'f, u32>; 2],
    [thread, part]: [Option<Value<'f, u32>>; 2],
) -> [Value<'f, u32>; 2] {
    let zero = tile[0].builder().constant(0);
    let coord = [thread, part, None, None].map(|coord| Some(coord.unwrap_or(zero)));
    parts.tensor(tile, &coord).expect("a matrix has two modes, and its parts four").start
}

/// Refuses a stage without A or B: `TmaWgmma` and `CopyWgmma` load both.
pub(crate) fn both_staged(f: &Builder, plan: &Plan) {
    if !plan.mainloop.operands.iter().all(|operand| operand.staged) {
        f.refuse("TmaWgmma and CopyWgmma load both operands into stages: write a `DeviceMainloop` of your own that loads only the staged ones");
    }
}

/// The name of a swizzle mode in a tensor map.
pub(crate) fn tensor_swizzle(mode: SwizzleMode) -> TensorSwizzle {
    match mode {
        SwizzleMode::None => TensorSwizzle::None,
        SwizzleMode::B32 => TensorSwizzle::B32,
        SwizzleMode::B64 => TensorSwizzle::B64,
        SwizzleMode::B128 => TensorSwizzle::B128,
    }
}

/// Called with the finished accumulators of one work unit. A mainloop whose tiles may be narrowed emits it
/// once per width; one of them runs.
pub type Finish<'a, 'f> = &'a dyn Fn(&Plan, Accumulators<'f>);

/// A collective mainloop as a type: the first role of a kernel.
///
/// The type states at compile time what the plan needs, and gives the [`DeviceMainloop`] that emits the
/// code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mainloop",
    note = "write `TmaWgmma<Operands<A, B>, Tile<M, N, K>, Cooperative<Consumers>>`, or `CopyWgmma` for operands \
            at any address"
)]
pub trait Mainloop: Sized + 'static {
    /// An identifier, with which the names of its kernels begin; the extents of its tile follow.
    const NAME: &'static str;
    /// What the mainloop asks of the plan.
    const SPEC: MainloopSpec;
    /// What it needs of the kernel around it. By default it gets the whole K of whole tiles, in one CTA:
    /// schedulers that divide K, narrowed tiles and clusters are refused.
    const NEEDS: MainloopNeeds = MainloopNeeds::ALL;
    /// The forms of kernels it supports. Beyond a single GEMM it has to select its operands by
    /// [`WorkUnit::group`] and [`WorkUnit::record`].
    const FORMS: Forms = Forms::SINGLE;
    /// Host arguments of its own, in addition to the operands: for example indices to gather rows by. `()` if
    /// there are none.
    type Arguments: Default + Clone + 'static;

    /// Checks the mainloop's own arguments. If the caller set none, they are the default ones.
    ///
    /// # Errors
    /// A sentence that names the argument, its value, and what is allowed.
    fn check(_own: &Self::Arguments, _a: Matrix, _b: Matrix) -> Result<(), String> {
        Ok(())
    }

    /// States the kernel parameters of the operands, and of what belongs to them. Those of [arguments of its
    /// own](Self::visit) follow. A and B are visited already, under their names ([`MainloopSite::name`]). By default they are those of this
    /// crate's mainloop with the same [`SPEC`](Self::SPEC), without those of a matrix that a call does not give
    /// ([`MainloopNeeds::matrices`]).
    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        Self::SPEC.mainloop().state(of, visit);
    }

    /// Visits every part of arguments of its own: what is visited is checked to be lent, may move between launches that are kept, and is
    /// filled with random contents by whoever checks or proves a kernel. Where there is a [plan](OwnSite::plan), it also states the kernel
    /// parameters that follow those of A and B, the same ones for all arguments.
    fn visit(_own: &mut Self::Arguments, _of: &OwnSite<'_>, _visit: &mut dyn Visit) {}

    /// The mainloop inside a kernel, which gets its parameters by their names ([`Builder::parameter`]).
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f>;

    /// The mainloop as a value.
    fn value() -> AnyMainloop {
        AnyMainloop::of::<Self>()
    }
}

/// For what a mainloop's interface is stated.
#[derive(Clone, Copy, Debug)]
pub struct MainloopSite<'a> {
    /// Every number of the kernel.
    pub plan: &'a Plan,
    /// The operands, if a launch is made: then parameters have their values.
    pub operands: Option<StagedOperands>,
    /// If records describe the operands: where in the workspace the kernel keeps its tensor maps, in bytes.
    pub maps: u64,
}

/// The operands of a launch, and what belongs to them.
#[derive(Clone, Copy, Debug)]
pub struct StagedOperands {
    /// A and B, as the kernel multiplies them.
    pub matrices: [Matrix; 2],
    /// The scales of [`BlockScaled`](crate::BlockScaled) operands.
    pub scales: BlockScales,
    /// The factors of [`Quantized`](crate::Quantized) weights.
    pub group_scales: GroupScales,
    /// Where the kept elements of a [`Sparse`](crate::Sparse) operand were.
    pub metadata: MatrixRef,
}

impl MainloopSite<'_> {
    /// The name of the caller's operand that the kernel multiplies as its A (0) or B (1).
    pub fn name(&self, i: usize) -> &'static str {
        self.plan.oriented(["A", "B"])[i]
    }

    /// The kernel's A (0) or B (1), if a launch is made.
    pub fn matrix(&self, i: usize) -> Option<Matrix> {
        self.operands.map(|operands| operands.matrices[i])
    }

    /// States the parameters of A's or B's tile: its [`OperandMap`](crate::stage::OperandMap), by these names. The map of a sparse A is that of its kept elements. Where records
    /// describe the matrices, nothing is read through the map, and its address is 0.
    pub fn map(&self, i: usize, names: [&'static str; 2], visit: &mut dyn Visit) {
        let (plan, tile) = (self.plan, self.plan.operands[i]);
        let kept =
            |k| if i == 0 && plan.mainloop.is_sparse() { crate::sparse::kept(tile.format, k) } else { k };
        let address = |address| if plan.form.described() { 0 } else { address };
        let matrix = self.matrix(i).map(|of| Matrix { address: address(of.address), k: kept(of.k), ..of });
        tile.state(names, self.name(i), (plan.operand_batches()[i], matrix), visit);
    }
}

/// What the code of a role for one work unit is emitted for.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a, 'f> {
    /// The program that is built.
    pub f: &'f Builder,
    /// Every number of the kernel.
    pub plan: &'a Plan,
    /// The role's position in the kernel's ring.
    pub ring: Position<'f>,
    /// The work unit.
    pub unit: WorkUnit<'f>,
}

/// The identity of a consumer thread: its warpgroup, and what it needs to walk the ring.
#[derive(Clone, Copy, Debug)]
pub struct Consumer<'f> {
    /// Address of the CTA's dynamic shared memory.
    pub shared: Value<'f, u32>,
    /// Index of the warpgroup among the consumers, the same in all its threads.
    pub warpgroup: Value<'f, u32>,
    /// Index of the warpgroup among those that share a tile: which rows of the tile it computes.
    pub part: Value<'f, u32>,
    /// Index of the thread in the warpgroup.
    pub thread: Value<'f, u32>,
    /// How the warpgroup releases stages.
    pub release: Release<'f>,
    /// The order among pingpong consumers, enforced by mbarriers. A mainloop calls `begin` before it waits
    /// for its first stage, and `pass` after it has waited for its last.
    pub turns: Turns<'f>,
}

impl<'f> Consumer<'f> {
    /// A consumer warpgroup of a CTA without a cluster, which computes all rows of a tile, releases a stage by one arrival and takes no turns.
    #[track_caller]
    pub fn alone(f: &'f Builder, shared: Value<'f, u32>, warpgroup: Value<'f, u32>) -> Self {
        let thread = f.special(Special::ThreadX) % 128;
        let release = Release::new(f, Arrivals::Warpgroup, ClusterPosition::new(f, [1, 1]), shared, thread);
        Self { shared, warpgroup, part: f.constant(0), thread, release, turns: Turns::none(f) }
    }
}
