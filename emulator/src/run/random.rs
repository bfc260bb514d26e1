//! Random schedules: which warp takes the next turn, and which asynchronous work completes.
//!
//! The seed also chooses a temper. With odd seeds warps have priorities. With every fourth seed a warp that polls goes on
//! to poll for long, so that a program which gives up after some polls does. With every eighth one warp
//! sleeps in half of the clusters: it and its copies go on only when nothing else can.

use std::collections::HashMap;

use super::rounds::{BETWEEN, IDLE_ROUNDS, LOOKS, Outcome};
use super::turn::Turn;
use crate::machine::{Completion, Machine};
use crate::trap::Trap;

/// Average number of warp turns after which a cluster yields to others.
const TURNS_OF_CLUSTER: usize = 64;
/// The same number after a store, an atomic or a reduction that other CTAs may wait for. It is small, so that
/// the other CTAs sometimes run before this CTA does anything else.
const SIGNALS_OF_CLUSTER: usize = 2;
/// How often a warp is let poll for long at one place.
const EPISODES: u8 = 2;
/// Number of turns without a poll after which a warp no longer counts as polling.
const OTHERS: u32 = 4;
/// Number of turns for which a cluster lets others run before its sleeping warp wakes.
const SLEEP: u32 = 256;
/// Number of polls of a cluster for which nothing has changed.
const BRIEF: u32 = 16;
/// How often it falls asleep.
const NAPS: u32 = 3;
/// Number of polls of the other warps before it wakes for a turn.
const DREAM: u32 = 32;

/// How a seed treats the warps of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Temper {
    /// The priorities of the warps; the lowest value runs first. Empty before the first turn.
    ranks: Vec<u64>,
    /// The warp that polls for long.
    stubborn: Option<Stubborn>,
    /// How often a warp has polled for long, by warp and operation.
    episodes: HashMap<(usize, usize), u8>,
    /// The warp that sleeps.
    sleeper: Option<usize>,
    /// How often it has fallen asleep.
    naps: u32,
    /// For how many turns nothing but the sleeping warp could go on.
    slept: u32,
}

/// A warp that polls for long.
#[derive(Clone, Copy, Debug)]
struct Stubborn {
    warp: usize,
    /// How many more polls it has.
    left: u32,
    /// Number of turns without one.
    others: u32,
}

