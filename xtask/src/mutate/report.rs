//! The tables of the proof, as Markdown.

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;

use emulator::Schedule;

use super::equivalent;
use super::record::{Outcome, Row};
use crate::error::Error;

/// Where the tables are kept.
const FILE: &str = "docs/proof.md";
const BEGIN: &str = "<!-- made by cargo xtask mutate -->";
const END: &str = "<!-- end -->";

/// The share of mutants that had to be killed and were, in percent.
fn share(killed: usize, survived: usize) -> f64 {
    100.0 * killed as f64 / (killed + survived).max(1) as f64
}

/// The whole report.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = table(&mut text, rows);
    let _ = first_noticed(&mut text, rows);
    let _ = kinds(&mut text, rows);
    let _ = alive(&mut text, rows);
    text
}

fn table(text: &mut String, rows: &[Row]) -> fmt::Result {
    write!(text, "| kernel | mutants |")?;
    Outcome::ALL.iter().try_for_each(|outcome| write!(text, " {} |", outcome.name()))?;
    writeln!(text, " killed |\n|---|--:|{}--:|", "--:|".repeat(Outcome::ALL.len()))?;
    let mut sums = [0usize; Outcome::ALL.len()];
    for row in rows {
        let numbers = Outcome::ALL.map(|outcome| row.count(|other| other == outcome));
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
        line(text, &row.kernel, numbers)?;
    }
    line(text, "**all**", sums)
}

fn line(text: &mut String, name: &str, numbers: [usize; Outcome::ALL.len()]) -> fmt::Result {
    let [.., equivalent, survived] = numbers;
    let all: usize = numbers.iter().sum();
    write!(text, "| {name} | {all} |")?;
    numbers.iter().try_for_each(|number| write!(text, " {number} |"))?;
    writeln!(text, " {:.1} % |", share(all - equivalent - survived, survived))
}

fn first_noticed(text: &mut String, rows: &[Row]) -> fmt::Result {
    let random = rows.iter().map(|row| row.random).min().unwrap_or(0);
    let schedules = Schedule::sweep(1).map(|(schedule, _)| format!("{schedule:?}"));
    writeln!(
        text,
        "\nSchedules in the order in which they were tried, {random} of them random, and how many mutants each was \
         the first to notice:\n"
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

fn kinds(text: &mut String, rows: &[Row]) -> fmt::Result {
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
    writeln!(text, "\n| equivalent mutant | how many | why it is the same program |\n|---|--:|---|")?;
    reasons.iter().try_for_each(|((what, name), count)| {
        let why = equivalent::text(name)
            .unwrap_or("This reason is given no more: the kernel has to be tried again.");
        writeln!(text, "| {what} | {count} | {why} |")
    })
}

fn alive(text: &mut String, rows: &[Row]) -> fmt::Result {
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

/// Replaces the tables in the document.
pub(super) fn write(text: &str) -> Result<(), Error> {
    let failed = |problem: &dyn fmt::Display| Error::Proof(format!("{FILE} could not be written: {problem}"));
    let document = std::fs::read_to_string(FILE).map_err(|error| failed(&error))?;
    let (Some(begin), Some(end)) = (document.find(BEGIN), document.find(END)) else {
        return Err(failed(&"its marks are gone"));
    };
    let head = &document[..begin + BEGIN.len()];
    let document = format!("{head}\n\n{text}\n{}", &document[end..]);
    std::fs::write(FILE, document).map_err(|error| failed(&error))
}
