//! The measures of the table, taken and judged.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::code::Code;
use super::patch::{Part, Patch};
use super::sources::{Sources, single};
use super::table::{By, Measure, Table};
use super::taken::Taken;
use super::trial::Which;
use super::{Shape, counts, entries, lists, own, patch, roles, table, trial};
use crate::cargo;
use crate::error::Error;

/// Measures, prints the table and judges it; with `--patches`, tries patches instead.
pub(crate) fn run(options: &Shape) -> Result<(), Error> {
    let root = root()?;
    if let Some(names) = &options.patches {
        let which = match names.as_slice() {
            _ if options.drawn => Which::Drawn,
            [] => Which::All,
            names => Which::Named(names.to_vec()),
        };
        return trial::run(&root, &Patch::all(&root)?, &which);
    }
    let (table, text) = Table::read(&root)?;
    let rows = measure(&root, &table)?;
    if let Some(part) = &options.list {
        for row in rows.iter().filter(|row| row.measure.name.contains(part)) {
            println!("{}: {}", row.measure.name, row.measure.says);
            row.taken.details.iter().for_each(|detail| println!("    {detail}"));
        }
        println!();
    }
    println!("{}", picture(&rows));
    if options.write {
        for Row { measure, taken } in rows.iter().filter(|row| row.taken.value != row.measure.committed) {
            let back = better(measure, taken.value, measure.committed) == Ordering::Less;
            let says = if back { ", a step back: the commit message says why" } else { "" };
            println!("{}: {} was {}{says}", measure.name, shown(taken.value), shown(measure.committed));
        }
        let values = rows.iter().map(|row| (row.measure.name.as_str(), row.taken.value)).collect();
        let path = root.join(table::PATH);
        let written = fs::write(&path, table::rewritten(&text, &values));
        written.map_err(|source| Error::CannotWrite { path, source })?;
    }
    judge(&rows, options.write)
}

/// Measures and judges, for `cargo xtask check`, and prints the table.
pub(crate) fn check() -> Result<(), Error> {
    let root = root()?;
    let (table, _) = Table::read(&root)?;
    let rows = measure(&root, &table)?;
    println!("{}", picture(&rows));
    judge(&rows, false)
}

/// The root of the repository: the folder above this package.
fn root() -> Result<PathBuf, Error> {
    let metadata = cargo::metadata(&["--no-deps"])?;
    let root = metadata["workspace_root"].as_str().map(PathBuf::from);
    root.ok_or_else(|| Error::Metadata("it names no workspace_root".to_owned()))
}

/// A measure with its value.
struct Row<'t> {
    measure: &'t Measure,
    taken: Taken,
}

fn measure<'t>(root: &Path, table: &'t Table) -> Result<Vec<Row<'t>>, Error> {
    let (sources, patches) = (Sources::shipped(root)?, Patch::all(root)?);
    let mut rows = Vec::new();
    for measure in &table.measures {
        let taken = take(root, &sources, &patches, measure)?;
        rows.push(Row { measure, taken });
    }
    let known = |patch: &&Patch| {
        let is = |measure: &Measure| measure.name == patch.measure && matches!(measure.by, By::Patch {});
        table.measures.iter().any(is)
    };
    if let Some(patch) = patches.iter().find(|patch| !known(patch)) {
        let problem =
            format!("{} is for the measure `{}`, which is none by patches", patch.path, patch.measure);
        return Err(Error::Shape(problem));
    }
    for patch in &patches {
        let applied = patch.apply(root, root, Part::Check);
        let row = rows.iter_mut().find(|row| row.measure.name == patch.measure);
        if let (Err(error), Some(row)) = (applied, row) {
            row.taken.wrong.push(error.to_string());
        }
    }
    Ok(rows)
}

fn take(root: &Path, sources: &Sources, patches: &[Patch], measure: &Measure) -> Result<Taken, Error> {
    Ok(match &measure.by {
        By::Names {} => counts::names(sources),
        By::Functions { most } => counts::functions(sources, *most),
        By::Macros {} => counts::macros(sources),
        By::Expects { folders } => counts::expects(sources, folders),
        By::Lists(lists) => lists::count(sources, lists),
        By::Own(family) => {
            // Files of tests, which are not shipped.
            let unshipped =
                family.folders.iter().filter(|path| path.ends_with(".rs") && sources.file(path).is_none());
            let files: Vec<Code> = unshipped.map(|path| single(root, path)).collect::<Result<_, _>>()?;
            own::share(sources, &files, family)
        }
        By::Traits { file, of, library } => {
            roles::traits(sources, &single(root, file)?, of.as_deref(), library)
        }
        By::Tools { library, tool } => roles::tools(sources, library, tool),
        By::Entries { entries, search } => {
            let unshipped = entries.iter().filter_map(|entry| Some(entry.split_once("::")?.0));
            let unshipped =
                unshipped.filter(|path| sources.file(path).is_none() && root.join(path).is_file());
            let files: Vec<Code> = unshipped.map(|path| single(root, path)).collect::<Result<_, _>>()?;
            entries::count(sources, &files, entries, search.as_ref())
        }
        By::Patch {} => patch::files(patches, &measure.name),
    })
}

