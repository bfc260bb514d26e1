//! What warps do with mbarriers: arrivals, byte counts and waits, of own barriers and of other CTAs'.
//!
//! Source: PTX ISA "mbarrier.arrive" and its kin: an arrival is `.release.cta` and a wait `.acquire.cta` where nothing else
//! is written, so that an arrival at another CTA's barrier says that its thread has come so far, but publishes none of its
//! writes.

use ptx::Space;
use ptx::inst::{MbarrierInst, MbarrierOrder, Operand, Reg};

use super::Flow;
use super::barrier::alike;
use crate::machine::{Arrived, Machine};
use crate::mbarrier::{Mbarrier, Published, pending};
use crate::shared::reported;
use crate::trap::{Fault, Stop};
use crate::warp::{Blocked, Lanes, lanes};

/// What is done to a barrier: gets it, its place for reports and the lane's number; says whether its phase completed.
type Act<'a> = &'a mut dyn FnMut(&mut Mbarrier, u32, u32) -> Result<bool, Fault>;

/// A barrier's address and space, and the number that goes with it.
type Place = (Operand, Space, Operand);

impl Machine<'_> {
    pub(super) fn mbarrier_arrive(
        &mut self,
        warp: usize,
        place: Place,
        order: MbarrierOrder,
    ) -> Result<Flow, Stop> {
        self.at_barriers(warp, place, Some(order), &mut |barrier, at, count| barrier.arrive(at, count))?;
        Ok(Flow::Next)
    }

    /// Announces bytes, and arrives where there is an order.
    pub(super) fn mbarrier_expect(
        &mut self,
        warp: usize,
        place: Place,
        arrive: Option<MbarrierOrder>,
    ) -> Result<Flow, Stop> {
        self.at_barriers(warp, place, arrive, &mut |barrier, at, bytes| {
            barrier.expect(at, bytes)?;
            if arrive.is_some() { barrier.arrive(at, 1) } else { Ok(false) }
        })?;
        Ok(Flow::Next)
    }

    pub(super) fn mbarrier(&mut self, warp: usize, inst: &MbarrierInst) -> Result<Flow, Stop> {
        let order = inst.order();
        match inst {
            MbarrierInst::Arrive { dst, barrier, count, order: _ } => {
                let arrive = |barrier: &mut Mbarrier, at, count| barrier.arrive(at, count);
                self.arrive_with_state(warp, *dst, (*barrier, *count), order, arrive)?;
            }
            MbarrierInst::ArriveExpect { dst, barrier, bytes, order: _ } => {
                let arrive = |barrier: &mut Mbarrier, at, bytes| {
                    barrier.expect(at, bytes)?;
                    barrier.arrive(at, 1)
                };
                self.arrive_with_state(warp, *dst, (*barrier, *bytes), order, arrive)?;
            }
            MbarrierInst::ArriveNoComplete { dst, barrier, count, drop } => {
                let arrive = |barrier: &mut Mbarrier, at, count| barrier.arrive_only(at, count, *drop);
                self.arrive_with_state(warp, *dst, (*barrier, *count), order, arrive)?;
            }
            MbarrierInst::DropState { dst, barrier, count, order: _ } => {
                let arrive = |barrier: &mut Mbarrier, at, count| barrier.drop(at, count);
                self.arrive_with_state(warp, *dst, (*barrier, *count), order, arrive)?;
            }
            MbarrierInst::DropExpect { dst, barrier, bytes, order: _ } => {
                let arrive = |barrier: &mut Mbarrier, at, bytes| {
                    barrier.expect(at, bytes)?;
                    barrier.drop(at, 1)
                };
                self.arrive_with_state(warp, *dst, (*barrier, *bytes), order, arrive)?;
            }
            MbarrierInst::DropExpectCluster { barrier, bytes, order: _ } => {
                let act: Act<'_> = &mut |barrier, at, bytes| {
                    barrier.expect(at, bytes)?;
                    barrier.drop(at, 1)
                };
                self.at_barriers(warp, (*barrier, Space::SharedCluster, *bytes), order, act)?;
            }
            MbarrierInst::Drop { barrier, space, count, order: _ } => {
                let act: Act<'_> = &mut |barrier, at, count| barrier.drop(at, count);
                self.at_barriers(warp, (*barrier, *space, *count), order, act)?;
            }
            MbarrierInst::ExpectCluster { arrive: _, barrier, bytes, order: _ } => {
                return self.mbarrier_expect(warp, (*barrier, Space::SharedCluster, *bytes), order);
            }
            MbarrierInst::Complete { barrier, space, bytes, scope: _ } => {
                let act: Act<'_> = &mut |barrier, at, bytes| barrier.complete(at, bytes);
                self.at_barriers(warp, (*barrier, *space, *bytes), None, act)?;
            }
            MbarrierInst::Test { dst, barrier, state, patient: _, order } => {
                return self.mbarrier_test(warp, *dst, (*barrier, *state), *order);
            }
            MbarrierInst::TestParity { dst, barrier, parity, order } => {
                return self.mbarrier_try_wait(warp, *dst, (*barrier, *parity), *order);
            }
            MbarrierInst::PendingCount { dst, state } => {
                let registers = &mut self.warps[warp].registers;
                let (states, mut counts) = (registers.read_wide(*state)?, [0; 32]);
                for lane in lanes(registers.active) {
                    let state = states[lane];
                    let missing = Fault::MbarrierState { offset: 0, state, phase: 0 };
                    counts[lane] = pending(state).ok_or(missing).map_err(|fault| fault.lane(lane))?;
                }
                registers.write(*dst, &counts)?;
            }
        }
        Ok(Flow::Next)
    }

    /// What an arrival of a warp publishes: all that it knows, or with `.relaxed` what its last fence stands for.
    pub(super) fn published(&mut self, warp: usize, order: MbarrierOrder) -> Published {
        let active = self.warps[warp].registers.active;
        match (order, self.warps[warp].views.fenced_all(active)) {
            (MbarrierOrder::Sync(scope), _) => Published { view: self.publish(warp), scope: Some(scope) },
            (MbarrierOrder::Relaxed(scope), Some((fenced, view))) => {
                Published { view, scope: Some(scope.min(fenced)) }
            }
            (MbarrierOrder::Relaxed(_), None) => Published { view: self.publish(warp), scope: None },
        }
    }

    /// Acts on the barrier that each active lane names, with the lane's number; with an order it arrives there.
    fn at_barriers(
        &mut self,
        index: usize,
        (barrier, space, number): Place,
        order: Option<MbarrierOrder>,
        act: Act<'_>,
    ) -> Result<(), Stop> {
        let count = self.warps[index].views.count;
        let published = order.map(|order| self.published(index, order));
        let warp = &mut self.warps[index];
        let (barriers, numbers) = (warp.registers.read(barrier)?, warp.registers.read(number)?);
        let (own, active, pc) = (warp.cta, warp.registers.active, warp.pc);
        for lane in lanes(active) {
            let place = match space {
                Space::Shared | Space::Global => {
                    self.ctas[own].own(barriers[lane]).map(|offset| (own, offset))
                }
                Space::SharedCluster => self.anywhere(barriers[lane], self.ctas[own].rank),
            };
            let (cta, offset) = place.map_err(|fault| fault.lane(lane))?;
            let far = cta != own;
            self.reached((index, lane), cta).map_err(|fault| fault.lane(lane))?;
            let shared = &mut self.ctas[cta].shared;
            let barrier = if far { shared.fenced_barrier(offset) } else { shared.barrier(offset) };
            let barrier = barrier.map_err(|fault| fault.lane(lane))?;
            if let Some(published) = &published {
                barrier.gather(published, far);
            }
            let (place, completed) = barrier.count();
            let arrived = Arrived { lanes: 1 << lane, count, pc, phase: (place, completed + 1) };
            if act(barrier, reported(offset), numbers[lane]).map_err(|fault| fault.lane(lane))? {
                shared.phase_completed(offset);
            }
            if far {
                self.ctas[cta].arrivals.insert((index, offset), arrived);
            }
        }
        Ok(())
    }

    fn arrive_with_state(
        &mut self,
        warp: usize,
        dst: Reg,
        (barrier, number): (Operand, Operand),
        order: Option<MbarrierOrder>,
        mut arrive: impl FnMut(&mut Mbarrier, u32, u32) -> Result<bool, Fault>,
    ) -> Result<(), Stop> {
        let mut states = Vec::new();
        let act: Act<'_> = &mut |barrier, at, number| {
            states.push(barrier.state());
            arrive(barrier, at, number)
        };
        self.at_barriers(warp, (barrier, Space::Shared, number), order, act)?;
        let registers = &mut self.warps[warp].registers;
        let mut values: Lanes<u64> = [0; 32];
        for (lane, state) in lanes(registers.active).zip(states) {
            values[lane] = state;
        }
        registers.write_wide(dst, &values)?;
        Ok(())
    }

    fn mbarrier_test(
        &mut self,
        warp: usize,
        dst: Reg,
        (barrier, state): (Operand, Operand),
        order: MbarrierOrder,
    ) -> Result<Flow, Stop> {
        let warp = &mut self.warps[warp];
        let (barriers, states) = (warp.registers.read(barrier)?, warp.registers.read_wide(state)?);
        let cta = &mut self.ctas[warp.cta];
        let mut passed = 0;
        for (mask, lane) in alike(&barriers, &states, warp.registers.active) {
            let offset = cta.own(barriers[lane]).map_err(|fault| fault.lane(lane))?;
            let barrier = cta.shared.barrier(offset).map_err(|fault| fault.lane(lane))?;
            let done = barrier.state_passed(reported(offset), states[lane]);
            if done.map_err(|fault| fault.lane(lane))? {
                warp.views.acquire(mask, barrier, order);
                passed |= mask;
            } else {
                warp.polled = Some((offset, (barrier.phase & 1) as u32));
            }
        }
        warp.registers.write_predicate(dst, passed)?;
        Ok(if passed == warp.registers.active { Flow::Next } else { Flow::Yield })
    }

    pub(super) fn mbarrier_try_wait(
        &mut self,
        warp: usize,
        dst: Reg,
        (barrier, parity): (Operand, Operand),
        order: MbarrierOrder,
    ) -> Result<Flow, Stop> {
        let warp = &mut self.warps[warp];
        let (barriers, parities) = (warp.registers.read(barrier)?, warp.registers.read(parity)?);
        let cta = &mut self.ctas[warp.cta];
        let mut passed = 0;
        for (mask, lane) in alike(&barriers, &parities, warp.registers.active) {
            let offset = cta.own(barriers[lane]).map_err(|fault| fault.lane(lane))?;
            let barrier = cta.shared.barrier(offset).map_err(|fault| fault.lane(lane))?;
            let in_time = barrier.in_time(reported(offset), parities[lane], &warp.views);
            in_time.map_err(|fault| fault.lane(lane))?;
            if barrier.passed(parities[lane]) {
                warp.views.acquire(mask, barrier, order);
                passed |= mask;
            } else {
                warp.polled = Some((offset, parities[lane] & 1));
            }
        }
        warp.registers.write_predicate(dst, passed)?;
        Ok(if passed == warp.registers.active { Flow::Next } else { Flow::Yield })
    }

    pub(super) fn mbarrier_wait(
        &mut self,
        warp: usize,
        (barrier, parity): (Operand, Operand),
        order: MbarrierOrder,
    ) -> Result<Flow, Stop> {
        let warp = &mut self.warps[warp];
        let (barriers, parities) = (warp.registers.read(barrier)?, warp.registers.read(parity)?);
        let cta = &mut self.ctas[warp.cta];
        let mut waiting: Vec<(u32, u32)> = Vec::new();
        for (mask, lane) in alike(&barriers, &parities, warp.registers.active) {
            let offset = cta.own(barriers[lane]).map_err(|fault| fault.lane(lane))?;
            let parity = parities[lane] & 1;
            if waiting.contains(&(offset, parity)) {
                continue;
            }
            let barrier = cta.shared.barrier(offset).map_err(|fault| fault.lane(lane))?;
            let in_time = barrier.in_time(reported(offset), parity, &warp.views);
            in_time.map_err(|fault| fault.lane(lane))?;
            if barrier.passed(parity) {
                warp.views.acquire(mask, barrier, order);
            } else {
                waiting.push((offset, parity));
            }
        }
        Ok(if waiting.is_empty() { Flow::Next } else { Flow::Block(Blocked::Mbarrier(waiting, order)) })
    }
}
