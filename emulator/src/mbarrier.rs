//! The mbarrier: a phase, the arrivals that it still needs, and the bytes that it still expects.
//!
//! Source: PTX ISA "mbarrier". The transitions are:
//!
//! * `init(n)`: phase 0, expected = pending = n, tx = 0;
//! * `expect_tx(b)`: tx += b, never completes a phase;
//! * `complete_tx(b)`: tx -= b, then the phase may complete;
//! * `arrive(c)`: pending -= c, then the phase may complete;
//! * `arrive.expect_tx(b)`: `expect_tx(b)`, then `arrive(1)`;
//! * `arrive_drop(c)`: expected -= c, then `arrive(c)`; `arrive_drop.expect_tx(b)`: `expect_tx(b)`, then
//!   `arrive_drop(1)`;
//! * `.noComplete`: the same arrivals, undefined if they complete the phase.
//!
//! A phase completes when pending = 0 and tx = 0. Then the phase number grows by one, and pending = expected
//! again. The byte count is signed, so a copy may finish before it is announced as long as an arrival is
//! still missing.

use ptx::inst::{MbarrierOrder, Scope};

use crate::clock::View;
use crate::trap::Fault;

/// Largest arrival count, and largest magnitude of the outstanding bytes.
pub(crate) const LIMIT: u32 = (1 << 20) - 1;

/// A copy that has arrived: offset, number of bytes, whether others may write the same bytes, and whether it adds
/// to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    pub(crate) joint: bool,
    pub(crate) adds: bool,
}

/// The bit that marks the state of an mbarrier.
const STATE: u64 = 1 << 63;

/// The number of pending arrivals in a state; `None` if the value is not a state.
pub(crate) fn pending(state: u64) -> Option<u32> {
    (state & STATE != 0).then_some((state & u64::from(LIMIT)) as u32)
}

/// What an arrival publishes, and in which scope. The scope is `None` if the arrival is relaxed and no fence
/// precedes it.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) view: View,
    pub(crate) scope: Option<Scope>,
}

/// What a wait can acquire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// From arrivals of the mbarrier's own CTA.
    near: View,
    /// From arrivals of other CTAs. Only waits of cluster scope or wider acquire this.
    far: View,
}

impl Released {
    /// Adds what a warp of the mbarrier's CTA learns from an acquire with this scope. In every scope it
    /// learns that other CTAs' arrivals have been executed.
    pub(crate) fn acquire(&self, view: &mut View, scope: Scope) {
        view.join(&self.near);
        match scope {
            Scope::Cta => view.follow(&self.far),
            Scope::Cluster | Scope::Gpu | Scope::System => view.join(&self.far),
        }
    }
}

/// A use of an mbarrier by a warp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// The warp's index in the cluster, the lanes, the warp's count at that time, and the operation.
    pub(crate) warp: usize,
    pub(crate) lanes: u32,
    pub(crate) count: u32,
    pub(crate) pc: usize,
}

/// One mbarrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mbarrier {
    /// Number of phases completed so far. It is also the number of the current phase.
    pub(crate) phase: u64,
    /// Number of arrivals that each phase needs.
    pub(crate) expected: u32,
    /// Number of arrivals that the current phase still needs.
    pub(crate) pending: u32,
    /// Bytes announced but not yet arrived; negative if more bytes arrived than were announced.
    pub(crate) tx: i64,
    /// The thread that initialised it.
    pub(crate) by: u16,
    /// The fences of its initialisation: by the thread that initialised it, and proxy fences of others that knew of it.
    pub(crate) fences: Vec<Used>,
    /// The initialisation, and whether a cluster barrier has completed after a fence of it.
    pub(crate) made: Used,
    pub(crate) public: bool,
    /// The last use by each thread. Lanes that used it in one instruction share an entry.
    users: Vec<Used>,
    /// Copies that have arrived in this phase. Their bytes stay owned until the phase completes.
    pub(crate) landed: Vec<Landed>,
    /// Ranges that `cp.async` copies have written in this phase: offset and number of bytes.
    pub(crate) copied: Vec<(u32, u32)>,
    /// What the arrivals of this phase published, and what those of completed phases published.
    gathered: Released,
    released: Released,
    /// The clock index of its phases, and the count when it was initialised.
    index: usize,
    base: u32,
}

