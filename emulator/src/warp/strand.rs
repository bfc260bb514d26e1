//! Independent thread scheduling: lanes of a warp that are at different places in the program.
//!
//! The branches of an `if` run one after the other until one of them has to wait. From then on each branch is
//! a strand with its own program counter. The strands run alternately, so one branch may wait for another. At
//! the end of the block they join again.
//!
//! Every thread makes progress (CUDA programming guide, "Independent Thread Scheduling"). So if nothing else
//! in the cluster can run, lanes go ahead alone that wait at the end of a block, or that have left a loop
//! while others stay in it. Such a strand waits for the rest of its warp before an instruction that needs the
//! whole warp.

use crate::lanes::ALL;
use crate::program::{Action, Program};
use crate::trap::{Fault, Stop};
use crate::warp::{Blocked, Frame, Warp};

/// Lanes with a program counter of their own, while other lanes of their warp are the current ones.
#[derive(Clone, Debug)]
pub(crate) struct Strand {
    pub(crate) pc: usize,
    frames: Vec<Frame>,
    active: u32,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) polled: Option<(u32, u32)>,
    look: Option<(usize, u64)>,
    /// The block at the end of which it waits for other lanes of its warp.
    joins: Option<u64>,
}

impl Strand {
    /// Whether it only waits for other strands of its warp.
    pub(crate) fn waits_for_own(&self) -> bool {
        self.joins.is_some() || matches!(self.blocked, Some(Blocked::Converge | Blocked::Meet))
    }

    fn is_in(&self, id: u64) -> bool {
        self.frames.iter().any(|frame| frame.id() == id)
    }
}

