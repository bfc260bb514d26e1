//! Multiplying: `wgmma` on a stage's tiles, into the accumulators of a consumer warpgroup.

use core::ops::Range;

use cute_rs::atom::Major;
use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::{CoordLayout, Layout, LayoutError, Partition};
use ptx::{Builder, Value, Var, WgmmaOperands, WgmmaSource, WgmmaTypes};

use super::fragments::Fragments;
use super::sums::{AccumulatorElement, Accumulators};
use super::{Consumer, Fragment, begin};
use crate::pipeline::Stage;
use crate::plan::{OperandTile, ProductShape, ProductSpec};

/// The product of two tiles of each stage, in the accumulators of a consumer warpgroup.
///
/// A mainloop has one per product that it computes: of A's tile and B's; of A's tile and those of two Bs; in
/// attention, of the scores and V.
///
/// ```
/// use collective::{AccumulatorElement, Accumulators, Consumer, InFlight, Pass, WarpgroupMma};
///
/// /// What the mainloops of this crate do if tiles are not narrowed.
/// fn multiply<'f, T: AccumulatorElement>(pass: Pass<'_, 'f>, consumer: Consumer<'f>) -> Accumulators<'f> {
///     let Pass { f, plan, unit, .. } = pass;
///     let product = WarpgroupMma::<T>::new(f, plan.product(), consumer.part);
///     consumer.each_stage(
///         pass,
///         InFlight::One,
///         &|stage, accumulate| product.multiply(stage, accumulate),
///         &|multiplied| if !multiplied { product.clear() },
///     );
///     product.sums(consumer, unit.first())
/// }
/// ```
#[derive(Debug)]
pub struct WarpgroupMma<'f, T> {
    f: &'f Builder,
    spec: ProductShape,
    types: WgmmaTypes,
    /// A's tile, if it is read from shared memory, and B's.
    tiles: [OperandTile; 2],
    a: Option<SharedA<'f>>,
    b: MatrixDescriptor,
    /// Start of the operand of each instruction `(_, side, step)` in B's tile, in elements: of sides of so many columns.
    b_places: Layout,
    unit: u32,
    /// Which elements of the output tile each thread holds.
    elements: Partition<CoordLayout>,
    accumulators: Vec<Vec<Var<'f, T>>>,
}

/// A's tile as the instructions read it.
#[derive(Clone, Copy, Debug)]
struct SharedA<'f> {
    descriptor: MatrixDescriptor,
    /// Offset of the warpgroup's rows from the start address, in descriptor units of 16 B.
    rows: Value<'f, u64>,
    /// Start of the operand of each instruction `(_, block, step)` in the warpgroup's rows, in elements.
    places: Layout,
}

/// A product whose operands have been located in a stage. What remains is to issue the instructions.
#[derive(Clone, Debug)]
pub struct MmaOperands<'a, 'f, T> {
    product: &'a WarpgroupMma<'f, T>,
    a: Option<Value<'f, u64>>,
    b: Value<'f, u64>,
    /// Number of columns to multiply.
    width: u32,
    /// Instructions along K to issue.
    steps: Range<u32>,
    /// The part of the tile to multiply.
    wave: u32,
}

/// Where the operands of the current stage are, in variables: the descriptors of A, if it is in shared memory, and
/// of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located<'f> {
    a: Option<Var<'f, u64>>,
    b: Var<'f, u64>,
}

/// Accumulators of a thread of a consumer warpgroup, by block: those of one wave.
fn accumulators<'f, T: AccumulatorElement>(f: &'f Builder, spec: &ProductShape) -> Vec<Vec<Var<'f, T>>> {
    let [blocks, _] = spec.wave(0);
    let count = spec.accumulators() / (blocks.end - blocks.start);
    blocks.map(|_| (0..count).map(|_| f.uninitialised()).collect()).collect()
}

impl OperandTile {
    /// The `wgmma` descriptor of the tile.
    pub(super) fn descriptor(&self) -> Result<MatrixDescriptor, LayoutError> {
        MatrixDescriptor::new(self.major, self.swizzle, self.bits(), self.mn, self.k)
    }
}

