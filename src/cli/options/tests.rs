//! The table agrees with itself, with the page in the documentation, and with what the commands read.

use rayon::prelude::*;

use super::table::ROWS;
use super::{Given, Row, Verb, page, rows};
use crate::cli::{COMMANDS, Command, Failure, cache, definition};

const PAGE: &str = include_str!("../../../docs/options.md");

#[test]
fn clap_takes_the_definitions() {
    definition().debug_assert();
}

#[test]
fn names_are_of_one_option_and_relations_of_options_that_exist() {
    for command in commands() {
        let mut names: Vec<String> = rows(command.verb).map(|row| row.name.to_owned()).collect();
        names.extend(rows(command.verb).filter_map(|row| row.short.map(String::from)));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{}: {names:?}", command.verb.name());
    }
    for row in ROWS.iter() {
        for other in row.needs.iter().chain(row.excludes) {
            assert!(ROWS.iter().any(|row| row.name == *other), "{}: no option is {other}", row.name);
        }
        // What is written is known as such, so that `-` is standard output.
        let written =
            row.value == "FILE" && ["Write", "Append"].iter().any(|verb| row.help.starts_with(verb));
        assert_eq!(crate::cli::output::WRITTEN.contains(&row.name), written, "{}", row.name);
    }
}

/// `OPTIONS=write` writes the page.
#[test]
fn the_page_is_that_of_the_table() {
    let page = page::page().expect("text");
    if std::env::var_os("OPTIONS").is_some() {
        std::fs::write("docs/options.md", page).expect("a writable folder");
        return;
    }
    assert_eq!(page, PAGE, "OPTIONS=write cargo test --all-features --lib page");
}

fn commands() -> impl Iterator<Item = Command> {
    COMMANDS.iter().copied().chain([cache::TRIM, cache::CLEAR])
}

/// A legal value of an option.
fn value(verb: Verb, row: &Row, file: &str) -> Option<String> {
    let text = match (row.name, verb) {
        _ if row.value.is_empty() => return None,
        ("family", _) => "attention",
        ("problem", _) => "1x2x100 d=64",
        ("kernel", _) => "tile=64x64x64 store=direct",
        ("m" | "n" | "k" | "width" | "lines", _) => "64",
        ("shape" | "group" | "run", _) => "64x64x64",
        ("rows", _) => "3,0,20",
        ("max-rows", _) => "32",
        ("k-groups", _) => "64,0,128",
        ("dtype", _) => "e4m3",
        ("dtype-b", _) => "e5m2",
        ("out-dtype", _) => "f32",
        ("scale-block-a" | "scale-block-b", _) => "1x128",
        ("sparse", _) => "b",
        ("layout", _) => "kk",
        ("epilogue", _) => "bias",
        ("engine", _) => "emulator",
        ("suite", Verb::VERIFY) => "quick",
        ("suite", _) => "grouped",
        ("filter", _) => "alpha-zero",
        ("schedule", _) => "random",
        ("expr", _) => "(64,64)",
        ("atom", _) => "smem-k-128B-bf16-64x64",
        ("tile", _) => "64x64",
        ("access", _) => "column",
        ("banks", _) => "32",
        ("lane-bytes", _) => "4",
        ("a" | "b" | "c" | "scale-a" | "scale-b" | "zero-a" | "zero-b", _) => file,
        ("shapes" | "replay" | "kernels" | "launch" | "baseline", _) => "/no file",
        ("suppress", _) => "shared-race:1-2",
        (
            "out" | "svg" | "latex" | "json" | "csv" | "jsonl" | "record" | "sarif" | "trace"
            | "write-baseline",
            _,
        ) => "target/of-no-run",
        ("keep", _) => "1GB",
        _ => "2",
    };
    Some(text.to_owned())
}

