//! The order of consumers that alternate.

use ptx::{Builder, Value, Var};

use crate::plan::{CtaPlan, MBARRIER_BYTES, Plan};

/// The order of consumers that alternate, one turn each: pingpong consumers, with a turn per work unit; or consumers
/// that take turns in loops, with a turn per step. A no-op for other consumers.
///
/// A turn per work unit lasts from a consumer's first wait for a stage to its last. If a consumer waited for its
/// stages earlier, it could be two phases away from the stages' barriers, and a parity would be ambiguous.
#[derive(Clone, Copy, Debug)]
pub struct Turns<'f> {
    f: &'f Builder,
    order: Order<'f>,
    speaks: Value<'f, bool>,
}

/// How consumers pass turns.
#[derive(Clone, Copy, Debug)]
enum Order<'f> {
    None,
    /// By mbarriers: the own one, the next consumer's, and the parity of the own one.
    Units(Value<'f, u32>, Value<'f, u32>, Var<'f, u32>),
    /// By named barriers, one per consumer.
    Steps {
        first: u32,
        consumers: u32,
        warpgroup: Value<'f, u32>,
    },
}

/// Threads that meet at the named barrier of a turn: those that wait for it, and those that pass it.
const OF_TURN: u32 = 2 * 128;

/// Address of the barrier that starts a consumer's turn.
#[track_caller]
pub(super) fn turn_barrier<'f>(
    plan: &Plan,
    base: Value<'f, u32>,
    consumer: Value<'f, u32>,
) -> Value<'f, u32> {
    base + plan.turns_offset() + consumer * MBARRIER_BYTES
}

impl<'f> Turns<'f> {
    /// No order: for consumers that do not alternate.
    pub fn none(f: &'f Builder) -> Self {
        Self { f, order: Order::None, speaks: f.constant(false) }
    }

    /// The turns of consumer `warpgroup`, with barriers in the dynamic shared memory that begins at `base`.
    /// Consumer 0 has the first turn.
    #[track_caller]
    pub fn new(
        f: &'f Builder,
        plan: &Plan,
        base: Value<'f, u32>,
        warpgroup: Value<'f, u32>,
        thread: Value<'f, u32>,
    ) -> Self {
        let barriers = || {
            let next = warpgroup + 1;
            let next = f.constant(0u32).where_or(next.equals(plan.turns()), next);
            let first = f.constant(1u32).where_or(warpgroup.equals(0), 0);
            let [own, next] = [warpgroup, next].map(|consumer| turn_barrier(plan, base, consumer));
            Order::Units(own, next, f.variable(first))
        };
        let order = f.for_caller(|| if plan.turns() > 0 { barriers() } else { Order::None });
        Self { f, order, speaks: (thread % 32).equals(0) }
    }

    /// The turns of consumer `warpgroup` in loops, with the named barriers that the plan hands out. All consumers take
    /// the same number of turns, from [`start`](Self::start) to [`finish`](Self::finish).
    pub fn in_loop(f: &'f Builder, plan: &CtaPlan, warpgroup: Value<'f, u32>) -> Self {
        let (first, consumers) = (plan.turn_barriers().start, plan.consumers);
        let order = if plan.turns { Order::Steps { first, consumers, warpgroup } } else { Order::None };
        Self { order, ..Self::none(f) }
    }

    /// Emitted before the first turn of a loop: consumer 0 has it.
    #[track_caller]
    pub fn start(&self) {
        if let Order::Steps { consumers, warpgroup, .. } = self.order {
            self.f.for_caller(|| self.f.if_(warpgroup.equals(consumers - 1), || self.pass()));
        }
    }

    /// Waits for this consumer's turn.
    #[track_caller]
    pub fn begin(&self) {
        match self.order {
            Order::None => {}
            Order::Units(own, _, parity) => {
                self.f.mbarrier_wait(own, parity.get());
                parity.set(parity.get() ^ 1);
            }
            Order::Steps { first, warpgroup, .. } => self.f.barrier_sync(warpgroup + first, OF_TURN),
        }
    }

    /// Passes the turn to the next consumer. Each warp arrives separately: with a single arrival, a warp that
    /// has not yet seen its own turn would miss it if the other consumers took all theirs meanwhile, which is
    /// possible if a turn is one stage long.
    #[track_caller]
    pub fn pass(&self) {
        let f = self.f;
        match self.order {
            Order::None => {}
            Order::Units(_, next, _) => f.for_caller(|| f.if_(self.speaks, || f.mbarrier_arrive(next))),
            Order::Steps { first, consumers, warpgroup } => {
                let next = warpgroup + 1;
                let next = f.constant(0).where_or(next.equals(consumers), next);
                f.barrier_arrive(next + first, OF_TURN);
            }
        }
    }

    /// Emitted after the last turn of a loop: nobody else waits for the turn that was passed last.
    #[track_caller]
    pub fn finish(&self) {
        if let Order::Steps { warpgroup, .. } = self.order {
            self.f.for_caller(|| self.f.if_(warpgroup.equals(0), || self.begin()));
        }
    }
}
