//! Checks that a scheduler's device code does what its host model says. Use it in tests of schedulers of your
//! own.
//!
//! ```
//! use kernel::check_schedule;
//! use scheduler::{AlongM, Persistent, TileScheduler, Tiles};
//!
//! check_schedule(&*Persistent::<AlongM>::schedule(), Tiles { m: 9, n: 7, k: 3 }, 4)?;
//! # Ok::<(), kernel::ScheduleError>(())
//! ```

use emulator::{Memory, Options};
use ptx::abi::{Argument, Grid};
use ptx::{AtomicOp, AtomicSem, Builder, Entry, Function, Location, Scope, Special, Target, Value, Var};
use scheduler::{
    CoverageError, Draw, Schedule, ScheduleVisit, Slice, Split, TileScheduler, Tiles, WordContents, Words,
    Work, WorkLoop,
};

use crate::config::{Gemm, GemmConfig};
use crate::gemm::AnyGemm;
use crate::operands::Fill;
use crate::problem::GemmProblem;

/// What is wrong with a scheduler.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The host model does not compute every K-tile exactly once.
    #[error("in the host model, {0}")]
    Host(CoverageError),
    /// Workers that take tiles from the counter do not compute every K-tile exactly once.
    #[error("with tiles taken from the counter, {0}")]
    Drawn(CoverageError),
    /// With another order in the words that the scheduler gets, workers do not compute every K-tile exactly once.
    #[error("with the words of an order in another order, {0}")]
    Ordered(CoverageError),
    /// The host model has more work units than a check records.
    #[error(
        "scheduler `{scheduler}`: {units} work units are too many to check, at most {most}: check fewer tiles"
    )]
    TooLarge {
        /// The scheduler's name.
        scheduler: String,
        /// Number of work units that there may be.
        units: u64,
        /// Largest number of work units that is checked.
        most: u64,
    },
    /// The scheduler emits an illegal program.
    #[error("scheduler `{scheduler}`: {source}")]
    Program {
        /// The scheduler's name.
        scheduler: String,
        /// The faults that the verifier found.
        source: ptx::VerifyError,
    },
    /// The device code fails or does not end.
    #[error(
        "scheduler `{scheduler}`: its device code failed, or did not stop after {room} work units, the most of any worker: \
         {report}"
    )]
    Device {
        /// The scheduler's name.
        scheduler: String,
        /// Largest number of work units of one worker.
        room: u32,
        /// The emulator's report.
        report: String,
    },
    /// Device and host disagree.
    #[error(
        "scheduler `{scheduler}`: work unit {unit} of worker {worker} is {host:?} on the host and {device:?} on the device"
    )]
    Disagree {
        /// The scheduler's name.
        scheduler: String,
        /// The worker.
        worker: u32,
        /// Index of the work unit in the worker's sequence.
        unit: usize,
        /// The host's work unit; `None` if the worker's work has ended.
        host: Option<Work<u32>>,
        /// The device's work unit; `None` if the worker's work has ended.
        device: Option<Work<u32>>,
    },
    /// The counter that workers take tiles from is not reset to zero, so the next launch would not begin with
    /// the first tile.
    #[error("scheduler `{scheduler}`: the tile counter ends as {value}, 0 was needed")]
    Counter {
        /// The scheduler's name.
        scheduler: String,
        /// The counter's final value.
        value: u32,
    },
}

/// Largest number of work units that a check records.
const MOST_UNITS: u64 = 1 << 20;

/// Bytes per work unit in the device's record.
const RECORD: u32 = 48;

