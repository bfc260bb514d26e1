//! Runs a launch under many schedules.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use emulator::{Failure, Fault, Meetings, Memory, Program, Recorder, Rule, Schedule, Trace, Trap, Warnings};
use ptx::Function;
use ptx::abi::Grid;
use ptx::read::Module;

use super::finding::{Spot, collect};
use super::launch::{Expect, Kernel, Launch};
use super::place::{Placed, is_free};
use super::report::{Ran, Report};
use super::{CheckError, rules};

/// Under which schedules a launch is run, and on how many threads.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Number of random schedules, after the four fixed ones. Default: 50.
    pub schedules: u64,
    /// Seed of the first random schedule; the next ones have the next seeds. Default: 0.
    pub seed: u64,
    /// Most warp instructions of a cluster under the first schedule: more are a livelock. The other schedules get a multiple of what the
    /// first one needed. Default: that of the emulator's options.
    pub fuel: u64,
    /// Host threads, each of which runs one schedule after the other; 0 for one for each processor. Default: 0.
    pub threads: usize,
    /// Called with the number of schedules that have run, and that of all. Default: `None`.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    /// Ends the check soon after it becomes true, with [`CheckError::Stopped`]. Default: `None`.
    pub stop: Option<&'a AtomicBool>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let fuel = emulator::Options::default().fuel;
        Self { schedules: 50, seed: 0, fuel, threads: 0, progress: None, stop: None }
    }
}

impl core::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { schedules, seed, fuel, threads, .. } = self;
        let mut of = f.debug_struct("Options");
        of.field("schedules", schedules).field("seed", seed).field("fuel", fuel).field("threads", threads);
        of.finish_non_exhaustive()
    }
}

impl Options<'_> {
    /// The schedules: the four fixed ones, then the random ones.
    pub(super) fn sweep(&self) -> Vec<(Schedule, u64)> {
        let moved = |(schedule, seed)| {
            (schedule, if schedule == Schedule::Random { self.seed.wrapping_add(seed) } else { seed })
        };
        Schedule::sweep(self.schedules).map(moved).collect()
    }
}

/// Runs a launch under all schedules, and reports what was found. [`Launch::load`] must have fetched its files.
///
/// # Errors
/// The launch cannot be run: a file that was not fetched, PTX that is not read, arguments that do not fit.
pub fn check(launch: &Launch, options: &Options<'_>) -> Result<Report, CheckError> {
    let functions = read(launch)?;
    Trial::new(launch, &functions)?.report(options)
}

/// Records what a kernel does under a schedule, or under `paced`: the one that has the first fault, in the launch in which it has it; if
/// there is none, the last kernel in the first launch.
///
/// # Errors
/// As for [`check`].
pub fn trace(launch: &Launch, by: Option<(Schedule, u64)>) -> Result<Trace, CheckError> {
    let functions = read(launch)?;
    let (trial, by) = (Trial::new(launch, &functions)?, by.unwrap_or((Schedule::Paced, 0)));
    let fuel = emulator::Options::default().fuel;
    let facts = trial.run(by, fuel, Watch::default())?.facts;
    let failed = facts.iter().find(|fact| !fact.is_warning()).or(facts.first());
    let failed = failed.map(|fact| (fact.kernel(), fact.launch()));
    let which = failed.unwrap_or((launch.kernels.len() - 1, 1));
    let recorder = Recorder::default();
    trial.run(by, fuel, Watch { trace: Some((which, &recorder)), ..Watch::default() })?;
    Ok(recorder.into_trace())
}

/// Reads the programs of a launch.
pub(super) fn read(launch: &Launch) -> Result<Vec<Function>, CheckError> {
    launch.kernels.iter().map(read_one).collect()
}

