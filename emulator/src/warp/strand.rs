//! Independent thread scheduling: lanes of a warp that are at different places in the program.
//!
//! Lanes that take different ways at a branch part. Those that are first in the program's order ([`crate::graph`]) run until they
//! have to wait. From then on the others are a strand with its own program counter. The strands run alternately, so one branch may
//! wait for another. Where ways meet, lanes wait for those that may still come, and join them.
//!
//! Every thread makes progress (CUDA programming guide, "Independent Thread Scheduling"). So if nothing else
//! in the cluster can run, lanes go ahead alone that wait for others at such a place: behind an `if`, or behind a loop
//! in which others stay. Such a strand waits for the rest of its warp before an instruction that needs the
//! whole warp.

use crate::graph::{Place, Rounds};
use crate::lanes::ALL;
use crate::program::{Action, Edge};
use crate::trap::{Fault, Stop};
use crate::warp::{Blocked, Warp};

/// Lanes with a program counter of their own, while other lanes of their warp are the current ones.
#[derive(Clone, Debug)]
pub(crate) struct Strand {
    pub(crate) pc: usize,
    rounds: Rounds,
    pub(crate) active: u32,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) polled: Option<(u32, u32)>,
    look: Option<(usize, u64)>,
    /// Whether it runs only when the lanes that it parted from have to wait.
    pending: bool,
}