/// A value in a sentence.
fn shown(value: Option<u32>) -> String {
    value.map_or("nothing".to_owned(), |value| value.to_string())
}

/// Whether one value is better than another: nearer to the wanted one's side. Having none is worse than any.
fn better(measure: &Measure, a: Option<u32>, b: Option<u32>) -> Ordering {
    let more = matches!(measure.by, By::Own(_) | By::Tools { .. });
    match (a, b) {
        (Some(a), Some(b)) if more => a.cmp(&b),
        (Some(a), Some(b)) => b.cmp(&a),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Fails on a step back, on a step forward that is not written down, and on a table that is not true.
fn judge(rows: &[Row<'_>], written: bool) -> Result<(), Error> {
    let mut problems = Vec::new();
    for Row { measure, taken } in rows {
        let Measure { name, committed, .. } = measure;
        problems.extend(taken.wrong.iter().map(|wrong| format!("{name}: {wrong}")));
        if written {
            continue;
        }
        let (now, was) = (shown(taken.value), shown(*committed));
        match better(measure, taken.value, *committed) {
            Ordering::Equal => {}
            Ordering::Less => problems.push(format!(
                "{name}: {now}, and {was} is committed: this is a step back (`cargo xtask shape --list \"{name}\"` shows what is counted)"
            )),
            Ordering::Greater => problems.push(format!(
                "{name}: {now}, better than {was}: write it down, `cargo xtask shape --write` does"
            )),
        }
    }
    Error::if_any(problems, format!("the shape of the code is not what {} says", table::PATH))
}

/// The table as text.
fn picture(rows: &[Row<'_>]) -> String {
    let unit = |measure: &Measure| if matches!(measure.by, By::Own(_)) { " %" } else { "" };
    let cell = |measure: &Measure, value: Option<u32>, none: &str| {
        value.map_or(none.to_owned(), |value| format!("{value}{}", unit(measure)))
    };
    let mut lines = vec![["measure", "committed", "now", "wanted"].map(str::to_owned)];
    lines.extend(rows.iter().map(|Row { measure, taken }| {
        let (committed, now) =
            (cell(measure, measure.committed, "-"), cell(measure, taken.value, "no patch"));
        [measure.name.clone(), committed, now, cell(measure, Some(measure.wanted), "")]
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    for [name, committed, now, wanted] in &lines {
        let [of_name, of_committed, of_now, of_wanted] = widths;
        let _ = writeln!(
            text,
            "{name:of_name$}  {committed:>of_committed$}  {now:>of_now$}  {wanted:>of_wanted$}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_back_and_forward_fail() {
        let fewer =
            "[[measure]]\nname = \"m\"\nsays = \"s\"\ncommitted = 5\nwanted = 1\nby = { kind = \"macros\" }";
        let more = fewer.replace("kind = \"macros\"", "kind = \"own\", folders = []");
        let none = fewer.replace("macros", "patch").replace("committed = 5\n", "");
        for (table, value, wrong, words) in [
            (fewer, Some(5), false, None),
            (fewer, Some(6), false, Some("step back")),
            (fewer, Some(4), false, Some("write it down")),
            (fewer, None, false, Some("step back")),
            (fewer, Some(5), true, Some("there is no x")),
            (&more, Some(5), false, None),
            (&more, Some(4), false, Some("step back")),
            (&more, Some(6), false, Some("write it down")),
            (&none, None, false, None),
            (&none, Some(9), false, Some("write it down")),
        ] {
            let table = Table::parse(table).expect("a table");
            let wrong = wrong.then(|| "there is no x".to_owned()).into_iter().collect();
            let rows =
                [Row { measure: &table.measures[0], taken: Taken { value, wrong, ..Taken::default() } }];
            let judged = judge(&rows, false).err().map(|error| error.to_string());
            match (&judged, words) {
                (None, None) => {}
                (Some(error), Some(words)) => assert!(error.contains(words), "{error}"),
                _ => panic!("{value:?} of {table:?}: {judged:?}"),
            }
        }
    }
}
