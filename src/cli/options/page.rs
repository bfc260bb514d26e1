//! The page of the table in the documentation, `docs/options.md`.

use std::fmt::{self, Write};

use super::{Many, Preset, Row, Verb, table::ROWS};

/// The page.
pub(super) fn page() -> Result<String, fmt::Error> {
    let mut page = String::from(
        "# Options of the command line\n\n\
         Every option has one name and one meaning in all commands. An option that does not apply is refused, never \
         ignored.\n\
         A file that is written may be `-`, standard output; the report then goes to standard error.\n\n\
         This page is made from the table in `src/cli/options/table`, by \
         `OPTIONS=write cargo test --all-features --lib page`.\n\n\
         | option | value | unit | given | commands and defaults | meaning | needs one of | not with |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in ROWS.iter() {
        let Row { unit, help, many, .. } = *row;
        let name = match (row.is_positional(), row.short) {
            (true, _) => row.value.to_owned(),
            (false, None) => format!("`--{}`", row.name),
            (false, Some(short)) => format!("`-{short}`, `--{}`", row.name),
        };
        let value = if row.value.is_empty() { String::new() } else { format!("`{}`", row.value) };
        let given = match many {
            Many::Once | Many::Positional => "once",
            Many::Repeated | Many::Positionals => "repeated",
            Many::List => "repeated, or separated by commas",
        };
        let takes: Vec<String> = row.takes.iter().map(taken).collect();
        let flags = |names: &[&str]| {
            let flags: Vec<String> = names.iter().map(|name| format!("`--{name}`")).collect();
            flags.join(", ")
        };
        // Exclusion goes both ways.
        let shares = |other: &Row| row.takes.iter().any(|(verb, _)| other.default(*verb).is_some());
        let by = ROWS.iter().filter(|other| other.excludes.contains(&row.name) && shares(other));
        let mut excludes: Vec<&str> =
            row.excludes.iter().copied().chain(by.map(|other| other.name)).collect();
        excludes.retain(|name| ROWS.iter().any(|other| other.name == *name && shares(other)));
        excludes.sort_unstable();
        excludes.dedup();
        let (takes, needs, excludes) = (takes.join("; "), flags(row.needs), flags(&excludes));
        let cells = [&name, &value, unit, given, &takes, help, &needs, &excludes];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        writeln!(page, "| {} |", cells.join(" | "))?;
    }
    Ok(page)
}

/// A command and its default.
fn taken((verb, default): &(Verb, Preset)) -> String {
    match default {
        Preset::None => verb.name().to_owned(),
        Preset::Is(value) => format!("{} (`{value}`)", verb.name()),
        Preset::Says(words) => format!("{} ({words})", verb.name()),
    }
}
