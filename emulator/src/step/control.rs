//! Control flow, plain shuffles, special registers, `setmaxnreg`, and the end of a warp.

use ptx::inst::{Operand, Reg};
use ptx::{Guard, Special};

use super::Flow;
use crate::barrier::NamedBarrier;
use crate::clock::{Counts, View};
use crate::lanes::{ALL, Lanes, lanes};
use crate::machine::{Cta, Machine};
use crate::program::Edge;
use crate::schedule::{Options, Random, Schedule};
use crate::trap::{Fault, Stop};
use crate::warp::{Blocked, Warp};

/// Number of SMs of an H200.
const MULTIPROCESSORS: u32 = 132;

/// The lanes for which a guard holds, of those that execute.
pub(super) fn guarded(warp: &mut Warp<'_>, guard: Guard) -> Result<u32, Fault> {
    let cond = warp.registers.predicate(guard.cond)?;
    Ok(if guard.negated { !cond } else { cond } & warp.registers.active)
}

/// Lanes for which the guard holds go where a branch leads, the others go on.
pub(super) fn branch(warp: &mut Warp<'_>, guard: Option<Guard>, edge: Edge) -> Result<Flow, Fault> {
    let active = warp.registers.active;
    let taken = guard.map_or(Ok(active), |guard| guarded(warp, guard))?;
    if taken == 0 {
        return Ok(Flow::Next);
    }
    if taken == active {
        warp.program().graph.go(&mut warp.rounds, edge.from, edge.to);
        return Ok(Flow::Jump(edge.target));
    }
    warp.part(taken, edge);
    Ok(Flow::Jump(warp.pc))
}

/// Several paths meet: lanes wait for others that may still come.
pub(super) fn join(warp: &mut Warp<'_>) -> Flow {
    if warp.met() {
        Flow::Next
    } else if warp.waits_for_others(None) {
        Flow::Join
    } else {
        Flow::Jump(warp.pc)
    }
}

/// `bar.warp.sync` of all lanes. They may come to it at different places.
pub(super) fn meet(warp: &mut Warp<'_>) -> Flow {
    if warp.registers.active != warp.registers.alive && !warp.meet() {
        return Flow::Block(Blocked::Meet);
    }
    warp.views.meet(ALL);
    Flow::Jump(warp.pc + 1)
}

/// A shuffle: each lane gets the value of the lane that it names.
pub(super) fn shuffle(warp: &mut Warp<'_>, dst: Reg, src: Operand, lane: Operand) -> Result<(), Fault> {
    warp.converged()?;
    let (values, from) = (warp.registers.read(src)?, warp.registers.read(lane)?);
    warp.registers.write(dst, &core::array::from_fn(|lane| values[(from[lane] & 31) as usize]))
}

/// A shuffle: each lane gets the value of the lane with its own number XOR `mask`.
pub(super) fn shuffle_xor(warp: &mut Warp<'_>, dst: Reg, src: Operand, mask: u32) -> Result<(), Fault> {
    warp.converged()?;
    let values = warp.registers.read(src)?;
    let mask = (mask & 31) as usize;
    warp.registers.write(dst, &core::array::from_fn(|lane| values[lane ^ mask]))
}

/// The lane that a schedule elects among some lanes. It may be any of them, but always the same one for the
/// same lanes. ISA "elect.sync".
pub(super) fn leader(among: u32, options: &Options<'_>) -> u32 {
    let chosen = match options.schedule {
        _ if options.lowest_elected => 0,
        Schedule::Default | Schedule::Earliest | Schedule::Paced => 0,
        Schedule::Latest => among.count_ones() as usize - 1,
        Schedule::Random => Random::new(options.seed, among.into()).below(among.count_ones() as usize),
    };
    lanes(among).nth(chosen).map_or(0, |lane| 1 << lane)
}

/// Elects a lane.
pub(super) fn elect(warp: &mut Warp<'_>, dst: Reg, options: &Options<'_>) -> Result<(), Fault> {
    warp.converged()?;
    warp.registers.write_predicate(dst, leader(warp.registers.alive, options))
}

