//! Compares the emulator with a device: runs a launch on both, and finds the first statement after which bits differ.
//!
//! Buffers are compared after each kernel. Where one differs, the kernel runs once more on both machines, with its program changed so that
//! every thread stores each register that a statement has written ([`instrument`]), and the two records are followed thread by thread
//! ([`follow`]).

mod flow;
mod follow;
mod instrument;
mod kinds;
mod machines;
mod memory;
mod report;
mod sums;
mod timed;
mod version;

use std::collections::BTreeSet;

use kernel::Engine;
use ptx::Function;

use super::CheckError;
use super::finding::Spot;
use super::launch::Launch;
use super::report::Ran;
use super::run::{Trial, read};

use follow::{Follower, Found};
use instrument::{Plan, Point, Window};
use machines::{Differing, Machines};
use memory::Words;

/// What a device and the emulator have come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The device.
    pub device: String,
    /// The kernels, in the order in which they ran.
    pub kernels: Vec<Ran>,
    /// The kernel, and the number of its launch, after which bits differ for the first time. `None`: all bits are equal.
    pub after: Option<(usize, u32)>,
    /// The buffers that differ then.
    pub differences: Vec<BufferDifference>,
    /// Where the difference begins.
    pub origin: Option<FirstDifference>,
    /// Statements whose results may differ, and do.
    pub excused: Vec<Excuse>,
    /// Whether the device has recorded nothing where the emulator has.
    pub silent: bool,
    /// Whether registers could not be compared, because the kernel fails on the device when it is changed to record them.
    pub is_unrecorded: bool,
    /// What else there is to say: a text that was compiled as of another version, registers that cannot be compared.
    pub notes: Vec<String>,
}

/// A buffer that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferDifference {
    /// Its name.
    pub buffer: String,
    /// The first element that differs, as it is indexed.
    pub element: String,
    /// What it is on the device, and its bits.
    pub on_device: String,
    /// What it is in the emulator, and its bits.
    pub emulated: String,
    /// The number of elements that differ, and of all.
    pub count: (u64, u64),
}

/// The first statement after which bits differ.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstDifference {
    /// The statement.
    pub spot: Spot,
    /// The thread.
    pub thread: String,
    /// The register that it wrote.
    pub register: String,
    /// The register's bits on the device and in the emulator.
    pub bits: [u64; 2],
    /// Whether it reads memory or other threads' registers, which may differ already. Otherwise everything that it reads was equal.
    pub reads: bool,
    /// Whether the two go other ways after the statement: the registers are equal.
    pub ways: bool,
}

/// A statement whose results may differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Excuse {
    /// The statement.
    pub spot: Spot,
    /// Why its results may differ.
    pub why: &'static str,
    /// The number of threads in which they do.
    pub threads: u64,
}

impl Comparison {
    /// Whether something differs that is not excused.
    pub fn is_wrong(&self) -> bool {
        self.after.is_some() && (self.origin.is_some() || self.excused.is_empty())
    }
}

/// Most bytes of a record.
const MOST: usize = 1 << 28;
/// Statements of each thread that are recorded at first.
const FIRST: usize = 1 << 10;
/// Bytes of one statement in a record.
const ENTRY: usize = 16;

/// An entry of a record: the number of the point, and the bits.
fn entry(record: &[u8], step: usize) -> (u32, u64) {
    let word =
        |at: usize| record.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_le_bytes);
    (word(step * ENTRY).unwrap_or(0) as u32, word(step * ENTRY + 8).unwrap_or(0))
}

/// Runs a launch on a device and in the emulator. [`Launch::load`] must have fetched its files. Only the device's own memory is used.
///
/// # Errors
/// The launch cannot be run, the emulator finds a fault in it, or the device fails.
pub fn against(launch: &Launch, device: &mut dyn Engine) -> Result<Comparison, CheckError> {
    let functions = read(launch)?;
    let trial = Trial::new(launch, &functions)?;
    let mut comparison = Comparison {
        device: device.describe(),
        kernels: trial.ran(),
        after: None,
        differences: Vec::new(),
        origin: None,
        excused: Vec::new(),
        silent: false,
        is_unrecorded: false,
        notes: Vec::new(),
    };
    let mut machines = Machines::new(&trial, &functions, device)?;
    for number in 1..=launch.launches {
        machines.restore(number)?;
        for (kernel, function) in functions.iter().enumerate() {
            let before = machines.device_memory()?;
            machines.run(kernel)?;
            comparison.notes.append(&mut machines.notes);
            let differences = machines.differences()?;
            if !differences.is_empty() {
                comparison.after = Some((kernel, number));
                let (told, differing): (_, Vec<Differing>) = differences.into_iter().unzip();
                comparison.differences = told;
                let mut repeat = |plan: &Plan<'_>, window: &Window| {
                    machines.record((kernel, number), (&before, plan), window)
                };
                match search((&trial, kernel, function), &differing, &mut repeat, &mut comparison) {
                    // The buffers have been compared all the same.
                    Err(CheckError::Engine(error)) => {
                        comparison.is_unrecorded = true;
                        comparison.notes.push(format!(
                            "registers cannot be compared: changed to record them, the kernel fails on the device: {error}"
                        ));
                    }
                    other => other?,
                }
                return Ok(comparison);
            }
        }
    }
    Ok(comparison)
}

