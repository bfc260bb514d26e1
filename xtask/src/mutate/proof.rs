//! Runs the mutants of kernels, or the unbroken kernels.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use emulator::Schedule;
use falchion::verify::equivalent::Reason;
use ptx::mutate::{Mutation, mutations};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};

use super::journal::Journal;
use super::record::{self, Kind, Known, Outcome, Record, Row, Unbroken};
use super::report;
use super::subject::{Gemm, Subject};
use super::trial::{Specimen, Verdict};
use super::{Mutate, class, extra, fused, preparations};
use crate::error::Error;

/// The number of schedules for a mutant that is equivalent by checks of the program.
const SCHEDULES_OF_EQUIVALENTS: usize = 2;

/// The number of random schedules, on the short problems, for mutants that have survived the requested ones.
/// Some faults show only if one warp is delayed at the right moment.
const PATIENCE: u64 = 200;

/// The unbroken kernels also run on the long problems under every n-th schedule.
const LONG: usize = 8;

/// A kernel and the class of its synchronisation.
struct Kernel {
    subject: Box<dyn Subject>,
    class: u64,
}

/// All kernels, in the order of the tables.
fn kernels() -> Result<Vec<Kernel>, Error> {
    let plain = kernel::catalogue().into_iter().chain(kernel::by_threads()).chain(kernel::several());
    let gemms = plain
        .chain(extra::kernels())
        .map(Gemm::from)
        .chain(fused::kernels())
        .map(|gemm| Box::new(gemm) as Box<dyn Subject>);
    let all: Vec<_> = gemms.chain(preparations::kernels()).collect();
    let class = |subject: &dyn Subject| match subject.program() {
        Ok(program) => Ok(class::of(program.function())),
        Err(error) => Err(Error::Proof(format!("{}: {error}", subject.name()))),
    };
    let classes: Vec<u64> =
        all.par_iter().map(|subject| class(subject.as_ref())).collect::<Result<_, _>>()?;
    Ok(all.into_iter().zip(classes).map(|(subject, class)| Kernel { subject, class }).collect())
}

fn named(kernels: &[Kernel]) -> Vec<record::Named<'_>> {
    kernels.iter().map(|kernel| (kernel.subject.name(), kernel.class)).collect()
}