impl Machine<'_> {
    /// The lanes that a schedule lets execute an instruction apart from the others of their warp, as far as that can be seen.
    pub(super) fn apart(&mut self) -> u32 {
        match self.options.schedule {
            Schedule::Default | Schedule::Earliest | Schedule::Paced => 0,
            Schedule::Latest => 0xFFFF,
            Schedule::Random => self.random() as u32,
        }
    }

    /// The slot that a schedule gives to a warp of a CTA. It may change during execution. ISA "%warpid".
    fn slot(&mut self, index: u32, warps: u32) -> u32 {
        match self.options.schedule {
            Schedule::Default | Schedule::Earliest | Schedule::Paced => index,
            Schedule::Latest => warps - 1 - index,
            Schedule::Random => ((self.random() as u32 >> 1) + index) % warps,
        }
    }

    pub(super) fn read_special(&mut self, warp: usize, dst: Reg, special: Special) -> Result<Flow, Stop> {
        let (number, warps) = (self.number(warp), self.team.per_cta.max(1));
        // The clock registers count the instructions of the cluster.
        let time = self.counts.instructions;
        let is_slot = special == Special::WarpSlot;
        let slot = if is_slot { self.slot(self.warps[warp].index, warps) } else { 0 };
        let function = &self.program.function;
        let across = function.cluster.map(|extent| extent.max(1));
        let across_threads = function.block.map(|extent| extent.max(1));
        let warp = &mut self.warps[warp];
        let cta = &self.ctas[warp.cta];
        let [grid_x, grid_y, grid_z] = self.launch.grid;
        let same = |value: u32| [value; 32];
        let lane: Lanes<u32> = core::array::from_fn(|lane| lane as u32);
        let thread = lane.map(|lane| warp.index * 32 + lane);
        let values = match special {
            Special::ThreadX => thread.map(|thread| thread % across_threads[0]),
            Special::ThreadY => thread.map(|thread| thread / across_threads[0] % across_threads[1]),
            Special::ThreadZ => thread.map(|thread| thread / across_threads[0] / across_threads[1]),
            Special::CtaX => same(cta.id[0]),
            Special::CtaY => same(cta.id[1]),
            Special::CtaZ => same(cta.id[2]),
            Special::GridX => same(grid_x),
            Special::GridY => same(grid_y),
            Special::GridZ => same(grid_z),
            Special::Lane => lane,
            Special::ClusterRank => same(cta.rank),
            Special::ClusterSize => same(function.cluster.iter().product()),
            Special::ClusterX => same(cta.id[0] / across[0]),
            Special::ClusterY => same(cta.id[1] / across[1]),
            Special::ClusterZ => same(cta.id[2] / across[2]),
            Special::ClustersX => same(grid_x / across[0]),
            Special::ClustersY => same(grid_y / across[1]),
            Special::ClustersZ => same(grid_z / across[2]),
            Special::ClusterCtasX => same(across[0]),
            Special::ClusterCtasY => same(across[1]),
            Special::ClusterCtasZ => same(across[2]),
            Special::ClusterCtaX => same(cta.id[0] % across[0]),
            Special::ClusterCtaY => same(cta.id[1] % across[1]),
            Special::ClusterCtaZ => same(cta.id[2] % across[2]),
            Special::ThreadsX => same(across_threads[0]),
            Special::ThreadsY => same(across_threads[1]),
            Special::ThreadsZ => same(across_threads[2]),
            Special::WarpSlot => same(slot),
            // As if the CTAs were assigned to the SMs in turn.
            Special::Multiprocessor => same(number / warps % MULTIPROCESSORS),
            Special::Multiprocessors => same(MULTIPROCESSORS),
            Special::LaneMaskEq => lane.map(|lane| 1 << lane),
            Special::LaneMaskLt => lane.map(|lane| (1 << lane) - 1),
            Special::LaneMaskLe => lane.map(|lane| u32::MAX >> (31 - lane)),
            Special::LaneMaskGt => lane.map(|lane| !(u32::MAX >> (31 - lane))),
            Special::LaneMaskGe => lane.map(|lane| u32::MAX << lane),
            Special::DynamicSharedBytes => same(function.shared_bytes),
            Special::SharedBytes => same(function.all_shared()),
            Special::Clock | Special::Clock64 | Special::GlobalTimer => same(time as u32),
        };
        if special.ty() == ptx::Type::U64 {
            warp.registers.write_wide(dst, &[time; 32])?;
            return Ok(Flow::Next);
        }
        warp.registers.write(dst, &values)?;
        Ok(Flow::Next)
    }

    /// `setmaxnreg`: moves registers between the warp and the CTA's pool.
    pub(super) fn set_max_registers(&mut self, index: usize, grow: bool, asked: u32) -> Result<Flow, Stop> {
        self.warps[index].converged()?;
        self.warpgroup(index)?;
        self.resized_in_step(index).or_else(|fault| self.debatable(index, fault.into()))?;
        let warp = &mut self.warps[index];
        let pool = &mut self.ctas[warp.cta].free_registers;
        let held = warp.held;
        if (grow && asked < held) || (!grow && asked > held) {
            return Err(Fault::Registers { grow, held, asked }.into());
        }
        let Some(left) = (*pool + 32 * held).checked_sub(32 * asked) else {
            return Ok(Flow::Retry(Blocked::Registers { asked }));
        };
        *pool = left;
        warp.held = asked;
        warp.resized.push(warp.views.count);
        self.collective(index)?;
        Ok(Flow::Next)
    }

    /// Refuses another `setmaxnreg` of a warp that does not know that its warpgroup has executed the last one.
    fn resized_in_step(&self, index: usize) -> Result<(), Fault> {
        let warp = &self.warps[index];
        let Some(last) = warp.resized.len().checked_sub(1) else { return Ok(()) };
        let view = warp.views.common();
        let first = index - warp.index as usize % 4;
        for other in (first..first + 4).filter(|&other| other != index) {
            let known = |&count: &u32| view.executed_by(self.number(other), ALL, count, self.team);
            let other = &self.warps[other];
            if !other.resized.get(last).is_some_and(known) {
                return Err(Fault::RegistersTwice { warp: other.index });
            }
        }
        Ok(())
    }

    /// Launches run one after the other, so all earlier grids have completed.
    pub(super) fn grid_dependency(&mut self, warp: usize, wait: bool) -> Flow {
        if wait && self.options.dependent {
            let (team, earlier) = (self.team, Counts::earlier());
            let state = &mut self.warps[warp];
            let active = state.registers.active;
            state.views.change(active, |_, view| view.known.import(&earlier, team));
        }
        Flow::Next
    }

    /// Ends a warp. None of its asynchronous work may be in flight.
    pub(super) fn exit(&mut self, index: usize, stated: bool) -> Result<Flow, Stop> {
        if self.warps[index].end_lanes(stated) {
            // The last lanes end the warp.
            return Ok(Flow::Join);
        }
        if let Some(pc) = self.unfinished_multiply(index) {
            let what = "its wgmma is in flight: the warp has not waited for it";
            return Err(Fault::ExitInFlight { what }.by(index, pc, None));
        }
        let warp = &mut self.warps[index];
        if let Some(copy) = warp.copies.first() {
            let what = "its cp.async writes shared memory: the thread has not waited for it";
            return Err(Fault::ExitInFlight { what }.by(index, copy.pc, Some(copy.lane)));
        }
        if let Some(store) = warp.stores.first() {
            let what = "its bulk copy or tensor store reads shared memory: the thread has not waited for it";
            return Err(Fault::ExitInFlight { what }.by(index, store.pc, Some(store.lane)));
        }
        warp.exited = true;
        let cta = warp.cta;
        if self.launch.common.is_several() {
            let team = self.team;
            let letter = self.warps[index].views.publish(ALL).write(team);
            self.launch.common.has_done(self.launch.gpu, &letter);
        }
        self.barriers_exit(cta);
        let last = self.warps.iter().filter(|warp| warp.cta == cta).all(|warp| warp.exited);
        if last {
            self.ctas[cta].exited = true;
            self.counts.ctas += 1;
            let mut all = View::default();
            for warp in self.warps.iter().filter(|warp| warp.cta == cta) {
                all.follow(&warp.views.together());
            }
            let (first, team) = (self.team.first, self.team);
            let after = |index: usize, lanes: u32, count: u32| {
                all.executed_by(first.wrapping_add(index as u32), lanes, count, team)
            };
            let Cta { touched, arrivals, .. } = &self.ctas[cta];
            let touched = touched.iter().find(|&(&(warp, lanes), &(count, _))| !after(warp, lanes, count));
            let arrived = arrivals.iter().find(|&(&(warp, lanes, _), arrived)| {
                let (place, phase) = arrived.phase;
                !after(warp, lanes, arrived.count) && all.executed(place) < phase
            });
            let touched = touched.map(|(&(warp, _), &(_, pc))| (warp, pc));
            if let Some((warp, pc)) = touched.or(arrived.map(|(&(warp, ..), arrived)| (warp, arrived.pc))) {
                let rank = self.ctas[cta].rank;
                return Err(Fault::PeerUnordered { rank }.by(warp, pc, None));
            }
            self.nothing_incomplete(cta)?;
            if let Some(arrival) = self.arrivals.iter().find(|arrival| arrival.cta == cta) {
                let (warp, pc, lane) = arrival.by;
                let what = "the arrival of its cp.async at an mbarrier is pending";
                return Err(Fault::ExitInFlight { what }.by(warp, pc, Some(lane)));
            }
            if let Some(load) = self.loads.iter().find(|load| load.touches(cta)) {
                let (warp, pc, lane) = load.by;
                let what = "a copy into or out of its CTA's shared memory is in flight";
                return Err(Fault::ExitInFlight { what }.by(warp, pc, Some(lane)));
            }
        }
        self.cluster_exit();
        Ok(Flow::Exit)
    }

    /// Refuses the end of a CTA while a named barrier or a collective instruction is incomplete: some threads
    /// have arrived at the barrier, or some warps of a warpgroup have executed the instruction, but not all.
    fn nothing_incomplete(&self, cta: usize) -> Result<(), Stop> {
        let warps = self.warps.len() / self.ctas.len().max(1);
        let Cta { named, warpgroups, .. } = &self.ctas[cta];
        if let Some((id, barrier)) = (0..).zip(named).find(|(_, barrier)| barrier.arrived > 0) {
            let NamedBarrier { arrived, threads, last: (warp, pc), .. } = *barrier;
            let stop = Fault::BarrierIncomplete { id, arrived, threads }.by(warp, pc, None);
            if barrier.waiting != 0 {
                return Err(stop);
            }
            self.debatable(warp, stop)?;
        }
        for (group, state) in warpgroups.iter().enumerate() {
            if let Some((pc, executed)) = state.incomplete() {
                let missing =
                    (0..4).filter(|bit| executed >> bit & 1 == 0).map(|bit| (group * 4) as u32 + bit);
                let missing = missing.collect();
                let by = cta * warps + group * 4 + executed.trailing_zeros() as usize;
                return Err(Fault::WarpgroupIncomplete { missing }.by(by, pc, None));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_elected_lane_is_any_and_always_the_same() {
        let elect = |among, schedule, seed| {
            let options = Options { schedule, seed, ..Options::default() };
            let lowest = leader(among, &Options { lowest_elected: true, ..options });
            assert_eq!(lowest.trailing_zeros(), among.trailing_zeros());
            leader(among, &options).trailing_zeros()
        };
        assert_eq!(elect(0b1100, Schedule::Default, 0), 2, "the lowest");
        assert_eq!(elect(0b1100, Schedule::Latest, 0), 3, "the highest");
        let seeds: Vec<u32> = (0..64).map(|seed| elect(ALL, Schedule::Random, seed)).collect();
        assert_eq!(seeds, (0..64).map(|seed| elect(ALL, Schedule::Random, seed)).collect::<Vec<_>>());
        let mut different = seeds;
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 16, "{different:?}");
        assert!((0..64).all(|seed| 0x00F0_F000u32 >> elect(0x00F0_F000, Schedule::Random, seed) & 1 == 1));
    }
}
