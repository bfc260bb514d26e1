//! One cluster: its CTAs, their warps, and the schedule that runs them to the end.

mod pace;

use pace::Pace;

use std::collections::{BTreeMap, VecDeque};

use ptx::inst::{Inst, Ordered, Scope};

use crate::clock::Team;
use crate::launch::Launch;
use crate::memory::Memory;
use crate::program::{Action, Program};
use crate::race::SharedRaces;
use crate::residents::{Outcome, Standing};
use crate::schedule::{Options, Random, Schedule};
use crate::shared::{Places, Shared, reported};
use crate::step::Flow;
use crate::step::{Arrival, ClusterBarrier, Load, NamedBarrier, Scratch, Warpgroup};
use crate::trace::Tracer;
use crate::trap::{Fault, Place, Stop, Trap, Wait, Waiting};
use crate::warp::{ALL, Blocked, Warp};
use crate::word::Word;

/// Instructions of a warp's turn under the schedules that go round.
const TURN: u32 = 4096;
/// Turns of warps after which a cluster lets others run under random schedules, on average.
const TURNS_OF_CLUSTER: usize = 64;
/// The same behind a store, an atomic or a reduction that other CTAs may wait for: what its CTA still does should come too
/// late for them now and then.
const SIGNALS_OF_CLUSTER: usize = 2;
/// Looks in a row that found nothing new, after which a cluster lets others run.
const LOOKS: u32 = 256;
/// Looks in a row of some lanes of a warp that found nothing new, after which others of it have a turn.
const SPINS: u32 = 64;
/// Times that a cluster only waits, after which lanes go ahead that wait for others of their warp.
const STUCK: u32 = 4;
/// Rounds without progress after which polling warps count as hung.
const IDLE_ROUNDS: u32 = 1 << 16;

/// One CTA.
#[derive(Debug)]
pub(crate) struct Cta {
    /// Coordinates in the grid.
    pub(crate) id: [u32; 3],
    /// Rank in the cluster, and index in [`Machine::ctas`].
    pub(crate) rank: u32,
    pub(crate) shared: Shared,
    pub(crate) named: [NamedBarrier; 16],
    pub(crate) warpgroups: Vec<Warpgroup>,
    /// Accesses of threads to its shared memory, and the words that they access in one step.
    pub(crate) races: SharedRaces,
    pub(crate) words: BTreeMap<u32, Word>,
    /// The last access of other CTAs' threads, by warp and lanes: in which of the warp's steps, by which operation.
    pub(crate) touched: BTreeMap<(usize, u32), (u32, usize)>,
    /// Their last arrivals at each of its mbarriers.
    pub(crate) arrivals: BTreeMap<(usize, u32), Arrived>,
    /// Registers that `setmaxnreg` can hand out.
    pub(crate) free_registers: u32,
    pub(crate) exited: bool,
}

/// An arrival of a warp of another CTA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) lanes: u32,
    /// In which of the warp's steps, by which operation.
    pub(crate) count: u32,
    pub(crate) pc: usize,
    /// Where clocks count the mbarrier's phases, and the phase: who knows that it has completed knows of the arrival.
    pub(crate) phase: (usize, u32),
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) ctas: u64,
    pub(crate) instructions: u64,
    pub(crate) wgmmas: u64,
    pub(crate) multiply_adds: u64,
    pub(crate) tensor_loads: u64,
    pub(crate) tensor_stores: u64,
}

/// A cluster in execution.
#[derive(Debug)]
pub(crate) struct Machine<'p> {
    pub(crate) program: &'p Program,
    pub(crate) launch: &'p Launch,
    pub(crate) memory: &'p Memory,
    pub(crate) options: Options<'p>,
    pub(crate) ctas: Vec<Cta>,
    /// Warps of all CTAs, CTA by CTA.
    pub(crate) warps: Vec<Warp<'p>>,
    pub(crate) cluster: ClusterBarrier,
    /// Which warps of the grid these are.
    pub(crate) team: Team,
    /// Looks in a row at words that others change, and have not changed.
    pub(crate) fruitless: u32,
    pub(crate) standing: Standing,
    /// Rounds in which nothing but polling happened.
    idle: u32,
    /// Times that all warps only looked or polled, since something else happened.
    stuck: u32,
    pace: Pace,
    /// Tensor loads in flight, oldest first.
    pub(crate) loads: VecDeque<Load>,
    /// Arrivals that come when threads' own copies are done, oldest first.
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) counts: Counts,
    pub(crate) scratch: Scratch,
    /// A row of a box.
    pub(crate) buffer: Vec<u8>,
    /// Who writes down what happens, if anybody wants to know.
    pub(crate) tracer: Option<Box<Tracer>>,
    random: Random,
    /// A warp's last turn ended with something that other clusters may wait for.
    signalled: bool,
    /// The order in which warps are favoured under random schedules with odd seeds.
    ranks: Vec<u64>,
    fuel: u64,
}

