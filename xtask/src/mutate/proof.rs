//! Runs all mutants of all kernels, or all kernels as they are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use emulator::Schedule;
use kernel::AnyGemm;
use ptx::mutate::mutations;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::record::{self, Row};
use super::report;
use super::trial::{Specimen, Verdict};
use super::{Mutate, equivalent, extra};
use crate::error::Error;

/// Schedules that a mutant is tried under where an argument, checked in the program, says that it is the same.
const SCHEDULES_OF_EQUIVALENTS: usize = 2;

/// Runs the task.
pub(crate) fn run(arguments: &Mutate) -> Result<(), Error> {
    let chosen =
        |name: &str| arguments.kernel.is_empty() || arguments.kernel.iter().any(|part| name.contains(part));
    let all = kernel::catalogue().into_iter().chain(extra::kernels());
    let kernels: Vec<_> = all.filter(|gemm| chosen(gemm.name())).collect();
    if kernels.is_empty() {
        return Err(Error::Proof(format!("no kernel's name contains {:?}", arguments.kernel)));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(arguments.jobs.unwrap_or(0)).build();
    let pool = pool.map_err(|error| Error::Proof(format!("the host started no threads: {error}")))?;
    match arguments.false_alarms {
        Some(random) => pool.install(|| false_alarms(&kernels, random)),
        None => pool.install(|| mutants(&kernels, arguments)),
    }
}

/// Every unbroken kernel under many schedules: no trap, and every time the same output.
fn false_alarms(kernels: &[Box<dyn AnyGemm>], random: u64) -> Result<(), Error> {
    let schedules: Vec<_> = Schedule::sweep(random).collect();
    let mut alarms = Vec::new();
    for gemm in kernels {
        let (name, start) = (gemm.name(), Instant::now());
        let specimen = Specimen::new(gemm.as_ref()).map_err(Error::Proof)?;
        let alarm = |schedule| {
            let verdict = specimen.judge(specimen.function().clone(), &[schedule]);
            (!matches!(verdict, Verdict::Alive)).then(|| format!("{name}: {verdict}"))
        };
        let found: Vec<String> = schedules.clone().into_par_iter().filter_map(alarm).collect();
        let (count, seconds) = (schedules.len(), start.elapsed().as_secs_f64());
        eprintln!("{name}: {count} schedules, {} false alarms, {seconds:.1} s", found.len());
        alarms.extend(found);
    }
    let (count, each) = (kernels.len(), schedules.len());
    println!("{count} kernels, {each} schedules each: {} false alarms", alarms.len());
    if alarms.is_empty() { Ok(()) } else { Err(Error::Proof(alarms.join("\n"))) }
}

/// Every mutant of every kernel.
fn mutants(kernels: &[Box<dyn AnyGemm>], arguments: &Mutate) -> Result<(), Error> {
    let known = if arguments.write || arguments.stale { record::load()? } else { Vec::new() };
    let mut rows = Vec::new();
    for gemm in kernels {
        let specimen = Specimen::new(gemm.as_ref()).map_err(Error::Proof)?;
        let same = |row: &Row| row.kernel == gemm.name() && row.fingerprint == specimen.fingerprint();
        if arguments.stale && known.iter().any(same) {
            continue;
        }
        let row = prove(gemm.name(), &specimen, arguments);
        if arguments.write {
            // Another run may have added its own meanwhile.
            record::store(&record::merge(record::load()?, core::slice::from_ref(&row), &names()))?;
        }
        rows.push(row);
    }
    if arguments.write {
        report::write(&report::markdown(&record::load()?))?;
    }
    println!("{}", report::markdown(&rows));
    match rows.iter().map(Row::survived).sum::<usize>() {
        0 => Ok(()),
        survived => Err(Error::Proof(format!("{survived} mutants survived"))),
    }
}

/// The names of all kernels, in the order of the tables.
fn names() -> Vec<String> {
    let all = kernel::catalogue().into_iter().chain(extra::kernels());
    all.map(|gemm| gemm.name().to_owned()).collect()
}

/// Every mutant, or every n-th, of one kernel.
fn prove(name: &str, specimen: &Specimen, arguments: &Mutate) -> Row {
    let start = Instant::now();
    let schedules: Vec<_> = Schedule::sweep(arguments.schedules).collect();
    let function = specimen.function();
    let chosen: Vec<_> = mutations(function).into_iter().step_by(arguments.every.max(1)).collect();
    let (done, all) = (AtomicUsize::new(0), chosen.len());
    let results = chosen.into_par_iter().map(|mutation| {
        let reason = equivalent::reason(function, &mutation);
        let few = reason.is_some_and(equivalent::whatever_the_schedule);
        let tried = if few { SCHEDULES_OF_EQUIVALENTS.min(schedules.len()) } else { schedules.len() };
        let mut verdict = specimen.judge(mutation.apply(function), &schedules[..tried]);
        if let (Verdict::Alive, Some(reason)) = (&verdict, reason) {
            verdict = Verdict::Equivalent(reason);
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(32) {
            eprint!("\r{name}: {done} of {all}");
        }
        (mutation, verdict)
    });
    let results: Vec<_> = results.collect();
    let row = Row::new(name, specimen.fingerprint(), arguments.schedules, &results);
    let (survived, seconds) = (row.survived(), start.elapsed().as_secs_f64());
    eprintln!("\r{name}: {all} mutants, {survived} survived, {seconds:.1} s");
    for (mutation, verdict) in &results {
        if matches!(verdict, Verdict::Alive) {
            eprintln!("  {mutation}");
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::record::Outcome;

    fn proved(gemm: &dyn AnyGemm, schedules: u64, every: usize) -> Row {
        let arguments = Mutate { schedules, every, ..Mutate::default() };
        prove(gemm.name(), &Specimen::new(gemm).expect("the kernel itself is right"), &arguments)
    }

    /// The whole proof of one small kernel: in some seconds, so that every change of the emulator is held to it.
    #[test]
    fn every_mutant_of_a_small_kernel_is_killed() {
        let gemm = kernel::find("small-bf16-kk").expect("a catalogue name");
        let row = proved(gemm.as_ref(), 2, 1);
        assert_eq!(row.survived(), 0, "{row:?}");
        assert!(row.count(Outcome::killed) > 100, "{row:?}");
    }

    /// The other sizes' and the clusters' protocols, every fifth mutant.
    #[test]
    fn a_sample_of_the_larger_kernels_mutants_is_killed() {
        for gemm in
            extra::kernels().into_iter().chain([kernel::find("medium-f16-mn").expect("a catalogue name")])
        {
            // Barrier numbers that are mixed up show under some random schedules only.
            let row = proved(gemm.as_ref(), 8, 5);
            assert_eq!(row.survived(), 0, "{row:?}");
        }
    }
}
