//! Multiplying: `wgmma` on a stage's tiles, summed in the registers of a consumer warpgroup.

use core::ops::Range;

use cute_rs::atom::Major;
use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::{CoordLayout, Layout, LayoutError, Partition};
use ptx::{Builder, Value, Var, WgmmaOperands, WgmmaSource, WgmmaTypes};

use super::fragments::Fragments;
use super::sums::{Accumulator, Sums};
use super::{Consumer, Fragment, Piece, begin, output_elements, tiled_mma};
use crate::pipeline::Stage;
use crate::plan::{MainloopSpec, OperandTile, PlanError, Source};

/// The product of two tiles of each stage, summed in the accumulators of a consumer warpgroup.
///
/// A mainloop has one for each product that it computes: of A's tile and B's, of A's and those of two B's, of the scores and V.
///
/// ```
/// use collective::pipeline::Position;
/// use collective::{Accumulator, Consumer, InFlight, Piece, Plan, PlanError, Product, Sums};
/// use ptx::Builder;
///
/// /// What the mainloops of this crate do where tiles are not narrowed.
/// fn multiply<'f, T: Accumulator>(
///     f: &'f Builder,
///     plan: &Plan,
///     consumer: Consumer<'f>,
///     ring: Position<'f>,
///     piece: Piece<'f>,
/// ) -> Result<Sums<'f>, PlanError> {
///     let product = Product::<T>::new(f, &plan.mainloop, plan.operands, consumer.part)?;
///     consumer.each_stage(
///         f,
///         (ring, piece),
///         InFlight::One,
///         &|stage, accumulate| product.multiply(stage, accumulate),
///         &|multiplied| if !multiplied { product.clear() },
///     );
///     Ok(product.sums(consumer, piece))
/// }
/// ```
#[derive(Debug)]
pub struct Product<'f, T> {
    f: &'f Builder,
    spec: MainloopSpec,
    types: WgmmaTypes,
    /// A's tile, if it is read from shared memory, and B's.
    tiles: [OperandTile; 2],
    a: Option<SharedA<'f>>,
    b: MatrixDescriptor,
    /// The instructions `(_, side, step)` of B's tile: where their operands begin, in elements.
    b_places: Layout,
    /// Which elements of the output's tile the threads hold.
    elements: Partition<CoordLayout>,
    accumulators: Vec<Vec<Var<'f, T>>>,
}

/// A's tile as instructions read it.
#[derive(Clone, Copy, Debug)]
struct SharedA<'f> {
    descriptor: MatrixDescriptor,
    /// What the warpgroup's part of the rows adds to the start address, in descriptor units of 16 B.
    rows: Value<'f, u64>,
    /// The instructions `(_, block, step)` of its part: where their operands begin, in elements.
    places: Layout,
}

/// A product whose operands are found in a stage: what is left is to issue the instructions.
#[derive(Clone, Debug)]
pub struct Found<'a, 'f, T> {
    product: &'a Product<'f, T>,
    a: Option<Value<'f, u64>>,
    b: Value<'f, u64>,
    /// Columns that are multiplied.
    width: u32,
    /// Instructions along K that are issued.
    steps: Range<u32>,
}

/// Accumulators of a thread of a consumer warpgroup, by block.
fn accumulators<'f, T: Accumulator>(f: &'f Builder, spec: &MainloopSpec) -> Vec<Vec<Var<'f, T>>> {
    let count = spec.atom.accumulators(spec.tile[1]);
    (0..spec.blocks()).map(|_| (0..count).map(|_| f.uninitialised()).collect()).collect()
}

impl OperandTile {
    /// How `wgmma` finds the tile.
    pub(super) fn descriptor(&self) -> Result<MatrixDescriptor, LayoutError> {
        MatrixDescriptor::new(self.major, self.swizzle, self.bits(), self.mn, self.k)
    }
}

impl<'f, T: Accumulator> Product<'f, T> {
    /// The product of A's tile and B's for the warpgroup that has the `part`-th part of the tile's rows
    /// ([`Consumer::part`]). Tile, atom and roles are those of `spec`.
    ///
    /// # Errors
    /// [`PlanError::Product`] where the tiles are not those of the spec's tile, or the sums are of another type.
    pub fn new(
        f: &'f Builder,
        spec: &MainloopSpec,
        tiles: [OperandTile; 2],
        part: Value<'f, u32>,
    ) -> Result<Self, PlanError> {
        let [[m, a_k], [n, b_k]] = tiles.map(|tile| tile.extents());
        let error = PlanError::Product { tile: spec.tile, a: [m, a_k], b: [n, b_k] };
        let a_k = a_k * spec.atom.density();
        let Some(types) = spec.atom.wgmma() else { return Err(error) };
        if spec.tile != [m, n, a_k] || a_k != b_k || types.d() != T::SUMS {
            return Err(error);
        }
        Self::found(f, (spec, types), tiles, part).map_err(|_| error)
    }

