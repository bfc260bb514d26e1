//! Instructions on mbarriers: arrivals, byte counts and waits, in the warp's own CTA and in others.
//!
//! Source: PTX ISA "mbarrier.arrive" and related instructions. By default an arrival is `.release.cta` and a
//! wait is `.acquire.cta`. So a default arrival at the mbarrier of another CTA tells how far its thread has
//! executed, but publishes none of its writes.

use ptx::inst::{Arrival, MbarrierArrive, MbarrierOrder, MbarrierPhase, MbarrierTest, Operand, Reg};
use ptx::{Scope, Space};

use super::Flow;
use super::barrier::alike;
use crate::flight::Load;
use crate::lanes::{Lanes, lanes};
use crate::machine::{Arrived, Machine};
use crate::mbarrier::{Mbarrier, Published, Used, pending};
use crate::meetings::Memory;
use crate::race::{By, Kind};
use crate::shared::reported;
use crate::trap::{Fault, InLane, Stop};
use crate::views::Views;
use crate::warp::{Blocked, Warp};

/// An operation on an mbarrier. It gets the mbarrier, its offset for reports and the lane's number, and
/// returns whether the phase completed.
type Act<'a> = &'a mut dyn FnMut(&mut Mbarrier, u32, u32) -> Result<bool, Fault>;

/// The address and space of an mbarrier, and the number operand of the instruction (arrivals or bytes).
type Place = (Operand, Space, Operand);

