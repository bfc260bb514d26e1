//! mbarriers with states, dropped arrivals and byte counts of any CTA of the cluster.

use ptx::Space;
use ptx::inst::{MbarrierInst, Operand, Reg};

use super::Flow;
use super::barrier::alike;
use crate::machine::Machine;
use crate::mbarrier::{Mbarrier, pending};
use crate::shared::reported;
use crate::trap::{Fault, Stop};
use crate::warp::{Lanes, lanes};

/// What is done to a barrier: gets it, its place for reports and the lane's number; says whether its phase completed.
type Act<'a> = &'a mut dyn FnMut(&mut Mbarrier, u32, u32) -> Result<bool, Fault>;

impl Machine<'_> {
    pub(super) fn mbarrier(&mut self, warp: usize, inst: &MbarrierInst) -> Result<Flow, Stop> {
        match inst {
            MbarrierInst::Arrive { dst, barrier, count } => {
                let arrive = |barrier: &mut Mbarrier, at, count| barrier.arrive(at, count);
                self.arrive_with_state(warp, *dst, (*barrier, *count), arrive)?;
            }
            MbarrierInst::ArriveExpect { dst, barrier, bytes } => {
                let arrive = |barrier: &mut Mbarrier, at, bytes| {
                    barrier.expect(at, bytes)?;
                    barrier.arrive(at, 1)
                };
                self.arrive_with_state(warp, *dst, (*barrier, *bytes), arrive)?;
            }
            MbarrierInst::ArriveNoComplete { dst, barrier, count, drop } => {
                let arrive = |barrier: &mut Mbarrier, at, count| barrier.arrive_only(at, count, *drop);
                self.arrive_with_state(warp, *dst, (*barrier, *count), arrive)?;
            }
            MbarrierInst::DropState { dst, barrier, count } => {
                let arrive = |barrier: &mut Mbarrier, at, count| barrier.drop(at, count);
                self.arrive_with_state(warp, *dst, (*barrier, *count), arrive)?;
            }
            MbarrierInst::DropExpect { dst, barrier, bytes } => {
                let arrive = |barrier: &mut Mbarrier, at, bytes| {
                    barrier.expect(at, bytes)?;
                    barrier.drop(at, 1)
                };
                self.arrive_with_state(warp, *dst, (*barrier, *bytes), arrive)?;
            }
            MbarrierInst::DropExpectCluster { barrier, bytes } => {
                let act: Act<'_> = &mut |barrier, at, bytes| {
                    barrier.expect(at, bytes)?;
                    barrier.drop(at, 1)
                };
                self.at_barriers(warp, (*barrier, Space::SharedCluster, *bytes), true, act)?;
            }
            MbarrierInst::Drop { barrier, space, count } => {
                let act: Act<'_> = &mut |barrier, at, count| barrier.drop(at, count);
                self.at_barriers(warp, (*barrier, *space, *count), true, act)?;
            }
            MbarrierInst::ExpectCluster { arrive, barrier, bytes } => {
                let act: Act<'_> = &mut |barrier, at, bytes| {
                    barrier.expect(at, bytes)?;
                    if *arrive { barrier.arrive(at, 1) } else { Ok(false) }
                };
                self.at_barriers(warp, (*barrier, Space::SharedCluster, *bytes), *arrive, act)?;
            }
            MbarrierInst::Complete { barrier, space, bytes } => {
                let act: Act<'_> = &mut |barrier, at, bytes| barrier.complete(at, bytes);
                self.at_barriers(warp, (*barrier, *space, *bytes), false, act)?;
            }
            MbarrierInst::Test { dst, barrier, state, patient: _ } => {
                return self.mbarrier_test(warp, *dst, *barrier, *state);
            }
            MbarrierInst::TestParity { dst, barrier, parity } => {
                return self.mbarrier_try_wait(warp, *dst, *barrier, *parity);
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

    /// Acts on the barrier that each active lane names, with the lane's number; `arrives` where what the warp knows is
    /// handed on.
    fn at_barriers(
        &mut self,
        index: usize,
        (barrier, space, number): (Operand, Space, Operand),
        arrives: bool,
        act: Act<'_>,
    ) -> Result<(), Stop> {
        let step = self.warps[index].views.count;
        let view = self.publish(index);
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
            let shared = &mut self.ctas[cta].shared;
            let barrier = if cta == own { shared.barrier(offset) } else { shared.fenced_barrier(offset) };
            let completed = barrier.and_then(|barrier| {
                if arrives {
                    barrier.gather(&view);
                }
                act(barrier, reported(offset), numbers[lane])
            });
            if completed.map_err(|fault| fault.lane(lane))? {
                shared.phase_completed(offset);
            }
            if cta != own {
                self.ctas[cta].touched.insert((index, 1 << lane), (step, pc));
            }
        }
        Ok(())
    }

    fn arrive_with_state(
        &mut self,
        warp: usize,
        dst: Reg,
        (barrier, number): (Operand, Operand),
        mut arrive: impl FnMut(&mut Mbarrier, u32, u32) -> Result<bool, Fault>,
    ) -> Result<(), Stop> {
        let mut states = Vec::new();
        let act: Act<'_> = &mut |barrier, at, number| {
            states.push(barrier.state());
            arrive(barrier, at, number)
        };
        self.at_barriers(warp, (barrier, Space::Shared, number), true, act)?;
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
        barrier: Operand,
        state: Operand,
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
                warp.views.learn(mask, &barrier.released);
                passed |= mask;
            } else {
                warp.polled = Some((offset, (barrier.phase & 1) as u32));
            }
        }
        warp.registers.write_predicate(dst, passed)?;
        Ok(if passed == warp.registers.active { Flow::Next } else { Flow::Yield })
    }
}
