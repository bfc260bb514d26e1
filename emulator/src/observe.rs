//! Recording of a trace. The machine's loop calls these functions at each operation, wait and completion;
//! they do not change the run.

use std::sync::PoisonError;

use ptx::inst::{Inst, WarpMatrix};
use ptx::{Space, Type};

use crate::flight::Store;
use crate::lanes::lanes;
use crate::machine::{Completion, Machine};
use crate::program::Action;
use crate::shared::reported;
use crate::trace::{
    Activity, Class, Event, Issued, Phase, Recorder, Run, SharedAccess, Track, together, wavefronts,
};
use crate::trap::Wait;

/// The class of an operation, derived from its name.
fn class(action: &Action) -> Class {
    let Some(inst) = action.inst() else { return Class::Compute };
    let name = inst.name();
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    match () {
        () if name == "wgmma.mma_async" => Class::Multiply,
        () if begins(&["wgmma", "mbarrier", "bar.", "barrier", "fence", "setmaxnreg"]) => Class::Synchronise,
        () if name.contains("commit_group") || name.contains("wait_group") => Class::Synchronise,
        () if begins(&["cp.", "prefetch"]) => Class::Copy,
        () if begins(&["ld.global", "st.global", "atom", "red"]) => Class::Global,
        () if begins(&["ld.shared", "st.shared", "ldmatrix", "stmatrix"]) => Class::Shared,
        () => Class::Compute,
    }
}