    fn found(
        f: &'f Builder,
        (spec, types): (&MainloopSpec, WgmmaTypes),
        tiles: [OperandTile; 2],
        part: Value<'f, u32>,
    ) -> Result<Self, LayoutError> {
        let mma = tiled_mma(spec)?;
        let zero = f.constant(0);
        let a = match spec.atom.a {
            Source::Registers => None,
            Source::Shared => {
                let descriptor = tiles[0].descriptor()?;
                let of_a = mma.partition(cute_rs::Operand::A, descriptor.layout())?;
                // Descriptors count 16 bytes.
                let units = of_a.starts().upcast((128 / spec.atom.element_bits()).into())?;
                Some((descriptor, units.apply_modes(&[zero, part, zero, zero])?, of_a.part()))
            }
        };
        let b = tiles[1].descriptor()?;
        let b_places = mma.partition(cute_rs::Operand::B, b.layout())?.part();
        let elements = output_elements(spec)?;
        let accumulators = accumulators(f, spec);
        let a = a.map(|(descriptor, rows, places)| SharedA { descriptor, rows: rows.cast(), places });
        Ok(Self { f, spec: *spec, types, tiles, a, b, b_places, elements, accumulators })
    }

    /// The same operands for the sums of the first columns of the tile, as many as the tile of `spec` has.
    pub(super) fn narrowed(&self, spec: &MainloopSpec) -> Self {
        let elements = output_elements(spec).expect("a narrower tile of a plan is one that wgmma multiplies");
        let accumulators = accumulators(self.f, spec);
        let Self { f, types, tiles, a, b, b_places, .. } = *self;
        Self { f, spec: *spec, types, tiles, a, b, b_places, elements, accumulators }
    }

    /// The accumulators, by block.
    pub fn accumulators(&self) -> &[Vec<Var<'f, T>>] {
        &self.accumulators
    }

    /// Makes all accumulators zero.
    pub fn clear(&self) {
        self.clear_from(0);
    }

    /// Makes the accumulators of all columns zero but for the first.
    pub(super) fn clear_from(&self, columns: u32) {
        let kept = if columns == 0 { 0 } else { self.spec.atom.accumulators(columns) };
        for accumulator in self.accumulators.iter().flat_map(|block| block.iter().skip(kept as usize)) {
            accumulator.set(self.f.constant(T::default()));
        }
    }

