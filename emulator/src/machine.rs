//! One cluster in execution: its CTAs, their warps, and what is in flight.

mod report;

use core::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};

use ptx::inst::Inst;

use crate::barrier::{ClusterBarrier, NamedBarrier};
use crate::clock::{Team, first_of};
use crate::flight::{Arrival, Load};
use crate::lanes::ALL;
use crate::launch::{Launch, Report};
use crate::meetings::Watch;
use crate::memory::Memory;
use crate::multiply::{Scratch, Warpgroup};
use crate::program::Program;
use crate::progress::Standing;
use crate::race::SharedRaces;
use crate::run::Temper;
use crate::schedule::{Options, Random, Schedule};
use crate::shared::{Places, Shared};
use crate::trace::Tracer;
use crate::warp::Warp;

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

/// A cluster in execution.
#[derive(Debug)]
pub(crate) struct Machine<'p> {
    pub(crate) program: &'p Program,
    pub(crate) launch: &'p Launch<'p>,
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
    /// The same, though other instructions may have been executed: a loop around a poll may have barriers.
    pub(crate) vain: u32,
    pub(crate) standing: Standing,
    /// Number of consecutive rounds in which warps only polled.
    pub(crate) idle: u32,
    /// How often the cluster was found to only wait, since it last made progress.
    pub(crate) stuck: u32,
    pub(crate) pace: Pace,
    /// Tensor loads in flight, oldest first.
    pub(crate) loads: VecDeque<Load>,
    /// Arrivals that take effect when the `cp.async` copies of their threads are done, oldest first.
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) counts: Report,
    pub(crate) scratch: Scratch,
    /// Buffer for one row of a box.
    pub(crate) buffer: Vec<u8>,
    /// What was read of global memory last that nobody has written, if that is a warning.
    pub(crate) unwritten: Cell<Option<(u64, u32)>>,
    /// Records the trace, if one is requested.
    pub(crate) tracer: Option<Box<Tracer>>,
    /// Notes which statements meet, if somebody asks.
    pub(crate) watch: Option<Box<RefCell<Watch>>>,
    pub(crate) random: Random,
    /// Whether the last turn of a warp ended with an operation that other clusters may wait for.
    pub(crate) signalled: bool,
    /// Whether it only looks for a moment, as none of the words that it polls has changed.
    pub(crate) brief: bool,
    /// How a random schedule treats the warps.
    pub(crate) temper: Temper,
    pub(crate) fuel: u64,
}

/// The steps in which the asynchronous work in flight will complete.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pub(crate) now: u64,
    /// Per load in flight, oldest first.
    pub(crate) loads: VecDeque<u64>,
    /// The next multiply of each warpgroup, by CTA and warpgroup.
    pub(crate) multiplies: HashMap<(usize, usize), u64>,
    /// The step until which the tensor cores of each CTA are busy.
    pub(crate) busy: HashMap<usize, u64>,
    /// Stores in flight, by warp, operation, lane and group.
    pub(crate) stores: HashMap<(usize, usize, usize, u64), u64>,
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
/// number of threads of the CTAs that it is to have, rounded down to a multiple of 8, but at most the largest number that a `setmaxnreg.inc`
/// requests.
fn entry_registers(program: &Program) -> u32 {
    let function = &program.function;
    let threads = function.threads().saturating_mul(function.resident).max(1);
    let all = function.target.limits().registers / threads;
    let asked = program.ops.iter().filter_map(|operation| {
        let Some(Inst::SetMaxRegisters { grow: true, count }) = operation.action.inst() else {
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
        launch: &'p Launch<'p>,
        memory: &'p Memory,
        options: Options<'p>,
        cluster: u64,
    ) -> Self {
        let function = &program.function;
        let [cx, cy, cz] = function.cluster;
        let held = entry_registers(program);
        let warps_per_cta = function.threads().div_ceil(32);
        let all = cx * cy * cz * warps_per_cta;
        let groups = warps_per_cta.div_ceil(4);
        let shared = |rank: u32| {
            let fresh = Shared::new(function.all_shared());
            match options.warnings {
                Some(_) => fresh.filled(Random::new(options.garbage, cluster << 4 | u64::from(rank))),
                None => fresh,
            }
        };
        let cta = |rank: u32| Cta {
            id: coordinates(function.cluster, launch.grid, cluster, rank),
            rank,
            shared: shared(rank).counted(Places {
                multiplies: all + rank * (groups + warps_per_cta),
                groups,
                barriers: all + cx * cy * cz * (groups + warps_per_cta) + rank,
                step: cx * cy * cz,
            }),
            races: SharedRaces::new(rank),
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
            (0..warps_per_cta).map(move |index| {
                let warp = Warp::new(program, (cta, index), cta * per_cta + index as usize, held);
                match options.warnings {
                    Some(_) => warp.filled(Random::new(
                        !options.garbage,
                        cluster << 10 | (cta << 6) as u64 | u64::from(index),
                    )),
                    None => warp,
                }
            })
        };
        let mut warps: Vec<Warp<'p>> = (0..ctas.len()).flat_map(warp).collect();
        let common = launch.common;
        let gpus = common.is_several().then(|| launch.gpus());
        let first = first_of(launch.slot).wrapping_add((cluster as u32).wrapping_mul(all));
        let team = Team { first, warps: all, per_cta: warps_per_cta, gpus };
        if let (true, Some(done)) = (common.is_several(), common.done(launch.gpu)) {
            // Launches of one GPU run one after the other.
            warps.iter_mut().for_each(|warp| warp.views.change(ALL, |_, view| view.read(&done, team)));
        }
        let serial = options.schedule != Schedule::Paced;
        let tracer = options.trace.map(|_| Box::new(Tracer::new(warps.len(), serial)));
        let watch = options
            .meetings
            .map(|_| Box::new(RefCell::new(Watch::new(ctas.len(), warps.len(), function.all_shared()))));
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
            vain: 0,
            standing: Standing::default(),
            idle: 0,
            stuck: 0,
            pace: Pace::default(),
            loads: VecDeque::new(),
            arrivals: VecDeque::new(),
            counts: Report::default(),
            scratch: Scratch::default(),
            buffer: Vec::new(),
            unwritten: Cell::new(None),
            tracer,
            watch,
            random: Random::new(options.seed, cluster),
            signalled: false,
            brief: false,
            temper: Temper::default(),
            fuel: options.fuel,
        }
    }

    /// The next pseudo-random number.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.next()
    }
}
