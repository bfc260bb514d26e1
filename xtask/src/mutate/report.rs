//! The tables of the proof in Markdown.

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;

use emulator::Schedule;

use falchion::verify::equivalent::Reason;

use super::record::{Known, Named, Outcome, Record, Row, Unbroken, path};
use crate::error::Error;

/// The document with the tables.
const FILE: &str = "docs/evidence/proof.md";
const BEGIN: &str = "<!-- made by cargo xtask mutate -->";
const END: &str = "<!-- end -->";

/// The percentage of the mutants that are not equivalent that were killed.
fn share(killed: usize, survived: usize) -> f64 {
    100.0 * killed as f64 / (killed + survived).max(1) as f64
}

/// The whole report: the results of kernels in their current form, and the kernels without results.
pub(super) fn markdown(record: &Record, kernels: &[Named<'_>]) -> String {
    let rows = current(&record.rows, kernels);
    let unbroken = current(&record.unbroken, kernels);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = summary(&mut text, &rows, &unbroken, kernels);
    text.push_str(&tables(&rows, kernels));
    let _ = complaints(&mut text, &unbroken, kernels);
    let _ = classes(&mut text, &rows, &unbroken, kernels);
    text
}

/// Only the tables of mutants.
pub(super) fn tables(rows: &[&Row], kernels: &[Named<'_>]) -> String {
    let mut text = String::new();
    let _ = table(&mut text, rows, kernels);
    let _ = first_noticed(&mut text, rows);
    let _ = kinds(&mut text, rows);
    let _ = alive(&mut text, rows);
    text
}

/// The results of kernels that have not changed since.
fn current<'r, T: Known>(all: &'r [T], kernels: &[Named<'_>]) -> Vec<&'r T> {
    all.iter().filter(|row| kernels.contains(&row.of())).collect()
}

fn knows<T: Known>(rows: &[&T], class: u64) -> bool {
    rows.iter().any(|row| row.of().1 == class)
}

/// The number of kernels of a class that were not tried themselves.
fn represented<T: Known>(rows: &[&T], kernels: &[Named<'_>], class: u64) -> usize {
    let itself = |name: &str| rows.iter().any(|row| row.of().0 == name);
    kernels.iter().filter(|(name, of)| *of == class && !itself(name)).count()
}

fn summary(text: &mut String, rows: &[&Row], unbroken: &[&Unbroken], kernels: &[Named<'_>]) -> fmt::Result {
    let sum = |is: fn(Outcome) -> bool| rows.iter().map(|row| row.count(is)).sum::<usize>();
    let (all, killed) = (sum(|_| true), sum(Outcome::killed));
    let (equivalent, survived) =
        (sum(|outcome| outcome == Outcome::Equivalent), sum(|outcome| outcome == Outcome::Survived));
    let proved = kernels.iter().filter(|(_, class)| knows(rows, *class)).count();
    let heard = kernels.iter().filter(|(_, class)| knows(unbroken, *class)).count();
    let runs: usize = unbroken.iter().map(|one| one.runs).sum();
    let complaints: usize = unbroken.iter().map(|one| one.complaints).sum();
    writeln!(
        text,
        "* {all} mutants of {} kernels, which represent {proved} of {}: {killed} killed, {equivalent} equivalent, {survived} \
         survived. Of those that are not equivalent, **{:.2} %** are killed.",
        rows.len(),
        kernels.len(),
        share(killed, survived)
    )?;
    let mut drawn: BTreeMap<usize, usize> = BTreeMap::new();
    rows.iter().filter(|row| row.every > 1).for_each(|row| *drawn.entry(row.every).or_default() += 1);
    for (every, kernels) in drawn {
        writeln!(
            text,
            "* Of {kernels} of these kernels, one in {every} mutants of each statement and change was drawn, at least one; the others were \
             not tried as the kernels and the emulator are now."
        )?;
    }
    writeln!(
        text,
        "* {} unbroken kernels, which represent {heard} of {}, under {} schedules or more each, {runs} launches: \
         **{complaints}** false alarms.",
        unbroken.len(),
        kernels.len(),
        unbroken.iter().map(|one| one.schedules).min().unwrap_or(0)
    )?;
    for (what, known) in [
        ("mutants", &(|class| knows(rows, class)) as &dyn Fn(u64) -> bool),
        ("false-alarm runs", &|class| knows(unbroken, class)),
    ] {
        let missing: Vec<&str> =
            kernels.iter().filter(|(_, class)| !known(*class)).map(|(name, _)| *name).collect();
        if missing.is_empty() {
            writeln!(text, "* Every kernel in its current form has {what}, its own or those of its class.")?;
        } else {
            writeln!(text, "* Kernels without {what} in their current form: {}.", short(&missing, kernels))?;
        }
    }
    writeln!(text)
}

/// A list of names; a kind with all its layouts is one entry.
fn short(names: &[&str], kernels: &[Named<'_>]) -> String {
    let kind = |name: &str| name.rsplitn(3, '-').nth(2).map(str::to_owned);
    let mut said: Vec<String> = Vec::new();
    for name in names {
        let same = |other: &str| kind(name).is_some() && kind(other) == kind(name);
        let there_are = kernels.iter().filter(|(other, _)| same(other)).count();
        let whole = there_are > 1 && names.iter().filter(|other| same(other)).count() == there_are;
        let word = match kind(name) {
            Some(kind) if whole => format!("`{kind}-*`"),
            _ => format!("`{name}`"),
        };
        if !said.contains(&word) {
            said.push(word);
        }
    }
    said.join(", ")
}

fn table(text: &mut String, rows: &[&Row], kernels: &[Named<'_>]) -> fmt::Result {
    write!(text, "| kernel | represents | mutants |")?;
    Outcome::ALL.iter().try_for_each(|outcome| write!(text, " {} |", outcome.name()))?;
    writeln!(text, " killed |\n|---|--:|--:|{}--:|", "--:|".repeat(Outcome::ALL.len()))?;
    let mut sums = [0usize; Outcome::ALL.len()];
    let mut all_others = 0;
    for (at, row) in rows.iter().enumerate() {
        let numbers = Outcome::ALL.map(|outcome| row.count(|other| other == outcome));
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
        let first = !rows[..at].iter().any(|before| before.class == row.class);
        let others = if first { represented(rows, kernels, row.class) } else { 0 };
        all_others += others;
        line(text, &row.kernel, others, numbers)?;
    }
    line(text, "**all**", all_others, sums)
}

fn line(text: &mut String, name: &str, others: usize, numbers: [usize; Outcome::ALL.len()]) -> fmt::Result {
    let [.., equivalent, survived] = numbers;
    let all: usize = numbers.iter().sum();
    write!(text, "| {name} | {others} | {all} |")?;
    numbers.iter().try_for_each(|number| write!(text, " {number} |"))?;
    writeln!(text, " {:.1} % |", share(all - equivalent - survived, survived))
}

fn complaints(text: &mut String, unbroken: &[&Unbroken], kernels: &[Named<'_>]) -> fmt::Result {
    writeln!(text, "\n| unbroken kernel | represents | schedules | problems | launches | false alarms |")?;
    writeln!(text, "|---|--:|--:|--:|--:|--:|")?;
    for (at, one) in unbroken.iter().enumerate() {
        let Unbroken { kernel, class, schedules, problems, runs, complaints } = one;
        let first = !unbroken[..at].iter().any(|before| before.class == *class);
        let others = if first { represented(unbroken, kernels, *class) } else { 0 };
        writeln!(text, "| {kernel} | {others} | {schedules} | {problems} | {runs} | {complaints} |")?;
    }
    Ok(())
}

/// The kernels of each class.
fn classes(text: &mut String, rows: &[&Row], unbroken: &[&Unbroken], kernels: &[Named<'_>]) -> fmt::Result {
    writeln!(text, "\n| class | mutants of | unbroken | kernels of the class |\n|---|---|---|---|")?;
    let mut said = Vec::new();
    for (_, class) in kernels {
        if said.contains(class) {
            continue;
        }
        said.push(*class);
        let members: Vec<&str> =
            kernels.iter().filter(|(_, of)| of == class).map(|(name, _)| *name).collect();
        let tried: Vec<&str> =
            rows.iter().filter(|row| row.class == *class).map(|row| row.kernel.as_str()).collect();
        let heard: Vec<&str> =
            unbroken.iter().filter(|one| one.class == *class).map(|one| one.kernel.as_str()).collect();
        writeln!(
            text,
            "| {class:016x} | {} | {} | {} |",
            tried.join(", "),
            heard.join(", "),
            short(&members, kernels)
        )?;
    }
    Ok(())
}

fn first_noticed(text: &mut String, rows: &[&Row]) -> fmt::Result {
    let random = rows.iter().map(|row| row.random).min().unwrap_or(0);
    let schedules = Schedule::sweep(1).map(|(schedule, _)| format!("{schedule:?}"));
    writeln!(
        text,
        "\nSchedules in the order in which they were tried ({random} of them random), with the number of mutants that \
         each was the first to notice:\n"
    )?;
    writeln!(text, "| schedule | mutants |\n|---|--:|")?;
    for schedule in schedules {
        let noticed = rows.iter().flat_map(|row| &row.kinds);
        let noticed = noticed.filter(|(kind, _)| kind.outcome.killed() && kind.note == schedule);
        let count: usize = noticed.map(|(_, count)| count).sum();
        writeln!(text, "| {schedule} | {count} |")?;
    }
    Ok(())
}

fn kinds(text: &mut String, rows: &[&Row]) -> fmt::Result {
    let mut kinds: BTreeMap<(&str, &str), [usize; 3]> = BTreeMap::new();
    let mut reasons: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for (kind, count) in rows.iter().flat_map(|row| &row.kinds) {
        let counts = kinds.entry((&kind.target, &kind.change)).or_default();
        match kind.outcome {
            Outcome::Equivalent => {
                counts[1] += count;
                let what = format!("{} {}", kind.target, kind.change);
                *reasons.entry((what, &kind.note)).or_default() += count;
            }
            Outcome::Survived => counts[2] += count,
            Outcome::Refused | Outcome::Trap | Outcome::Hang | Outcome::Livelock | Outcome::WrongOutput => {
                counts[0] += count;
            }
        }
    }
    writeln!(text, "\n| statement | change | killed | equivalent | survived |\n|---|---|--:|--:|--:|")?;
    for ((target, change), [killed, equivalent, survived]) in &kinds {
        writeln!(text, "| {target} | {change} | {killed} | {equivalent} | {survived} |")?;
    }
    writeln!(text, "\n| equivalent mutant | number | why it behaves as the original |\n|---|--:|---|")?;
    reasons.iter().try_for_each(|((what, name), count)| {
        let why =
            Reason::named(name).map_or("This reason no longer exists: run the kernel again.", Reason::text);
        writeln!(text, "| {what} | {count} | {why} |")
    })
}

fn alive(text: &mut String, rows: &[&Row]) -> fmt::Result {
    if rows.iter().all(|row| row.survived() == 0) {
        return writeln!(text, "\nNo mutant survived.");
    }
    writeln!(text, "\nSurvivors:\n")?;
    for row in rows {
        for (kind, count) in row.kinds.iter().filter(|(kind, _)| kind.outcome == Outcome::Survived) {
            writeln!(text, "- {}: {} ({count})", row.kernel, kind.note)?;
        }
    }
    Ok(())
}

/// The document with these tables in place of its old ones.
pub(super) fn with(document: &str, text: &str) -> Result<String, Error> {
    let (Some(begin), Some(end)) = (document.find(BEGIN), document.find(END)) else {
        return Err(Error::Proof(format!("{FILE} could not be written: its marks are gone")));
    };
    Ok(format!("{}\n\n{text}\n{}", &document[..begin + BEGIN.len()], &document[end..]))
}

/// The document as it is.
pub(super) fn document() -> Result<String, Error> {
    let failed = |error| Error::Proof(format!("{FILE} could not be read: {error}"));
    std::fs::read_to_string(path(FILE)).map_err(failed)
}

/// Writes the tables to the document.
pub(super) fn write(text: &str) -> Result<(), Error> {
    let failed = |error| Error::Proof(format!("{FILE} could not be written: {error}"));
    std::fs::write(path(FILE), with(&document()?, text)?).map_err(failed)
}