    /// What the warpgroup has of the tile when everything has been multiplied.
    pub fn fragment(&self, consumer: Consumer<'f>, piece: Piece<'f>) -> Fragment<'f, T::Sum> {
        let single = self.accumulators.iter().map(|block| T::single(self.f, block)).collect();
        self.fragment_of((consumer, piece), self.spec.tile[1], single)
    }

    /// The same, to be handed on.
    pub fn sums(&self, consumer: Consumer<'f>, piece: Piece<'f>) -> Sums<'f> {
        T::sums(self.fragment(consumer, piece))
    }

    /// These sums, by block, of so many columns of the tile.
    pub(super) fn fragment_of(
        &self,
        (consumer, piece): (Consumer<'f>, Piece<'f>),
        columns: u32,
        blocks: Vec<Vec<Var<'f, T::Sum>>>,
    ) -> Fragment<'f, T::Sum> {
        Fragment {
            columns,
            first: begin(&self.elements, [piece.m, piece.n], [None, Some(consumer.part)]),
            blocks,
            elements: self.elements,
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            thread: consumer.thread,
        }
    }

    /// The descriptor of the operand tile at a shared address.
    fn descriptor(operand: &MatrixDescriptor, address: Value<'f, u32>) -> Value<'f, u64> {
        let start = (address & 0x3_FFFF) >> 4;
        start.cast::<u64>() | operand.bits(0)
    }

    /// Finds the operands in a stage. Several products are one group of instructions where all are found before the fence:
    /// `wgmma_fence`, each [`issue`](Found::issue), `wgmma_commit`.
    pub fn find(&self, stage: Stage<'f>) -> Found<'_, 'f, T> {
        self.find_in([stage; 2])
    }

    /// The same with A's tile in a stage of one ring and B's in that of another.
    pub fn find_in(&self, [a_stage, b_stage]: [Stage<'f>; 2]) -> Found<'_, 'f, T> {
        let [a, b] = self.tiles.map(|tile| tile.offset);
        let a = self.a.map(|of| Self::descriptor(&of.descriptor, a_stage.address + a) + of.rows);
        let b = Self::descriptor(&self.b, b_stage.address + b);
        Found {
            product: self,
            a,
            b,
            width: self.spec.tile[1],
            steps: 0..self.spec.tile[2] / self.spec.atom.k(),
        }
    }

    /// Multiplies one stage into the accumulators, as one group of instructions; the old ones are added if `accumulate`.
    pub fn multiply(&self, stage: Stage<'f>, accumulate: bool) {
        let found = self.find(stage);
        self.f.wgmma_fence();
        found.issue(accumulate);
        self.f.wgmma_commit();
    }

    /// The same with A from registers, which are loaded or packed before.
    pub fn multiply_registers(&self, a: &Fragments<'f>, stage: Stage<'f>, accumulate: bool) {
        let found = self.find(stage);
        self.f.wgmma_fence();
        found.issue_registers(a, accumulate);
        self.f.wgmma_commit();
    }
}

impl<'f, T: Accumulator> Found<'_, 'f, T> {
    /// The first `width` columns alone.
    pub(super) fn narrowed(self, width: u32) -> Self {
        Self { width, ..self }
    }

    /// These instructions along K alone.
    pub(super) fn part(self, steps: Range<u32>) -> Self {
        Self { steps, ..self }
    }

    /// Issues the instructions, with A from shared memory.
    pub fn issue(&self, accumulate: bool) {
        let Some((of_a, a)) = self.product.a.zip(self.a) else {
            self.product.f.refuse(
                "the atom takes A from registers: load them by `Fragments`, issue by `issue_registers`",
            );
            return;
        };
        self.each(accumulate, |block, step| {
            (WgmmaSource::Shared(a + self.product.units(&of_a.places, [block, step])), None)
        });
    }

    /// The same with a sparse A: `metadata` says for a block and a step along K which register has its metadata, and of which lanes it is
    /// read.
    pub(super) fn issue_sparse(&self, accumulate: bool, metadata: impl Fn(u32, u32) -> (Var<'f, u32>, u32)) {
        let Some((of_a, a)) = self.product.a.zip(self.a) else {
            self.product.f.refuse("a sparse A comes from shared memory");
            return;
        };
        self.each(accumulate, |block, step| {
            let source = WgmmaSource::Shared(a + self.product.units(&of_a.places, [block, step]));
            (source, Some(metadata(block, step)))
        });
    }

    /// Issues the instructions, with A from registers.
    pub fn issue_registers(&self, a: &Fragments<'f>, accumulate: bool) {
        let missing = || {
            self.product.f.refuse("the fragments of A are those of another tile: make them of the product's");
        };
        self.each(accumulate, |block, step| match a.get(block, step) {
            Some(registers) => (WgmmaSource::Registers(registers), None),
            None => {
                missing();
                (WgmmaSource::Shared(self.b), None)
            }
        });
    }

    pub(super) fn each(
        &self,
        accumulate: bool,
        a: impl Fn(u32, u32) -> (WgmmaSource<'f>, Option<(Var<'f, u32>, u32)>),
    ) {
        let Product { f, spec, types, tiles, b_places, accumulators, .. } = self.product;
        let held = |columns| spec.atom.accumulators(columns) as usize;
        let transposed = |i: usize| tiles[i].major == Major::Mn;
        for step in self.steps.clone() {
            let accumulate = f.constant(accumulate || step > self.steps.start);
            for (block, accumulators) in (0u32..).zip(accumulators) {
                for [first, columns] in (0..spec.across()).map(|side| spec.columns_of(side)) {
                    // A tile of which fewer columns are multiplied has but one instruction across.
                    let columns = columns.min(self.width);
                    let (a, sparse) = a(block, step);
                    let b_step = step * spec.atom.density();
                    let b = self.b + self.product.units(b_places, [first / spec.column_unit(), b_step]);
                    let transpose_a = matches!(a, WgmmaSource::Shared(_)) && transposed(0);
                    let operands = WgmmaOperands {
                        accumulate,
                        transpose_a,
                        transpose_b: transposed(1),
                        sparse,
                        ..WgmmaOperands::new(*types, columns, a, b)
                    };
                    f.wgmma(operands, &accumulators[held(first)..held(first + columns)]);
                }
            }
        }
    }
}

impl<T> Product<'_, T> {
    /// Where the operand of an instruction begins, in descriptor units of 16 B.
    fn units(&self, places: &Layout, [place, step]: [u32; 2]) -> u64 {
        let elements = places.at_modes(&[0, place.into(), step.into()]).unsigned_abs();
        elements * u64::from(self.spec.atom.element_bits()) / 128
    }
}