impl<'f, T: AccumulatorElement> WarpgroupMma<'f, T> {
    /// A product for the warpgroup with index `part` among those that share the tile ([`Consumer::part`]).
    #[track_caller]
    pub fn new(f: &'f Builder, product: ProductSpec, part: Value<'f, u32>) -> Self {
        f.for_caller(|| {
            if let Some(reason) = product.refusal(T::SUMS) {
                f.refuse(&reason);
            }
            Self::found(f, product, part).expect("a product is checked when it is made")
        })
    }

    fn found(f: &'f Builder, product: ProductSpec, part: Value<'f, u32>) -> Result<Self, LayoutError> {
        let (spec, tiles) = (*product.spec(), product.tiles());
        let unit = spec.column_unit_of(&tiles[1]);
        let (mma, zero) = (spec.tiled_by(spec.atom.layout(unit)?)?, f.constant(0));
        let a = if product.takes_fragments() {
            None
        } else {
            let descriptor = tiles[0].descriptor()?;
            // (BLK_M, BLK_K) -> (VAL, BLOCKS, STEPS), per thread and part
            let of_a = mma.partition(cute_rs::Operand::A, descriptor.layout())?;
            // Descriptors count units of 16 bytes.
            let units = of_a.starts().upcast((128 / spec.atom.element_bits()).into())?;
            Some((descriptor, units.apply_modes(&[zero, part, zero, zero])?, of_a.part()))
        };
        let b = tiles[1].descriptor()?;
        // (BLK_N, BLK_K) -> (VAL, ACROSS, STEPS), per thread
        let b_places = mma.partition(cute_rs::Operand::B, b.layout())?.part();
        let accumulators = accumulators(f, &spec);
        let a = a.map(|(descriptor, rows, places)| SharedA { descriptor, rows: rows.cast(), places });
        Ok(Self {
            f,
            spec,
            types: product.types(),
            tiles,
            a,
            b,
            b_places,
            unit,
            elements: spec.elements(),
            accumulators,
        })
    }

    /// A product whose sums are added to those of this one: of another A by another B, with as many columns.
    #[track_caller]
    pub fn joined(&self, product: ProductSpec, part: Value<'f, u32>) -> Self {
        let own = Self::new(self.f, product, part);
        if own.spec.tile[..2] != self.spec.tile[..2] {
            let ([rows, columns, _], [m, n, _]) = (own.spec.tile, self.spec.tile);
            self.f.refuse(&format!(
                "a product of {rows} x {columns} is added to one of {m} x {n}: the same extents were needed"
            ));
        }
        Self { accumulators: self.accumulators.clone(), ..own }
    }

    /// The same operands with accumulators for the first columns of the tile only: as many as the tile of
    /// `spec` has.
    pub(super) fn narrowed(&self, spec: ProductShape) -> Self {
        let (elements, accumulators) = (spec.elements(), accumulators(self.f, &spec));
        let Self { f, types, tiles, a, b, b_places, unit, .. } = *self;
        Self { f, spec, types, tiles, a, b, b_places, unit, elements, accumulators }
    }

    /// The numbers of the product.
    pub const fn spec(&self) -> &ProductShape {
        &self.spec
    }

    /// The accumulators, by block. If the tile is multiplied in waves, those that all waves use.
    pub fn accumulators(&self) -> &[Vec<Var<'f, T>>] {
        &self.accumulators
    }

    /// Sets all accumulators to zero.
    #[track_caller]
    pub fn clear(&self) {
        self.clear_from(0);
    }

    /// Sets the accumulators to zero, except those of the first `columns` columns.
    #[track_caller]
    pub(super) fn clear_from(&self, columns: u32) {
        let kept = if columns == 0 { 0 } else { self.spec.atom.accumulators(columns) };
        for accumulator in self.accumulators.iter().flat_map(|block| block.iter().skip(kept as usize)) {
            accumulator.set(self.f.constant(T::default()));
        }
    }