impl Machine<'_> {
    /// Called before an operation of a warp.
    pub(crate) fn observe(&mut self, warp: usize) {
        let Some(tracer) = &mut self.tracer else { return };
        tracer.now += u64::from(tracer.serial);
        tracer.before = [self.loads.len(), self.warps[warp].stores.len()];
        let pc = self.warps[warp].pc;
        let action = &self.program.ops[pc].action;
        if let Some(inst) = action.inst()
            && let Some((taken, ideal)) = self.conflicts((warp, self.executing(warp, action)), inst)
            && let Some(tracer) = &mut self.tracer
        {
            let counts = tracer.shared.entry(pc).or_default();
            for (count, more) in counts.iter_mut().zip([1, taken, ideal]) {
                *count += more;
            }
        }
    }

    /// Called after a warp has executed the operation at `pc`.
    pub(crate) fn observed(&mut self, warp: usize, pc: usize) {
        if self.tracer.is_none() {
            return;
        }
        self.end_wait(warp);
        let operation = &self.program.ops[pc];
        let (scope, class) = (operation.scope, class(&operation.action));
        if let Some(tracer) = &mut self.tracer {
            let now = tracer.now;
            let run = &mut tracer.warps[warp].run;
            let new = Run { class, scope, pc, start: now, end: now + 1, instructions: 1 };
            // Arithmetic joins a neighbouring run of any class.
            let joins = |open: &Run| {
                let alike = open.class == class || class == Class::Compute || open.class == Class::Compute;
                open.end == now && open.scope == scope && alike
            };
            let closed = match run {
                Some(open) if joins(open) => {
                    (open.end, open.instructions) = (now + 1, open.instructions + 1);
                    open.class = open.class.max(class);
                    None
                }
                Some(_) | None => run.replace(new),
            };
            if let Some(closed) = closed {
                self.end_run(warp, closed);
            }
        }
        self.observe_issue(warp, pc);
        if matches!(class, Class::Synchronise | Class::Copy) {
            self.observe_phases();
        }
    }

    /// Records the mbarriers that have completed a phase since the last call.
    pub(crate) fn observe_phases(&mut self) {
        let Some(tracer) = &mut self.tracer else { return };
        for (index, cta) in self.ctas.iter().enumerate() {
            for (&offset, barrier) in &cta.shared.barriers {
                let known = tracer.completed.entry((index, offset)).or_default();
                for phase in *known..barrier.phase {
                    let (offset, expected) = (reported(offset), barrier.expected);
                    tracer.phases.push(Phase { cta: cta.id, offset, phase, expected, step: tracer.now });
                }
                *known = barrier.phase;
            }
        }
    }

    /// Records the asynchronous work that the operation has just issued.
    fn observe_issue(&mut self, warp: usize, pc: usize) {
        let state = &self.warps[warp];
        let (cta, group) = (state.cta, (state.index / 4) as usize);
        let mut stage = None;
        if let Some(Inst::Wgmma { b, .. }) = self.program.ops[pc].action.inst() {
            let descriptor = state.registers.peek_wide(*b)[0];
            let start = ((descriptor & 0x3FFF) as u32) << 4;
            let landed = self.tracer.as_ref().map(|tracer| &tracer.landed);
            let below = landed.and_then(|landed| landed.range((cta, 0)..=(cta, start)).next_back());
            stage =
                below.filter(|((_, at), (bytes, _))| start - at < *bytes).and_then(|(_, (_, stage))| *stage);
        }
        let Some(tracer) = &mut self.tracer else { return };
        let [loads, stores] = tracer.before;
        for load in self.loads.iter().skip(loads) {
            let (warp, pc, lane) = load.by;
            tracer.copies.entry((warp, pc, lane, load.cta)).or_default().push_back(tracer.now);
        }
        for store in state.stores.iter().skip(stores) {
            tracer.copies.entry((warp, pc, store.lane, cta)).or_default().push_back(tracer.now);
        }
        let multiplies = matches!(self.program.ops[pc].action.inst(), Some(Inst::Wgmma { .. }));
        if multiplies && state.index.is_multiple_of(4) {
            let issued = Issued { pc, start: tracer.now, stage };
            tracer.multiplies.entry((cta, group)).or_default().0.push_back(issued);
        }
    }

    /// Called when a warp has to wait.
    pub(crate) fn observe_wait(&mut self, warp: usize, pc: usize) {
        if self.tracer.is_none() {
            return;
        }
        let on = self.reasons(warp).into_iter().next().unwrap_or(Wait::Polling);
        let stage = if let Wait::Mbarrier { offset, .. } = on {
            self.stage(self.warps[warp].cta, offset + crate::shared::BASE)
        } else {
            None
        };
        let Some(tracer) = &mut self.tracer else { return };
        let (now, state) = (tracer.now, &mut tracer.warps[warp]);
        if state.waiting.is_none() {
            state.waiting = Some((now, pc, on, stage));
        }
        if let Some(run) = state.run.take() {
            self.end_run(warp, run);
        }
    }

    /// Called before asynchronous work completes.
    pub(crate) fn observe_completion(&mut self, completion: &Completion) {
        let Some(tracer) = &self.tracer else { return };
        let now = tracer.now;
        match *completion {
            Completion::Load(index) => {
                let Some(load) = self.loads.get(index) else { return };
                let (warp, pc, lane) = load.by;
                let (cta, target, bytes) = (load.cta, load.target, load.bytes());
                let stage = self.stage(cta, load.barrier);
                let Some(tracer) = &mut self.tracer else { return };
                tracer.landed.insert((cta, target), (bytes, stage));
                let start = tracer.issued((warp, pc, lane, cta));
                self.record(cta, Track::Loads, Activity::Load { bytes }, pc, (start, now), stage);
            }
            Completion::Arrival(_) => {}
            Completion::Multiply { cta, group } => {
                let Some(tracer) = &mut self.tracer else { return };
                let (waiting, last) = tracer.multiplies.entry((cta, group)).or_default();
                let Some(Issued { pc, start, stage }) = waiting.pop_front() else { return };
                let start = start.max(*last);
                *last = now;
                if let Some(Inst::Wgmma { n, .. }) = self.program.ops[pc].action.inst() {
                    let track = Track::Multiplies(u32::try_from(group).unwrap_or(u32::MAX));
                    self.record(cta, track, Activity::Multiply { n: *n }, pc, (start, now), stage);
                }
            }
            Completion::Store { warp, index } => {
                let cta = self.warps[warp].cta;
                let Store { pc, lane, map, .. } = &self.warps[warp].stores[index];
                let (pc, lane, bytes) = (*pc, *lane, map.box_bytes());
                let Some(tracer) = &mut self.tracer else { return };
                let start = tracer.issued((warp, pc, lane, cta));
                self.record(cta, Track::Stores, Activity::Store { bytes }, pc, (start, now), None);
            }
        }
    }

    /// Called when the cluster has ended or trapped: moves all events to the recorder.
    pub(crate) fn observe_end(&mut self, recorder: &Recorder) {
        for warp in 0..self.warps.len() {
            self.end_wait(warp);
            let run = self.tracer.as_mut().and_then(|tracer| tracer.warps[warp].run.take());
            if let Some(run) = run {
                self.end_run(warp, run);
            }
        }
        let Some(tracer) = self.tracer.take() else { return };
        let mut recorded = recorder.0.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.kernel.clone_from(&self.program.function.name);
        recorded.events.extend(tracer.events);
        recorded.phases.extend(tracer.phases);
        for (pc, [executed, wavefronts, ideal]) in tracer.shared {
            let operation = &self.program.ops[pc];
            let access = recorded.shared.entry(pc).or_insert_with(|| SharedAccess {
                site: operation.site.clone(),
                instruction: operation.action.name(),
                scopes: self.program.scope_path(operation),
                executed: 0,
                wavefronts: 0,
                ideal: 0,
            });
            access.executed += executed;
            access.wavefronts += wavefronts;
            access.ideal += ideal;
        }
    }

    fn end_run(&mut self, warp: usize, run: Run) {
        let track = Track::Warp(self.warps[warp].index);
        let activity = Activity::Run { class: run.class, instructions: run.instructions };
        self.record(self.warps[warp].cta, track, activity, run.pc, (run.start, run.end), None);
    }

    fn end_wait(&mut self, warp: usize) {
        let Some(tracer) = &mut self.tracer else { return };
        let Some((start, pc, on, stage)) = tracer.warps[warp].waiting.take() else { return };
        let now = tracer.now;
        let track = Track::Warp(self.warps[warp].index);
        self.record(self.warps[warp].cta, track, Activity::Wait(on), pc, (start, now), stage);
    }

    fn record(
        &mut self,
        cta: usize,
        track: Track,
        activity: Activity,
        pc: usize,
        (start, end): (u64, u64),
        stage: Option<u32>,
    ) {
        let operation = &self.program.ops[pc];
        let (scopes, site) = (self.program.scope_path(operation), operation.site.clone());
        let cta = self.ctas[cta].id;
        if let Some(tracer) = &mut self.tracer
            && end > start
        {
            tracer.events.push(Event { cta, track, activity, stage, scopes, site, start, end });
        }
    }

    /// The position of an mbarrier among the neighbours below it that have the same arrival count.
    fn stage(&self, cta: usize, offset: u32) -> Option<u32> {
        let barriers = &self.ctas[cta].shared.barriers;
        let count = barriers.get(&offset)?.expected;
        let below = (1u32..).take_while(|index| {
            let neighbour = offset.checked_sub(index * 8).and_then(|at| barriers.get(&at));
            neighbour.is_some_and(|neighbour| neighbour.expected == count)
        });
        u32::try_from(below.count()).ok()
    }

    /// The lanes that will execute an operation of a warp.
    fn executing(&self, warp: usize, action: &Action) -> u32 {
        let registers = &self.warps[warp].registers;
        let Action::Guarded(guard, _) = action else { return registers.active };
        let cond = registers.peek_predicate(guard.cond);
        registers.active & if guard.negated { !cond } else { cond }
    }

    /// The wavefronts of an instruction's accesses to shared memory, and the ideal number; `None` if it makes
    /// none.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others do not go through the banks by lanes")]
    fn conflicts(&self, (warp, active): (usize, u32), inst: &Inst) -> Option<(u64, u64)> {
        let registers = &self.warps[warp].registers;
        let vector = |ty: &Type, count: usize| ty.bytes() * u32::try_from(count).unwrap_or(0);
        let (base, offset, bytes) = match inst {
            Inst::Load { space: Space::Shared, ty, dst, address } => {
                (address.base, address.offset, vector(ty, dst.len()))
            }
            Inst::Store { space: Space::Shared, ty, src, address } => {
                (address.base, address.offset, vector(ty, src.len()))
            }
            Inst::StoreMatrix { address, src, .. } => return Some(self.matrices(warp, *address, src.len())),
            Inst::WarpMatrix(WarpMatrix::Load { dst, address, .. }) => {
                return Some(self.matrices(warp, *address, dst.len()));
            }
            _ => return None,
        };
        let addresses = registers.peek(base);
        let mut places = [None; 32];
        for lane in lanes(active) {
            places[lane] = Some(addresses[lane].wrapping_add_signed(offset) & 0xFF_FFFF);
        }
        Some(wavefronts(&places, bytes, together(bytes)))
    }

    /// The wavefronts of matrices of eight rows of 16 bytes. Each row's address comes from a different lane.
    fn matrices(&self, warp: usize, address: ptx::Operand, count: usize) -> (u64, u64) {
        let addresses = self.warps[warp].registers.peek(address);
        let rows: Vec<Option<u32>> =
            addresses.iter().take(count * 8).map(|address| Some(address & 0xFF_FFFF)).collect();
        wavefronts(&rows, 16, 8)
    }
}
