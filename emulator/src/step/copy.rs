//! Copies that a thread issues and waits for itself: `cp.async`.
//!
//! The bytes are copied at once. No thread may access them until the issuing thread has waited for them, or
//! until the phase of the mbarrier on which the copies arrive has completed.

use ptx::inst::{Address, CopyAsync, MbarrierOrder, Operand};

use super::Flow;
use crate::clock::NEVER;
use crate::flight::{Arrival, ThreadCopy};
use crate::lanes::lanes;
use crate::machine::Machine;
use crate::meetings::Memory;
use crate::race::{By, Claim, Kind};
use crate::schedule::Schedule;
use crate::shared::reported;
use crate::trap::{Fault, InLane, Stop};

impl Machine<'_> {
    pub(super) fn copy_async(&mut self, warp: usize, copy: &CopyAsync) -> Result<Flow, Stop> {
        match copy {
            CopyAsync::Copy { bytes, past_l1: _, dst, src, size } => {
                self.thread_copies(warp, *bytes, *dst, *src, *size)?;
            }
            CopyAsync::Commit => {
                let state = &mut self.warps[warp];
                for lane in lanes(state.registers.active) {
                    state.copy_groups[lane] += 1;
                }
            }
            CopyAsync::Wait { pending } => self.copies_waited(warp, Some(*pending))?,
            CopyAsync::WaitAll => self.copies_waited(warp, None)?,
            CopyAsync::Arrive { barrier, counted } => self.copies_arrive(warp, *barrier, *counted)?,
        }
        Ok(Flow::Next)
    }

    fn thread_copies(
        &mut self,
        warp: usize,
        bytes: u32,
        dst: Operand,
        src: Address,
        size: Option<Operand>,
    ) -> Result<(), Stop> {
        let addresses = self.addresses(warp, ptx::Space::Global, src)?;
        let registers = &mut self.warps[warp].registers;
        let targets = registers.read(dst)?;
        let sizes = size.map(|size| registers.read(size)).transpose()?;
        let active = registers.active;
        super::memory::aligned_lanes(&addresses, bytes, active)?;
        let cta = self.warps[warp].cta;
        for lane in lanes(active) {
            let mut copy = || -> Result<ThreadCopy, Fault> {
                let read = sizes.map_or(bytes, |sizes| sizes[lane]);
                if read > bytes {
                    return Err(Fault::CopySize { read, bytes });
                }
                let mut buffer = [0u8; 16];
                if read > 0 {
                    let source = (addresses[lane], read.into());
                    self.note_in((warp, lane), self.warps[warp].pc, source, Kind::READ, NEVER)?;
                    self.read_global(addresses[lane], &mut buffer[..read as usize])?;
                    self.warn_of_unwritten(cta, (warp, self.warps[warp].pc, Some(lane)));
                }
                let offset = self.ctas[cta].own(targets[lane])?;
                let (by, memory) = ((warp, self.warps[warp].pc, lane), Memory::Shared(cta));
                self.work_begins(by, (memory, offset), [(offset.into(), bytes.into())], true);
                self.ctas[cta].shared.take_copy(offset, &buffer[..bytes as usize])?;
                let (view, group) = (self.warps[warp].views.of(lane), self.warps[warp].group_in(cta));
                self.ctas[cta].shared.may_write((offset, bytes), view, group)?;
                self.note_shared((warp, By::lane(lane)), (cta, offset, bytes), Kind::WRITE)?;
                let (group, pc) = (self.warps[warp].copy_groups[lane], self.warps[warp].pc);
                Ok(ThreadCopy { lane, pc, group, offset, bytes, source: (addresses[lane], read.into()) })
            };
            let copy = copy().lane(lane)?;
            self.warps[warp].copies.push(copy);
        }
        Ok(())
    }

    /// Ends the ownership of the bytes that the active lanes have copied, except those of the newest
    /// `pending` groups. `None`: of all groups.
    fn copies_waited(&mut self, warp: usize, pending: Option<u32>) -> Result<(), Stop> {
        let state = &mut self.warps[warp];
        let (active, groups) = (state.registers.active, state.copy_groups);
        let covered = |copy: &ThreadCopy| {
            let old = pending.is_none_or(|pending| copy.group + u64::from(pending) < groups[copy.lane]);
            active >> copy.lane & 1 == 1 && old
        };
        let (done, going): (Vec<_>, Vec<_>) =
            core::mem::take(&mut state.copies).into_iter().partition(covered);
        state.copies = going;
        for copy in done {
            let cta = self.warps[warp].cta;
            self.ctas[cta].shared.release_copy(copy.offset, copy.bytes);
            self.work_ends((warp, copy.pc, copy.lane), (Memory::Shared(cta), copy.offset));
            let by = By::lane(copy.lane);
            self.copy_settles(warp, copy, (self.number(warp), by, self.warps[warp].views.count));
            // For the proxy fence, the store happens here: a fence must come after this wait.
            let range = (cta, copy.offset, copy.bytes);
            self.note_shared((warp, By::lane(copy.lane)), range, Kind::WRITE).lane(copy.lane)?;
        }
        Ok(())
    }

    /// Sets the end of a copy's read.
    fn copy_settles(&self, warp: usize, copy: ThreadCopy, to: Claim) {
        let (pc, by) = (u32::try_from(copy.pc).unwrap_or(u32::MAX), By::lane(copy.lane));
        self.launch.common.races.settle(copy.source, pc, (self.number(warp), by, NEVER), to);
    }

    fn copies_arrive(&mut self, warp: usize, barrier: Operand, counted: bool) -> Result<(), Stop> {
        let state = &mut self.warps[warp];
        let (barriers, active, cta, pc) =
            (state.registers.read(barrier)?, state.registers.active, state.cta, state.pc);
        for lane in lanes(active) {
            let offset = self.ctas[cta].own(barriers[lane]).lane(lane)?;
            self.uses(self.use_now(warp, 1 << lane), cta, offset).lane(lane)?;
            let barrier = self.ctas[cta].shared.barrier(offset).lane(lane)?;
            if !counted {
                barrier.expect_one_more();
            }
            let state = &mut self.warps[warp];
            let (copies, others): (Vec<ThreadCopy>, _) =
                core::mem::take(&mut state.copies).into_iter().partition(|copy| copy.lane == lane);
            state.copies = others;
            let number = self.number(warp);
            let until = match self.phase_of(cta, offset) {
                Some((phase, count)) => (phase, By::Copy { warp: number, lane: lane as u8 }, count),
                None => (number, By::lane(lane), self.warps[warp].views.count),
            };
            copies.iter().for_each(|copy| self.copy_settles(warp, *copy, until));
            let published = self.published((warp, lane), MbarrierOrder::CTA);
            let arrival = Arrival { by: (warp, pc, lane), cta, barrier: offset, copies, published };
            if self.options.schedule == Schedule::Earliest {
                self.copies_done(arrival).lane(lane)?;
            } else {
                self.arrivals.push_back(arrival);
            }
        }
        self.warps[warp].views.count += 1;
        Ok(())
    }

    /// Called when the copies of a thread are done: the arrival takes effect.
    pub(crate) fn copies_done(&mut self, arrival: Arrival) -> Result<(), Fault> {
        let Arrival { by: (warp, _, lane), cta, barrier: offset, copies, published } = arrival;
        self.arrives_at(warp, 1 << lane, (cta, offset));
        for copy in &copies {
            self.work_arrives((warp, copy.pc, copy.lane), (cta, copy.offset), (cta, offset));
        }
        let shared = &mut self.ctas[cta].shared;
        let barrier = shared.barrier(offset)?;
        published.iter().for_each(|published| barrier.gather(published, false));
        barrier.copied.extend(copies.into_iter().map(|copy| (copy.offset, copy.bytes)));
        if barrier.arrive(reported(offset), 1)? {
            shared.phase_completed(offset);
        }
        Ok(())
    }
}
