//! The table of the proof, as Markdown.

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;
use std::time::Duration;

use emulator::Schedule;
use ptx::mutate::Mutation;

use super::trial::Verdict;
use crate::error::Error;

/// Where the table is kept.
const FILE: &str = "docs/proof.md";
const BEGIN: &str = "<!-- made by cargo xtask mutate -->";
const END: &str = "<!-- end -->";

/// What became of one kernel's mutants.
pub(super) struct Row {
    kernel: String,
    results: Vec<(Mutation, Verdict)>,
    time: Duration,
}

impl Row {
    pub(super) fn new(kernel: &str, results: Vec<(Mutation, Verdict)>, time: Duration) -> Self {
        Self { kernel: kernel.to_owned(), results, time }
    }

    fn count(&self, is: impl Fn(&Verdict) -> bool) -> usize {
        self.results.iter().filter(|(_, verdict)| is(verdict)).count()
    }

    fn killed_by(&self, how: &str) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Killed { by, .. } if *by == how))
    }

    fn equivalent(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Equivalent(_)))
    }

    #[cfg(test)]
    pub(super) fn killed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Refused | Verdict::Killed { .. }))
    }

    pub(super) fn survived(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Alive))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, equivalent, survived) = (self.results.len(), self.equivalent(), self.survived());
        let time = self.time.as_secs_f64();
        write!(
            f,
            "{}: {all} mutants, {equivalent} equivalent, {survived} survived, {time:.1} s",
            self.kernel
        )?;
        for (mutation, verdict) in &self.results {
            if matches!(verdict, Verdict::Alive) {
                write!(f, "\n  {mutation} {verdict}")?;
            }
        }
        Ok(())
    }
}

/// The share of mutants that had to be killed and were, in percent.
fn share(killed: usize, survived: usize) -> f64 {
    100.0 * killed as f64 / (killed + survived).max(1) as f64
}

/// The whole report.
pub(super) fn markdown(rows: &[Row], schedules: &[(Schedule, u64)]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = table(&mut text, rows);
    let _ = first_noticed(&mut text, rows, schedules);
    let _ = kinds(&mut text, rows);
    let _ = alive(&mut text, rows);
    text
}

const HOW: [&str; 4] = ["trap", "hang", "livelock", "wrong output"];

fn table(text: &mut String, rows: &[Row]) -> fmt::Result {
    writeln!(
        text,
        "| kernel | mutants | refused | trap | hang | livelock | wrong output | equivalent | survived | killed |"
    )?;
    writeln!(text, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    let mut sums = [0usize; 8];
    for row in rows {
        let refused = row.count(|verdict| matches!(verdict, Verdict::Refused));
        let [trap, hang, livelock, wrong] = HOW.map(|how| row.killed_by(how));
        let numbers =
            [row.results.len(), refused, trap, hang, livelock, wrong, row.equivalent(), row.survived()];
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
        line(text, &row.kernel, numbers)?;
    }
    line(text, "**all**", sums)
}

fn line(text: &mut String, name: &str, numbers: [usize; 8]) -> fmt::Result {
    let [all, .., equivalent, survived] = numbers;
    write!(text, "| {name} |")?;
    numbers.iter().try_for_each(|number| write!(text, " {number} |"))?;
    writeln!(text, " {:.1} % |", share(all - equivalent - survived, survived))
}

fn first_noticed(text: &mut String, rows: &[Row], schedules: &[(Schedule, u64)]) -> fmt::Result {
    let random = schedules.iter().filter(|(schedule, _)| *schedule == Schedule::Random).count();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, verdict) in rows.iter().flat_map(|row| &row.results) {
        if let Verdict::Killed { schedule, .. } = verdict {
            let at = schedules.iter().position(|known| known.0 == schedule.0).unwrap_or(0);
            *counts.entry(at).or_default() += 1;
        }
    }
    writeln!(
        text,
        "\nSchedules in the order in which they were tried, {random} of them random, and how many mutants each was the first to notice:\n"
    )?;
    writeln!(text, "| schedule | mutants |\n|---|--:|")?;
    counts.iter().try_for_each(|(&at, count)| writeln!(text, "| {:?} | {count} |", schedules[at].0))
}

fn kinds(text: &mut String, rows: &[Row]) -> fmt::Result {
    let mut kinds: BTreeMap<(String, String), [usize; 3]> = BTreeMap::new();
    let mut reasons: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    for (mutation, verdict) in rows.iter().flat_map(|row| &row.results) {
        let kind = (mutation.target.to_owned(), mutation.change.to_string());
        let what = format!("{} {}", mutation.target, mutation.change);
        let counts = kinds.entry(kind).or_default();
        match verdict {
            Verdict::Refused | Verdict::Killed { .. } => counts[0] += 1,
            Verdict::Equivalent(reason) => {
                counts[1] += 1;
                *reasons.entry((what, reason)).or_default() += 1;
            }
            Verdict::Alive => counts[2] += 1,
        }
    }
    writeln!(text, "\n| statement | change | killed | equivalent | survived |\n|---|---|--:|--:|--:|")?;
    for ((target, change), [killed, equivalent, survived]) in &kinds {
        writeln!(text, "| {target} | {change} | {killed} | {equivalent} | {survived} |")?;
    }
    writeln!(text, "\n| equivalent mutant | how many | why it is the same program |\n|---|--:|---|")?;
    reasons.iter().try_for_each(|((what, reason), count)| writeln!(text, "| {what} | {count} | {reason} |"))
}

fn alive(text: &mut String, rows: &[Row]) -> fmt::Result {
    let mut alive = rows.iter().filter(|row| row.survived() > 0).peekable();
    if alive.peek().is_none() {
        return writeln!(text, "\nNo mutant survived.");
    }
    writeln!(text, "\nSurvivors:\n")?;
    for row in alive {
        for (mutation, _) in row.results.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Alive)) {
            writeln!(text, "- {}: {mutation}", row.kernel)?;
        }
    }
    Ok(())
}

/// Replaces the table in the document.
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
