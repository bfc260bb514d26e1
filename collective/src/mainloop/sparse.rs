//! A 2:4 sparse operand A: half of its tile in a stage, and metadata that threads pass to the instructions.

use ptx::{Builder, Value, Var};

use super::multiplier::Multiplier;
use super::promotion::Promoted;
use super::stages::Older;
use super::sums::{AccumulatorElement, Accumulators};
use super::{Consumer, Finish, MmaOperands, Pass, WarpgroupMma};
use crate::pipeline::Stage;
use crate::plan::{AccumulatorType, Plan};
use crate::sparse;

/// Metadata that selects the first elements of every chunk. Outside the matrix, copies fill metadata with
/// zeros, which select no elements.
const FIRST: u32 = 0x4444_4444;

/// The consumer side: see [`DeviceMainloop::with_multiply`](super::DeviceMainloop::with_multiply).
pub(super) fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
    let sums = match pass.plan.mainloop.atom.sums() {
        AccumulatorType::S32 => sums::<i32>(pass, consumer),
        AccumulatorType::F16 => sums::<u32>(pass, consumer),
        // No `wgmma` accumulates in f64.
        AccumulatorType::F32 | AccumulatorType::F64 => sums::<f32>(pass, consumer),
    };
    finish(pass.plan, sums);
}

fn sums<'f, T: AccumulatorElement>(pass: Pass<'_, 'f>, consumer: Consumer<'f>) -> Accumulators<'f> {
    let Pass { f, plan, unit, .. } = pass;
    let multiplier = Multiplier::<T>::new(f, plan, consumer);
    let (product, metadata) = (&multiplier.product, Metadata::new(f, plan, consumer));
    if let Some(sums) = &multiplier.sums {
        consumer.turns.begin();
        metadata.promoted(&multiplier, sums, (pass, consumer));
    } else {
        let multiply = |stage: Stage<'f>, older: Older<'_>| metadata.multiply(product, stage, older);
        consumer.each_stage_in_sets(pass, &multiply, &|| product.clear());
    }
    multiplier.result(consumer, unit, plan.mainloop.tile[1])
}

/// A thread's metadata, and its place in a stage.
struct Metadata<'f, 'p> {
    f: &'f Builder,
    plan: &'p Plan,
    /// Offset of the thread's first word in a stage, in bytes.
    first: Value<'f, u32>,
    /// By unit along K and block.
    words: Vec<Vec<Var<'f, u32>>>,
}

impl<'f, 'p> Metadata<'f, 'p> {
    fn new(f: &'f Builder, plan: &'p Plan, consumer: Consumer<'f>) -> Self {
        let spec = &plan.mainloop;
        let block_bytes = spec.metadata_words() * sparse::WORDS * 4;
        let first = consumer.part * (spec.product().blocks() * block_bytes) + consumer.thread * 4;
        let unit = |_| (0..spec.product().blocks()).map(|_| f.uninitialised()).collect();
        let words = (0..spec.metadata_words()).map(unit).collect();
        Self { f, plan, first: first + plan.ring.offset(2), words }
    }

    /// Multiplies the stages of a work unit, and adds the accumulators to sums after each part of a stage. A stage's metadata
    /// is loaded when no instruction runs any more.
    fn promoted<T: AccumulatorElement>(
        &self,
        multiplier: &Multiplier<'f, '_, T>,
        sums: &Promoted<'f, T>,
        (Pass { ring, unit, .. }, consumer): (Pass<'_, 'f>, Consumer<'f>),
    ) {
        let (f, spec) = (self.f, &self.plan.mainloop);
        let steps = sparse::unit_k(spec.operands[0].format) / spec.atom.k();
        multiplier.clear_promoted(sums);
        f.repeat(unit.k_end - unit.k_begin, |_| {
            let stage = ring.acquire();
            (0..).zip(&self.words).for_each(|(unit, words)| self.load(stage, unit, words));
            let issue = |found: &MmaOperands<'_, 'f, T>| {
                found.issue_sparse(false, |block, step| {
                    (self.words[(step / steps) as usize][block as usize], step % steps)
                });
            };
            multiplier.by_parts(sums, (stage, &issue), spec.tile[1], multiplier.parts(), &|| {
                // Orders the other lanes' reads of the stage before the warp's arrival.
                f.warp_sync();
                consumer.release.arrive(stage.empty);
            });
        });
        consumer.turns.pass();
    }

    /// Loads the metadata of a stage's unit along K.
    fn load(&self, stage: Stage<'f>, unit: u32, words: &[Var<'f, u32>]) {
        let units = self.plan.mainloop.metadata_words();
        for (block, word) in (0..).zip(words) {
            let offset = (block * units + unit) * sparse::WORDS * 4;
            let [loaded] = self.f.load_shared_vector(stage.address + self.first, offset.cast_signed());
            word.set(loaded.where_or(loaded.more_than(0), FIRST));
        }
    }

    /// Multiplies a stage, one commit group per unit of metadata along K. Before registers are overwritten,
    /// waits until the instructions that read them are complete. `older` is emitted as soon as the whole
    /// stage before has been multiplied. Without `older` there is no stage before, and the accumulators are
    /// overwritten.
    fn multiply<T: AccumulatorElement>(
        &self,
        product: &WarpgroupMma<'f, T>,
        stage: Stage<'f>,
        older: Older<'_>,
    ) {
        let Self { f, plan, .. } = *self;
        let spec = &plan.mainloop;
        let (units, unit_k) = (spec.metadata_words(), sparse::unit_k(spec.operands[0].format));
        let steps = unit_k / spec.atom.k();
        let found = product.find(stage);
        for (unit, words) in (0..).zip(&self.words) {
            if let Some(older) = older {
                f.wgmma_wait(units - 1);
                if unit + 1 == units {
                    older();
                }
            }
            self.load(stage, unit, words);
            f.wgmma_fence();
            let part = found.clone().part(unit * steps..(unit + 1) * steps);
            part.issue_sparse(older.is_some() || unit > 0, |block, step| {
                (words[block as usize], step % steps)
            });
            f.wgmma_commit();
        }
    }
}