impl Mbarrier {
    /// A new mbarrier. `offset` is its offset for reports.
    pub(crate) fn new(offset: u32, count: u32, by: u16) -> Result<Self, Fault> {
        if count == 0 || count > LIMIT {
            return Err(Fault::MbarrierCount { offset, count });
        }
        let (expected, pending) = (count, count);
        let landed = Vec::new();
        Ok(Self {
            phase: 0,
            expected,
            pending,
            tx: 0,
            by,
            fences: Vec::new(),
            made: Used::default(),
            public: false,
            users: Vec::new(),
            landed,
            copied: Vec::new(),
            gathered: Released::default(),
            released: Released::default(),
            index: usize::MAX,
            base: 0,
        })
    }

    /// Remembers that lanes of a warp use it.
    pub(crate) fn is_used(&mut self, by: Used) {
        let mut found = false;
        self.users.retain_mut(|user| {
            if user.warp == by.warp {
                let now = user.count == by.count;
                user.lanes = if now { user.lanes | by.lanes } else { user.lanes & !by.lanes };
                found |= now;
            }
            user.lanes != 0
        });
        if !found {
            self.users.push(by);
        }
    }

    /// The last use by each thread.
    pub(crate) fn users(&self) -> impl Iterator<Item = Used> {
        self.users.iter().copied()
    }

    /// Whether the phase of this parity has completed.
    pub(crate) fn passed(&self, parity: u32) -> bool {
        self.phase & 1 != u64::from(parity & 1)
    }

    /// Sets the clock index of its phases, and their count so far.
    pub(crate) fn counted(&mut self, index: usize, base: u32) {
        (self.index, self.base) = (index, base);
    }

    /// The clock index of its phases, and the count of completed phases.
    pub(crate) fn count(&self) -> (usize, u32) {
        (self.index, self.completed())
    }

    fn completed(&self) -> u32 {
        self.base.wrapping_add(self.phase as u32)
    }