/// Checks a scheduler on a problem, for a GPU that holds `resident` workers at once.
///
/// Three things are checked. The host model computes every K-tile of every output tile exactly once. The
/// device code, run by the emulator, computes the same work units in the same order. If workers
/// [draw](scheduler::SchedulerTraits::draws) their tiles from a counter, they compute everything exactly once,
/// whichever worker comes first.
///
/// Words that the scheduler [gets](scheduler::TileScheduler::visit) are filled: an order with 0, 1, 2, … at first, and then with these numbers
/// in another order; flags have all bits set.
///
/// # Errors
/// The first thing that is wrong, with the scheduler's name.
pub fn check_schedule(
    schedule: &dyn Schedule,
    tiles: Tiles<u32>,
    resident: u32,
) -> Result<(), ScheduleError> {
    let units = (u64::from(tiles.m) * u64::from(tiles.n)).saturating_mul(tiles.k.max(1).into());
    let units = units.saturating_mul(schedule.traits().slices.into());
    if units > MOST_UNITS {
        return Err(ScheduleError::TooLarge { scheduler: schedule.name(), units, most: MOST_UNITS });
    }
    scheduler::covers(schedule, tiles, resident).map_err(ScheduleError::Host)?;
    let workers = schedule.workers(tiles, resident);
    if workers == 0 {
        return Ok(());
    }
    let host: Vec<Vec<_>> =
        (0..workers).map(|worker| schedule.work(tiles, worker, workers).collect()).collect();
    let room = host.iter().map(Vec::len).max().unwrap_or(0) as u32;
    let recorder = |room| Recorder { schedule, tiles, workers, room, mixed: false };
    let mut memory = Memory::new();
    let device = recorder(room).run(&mut memory, None, (emulator::Schedule::Default, 0))?;
    for (worker, (host, device)) in (0..).zip(host.iter().zip(&device)) {
        for unit in 0..host.len().max(device.len()) {
            let (host, device) = (host.get(unit).copied(), device.get(unit).copied());
            if seen(host, tiles) != seen(device, tiles) {
                return Err(ScheduleError::Disagree {
                    scheduler: schedule.name(),
                    worker,
                    unit,
                    host,
                    device,
                });
            }
        }
    }
    let mut given = Declared::default();
    schedule.visit(tiles, &mut given);
    if given.orders {
        let device = Recorder { mixed: true, ..recorder(units as u32) };
        let device = device.run(&mut memory, None, (emulator::Schedule::Default, 0))?;
        let units = device.into_iter().map(Vec::into_iter);
        scheduler::covered(schedule, tiles, workers, units).map_err(ScheduleError::Ordered)?;
    }
    if schedule.traits().draws {
        let counter = memory.upload(&[0; 4]);
        for order in [(emulator::Schedule::Latest, 0), (emulator::Schedule::Random, 1)] {
            let device = recorder(units as u32).run(&mut memory, Some(counter), order)?;
            let units = device.into_iter().map(Vec::into_iter);
            scheduler::covered(schedule, tiles, workers, units).map_err(ScheduleError::Drawn)?;
            let value = memory.read(counter, 4).map_or(u32::MAX, |bytes| number(&bytes, 0));
            if value != 0 {
                return Err(ScheduleError::Counter { scheduler: schedule.name(), value });
            }
        }
    }
    Ok(())
}

impl AnyGemm {
    /// Checks that the host model of the kernel's scheduler computes every tile exactly once: see
    /// [`scheduler::covers`].
    ///
    /// # Errors
    /// As [`scheduler::covers`].
    pub fn covers(&self, tiles: Tiles<u32>, resident: u32) -> Result<(), CoverageError> {
        scheduler::covers(&*self.scheduler, tiles, resident)
    }
}

impl<C: GemmConfig> Gemm<C> {
    /// Checks the kernel's scheduler on a problem's tiles: see [`check_schedule`].
    ///
    /// # Errors
    /// As [`check_schedule`].
    pub fn check_schedule(problem: GemmProblem, resident: u32) -> Result<(), ScheduleError> {
        check_schedule(&*<C::Scheduler as TileScheduler>::schedule(), Self::tiles(problem), resident)
    }
}

/// The meaningful fields of a work unit. For a whole tile, what it says of other work units has no meaning.
fn seen(work: Option<Work<u32>>, tiles: Tiles<u32>) -> Option<Work<u32>> {
    work.map(|work| {
        let whole = work.k_begin == 0 && work.k_end == tiles.k;
        Work { split: work.split.filter(|_| !whole), ..work }
    })
}

/// A counter in global memory, and one thread's result of the last draw.
struct Counter<'f> {
    f: &'f Builder,
    at: Value<'f, u64>,
    drawn: Var<'f, u32>,
}

impl<'f> Draw<'f> for Counter<'f> {
    fn ask(&self, numbers: Value<'f, u32>) {
        let (at, order) = (Location::global(self.at, 0), (AtomicSem::Relaxed, Scope::Gpu));
        self.drawn.set(self.f.atomic(AtomicOp::Inc, at, numbers - 1, order));
    }

    fn answer(&self) -> Value<'f, u32> {
        self.drawn.get()
    }
}

/// A kernel with one warp per worker. One lane records every work unit.
struct Recorder<'s> {
    schedule: &'s dyn Schedule,
    tiles: Tiles<u32>,
    workers: u32,
    /// Number of work units that there is memory for, per worker.
    room: u32,
    /// Whether words of an order are mixed.
    mixed: bool,
}

/// The parameters of what a scheduler gets, by name: numbers have a value, the others are addresses.
#[derive(Default)]
struct Declared {
    all: Vec<(&'static str, Option<u32>)>,
    /// Whether there are words of an order.
    orders: bool,
}

impl ScheduleVisit for Declared {
    fn words(&mut self, Words { name, contents, .. }: Words<'_>) {
        self.all.push((name, None));
        self.orders |= contents == WordContents::Order;
    }

    fn word(&mut self, name: &'static str, word: &mut u32) {
        self.all.push((name, Some(*word)));
    }
}

/// Fills what a scheduler gets.
struct Supplied<'m> {
    memory: &'m mut Memory,
    arguments: Vec<Argument>,
    mixed: bool,
}

impl ScheduleVisit for Supplied<'_> {
    fn words(&mut self, Words { count, contents, .. }: Words<'_>) {
        let words = match contents {
            WordContents::Order if self.mixed => Fill::new(1).order(count as u32),
            WordContents::Order => (0..count as u32).collect(),
            WordContents::Flags => vec![u32::MAX; count as usize],
        };
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        self.arguments.push(self.memory.upload(&bytes).into());
    }

    fn word(&mut self, _name: &'static str, word: &mut u32) {
        self.arguments.push((*word).into());
    }
}

