//! How much a check finds: the kernel with one synchronising instruction left out, for each of them.

use core::fmt;
use std::collections::BTreeMap;

use emulator::Program;
use ptx::Function;
use ptx::mutate::{Change, Mutation, mutations};
use serde::Serialize;

use super::finding::{Finding, Spot};
use super::launch::Launch;
use super::needless::Needs;
use super::run::{Fact, Options, Trial, Watch, each, read};
use super::{CheckError, Report};

/// What became of the mutants of a launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mutants {
    /// The report of the unbroken kernels. If it has errors, there are no mutants.
    pub unbroken: Report,
    /// The mutants, in the order of the text.
    pub mutants: Vec<Mutant>,
}

/// A kernel with a broken statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mutant {
    /// The kernel's name.
    pub kernel: String,
    /// The name of the instruction.
    pub instruction: String,
    /// What was done to it, in words: `deleted`.
    pub change: String,
    /// Its place.
    pub spot: Spot,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A schedule found it: the first rule that it broke.
    Found(&'static str),
    /// The verifier refused it.
    Refused,
    /// No schedule executes the statement: the launch does not reach it.
    Unreached,
    /// No schedule finds anything, and the statement orders nothing in this launch that is not ordered without it.
    Needless,
    /// It is executed, no schedule finds anything, and the statement orders something: a gap of the check, or something else orders it.
    Missed,
}

impl Mutants {
    /// The number of mutants that were found or refused, and of those whose statements are executed and needed.
    pub fn found(&self) -> (usize, usize) {
        let count =
            |is: fn(&Verdict) -> bool| self.mutants.iter().filter(|mutant| is(&mutant.verdict)).count();
        let found = count(|verdict| matches!(verdict, Verdict::Found(_) | Verdict::Refused));
        (found, found + count(|verdict| *verdict == Verdict::Missed))
    }
}

/// Leaves out every synchronising instruction of the kernels, one at a time, and runs each broken kernel under the schedules until one finds
/// it. With `all`, instructions are also changed in the other ways of [`ptx::mutate`].
///
/// # Errors
/// As for [`check`](super::check).
pub fn mutants(launch: &Launch, options: &Options<'_>, all: bool) -> Result<Mutants, CheckError> {
    let functions = read(launch)?;
    mutated(launch, &functions, options, all)
}

