//! Walking the stages of a work unit: waiting, multiplying, releasing.

use ptx::Value;

use super::{Consumer, Pass};
use crate::pipeline::{Position, Stage};

/// Number of commit groups that may still run when a consumer moves on to the next stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// None: a stage's instructions are complete before the next stage is touched. Needed for A from
    /// registers, which the next stage overwrites, and if threads read a stage; then each warp must release
    /// it ([`EachWarp`](crate::EachWarp)).
    None,
    /// One: the previous stage's group may still run. That stage is released after the next stage's
    /// instructions have been issued.
    One,
}

/// Emitted as soon as the whole stage before has been multiplied; `None` in the first stage.
pub type Older<'a> = Option<&'a dyn Fn()>;

impl<'f> Consumer<'f> {
    /// Walks the stages of a work unit, in the consumer's turn: waits for each stage, multiplies it, and
    /// releases it when its instructions are complete.
    ///
    /// `multiply` issues one commit group. It is emitted twice: once for the first stage (`false`: overwrite
    /// the accumulators), once in a loop for all others (`true`: add to them). `rest` is emitted in two
    /// places: after the last stage, when all instructions are complete (`true`), and for a work unit without
    /// stages (`false`), where it must set the accumulators to zero. For an example see
    /// [`WarpgroupMma`](super::WarpgroupMma).
    #[track_caller]
    pub fn each_stage(
        &self,
        pass: Pass<'_, 'f>,
        in_flight: InFlight,
        multiply: &dyn Fn(Stage<'f>, bool),
        rest: &dyn Fn(bool),
    ) {
        self.turns.begin();
        self.stages(pass, in_flight, multiply, rest);
    }

    /// As [`each_stage`](Self::each_stage), where each k-tile has a stage in each of several rings: the kernel's, and
    /// those of the mainloop's own. `multiply` is also given the number of the k-tile.
    #[track_caller]
    pub fn each_stage_of<const RINGS: usize>(
        &self,
        pass: Pass<'_, 'f>,
        rings: [Position<'f>; RINGS],
        in_flight: InFlight,
        multiply: &dyn Fn([Stage<'f>; RINGS], Value<'f, u32>, bool),
        rest: &dyn Fn(bool),
    ) {
        self.turns.begin();
        self.stages_of(pass, rings, in_flight, multiply, rest);
    }

    /// As [`each_stage`](Self::each_stage) for instructions that read registers which threads set for each stage.
    /// There are several sets of registers, so instructions of the stage before may still run.
    ///
    /// `multiply` is emitted twice: for the first stage, and in a loop for all others, with the code to emit
    /// once the stage before has been multiplied, which releases it. Each warp must release stages ([`EachWarp`](crate::EachWarp)).
    /// `clear` is emitted for a work unit without stages.
    #[track_caller]
    pub fn each_stage_in_sets(
        &self,
        Pass { f, ring, unit, .. }: Pass<'_, 'f>,
        multiply: &dyn Fn(Stage<'f>, Older<'_>),
        clear: &dyn Fn(),
    ) {
        let (multiply, clear) =
            (|stage, older: Older<'_>| f.of_caller(|| multiply(stage, older)), || f.of_caller(clear));
        let free = |empty| {
            // Orders the other lanes' reads of the stage before the warp's arrival.
            f.warp_sync();
            self.release.arrive(empty);
        };
        let all = || {
            let first = ring.acquire();
            multiply(first, None);
            let older = f.variable(first.empty);
            f.repeat_from(unit.k_begin + 1, unit.k_end, |_| {
                let stage = ring.acquire();
                multiply(stage, Some(&|| free(older.get())));
                older.set(stage.empty);
            });
            self.turns.pass();
            f.wgmma_wait(0);
            free(older.get());
        };
        let nothing = || {
            clear();
            self.turns.pass();
        };
        self.turns.begin();
        f.for_caller(|| f.if_else(unit.k_begin.less_than(unit.k_end), all, nothing));
    }

    /// As [`each_stage`](Self::each_stage), when the consumer's turn has already begun.
    #[track_caller]
    pub(super) fn stages(
        &self,
        pass: Pass<'_, 'f>,
        in_flight: InFlight,
        multiply: &dyn Fn(Stage<'f>, bool),
        rest: &dyn Fn(bool),
    ) {
        let multiply = |[stage]: [Stage<'f>; 1], _, accumulate| multiply(stage, accumulate);
        self.stages_of(pass, [pass.ring], in_flight, &multiply, rest);
    }

    #[track_caller]
    fn stages_of<const RINGS: usize>(
        &self,
        Pass { f, unit, .. }: Pass<'_, 'f>,
        rings: [Position<'f>; RINGS],
        in_flight: InFlight,
        multiply: &dyn Fn([Stage<'f>; RINGS], Value<'f, u32>, bool),
        rest: &dyn Fn(bool),
    ) {
        let multiply = |stages, k_tile, accumulate| f.of_caller(|| multiply(stages, k_tile, accumulate));
        let rest = |multiplied| f.of_caller(|| rest(multiplied));
        let acquire = || rings.each_ref().map(Position::acquire);
        let release = |empty: Value<'f, u32>| self.release.arrive(empty);
        let nothing = || {
            rest(false);
            self.turns.pass();
        };
        let each = |body: &dyn Fn(Value<'f, u32>)| f.repeat_from(unit.k_begin + 1, unit.k_end, body);
        let one = || {
            // The first stages overwrite the accumulators, so they need not be cleared.
            let first = acquire();
            multiply(first, unit.k_begin, false);
            // The stages before the current ones: their instructions may still be running.
            let older = first.map(|stage| f.variable(stage.empty));
            each(&|k_tile| {
                let stages = acquire();
                multiply(stages, k_tile, true);
                f.wgmma_wait(1);
                older.iter().for_each(|older| release(older.get()));
                older.iter().zip(stages).for_each(|(older, stage)| older.set(stage.empty));
            });
            self.turns.pass();
            f.wgmma_wait(0);
            older.iter().for_each(|older| release(older.get()));
            rest(true);
        };
        let none = || {
            let whole = |k_tile, accumulate| {
                let stages = acquire();
                multiply(stages, k_tile, accumulate);
                f.wgmma_wait(0);
                // Orders the other lanes' reads of the stages before the warp's arrival.
                f.warp_sync();
                stages.iter().for_each(|stage| release(stage.empty));
            };
            whole(unit.k_begin, false);
            each(&|k_tile| whole(k_tile, true));
            self.turns.pass();
            rest(true);
        };
        let all = || match in_flight {
            InFlight::One => one(),
            InFlight::None => none(),
        };
        f.for_caller(|| f.if_else(unit.k_begin.less_than(unit.k_end), all, nothing));
    }
}