impl Recorder<'_> {
    fn function(schedule: &dyn Schedule, draws: bool) -> Function {
        let (name, cluster) = ("schedule".to_owned(), [1, 1, 1]);
        let entry = Entry { name, target: Target::Sm90a, threads: 32, shared_bytes: 0, cluster };
        Function::build(entry, |f: &Builder| {
            let tiles = Tiles { m: f.param("m"), n: f.param("n"), k: f.param("k") };
            for (name, _) in schedule.parameters(Tiles { m: 1, n: 1, k: 1 }, 1) {
                let _: Value<'_, u32> = f.param(name);
            }
            let mut given = Declared::default();
            schedule.visit(Tiles { m: 1, n: 1, k: 1 }, &mut given);
            for (name, number) in given.all {
                match number {
                    Some(_) => drop(f.param::<u32>(name)),
                    None => drop(f.param::<u64>(name)),
                }
            }
            let (records, room) = (f.param::<u64>("records"), f.param::<u32>("room"));
            let counter = draws.then(|| Counter { f, at: f.param("counter"), drawn: f.variable(0) });
            let draw = counter.as_ref().map(|counter| counter as &dyn Draw<'_>);
            let (worker, workers) = (f.special(Special::CtaX), f.special(Special::GridX));
            f.if_(f.elect(), || {
                let count = f.variable(0);
                let mut body = |work: Work<Value<'_, u32>>| {
                    schedule.ready(f, tiles, work);
                    // A work unit too many is written to address 0. That faults, which ends the run.
                    let inside = count.get().less_than(room);
                    let place = records + (worker * room + count.get()).mul_wide(RECORD);
                    let place = place.where_or(inside, f.constant(0u64));
                    f.store_global(place, 0, [work.m, work.n, work.k_begin, work.k_end]);
                    let none = f.constant(u32::MAX);
                    let split = work.split.map_or([none; 4], |s| [s.unit, s.first, s.last, s.tile]);
                    f.store_global(place, 16, split);
                    let slice = work.slice.map_or([none; 4], |s| [s.first, s.count, f.constant(s.of), none]);
                    f.store_global(place, 32, slice);
                    count.set(count.get() + 1);
                };
                let body = &mut body;
                schedule.emit(f, &mut WorkLoop { tiles, worker, workers, draw, body });
            });
        })
    }

    /// The work units per worker.
    fn run(
        &self,
        memory: &mut Memory,
        counter: Option<u64>,
        (schedule, seed): (emulator::Schedule, u64),
    ) -> Result<Vec<Vec<Work<u32>>>, ScheduleError> {
        let Self { schedule: rule, tiles, workers, room, mixed } = *self;
        let program = Self::function(rule, counter.is_some())
            .verify()
            .map_err(|source| ScheduleError::Program { scheduler: rule.name(), source })?;
        let bytes = workers as usize * room as usize * RECORD as usize;
        let records = memory.upload(&vec![0xff; bytes.max(1)]);
        let mut arguments: Vec<Argument> = vec![tiles.m.into(), tiles.n.into(), tiles.k.into()];
        arguments.extend(rule.parameters(tiles, workers).into_iter().map(|(_, value)| Argument::from(value)));
        let mut supplied = Supplied { memory, arguments, mixed };
        rule.visit(tiles, &mut supplied);
        let mut arguments = supplied.arguments;
        arguments.extend([records.into(), room.into()]);
        arguments.extend(counter.map(Argument::from));
        let options = Options { schedule, seed, ..Options::default() };
        let failed = |report: String| ScheduleError::Device { scheduler: rule.name(), room, report };
        emulator::Program::new(&program)
            .launch(Grid { ctas: [workers, 1, 1] }, &arguments, memory, &options)
            .map_err(|failure| failed(failure.to_string()))?;
        let all = memory.read(records, bytes.max(1)).map_err(|error| failed(format!("{error:?}")))?;
        let by_worker = all.chunks(room as usize * RECORD as usize);
        Ok(by_worker.take(workers as usize).map(units).collect())
    }
}

/// The work units in a worker's record.
fn units(bytes: &[u8]) -> Vec<Work<u32>> {
    let units = bytes.chunks_exact(RECORD as usize).map(|record| {
        let [m, n, k_begin, k_end, unit, first, last, tile] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|i| number(record, i));
        let [of_slice, count, of] = [8, 9, 10].map(|i| number(record, i));
        let split = (unit != u32::MAX).then_some(Split { unit, first, last, tile });
        let slice = (of != u32::MAX).then_some(Slice { first: of_slice, count, of });
        Work { m, n, k_begin, k_end, split, slice }
    });
    units.take_while(|work| work.m != u32::MAX).collect()
}

/// One word of a record; all ones if there is none.
fn number(bytes: &[u8], index: usize) -> u32 {
    bytes.as_chunks::<4>().0.get(index).map_or(u32::MAX, |word| u32::from_le_bytes(*word))
}
