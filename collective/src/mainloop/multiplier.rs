//! The consumer's side of every mainloop on `wgmma`: stages of swizzled tiles, however they were filled, into accumulators.

use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::atom::{Major, SwizzleMode};
use cute_rs::{CoordLayout, Layout, Partition};
use ptx::{Builder, Value, Var, WgmmaOperands};

use super::{Consumer, Fragment, Piece, begin, output_elements, tiled_mma};
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
}

impl Side {
    pub(super) fn a(plan: &Plan) -> Self {
        let MainloopSpec { a_major: major, types, tile: [mn, _, k], cluster, .. } = plan.mainloop;
        let (swizzle, bits) = (plan.stage.a_swizzle, types.element_bits());
        Self { major, swizzle, bits, mn, k, slices: cluster[1], split: false }
    }

    pub(super) fn b(plan: &Plan) -> Self {
        let MainloopSpec { b_major: major, types, tile: [_, mn, k], cluster, .. } = plan.mainloop;
        let (swizzle, bits) = (plan.stage.b_swizzle, types.element_bits());
        Self { major, swizzle, bits, mn, k, slices: cluster[0], split: plan.epilogue.split }
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
    /// The instructions `(_, block, step)` of a part: where in A's and B's tiles their operands begin, in elements.
    operands: [Layout; 2],
    /// Which elements of the output's tile the threads hold.
    elements: Partition<CoordLayout>,
    accumulators: Vec<Vec<Var<'f, f32>>>,
}

impl<'f, 'p> Multiplier<'f, 'p> {
    pub(super) fn new(f: &'f Builder, plan: &'p Plan, part: Value<'f, u32>) -> Self {
        let planned = "the plan admits only tiles that wgmma multiplies";
        let a = Side::a(plan).descriptor();
        let b = Side::b(plan).descriptor();
        let [_, n, _] = plan.mainloop.tile;
        let mma = tiled_mma(plan).expect(planned);
        let of_a = mma.partition(cute_rs::Operand::A, a.layout()).expect(planned);
        let of_b = mma.partition(cute_rs::Operand::B, b.layout()).expect(planned);
        // Descriptors count 16 bytes.
        let units = of_a.starts().upcast((128 / plan.mainloop.types.element_bits()).into()).expect(planned);
        let zero = f.constant(0);
        let rows = units.apply_modes(&[zero, part, zero, zero]).expect(planned);
        let elements = output_elements(plan).expect(planned);
        let accumulators = (0..plan.blocks())
            .map(|_| (0..plan.mainloop.types.accumulators(n)).map(|_| f.uninitialised()).collect())
            .collect();
        let operands = [of_a.part(), of_b.part()];
        Self { f, plan, a, b, rows: rows.cast(), operands, elements, accumulators }
    }

    /// Multiplies the stages of a piece as they become full, and gives them back one stage later.
    pub(super) fn ring(
        self,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) -> Fragment<'f, f32> {
        let multiply = || {
            // The first stage overwrites the accumulators, so nothing has to clear them.
            let first = ring.acquire();
            self.stage(first, false);
            // The stage before the current one: its instructions may still be running.
            let older = self.f.variable(first.empty);
            self.f.repeat_from(piece.k_begin + 1, piece.k_end, |_| {
                let stage = ring.acquire();
                self.stage(stage, true);
                self.f.wgmma_wait(1);
                consumer.release.arrive(older.get());
                older.set(stage.empty);
            });
            consumer.turns.pass();
            self.f.wgmma_wait(0);
            consumer.release.arrive(older.get());
        };
        let nothing = || {
            self.clear();
            consumer.turns.pass();
        };
        consumer.turns.begin();
        self.f.if_else(piece.k_begin.less_than(piece.k_end), multiply, nothing);
        self.fragment(consumer, piece)
    }

    /// What the warpgroup has of the tile when everything has been multiplied.
    pub(super) fn fragment(self, consumer: Consumer<'f>, piece: Piece<'f>) -> Fragment<'f, f32> {
        Fragment {
            first: begin(&self.elements, [piece.m, piece.n], [None, Some(consumer.part)]),
            blocks: self.accumulators,
            elements: self.elements,
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            thread: consumer.thread,
        }
    }

    /// Makes all accumulators zero.
    pub(super) fn clear(&self) {
        for accumulator in self.accumulators.iter().flatten() {
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
        let a = self.descriptor(&self.a, stage.address) + self.rows;
        let b = self.descriptor(&self.b, stage.address + self.plan.stage.b_offset);
        let spec = &self.plan.mainloop;
        let types = spec.types;
        // Descriptors count 16 bytes.
        let units = |operands: &Layout, [block, step]: [u32; 2]| {
            let elements = operands.at_modes(&[0, block.into(), step.into()]).unsigned_abs();
            elements * u64::from(types.element_bits()) / 128
        };
        self.f.wgmma_fence();
        for step in 0..spec.tile[2] / types.k() {
            let accumulate = self.f.constant(accumulate || step > 0);
            for (block, accumulators) in (0u32..).zip(&self.accumulators) {
                let [of_a, of_b] = self.operands;
                let a = a + units(&of_a, [block, step]);
                let b = b + units(&of_b, [0, step]);
                let operands = WgmmaOperands {
                    accumulate,
                    transpose_a: spec.a_major == Major::Mn,
                    transpose_b: spec.b_major == Major::Mn,
                    ..WgmmaOperands::new(types, spec.tile[1], a, b)
                };
                self.f.wgmma(operands, accumulators);
            }
        }
        self.f.wgmma_commit();
    }
}