/// Runs the task.
pub(crate) fn run(arguments: &Mutate) -> Result<(), Error> {
    if arguments.write && (arguments.mutant.is_some() || arguments.every > 1 && arguments.seed.is_none()) {
        return Err(Error::Proof(
            "--write is for all mutants of a kernel, or for those that --seed draws".into(),
        ));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(arguments.jobs.unwrap_or(0)).build();
    let pool = pool.map_err(|error| Error::Proof(format!("the host started no threads: {error}")))?;
    pool.install(|| {
        let all = kernels()?;
        if arguments.tables {
            return report::write(&report::markdown(&record::load()?, &named(&all)));
        }
        let chosen = |name: &str| {
            arguments.kernel.is_empty() || arguments.kernel.iter().any(|part| name.contains(part))
        };
        let chosen: Vec<&Kernel> = all.iter().filter(|kernel| chosen(kernel.subject.name())).collect();
        if chosen.is_empty() {
            return Err(Error::Proof(format!("no kernel's name contains {:?}", arguments.kernel)));
        }
        match arguments.false_alarms {
            Some(random) => false_alarms(&all, &chosen, random, arguments),
            None => mutants(&all, &chosen, arguments),
        }
    })
}

/// Whether to run a kernel. With `--stale`, only if the record has no result of its class.
fn due<T: Known>(kernel: &Kernel, arguments: &Mutate, rows: fn(&Record) -> &[T]) -> Result<bool, Error> {
    // Load the record each time: this run, or another one, may have added results.
    let known = |record: Record| rows(&record).iter().any(|row| row.of().1 == kernel.class);
    Ok(!arguments.stale || !known(record::load()?))
}

/// Adds a result to the record and to the tables.
fn keep<T: Known>(new: T, all: &[Kernel], place: fn(&mut Record) -> &mut Vec<T>) -> Result<(), Error> {
    let names = named(all);
    let mut record = record::load()?;
    record::merge(place(&mut record), new, &names.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    record::store(&record)?;
    report::write(&report::markdown(&record, &names))
}

/// Runs unbroken kernels under many schedules: none may trap, and the output must be the same each time.
fn false_alarms(all: &[Kernel], chosen: &[&Kernel], random: u64, arguments: &Mutate) -> Result<(), Error> {
    let mut alarms = Vec::new();
    let mut count = 0;
    for kernel in chosen {
        if !due(kernel, arguments, |record| &record.unbroken)? {
            continue;
        }
        let (one, found) = listen(kernel, random)?;
        alarms.extend(found);
        count += 1;
        if arguments.write {
            keep(one, all, |record| &mut record.unbroken)?;
        }
    }
    println!("{count} kernels: {} false alarms", alarms.len());
    if alarms.is_empty() { Ok(()) } else { Err(Error::Proof(alarms.join("\n"))) }
}

/// Runs one unbroken kernel under many schedules. Returns the counts and the false alarms.
fn listen(kernel: &Kernel, random: u64) -> Result<(Unbroken, Vec<String>), Error> {
    let (name, start) = (kernel.subject.name(), Instant::now());
    let specimen = Specimen::new(kernel.subject.as_ref()).map_err(Error::Proof)?;
    let schedules: Vec<_> = Schedule::sweep(random).enumerate().collect();
    let is_long = |at: usize| at < LONG || at.is_multiple_of(LONG);
    let alarm = |(at, schedule)| {
        let verdict = specimen.repeat(schedule, is_long(at));
        (!matches!(verdict, Verdict::Alive)).then(|| format!("{name}: {verdict}"))
    };
    let found: Vec<String> = schedules.clone().into_par_iter().filter_map(alarm).collect();
    let runs = schedules.iter().map(|(at, _)| specimen.problems(is_long(*at))).sum();
    let (count, seconds) = (schedules.len(), start.elapsed().as_secs_f64());
    eprintln!("{name}: {count} schedules, {runs} launches, {} false alarms, {seconds:.1} s", found.len());
    let one = Unbroken {
        kernel: name.to_owned(),
        class: kernel.class,
        schedules: count,
        problems: specimen.problems(true),
        runs,
        complaints: found.len(),
    };
    Ok((one, found))
}

/// Runs the mutants of the chosen kernels.
fn mutants(all: &[Kernel], chosen: &[&Kernel], arguments: &Mutate) -> Result<(), Error> {
    let (mut rows, mut others) = (Vec::new(), Vec::new());
    for kernel in chosen {
        if !due(kernel, arguments, |record| &record.rows)? {
            continue;
        }
        let name = kernel.subject.name();
        let recorded = record::load()?.rows.into_iter().find(|known| known.of() == (name, kernel.class));
        // What is drawn is compared with what is recorded.
        let compares = arguments.seed.is_some() && !arguments.write;
        if compares && recorded.is_none() {
            continue;
        }
        let before = if arguments.survivors {
            let Some(row) = recorded.clone().filter(|row| row.survived() > 0) else { continue };
            Some(row)
        } else {
            None
        };
        let specimen = Specimen::new(kernel.subject.as_ref()).map_err(Error::Proof)?;
        let journal = match before {
            None if arguments.write => {
                let drawn = (arguments.every, arguments.seed);
                Some(Journal::open(name, kernel.class, arguments.schedules, drawn)?)
            }
            None | Some(_) => None,
        };
        let row = prove((name, kernel.class), &specimen, arguments, before, journal.as_ref())?;
        rows.push(row.clone());
        if let Some(known) = recorded.filter(|_| compares) {
            others.extend(known.others(&row).map(|kind| format!("{name}: {kind}")));
        }
        if arguments.write {
            keep(row, all, |record| &mut record.rows)?;
        }
        journal.map_or(Ok(()), Journal::remove)?;
    }
    println!("{}", report::tables(&rows.iter().collect::<Vec<_>>(), &named(all)));
    if let Some(seed) = arguments.seed.filter(|_| !arguments.write) {
        if rows.is_empty() {
            return Err(Error::Proof("the record has none of these kernels in its current form".to_owned()));
        }
        let tried: usize = rows.iter().map(|row| row.count(|_| true)).sum();
        println!(
            "{tried} mutants of {} kernels, one in {} of each statement and change, seed {seed}: {} verdicts are not those of the record",
            rows.len(),
            arguments.every,
            others.len()
        );
        return if others.is_empty() { Ok(()) } else { Err(Error::Proof(others.join("\n"))) };
    }
    match rows.iter().map(Row::survived).sum::<usize>() {
        0 => Ok(()),
        survived => Err(Error::Proof(format!("{survived} mutants survived"))),
    }
}

/// Runs the requested mutants of one kernel; with `before`, only those that are like survivors in that row.
fn prove(
    (name, class): (&str, u64),
    specimen: &Specimen,
    arguments: &Mutate,
    before: Option<Row>,
    journal: Option<&Journal>,
) -> Result<Row, Error> {
    let start = Instant::now();
    let schedules: Vec<_> = Schedule::sweep(arguments.schedules).collect();
    let function = specimen.function();
    let asked = |mutation: &Mutation| {
        arguments.mutant.as_ref().is_none_or(|part| mutation.to_string().contains(part.as_str()))
            && before.as_ref().is_none_or(|row| row.has_survivor_like(mutation))
    };
    let all: Vec<_> = mutations(function).into_iter().filter(asked).collect();
    let every = arguments.every.max(1);
    let chosen: Vec<_> = match arguments.seed {
        Some(seed) => drawn(&all, every, &mut fastrand::Rng::with_seed(seed ^ class)),
        None => all.into_iter().step_by(every).collect(),
    };
    let patient: Vec<_> = Schedule::sweep(PATIENCE).skip(schedules.len()).collect();
    let (done, all) = (AtomicUsize::new(journal.map_or(0, Journal::len)), chosen.len());
    let attempt = |mutation: &Mutation| {
        let reason = Reason::of(function, mutation);
        let few = reason.is_some_and(Reason::is_proven);
        let tried = if few { SCHEDULES_OF_EQUIVALENTS.min(schedules.len()) } else { schedules.len() };
        let mut verdict = specimen.judge(mutation.apply(function), &schedules[..tried]);
        if matches!(verdict, Verdict::Alive) {
            verdict = match reason {
                Some(reason) => Verdict::Equivalent(reason.name()),
                None => specimen.judge_longer(mutation.apply(function), &patient),
            };
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(32) {
            eprint!("\r{name}: {done} of {all}");
        }
        Kind::of(mutation, &verdict)
    };
    let result = |(index, mutation): (usize, &Mutation)| match journal {
        Some(journal) => journal.kind(index, || attempt(mutation)),
        None => Ok(attempt(mutation)),
    };
    let results: Vec<Kind> = chosen.par_iter().enumerate().map(result).collect::<Result<_, _>>()?;
    let survivors: Vec<String> = results
        .iter()
        .filter(|kind| kind.outcome == Outcome::Survived)
        .map(|kind| kind.note.clone())
        .collect();
    let tried = Row { every, ..Row::new(name, class, arguments.schedules, results) };
    let row = before.map_or(tried.clone(), |row| row.with_survivors_as(tried));
    let (survived, seconds) = (row.survived(), start.elapsed().as_secs_f64());
    eprintln!("\r{name}: {all} mutants, {survived} survived, {seconds:.1} s");
    for survivor in survivors {
        eprintln!("  {survivor}");
    }
    Ok(row)
}

/// One in `every` mutants of each statement and change, at least one, in their order.
fn drawn(all: &[Mutation], every: usize, random: &mut fastrand::Rng) -> Vec<Mutation> {
    let mut kinds = BTreeMap::<_, Vec<usize>>::new();
    for (at, mutation) in all.iter().enumerate() {
        kinds.entry((mutation.target, mutation.change.to_string())).or_default().push(at);
    }
    let mut places = Vec::new();
    for (_, mut of_kind) in kinds {
        random.shuffle(&mut of_kind);
        places.extend_from_slice(&of_kind[..of_kind.len().div_ceil(every)]);
    }
    places.sort_unstable();
    places.into_iter().map(|at| all[at].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the surviving mutants.
    fn survivors(row: &Row) -> Vec<&Kind> {
        row.kinds.keys().filter(|kind| kind.outcome == Outcome::Survived).collect()
    }

    fn proved(subject: &dyn Subject, schedules: u64, every: usize) -> Row {
        let arguments = Mutate { schedules, every, ..Mutate::default() };
        let specimen = Specimen::new(subject).expect("the kernel itself is right");
        prove((subject.name(), 0), &specimen, &arguments, None, None).expect("nothing is written")
    }

    /// The whole proof of one small kernel. It takes some seconds, so each change of the emulator is tested
    /// with it.
    #[test]
    fn every_mutant_of_a_small_kernel_is_killed() {
        let gemm = kernel::find("64x64-direct-bf16-kk").expect("a catalogue name");
        let row = proved(&Gemm::from(gemm), 2, 1);
        assert!(survivors(&row).is_empty(), "{:?}", survivors(&row));
        assert!(row.count(Outcome::killed) > 100, "{row:?}");
    }

    /// The tables list each kernel as it is now: with results, or as not tried.
    #[test]
    fn the_tables_name_every_kernel_as_it_is() {
        let kernels = kernels().expect("every kernel is a program");
        let record = record::load().expect("the record is there");
        let document = report::document().expect("the document is there");
        let tables = report::markdown(&record, &named(&kernels));
        for (name, _) in named(&kernels) {
            let kind = name.rsplitn(3, '-').nth(2).unwrap_or(name);
            let said = tables.contains(&format!("`{name}`")) || tables.contains(&format!("`{kind}-*`"));
            assert!(said, "{name}");
        }
        let now = report::with(&document, &tables).expect("the document has its marks");
        let remedy = "run `cargo xtask mutate --stale --write`, or `--tables` to list them as untried";
        assert!(now == document, "docs/evidence/proof.md is older than the kernels: {remedy}");
    }

    /// A fault that shows only if a CTA is delayed between the signals of its first and its last warp.
    #[test]
    fn a_flag_that_every_thread_raises_is_noticed() {
        let gemm = Gemm::from(kernel::find("256x192-stream-k-bf16-kk").expect("a catalogue name"));
        let mutant = Some("if in every thread in consumer / fix-up (".to_owned());
        let arguments = Mutate { schedules: 8, every: 1, mutant, ..Mutate::default() };
        let specimen = Specimen::new(&gemm).expect("the kernel itself is right");
        let row = prove(("256x192-stream-k-bf16-kk", 0), &specimen, &arguments, None, None)
            .expect("nothing is written");
        assert_eq!((row.count(Outcome::killed), row.survived()), (1, 0), "{row:?}");
    }

    /// Every 300th mutant of kernels of other sizes and with clusters; with `--long` every fifth.
    #[test]
    fn a_sample_of_the_larger_kernels_mutants_is_killed() {
        let every = if std::env::var_os("FALCHION_LONG").is_some() { 5 } else { 300 };
        for gemm in extra::kernels()
            .into_iter()
            .chain([kernel::find("128x128-direct-f16-mn").expect("a catalogue name")])
        {
            // Wrong barrier numbers show under some random schedules only.
            let row = proved(&Gemm::from(gemm), 8, every);
            assert!(survivors(&row).is_empty(), "{}: {:?}", row.kernel, survivors(&row));
        }
    }
}