    /// The accumulators of the warpgroup as a fragment of the output, in which the tile's `first` element is at this row and column.
    #[track_caller]
    pub fn fragment(&self, consumer: Consumer<'f>, first: [Value<'f, u32>; 2]) -> Fragment<'f, T::Sum> {
        self.f.for_caller(|| {
            let single = self.accumulators.iter().map(|block| T::single(self.f, block)).collect();
            self.fragment_of((consumer, first), self.spec.tile[1], single)
        })
    }

    /// The same fragment as [`Accumulators`], to be handed to the epilogue.
    #[track_caller]
    pub fn sums(&self, consumer: Consumer<'f>, first: [Value<'f, u32>; 2]) -> Accumulators<'f> {
        T::sums(self.fragment(consumer, first))
    }

    /// The fragment of these accumulators, by block, for the first `columns` columns of the tile.
    #[track_caller]
    pub(super) fn fragment_of(
        &self,
        (consumer, first): (Consumer<'f>, [Value<'f, u32>; 2]),
        columns: u32,
        blocks: Vec<Vec<Var<'f, T::Sum>>>,
    ) -> Fragment<'f, T::Sum> {
        Fragment {
            columns,
            first: begin(&self.elements, first, [None, Some(consumer.part)]),
            blocks,
            elements: self.elements,
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            thread: consumer.thread,
        }
    }

    /// The descriptor of the operand tile at a shared address.
    #[track_caller]
    fn descriptor(operand: &MatrixDescriptor, address: Value<'f, u32>) -> Value<'f, u64> {
        let start = (address & 0x3_FFFF) >> 4;
        start.cast::<u64>() | operand.bits(0)
    }

    /// Locates the operands in a stage. To issue several products as one commit group, locate all of them
    /// before the fence; then `wgmma_fence`, each [`issue`](MmaOperands::issue), `wgmma_commit`.
    #[track_caller]
    pub fn find(&self, stage: Stage<'f>) -> MmaOperands<'_, 'f, T> {
        self.find_in([stage; 2])
    }

    /// As [`find`](Self::find), with A's tile in a stage of one ring and B's in a stage of another.
    #[track_caller]
    pub fn find_in(&self, [a_stage, b_stage]: [Stage<'f>; 2]) -> MmaOperands<'_, 'f, T> {
        let [a, b] = self.tiles.map(|tile| tile.offset);
        let a = self
            .f
            .for_caller(|| self.a.map(|of| Self::descriptor(&of.descriptor, a_stage.address + a) + of.rows));
        let b = Self::descriptor(&self.b, b_stage.address + b);
        self.located(a, b)
    }

    fn located(&self, a: Option<Value<'f, u64>>, b: Value<'f, u64>) -> MmaOperands<'_, 'f, T> {
        let steps = 0..self.spec.steps();
        MmaOperands { product: self, a, b, width: self.spec.tile[1], steps, wave: 0 }
    }

    /// The operands of a stage, which may not be full yet, for [`at`](Self::at).
    pub(super) fn locate(&self, stage: Stage<'f>) -> Located<'f> {
        let MmaOperands { a, b, .. } = self.find(stage);
        Located { a: a.map(|a| self.f.variable(a)), b: self.f.variable(b) }
    }

    /// Changes a place to that of another stage.
    pub(super) fn move_to(&self, place: &Located<'f>, stage: Stage<'f>) {
        let MmaOperands { a, b, .. } = self.find(stage);
        if let Some((place, a)) = place.a.zip(a) {
            place.set(a);
        }
        place.b.set(b);
    }

    /// The operands at a place, to issue instructions. Nothing has to be computed for it.
    pub(super) fn at(&self, place: &Located<'f>) -> MmaOperands<'_, 'f, T> {
        self.located(place.a.map(Var::get), place.b.get())
    }

    /// Multiplies one stage into the accumulators, as one commit group. The old accumulators are added if
    /// `accumulate`, else overwritten.
    #[track_caller]
    pub fn multiply(&self, stage: Stage<'f>, accumulate: bool) {
        let found = self.find(stage);
        self.f.wgmma_fence();
        found.issue(accumulate);
        self.f.wgmma_commit();
    }

    /// As [`multiply`](Self::multiply), with A from registers, which must have been loaded or packed before.
    #[track_caller]
    pub fn multiply_registers(&self, a: &Fragments<'f>, stage: Stage<'f>, accumulate: bool) {
        let found = self.find(stage);
        self.f.wgmma_fence();
        found.issue_registers(a, accumulate);
        self.f.wgmma_commit();
    }
}

impl<'f, T: AccumulatorElement> MmaOperands<'_, 'f, T> {
    /// Only the first `width` columns.
    #[track_caller]
    pub(super) fn narrowed(self, width: u32) -> Self {
        Self { width, ..self }
    }

    /// Only these instructions along K. The first of them overwrites the old accumulators unless they are added.
    #[must_use]
    pub fn part(self, steps: Range<u32>) -> Self {
        Self { steps, ..self }
    }

    /// Only this part of the tile.
    pub(super) fn wave(self, wave: u32) -> Self {
        Self { wave, ..self }
    }

    /// Issues the instructions, with A from shared memory. The old accumulators are added if `accumulate`,
    /// else overwritten.
    #[track_caller]
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

    /// As [`issue`](Self::issue), with a sparse A. For a block and a step along K, `metadata` returns the
    /// register of its metadata and the selector of the lanes that supply it.
    #[track_caller]
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

    /// As [`issue`](Self::issue), with A from registers.
    #[track_caller]
    pub fn issue_registers(&self, a: &Fragments<'f>, accumulate: bool) {
        self.each(accumulate, |block, step| match a.get(block, step) {
            Some(registers) => (WgmmaSource::Registers(registers), None),
            None => {
                let words = "the fragments of A are those of another tile: make them of the product's";
                self.product.f.refuse(words);
                (WgmmaSource::Shared(self.b), None)
            }
        });
    }

    #[track_caller]
    pub(super) fn each(
        &self,
        accumulate: bool,
        a: impl Fn(u32, u32) -> (WgmmaSource<'f>, Option<(Var<'f, u32>, u32)>),
    ) {
        self.product.f.for_caller(|| self.all(accumulate, a));
    }

    fn all(&self, accumulate: bool, a: impl Fn(u32, u32) -> (WgmmaSource<'f>, Option<(Var<'f, u32>, u32)>)) {
        let WarpgroupMma { f, spec, types, tiles, b_places, unit, accumulators, .. } = self.product;
        let held = |columns| spec.atom.accumulators(columns) as usize;
        let transposed = |i: usize| tiles[i].major == Major::Mn;
        let [blocks, sides] = spec.wave(self.wave);
        let [before, _] = spec.columns_of(sides.start);
        for step in self.steps.clone() {
            let accumulate = f.constant(accumulate || step > self.steps.start);
            for (block, accumulators) in blocks.clone().zip(accumulators) {
                for [first, columns] in sides.clone().map(|side| spec.columns_of(side)) {
                    // A tile of which fewer columns are multiplied has only one instruction across.
                    let columns = columns.min(self.width);
                    let (a, sparse) = a(block, step);
                    let b_step = step * spec.atom.density();
                    let b = self.b + self.product.units(b_places, [first / unit, b_step]);
                    let transpose_a = matches!(a, WgmmaSource::Shared(_)) && transposed(0);
                    let operands = WgmmaOperands {
                        accumulate,
                        transpose_a,
                        transpose_b: transposed(1),
                        sparse,
                        ..WgmmaOperands::new(*types, columns, a, b)
                    };
                    let held = held(first - before)..held(first - before + columns);
                    f.wgmma(operands, &accumulators[held]);
                }
            }
        }
    }
}

impl<T> WarpgroupMma<'_, T> {
    /// Start of an instruction's operand, in descriptor units of 16 B.
    fn units(&self, places: &Layout, [place, step]: [u32; 2]) -> u64 {
        let elements = places.at_modes(&[0, place.into(), step.into()]).unsigned_abs();
        elements * u64::from(self.spec.atom.element_bits()) / 128
    }
}