impl Warp<'_> {
    /// Makes another strand the current one.
    pub(crate) fn swap(&mut self, index: usize) {
        let Some(strand) = self.strands.get_mut(index) else { return };
        core::mem::swap(&mut self.pc, &mut strand.pc);
        core::mem::swap(&mut self.frames, &mut strand.frames);
        core::mem::swap(&mut self.registers.active, &mut strand.active);
        core::mem::swap(&mut self.blocked, &mut strand.blocked);
        core::mem::swap(&mut self.polled, &mut strand.polled);
        core::mem::swap(&mut self.look, &mut strand.look);
        core::mem::swap(&mut self.joins, &mut strand.joins);
    }

    /// Whether some of its lanes are not blocked.
    pub(crate) fn may_run(&self) -> bool {
        let free = |strand: &Strand| strand.joins.is_none() && strand.blocked.is_none();
        self.blocked.is_none() || self.strands.iter().any(free)
    }

    /// The indices of strands that do not wait for other lanes of the warp.
    pub(crate) fn free_strands(&self) -> Vec<usize> {
        (0..self.strands.len()).filter(|&index| self.strands[index].joins.is_none()).collect()
    }

    /// Makes a strand of the lanes that still have to run the second branch of the innermost such `if`.
    /// Returns whether there are any.
    pub(crate) fn fork(&mut self) -> bool {
        let pending = |frame: &Frame| matches!(frame, Frame::If { other, .. } if *other != 0);
        let Some(at) = self.frames.iter().rposition(pending) else { return false };
        let Frame::If { entered, other, otherwise, .. } = self.frames[at] else { return false };
        if entered & !other == 0 {
            // No lane would stay: all of them take the second branch.
            return false;
        }
        let frames = self.cut(at + 1, other);
        if let Some(Frame::If { other, .. }) = self.frames.get_mut(at) {
            *other = 0;
        }
        self.add(frames, otherwise, other);
        if let Some(Frame::If { other: own, .. }) =
            self.strands.last_mut().and_then(|strand| strand.frames.last_mut())
        {
            *own = other;
        }
        true
    }

    /// A copy of the outermost `count` blocks for some lanes. The current strand no longer includes these
    /// lanes.
    fn cut(&mut self, count: usize, lanes: u32) -> Vec<Frame> {
        let mine = self.frames.iter_mut().take(count);
        mine.map(|frame| {
            *frame.entered() &= !lanes;
            let mut theirs = *frame;
            *theirs.entered() = lanes;
            if let Frame::If { other, .. } = &mut theirs {
                *other = 0;
            }
            theirs
        })
        .collect()
    }

    fn add(&mut self, frames: Vec<Frame>, pc: usize, active: u32) {
        let strand = Strand { pc, frames, active, blocked: None, polled: None, look: None, joins: None };
        self.strands.push(strand);
    }

    /// Called at the end of the innermost block. Joins the strands that wait there and returns `true`, or
    /// returns `false` if other strands are still in the block.
    pub(crate) fn joined(&mut self) -> bool {
        let Some(id) = self.frames.last().map(Frame::id) else { return true };
        self.joins = None;
        if self.strands.is_empty() {
            return true;
        }
        if self.strands.iter().any(|strand| strand.joins != Some(id) && strand.is_in(id)) {
            self.joins = Some(id);
            return false;
        }
        let mut index = 0;
        while index < self.strands.len() {
            if self.strands[index].joins == Some(id) {
                let strand = self.strands.swap_remove(index);
                self.take_in(&strand.frames);
            } else {
                index += 1;
            }
        }
        true
    }

    fn take_in(&mut self, frames: &[Frame]) {
        for (mine, theirs) in self.frames.iter_mut().zip(frames) {
            *mine.entered() |= *theirs.clone().entered();
            if let (Frame::If { other, .. }, Frame::If { other: more, .. }) = (mine, theirs) {
                *other |= more;
            }
        }
    }

    /// Whether a fault of an instruction that needs the whole warp may disappear later: lanes have gone
    /// ahead, and now wait for the others.
    pub(crate) fn may_converge(&self, stop: &Stop) -> bool {
        self.ahead && matches!(*stop.fault, Fault::Divergence { .. } | Fault::Members { .. })
    }

    /// Called before an instruction of the whole warp. Joins the strands that wait for it at the same place.
    pub(crate) fn converge(&mut self) {
        let ids: Vec<u64> = self.frames.iter().map(Frame::id).collect();
        let mut index = 0;
        while index < self.strands.len() {
            let strand = &self.strands[index];
            let there = strand.pc == self.pc && matches!(strand.blocked, Some(Blocked::Converge));
            if there && strand.frames.iter().map(Frame::id).eq(ids.iter().copied()) {
                let strand = self.strands.swap_remove(index);
                self.registers.active |= strand.active;
                self.take_in(&strand.frames);
            } else {
                index += 1;
            }
        }
    }

    /// Called at a `bar.warp.sync` of some lanes. If all others wait at one, wherever that is, lets them
    /// continue, joins those that are at the same place, and returns `true`.
    pub(crate) fn meet(&mut self) -> bool {
        let waits = |strand: &Strand| matches!(strand.blocked, Some(Blocked::Meet));
        let here = self.strands.iter().filter(|strand| waits(strand));
        if here.fold(self.registers.active, |all, strand| all | strand.active) != ALL {
            return false;
        }
        let ids: Vec<u64> = self.frames.iter().map(Frame::id).collect();
        for mut strand in core::mem::take(&mut self.strands) {
            strand.blocked = None;
            let there = strand.pc == self.pc + 1;
            if there && strand.frames.iter().map(Frame::id).eq(ids.iter().copied()) {
                self.registers.active |= strand.active;
                self.take_in(&strand.frames);
            } else {
                self.strands.push(strand);
            }
        }
        true
    }

    /// Lets lanes that wait for others of the warp at the end of a block go ahead alone. Returns whether
    /// there are any.
    pub(crate) fn go_ahead(&mut self, program: &Program) -> bool {
        let found = self.release_joined(program) || self.release_dormant(program);
        self.ahead |= found;
        found
    }

    fn release_joined(&mut self, program: &Program) -> bool {
        let Some(index) = self.strands.iter().position(|strand| strand.joins.is_some()) else { return false };
        let strand = &mut self.strands[index];
        strand.joins = None;
        let entered = strand.frames.pop().map_or(0, |mut frame| *frame.entered());
        strand.active = entered;
        strand.pc = if let (0, Action::EndIf { exit }) = (entered, &program.ops[strand.pc].action) {
            *exit
        } else {
            strand.pc + 1
        };
        true
    }

    /// The same for lanes that have left a loop, or that have finished their branch while the other branch
    /// runs.
    fn release_dormant(&mut self, program: &Program) -> bool {
        let active = self.registers.active;
        for at in (0..self.frames.len()).rev() {
            let alive = self.frames.get(at + 1).map_or(active, |frame| *frame.clone().entered());
            if alive == 0 {
                // All lanes are at the end of the block and leave it together.
                continue;
            }
            let (waiting, end) = match self.frames[at] {
                Frame::Loop { entered, start, .. } => {
                    let closes =
                        |action: &Action| matches!(action, Action::EndLoop { start: of } if *of == start);
                    let mut ends = (start..program.ops.len()).filter(|&pc| closes(&program.ops[pc].action));
                    (entered & !alive, ends.next())
                }
                Frame::If { entered, other, otherwise, .. } => {
                    let end = if let Action::Else { end } = program.ops[otherwise].action {
                        Some(end)
                    } else {
                        None
                    };
                    (entered & !alive & !other, end)
                }
            };
            if let (true, Some(end)) = (waiting != 0, end) {
                let frames = self.cut(at, waiting);
                *self.frames[at].entered() &= !waiting;
                self.add(frames, end + 1, waiting);
                return true;
            }
        }
        false
    }
}