impl<'p> Warp<'p> {
    fn place_of<'a>(&self, pc: usize, rounds: &'a Rounds) -> Place<'a> {
        Place { block: self.program().ops[pc].block, pc, rounds }
    }

    /// The place of a strand; of the current lanes for `None`.
    fn place(&self, index: Option<usize>) -> Place<'_> {
        match index {
            Some(index) => self.place_of(self.strands[index].pc, &self.strands[index].rounds),
            None => self.place_of(self.pc, &self.rounds),
        }
    }

    fn everyone(&self) -> impl Iterator<Item = Option<usize>> + use<> {
        core::iter::once(None).chain((0..self.strands.len()).map(Some))
    }

    /// Whether a strand waits for others of its warp that may still come to where it is; the current lanes for `None`.
    pub(crate) fn waits_for_others(&self, index: Option<usize>) -> bool {
        let (pc, blocked) = match index {
            Some(index) => (self.strands[index].pc, &self.strands[index].blocked),
            None => (self.pc, &self.blocked),
        };
        if self.strands.is_empty()
            || blocked.is_some()
            || !matches!(self.program().ops[pc].action, Action::Meet)
        {
            return false;
        }
        let (graph, here) = (&self.program().graph, self.place(index));
        // Lanes that are blocked have the place behind their wait, and come to it later.
        let comes = |other: Option<usize>| {
            let there = self.place(other);
            let blocked = other.map_or(&self.blocked, |other| &self.strands[other].blocked).is_some();
            graph.may_come(there, here) || blocked && graph.order(there, here).is_eq()
        };
        self.everyone().any(|other| other != index && comes(other))
    }

    /// Whether a strand only waits for other strands of its warp; the current lanes for `None`.
    pub(crate) fn waits_for_own(&self, index: Option<usize>) -> bool {
        let blocked = match index {
            Some(index) => &self.strands[index].blocked,
            None => &self.blocked,
        };
        matches!(blocked, Some(Blocked::Converge | Blocked::Meet)) || self.waits_for_others(index)
    }

    /// Makes another strand the current one.
    pub(crate) fn swap(&mut self, index: usize) {
        let Some(strand) = self.strands.get_mut(index) else { return };
        core::mem::swap(&mut self.pc, &mut strand.pc);
        core::mem::swap(&mut self.rounds, &mut strand.rounds);
        core::mem::swap(&mut self.registers.active, &mut strand.active);
        core::mem::swap(&mut self.blocked, &mut strand.blocked);
        core::mem::swap(&mut self.polled, &mut strand.polled);
        core::mem::swap(&mut self.look, &mut strand.look);
        strand.pending = false;
    }

    /// Whether some of its lanes are not blocked.
    pub(crate) fn may_run(&self) -> bool {
        let free = |&index: &usize| self.strands[index].blocked.is_none();
        self.blocked.is_none() || self.free_strands().iter().any(free)
    }

    /// The indices of strands that do not wait for other lanes of the warp.
    pub(crate) fn free_strands(&self) -> Vec<usize> {
        let free = |&index: &usize| !self.strands[index].pending && !self.waits_for_others(Some(index));
        (0..self.strands.len()).filter(free).collect()
    }

    /// Of strands that meet a condition, the first in the order.
    fn first(&self, meets: impl Fn(usize) -> bool) -> Option<usize> {
        let graph = &self.program().graph;
        let all = (0..self.strands.len()).filter(|&index| meets(index));
        all.min_by(|&a, &b| graph.order(self.place(Some(a)), self.place(Some(b))))
    }

    /// The lanes that are to run when the current ones have to wait, and that wait for no others.
    fn next_pending(&self) -> Option<usize> {
        self.first(|index| self.strands[index].pending && !self.waits_for_others(Some(index)))
    }

    /// Lets lanes run beside the current ones that were to run after them. Returns the strand, if there is one.
    pub(crate) fn fork(&mut self) -> Option<usize> {
        let index = self.next_pending()?;
        self.strands[index].pending = false;
        Some(index)
    }

    /// Lanes take different ways: `taken` go where the branch leads. Those that are first in the order are the current ones
    /// afterwards.
    pub(crate) fn part(&mut self, taken: u32, edge: Edge) {
        let (next, mut rounds) = (self.pc + 1, self.rounds.clone());
        let graph = &self.program().graph;
        graph.go(&mut rounds, edge.from, edge.to);
        let there = Place { block: edge.to, pc: edge.target, rounds: &rounds };
        let taken_first = graph.order(there, self.place_of(next, &self.rounds)).is_lt();
        let others = self.registers.active & !taken;
        match (self.ends(next), self.ends(edge.target)) {
            (true, false) => {
                self.retire(others);
                (self.pc, self.rounds, self.registers.active) = (edge.target, rounds, taken);
                return;
            }
            (false, true) => {
                self.retire(taken);
                (self.pc, self.registers.active) = (next, others);
                return;
            }
            (true, true) | (false, false) => {}
        }
        if taken_first {
            let here = core::mem::replace(&mut self.rounds, rounds);
            self.leave(next, here, others);
            (self.pc, self.registers.active) = (edge.target, taken);
        } else {
            self.leave(edge.target, rounds, taken);
            (self.pc, self.registers.active) = (next, others);
        }
    }

    /// Leaves lanes at a place, where others may be already.
    fn leave(&mut self, pc: usize, rounds: Rounds, active: u32) {
        let graph = &self.program().graph;
        let here = self.place_of(pc, &rounds);
        let same = |strand: &Strand| {
            strand.blocked.is_none() && graph.order(self.place_of(strand.pc, &strand.rounds), here).is_eq()
        };
        match self.strands.iter().position(same) {
            Some(index) => self.strands[index].active |= active,
            None => self.strands.push(Strand {
                pc,
                rounds,
                active,
                blocked: None,
                polled: None,
                look: None,
                pending: true,
            }),
        }
    }

    /// Takes in the strands that are where the current lanes are, and of which `meets` is true.
    fn take_in(&mut self, meets: impl Fn(&Strand) -> bool) {
        let mut index = 0;
        while index < self.strands.len() {
            let graph = &self.program().graph;
            let there = graph.order(self.place(Some(index)), self.place(None)).is_eq();
            if there && meets(&self.strands[index]) {
                self.registers.active |= self.strands.swap_remove(index).active;
            } else {
                index += 1;
            }
        }
    }

    /// Called where ways meet. Joins the lanes that wait there. Returns `false` if others may still come; then lanes that do not
    /// wait are the current ones afterwards, if there are any.
    pub(crate) fn met(&mut self) -> bool {
        if self.strands.is_empty() {
            return true;
        }
        self.take_in(|strand| strand.blocked.is_none());
        if !self.waits_for_others(None) {
            return true;
        }
        if let Some(index) = self.next_pending() {
            self.swap(index);
        }
        false
    }

    /// Whether a fault of an instruction that needs the whole warp may disappear later: lanes have gone
    /// ahead, and now wait for the others.
    pub(crate) fn may_converge(&self, stop: &Stop) -> bool {
        self.ahead && matches!(*stop.fault, Fault::Divergence { .. } | Fault::Members { .. })
    }

    /// Called before an instruction of the whole warp. Joins the strands that wait for it at the same place.
    pub(crate) fn converge(&mut self) {
        self.take_in(|strand| matches!(strand.blocked, Some(Blocked::Converge)));
    }

    /// Called at a `bar.warp.sync` of some lanes. If all others wait at one, wherever that is, lets them
    /// continue, joins those that are at the same place, and returns `true`.
    pub(crate) fn meet(&mut self) -> bool {
        let waits = |strand: &Strand| matches!(strand.blocked, Some(Blocked::Meet));
        let here = self.strands.iter().filter(|strand| waits(strand));
        if here.fold(self.registers.active, |all, strand| all | strand.active) != self.registers.alive {
            return false;
        }
        self.strands.iter_mut().for_each(|strand| strand.blocked = None);
        // Those that wait are behind the instruction.
        self.pc += 1;
        self.take_in(|_| true);
        self.pc -= 1;
        true
    }

    /// Lets lanes go ahead alone that wait for others of the warp: the first ones in the order. Returns whether there are any.
    pub(crate) fn go_ahead(&mut self) -> bool {
        let waiting = self.first(|index| self.waits_for_others(Some(index)));
        let Some(index) = waiting else { return false };
        let strand = &mut self.strands[index];
        (strand.pc, strand.pending) = (strand.pc + 1, false);
        self.ahead = true;
        true
    }

    /// Whether an operation is a stated end.
    fn ends(&self, pc: usize) -> bool {
        matches!(self.program().ops[pc].action, Action::Exit { stated: true })
    }

    /// Lanes have come to a stated end. Those that wait for them wait no longer. Lanes that reach the end of the program while others
    /// wait for them still count: nothing says that they are not to come.
    fn retire(&mut self, lanes: u32) {
        self.registers.alive &= !lanes;
        self.views.end(lanes);
    }

    /// Ends the current lanes. Returns whether there are others; those that are first in the order are then the current ones.
    pub(crate) fn end_lanes(&mut self, stated: bool) -> bool {
        if stated {
            self.retire(self.registers.active);
        }
        let Some(first) = self.first(|_| true) else { return false };
        self.swap(first);
        self.strands.swap_remove(first);
        self.resume();
        true
    }

    /// Lets lanes continue that waited for lanes which have ended.
    fn resume(&mut self) {
        let waiting = |blocked: &Option<Blocked>| matches!(blocked, Some(Blocked::Meet));
        if waiting(&self.blocked) {
            self.pc -= 1;
            if self.meet() {
                self.blocked = None;
                self.views.meet(ALL);
            }
            self.pc += 1;
        } else if matches!(self.blocked, Some(Blocked::Converge)) && self.strands.is_empty() {
            self.blocked = None;
        }
    }
}