/// A piece of asynchronous work that could be done now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Completion {
    /// The load at this position.
    Load(usize),
    /// The arrival at this position.
    Arrival(usize),
    /// The next multiply of a warpgroup.
    Multiply { cta: usize, group: usize },
    /// A tensor store of a warp.
    Store { warp: usize, index: usize },
}

/// How a warp's turn went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It executed something, and stopped because it had to.
    Progress,
    /// It used its whole quantum: perhaps it computes, perhaps it polls memory.
    Long,
    /// It did nothing but find that what it polls for has not happened.
    Idle,
}

/// Registers that a CTA is launched with, a thread, as ptxas chooses them: all there are, in steps of 8, but no
/// more than the most that a `setmaxnreg.inc` asks for.
fn entry_registers(program: &Program) -> u32 {
    let function = &program.function;
    let all = function.target.limits().registers / function.threads.max(1);
    let asked = program.ops.iter().filter_map(|operation| {
        let Action::Inst(Inst::SetMaxRegisters { grow: true, count }) = &operation.action else {
            return None;
        };
        Some(*count)
    });
    (all / 8 * 8).min(asked.max().unwrap_or(256)).min(256)
}

/// Whether an operation changes a word that other CTAs may wait for.
fn signals(action: &Action) -> bool {
    matches!(action, Action::Inst(Inst::Ordered(Ordered::Store { order, .. })) if order.scope() != Scope::Cta)
        || matches!(action, Action::Inst(Inst::Atomic(atomic)) if atomic.scope != Scope::Cta)
}

/// Whether others in the cluster may wait for an operation: what follows it should come too late for them now and then.
fn hands_on(action: &Action) -> bool {
    matches!(
        action,
        Action::Inst(
            Inst::TensorLoad { .. } | Inst::Bulk(_) | Inst::MbarrierArrive { .. } | Inst::MbarrierMore(_)
        )
    )
}

/// Coordinates in the grid of the CTA of rank `rank` in cluster `cluster`.
fn coordinates([cx, cy, cz]: [u32; 3], grid: [u32; 3], cluster: u64, rank: u32) -> [u32; 3] {
    let across = |extent: u32, by: u32| u64::from(extent / by.max(1)).max(1);
    let (width, height) = (across(grid[0], cx), across(grid[1], cy));
    let (x, y, z) = (cluster % width, cluster / width % height, cluster / width / height);
    [
        x as u32 * cx + rank % cx.max(1),
        y as u32 * cy + rank / cx.max(1) % cy.max(1),
        z as u32 * cz + rank / cx.max(1) / cy.max(1),
    ]
}

