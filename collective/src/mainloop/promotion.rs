//! Promotion: the accumulators of a few instructions are added to sums in single precision.

use core::ops::Range;

use ptx::Var;

use super::multiplier::Multiplier;
use super::sums::{AccumulatorElement, Accumulators};
use super::{Consumer, MmaOperands, Pass, WorkUnit};
use crate::pipeline::Stage;
use crate::plan::ProductShape;

/// Issues the instructions that multiply located operands, which overwrite the accumulators.
pub(super) type Issue<'a, 'f, T> = &'a dyn Fn(&MmaOperands<'_, 'f, T>);

/// The sums that accumulators are added to, by block, in the order of the accumulators.
pub(super) type Promoted<'f, T> = Vec<Vec<Var<'f, <T as AccumulatorElement>::Sum>>>;

impl<'f, T: AccumulatorElement> Multiplier<'f, '_, T> {
    /// Number of k-tiles between two additions, and number of equal parts, in instructions, into which a
    /// k-tile is divided. One of the two is 1.
    fn intervals(&self) -> [u32; 2] {
        let spec = &self.plan.mainloop;
        let (every, steps) = (spec.atom.promote, spec.tile[2] / spec.atom.k());
        [(every / steps).max(1), (steps / every).max(1)]
    }

    /// Multiplies the first `width` columns of a work unit. The consumer's turn has begun.
    pub(super) fn promoted(
        &self,
        sums: &Promoted<'f, T>,
        (Pass { ring, unit, .. }, consumer): (Pass<'_, 'f>, Consumer<'f>),
        width: u32,
    ) {
        let f = self.f;
        let fragments = self.fragments(consumer);
        self.clear_promoted(sums);
        let free = |stage: Stage<'f>| {
            if fragments.is_some() {
                // Orders the other lanes' reads of the stage before the warp's arrival.
                f.warp_sync();
            }
            consumer.release.arrive(stage.empty);
        };
        let [k_tiles, parts] = self.intervals();
        let one = || {
            let stage = ring.acquire();
            let issue = self.loaded(fragments.as_ref(), stage);
            self.by_parts(sums, (stage, &issue), width, parts, &|| free(stage));
        };
        let count = unit.k_end - unit.k_begin;
        if k_tiles == 1 {
            f.repeat(count, |_| one());
        } else {
            f.repeat(count / k_tiles, |_| {
                let mut before = None;
                for index in 0..k_tiles {
                    let stage = ring.acquire();
                    self.stage(fragments.as_ref(), stage, index > 0, width);
                    if fragments.is_some() {
                        // The fragments are loaded for each stage, after nothing reads the old ones any more.
                        f.wgmma_wait(0);
                        free(stage);
                    } else if let Some(before) = before.replace(stage) {
                        f.wgmma_wait(1);
                        free(before);
                    }
                }
                if let Some(last) = before {
                    f.wgmma_wait(0);
                    free(last);
                }
                self.add(sums, width, 0);
            });
            f.repeat(count % k_tiles, |_| one());
        }
        consumer.turns.pass();
    }

    /// Multiplies a stage in parts, and adds up after each. `issue` issues the instructions of a part, and `free` is
    /// emitted after those of the last part are complete.
    pub(super) fn by_parts(
        &self,
        sums: &Promoted<'f, T>,
        (stage, issue): (Stage<'f>, Issue<'_, 'f, T>),
        width: u32,
        parts: u32,
        free: &dyn Fn(),
    ) {
        let f = self.f;
        let found = self.product.find(stage).narrowed(width);
        let spec = &self.plan.mainloop;
        let steps = self.product.spec().steps() / parts;
        for part in 0..parts {
            let steps: Range<u32> = part * steps..(part + 1) * steps;
            for wave in 0..spec.waves {
                f.wgmma_fence();
                issue(&found.clone().part(steps.clone()).wave(wave));
                f.wgmma_commit();
                f.wgmma_wait(0);
                if (part + 1, wave + 1) == (parts, spec.waves) {
                    free();
                }
                self.add(sums, width, wave);
            }
        }
    }

    /// Number of parts of a k-tile; the accumulators are added after each.
    pub(super) fn parts(&self) -> u32 {
        self.intervals()[1]
    }

    pub(super) fn clear_promoted(&self, sums: &Promoted<'f, T>) {
        for sum in sums.iter().flatten() {
            sum.set(self.f.constant(T::Sum::default()));
        }
    }

    /// Adds the accumulators of a wave's first `width` columns to its sums.
    fn add(&self, sums: &Promoted<'f, T>, width: u32, wave: u32) {
        let count = self.plan.mainloop.atom.accumulators(width) as usize;
        let (blocks, first) = of_wave(self.product.spec(), wave);
        for (sums, registers) in sums[blocks].iter().zip(self.product.accumulators()) {
            let values = registers.iter().take(count).flat_map(|register| T::values(self.f, register));
            for (sum, value) in sums[first..].iter().zip(values) {
                sum.set(sum.get() + value);
            }
        }
    }

    /// The result of the warpgroup for the tile: the promoted sums if there are any, else the accumulators.
    pub(super) fn result(&self, consumer: Consumer<'f>, unit: WorkUnit<'f>, width: u32) -> Accumulators<'f> {
        let single = || self.product.accumulators().iter().map(|block| T::single(self.f, block)).collect();
        let blocks = self.sums.clone().unwrap_or_else(single);
        T::sums(self.product.fragment_of((consumer, unit.first()), width, blocks))
    }
}

/// The blocks of a wave, and the first of its sums in each.
pub(super) fn of_wave(spec: &ProductShape, wave: u32) -> (Range<usize>, usize) {
    let [blocks, sides] = spec.wave(wave);
    // A thread holds one of two sums of a row.
    let [first, _] = spec.columns_of(sides.start);
    (blocks.start as usize..blocks.end as usize, first as usize / 2)
}