fn read_one(kernel: &Kernel) -> Result<Function, CheckError> {
    let module = Module::parse(&kernel.text, &kernel.file)?;
    let entries = module.entries();
    let unknown = |why: String| CheckError::Entry {
        file: kernel.file.clone(),
        why,
        entries: entries.iter().map(|&name| name.to_owned()).collect(),
    };
    let entry = match (&kernel.entry, &entries[..]) {
        (Some(name), all) if all.contains(&name.as_str()) => name.as_str(),
        (Some(name), _) => return Err(unknown(format!("there is no kernel `{name}`"))),
        (None, [only]) => only,
        (None, all) => {
            return Err(unknown(format!("`entry` was needed, the module has {} kernels", all.len())));
        }
    };
    let launch =
        ptx::read::Launch { threads: kernel.threads, shared_bytes: kernel.shared, cluster: kernel.cluster };
    Ok(module.entry(entry, &launch)?)
}

/// A launch whose programs are ready to run.
pub(super) struct Trial<'l> {
    pub(super) launch: &'l Launch,
    pub(super) placed: Arc<Placed<'l>>,
    pub(super) programs: Vec<Program>,
    pub(super) names: Vec<String>,
}

/// Something that went wrong under a schedule.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    /// A kernel trapped.
    Trap { kernel: usize, launch: u32, trap: Box<Trap>, warning: bool },
    /// A buffer does not hold what it must.
    Buffer { kernel: usize, launch: u32, rule: &'static Rule, buffer: String, message: String },
}

impl Fact {
    /// The number of the kernel.
    pub(super) fn kernel(&self) -> usize {
        let (Self::Trap { kernel, .. } | Self::Buffer { kernel, .. }) = self;
        *kernel
    }

    /// Whether it is a warning of a read of bytes that nobody has written.
    fn is_unwritten(&self) -> bool {
        let Self::Trap { trap, warning: true, .. } = self else { return false };
        matches!(
            trap.fault,
            Fault::RegisterUninitialised { .. }
                | Fault::SharedUninitialised { .. }
                | Fault::GlobalUninitialised { .. }
        )
    }

    /// What the read bytes decide is an error.
    fn matters(&mut self) {
        let unwritten = self.is_unwritten();
        if let Self::Trap { warning, .. } = self {
            *warning &= !unwritten;
        }
    }

    /// The fact in words.
    fn told(&self) -> String {
        match self {
            Self::Trap { trap, .. } => trap.to_string(),
            Self::Buffer { message, .. } => message.clone(),
        }
    }

    /// Whether the run went on after it.
    pub(super) fn is_warning(&self) -> bool {
        matches!(self, Self::Trap { warning: true, .. })
    }

    /// The number of the launch, from 1 on.
    fn launch(&self) -> u32 {
        let (Self::Trap { launch, .. } | Self::Buffer { launch, .. }) = self;
        *launch
    }
}

/// What happened under a schedule.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) facts: Vec<Fact>,
    /// Warp instructions of all launches.
    pub(super) instructions: u64,
    /// A digest of each buffer's bytes at the end; none after a fault.
    pub(super) ends: Vec<u64>,
}

