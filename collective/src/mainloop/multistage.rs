//! The mainloops without `wgmma`: every warp copies and multiplies, and all meet at a barrier once per
//! k-tile.
//!
//! A ring of stages is filled by `cp.async`, with one group of copies per k-tile, some k-tiles ahead. Each
//! thread waits for its own copies of a k-tile, then all threads meet at the barrier. After that the whole
//! k-tile has landed, and the stage of the k-tile before is free to be filled. Then each warp multiplies its
//! rows: by `ldmatrix` and `mma.sync`, or by `fma` in each thread.
//!
//! Tiles have the layout that `wgmma` would read. Its swizzles keep `ldmatrix`, and threads that load 16
//! bytes of neighbouring rows, free of bank conflicts. Accumulators have the register layout of `wgmma`, so
//! every epilogue and every scheduler works with these mainloops too.

mod doubles;
mod fma;
mod types;
mod warps;

use ptx::inst::MmaTypes;
use ptx::{Builder, Value, Var};

use super::places::Places;
use super::sums::PlainSum;
use super::{Accumulators, Consumer, Fragment, WorkUnit, begin};
use crate::plan::{AccumulatorType, AtomTypes, CtaPlan, Plan, RingPlan};

pub use types::{MmaPair, MmaSync, MmaSyncWith, Simt, SimtPair};

const PLANNED: &str = "the plan admits only tiles that the atom multiplies";

/// Fills the stage at a shared address with the tiles of a k-tile.
type Fill<'a, 'f> = &'a dyn Fn(Value<'f, u32>, Value<'f, u32>);

/// Copies and multiplies a work unit. All threads of the CTA execute it.
pub(super) fn multiply<'f>(
    f: &'f Builder,
    plan: &Plan,
    consumer: Consumer<'f>,
    unit: WorkUnit<'f>,
    fill: Fill<'_, 'f>,
) -> Accumulators<'f> {
    let atom = plan.mainloop.atom;
    match (atom.types, atom.sums()) {
        (AtomTypes::MmaSync(types), AccumulatorType::F32) => {
            by_warps::<f32>(f, plan, types, (consumer, unit), fill)
        }
        (AtomTypes::MmaSync(types), AccumulatorType::S32) => {
            by_warps::<i32>(f, plan, types, (consumer, unit), fill)
        }
        (AtomTypes::MmaSync(_), AccumulatorType::F64) => {
            let doubles = Operands::<f64>::new(f, plan, consumer);
            doubles.walk(consumer, unit, fill, &|stage| doubles.multiply_doubles(stage));
            doubles.sums(consumer, unit)
        }
        (AtomTypes::MmaSync(_), AccumulatorType::F16) | (AtomTypes::Wgmma(_) | AtomTypes::Simt, _) => {
            let threads = Operands::<f32>::new(f, plan, consumer);
            threads.walk(consumer, unit, fill, &|stage| threads.multiply_plainly(stage));
            threads.sums(consumer, unit)
        }
    }
}

fn by_warps<'f, T: PlainSum>(
    f: &'f Builder,
    plan: &Plan,
    types: MmaTypes,
    (consumer, unit): (Consumer<'f>, WorkUnit<'f>),
    fill: Fill<'_, 'f>,
) -> Accumulators<'f> {
    let warps = Operands::<T>::new(f, plan, consumer);
    warps.walk(consumer, unit, fill, &|stage| warps.multiply_by_warps(types, stage));
    warps.sums(consumer, unit)
}

/// A thread's view of a multiply: the places of its parts of A and B in a stage, and its accumulators.
struct Operands<'f, 'p, T> {
    f: &'f Builder,
    plan: &'p Plan,
    a: Places<'f>,
    b: Places<'f>,
    /// By block, as [`Fragment::blocks`].
    accumulators: Vec<Vec<Var<'f, T>>>,
}

impl<'f, 'p, T: PlainSum> Operands<'f, 'p, T> {
    fn new(f: &'f Builder, plan: &'p Plan, consumer: Consumer<'f>) -> Self {
        let (spec, product) = (&plan.mainloop, plan.mainloop.product());
        let majors = spec.operands.map(|operand| operand.major);
        let places = || {
            let mma = product.tiled_by(spec.atom.loads(majors)?)?;
            let [a, b] = &plan.operands;
            let (thread, part, first) = (Some(consumer.thread), Some(consumer.part), Some(f.constant(0)));
            // (BLK_M, BLK_K, PIPE), (BLK_N, BLK_K, PIPE) -> (VAL, BLOCKS or ACROSS, STEPS), per thread and part
            let of_a = mma.partition(cute_rs::Operand::A, &a.layout())?;
            let of_b = mma.partition(cute_rs::Operand::B, &b.layout())?;
            let a = Places::new(f, a, &of_a, &[thread, part, first, first], 1)?;
            Ok::<_, cute_rs::LayoutError>((a, Places::new(f, b, &of_b, &[thread, first, first, first], 1)?))
        };
        let (a, b) = places().expect(PLANNED);
        let block = |_| (0..product.block_sums()).map(|_| f.uninitialised()).collect();
        Self { f, plan, a, b, accumulators: (0..product.blocks()).map(block).collect() }
    }

    /// Walks the k-tiles of a work unit: `fill` starts copies into a stage, `multiply` reads one.
    fn walk(
        &self,
        consumer: Consumer<'f>,
        unit: WorkUnit<'f>,
        fill: Fill<'_, 'f>,
        multiply: &dyn Fn(Value<'f, u32>),
    ) {
        let Self { f, plan, .. } = *self;
        for sum in self.accumulators.iter().flatten() {
            sum.set(f.constant(T::default()));
        }
        let RingPlan { stages, stage_bytes, start, .. } = plan.ring;
        let begin = consumer.shared + start;
        let (filled, read) = (f.variable(begin), f.variable(begin));
        let advance = |stage: Var<'f, u32>| {
            let next = stage.get() + stage_bytes;
            stage.set(begin.where_or(next.equals(begin + stages * stage_bytes), next));
        };
        let (first, end) = (unit.k_begin, unit.k_end);
        let count = (end - first).where_or(first.less_than(end), 0);
        // All threads have read the stages of the work unit before.
        f.barrier_sync(CtaPlan::CTA_BARRIER, plan.threads);
        let ahead = stages - 1;
        f.repeat(count + ahead, |index| {
            let multiplies = index.at_least(ahead);
            f.if_(multiplies, || {
                f.copy_wait(ahead - 1);
                f.barrier_sync(CtaPlan::CTA_BARRIER, plan.threads);
            });
            f.if_(index.less_than(count), || {
                fill(filled.get(), first + index);
                advance(filled);
            });
            // Commits one group per iteration, even if it is empty, so that the number of pending groups is
            // known.
            f.copy_commit();
            f.if_(multiplies, || {
                multiply(read.get());
                advance(read);
            });
        });
    }

    /// The accumulators of the warpgroup after all k-tiles.
    fn sums(&self, consumer: Consumer<'f>, unit: WorkUnit<'f>) -> Accumulators<'f> {
        let elements = self.plan.mainloop.product().elements();
        T::handed_on(Fragment {
            first: begin(&elements, [unit.m, unit.n], [None, Some(consumer.part)]),
            blocks: self.accumulators.clone(),
            elements,
            columns: self.plan.mainloop.tile[1],
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            thread: consumer.thread,
        })
    }
}