impl<'p> Machine<'p> {
    /// The cluster at position `cluster` of the grid of clusters.
    pub(crate) fn new(
        program: &'p Program,
        launch: &'p Launch,
        memory: &'p Memory,
        options: Options<'p>,
        cluster: u64,
    ) -> Self {
        let function = &program.function;
        let [cx, cy, cz] = function.cluster;
        let held = entry_registers(program);
        let warps_per_cta = function.threads / 32;
        let all = cx * cy * cz * warps_per_cta;
        let groups = warps_per_cta.div_ceil(4);
        let cta = |rank: u32| Cta {
            id: coordinates(function.cluster, launch.grid, cluster, rank),
            rank,
            shared: Shared::new(function.shared_bytes).counted(Places {
                multiplies: all + rank * groups,
                barriers: all + cx * cy * cz * groups + rank,
                step: cx * cy * cz,
            }),
            races: SharedRaces::default(),
            words: BTreeMap::new(),
            touched: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            named: Default::default(),
            warpgroups: vec![Warpgroup::default(); groups as usize],
            free_registers: 0,
            exited: false,
        };
        let ctas: Vec<Cta> = (0..cx * cy * cz).map(cta).collect();
        let per_cta = warps_per_cta as usize;
        let warp = |cta: usize| {
            (0..warps_per_cta)
                .map(move |index| Warp::new(program, (cta, index), cta * per_cta + index as usize, held))
        };
        let warps: Vec<Warp<'p>> = (0..ctas.len()).flat_map(warp).collect();
        let team = Team { first: (cluster as u32).wrapping_mul(all), warps: all, per_cta: warps_per_cta };
        let serial = options.schedule != Schedule::Paced;
        let tracer = options.trace.map(|_| Box::new(Tracer::new(warps.len(), serial)));
        Self {
            program,
            launch,
            memory,
            options,
            ctas,
            warps,
            cluster: ClusterBarrier::default(),
            team,
            fruitless: 0,
            standing: Standing::default(),
            idle: 0,
            stuck: 0,
            pace: Pace::default(),
            loads: VecDeque::new(),
            arrivals: VecDeque::new(),
            counts: Counts::default(),
            scratch: Scratch::default(),
            buffer: Vec::new(),
            tracer,
            random: Random::new(options.seed, cluster),
            signalled: false,
            ranks: Vec::new(),
            fuel: options.fuel,
        }
    }

    /// Runs every warp to its end, or until all wait for other clusters, or until it pleases, where it `yields`; then it can
    /// run again.
    pub(crate) fn run(&mut self, yields: bool) -> Result<Outcome, Box<Trap>> {
        // What was waited for in an earlier run may have come.
        (self.fruitless, self.idle) = (0, 0);
        match self.options.schedule {
            Schedule::Default | Schedule::Earliest | Schedule::Latest => self.run_rounds(),
            Schedule::Paced => self.run_paced(),
            Schedule::Random => self.run_random(yields),
        }
    }

    /// Whether a cluster that was set aside may have something to do: a warp that can go on does not look at words, or one
    /// of the words has changed.
    pub(crate) fn is_stirred(&self) -> bool {
        self.warps.iter().any(|warp| {
            let changed = |&(address, bytes, seen): &(u64, usize, u64)| {
                let mut buffer = [0; 8];
                let loaded = self.memory.load(address, &mut buffer[..bytes.min(8)]);
                loaded.is_err() || u64::from_le_bytes(buffer) != seen
            };
            let looks = !warp.watched.is_empty();
            !warp.exited && warp.blocked.is_none() && (!looks || warp.watched.iter().any(changed))
        })
    }

    /// The last run is over, well or not.
    pub(crate) fn finish(&mut self) {
        if let Some(recorder) = self.options.trace {
            self.observe_end(recorder);
        }
    }

    /// A number that the seed decides.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// Something has happened that is no waiting.
    fn goes_on(&mut self) {
        self.fruitless = 0;
        self.idle = 0;
        self.stuck = 0;
        self.launch.progress.goes_on(&mut self.standing);
    }

    fn run_rounds(&mut self) -> Result<Outcome, Box<Trap>> {
        let backwards = self.options.schedule == Schedule::Latest;
        let count = self.warps.len();
        while self.warps.iter().any(|warp| !warp.exited) {
            let (mut progress, mut long, mut polled) = (false, false, false);
            for position in 0..count {
                let warp = if backwards { count - 1 - position } else { position };
                if self.ready(warp) {
                    match self.turn(warp, TURN)? {
                        Turn::Progress => progress = true,
                        Turn::Long => long = true,
                        Turn::Idle => polled |= self.warps[warp].may_run(),
                    }
                }
            }
            if progress {
                self.goes_on();
                continue;
            }
            let completion = if backwards { self.last_completion() } else { self.first_completion() };
            match completion {
                Some(completion) => {
                    self.happen(completion)?;
                    self.goes_on();
                }
                None if self.fruitless >= LOOKS => {
                    if !self.is_stuck() {
                        return Ok(Outcome::Waits);
                    }
                }
                None if long => self.idle = 0,
                None if polled && self.idle < IDLE_ROUNDS => {
                    self.idle += 1;
                    let _some = self.idle.is_multiple_of(LOOKS) && self.is_stuck();
                }
                None if self.go_ahead() => {}
                None => return Err(self.hang()),
            }
        }
        Ok(Outcome::Done)
    }