/// The same for programs that have been read.
pub(super) fn mutated(
    launch: &Launch,
    functions: &[Function],
    options: &Options<'_>,
    all: bool,
) -> Result<Mutants, CheckError> {
    let trial = Trial::new(launch, functions)?;
    let unbroken = trial.report(&Options { progress: None, ..*options })?;
    if unbroken.count(super::Severity::Error) > 0 {
        return Ok(Mutants { unbroken, mutants: Vec::new() });
    }
    let sweep = options.sweep();
    let watch = Watch { stop: options.stop, ..Watch::default() };
    let first = trial.run(sweep[0], options.fuel, watch)?;
    let fuel = trial.fuel(&first, options.fuel);
    // What varies in the unbroken kernel says nothing.
    let varies = |name: &String| {
        unbroken.findings.iter().any(|finding| finding.message.contains(&format!("`{name}`")))
    };
    let judge = |trial: &Trial<'_>| -> Result<Option<&'static str>, CheckError> {
        for &by in &sweep {
            let outcome = trial.run(by, fuel, watch)?;
            let other = || trial.varying(&first.ends, &outcome).iter().any(|name| !varies(name));
            // A warning that the unbroken kernel has says nothing, either.
            let known = |fact: &&Fact| {
                let Fact::Trap { trap, warning: true, .. } = fact else { return false };
                let line = trap.place.as_ref().and_then(|place| Some(place.site.as_ref()?.line()));
                // Which of two accesses comes second is the schedule's choice.
                let at = |of: &Finding| {
                    let others = of.related.iter().map(|(_, spot)| Some(spot.line));
                    core::iter::once(of.line()).chain(others).any(|one| one == line)
                };
                unbroken.findings.iter().any(|of| of.rule == trap.fault.rule() && at(of))
            };
            match outcome.facts.iter().find(|fact| !known(fact)) {
                Some(Fact::Trap { trap, .. }) => return Ok(Some(trap.fault.rule().name)),
                Some(Fact::Buffer { rule, .. }) => return Ok(Some(rule.name)),
                None if other() => return Ok(Some(super::rules::VARIES.name)),
                None => {}
            }
        }
        Ok(None)
    };
    let broken = all_broken(functions, all);
    let done = core::sync::atomic::AtomicU64::new(0);
    let needs = Needs::new(&trial, (&sweep, fuel), watch);
    let verdict = |(number, mutation): &(usize, Mutation)| -> Result<Verdict, CheckError> {
        let function = &functions[*number];
        let Ok(mutant) = mutation.apply(function).verify() else { return Ok(Verdict::Refused) };
        let mutant = trial.with(*number, Program::new(&mutant));
        if let Some(rule) = judge(&mutant)? {
            return Ok(Verdict::Found(rule));
        }
        // What a trap in its place does not stop is not executed.
        let Ok(trapping) = mutation.trap(function).verify() else { return Ok(Verdict::Missed) };
        let reached = judge(&trial.with(*number, Program::new(&trapping)))?.is_some();
        if !reached {
            return Ok(Verdict::Unreached);
        }
        let needless = needs.is_needless(*number, (mutation, &mutant))?;
        Ok(if needless { Verdict::Needless } else { Verdict::Missed })
    };
    let total = broken.len() as u64;
    let verdicts = each(&broken, options.threads, |one| {
        let verdict = verdict(one);
        let done = done.fetch_add(1, core::sync::atomic::Ordering::Relaxed) + 1;
        options.progress.iter().for_each(|progress| progress(done, total));
        verdict
    });
    let mutants = broken.iter().zip(verdicts).map(|((number, mutation), verdict)| {
        Ok(Mutant {
            kernel: functions[*number].name.clone(),
            instruction: mutation.target.to_owned(),
            change: mutation.change.to_string(),
            spot: trial.spot(&mutation.site, mutation.target),
            verdict: verdict?,
        })
    });
    Ok(Mutants { mutants: mutants.collect::<Result<_, CheckError>>()?, unbroken })
}

/// The mutations of all kernels, each with the kernel's number: with `all`, not only those that leave out an instruction.
fn all_broken(functions: &[Function], all: bool) -> Vec<(usize, Mutation)> {
    let of_each = functions.iter().enumerate().flat_map(|(number, function)| {
        let wanted = move |mutation: &Mutation| {
            all || mutation.change == Change::Delete && mutation.target != "position"
        };
        mutations(function).into_iter().filter(wanted).map(move |mutation| (number, mutation))
    });
    of_each.collect()
}

/// The report of the unbroken kernels, a table by instruction, and a line for each mutant that was missed or is not reached.
impl fmt::Display for Mutants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.unbroken)?;
        if self.unbroken.count(super::Severity::Error) > 0 {
            return write!(f, "mutants   none: the unbroken kernel has errors");
        }
        let mut kinds: BTreeMap<(&str, &str), [usize; 5]> = BTreeMap::new();
        for mutant in &self.mutants {
            let counts = kinds.entry((&mutant.instruction, &mutant.change)).or_default();
            counts[match mutant.verdict {
                Verdict::Found(_) => 0,
                Verdict::Refused => 1,
                Verdict::Unreached => 2,
                Verdict::Needless => 3,
                Verdict::Missed => 4,
            }] += 1;
        }
        let name = |(instruction, change): &(&str, &str)| format!("{instruction} {change}");
        let width = kinds.keys().map(|kind| name(kind).len()).max().unwrap_or(0);
        writeln!(f, "mutants   {:width$}   found  refused  unreached  needless  missed", "")?;
        for (kind, [found, refused, unreached, needless, missed]) in &kinds {
            writeln!(
                f,
                "          {:width$}  {found:6}  {refused:7}  {unreached:9}  {needless:8}  {missed:6}",
                name(kind)
            )?;
        }
        for mutant in self.mutants.iter().filter(|mutant| mutant.verdict == Verdict::Missed) {
            writeln!(f, "missed    {} {} at {}", mutant.instruction, mutant.change, mutant.spot)?;
        }
        let (found, executed) = self.found();
        let share = 100.0 * found as f64 / executed.max(1) as f64;
        write!(f, "measured  {found} of {executed} mutants of statements that are needed, {share:.1} %")
    }
}
