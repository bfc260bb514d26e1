//! `falchion cache`: shows, trims and clears the folder of compiled kernels and tuning records.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use kernel::disk::{Cache, Entry, Limit, Removed, VARIABLE};

use crate::cli::memory::bytes;
use crate::cli::options::{Given, Verb};
use crate::cli::output::{out, shortened};
use crate::cli::{Command, Failure};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::CACHE,
    about: "Show the folder of compiled kernels and tuning records, trim it or clear it.

The environment variable FALCHION_CACHE names the folder. If it is not set, the folder is `falchion` in the platform's cache \
folder, on Linux ~/.cache/falchion. If it is set to the empty string, nothing is kept. An entry is valid for one card, driver \
version and falchion version.

Compiled kernels are kept only if the environment variable FALCHION_PTXAS names NVIDIA's assembler, which then compiles them. Each \
assembler version has its own entries. Otherwise the driver compiles kernels and uses its own cache.",
    examples: "Examples:\n  falchion cache\n  falchion cache trim --keep 200MB\n  falchion cache trim --older-than 30\n  FALCHION_CACHE=/data/kernels falchion cache clear",
    run: |_| run(None),
};

pub(crate) const TRIM: Command = Command {
    verb: Verb::TRIM,
    about: "Remove the entries that were unused for longest. Compiled kernels are removed before tuning records.",
    examples: "",
    run: |given| run(Some(&|cache| cache.trim(limit(given)?).map_err(Failure::from))),
};

pub(crate) const CLEAR: Command = Command {
    verb: Verb::CLEAR,
    about: "Remove every entry. Other files in the folder stay.",
    examples: "",
    run: |_| run(Some(&|cache| cache.clear().map_err(Failure::from))),
};

/// Removes entries of the folder.
type Remove<'a> = &'a dyn Fn(&Cache) -> Result<Removed, Failure>;

/// Shows the folder, or removes entries of it.
fn run(remove: Option<Remove<'_>>) -> Result<(), Failure> {
    let chosen = Cache::of_environment()?;
    let out = &mut out();
    let Some(cache) = chosen else {
        writeln!(out, "{VARIABLE} is empty: no kernels and no records are kept")?;
        return match remove {
            None => Ok(()),
            Some(_) => Err(usage!("{VARIABLE} is empty: set it to the folder, or unset it")),
        };
    };
    let Some(remove) = remove else { return show(out, &cache) };
    let removed = remove(&cache)?;
    let left = cache.entries()?;
    let Removed { entries, bytes: gone } = removed;
    writeln!(
        out,
        "{}: removed {}, {} left",
        cache.folder().display(),
        count(entries, gone),
        count(left.len(), total(&left))
    )?;
    Ok(())
}

/// What `trim` keeps.
fn limit(given: &Given) -> Result<Limit, Failure> {
    match (given.get("keep"), given.get::<u32>("older-than")) {
        (Some(bytes), _) => Ok(Limit::Bytes(bytes)),
        (None, Some(days)) => Ok(Limit::Age(Duration::from_secs(u64::from(days) * 86_400))),
        (None, None) => Err(usage!("--keep or --older-than was needed")),
    }
}

fn total(entries: &[Entry]) -> u128 {
    entries.iter().map(|entry| u128::from(entry.bytes)).sum()
}

/// The number of entries and their size, as text.
fn count(entries: usize, size: u128) -> String {
    let word = if entries == 1 { "entry" } else { "entries" };
    format!("{entries} {word} of {}", bytes(size as f64))
}

/// The entries of one kind, card, driver and version.
#[derive(Default)]
struct Group {
    entries: usize,
    bytes: u128,
    youngest: Option<Duration>,
    oldest: Duration,
}

fn show(out: &mut impl Write, cache: &Cache) -> Result<(), Failure> {
    let entries = cache.entries()?;
    let from = if cache.is_named() { format!("from {VARIABLE}") } else { "the platform's".to_owned() };
    writeln!(out, "{} ({from}): {}", cache.folder().display(), count(entries.len(), total(&entries)))?;
    let mut groups: BTreeMap<[String; 4], Group> = BTreeMap::new();
    for entry in &entries {
        let [card, driver, version] = match &entry.key {
            Some(key) => [key.card(), key.driver(), key.version()],
            None => ["(damaged)", "", ""],
        };
        let of = [entry.kind.name(), card, driver, version].map(shortened);
        let (group, age) = (groups.entry(of).or_default(), entry.age());
        group.entries += 1;
        group.bytes += u128::from(entry.bytes);
        group.youngest = Some(group.youngest.map_or(age, |youngest| youngest.min(age)));
        group.oldest = group.oldest.max(age);
    }
    if !groups.is_empty() {
        list(out, &groups)?;
    }
    Ok(())
}

fn list(out: &mut impl Write, groups: &BTreeMap<[String; 4], Group>) -> io::Result<()> {
    let titles = ["kind", "card", "driver", "falchion"].map(str::to_owned);
    // The widest text of each column.
    let width =
        |at: usize| groups.keys().chain([&titles]).map(|words| words[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 4] = core::array::from_fn(width);
    let mut line = |words: &[String; 4], numbers: [&str; 4]| {
        for (word, width) in words.iter().zip(widths) {
            write!(out, "{word:width$}  ")?;
        }
        let [entries, bytes, youngest, oldest] = numbers;
        writeln!(out, "{entries:>7} {bytes:>10} {youngest:>10} {oldest:>10}")
    };
    line(&titles, ["entries", "bytes", "last used", "oldest"])?;
    for (words, group) in groups {
        let Group { entries, bytes: size, youngest, oldest } = group;
        let ages = [youngest.unwrap_or_default(), *oldest].map(age);
        line(words, [&entries.to_string(), &bytes(*size as f64), &ages[0], &ages[1]])?;
    }
    Ok(())
}

/// A duration in the largest unit that fits, rounded down.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let units = [(86_400, "days"), (3600, "h"), (60, "min")];
    match units.into_iter().find(|(unit, _)| seconds >= *unit) {
        Some((86_400, _)) if seconds < 2 * 86_400 => "1 day".to_owned(),
        Some((unit, name)) => format!("{} {name}", seconds / unit),
        None => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_any_files_are_added() {
        let entry = |bytes| Entry {
            kind: kernel::disk::Kind::Kernel,
            path: std::path::PathBuf::new(),
            key: None,
            bytes,
            used: std::time::SystemTime::UNIX_EPOCH,
        };
        assert_eq!(total(&[entry(u64::MAX), entry(2)]), 1 << 64 | 1);
    }

    #[test]
    fn ages_have_the_unit_that_fits() {
        for (seconds, want) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (86_400, "1 day"), (864_000, "10 days")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), want);
        }
    }
}
