//! Walking the stages of a piece: waiting, multiplying, giving back.

use ptx::{Builder, Value};

use super::{Consumer, Piece};
use crate::pipeline::{Position, Stage};

/// Groups of instructions that may still run when a consumer turns to the next stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// None: a stage's instructions are complete before the next stage is touched. For A from registers, which the next stage
    /// overwrites, and wherever threads read a stage: then each warp gives it back ([`EachWarp`](crate::EachWarp)).
    None,
    /// Those of the stage before: it is given back when the next one's have been issued.
    One,
}

/// What is emitted where all of the stage before has been multiplied; `None` in the first stage, which has none before it.
pub(super) type Older<'a> = Option<&'a dyn Fn()>;

impl<'f> Consumer<'f> {
    /// Walks the stages of a piece, in the consumer's turn: waits for each, multiplies it, and gives it back when its instructions
    /// are complete.
    ///
    /// `multiply` is emitted twice, once for the first stage (`false`: nothing to add to) and once in a loop for all others
    /// (`true`); it issues one group of instructions. `rest` is emitted behind the last stage (`true`), where all instructions are
    /// complete, and where the piece has no stage (`false`): there the accumulators are to become zero. See
    /// [`Product`](super::Product) for an example.
    pub fn each_stage(
        &self,
        f: &'f Builder,
        walk: (Position<'f>, Piece<'f>),
        in_flight: InFlight,
        multiply: &dyn Fn(Stage<'f>, bool),
        rest: &dyn Fn(bool),
    ) {
        self.turns.begin();
        self.stages(f, walk, in_flight, multiply, rest);
    }

    /// Walks the stages of a piece, in a turn that has begun, where instructions read registers that threads set for each stage: there are
    /// several sets of those, and instructions of the stage before may still run.
    ///
    /// `multiply` is emitted twice: for the first stage, and in a loop for all others with what is emitted where the stage before has been
    /// multiplied. `clear` is emitted where the piece has no stage.
    pub(super) fn in_sets(
        &self,
        f: &'f Builder,
        (ring, piece): (Position<'f>, Piece<'f>),
        multiply: &dyn Fn(Stage<'f>, Older<'_>),
        clear: &dyn Fn(),
    ) {
        let free = |empty| {
            // What the other lanes have read of the stage comes before the warp's arrival.
            f.warp_sync();
            self.release.arrive(empty);
        };
        let all = || {
            let first = ring.acquire();
            multiply(first, None);
            let older = f.variable(first.empty);
            f.repeat_from(piece.k_begin + 1, piece.k_end, |_| {
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
        f.if_else(piece.k_begin.less_than(piece.k_end), all, nothing);
    }

    /// The same in a turn that has begun.
    pub(super) fn stages(
        &self,
        f: &'f Builder,
        (ring, piece): (Position<'f>, Piece<'f>),
        in_flight: InFlight,
        multiply: &dyn Fn(Stage<'f>, bool),
        rest: &dyn Fn(bool),
    ) {
        let nothing = || {
            rest(false);
            self.turns.pass();
        };
        let each = |body: &dyn Fn(Value<'f, u32>)| f.repeat_from(piece.k_begin + 1, piece.k_end, body);
        let one = || {
            // The first stage overwrites the accumulators, so nothing has to clear them.
            let first = ring.acquire();
            multiply(first, false);
            // The stage before the current one: its instructions may still be running.
            let older = f.variable(first.empty);
            each(&|_| {
                let stage = ring.acquire();
                multiply(stage, true);
                f.wgmma_wait(1);
                self.release.arrive(older.get());
                older.set(stage.empty);
            });
            self.turns.pass();
            f.wgmma_wait(0);
            self.release.arrive(older.get());
            rest(true);
        };
        let none = || {
            let whole = |accumulate| {
                let stage = ring.acquire();
                multiply(stage, accumulate);
                f.wgmma_wait(0);
                // What the other lanes have read of the stage comes before the warp's arrival.
                f.warp_sync();
                self.release.arrive(stage.empty);
            };
            whole(false);
            each(&|_| whole(true));
            self.turns.pass();
            rest(true);
        };
        f.if_else(
            piece.k_begin.less_than(piece.k_end),
            || match in_flight {
                InFlight::One => one(),
                InFlight::None => none(),
            },
            nothing,
        );
    }
}
