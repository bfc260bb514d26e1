//! The rounds of one cluster: which warp takes the next turn, and which asynchronous work completes.

use super::turn::Turn;
use crate::machine::{Completion, Machine};
use crate::schedule::Schedule;
use crate::trap::Trap;

/// Maximum number of instructions in one turn of a warp, under the schedules that run warps in turn.
const TURN: u32 = 4096;
/// Number of consecutive polls without a new value, after which a cluster lets others run.
pub(super) const LOOKS: u32 = 256;
/// The same if other instructions are executed between the polls.
pub(super) const BETWEEN: u32 = LOOKS;
/// Number of rounds without progress after which polling warps count as hung.
pub(super) const IDLE_ROUNDS: u32 = 1 << 16;

/// How a cluster's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every warp has exited.
    Done,
    /// The cluster waits for other clusters.
    Waits,
    /// The cluster could continue, but lets others run.
    Yields,
    /// The caller has ended the launch.
    Stopped,
}

impl Machine<'_> {
    /// Runs the warps until all have exited or all wait for other clusters. With `yields` a random schedule
    /// may also stop at other moments. After [`Outcome::Waits`] and [`Outcome::Yields`] it can be called
    /// again.
    pub(crate) fn run(&mut self, yields: bool) -> Result<Outcome, Box<Trap>> {
        // Another cluster may have written the words that warps poll. It completes no phase of an mbarrier of this one.
        (self.fruitless, self.vain) = (0, 0);
        match self.options.schedule {
            Schedule::Default | Schedule::Earliest | Schedule::Latest => self.run_rounds(),
            Schedule::Paced => self.run_paced(),
            Schedule::Random => self.run_random(yields),
        }
    }

    /// Whether a cluster that was set aside may have something to do: asynchronous work can complete, a warp that can
    /// continue is not polling words, or one of the polled words has changed.
    pub(crate) fn is_stirred(&self) -> bool {
        let completes = self.first_completion().is_some();
        completes
            || self.warps.iter().any(|warp| {
                let changed = |&(address, bytes, seen): &(u64, usize, u64)| {
                    let mut buffer = [0; 8];
                    let loaded = self.memory.load(address, &mut buffer[..bytes.min(8)]);
                    loaded.is_err() || u64::from_le_bytes(buffer) != seen
                };
                let looks = !warp.watched.is_empty();
                !warp.exited && warp.blocked.is_none() && (!looks || warp.watched.iter().any(changed))
            })
    }

    /// Called after the last run, whether it succeeded or not.
    pub(crate) fn finish(&mut self) {
        if let Some(recorder) = self.options.trace {
            self.observe_end(recorder);
        }
        if let Some(meetings) = self.options.meetings {
            self.hand_over(meetings);
        }
    }

    /// Called when something other than waiting has happened.
    pub(super) fn goes_on(&mut self) {
        self.fruitless = 0;
        self.idle = 0;
        self.stuck = 0;
        self.launch.common.progress.goes_on(&mut self.standing);
    }

    fn run_rounds(&mut self) -> Result<Outcome, Box<Trap>> {
        let backwards = self.options.schedule == Schedule::Latest;
        let count = self.warps.len();
        while self.warps.iter().any(|warp| !warp.exited) {
            let (mut progress, mut long, mut polled) = (false, false, false);
            for position in 0..count {
                let warp = if backwards { count - 1 - position } else { position };
                if self.options.is_stopped() {
                    return Ok(Outcome::Stopped);
                }
                if self.ready(warp) {
                    match self.turn(warp, TURN)? {
                        Turn::Progress => progress = true,
                        Turn::Long => long = true,
                        Turn::Idle => polled |= self.warps[warp].may_run(),
                    }
                }
            }
            if progress {
                self.goes_on();
                if self.vain >= BETWEEN {
                    return Ok(Outcome::Yields);
                }
                continue;
            }
            let completion = if backwards { self.last_completion() } else { self.first_completion() };
            match completion {
                Some(completion) => {
                    self.happen(completion)?;
                    self.goes_on();
                }
                None if self.fruitless >= LOOKS => {
                    if !self.is_stuck() {
                        return Ok(Outcome::Waits);
                    }
                }
                // A loop around polls of what other clusters write may be long.
                None if long && self.vain >= BETWEEN => return Ok(Outcome::Yields),
                None if long => self.idle = 0,
                None if polled && self.idle < IDLE_ROUNDS => {
                    self.idle += 1;
                    let _some = self.idle.is_multiple_of(LOOKS) && self.is_stuck();
                }
                None if self.go_ahead() => {}
                None => return Err(self.hang()),
            }
        }
        Ok(Outcome::Done)
    }

    // ---- asynchronous work ----

    /// All asynchronous work that could complete now: loads from the oldest, then arrivals, then multiplies,
    /// then stores.
    pub(super) fn completions(&self) -> impl DoubleEndedIterator<Item = Completion> + '_ {
        let loads = (0..self.loads.len()).map(Completion::Load);
        let groups = self.program.function.threads().div_ceil(128) as usize;
        let groups = (0..self.ctas.len()).flat_map(move |cta| (0..groups).map(move |group| (cta, group)));
        let multiplies = groups.filter_map(|(cta, group)| {
            let undone = self.multiplied(cta, group) < self.multipliable(cta, group);
            undone.then_some(Completion::Multiply { cta, group })
        });
        let stores = self.warps.iter().enumerate().flat_map(|(warp, state)| {
            let undone = state.stores.iter().enumerate().filter(|(_, store)| !store.done);
            undone.map(move |(index, _)| Completion::Store { warp, index })
        });
        let arrivals = (0..self.arrivals.len()).map(Completion::Arrival);
        loads.chain(arrivals).chain(multiplies).chain(stores)
    }

    pub(super) fn first_completion(&self) -> Option<Completion> {
        self.completions().next()
    }

    fn last_completion(&self) -> Option<Completion> {
        self.completions().next_back()
    }

    /// Completes one asynchronous operation. A fault is reported at the instruction that issued it.
    pub(super) fn happen(&mut self, completion: Completion) -> Result<(), Box<Trap>> {
        self.observe_completion(&completion);
        let happened = self.carry_out(completion);
        self.observe_phases();
        happened
    }

    fn carry_out(&mut self, completion: Completion) -> Result<(), Box<Trap>> {
        match completion {
            Completion::Load(index) => {
                let Some(load) = self.loads.remove(index) else { return Ok(()) };
                let (warp, pc, lane) = load.by;
                let landed = self.land(load);
                self.warn_of_unwritten(self.warps[warp].cta, (warp, pc, Some(lane)));
                landed.map_err(|fault| self.trap(warp, fault.by(warp, pc, Some(lane))))
            }
            Completion::Arrival(index) => {
                let Some(arrival) = self.arrivals.remove(index) else { return Ok(()) };
                let (warp, pc, lane) = arrival.by;
                self.copies_done(arrival).map_err(|fault| self.trap(warp, fault.by(warp, pc, Some(lane))))
            }
            Completion::Multiply { cta, group } => {
                let until = self.multiplied(cta, group) + 1;
                let warp = cta * self.program.function.threads().div_ceil(32) as usize + group * 4;
                self.multiply_until(cta, group, until).map_err(|fault| self.trap(warp, fault.into()))
            }
            Completion::Store { warp, index } => {
                let (cta, store) = (self.warps[warp].cta, self.warps[warp].stores[index].clone());
                self.warps[warp].stores[index].done = true;
                let written = self.write_box(cta, &store);
                written.map_err(|fault| self.trap(warp, fault.by(warp, store.pc, Some(store.lane))))
            }
        }
    }
}
