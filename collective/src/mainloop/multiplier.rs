//! The consumer side of the mainloops of this crate: multiplies stages of swizzled tiles into accumulators,
//! for any producer, and for tiles that may be narrowed.

use ptx::{Builder, Value};

use super::fragments::Fragments;
use super::product::{MmaOperands, WarpgroupMma};
use super::promotion::Promoted;
use super::sums::{AccumulatorElement, Accumulators};
use super::{Consumer, Finish, InFlight, Pass};
use crate::pipeline::Stage;
use crate::plan::{AccumulatorType, CtaPlan, Plan};

/// Emits the matrix instructions of one consumer warpgroup.
pub(super) struct Multiplier<'f, 'p, T: AccumulatorElement> {
    pub(super) f: &'f Builder,
    pub(super) plan: &'p Plan,
    pub(super) product: WarpgroupMma<'f, T>,
    /// The `f32` sums to which accumulators are promoted, if they are.
    pub(super) sums: Option<Promoted<'f, T>>,
}

/// Multiplies the stages of a work unit as they become full, releases them, and passes the accumulators to
/// `finish`.
pub(super) fn ring<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
    let Pass { f, plan, .. } = pass;
    match plan.mainloop.atom.sums() {
        AccumulatorType::S32 => Multiplier::<i32>::new(f, plan, consumer).ring(pass, consumer, finish),
        AccumulatorType::F16 => Multiplier::<u32>::new(f, plan, consumer).ring(pass, consumer, finish),
        // No `wgmma` accumulates in f64.
        AccumulatorType::F32 | AccumulatorType::F64 => {
            Multiplier::<f32>::new(f, plan, consumer).ring(pass, consumer, finish);
        }
    }
}

/// Multiplies the stages of a work unit in a kernel without a producer. `first` fills all stages; `next`
/// refills the stage of a k-tile that has been multiplied.
pub(super) fn in_turn<'f>(
    pass: Pass<'_, 'f>,
    consumer: Consumer<'f>,
    fills: (&dyn Fn(), &dyn Fn(Value<'f, u32>)),
) -> Accumulators<'f> {
    let Pass { f, plan, .. } = pass;
    match plan.mainloop.atom.sums() {
        AccumulatorType::S32 => Multiplier::<i32>::new(f, plan, consumer).in_turn(pass, consumer, fills),
        AccumulatorType::F16 => Multiplier::<u32>::new(f, plan, consumer).in_turn(pass, consumer, fills),
        // No `wgmma` accumulates in f64.
        AccumulatorType::F32 | AccumulatorType::F64 => {
            Multiplier::<f32>::new(f, plan, consumer).in_turn(pass, consumer, fills)
        }
    }
}

impl<'f, 'p, T: AccumulatorElement> Multiplier<'f, 'p, T> {
    pub(super) fn new(f: &'f Builder, plan: &'p Plan, consumer: Consumer<'f>) -> Self {
        let product = WarpgroupMma::new(f, plan.product(), consumer.part);
        Self::of(f, plan, product)
    }

    fn of(f: &'f Builder, plan: &'p Plan, product: WarpgroupMma<'f, T>) -> Self {
        let block = |_| (0..product.spec().block_sums()).map(|_| f.uninitialised()).collect();
        let sums = || (0..product.spec().blocks()).map(block).collect();
        let sums = (plan.mainloop.atom.promote > 0).then(sums);
        Self { f, plan, product, sums }
    }

    /// A's registers, if A comes from registers.
    pub(super) fn fragments(&self, consumer: Consumer<'f>) -> Option<Fragments<'f>> {
        let product = self.plan.product();
        product.takes_fragments().then(|| Fragments::new(self.f, product, consumer))
    }

    /// Loads a stage's fragments, if A comes from registers. The result issues instructions that overwrite the accumulators.
    pub(super) fn loaded<'a>(
        &self,
        fragments: Option<&'a Fragments<'f>>,
        stage: Stage<'f>,
    ) -> impl Fn(&MmaOperands<'_, 'f, T>) + use<'a, 'f, T> {
        if let Some(fragments) = fragments {
            fragments.load(stage);
        }
        move |found| match fragments {
            Some(fragments) => found.issue_registers(fragments, false),
            None => found.issue(false),
        }
    }

