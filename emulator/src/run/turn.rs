//! One turn of a warp: which of its lanes run, how far, and when they have to wait.

use ptx::inst::{Arrival, Inst, MbarrierArrive, MbarrierTest, OrderedInst, Scope, WarpInst};

use crate::lanes::ALL;
use crate::machine::Machine;
use crate::meetings::Point;
use crate::program::Action;
use crate::schedule::Schedule;
use crate::shared::reported;
use crate::step::Flow;
use crate::trap::{Fault, Stop, Trap};
use crate::warp::{Blocked, Warp};

/// Number of consecutive polls without a new value, after which other lanes of the warp run.
const SPINS: u32 = 64;
/// How often a cluster is found to only wait, before lanes that wait for others of their warp go ahead alone.
const STUCK: u32 = 4;

/// The result of a warp's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The warp executed something, then had to stop.
    Progress,
    /// The warp used its whole quantum: it may compute or poll memory.
    Long,
    /// The warp only polled, without success.
    Idle,
}

/// Whether an operation changes a word that other CTAs may wait for.
fn signals(action: &Action) -> bool {
    matches!(action.inst(), Some(Inst::Ordered(OrderedInst::Store { order, .. })) if order.scope() != Scope::Cta)
        || matches!(action.inst(), Some(Inst::Atomic(atomic)) if atomic.scope != Scope::Cta)
}