    /// With odd seeds warps have ranks: the first that can go on nearly always does, so that others fall far behind.
    fn run_random(&mut self, yields: bool) -> Result<Outcome, Box<Trap>> {
        while self.ranks.len() < self.warps.len() {
            self.ranks.push(self.random.next());
        }
        let ranked = self.options.seed % 2 == 1;
        while self.warps.iter().any(|warp| !warp.exited) {
            let mut ready = Vec::with_capacity(self.warps.len());
            for warp in 0..self.warps.len() {
                if self.ready(warp) {
                    ready.push(warp);
                }
            }
            let mut turn = Turn::Idle;
            if !ready.is_empty() {
                let any = ready[self.random.below(ready.len())];
                let first = ready.iter().copied().min_by_key(|&warp| self.ranks[warp]).unwrap_or(any);
                let warp = if ranked && self.random.below(32) > 0 { first } else { any };
                let quantum = 1 + self.random.below(64) as u32;
                self.signalled = false;
                turn = self.turn(warp, quantum)?;
                // Who only looks must not keep others from what it looks for.
                if turn == Turn::Idle || self.random.below(64) == 0 {
                    self.ranks[warp] = self.random.next();
                }
            }
            let mut happened = false;
            if ready.is_empty() || self.random.below(2) == 0 {
                let mut completions: Vec<Completion> = self.completions().collect();
                if !completions.is_empty() {
                    let index = self.random.below(completions.len());
                    self.happen(completions.swap_remove(index))?;
                    happened = true;
                }
            }
            self.idle = if turn != Turn::Idle || happened { 0 } else { self.idle + 1 };
            if turn == Turn::Progress || happened {
                self.goes_on();
            }
            if self.idle > 0 && self.idle.is_multiple_of(LOOKS) {
                let _some = self.is_stuck();
            }
            if ((ready.is_empty() && !happened) || self.idle > IDLE_ROUNDS) && !self.go_ahead() {
                return Err(self.hang());
            }
            if self.fruitless >= LOOKS && !self.is_stuck() {
                return Ok(Outcome::Waits);
            }
            let turns = if self.signalled { SIGNALS_OF_CLUSTER } else { TURNS_OF_CLUSTER };
            if yields && self.random.below(turns) == 0 {
                return Ok(Outcome::Yields);
            }
        }
        Ok(Outcome::Done)
    }

    // ---- asynchronous work ----

