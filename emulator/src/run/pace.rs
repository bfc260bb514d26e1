//! The paced schedule: all warps advance together, and asynchronous work takes several steps.
//!
//! A step is one instruction per warp. The durations are round numbers of the right order of magnitude. They
//! make the activities overlap that overlap on a GPU; they are not a timing model.

use ptx::inst::Inst;

use super::rounds::{BETWEEN, IDLE_ROUNDS, LOOKS, Outcome};
use super::turn::Turn;
use crate::machine::{Completion, Machine, Pace};
use crate::trap::Trap;

/// Number of steps before the first byte of a copy arrives.
const LATENCY: u64 = 400;
/// Number of bytes that a copy then transfers per step.
const BYTES: u64 = 64;
/// Number of columns of D that a matrix multiply finishes per step.
const COLUMNS: u64 = 2;

impl Machine<'_> {
    pub(super) fn run_paced(&mut self) -> Result<Outcome, Box<Trap>> {
        let mut pace = core::mem::take(&mut self.pace);
        let outcome = self.run_with(&mut pace);
        self.pace = pace;
        outcome
    }

    fn run_with(&mut self, pace: &mut Pace) -> Result<Outcome, Box<Trap>> {
        while self.warps.iter().any(|warp| !warp.exited) {
            if self.options.is_stopped() {
                return Ok(Outcome::Stopped);
            }
            let (mut moved, mut polled) = (false, false);
            for warp in 0..self.warps.len() {
                if self.ready(warp) {
                    match self.turn(warp, 1)? {
                        Turn::Progress | Turn::Long => moved = true,
                        Turn::Idle => polled |= self.warps[warp].may_run(),
                    }
                }
            }
            self.step_to(pace, 1);
            let mut happened = self.complete(pace)?;
            if !moved && !happened {
                match pace.next(self) {
                    Some(due) => {
                        self.step_to(pace, due);
                        happened = self.complete(pace)?;
                    }
                    None if polled && self.idle < IDLE_ROUNDS => {
                        self.idle += 1;
                        let _some = self.idle.is_multiple_of(LOOKS) && self.is_stuck();
                    }
                    None if self.go_ahead() => {}
                    None => return Err(self.hang()),
                }
            }
            if moved || happened {
                self.idle = 0;
            }
            if happened {
                self.goes_on();
            }
            // Work in flight takes many steps, so warps may poll longer.
            let looks = if self.first_completion().is_some() { LOOKS * 16 } else { LOOKS };
            if self.fruitless >= looks && !self.is_stuck() {
                return Ok(Outcome::Waits);
            }
            if self.vain >= BETWEEN {
                return Ok(Outcome::Yields);
            }
        }
        Ok(Outcome::Done)
    }

    /// Advances the time by some steps.
    fn step_to(&mut self, pace: &mut Pace, steps: u64) {
        pace.now += steps;
        if let Some(tracer) = &mut self.tracer {
            tracer.now = pace.now;
        }
    }

    /// Completes all work that is due. Returns whether there was any.
    fn complete(&mut self, pace: &mut Pace) -> Result<bool, Box<Trap>> {
        pace.notice(self);
        let mut happened = false;
        while let Some((_, completion)) = pace.due(self).filter(|(due, _)| *due <= pace.now) {
            pace.forget(self, &completion);
            self.happen(completion)?;
            happened = true;
            pace.notice(self);
        }
        Ok(happened)
    }
}

impl Pace {
    /// Sets the completion step of all newly issued work.
    fn notice(&mut self, machine: &Machine<'_>) {
        let copied = |bytes: u32| LATENCY + u64::from(bytes) / BYTES;
        for load in machine.loads.iter().skip(self.loads.len()) {
            self.loads.push_back(self.now + copied(load.bytes()));
        }
        for completion in machine.completions() {
            match completion {
                Completion::Load(_) | Completion::Arrival(_) => {}
                Completion::Multiply { cta, group } => {
                    let busy = self.busy.entry(cta).or_default();
                    self.multiplies.entry((cta, group)).or_insert_with(|| {
                        *busy = self.now.max(*busy) + columns(machine, cta, group) / COLUMNS;
                        *busy
                    });
                }
                Completion::Store { warp, index } => {
                    let store = &machine.warps[warp].stores[index];
                    let due = self.now + copied(store.map.box_bytes());
                    self.stores.entry((warp, store.pc, store.lane, store.group)).or_insert(due);
                }
            }
        }
    }

    /// The step in which some work will complete.
    fn time(&self, machine: &Machine<'_>, completion: &Completion) -> u64 {
        let known = match *completion {
            Completion::Load(index) => self.loads.get(index),
            Completion::Arrival(_) => None,
            Completion::Multiply { cta, group } => self.multiplies.get(&(cta, group)),
            Completion::Store { warp, index } => {
                let store = &machine.warps[warp].stores[index];
                self.stores.get(&(warp, store.pc, store.lane, store.group))
            }
        };
        known.copied().unwrap_or(self.now)
    }

    /// The work that will complete first, with its step.
    fn due(&self, machine: &Machine<'_>) -> Option<(u64, Completion)> {
        let timed = machine.completions().map(|completion| (self.time(machine, &completion), completion));
        timed.min_by_key(|(due, _)| *due)
    }

    /// The number of steps until the next completion.
    fn next(&self, machine: &Machine<'_>) -> Option<u64> {
        self.due(machine).map(|(due, _)| due.saturating_sub(self.now))
    }

    fn forget(&mut self, machine: &Machine<'_>, completion: &Completion) {
        match *completion {
            Completion::Load(index) => {
                self.loads.remove(index);
            }
            Completion::Arrival(_) => {}
            Completion::Multiply { cta, group } => {
                self.multiplies.remove(&(cta, group));
            }
            // Other stores of the same group by the same statement, as from a loop, share the entry.
            Completion::Store { warp, index } => {
                let store = &machine.warps[warp].stores[index];
                let alike = machine.warps[warp].stores.iter().filter(|other| {
                    !other.done && (other.pc, other.lane, other.group) == (store.pc, store.lane, store.group)
                });
                if alike.count() == 1 {
                    self.stores.remove(&(warp, store.pc, store.lane, store.group));
                }
            }
        }
    }
}

/// The number of columns of the next multiply of a warpgroup.
fn columns(machine: &Machine<'_>, cta: usize, group: usize) -> u64 {
    let pc = machine.ctas[cta].warpgroups[group].next();
    if let Some(Inst::Wgmma { n, .. }) = pc.and_then(|pc| machine.program.ops[pc].action.inst()) {
        (*n).into()
    } else {
        0
    }
}