/// Who watches a run.
#[derive(Clone, Copy, Default)]
pub(super) struct Watch<'a> {
    /// Ends the run.
    pub(super) stop: Option<&'a AtomicBool>,
    /// Records a kernel in a launch, by their numbers.
    pub(super) trace: Option<((usize, u32), &'a Recorder)>,
    /// Collects which statements of a kernel meet, in all launches.
    pub(super) meetings: Option<(usize, &'a Meetings)>,
}

impl<'l> Trial<'l> {
    pub(super) fn new(launch: &'l Launch, functions: &[Function]) -> Result<Self, CheckError> {
        debug_assert!(launch.is_loaded(), "`Launch::load` fetches the files");
        let placed = Arc::new(Placed::new(launch, functions)?);
        let names = functions.iter().map(|function| function.name.clone()).collect();
        let verified = |(function, kernel): (&Function, &Kernel)| {
            let verified = function.clone().verify();
            let error = |error| CheckError::Verify { file: kernel.file.clone(), error };
            Ok(Program::new(&verified.map_err(error)?))
        };
        let programs =
            functions.iter().zip(&launch.kernels).map(verified).collect::<Result<_, CheckError>>()?;
        Ok(Self { launch, placed, programs, names })
    }

    /// The same launch with another program for one of its kernels.
    pub(super) fn with(&self, kernel: usize, program: Program) -> Self {
        let mut programs = self.programs.clone();
        programs[kernel] = program;
        Self { launch: self.launch, placed: Arc::clone(&self.placed), programs, names: self.names.clone() }
    }

    /// The places of a program's statements are in this launch's texts.
    pub(super) fn spot(&self, site: &ptx::SourceSite, instruction: &str) -> Spot {
        super::finding::spot(&self.launch.kernels, site, instruction)
    }

    /// Runs all schedules.
    pub(super) fn report(&self, options: &Options<'_>) -> Result<Report, CheckError> {
        let sweep = options.sweep();
        let (first, rest) = sweep.split_at(1);
        let watch = Watch { stop: options.stop, ..Watch::default() };
        let mut outcomes = vec![(first[0], self.run(first[0], options.fuel, watch)?)];
        let fuel = self.fuel(&outcomes[0].1, options.fuel);
        let (done, total) = (AtomicU64::new(1), sweep.len() as u64);
        let show = |done| options.progress.iter().for_each(|progress| progress(done, total));
        show(1);
        let ran = each(rest, options.threads, |&by| {
            let outcome = self.run(by, fuel, watch);
            show(done.fetch_add(1, Ordering::Relaxed) + 1);
            outcome
        });
        for (by, outcome) in rest.iter().zip(ran) {
            outcomes.push((*by, outcome?));
        }
        self.compare(&mut outcomes);
        let ran =
            |(kernel, name): (&Kernel, &String)| Ran { file: kernel.file.clone(), kernel: name.clone() };
        Ok(Report {
            kernels: self.launch.kernels.iter().zip(&self.names).map(ran).collect(),
            launches: self.launch.launches,
            schedules: total,
            instructions: outcomes[0].1.instructions,
            findings: collect((self.launch, &self.placed, &self.names), &outcomes),
        })
    }

    /// The fuel of the other schedules.
    pub(super) fn fuel(&self, first: &Outcome, most: u64) -> u64 {
        // Clusters that poll execute more under other schedules. A first run that failed says little of the others.
        let ended = first.ends.is_empty();
        if ended { most.min(1 << 24) } else { most.min(first.instructions * 16 + (1 << 20)) }
    }

    /// Runs the launches under a schedule, up to the first fault. If bytes are read that nobody has written, it runs them again with
    /// other bytes there: if then something else happens, those reads are errors.
    pub(super) fn run(
        &self,
        by: (Schedule, u64),
        fuel: u64,
        watch: Watch<'_>,
    ) -> Result<Outcome, CheckError> {
        let (mut outcome, held) = self.run_with(by, fuel, watch, 0)?;
        if outcome.facts.iter().any(Fact::is_unwritten) {
            let (other, otherwise) =
                self.run_with(by, fuel, Watch { stop: watch.stop, ..Watch::default() }, 1)?;
            let told = |outcome: &Outcome| outcome.facts.iter().map(Fact::told).collect::<Vec<_>>();
            if held != otherwise || told(&outcome) != told(&other) {
                outcome.facts.iter_mut().for_each(Fact::matters);
                outcome.ends.clear();
            }
        }
        Ok(outcome)
    }

    /// Options of a kernel's run that goes on where something is debatable.
    pub(super) fn bearing<'o>(&self, kernel: usize, warnings: &'o Warnings) -> emulator::Options<'o> {
        emulator::Options {
            warnings: Some(warnings),
            lowest_elected: !self.launch.any_elected,
            dependent: self.launch.kernels[kernel].dependent,
            ..emulator::Options::default()
        }
    }

    /// Also returns a digest of each buffer that means something, unless a kernel trapped.
    fn run_with(
        &self,
        (schedule, seed): (Schedule, u64),
        fuel: u64,
        Watch { stop, trace, meetings }: Watch<'_>,
        garbage: u64,
    ) -> Result<(Outcome, Vec<u64>), CheckError> {
        let mut memory = self.placed.memory()?;
        let mut outcome = Outcome::default();
        let mut written = Written::new(self, &memory)?;
        for launch in 1..=self.launch.launches {
            if launch > 1 {
                self.placed.restore(&mut memory)?;
            }
            for (number, (kernel, program)) in self.launch.kernels.iter().zip(&self.programs).enumerate() {
                let warnings = Warnings::new();
                let options = emulator::Options {
                    garbage,
                    schedule,
                    seed,
                    fuel,
                    threads: 1,
                    stop,
                    trace: trace
                        .filter(|(which, _)| *which == (number, launch))
                        .map(|(_, recorder)| recorder),
                    meetings: meetings.filter(|(which, _)| *which == number).map(|(_, meetings)| meetings),
                    ..self.bearing(number, &warnings)
                };
                let grid = Grid { ctas: kernel.grid };
                let ran = program.launch(grid, &self.placed.arguments[number], &memory, &options);
                for trap in warnings.list() {
                    let Some(warning) = written.judge(&trap) else { continue };
                    let trap = Box::new(trap);
                    outcome.facts.push(Fact::Trap { kernel: number, launch, trap, warning });
                }
                match ran {
                    Ok(report) => {
                        outcome.instructions += report.instructions;
                        written.kernel_ran(&memory)?;
                    }
                    Err(Failure::Trap(trap)) => {
                        outcome.facts.push(Fact::Trap { kernel: number, launch, trap, warning: false });
                        return Ok((outcome, Vec::new()));
                    }
                    Err(Failure::Argument(error)) => return Err(CheckError::Argument(error.to_string())),
                    Err(Failure::Emulator(error)) => return Err(error.into()),
                    Err(Failure::Stopped { .. }) => return Err(CheckError::Stopped),
                    Err(other) => return Err(CheckError::Argument(other.to_string())),
                }
            }
            self.results(&memory, launch, &mut outcome)?;
            if outcome.facts.iter().any(|fact| !fact.is_warning()) {
                break;
            }
        }
        let mut held = Vec::new();
        for (number, buffer) in self.launch.buffers.iter().enumerate() {
            let digest = self.digest(&memory, number)?;
            outcome.ends.push(digest);
            if !matches!(buffer.expect, Expect::Anything) {
                held.push(digest);
            }
        }
        if outcome.facts.iter().any(|fact| !fact.is_warning()) {
            outcome.ends.clear();
        }
        Ok((outcome, held))
    }

    /// A digest of what a buffer holds.
    fn digest(&self, memory: &Memory, number: usize) -> Result<u64, CheckError> {
        Ok(crate::verify::fnv(&self.placed.held(memory, number)?.bytes))
    }

    /// Compares every buffer with what it must hold after a launch.
    fn results(&self, memory: &Memory, launch: u32, outcome: &mut Outcome) -> Result<(), CheckError> {
        let kernel = self.programs.len() - 1;
        for (number, buffer) in self.launch.buffers.iter().enumerate() {
            let mut add = |rule, message: String| {
                let buffer = buffer.name.clone();
                outcome.facts.push(Fact::Buffer { kernel, launch, rule, buffer, message });
            };
            if let Some(offset) = self.placed.outside(memory, number) {
                add(
                    &rules::OUTSIDE,
                    format!("byte {offset} from the beginning of buffer `{}` was written", buffer.name),
                );
            }
            let compared = match &buffer.expect {
                Expect::Values(want) => {
                    Some((&rules::WRONG_RESULT, want.element, want.data.bytes()?, want.rtol, want.atol))
                }
                Expect::Unchanged => self
                    .placed
                    .before(number)
                    .map(|before| (&rules::CHANGED, buffer.element, before, 0.0, 0.0)),
                Expect::Same | Expect::Anything => None,
            };
            let Some((rule, element, want, rtol, atol)) = compared else { continue };
            let held = self.placed.held(memory, number)?;
            if rule.name == rules::CHANGED.name && held.bytes == want {
                continue;
            }
            let got =
                held.bytes.chunks_exact(buffer.element.bytes()).map(|bytes| buffer.element.value(bytes));
            let want = want.chunks_exact(element.bytes()).map(|bytes| element.value(bytes));
            let wrong: Vec<_> =
                got.zip(want).enumerate().filter(|(_, (got, want))| !got.is(*want, rtol, atol)).collect();
            let place = |index: u64| format!("element {} of buffer `{}`", buffer.index(index), buffer.name);
            match (held.missing, wrong.first()) {
                (Some(missing), _) => add(rule, format!("{} was never written", place(missing))),
                (None, Some((index, (got, want)))) => {
                    let (wrong, all) = (wrong.len(), buffer.count());
                    let wanted =
                        if rule.name == rules::CHANGED.name { "was there before" } else { "was wanted" };
                    add(
                        rule,
                        format!(
                            "{} is {got}, {want} {wanted}; {wrong} of {all} differ",
                            place(*index as u64)
                        ),
                    );
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Adds the buffers that nothing is compared with, and that depend on the schedule.
    fn compare(&self, outcomes: &mut [((Schedule, u64), Outcome)]) {
        let ended = outcomes.iter().find(|(_, outcome)| !outcome.ends.is_empty());
        let Some(ends) = ended.map(|(_, outcome)| outcome.ends.clone()) else { return };
        for (_, outcome) in outcomes.iter_mut() {
            for name in self.varying(&ends, outcome) {
                outcome.facts.push(Fact::Buffer {
                    kernel: self.programs.len() - 1,
                    launch: self.launch.launches,
                    rule: &rules::VARIES,
                    message: format!("buffer `{name}` holds other bytes than under the first schedule"),
                    buffer: name,
                });
            }
        }
    }

    /// The buffers that nothing is compared with, and that do not end as another run has ended.
    pub(super) fn varying(&self, ends: &[u64], outcome: &Outcome) -> Vec<String> {
        let all = self.launch.buffers.iter().zip(ends).zip(&outcome.ends);
        let differ = all.filter(|((buffer, first), end)| is_free(buffer) && first != end);
        differ.map(|((buffer, _), _)| buffer.name.clone()).collect()
    }
}

/// Which buffers the kernels have written, where kernels may begin before the end of those before them.
struct Written<'t, 'l> {
    trial: &'t Trial<'l>,
    /// For each buffer, a digest of it after the last kernel, and whether a kernel has changed it. Empty if no kernel begins early, or there
    /// is only one: what runs before it may have written anything.
    buffers: Vec<(u64, bool)>,
}

impl<'t, 'l> Written<'t, 'l> {
    fn new(trial: &'t Trial<'l>, memory: &Memory) -> Result<Self, CheckError> {
        let kernels = &trial.launch.kernels;
        let mut new = Self { trial, buffers: Vec::new() };
        if kernels.len() > 1 && kernels.iter().any(|kernel| kernel.dependent) {
            let digest = |number| Ok((trial.digest(memory, number)?, false));
            new.buffers = (0..trial.launch.buffers.len()).map(digest).collect::<Result<_, CheckError>>()?;
        }
        Ok(new)
    }

    fn kernel_ran(&mut self, memory: &Memory) -> Result<(), CheckError> {
        for (number, (digest, changed)) in self.buffers.iter_mut().enumerate() {
            let now = self.trial.digest(memory, number)?;
            *changed |= now != *digest;
            *digest = now;
        }
        Ok(())
    }

    /// Whether a warning is one; `None` if it is none. An early access to memory that no kernel before it writes is right, and to other memory
    /// wrong.
    fn judge(&self, trap: &Trap) -> Option<bool> {
        let Fault::GridNotAwaited { address } = trap.fault else { return Some(true) };
        let owner = self.trial.placed.owner(address).map(|(name, _)| name);
        let buffers = self.trial.launch.buffers.iter().zip(&self.buffers);
        let mut known = buffers.filter(|(buffer, _)| Some(buffer.name.as_str()) == owner);
        match known.next() {
            Some((_, (_, false))) => None,
            Some(_) | None => Some(false),
        }
    }
}

/// Does something for each item, on host threads; the results in order.
pub(super) fn each<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { all } else { threads }.min(items.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let one = || {
        while let Some(item) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&number| number < items.len())
        {
            let result = work(&items[item]);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((item, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If the host has no more threads, the others do the work.
            let _joined = std::thread::Builder::new().spawn_scoped(scope, one);
        }
        one();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