/// Whether other warps in the cluster may wait for an operation. After such an operation a random schedule
/// sometimes ends the turn, so that the others run before this warp continues.
fn hands_on(action: &Action) -> bool {
    // An arrival that announces bytes completes no phase.
    matches!(
        action.inst(),
        Some(
            Inst::TensorLoad { .. }
                | Inst::TensorStore { reduce: Some(_), .. }
                | Inst::Bulk(_)
                | Inst::MbarrierArrive(MbarrierArrive {
                    arrival: Arrival::Count(_) | Arrival::NoComplete(_),
                    ..
                })
                | Inst::MbarrierTransact { complete: true, .. }
                | Inst::MbarrierTest(MbarrierTest { patient: false, .. })
        )
    )
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other fault says that lanes are missing")]
/// Whether lanes wait at an operation for others of their warp, which come to it later.
fn gathers(action: &Action, stop: &Stop) -> bool {
    let missing = match *stop.fault {
        Fault::Divergence { .. } => true,
        Fault::Members { members, active } => active & !members == 0,
        _ => false,
    };
    missing && matches!(action.inst(), Some(Inst::Loose(_) | Inst::Warp(WarpInst::Sync { .. })))
}

impl Machine<'_> {
    /// Executes up to `quantum` operations of a warp that is ready.
    pub(super) fn turn(&mut self, warp: usize, quantum: u32) -> Result<Turn, Box<Trap>> {
        self.warps[warp].blocked = None;
        if let Some(fault) = self.warps[warp].missed.take() {
            let pc = self.warps[warp].pc.saturating_sub(1);
            return Err(self.trap(warp, fault.by(warp, pc, None)));
        }
        let traced = self.tracer.is_some();
        for executed in 0..quantum {
            let Some(fuel) = self.fuel.checked_sub(1) else { return Err(self.out_of_fuel()) };
            self.fuel = fuel;
            let pc = self.warps[warp].pc;
            if traced {
                self.observe(warp);
            }
            let flow = self.step_together(warp)?;
            let state = &mut self.warps[warp];
            state.since_poll = state.since_poll.saturating_add(1);
            let end = if executed == 0 { Turn::Idle } else { Turn::Progress };
            match flow {
                Flow::Next => state.pc += 1,
                Flow::Jump(target) => state.pc = target,
                Flow::Yield => {
                    state.pc += 1;
                    state.since_poll = 0;
                    self.observe_wait(warp, pc);
                    let _some = self.warps[warp].fork();
                    self.rotate(warp);
                    return Ok(Turn::Idle);
                }
                Flow::Block(blocked) => {
                    state.pc += 1;
                    state.blocked = Some(blocked);
                    self.observe_wait(warp, pc);
                    return Ok(Turn::Progress);
                }
                Flow::Retry(blocked) => {
                    state.blocked = Some(blocked);
                    self.observe_wait(warp, pc);
                    return Ok(end);
                }
                Flow::Join => {
                    self.rotate(warp);
                    return Ok(Turn::Progress);
                }
                Flow::Exit => return Ok(Turn::Progress),
            }
            let apart = !self.warps[warp].strands.is_empty();
            if self.options.schedule == Schedule::Random && apart && self.random.next().is_multiple_of(8) {
                // Branches of a warp may run in any order.
                let _some = self.warps[warp].fork();
            }
            if traced {
                self.observed(warp, pc);
            }
            if self.warps[warp].fruitless > 0 && self.warps[warp].fruitless.is_multiple_of(SPINS) {
                // The value that it polls for may come from its own lanes.
                let state = &mut self.warps[warp];
                state.fruitless += 1;
                let _some = state.fork().is_some() || state.own_word && state.go_ahead();
                break;
            }
            if self.options.schedule == Schedule::Random && self.gives_way(pc) {
                break;
            }
        }
        self.rotate(warp);
        // A loop around a poll is no more than the poll.
        Ok(if self.warps[warp].since_poll < SPINS { Turn::Idle } else { Turn::Long })
    }

    /// Executes an operation. If it needs lanes that are elsewhere, it waits for them.
    fn step_together(&mut self, warp: usize) -> Result<Flow, Box<Trap>> {
        let pc = self.warps[warp].pc;
        let flow = self.step(warp);
        if self.options.warnings.is_some() {
            self.warn_of_unwritten(self.warps[warp].cta, (warp, pc, None));
        }
        match flow {
            Err(stop)
                if self.warps[warp].may_converge(&stop) || gathers(&self.program.ops[pc].action, &stop) =>
            {
                let state = &mut self.warps[warp];
                let before = state.registers.active;
                state.converge();
                let active = state.registers.active;
                let whole = active == state.registers.alive;
                state.ahead &= !(whole && state.strands.is_empty());
                Ok(if whole || active != before { Flow::Jump(pc) } else { Flow::Retry(Blocked::Converge) })
            }
            flow => flow.map_err(|stop| self.trap(warp, stop)),
        }
    }

    /// Whether a random schedule ends a turn after this operation.
    fn gives_way(&mut self, pc: usize) -> bool {
        let action = &self.program.ops[pc].action;
        if hands_on(action) && self.random.next().is_multiple_of(8) {
            return true;
        }
        let signals = signals(action);
        self.signalled |= signals;
        signals
    }

    /// Switches to other lanes of a warp, if some are elsewhere in the program.
    fn rotate(&mut self, warp: usize) {
        if self.options.schedule != Schedule::Random && self.warps[warp].strands.is_empty() {
            return;
        }
        let free = self.warps[warp].free_strands();
        let must = self.warps[warp].waits_for_others(None);
        let choice = match self.options.schedule {
            Schedule::Random => self.random.next() as usize,
            Schedule::Default | Schedule::Earliest | Schedule::Latest | Schedule::Paced => 0,
        };
        if !free.is_empty() && (must || choice % 2 == 0) {
            let state = &mut self.warps[warp];
            let index = free[choice / 2 % free.len()];
            state.swap(index);
            // The strand that has just run goes to the end.
            let strand = state.strands.remove(index);
            state.strands.push(strand);
        }
    }

    /// Whether any lanes of a warp can continue. Makes them the current ones.
    pub(super) fn ready(&mut self, index: usize) -> bool {
        if self.ready_strand(index) {
            return true;
        }
        if self.warps[index].exited || self.warps[index].strands.is_empty() {
            return false;
        }
        for other in self.warps[index].free_strands() {
            self.warps[index].swap(other);
            if self.ready_strand(index) {
                return true;
            }
            self.warps[index].swap(other);
        }
        let forked = self.warps[index].fork();
        if let Some(other) = forked {
            self.warps[index].swap(other);
        }
        forked.is_some()
    }

    /// Lets lanes that wait for others of their warp go ahead alone, as nothing else can run. Returns whether
    /// there are any.
    pub(super) fn go_ahead(&mut self) -> bool {
        let mut waiting = self.warps.iter_mut().filter(|warp| !warp.exited);
        let found = waiting.any(Warp::go_ahead);
        if found {
            self.stuck = 0;
            self.idle = 0;
            self.fruitless = 0;
        }
        found
    }

    /// Counts a round in which warps only waited. Returns whether lanes then went ahead alone.
    pub(super) fn is_stuck(&mut self) -> bool {
        self.stuck += 1;
        self.stuck >= STUCK && self.go_ahead()
    }

    /// Whether the current lanes of a warp can continue.
    fn ready_strand(&mut self, index: usize) -> bool {
        if self.watch.is_none() {
            return self.is_ready(index);
        }
        let before = self.waits_for(index);
        let ready = self.is_ready(index);
        let after = self.waits_for(index);
        for (offset, _, lanes) in before.iter().filter(|one| !after.contains(one)) {
            self.passes_at(index, *lanes, *offset);
        }
        if ready {
            self.has_waited(index);
        }
        ready
    }

    /// The mbarriers that a warp waits for.
    fn waits_for(&self, index: usize) -> Vec<(u32, u32, u32)> {
        match &self.warps[index].blocked {
            Some(Blocked::Mbarrier(waiting, _)) => waiting.clone(),
            _ => Vec::new(),
        }
    }

    /// Notes which barrier a warp has waited for.
    fn has_waited(&self, index: usize) {
        let warp = &self.warps[index];
        if let Some(&Blocked::Named { id, generation }) = warp.blocked.as_ref() {
            self.passes(index, ALL, Point::Named { cta: warp.cta, id, generation });
        }
        if let Some(&Blocked::Cluster { generation }) = warp.blocked.as_ref() {
            self.passes(index, ALL, Point::Cluster { generation });
        }
    }

    fn is_ready(&mut self, index: usize) -> bool {
        let warp = &mut self.warps[index];
        if warp.exited {
            return false;
        }
        let cta = &self.ctas[warp.cta];
        let (group, held) = ((warp.index / 4) as usize, warp.held);
        match &mut warp.blocked {
            None => true,
            Some(Blocked::Mbarrier(waiting, order)) => {
                let (views, missed) = (&mut warp.views, &mut warp.missed);
                waiting.retain(|(offset, parity, lanes)| {
                    let Some(barrier) = cta.shared.barriers.get(offset) else { return false };
                    if let Err(fault) = views.in_time(*lanes, barrier, (reported(*offset), *parity)) {
                        *missed = Some(fault);
                        return false;
                    }
                    let passed = barrier.passed(*parity);
                    if passed {
                        views.acquire(*lanes, barrier, *order);
                    }
                    !passed
                });
                waiting.is_empty()
            }
            Some(Blocked::Named { id, generation }) => {
                let barrier = &cta.named[*id];
                let passed = barrier.generation != *generation;
                if passed {
                    warp.views.learn(ALL, &barrier.released);
                    let result = barrier.results.get(generation).copied().unwrap_or_default();
                    if let Some((op, dst)) = warp.reduces.take() {
                        warp.missed = warp.write_reduced(op, dst, result).err();
                    }
                }
                passed
            }
            Some(Blocked::Cluster { generation }) => {
                let passed = self.cluster.generation != *generation;
                if passed {
                    warp.views.learn(ALL, &self.cluster.released);
                }
                passed
            }
            Some(Blocked::Warpgroup { until }) => {
                cta.warpgroups.get(group).is_some_and(|group| group.done() >= *until)
            }
            Some(Blocked::Stores { pending }) => {
                let pending = *pending;
                warp.stores_done(pending)
            }
            Some(Blocked::Registers { asked }) => cta.free_registers + 32 * held >= 32 * *asked,
            Some(Blocked::Converge | Blocked::Meet) => false,
        }
    }
}