impl Machine<'_> {
    /// Runs under [`Schedule::Random`](crate::Schedule::Random).
    pub(super) fn run_random(&mut self, yields: bool) -> Result<Outcome, Box<Trap>> {
        let mut temper = core::mem::take(&mut self.temper);
        let outcome = self.run_with_temper(&mut temper, yields);
        self.temper = temper;
        outcome
    }

    fn run_with_temper(&mut self, temper: &mut Temper, yields: bool) -> Result<Outcome, Box<Trap>> {
        if temper.ranks.is_empty() {
            temper.ranks = (0..self.warps.len()).map(|_| self.random.next()).collect();
            // In some clusters no warp sleeps, so that they overtake the others.
            if self.options.seed % 8 == 4 && self.random.below(2) == 0 {
                temper.sleeper = Some(self.random.below(self.warps.len()));
                // It sleeps from the beginning, or falls asleep later.
                temper.slept = if self.random.below(2) == 0 { 0 } else { SLEEP };
            }
        }
        let ranked = self.options.seed % 2 == 1;
        while self.warps.iter().any(|warp| !warp.exited) {
            if self.options.is_stopped() {
                return Ok(Outcome::Stopped);
            }
            let mut ready = Vec::with_capacity(self.warps.len());
            for warp in 0..self.warps.len() {
                if self.ready(warp) {
                    ready.push(warp);
                }
            }
            let asleep = self.asleep(temper, &mut ready);
            if ready.is_empty() {
                // Nobody polls any more.
                temper.stubborn = None;
            }
            let (mut turn, mut awake) = (Turn::Idle, false);
            if !ready.is_empty() {
                let warp = self.next_warp(temper, &ready, ranked);
                let quantum = 1 + self.random.below(64) as u32;
                self.signalled = false;
                let before = self.warps[warp].fruitless;
                turn = self.turn(warp, quantum)?;
                // A warp that only polls must not keep others from writing the word that it polls.
                if turn == Turn::Idle || self.random.below(64) == 0 {
                    temper.ranks[warp] = self.random.next();
                }
                self.polls(temper, warp, (turn, before));
                awake = temper.sleeper == Some(warp);
            }
            let mut happened = false;
            if temper.stubborn.is_none() && (ready.is_empty() || self.random.below(2) == 0) {
                happened = self.completes(asleep)?;
            }
            if temper.stubborn.is_some() {
                (self.idle, self.fruitless) = (0, 0);
                continue;
            }
            // It falls asleep again when others go on, and sometimes after what others may wait for.
            if turn == Turn::Progress && !awake || awake && self.signalled && self.random.below(2) == 0 {
                temper.slept = if temper.naps < NAPS { 0 } else { SLEEP };
                temper.naps += u32::from(temper.naps < NAPS);
            }
            self.idle = if turn != Turn::Idle || happened { 0 } else { self.idle + 1 };
            if turn == Turn::Progress || happened {
                self.goes_on();
            }
            if self.idle > 0 && self.idle.is_multiple_of(LOOKS) {
                let _some = self.is_stuck();
            }
            if ready.is_empty() && !happened && asleep.is_some() {
                // The others have done all that they can without it.
                temper.slept += 1;
                if yields && temper.slept < SLEEP {
                    return Ok(Outcome::Yields);
                }
                temper.slept = SLEEP;
                continue;
            }
            if ((ready.is_empty() && !happened) || self.idle > IDLE_ROUNDS) && !self.go_ahead() {
                return Err(self.hang());
            }
            let looks = if self.brief { BRIEF } else { LOOKS };
            if self.fruitless >= looks && !self.is_stuck() {
                return Ok(Outcome::Waits);
            }
            if self.vain >= BETWEEN && temper.stubborn.is_none() {
                return Ok(Outcome::Yields);
            }
            let turns = if self.signalled { SIGNALS_OF_CLUSTER } else { TURNS_OF_CLUSTER };
            if yields && self.random.below(turns) == 0 {
                return Ok(Outcome::Yields);
            }
        }
        Ok(Outcome::Done)
    }

    /// Removes the sleeping warp from those that are ready, unless it has slept for long enough. Returns the warp.
    fn asleep(&mut self, temper: &mut Temper, ready: &mut Vec<usize>) -> Option<usize> {
        let sleeper = temper.sleeper?;
        if temper.slept >= SLEEP || self.idle > DREAM || self.fruitless > DREAM {
            // It wakes for one turn, or for as long as nothing else goes on.
            return None;
        }
        let sleeps = !self.warps[sleeper].exited;
        ready.retain(|&warp| warp != sleeper);
        sleeps.then_some(sleeper)
    }

    /// The warp that takes the next turn.
    fn next_warp(&mut self, temper: &Temper, ready: &[usize], ranked: bool) -> usize {
        if let Some(Stubborn { warp, .. }) = temper.stubborn.filter(|one| ready.contains(&one.warp)) {
            return warp;
        }
        let any = ready[self.random.below(ready.len())];
        let first = ready.iter().copied().min_by_key(|&warp| temper.ranks[warp]).unwrap_or(any);
        if ranked && self.random.below(32) > 0 { first } else { any }
    }

    /// Lets a warp that has polled in vain poll on, with every fourth seed.
    fn polls(&mut self, temper: &mut Temper, warp: usize, (turn, before): (Turn, u32)) {
        if self.options.seed % 4 != 2 {
            return;
        }
        let state = &self.warps[warp];
        // Polls of words since the turn began, or one of an mbarrier.
        let words = state.fruitless.saturating_sub(before);
        let polls = turn == Turn::Idle && state.may_run() || words > 0;
        match &mut temper.stubborn {
            Some(one) if one.warp == warp => {
                one.left = one.left.saturating_sub(if polls { words.max(1) } else { 0 });
                one.others = if polls { 0 } else { one.others + 1 };
                if one.left == 0 || one.others > OTHERS || turn == Turn::Progress {
                    temper.stubborn = None;
                }
            }
            Some(_) => temper.stubborn = None,
            None if polls => {
                let place = state.look.map_or(state.pc, |(pc, _)| pc);
                let episodes = temper.episodes.entry((warp, place)).or_default();
                if *episodes < EPISODES {
                    *episodes += 1;
                    let left = 1 << (5 + self.random.below(6));
                    temper.stubborn = Some(Stubborn { warp, left, others: 0 });
                }
            }
            None => {}
        }
    }

    /// Completes some asynchronous work, but none of a sleeping warp if there is other. Returns whether there was any.
    fn completes(&mut self, asleep: Option<usize>) -> Result<bool, Box<Trap>> {
        let mut completions: Vec<Completion> = self.completions().collect();
        if let Some(sleeper) = asleep {
            completions.retain(|completion| match *completion {
                Completion::Load(index) => self.loads[index].by.0 != sleeper,
                Completion::Arrival(index) => self.arrivals[index].by.0 != sleeper,
                Completion::Store { warp, .. } => warp != sleeper,
                Completion::Multiply { .. } => true,
            });
        }
        if completions.is_empty() {
            return Ok(false);
        }
        let index = self.random.below(completions.len());
        self.happen(completions.swap_remove(index))?;
        Ok(true)
    }
}