    /// Everything asynchronous that could happen now: loads from the oldest, then multiplies, then stores.
    fn completions(&self) -> impl DoubleEndedIterator<Item = Completion> + '_ {
        let loads = (0..self.loads.len()).map(Completion::Load);
        let groups = self.program.function.threads.div_ceil(128) as usize;
        let groups = (0..self.ctas.len()).flat_map(move |cta| (0..groups).map(move |group| (cta, group)));
        let multiplies = groups.filter_map(|(cta, group)| {
            let undone = self.multiplied(cta, group) < self.multipliable(cta, group);
            undone.then_some(Completion::Multiply { cta, group })
        });
        let stores = self.warps.iter().enumerate().flat_map(|(warp, state)| {
            let undone = state.stores.iter().enumerate().filter(|(_, store)| !store.done);
            undone.map(move |(index, _)| Completion::Store { warp, index })
        });
        let arrivals = (0..self.arrivals.len()).map(Completion::Arrival);
        loads.chain(arrivals).chain(multiplies).chain(stores)
    }

    fn first_completion(&self) -> Option<Completion> {
        self.completions().next()
    }

    fn last_completion(&self) -> Option<Completion> {
        self.completions().next_back()
    }

    /// Does one piece of asynchronous work; what goes wrong is its issuer's fault.
    fn happen(&mut self, completion: Completion) -> Result<(), Box<Trap>> {
        self.observe_completion(&completion);
        match completion {
            Completion::Load(index) => {
                let Some(load) = self.loads.remove(index) else { return Ok(()) };
                let (warp, pc, lane) = load.by;
                self.land(load).map_err(|fault| self.trap(warp, fault.by(warp, pc, Some(lane))))
            }
            Completion::Arrival(index) => {
                let Some(arrival) = self.arrivals.remove(index) else { return Ok(()) };
                let (warp, pc, lane) = arrival.by;
                self.copies_done(arrival).map_err(|fault| self.trap(warp, fault.by(warp, pc, Some(lane))))
            }
            Completion::Multiply { cta, group } => {
                let until = self.multiplied(cta, group) + 1;
                let warp = cta * (self.program.function.threads / 32) as usize + group * 4;
                self.multiply_until(cta, group, until).map_err(|fault| self.trap(warp, fault.into()))
            }
            Completion::Store { warp, index } => {
                let (cta, store) = (self.warps[warp].cta, self.warps[warp].stores[index].clone());
                self.warps[warp].stores[index].done = true;
                let written = self.write_box(cta, &store);
                written.map_err(|fault| self.trap(warp, fault.by(warp, store.pc, Some(store.lane))))
            }
        }
    }

    /// Executes up to `quantum` operations of a warp that is ready.
    fn turn(&mut self, warp: usize, quantum: u32) -> Result<Turn, Box<Trap>> {
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
            let flow = match self.step(warp) {
                Err(stop) if self.warps[warp].may_converge(&stop) => {
                    let state = &mut self.warps[warp];
                    state.converge();
                    let whole = state.registers.active == ALL;
                    state.ahead &= !(whole && state.strands.is_empty());
                    if whole { Flow::Jump(pc) } else { Flow::Retry(Blocked::Converge) }
                }
                flow => flow.map_err(|stop| self.trap(warp, stop))?,
            };
            let apart = self.options.schedule == Schedule::Random && self.warps[warp].registers.active != ALL;
            let random = apart.then(|| self.random.next());
            let state = &mut self.warps[warp];
            let end = if executed == 0 { Turn::Idle } else { Turn::Progress };
            if random.is_some_and(|number| number.is_multiple_of(8)) {
                // Branches of a warp may run in any order.
                let _some = state.fork();
            }
            match flow {
                Flow::Next => state.pc += 1,
                Flow::Jump(target) => state.pc = target,
                Flow::Yield => {
                    state.pc += 1;
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
            if traced {
                self.observed(warp, pc);
            }
            if self.warps[warp].fruitless >= SPINS {
                // Perhaps what it looks for comes from its own lanes.
                let program = self.program;
                let state = &mut self.warps[warp];
                state.fruitless = 0;
                state.spun += 1;
                let _some = state.fork() || state.waits_for_itself() && state.go_ahead(program);
                break;
            }
            let hands_on =
                self.options.schedule == Schedule::Random && hands_on(&self.program.ops[pc].action);
            if hands_on && self.random.next().is_multiple_of(8) {
                break;
            }
            if self.options.schedule == Schedule::Random && signals(&self.program.ops[pc].action) {
                self.signalled = true;
                break;
            }
        }
        self.rotate(warp);
        Ok(Turn::Long)
    }

    /// Goes on with other lanes of a warp where some are elsewhere in the program.
    fn rotate(&mut self, warp: usize) {
        let free = self.warps[warp].free_strands();
        let must = self.warps[warp].joins.is_some();
        let choice = match self.options.schedule {
            Schedule::Random => self.random.next() as usize,
            Schedule::Default | Schedule::Earliest | Schedule::Latest | Schedule::Paced => 0,
        };
        if !free.is_empty() && (must || choice % 2 == 0) {
            let state = &mut self.warps[warp];
            let index = free[choice / 2 % free.len()];
            state.swap(index);
            // Who has been executed comes last.
            let strand = state.strands.remove(index);
            state.strands.push(strand);
        }
    }

    /// Whether a warp can go on, with whichever of its lanes.
    fn ready(&mut self, index: usize) -> bool {
        if self.ready_strand(index) {
            return true;
        }
        if self.warps[index].exited {
            return false;
        }
        for other in self.warps[index].free_strands() {
            self.warps[index].swap(other);
            if self.ready_strand(index) {
                return true;
            }
            self.warps[index].swap(other);
        }
        if self.warps[index].fork() {
            let newest = self.warps[index].strands.len() - 1;
            self.warps[index].swap(newest);
            return true;
        }
        false
    }

    /// Lets lanes go ahead that wait for others of their warp, as nothing else can; says whether there are some.
    fn go_ahead(&mut self) -> bool {
        let program = self.program;
        let mut waiting = self.warps.iter_mut().filter(|warp| !warp.exited);
        let found = waiting.any(|warp| warp.go_ahead(program));
        if found {
            self.stuck = 0;
            self.idle = 0;
            self.fruitless = 0;
        }
        found
    }

    /// Counts a round in which nothing but waiting happened; says whether lanes went ahead at last.
    fn is_stuck(&mut self) -> bool {
        self.stuck += 1;
        self.stuck >= STUCK && self.go_ahead()
    }

    /// Whether the lanes of a warp that are being executed can go on.
    fn ready_strand(&mut self, index: usize) -> bool {
        let warp = &mut self.warps[index];
        if warp.exited {
            return false;
        }
        let cta = &self.ctas[warp.cta];
        let (group, held) = ((warp.index / 4) as usize, warp.held);
        match &mut warp.blocked {
            None => true,
            Some(Blocked::Mbarrier(waiting, order)) => {
                let (views, active) = (&mut warp.views, warp.registers.active);
                let missed = &mut warp.missed;
                waiting.retain(|(offset, parity)| {
                    let Some(barrier) = cta.shared.barriers.get(offset) else { return false };
                    if let Err(fault) = barrier.in_time(reported(*offset), *parity, views) {
                        *missed = Some(fault);
                        return false;
                    }
                    let passed = barrier.passed(*parity);
                    if passed {
                        views.acquire(active, barrier, *order);
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
            Some(Blocked::Converge) => false,
        }
    }

    // ---- reports ----

    fn place(&self, index: usize, pc: usize, lane: Option<u32>) -> Place {
        let warp = &self.warps[index];
        let cta = &self.ctas[warp.cta];
        let operation = &self.program.ops[pc];
        Place {
            site: operation.site,
            instruction: operation.action.name(),
            cta: cta.id,
            rank: cta.rank,
            warp: warp.index,
            lane,
            scopes: self.program.scope_path(operation),
        }
    }

    /// The place of an operation of any warp of the grid.
    pub(crate) fn place_of(&self, warp: u32, lane: Option<u32>, pc: u32) -> Place {
        let function = &self.program.function;
        let (cluster, index) = (warp / self.team.warps.max(1), warp % self.team.warps.max(1));
        let rank = index / self.team.per_cta.max(1);
        let last = self.program.ops.len() - 1;
        let operation = &self.program.ops[(pc as usize).min(last)];
        Place {
            site: operation.site,
            instruction: operation.action.name(),
            cta: coordinates(function.cluster, self.launch.grid, cluster.into(), rank),
            rank,
            warp: index % self.team.per_cta.max(1),
            lane,
            scopes: self.program.scope_path(operation),
        }
    }

    fn trap(&self, warp: usize, stop: Stop) -> Box<Trap> {
        let (warp, pc) = stop.by.unwrap_or((warp, self.warps[warp].pc));
        let place = Some(self.place(warp, pc, stop.lane));
        Box::new(Trap { kernel: self.program.function.name.clone(), fault: *stop.fault, place })
    }

    pub(crate) fn hang(&self) -> Box<Trap> {
        let exited = self.warps.iter().filter(|warp| warp.exited).count() as u32;
        let fault = Fault::Hang { waiting: self.waiting(), exited };
        Box::new(Trap { kernel: self.program.function.name.clone(), fault, place: None })
    }

    fn out_of_fuel(&self) -> Box<Trap> {
        let fault = Fault::Fuel { limit: self.options.fuel, warps: self.waiting() };
        Box::new(Trap { kernel: self.program.function.name.clone(), fault, place: None })
    }

    /// Where every warp is that has not exited, and what it waits for.
    fn waiting(&self) -> Vec<Waiting> {
        let alive = (0..self.warps.len()).filter(|&index| !self.warps[index].exited);
        let mut all: Vec<Waiting> = Vec::new();
        for index in alive {
            let warp = &self.warps[index];
            // Lanes that wait for others of their warp are not the reason.
            let own = warp.joins.is_some() || matches!(warp.blocked, Some(Blocked::Converge));
            let other = warp.strands.iter().find(|strand| own && !strand.waits_for_own());
            let (pc, blocked, polled) = match other {
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
                parity,
                phase: barrier.phase,
                pending: barrier.pending,
                expected: barrier.expected,
                outstanding: barrier.tx,
            },
            None => Wait::Polling,
        };
        match blocked {
            None | Some(Blocked::Converge) => vec![polled.as_ref().map_or(Wait::Polling, mbarrier)],
            Some(Blocked::Mbarrier(waiting, _)) => waiting.iter().map(mbarrier).collect(),
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
