//! Named barriers, the cluster barrier, mbarriers and fences.

use ptx::Scope;
use ptx::inst::barrier::EVERYONE;
use ptx::inst::{BarrierOp, BarrierReduce, LooseBarrier, Operand, ProxySpace, Reg};

use super::Flow;
use crate::barrier::ClusterBarrier;
use crate::lanes::{ALL, Lanes, lanes};
use crate::machine::Machine;
use crate::meetings::Point;
use crate::trap::{Fault, Stop};
use crate::warp::Blocked;

impl Machine<'_> {
    /// `bar.sync` and `bar.arrive`: every warp counts all its threads.
    pub(super) fn named_barrier(
        &mut self,
        warp: usize,
        id: Operand,
        threads: u32,
        wait: bool,
    ) -> Result<Flow, Stop> {
        self.warps[warp].converged()?;
        let id = self.warps[warp].registers.uniform(id, "barrier number")?;
        self.come_to_barrier(warp, id, threads, wait, (0, 0))
    }

    /// A barrier without `.aligned`. Lanes of a warp wait there for the others, and come to it together.
    pub(super) fn loose(&mut self, warp: usize, barrier: LooseBarrier) -> Result<Flow, Stop> {
        match barrier {
            LooseBarrier::Sync { id, threads } => self.named_barrier(warp, id, threads, true),
            LooseBarrier::Arrive { id, threads } => self.named_barrier(warp, id, threads, false),
            LooseBarrier::ClusterArrive { relaxed } => self.cluster_arrive(warp, relaxed),
            LooseBarrier::ClusterWait => self.cluster_wait(warp),
        }
    }

    /// `bar.red`: the result is written when the warp continues.
    pub(super) fn barrier_reduce(&mut self, index: usize, reduce: &BarrierReduce) -> Result<Flow, Stop> {
        let BarrierReduce { op, id, threads, dst, src } = reduce;
        self.warps[index].converged()?;
        let registers = &mut self.warps[index].registers;
        let active = registers.active;
        let (id, trues) = (registers.uniform(*id, "barrier number")?, registers.predicate(*src)? & active);
        let votes = (trues.count_ones(), active.count_ones());
        let flow = self.come_to_barrier(index, id, *threads, true, votes)?;
        let warp = &mut self.warps[index];
        if matches!(flow, Flow::Block(_)) {
            warp.reduces = Some((*op, *dst));
        } else {
            let barrier = &self.ctas[warp.cta].named[id as usize];
            let last = barrier.results.last_key_value().map_or((0, 0), |(_, &result)| result);
            warp.write_reduced(*op, *dst, last)?;
        }
        Ok(flow)
    }

    fn come_to_barrier(
        &mut self,
        warp: usize,
        id: u32,
        threads: u32,
        wait: bool,
        (trues, voters): (u32, u32),
    ) -> Result<Flow, Stop> {
        let view = self.publish(warp);
        let index = warp;
        self.come(index, id);
        let everyone = threads == EVERYONE;
        let threads = if everyone { self.not_exited(self.warps[index].cta) } else { threads };
        let warp = &mut self.warps[index];
        let barriers = &mut self.ctas[warp.cta].named;
        let barrier = barriers.get_mut(id as usize).ok_or(Fault::BarrierId { id })?;
        if barrier.arrived == 0 {
            (barrier.threads, barrier.everyone) = (threads, everyone);
        } else if barrier.threads != threads {
            return Err(Fault::BarrierThreads { id, first: barrier.threads, this: threads }.into());
        }
        let bit = 1u32.checked_shl(warp.index).unwrap_or(0);
        // A warp that has arrived may also wait: the barrier counts it twice. So a warpgroup gives itself the first turn.
        if barrier.warps & bit != 0 && (!wait || barrier.waiting & bit != 0) {
            return Err(Fault::BarrierTwice { id }.into());
        }
        barrier.waiting |= if wait { bit } else { 0 };
        barrier.warps |= bit;
        barrier.last = (index, warp.pc);
        barrier.arrived += 32;
        barrier.votes = (barrier.votes.0 + trues, barrier.votes.1 + voters);
        barrier.gathered.join(&view);
        let generation = barrier.generation;
        let complete = barrier.complete();
        if complete && wait {
            warp.views.learn(ALL, &barrier.released);
            let cta = warp.cta;
            self.passes(index, ALL, Point::Named { cta, id: id as usize, generation });
        } else if wait {
            return Ok(Flow::Block(Blocked::Named { id: id as usize, generation }));
        }
        Ok(Flow::Next)
    }

    /// Notes that a warp comes to a barrier.
    fn come(&self, warp: usize, id: u32) {
        let cta = self.warps[warp].cta;
        if let Some(barrier) = self.ctas[cta].named.get(id as usize) {
            self.arrives(warp, ALL, Point::Named { cta, id: id as usize, generation: barrier.generation });
        }
    }

    /// Number of threads of a CTA that have not exited, in whole warps.
    fn not_exited(&self, cta: usize) -> u32 {
        self.warps.iter().filter(|warp| warp.cta == cta && !warp.exited).map(|_| 32).sum()
    }

    /// Called when a warp of a CTA has exited: barriers of all its threads no longer wait for it. ISA "exit".
    pub(super) fn barriers_exit(&mut self, cta: usize) {
        let threads = self.not_exited(cta);
        for barrier in self.ctas[cta].named.iter_mut().filter(|barrier| barrier.everyone) {
            barrier.threads = threads;
            let _all = barrier.complete();
        }
    }

    pub(super) fn cluster_arrive(&mut self, index: usize, relaxed: bool) -> Result<Flow, Stop> {
        let warp = &mut self.warps[index];
        warp.converged()?;
        if warp.cluster_arrival.is_some() {
            return Err(Fault::ClusterBarrier { arrive: true }.into());
        }
        warp.cluster_arrival = Some(self.cluster.generation);
        self.arrives(index, ALL, Point::Cluster { generation: self.cluster.generation });
        let warp = &self.warps[index];
        self.cluster.arrived += 1;
        self.cluster.gathered.started |= 1 << self.ctas[warp.cta].rank;
        if !relaxed {
            let view = self.publish(index);
            self.cluster.gathered.join(&view);
        } else {
            // A fence followed by a relaxed arrival is a release.
            self.cluster.gathered.join(&self.warps[index].views.fenced_all(Scope::Cluster));
        }
        self.cluster_check();
        Ok(Flow::Next)
    }

    pub(super) fn cluster_wait(&mut self, index: usize) -> Result<Flow, Stop> {
        let warp = &mut self.warps[index];
        warp.converged()?;
        let generation = warp.cluster_arrival.take().ok_or(Fault::ClusterBarrier { arrive: false })?;
        if generation == self.cluster.generation {
            Ok(Flow::Block(Blocked::Cluster { generation }))
        } else {
            warp.views.learn(ALL, &self.cluster.released);
            self.passes(index, ALL, Point::Cluster { generation });
            Ok(Flow::Next)
        }
    }

    /// Called when a warp has exited: the cluster barrier no longer waits for it.
    pub(super) fn cluster_exit(&mut self) {
        if self.cluster.arrived > 0 {
            self.cluster_check();
        }
    }

    fn cluster_check(&mut self) {
        let generation = self.cluster.generation;
        let missing = |warp: &&crate::warp::Warp<'_>| !warp.exited && !arrived(warp, generation);
        if !self.warps.iter().any(|warp| missing(&warp)) {
            let barriers = self.ctas.iter_mut().flat_map(|cta| cta.shared.barriers.values_mut());
            barriers.for_each(|barrier| barrier.public |= !barrier.fences.is_empty());
            let released = core::mem::take(&mut self.cluster.gathered);
            self.cluster =
                ClusterBarrier { generation: generation + 1, released, ..ClusterBarrier::default() };
        }
    }

    // ---- fences ----

    pub(super) fn fence_mbarrier_init(&mut self, warp: usize) -> Result<Flow, Stop> {
        self.fence_barriers(warp, false);
        Ok(Flow::Next)
    }

    pub(super) fn fence_proxy(&mut self, index: usize, space: ProxySpace) -> Result<Flow, Stop> {
        let warp = &self.warps[index];
        let (ranks, global) = match space {
            // Only the memory of the thread's own CTA. ISA "membar/fence": .shared::cta.
            ProxySpace::Shared => (warp.cta..warp.cta + 1, false),
            ProxySpace::SharedCluster => (0..self.ctas.len(), false),
            ProxySpace::Global => (0..0, true),
            ProxySpace::All => (0..self.ctas.len(), true),
        };
        if !ranks.is_empty() {
            self.fence_barriers(index, true);
        }
        let active = self.warps[index].registers.active;
        self.warps[index].views.fence_proxy(active, (ranks, global));
        Ok(Flow::Next)
    }
}

