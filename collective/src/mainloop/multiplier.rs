//! The consumer's side of every mainloop on `wgmma`: stages of swizzled tiles, however they were filled, into accumulators.

use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::atom::{Major, SwizzleMode};
use cute_rs::{CoordLayout, Layout, Partition};
use ptx::abi::Promotion;
use ptx::{Builder, Value, Var, WgmmaOperands};

use super::{Consumer, Finish, Fragment, Piece, begin, output_elements, tiled_mma};
use crate::pipeline::{Position, Stage};
use crate::plan::{MainloopSpec, Plan};

/// What the plan says of one operand.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) major: Major,
    pub(super) swizzle: SwizzleMode,
    pub(super) bits: u32,
    /// The tile's extent along M or N, and along K.
    pub(super) mn: u32,
    pub(super) k: u32,
    /// CTAs that bring a tile together.
    pub(super) slices: u32,
    /// Half of the tile along N is from either half of the matrix.
    pub(super) split: bool,
    pub(super) promotion: Promotion,
}

impl Side {
    pub(super) fn a(plan: &Plan) -> Self {
        let MainloopSpec { a_major: major, types, tile: [mn, _, k], cluster, .. } = plan.mainloop;
        let (swizzle, bits) = (plan.stage.a_swizzle, types.element_bits());
        let promotion = plan.mainloop.promotion();
        Self { major, swizzle, bits, mn, k, slices: cluster[1], split: false, promotion }
    }

    pub(super) fn b(plan: &Plan) -> Self {
        let MainloopSpec { b_major: major, types, tile: [_, mn, k], cluster, step, .. } = plan.mainloop;
        // A tile that may be narrowed comes in parts; CTAs that share it take turns with those.
        let slices = match major {
            Major::K if step > 0 => mn / step,
            Major::K | Major::Mn => cluster[0],
        };
        let (swizzle, bits) = (plan.stage.b_swizzle, types.element_bits());
        let (split, promotion) = (plan.epilogue.split, plan.mainloop.promotion());
        Self { major, swizzle, bits, mn, k, slices, split, promotion }
    }

    /// How `wgmma` finds the operand's tile.
    fn descriptor(self) -> MatrixDescriptor {
        let Self { major, swizzle, bits, mn, k, .. } = self;
        let planned = "the plan admits only tiles that have a canonical layout";
        MatrixDescriptor::new(major, swizzle, bits, mn, k).expect(planned)
    }
}

/// Emits the matrix instructions of one consumer warpgroup.
pub(super) struct Multiplier<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    a: MatrixDescriptor,
    b: MatrixDescriptor,
    /// What the warpgroup's part of the rows adds to A's start address, in descriptor units of 16 B.
    rows: Value<'f, u64>,
    /// The instructions `(_, block, step)` of A's part, and `(_, side, step)` of B's: where in the tiles their operands begin,
    /// in elements.
    operands: [Layout; 2],
    /// Which elements of the output's tile the threads hold.
    elements: Partition<CoordLayout>,
    accumulators: Vec<Vec<Var<'f, f32>>>,
}

/// Those of a thread of a consumer warpgroup, by 64-row block.
fn accumulators<'f>(f: &'f Builder, plan: &Plan) -> Vec<Vec<Var<'f, f32>>> {
    let count = plan.mainloop.types.accumulators(plan.mainloop.tile[1]);
    (0..plan.blocks()).map(|_| (0..count).map(|_| f.uninitialised()).collect()).collect()
}

impl<'f, 'p> Multiplier<'f, 'p> {
    pub(super) fn new(f: &'f Builder, plan: &'p Plan, part: Value<'f, u32>) -> Self {
        let planned = "the plan admits only tiles that wgmma multiplies";
        let a = Side::a(plan).descriptor();
        let b = Side::b(plan).descriptor();
        let mma = tiled_mma(plan).expect(planned);
        let of_a = mma.partition(cute_rs::Operand::A, a.layout()).expect(planned);
        let of_b = mma.partition(cute_rs::Operand::B, b.layout()).expect(planned);
        // Descriptors count 16 bytes.
        let units = of_a.starts().upcast((128 / plan.mainloop.types.element_bits()).into()).expect(planned);
        let zero = f.constant(0);
        let rows = units.apply_modes(&[zero, part, zero, zero]).expect(planned);
        let elements = output_elements(plan).expect(planned);
        let accumulators = accumulators(f, plan);
        let operands = [of_a.part(), of_b.part()];
        Self { f, plan, a, b, rows: rows.cast(), operands, elements, accumulators }
    }

    /// Multiplies the stages of a piece as they become full, gives them back one stage later, and hands the sums to `finish`.
    ///
    /// Where tiles may be narrowed, `finish` is emitted for every width: accumulators of several widths do not meet in the
    /// same variables, which the assembler would have to move, and it serializes instructions whose registers it moves.
    pub(super) fn ring(
        &self,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
        finish: Finish<'_, 'f>,
    ) {
        let [tile_n, step] = [self.plan.mainloop.tile[1], self.plan.mainloop.step];
        consumer.turns.begin();
        let Some(columns) = piece.columns.filter(|_| step > 0) else {
            self.multiply(consumer, ring, piece, tile_n);
            return finish(self.plan, self.fragment(consumer, piece, tile_n));
        };
        // The branch is one of whole warps, which the assembler cannot see where memory says what is computed.
        self.as_wide_as(self.f.shuffle(columns, 0), tile_n, &|width| {
            let plan = self.plan.as_wide_as(width);
            let narrow = self.narrowed(&plan);
            narrow.multiply(consumer, ring, piece, width);
            finish(&plan, narrow.fragment(consumer, piece, width));
        });
    }