/// Runs the kernel once more on both machines, and records a window of its threads.
type Repeat<'a> = dyn FnMut(&Plan<'_>, &Window) -> Result<Recorded, CheckError> + 'a;

/// The records of the device and of the emulator, and which addresses of the emulator are which ones of the device.
struct Recorded {
    device: Vec<u8>,
    emulated: Vec<u8>,
    moved: Box<dyn Fn(u64) -> Option<u64>>,
}

/// Finds the first statement after which bits differ.
fn search(
    (trial, kernel, function): (&Trial<'_>, usize, &Function),
    differing: &[Differing],
    repeat: &mut Repeat<'_>,
    comparison: &mut Comparison,
) -> Result<(), CheckError> {
    let grid = trial.launch.kernels[kernel].grid;
    let threads =
        grid.iter().map(|&extent| u64::from(extent)).product::<u64>() * u64::from(function.threads());
    let (mut capacity, mut loads) = (FIRST, BTreeSet::new());
    loop {
        let plan = Plan::new(function, &loads);
        let points = plan.points();
        let most = (MOST / (capacity * ENTRY)).max(1) as u64;
        let (mut follower, mut words) = (Follower::default(), Words::default());
        for first in (0..threads).step_by(most as usize) {
            let window = Window { first, count: most.min(threads - first), capacity, grid, all: threads };
            let recorded = repeat(&plan, &window)?;
            follower.follow(&points, &window, &recorded);
            words.add(&points, &window, &recorded, function.threads());
        }
        let is_deeper = follower.is_cut && capacity * 8 * ENTRY <= MOST;
        let known = loads.len();
        loads.extend(words.timed());
        if follower.computed().is_none() && loads.len() > known {
            continue;
        }
        match follower.found() {
            // A thread whose record is cut may have been first.
            Some(found) if !found.reads || !is_deeper => {
                comparison.origin = Some(origin(trial, (kernel, function), &found));
            }
            _ if is_deeper => {
                capacity *= 8;
                continue;
            }
            _ => {}
        }
        let excuse = |(point, why, threads): (&Point, &'static str, u64)| Excuse {
            spot: trial.spot(&point.site, &point.name),
            why,
            threads,
        };
        comparison.silent = follower.is_silent;
        comparison.excused = follower.excused().map(excuse).collect();
        if comparison.origin.is_none() {
            let all: Vec<(u64, u64)> = differing.iter().flat_map(Differing::elements).collect();
            let written = words.excuses(&plan.flow, &all).into_iter().flatten();
            comparison.excused.extend(written.map(|(point, why, threads)| excuse((&point, why, threads))));
        }
        return Ok(());
    }
}

/// A statement as it is reported.
fn origin(trial: &Trial<'_>, (kernel, function): (usize, &Function), found: &Found) -> FirstDifference {
    let per = u64::from(function.threads());
    let (cta, thread) = (found.thread / per.max(1), (found.thread % per.max(1)) as u32);
    let [gx, gy, _] = trial.launch.kernels[kernel].grid.map(u64::from);
    let [x, y, _] = function.block;
    let place = [cta % gx, cta / gx % gy, cta / (gx * gy)];
    let inside = [thread % x, thread / x % y, thread / (x * y)];
    let point = &found.point;
    FirstDifference {
        spot: trial.spot(&point.site, &point.name),
        thread: format!("CTA {place:?}, thread {inside:?}"),
        register: point.written().and_then(|reg| function.register_name(reg)).unwrap_or_default(),
        bits: found.bits,
        reads: found.reads,
        ways: found.ways,
    }
}

impl Trial<'_> {
    /// The kernels, for reports.
    fn ran(&self) -> Vec<Ran> {
        self.launch
            .kernels
            .iter()
            .zip(&self.names)
            .map(|(kernel, name)| Ran { file: kernel.file.clone(), kernel: name.clone() })
            .collect()
    }
}

#[cfg(test)]
mod tests;