impl crate::warp::Warp<'_> {
    /// Writes the result of a barrier reduction, from the number of true predicates and the number of
    /// threads.
    pub(crate) fn write_reduced(
        &mut self,
        op: BarrierOp,
        dst: Reg,
        (trues, all): (u32, u32),
    ) -> Result<(), Fault> {
        let whole = |holds: bool| if holds { u32::MAX } else { 0 };
        match op {
            BarrierOp::Population => self.registers.write(dst, &[trues; 32]),
            BarrierOp::And => self.registers.write_predicate(dst, whole(trues == all)),
            BarrierOp::Or => self.registers.write_predicate(dst, whole(trues > 0)),
        }
    }
}

/// Groups of lanes with equal values in `a` and in `b`, each with its first lane.
pub(super) fn alike<T: PartialEq, U: PartialEq>(
    a: &Lanes<T>,
    b: &Lanes<U>,
    active: u32,
) -> Vec<(u32, usize)> {
    let mut groups: Vec<(u32, usize)> = Vec::with_capacity(1);
    for lane in lanes(active) {
        match groups.iter_mut().find(|(_, first)| a[*first] == a[lane] && b[*first] == b[lane]) {
            Some((mask, _)) => *mask |= 1 << lane,
            None => groups.push((1 << lane, lane)),
        }
    }
    groups
}

/// Whether a warp has arrived in this generation, whether it waits already or not.
fn arrived(warp: &crate::warp::Warp<'_>, generation: u64) -> bool {
    let waits = matches!(warp.blocked, Some(Blocked::Cluster { generation: at }) if at == generation);
    warp.cluster_arrival == Some(generation) || waits
}