impl Machine<'_> {
    pub(super) fn mbarrier_arrive(&mut self, warp: usize, arrive: &MbarrierArrive) -> Result<Flow, Stop> {
        let MbarrierArrive { barrier, space, arrival, drop, state, order } = *arrive;
        let (Arrival::Count(number) | Arrival::NoComplete(number) | Arrival::Expect(number)) = arrival;
        let mut states = Vec::new();
        self.at_barriers(warp, (barrier, space, number), order, &mut |barrier, at, number| {
            if state.is_some() {
                states.push(barrier.state());
            }
            let arrivals = match arrival {
                Arrival::Count(_) => number,
                Arrival::NoComplete(_) => return barrier.arrive_only(at, number, drop),
                Arrival::Expect(_) => {
                    barrier.expect(at, number)?;
                    1
                }
            };
            if drop { barrier.drop(at, arrivals) } else { barrier.arrive(at, arrivals) }
        })?;
        if let Some(dst) = state {
            let registers = &mut self.warps[warp].registers;
            let mut values: Lanes<u64> = [0; 32];
            for (lane, state) in lanes(registers.active).zip(states) {
                values[lane] = state;
            }
            registers.write_wide(dst, &values)?;
        }
        Ok(Flow::Next)
    }

    /// Announces bytes, or with `complete` counts them as arrived.
    pub(super) fn mbarrier_transact(
        &mut self,
        warp: usize,
        place: Place,
        (complete, scope): (bool, Scope),
    ) -> Result<Flow, Stop> {
        self.at_barriers(warp, place, MbarrierOrder::Relaxed(scope), &mut |barrier, at, bytes| {
            if complete { barrier.complete(at, bytes) } else { barrier.expect(at, bytes).map(|()| false) }
        })?;
        Ok(Flow::Next)
    }

    pub(super) fn mbarrier_pending(&mut self, warp: usize, dst: Reg, state: Operand) -> Result<Flow, Stop> {
        let registers = &mut self.warps[warp].registers;
        let (states, mut counts) = (registers.read_wide(state)?, [0; 32]);
        for lane in lanes(registers.active) {
            let state = states[lane];
            let missing = Fault::MbarrierState { offset: 0, state, phase: 0 };
            counts[lane] = pending(state).ok_or(missing).lane(lane)?;
        }
        registers.write(dst, &counts)?;
        Ok(Flow::Next)
    }

    /// What an operation of a lane publishes: everything that the lane knows, or with `.relaxed` what its last
    /// fences published. The other lanes of the instruction may arrive at other mbarriers, or in another phase.
    pub(super) fn published(&self, (warp, lane): (usize, usize), order: MbarrierOrder) -> Vec<Published> {
        let views = &self.warps[warp].views;
        match order {
            MbarrierOrder::Sync(scope) => vec![Published { view: views.told(1 << lane), scope: Some(scope) }],
            MbarrierOrder::Relaxed(scope) => {
                let fences = views.fenced(lane);
                let fences = fences.map(|(by, view)| Published { view, scope: Some(scope.min(by)) });
                let nothing = Published { view: views.of(lane).clone(), scope: None };
                fences.chain([nothing]).collect()
            }
        }
    }

    /// Applies `act` to the mbarrier that each active lane names, with the lane's number. The order says what
    /// the operation publishes: also a `.relaxed` one that is no arrival publishes what a fence before it
    /// covers.
    fn at_barriers(
        &mut self,
        index: usize,
        (barrier, space, number): Place,
        order: MbarrierOrder,
        act: Act<'_>,
    ) -> Result<(), Stop> {
        let warp = &mut self.warps[index];
        let count = warp.views.count;
        let (barriers, numbers) = (warp.registers.read(barrier)?, warp.registers.read(number)?);
        let (own, active, pc) = (warp.cta, warp.registers.active, warp.pc);
        for lane in lanes(active) {
            let place = match space {
                Space::Shared | Space::Global | Space::Local | Space::Param | Space::Generic => {
                    self.ctas[own].own(barriers[lane]).map(|offset| (own, offset))
                }
                Space::SharedCluster => self.anywhere(barriers[lane], self.ctas[own].rank),
            };
            let (cta, offset) = place.lane(lane)?;
            let far = cta != own;
            self.reached((index, lane), cta).lane(lane)?;
            let used = self.uses(Used { warp: index, lanes: 1 << lane, count, pc }, cta, offset);
            used.lane(lane)?;
            let published = self.published((index, lane), order);
            if self.watch.is_some() && matches!(order, MbarrierOrder::Sync(_)) {
                let alike = lanes(active).filter(|&other| barriers[other] == barriers[lane]);
                let mask = alike.fold(0, |mask, lane| mask | 1 << lane);
                if Views::first(mask) == lane {
                    self.arrives_at(index, mask, (cta, offset));
                }
            }
            let shared = &mut self.ctas[cta].shared;
            let barrier = shared.barrier(offset).lane(lane)?;
            published.iter().for_each(|published| barrier.gather(published, far));
            let (place, completed) = barrier.count();
            let arrived = Arrived { count, pc, phase: (place, completed + 1) };
            if act(barrier, reported(offset), numbers[lane]).lane(lane)? {
                shared.phase_completed(offset);
            }
            if far {
                self.ctas[cta].arrivals.insert((index, 1 << lane, offset), arrived);
            }
        }
        self.warps[index].views.count += 1;
        Ok(())
    }

    /// The offset of an mbarrier of the warp's own CTA. Checks and remembers the use by the lanes in `mask`.
    fn used(&mut self, (warp, mask): (usize, u32), address: u32) -> Result<u32, Fault> {
        let cta = self.warps[warp].cta;
        let offset = self.ctas[cta].own(address)?;
        self.uses(self.use_now(warp, mask), cta, offset)?;
        Ok(offset)
    }

    /// A use of an mbarrier by lanes of a warp at its current operation.
    pub(super) fn use_now(&self, warp: usize, lanes: u32) -> Used {
        let state = &self.warps[warp];
        Used { warp, lanes, count: state.views.count, pc: state.pc }
    }

    /// Refuses the use of an mbarrier that is not ordered after its initialisation, and remembers the use.
    pub(super) fn uses(&mut self, by: Used, cta: usize, offset: u32) -> Result<(), Fault> {
        let (at, range) = ((by.warp, By::All(by.lanes), by.pc as u32), (offset.into(), 8));
        self.accessed(at, Memory::Shared(cta), range, Kind::WRITE.atomic(Scope::Cluster, 8));
        let Some(barrier) = self.ctas[cta].shared.barriers.get_mut(&offset) else { return Ok(()) };
        barrier.is_used(by);
        let (made, public) = (barrier.made, barrier.public);
        if public || self.knows((by.warp, by.lanes), made) {
            return Ok(());
        }
        Err(self.used_in_a_race(cta, offset, made))
    }

    /// Lanes of a warp fence the initialisation of the mbarriers of their CTA. `others`: also of those that another thread has
    /// initialised, if the lanes know of it, as a proxy fence does. ISA "membar/fence": `.mbarrier_init` is about the
    /// initialisations of the thread alone.
    pub(super) fn fence_barriers(&mut self, warp: usize, others: bool) {
        let (cta, active) = (self.warps[warp].cta, self.warps[warp].registers.active);
        let masks: Vec<u32> = self.warps[warp].views.groups(active).map(|(mask, _)| mask).collect();
        let mut fenced = Vec::new();
        for (&offset, barrier) in self.ctas[cta].shared.barriers.iter().filter(|(_, barrier)| !barrier.public)
        {
            for &mask in &masks {
                let made = barrier.made;
                let own = if made.warp == warp { made.lanes & mask } else { 0 };
                let lanes = if others && self.knows((warp, mask), made) { mask } else { own };
                let already = |fence: &Used| self.follows((warp, lanes), *fence);
                if lanes != 0 && !barrier.fences.iter().any(already) {
                    fenced.push((offset, self.use_now(warp, lanes)));
                }
            }
        }
        for (offset, by) in fenced {
            if let Some(barrier) = self.ctas[cta].shared.barriers.get_mut(&offset) {
                barrier.fences.push(by);
            }
        }
    }

    /// Refuses the use of an mbarrier by the async proxy or another CTA, unless it comes after a fence of its
    /// initialisation.
    pub(super) fn fenced(&self, by: (usize, u32), cta: usize, offset: u32) -> Result<(), Fault> {
        let Some(barrier) = self.ctas[cta].shared.barriers.get(&offset) else {
            return Err(Fault::MbarrierUninitialised { offset: reported(offset) });
        };
        if barrier.public || barrier.fences.iter().any(|fence| self.follows(by, *fence)) {
            return Ok(());
        }
        let fault = Fault::MbarrierNotFenced { offset: reported(offset), by: barrier.by.into() };
        let (warp, mask) = by;
        if self.warps[warp].cta == cta {
            let lane = mask.trailing_zeros() as usize;
            return self.debatable(warp, fault.lane(lane)).map_err(|stop| *stop.fault);
        }
        Err(fault)
    }

    /// Whether each lane of a mask comes after a fence by any of the lanes that executed it.
    fn follows(&self, (warp, mask): (usize, u32), fence: Used) -> bool {
        let number = self.number(fence.warp);
        self.warps[warp].views.groups(mask).all(|(mine, view)| {
            let own = fence.warp == warp && mine & !fence.lanes == 0;
            own || lanes(fence.lanes).any(|lane| view.executed_by(number, 1 << lane, fence.count, self.team))
        })
    }

    /// Whether each lane of a mask knows of a use. A lane knows its own.
    fn knows(&self, (warp, mask): (usize, u32), used: Used) -> bool {
        let (number, mut views) = (self.number(used.warp), self.warps[warp].views.groups(mask));
        views.all(|(lanes, view)| {
            let own = if used.warp == warp && lanes.is_power_of_two() { lanes } else { 0 };
            view.executed_by(number, used.lanes & !own, used.count, self.team)
        })
    }

    fn used_in_a_race(&self, cta: usize, offset: u32, other: Used) -> Fault {
        let (lane, pc) = (other.lanes.trailing_zeros(), u32::try_from(other.pc).unwrap_or(u32::MAX));
        let other = Box::new(self.place_of(self.number(other.warp), Some(lane), pc));
        let (rank, offset) = (self.ctas[cta].rank, reported(offset));
        Fault::SharedRace { rank, offset, write: true, other_write: true, other }
    }

    pub(super) fn mbarrier_init(
        &mut self,
        warp: usize,
        barrier: Operand,
        count: Operand,
    ) -> Result<Flow, Stop> {
        let state = &mut self.warps[warp];
        let (barriers, counts) = (state.registers.read(barrier)?, state.registers.read(count)?);
        let cta = state.cta;
        for lane in lanes(state.registers.active) {
            let mut init = || {
                let offset = self.ctas[cta].own(barriers[lane])?;
                let (thread, made) = (self.warps[warp].thread(lane), self.use_now(warp, 1 << lane));
                let shared = &mut self.ctas[cta].shared;
                shared.initialise_barrier(offset, counts[lane], thread)?;
                shared.barrier(offset)?.made = made;
                self.begins_anew((cta, offset));
                self.accessed(
                    (warp, By::lane(lane), made.pc as u32),
                    Memory::Shared(cta),
                    (offset.into(), 8),
                    Kind::WRITE,
                );
                self.order_async((warp, lane), (cta, offset, 8), (true, false))
            };
            init().lane(lane)?;
        }
        // Everything published from now on includes the initialisation.
        self.warps[warp].views.count += 1;
        Ok(Flow::Next)
    }

    pub(super) fn mbarrier_invalidate(&mut self, warp: usize, barrier: Operand) -> Result<Flow, Stop> {
        let state = &mut self.warps[warp];
        let (barriers, cta) = (state.registers.read(barrier)?, state.cta);
        for lane in lanes(state.registers.active) {
            let mut invalidate = || {
                let offset = self.used((warp, 1 << lane), barriers[lane])?;
                let (by, memory) = ((warp, By::lane(lane), self.warps[warp].pc as u32), Memory::Shared(cta));
                self.accessed(by, memory, (offset.into(), 8), Kind::WRITE);
                let users: Vec<Used> = self.ctas[cta].shared.barrier(offset)?.users().collect();
                for user in users {
                    if !self.knows((warp, 1 << lane), user) {
                        return Err(self.used_in_a_race(cta, offset, user));
                    }
                }
                self.ctas[cta].shared.invalidate_barrier(offset)?;
                Ok(offset)
            };
            let offset = invalidate().lane(lane)?;
            // A copy in flight would count its bytes on what is no mbarrier any more.
            let uses = |load: &&Load| (load.cta, load.barrier) == (cta, offset);
            if let Some(&Load { by: (warp, pc, lane), .. }) = self.loads.iter().find(uses) {
                let offset = reported(offset);
                return Err(Fault::MbarrierUninitialised { offset }.by(warp, pc, Some(lane)));
            }
        }
        Ok(Flow::Next)
    }

    /// Asks once whether a phase has completed.
    pub(super) fn mbarrier_test(&mut self, warp: usize, test: &MbarrierTest) -> Result<Flow, Stop> {
        let MbarrierTest { dst, barrier, phase, patient: _, order } = *test;
        let registers = &mut self.warps[warp].registers;
        match phase {
            MbarrierPhase::State(state) => {
                let states = registers.read_wide(state)?;
                self.look(warp, dst, (barrier, &states), order, |barrier, at, (_, state), _| {
                    Ok((barrier.state_passed(at, state)?, (barrier.phase & 1) as u32))
                })
            }
            MbarrierPhase::Parity(parity) => {
                let parities = registers.read(parity)?;
                self.look(warp, dst, (barrier, &parities), order, |barrier, at, (mask, parity), views| {
                    views.in_time(mask, barrier, (at, parity))?;
                    Ok((barrier.passed(parity), parity & 1))
                })
            }
        }
    }

    pub(super) fn mbarrier_wait(
        &mut self,
        warp: usize,
        (barrier, parity): (Operand, Operand),
        order: MbarrierOrder,
    ) -> Result<Flow, Stop> {
        let parities = self.warps[warp].registers.read(parity)?;
        let mut waiting: Vec<(u32, u32, u32)> = Vec::new();
        let mut passed: Vec<(u32, u32)> = Vec::new();
        self.each_barrier(warp, (barrier, &parities), |warp, barrier, offset, (mask, parity)| {
            warp.views.in_time(mask, barrier, (reported(offset), parity))?;
            if barrier.passed(parity) {
                warp.views.acquire(mask, barrier, order);
                passed.push((mask, offset));
            } else {
                waiting.push((offset, parity & 1, mask));
            }
            Ok(())
        })?;
        passed.into_iter().for_each(|(mask, offset)| self.passes_at(warp, mask, offset));
        Ok(if waiting.is_empty() { Flow::Next } else { Flow::Block(Blocked::Mbarrier(waiting, order)) })
    }

    /// One poll of the mbarrier that each active lane names. `passed` returns whether the phase that the
    /// lane's number names has completed, and the parity of that phase.
    fn look<T: Copy + PartialEq>(
        &mut self,
        warp: usize,
        dst: Reg,
        named: (Operand, &Lanes<T>),
        order: MbarrierOrder,
        passed: impl Fn(&Mbarrier, u32, (u32, T), &Views) -> Result<(bool, u32), Fault>,
    ) -> Result<Flow, Stop> {
        let mut all = 0;
        let mut waited: Vec<(u32, u32)> = Vec::new();
        self.each_barrier(warp, named, |warp, barrier, offset, (mask, number)| {
            let (passed, parity) = passed(barrier, reported(offset), (mask, number), &warp.views)?;
            if passed {
                warp.views.acquire(mask, barrier, order);
                all |= mask;
                waited.push((mask, offset));
            } else {
                warp.polled = Some((offset, parity));
            }
            Ok(())
        })?;
        waited.into_iter().for_each(|(mask, offset)| self.passes_at(warp, mask, offset));
        let registers = &mut self.warps[warp].registers;
        registers.write_predicate(dst, all)?;
        Ok(if all == registers.active { Flow::Next } else { Flow::Yield })
    }

    /// Calls `act` per mbarrier of the warp's own CTA that active lanes name, with its offset, the lanes that
    /// name it with the same number, and the number.
    fn each_barrier<T: Copy + PartialEq>(
        &mut self,
        index: usize,
        (barrier, numbers): (Operand, &Lanes<T>),
        mut act: impl FnMut(&mut Warp<'_>, &Mbarrier, u32, (u32, T)) -> Result<(), Fault>,
    ) -> Result<(), Stop> {
        let registers = &mut self.warps[index].registers;
        let (barriers, active) = (registers.read(barrier)?, registers.active);
        for (mask, lane) in alike(&barriers, numbers, active) {
            let mut one = || {
                let offset = self.used((index, mask), barriers[lane])?;
                let warp = &mut self.warps[index];
                let barrier = self.ctas[warp.cta].shared.barrier(offset)?;
                act(warp, barrier, offset, (mask, numbers[lane]))
            };
            one().lane(lane)?;
        }
        Ok(())
    }
}