    /// If tiles may be narrowed, emits `finish` once per width. Otherwise accumulators of several widths
    /// would meet in the same variables. The assembler would have to move them, and it serializes
    /// instructions whose registers it moves.
    fn ring(&self, pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        let unit = pass.unit;
        let [tile_n, step] = [self.plan.mainloop.tile[1], self.plan.mainloop.step];
        consumer.turns.begin();
        let Some(columns) = unit.columns.filter(|_| step > 0) else {
            self.stages(pass, consumer, tile_n);
            return finish(self.plan, self.result(consumer, unit, tile_n));
        };
        // Whole warps take this branch. The assembler cannot see that if `columns` comes from memory, so it
        // is broadcast.
        self.as_wide_as(self.f.shuffle(columns, 0), tile_n, &|width| {
            let plan = self.plan.as_wide_as(width);
            let narrow = Multiplier::of(self.f, &plan, self.product.narrowed(plan.mainloop.product()));
            narrow.stages(pass, consumer, width);
            finish(&plan, narrow.result(consumer, unit, width));
        });
    }

    /// Emits `body` once per width of a tile, the widest first, and runs the one for `columns`.
    fn as_wide_as(&self, columns: Value<'f, u32>, width: u32, body: &dyn Fn(u32)) {
        let step = self.plan.mainloop.step;
        if width <= step {
            return body(width);
        }
        let narrower = || self.as_wide_as(columns, width - step, body);
        self.f.if_else(columns.more_than(width - step), || body(width), narrower);
    }

    /// Multiplies the first `width` columns of a work unit; the accumulators of other columns become zero.
    fn stages(&self, pass: Pass<'_, 'f>, consumer: Consumer<'f>, width: u32) {
        if let Some(sums) = &self.sums {
            return self.promoted(sums, (pass, consumer), width);
        }
        let fragments = self.fragments(consumer);
        let in_flight = if fragments.is_some() { InFlight::None } else { InFlight::One };
        let multiply = |stage, accumulate| self.stage(fragments.as_ref(), stage, accumulate, width);
        // The assembler may reuse registers that nothing reads before the loop, so they are cleared after it.
        let rest = |multiplied| self.product.clear_from(if multiplied { width } else { 0 });
        consumer.stages(pass, in_flight, &multiply, &rest);
    }

    /// Multiplies the first `width` columns of a stage into the accumulators, which keep their old values if
    /// `accumulate`.
    pub(super) fn stage(
        &self,
        fragments: Option<&Fragments<'f>>,
        stage: Stage<'f>,
        accumulate: bool,
        width: u32,
    ) {
        if let Some(fragments) = fragments {
            fragments.load(stage);
        }
        let found = self.product.find(stage).narrowed(width);
        self.f.wgmma_fence();
        match fragments {
            Some(fragments) => found.issue_registers(fragments, accumulate),
            None => found.issue(accumulate),
        }
        self.f.wgmma_commit();
    }

    fn in_turn(
        &self,
        Pass { ring, unit, .. }: Pass<'_, 'f>,
        consumer: Consumer<'f>,
        (first, next): (&dyn Fn(), &dyn Fn(Value<'f, u32>)),
    ) -> Accumulators<'f> {
        let (f, plan, width) = (self.f, self.plan, self.plan.mainloop.tile[1]);
        let fragments = self.fragments(consumer);
        first();
        if let Some(sums) = &self.sums {
            self.clear_promoted(sums);
            f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
                let stage = ring.acquire();
                let issue = self.loaded(fragments.as_ref(), stage);
                self.by_parts(sums, (stage, &issue), width, self.parts(), &|| {
                    f.barrier_sync(CtaPlan::CTA_BARRIER, plan.threads);
                });
                next(k_tile);
            });
            return self.result(consumer, unit, width);
        }
        let step = |k_tile: Value<'f, u32>, accumulate: bool| {
            self.stage(fragments.as_ref(), ring.acquire(), accumulate, width);
            f.wgmma_wait(0);
            f.barrier_sync(CtaPlan::CTA_BARRIER, plan.threads);
            next(k_tile);
        };
        let multiply = || {
            step(unit.k_begin, false);
            f.repeat_from(unit.k_begin + 1, unit.k_end, |k_tile| step(k_tile, true));
        };
        f.if_else(unit.k_begin.less_than(unit.k_end), multiply, || self.product.clear());
        self.result(consumer, unit, width)
    }
}
