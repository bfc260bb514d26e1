//! Reports of faults: where a fault happened, and what each warp waits for.

use super::{Machine, coordinates};
use crate::clock::{SLOT_SHIFT, first_of};
use crate::shared::reported;
use crate::trap::{Fault, Place, Stop, Trap, Wait, Waiting};
use crate::warp::Blocked;

impl Machine<'_> {
    fn place(&self, index: usize, pc: usize, lane: Option<u32>) -> Place {
        let warp = &self.warps[index];
        let cta = &self.ctas[warp.cta];
        let operation = &self.program.ops[pc];
        Place {
            site: operation.site.clone(),
            instruction: operation.action.name(),
            gpu: self.launch.common.is_several().then_some(self.launch.gpu),
            cta: cta.id,
            rank: cta.rank,
            warp: warp.index,
            lane,
            scopes: self.program.scope_path(operation),
        }
    }

    /// The place of an operation of any warp of the grid. `warp` is the warp's number in the grid.
    pub(crate) fn place_of(&self, warp: u32, lane: Option<u32>, pc: u32) -> Place {
        let slot = warp >> SLOT_SHIFT;
        let other = self.launch.common.launches.get(slot as usize);
        let (program, grid) = other.map_or((self.program, self.launch.grid), |one| (&one.program, one.grid));
        let warp = if other.is_some() { warp - first_of(slot) } else { warp };
        let function = &program.function;
        let per_cta = function.threads().div_ceil(32).max(1);
        let warps = (per_cta * function.cluster.iter().product::<u32>()).max(1);
        let (cluster, index) = (warp / warps, warp % warps);
        let rank = index / per_cta;
        let last = program.ops.len() - 1;
        let operation = &program.ops[(pc as usize).min(last)];
        Place {
            site: operation.site.clone(),
            instruction: operation.action.name(),
            gpu: other.map(|one| one.gpu),
            cta: coordinates(function.cluster, grid, cluster.into(), rank),
            rank,
            warp: index % per_cta,
            lane,
            scopes: program.scope_path(operation),
        }
    }

    pub(crate) fn trap(&self, warp: usize, stop: Stop) -> Box<Trap> {
        let (warp, pc) = stop.by.unwrap_or((warp, self.warps[warp].pc));
        let place = Some(self.place(warp, pc, stop.lane));
        let region = stop.fault.offset().and_then(|offset| self.program.function.region(offset));
        let named = |&register: &u32| self.program.function.names.get(register as usize);
        let register = stop.fault.register().as_ref().and_then(named).map(|name| name.to_string());
        Box::new(Trap {
            kernel: self.program.function.name.clone(),
            fault: *stop.fault,
            region,
            register,
            place,
        })
    }

    pub(crate) fn hang(&self) -> Box<Trap> {
        // The other lanes of a warp have ended, and never come to its bar.warp.sync.
        let alone = |index: &usize| {
            let warp = &self.warps[*index];
            !warp.exited && warp.strands.is_empty() && matches!(warp.blocked, Some(Blocked::Meet))
        };
        if let Some(warp) = (0..self.warps.len()).find(alone) {
            let (pc, active) = (self.warps[warp].pc.saturating_sub(1), self.warps[warp].registers.active);
            return self.trap(warp, Fault::Divergence { active }.by(warp, pc, None));
        }
        let exited = self.warps.iter().filter(|warp| warp.exited).count() as u32;
        self.everywhere(Fault::Hang { waiting: self.waiting(), exited })
    }

    pub(crate) fn out_of_fuel(&self) -> Box<Trap> {
        self.everywhere(Fault::Fuel { limit: self.options.fuel, warps: self.waiting() })
    }

    /// The trap of a fault that is no single instruction's.
    fn everywhere(&self, fault: Fault) -> Box<Trap> {
        let kernel = self.program.function.name.clone();
        Box::new(Trap { kernel, fault, region: None, register: None, place: None })
    }

    /// For every warp that has not exited: where it is, and what it waits for.
    fn waiting(&self) -> Vec<Waiting> {
        let alive = (0..self.warps.len()).filter(|&index| !self.warps[index].exited);
        let mut all: Vec<Waiting> = Vec::new();
        for index in alive {
            let warp = &self.warps[index];
            // Lanes that wait for other lanes of their warp are not the cause of a hang.
            let own = warp.waits_for_own(None);
            let other = (0..warp.strands.len()).find(|&strand| own && !warp.waits_for_own(Some(strand)));
            let (pc, blocked, polled) = match other.map(|index| &warp.strands[index]) {
                Some(strand) => (strand.pc, strand.blocked.as_ref(), strand.polled),
                None => (warp.pc, warp.blocked.as_ref(), warp.polled),
            };
            let advanced = match blocked {
                Some(Blocked::Mbarrier(..) | Blocked::Named { .. } | Blocked::Cluster { .. }) => true,
                Some(
                    Blocked::Warpgroup { .. }
                    | Blocked::Stores { .. }
                    | Blocked::Registers { .. }
                    | Blocked::Converge,
                ) => false,
                Some(Blocked::Meet) => true,
                None => polled.is_some(),
            };
            let pc = if advanced { pc.saturating_sub(1) } else { pc };
            let place = self.place(index, pc, None);
            let reasons = self.reasons_of(index, blocked, polled);
            all.extend(reasons.into_iter().map(|on| Waiting { place: place.clone(), on }));
        }
        all
    }

    pub(crate) fn reasons(&self, index: usize) -> Vec<Wait> {
        let warp = &self.warps[index];
        self.reasons_of(index, warp.blocked.as_ref(), warp.polled)
    }

    fn reasons_of(&self, index: usize, blocked: Option<&Blocked>, polled: Option<(u32, u32)>) -> Vec<Wait> {
        let warp = &self.warps[index];
        let cta = &self.ctas[warp.cta];
        let mbarrier = |&(offset, parity): &(u32, u32)| match cta.shared.barriers.get(&offset) {
            Some(barrier) => Wait::Mbarrier {
                offset: reported(offset),
                name: self.program.function.region(reported(offset)),
                parity,
                phase: barrier.phase,
                pending: barrier.pending,
                expected: barrier.expected,
                outstanding: barrier.tx,
            },
            None => Wait::Polling,
        };
        match blocked {
            None | Some(Blocked::Converge | Blocked::Meet) => {
                vec![polled.as_ref().map_or(Wait::Polling, mbarrier)]
            }
            Some(Blocked::Mbarrier(waiting, _)) => {
                waiting.iter().map(|&(offset, parity, _)| mbarrier(&(offset, parity))).collect()
            }
            Some(Blocked::Named { id, .. }) => {
                let barrier = &cta.named[*id];
                let (threads, arrived) = (barrier.threads, barrier.arrived);
                vec![Wait::Named { id: *id as u32, threads, arrived }]
            }
            Some(Blocked::Cluster { .. }) => {
                vec![Wait::Cluster { arrived: self.cluster.arrived, warps: self.warps.len() as u32 }]
            }
            Some(Blocked::Warpgroup { until }) => {
                let (multiply, missing) = self.missing_multiply(index, *until);
                vec![Wait::Warpgroup { multiply, missing }]
            }
            Some(Blocked::Stores { pending }) => vec![Wait::Stores { pending: *pending }],
            Some(Blocked::Registers { asked }) => {
                vec![Wait::Registers { asked: *asked, held: warp.held, free: cta.free_registers }]
            }
        }
    }
}
