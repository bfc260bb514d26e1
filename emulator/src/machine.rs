//! One cluster in execution: its CTAs, their warps, and the schedule that runs them.

mod pace;
mod report;
mod turn;

use pace::Pace;
use turn::Turn;

use std::collections::{BTreeMap, VecDeque};

use ptx::inst::Inst;

use crate::clock::Team;
use crate::launch::Launch;
use crate::memory::Memory;
use crate::program::{Action, Program};
use crate::race::SharedRaces;
use crate::residents::{Outcome, Standing};
use crate::schedule::{Options, Random, Schedule};
use crate::shared::{Places, Shared};
use crate::step::{Arrival, ClusterBarrier, Load, NamedBarrier, Scratch, Warpgroup};
use crate::trace::Tracer;
use crate::trap::Trap;
use crate::warp::Warp;
use crate::word::Word;

/// Maximum number of instructions in one turn of a warp, under the schedules that run warps in turn.
const TURN: u32 = 4096;
/// Average number of warp turns after which a cluster yields to others under random schedules.
const TURNS_OF_CLUSTER: usize = 64;
/// The same number after a store, an atomic or a reduction that other CTAs may wait for. It is small, so that
/// the other CTAs sometimes run before this CTA does anything else.
const SIGNALS_OF_CLUSTER: usize = 2;
/// Number of consecutive polls without a new value, after which a cluster lets others run.
const LOOKS: u32 = 256;
/// Number of rounds without progress after which polling warps count as hung.
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
    /// Accesses of threads to its shared memory.
    pub(crate) races: SharedRaces,
    /// The words of its shared memory that atomic or ordered accesses use, by offset.
    pub(crate) words: BTreeMap<u32, Word>,
    /// The last accesses by threads of other CTAs, by warp and lanes: the warp's count, and the operation.
    pub(crate) touched: BTreeMap<(usize, u32), (u32, usize)>,
    /// The last arrivals by threads of other CTAs at each mbarrier, by warp, lanes and offset.
    pub(crate) arrivals: BTreeMap<(usize, u32, u32), Arrived>,
    /// Free registers in the pool of `setmaxnreg`.
    pub(crate) free_registers: u32,
    pub(crate) exited: bool,
}

/// An arrival of a thread of another CTA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// The warp's count and the operation.
    pub(crate) count: u32,
    pub(crate) pc: usize,
    /// The clock index of the mbarrier's phases, and the count of the phase. A thread that knows this phase
    /// to be complete also knows of the arrival.
    pub(crate) phase: (usize, u32),
}

/// Counts of what a cluster did, for the [`Report`](crate::Report).
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
    /// The warps of all CTAs, CTA by CTA.
    pub(crate) warps: Vec<Warp<'p>>,
    pub(crate) cluster: ClusterBarrier,
    /// The position of these warps in the grid.
    pub(crate) team: Team,
    /// Number of consecutive polls of words that did not find a new value.
    pub(crate) fruitless: u32,
    pub(crate) standing: Standing,
    /// Number of consecutive rounds in which warps only polled.
    idle: u32,
    /// How often the cluster was found to only wait, since it last made progress.
    stuck: u32,
    pace: Pace,
    /// Tensor loads in flight, oldest first.
    pub(crate) loads: VecDeque<Load>,
    /// Arrivals that take effect when the `cp.async` copies of their threads are done, oldest first.
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) counts: Counts,
    pub(crate) scratch: Scratch,
    /// Buffer for one row of a box.
    pub(crate) buffer: Vec<u8>,
    /// Records the trace, if one is requested.
    pub(crate) tracer: Option<Box<Tracer>>,
    random: Random,
    /// Whether the last turn of a warp ended with an operation that other clusters may wait for.
    signalled: bool,
    /// The priorities of the warps under random schedules with odd seeds; the lowest value runs first.
    ranks: Vec<u64>,
    fuel: u64,
}

/// Asynchronous work that could complete now.
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

/// The number of registers per thread at launch, as ptxas chooses it: the registers of the SM divided by the
/// number of threads, rounded down to a multiple of 8, but at most the largest number that a `setmaxnreg.inc`
/// requests.
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

/// The coordinates in the grid of the CTA with rank `rank` in cluster number `cluster`.
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
    /// Creates the cluster with index `cluster` in the grid of clusters.
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
            races: SharedRaces::new(rank),
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

    /// Runs the warps until all have exited or all wait for other clusters. With `yields` a random schedule
    /// may also stop at other moments. After [`Outcome::Waits`] and [`Outcome::Yields`] it can be called
    /// again.
    pub(crate) fn run(&mut self, yields: bool) -> Result<Outcome, Box<Trap>> {
        // Whatever the warps waited for in an earlier run may have happened.
        (self.fruitless, self.idle) = (0, 0);
        match self.options.schedule {
            Schedule::Default | Schedule::Earliest | Schedule::Latest => self.run_rounds(),
            Schedule::Paced => self.run_paced(),
            Schedule::Random => self.run_random(yields),
        }
    }

    /// Whether a cluster that was set aside may have something to do: asynchronous work can complete, a warp that can
    /// continue is not polling words, or one of the polled words has changed.
    pub(crate) fn is_stirred(&self) -> bool {
        let completes = self.first_completion().is_some();
        completes
            || self.warps.iter().any(|warp| {
                let changed = |&(address, bytes, seen): &(u64, usize, u64)| {
                    let mut buffer = [0; 8];
                    let loaded = self.memory.load(address, &mut buffer[..bytes.min(8)]);
                    loaded.is_err() || u64::from_le_bytes(buffer) != seen
                };
                let looks = !warp.watched.is_empty();
                !warp.exited && warp.blocked.is_none() && (!looks || warp.watched.iter().any(changed))
            })
    }

    /// Called after the last run, whether it succeeded or not.
    pub(crate) fn finish(&mut self) {
        if let Some(recorder) = self.options.trace {
            self.observe_end(recorder);
        }
    }

    /// The next pseudo-random number.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// Called when something other than waiting has happened.
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

    /// Runs under [`Schedule::Random`]. With odd seeds warps have priorities: the first warp that can
    /// continue nearly always does, so that others fall far behind.
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
                // A warp that only polls must not keep others from writing the word that it polls.
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

    /// All asynchronous work that could complete now: loads from the oldest, then arrivals, then multiplies,
    /// then stores.
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

    /// Completes one asynchronous operation. A fault is reported at the instruction that issued it.
    fn happen(&mut self, completion: Completion) -> Result<(), Box<Trap>> {
        self.observe_completion(&completion);
        let happened = self.carry_out(completion);
        self.observe_phases();
        happened
    }

    fn carry_out(&mut self, completion: Completion) -> Result<(), Box<Trap>> {
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
}