    /// Refuses a wait that comes too late for one of the lanes of a mask. A lane that knows of k completed phases
    /// waits for phase k or phase k-1, the one with this parity. Two phases later the mbarrier would give the
    /// wrong answer. `views` are what the lanes know.
    pub(crate) fn in_time<'v>(
        &self,
        (offset, parity): (u32, u32),
        views: impl Iterator<Item = &'v View>,
    ) -> Result<(), Fault> {
        let knows = |view: &View| u64::from(view.executed(self.index).saturating_sub(self.base));
        let Some(known) = views.map(knows).min() else { return Ok(()) };
        let behind = if known & 1 == u64::from(parity & 1) { 0 } else { 1 };
        if self.index != usize::MAX && self.phase + behind >= known + 2 {
            return Err(Fault::MbarrierMissed { offset, parity: parity & 1, phase: self.phase, known });
        }
        Ok(())
    }

    /// Completes the phase if nothing is missing. Returns whether it did.
    fn check(&mut self) -> bool {
        let complete = self.pending == 0 && self.tx == 0;
        if complete {
            self.phase += 1;
            self.pending = self.expected;
            let gathered = core::mem::take(&mut self.gathered);
            self.released.near.join(&gathered.near);
            self.released.far.join(&gathered.far);
            if self.index != usize::MAX {
                self.released.near.known.raise(self.index, self.completed());
            }
        }
        complete
    }

    /// Makes the current phase need one more arrival.
    pub(crate) fn expect_one_more(&mut self) {
        self.pending += 1;
    }

    /// Stores what an arriving warp publishes, for later waits. `far`: the warp is in another CTA.
    pub(crate) fn gather(&mut self, published: &Published, far: bool) {
        match published {
            Published { view, scope: Some(_) } if !far => self.gathered.near.join(view),
            Published { view, scope: Some(Scope::Cluster | Scope::Gpu | Scope::System) } => {
                self.gathered.far.join(view);
            }
            Published { view, scope: Some(Scope::Cta) } => self.gathered.far.follow(view),
            Published { view, scope: None } => self.gathered.near.started |= view.started,
        }
    }

    /// Remembers that the CTA of this rank has started, as it has sent something.
    pub(crate) fn started(&mut self, rank: u32) {
        self.gathered.near.started |= 1 << rank;
    }

    /// Called when a wait has succeeded. Adds to the view what the wait acquires, and returns what a later
    /// fence acquires.
    pub(crate) fn acquire(&self, view: &mut View, order: MbarrierOrder) -> Option<(Scope, Released)> {
        match order {
            MbarrierOrder::Sync(scope) => {
                self.released.acquire(view, scope);
                None
            }
            MbarrierOrder::Relaxed(scope) => {
                view.started |= self.released.near.started | self.released.far.started;
                let (index, count) = self.count();
                if index != usize::MAX {
                    view.done.raise(index, count);
                }
                Some((scope, self.released.clone()))
            }
        }
    }

    fn transfer(&mut self, offset: u32, bytes: i64) -> Result<(), Fault> {
        self.tx += bytes;
        if self.tx.unsigned_abs() > LIMIT.into() {
            return Err(Fault::MbarrierBytes { offset, outstanding: self.tx });
        }
        Ok(())
    }

    pub(crate) fn expect(&mut self, offset: u32, bytes: u32) -> Result<(), Fault> {
        self.transfer(offset, bytes.into())
    }

    /// Counts bytes that have arrived. Returns whether the phase completed.
    pub(crate) fn complete(&mut self, offset: u32, bytes: u32) -> Result<bool, Fault> {
        self.transfer(offset, -i64::from(bytes))?;
        Ok(self.check())
    }

    /// The opaque state of the current phase.
    pub(crate) fn state(&self) -> u64 {
        STATE | self.phase << 20 | u64::from(self.pending)
    }

    /// Whether the phase of a state has completed.
    pub(crate) fn state_passed(&self, offset: u32, state: u64) -> Result<bool, Fault> {
        let phase = (state & !STATE) >> 20;
        if state & STATE == 0 || phase > self.phase || phase + 1 < self.phase {
            return Err(Fault::MbarrierState { offset, state, phase: self.phase });
        }
        Ok(phase < self.phase)
    }

    /// Counts arrivals that later phases do not wait for. Returns whether the phase completed.
    pub(crate) fn drop(&mut self, offset: u32, count: u32) -> Result<bool, Fault> {
        let (pending, phase) = (self.pending.min(self.expected), self.phase);
        if count > pending {
            return Err(Fault::MbarrierOverArrival { offset, count, pending, phase });
        }
        self.expected -= count;
        self.arrive(offset, count)
    }

    /// Counts arrivals that must not complete the phase. With `drop` later phases do not wait for them.
    pub(crate) fn arrive_only(&mut self, offset: u32, count: u32, drop: bool) -> Result<bool, Fault> {
        if count == self.pending && self.tx == 0 {
            return Err(Fault::MbarrierNoComplete { offset, count, phase: self.phase });
        }
        if drop { self.drop(offset, count) } else { self.arrive(offset, count) }
    }

    /// Counts arrivals. Returns whether the phase completed.
    pub(crate) fn arrive(&mut self, offset: u32, count: u32) -> Result<bool, Fault> {
        if count == 0 || count > self.pending {
            return Err(Fault::MbarrierOverArrival {
                offset,
                count,
                pending: self.pending,
                phase: self.phase,
            });
        }
        self.pending -= count;
        Ok(self.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One operation of the transition table.
    #[derive(Clone, Copy, Debug)]
    enum Do {
        Expect(u32),
        Complete(u32),
        Arrive(u32),
        Drop(u32),
        Only(u32),
        OnlyDrop(u32),
    }

    #[test]
    fn transitions() {
        use Do::{Arrive, Complete, Drop, Expect, Only, OnlyDrop};
        // why, count, operations, then phase, pending, tx
        type Row = (&'static str, u32, &'static [Do], u64, u32, i64);
        let table: &[Row] = &[
            ("fresh", 2, &[], 0, 2, 0),
            ("one of two", 2, &[Arrive(1)], 0, 1, 0),
            ("both complete and rearm", 2, &[Arrive(1), Arrive(1)], 1, 2, 0),
            ("a counted arrival", 3, &[Arrive(3)], 1, 3, 0),
            ("expecting alone completes nothing", 1, &[Expect(8), Complete(8)], 0, 1, 0),
            ("bytes outstanding keep the phase", 1, &[Expect(8), Arrive(1)], 0, 0, 8),
            ("the last byte completes it", 1, &[Expect(8), Arrive(1), Complete(8)], 1, 1, 0),
            ("bytes before they were announced", 1, &[Complete(8), Expect(8), Arrive(1)], 1, 1, 0),
            ("mid-phase negative", 1, &[Complete(8)], 0, 1, -8),
            ("a dropped arrival counts in this phase", 2, &[Drop(1)], 0, 1, 0),
            ("later phases do not wait for it", 2, &[Drop(1), Arrive(1)], 1, 1, 0),
            ("an arrival that completes nothing", 2, &[Only(1)], 0, 1, 0),
            ("bytes keep the phase for it", 1, &[Expect(8), Only(1)], 0, 0, 8),
            ("the same for good", 3, &[OnlyDrop(1), Arrive(2)], 1, 2, 0),
            ("two phases", 1, &[Arrive(1), Arrive(1)], 2, 1, 0),
        ];
        for &(why, count, operations, phase, pending, tx) in table {
            let mut barrier = Mbarrier::new(0, count, 0).unwrap();
            for &operation in operations {
                match operation {
                    Expect(bytes) => barrier.expect(0, bytes).unwrap(),
                    Complete(bytes) => drop(barrier.complete(0, bytes).unwrap()),
                    Arrive(count) => drop(barrier.arrive(0, count).unwrap()),
                    Drop(count) => drop(barrier.drop(0, count).unwrap()),
                    Only(count) => drop(barrier.arrive_only(0, count, false).unwrap()),
                    OnlyDrop(count) => drop(barrier.arrive_only(0, count, true).unwrap()),
                }
            }
            assert_eq!((barrier.phase, barrier.pending, barrier.tx), (phase, pending, tx), "{why}");
        }
    }

    #[test]
    fn parity_of_a_fresh_barrier() {
        let mut barrier = Mbarrier::new(0, 1, 0).unwrap();
        assert!(barrier.passed(1), "a producer starts with parity 1 and passes at once");
        assert!(!barrier.passed(0), "a consumer starts with parity 0 and waits");
        barrier.arrive(0, 1).unwrap();
        assert!(barrier.passed(0) && !barrier.passed(1));
    }

    #[test]
    fn states_know_their_phase() {
        let mut barrier = Mbarrier::new(0, 2, 0).unwrap();
        let state = barrier.state();
        assert_eq!(pending(state), Some(2));
        assert_eq!(barrier.state_passed(0, state), Ok(false));
        barrier.arrive(0, 2).unwrap();
        assert_eq!(barrier.state_passed(0, state), Ok(true));
        let next = barrier.state();
        barrier.arrive(0, 2).unwrap();
        assert!(barrier.state_passed(0, state).is_err(), "two phases back");
        assert_eq!(barrier.state_passed(0, next), Ok(true));
        assert!(barrier.state_passed(0, 7).is_err() && pending(7).is_none(), "no state");
    }

    #[test]
    fn misuse() {
        assert!(matches!(Mbarrier::new(8, 0, 0), Err(Fault::MbarrierCount { offset: 8, count: 0 })));
        assert!(matches!(Mbarrier::new(8, 1 << 20, 0), Err(Fault::MbarrierCount { .. })));
        let mut barrier = Mbarrier::new(8, 1, 0).unwrap();
        assert!(matches!(barrier.arrive(8, 2), Err(Fault::MbarrierOverArrival { count: 2, pending: 1, .. })));
        barrier.expect(8, LIMIT).unwrap();
        assert!(matches!(barrier.expect(8, 1), Err(Fault::MbarrierBytes { .. })));
    }
}