/// What a command says to some options: `None` if it would begin to work.
fn said(command: &Command, given: &[&Row], file: &str) -> Option<String> {
    let mut line = vec![command.verb.name().to_owned()];
    for row in given {
        match value(command.verb, row, file) {
            None => line.push(format!("--{}", row.name)),
            Some(value) if row.is_positional() => line.push(value),
            Some(value) => line.extend([format!("--{}", row.name), value]),
        }
    }
    let matches = match command.definition().try_get_matches_from(line) {
        Ok(matches) => matches,
        Err(error) => return Some(error.to_string()),
    };
    let run =
        Given::new(command.verb, matches).and_then(|given| command.begin(&Given { dry: true, ..given }));
    match run {
        Err(Failure::Closed) => None,
        Err(Failure::Usage(words) | Failure::Environment(words)) => Some(words),
        other => panic!("{}: it began to work: {other:?}", command.verb.name()),
    }
}

/// Options without which the command has nothing to do, if others are given.
fn base(verb: Verb, given: &[&'static Row]) -> Vec<&'static Row> {
    let names: &[&str] = match verb {
        Verb::PLAN | Verb::GEMM | Verb::SCHEDULE | Verb::TRACE | Verb::EXPLORE | Verb::EMIT => {
            &["kernel", "m", "n", "k"]
        }
        Verb::TUNE => &["shape"],
        Verb::BENCH => &["shape"],
        Verb::LAYOUT => &["expr"],
        Verb::TRIM => &["keep"],
        Verb::CHART => &["records", "card"],
        Verb::CHECK => &["kernels"],
        _ => &[],
    };
    let mut all: Vec<&'static Row> = given.to_vec();
    // Scales are of 8-bit floats.
    let scaled = given.iter().any(|row| row.name.starts_with("scale-block"));
    let mut needed: Vec<&str> = given.iter().filter_map(|row| row.needs.first().copied()).collect();
    if given.iter().any(|row| row.name == "c") {
        needed.push("b");
    }
    if verb == Verb::TUNE && given.iter().any(|row| row.name == "rows" || row.needs == ["rows"]) {
        needed.extend(["rows", "n", "k"]);
    }
    for name in needed.into_iter().chain(scaled.then_some("dtype")).chain(names.iter().copied()) {
        let Some(row) = rows(verb).find(|row| row.name == name) else { continue };
        let has = |name: &str| all.iter().any(|row| row.name == name);
        let excluded = |a: &Row, b: &Row| a.excludes.contains(&b.name) || b.excludes.contains(&a.name);
        let unfit = all.iter().any(|other| excluded(row, other) || other.name == name)
            || matches!((verb, name), (Verb::PLAN | Verb::GEMM, "kernel"))
            || (matches!(verb, Verb::PLAN) && has("kernel"))
            || (matches!(verb, Verb::GEMM) && ["m", "n", "k"].contains(&name) && has("a"));
        if !unfit {
            all.push(row);
        }
    }
    all
}

/// Of any two options of a command, each is taken, or one is refused by its name. What is taken is what
/// [`Given::finish`] found taken before the command began to work.
#[test]
fn no_option_is_ignored_in_any_pair() {
    let file = std::env::temp_dir().join(format!("falchion-pairs-{}.npy", std::process::id()));
    let ones = vec![0x3c00; 64 * 64];
    crate::cli::files::write(&file, crate::verify::Format::F16, ([64, 64], false), &ones)
        .expect("a writable folder");
    let path = file.display().to_string();
    let mut pairs: Vec<(Command, [&'static Row; 2])> = Vec::new();
    for command in commands().filter(|command| command.verb != Verb::COMPILE) {
        let all: Vec<&'static Row> = rows(command.verb).collect();
        for (i, a) in all.iter().enumerate() {
            pairs.extend(all[i + 1..].iter().map(|b| (command, [*a, *b])));
        }
    }
    let wrong: Vec<String> = pairs
        .par_iter()
        .filter_map(|(command, pair)| {
            let given = base(command.verb, pair);
            let words = said(command, &given, &path)?;
            let named = given.iter().any(|row| {
                let value = value(command.verb, row, &path).filter(|value| value.len() > 2);
                words.contains(&row.flag()) || value.is_some_and(|value| words.contains(&value))
            });
            (!named)
                .then(|| format!("{} {} {}: {words}", command.verb.name(), pair[0].flag(), pair[1].flag()))
        })
        .collect();
    std::fs::remove_file(&file).expect("it was just written");
    assert!(pairs.len() > 1000, "{} pairs", pairs.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), pairs.len(), wrong.join("\n"));
}