    /// The same operands for the sums of a narrower tile.
    fn narrowed<'q>(&self, plan: &'q Plan) -> Multiplier<'f, 'q> {
        let elements = output_elements(plan).expect("a narrower tile of a plan is one that wgmma multiplies");
        let accumulators = accumulators(self.f, plan);
        Multiplier {
            f: self.f,
            plan,
            a: self.a,
            b: self.b,
            rows: self.rows,
            operands: self.operands,
            elements,
            accumulators,
        }
    }

    /// Emits `body` for every width of a tile, the widest first, and runs it for that of `columns`.
    fn as_wide_as(&self, columns: Value<'f, u32>, width: u32, body: &dyn Fn(u32)) {
        let step = self.plan.mainloop.step;
        if width <= step {
            return body(width);
        }
        let narrower = || self.as_wide_as(columns, width - step, body);
        self.f.if_else(columns.more_than(width - step), || body(width), narrower);
    }

    /// Multiplies the first `width` columns of a piece; its other columns become zero.
    fn multiply(&self, consumer: Consumer<'f>, ring: Position<'f>, piece: Piece<'f>, width: u32) {
        let nothing = || {
            self.clear();
            consumer.turns.pass();
        };
        let some = piece.k_begin.less_than(piece.k_end);
        self.f.if_else(some, || self.stages(consumer, ring, piece, width), nothing);
    }

    /// The same where there are stages.
    fn stages(&self, consumer: Consumer<'f>, ring: Position<'f>, piece: Piece<'f>, width: u32) {
        // The first stage overwrites the accumulators, so nothing has to clear them.
        let first = ring.acquire();
        self.stage_of(first, false, width);
        // The stage before the current one: its instructions may still be running.
        let older = self.f.variable(first.empty);
        self.f.repeat_from(piece.k_begin + 1, piece.k_end, |_| {
            let stage = ring.acquire();
            self.stage_of(stage, true, width);
            self.f.wgmma_wait(1);
            consumer.release.arrive(older.get());
            older.set(stage.empty);
        });
        consumer.turns.pass();
        self.f.wgmma_wait(0);
        consumer.release.arrive(older.get());
        // Not before the loop: registers that nothing reads there are the assembler's.
        self.clear_from(width);
    }

    /// What the warpgroup has of so many columns of the tile when everything has been multiplied.
    pub(super) fn fragment(
        &self,
        consumer: Consumer<'f>,
        piece: Piece<'f>,
        columns: u32,
    ) -> Fragment<'f, f32> {
        Fragment {
            columns,
            first: begin(&self.elements, [piece.m, piece.n], [None, Some(consumer.part)]),
            blocks: self.accumulators.clone(),
            elements: self.elements,
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            thread: consumer.thread,
        }
    }

    /// Makes all accumulators zero.
    pub(super) fn clear(&self) {
        self.clear_from(0);
    }

    /// Makes the accumulators of all columns zero but for the first.
    fn clear_from(&self, columns: u32) {
        let kept = if columns == 0 { 0 } else { self.plan.mainloop.types.accumulators(columns) };
        for accumulator in self.accumulators.iter().flat_map(|block| block.iter().skip(kept as usize)) {
            accumulator.set(0.0);
        }
    }

    /// The descriptor of the operand tile at a shared address.
    fn descriptor(&self, operand: &MatrixDescriptor, address: Value<'f, u32>) -> Value<'f, u64> {
        let start = (address & 0x3_FFFF) >> 4;
        start.cast::<u64>() | operand.bits(0)
    }

    /// Multiplies one stage into the accumulators; the old ones are added if `accumulate`.
    pub(super) fn stage(&self, stage: Stage<'f>, accumulate: bool) {
        self.stage_of(stage, accumulate, self.plan.mainloop.tile[1]);
    }

    /// The same for the first `width` columns.
    fn stage_of(&self, stage: Stage<'f>, accumulate: bool, width: u32) {
        let a = self.descriptor(&self.a, stage.address) + self.rows;
        let b = self.descriptor(&self.b, stage.address + self.plan.stage.b_offset);
        let spec = &self.plan.mainloop;
        let types = spec.types;
        // Descriptors count 16 bytes.
        let units = |operands: &Layout, [place, step]: [u32; 2]| {
            let elements = operands.at_modes(&[0, place.into(), step.into()]).unsigned_abs();
            elements * u64::from(types.element_bits()) / 128
        };
        let held = |columns| types.accumulators(columns) as usize;
        self.f.wgmma_fence();
        for step in 0..spec.tile[2] / types.k() {
            let accumulate = self.f.constant(accumulate || step > 0);
            for (block, accumulators) in (0u32..).zip(&self.accumulators) {
                for [first, columns] in (0..spec.across()).map(|side| spec.columns_of(side)) {
                    // A tile of which fewer columns are multiplied has but one instruction across.
                    let columns = columns.min(width);
                    let [of_a, of_b] = self.operands;
                    let a = a + units(&of_a, [block, step]);
                    let b = b + units(&of_b, [first / spec.column_unit(), step]);
                    let operands = WgmmaOperands {
                        accumulate,
                        transpose_a: spec.a_major == Major::Mn,
                        transpose_b: spec.b_major == Major::Mn,
                        ..WgmmaOperands::new(types, columns, a, b)
                    };
                    self.f.wgmma(operands, &accumulators[held(first)..held(first + columns)]);
                }
            }
        }
        self.f.wgmma_commit();
    }
}
