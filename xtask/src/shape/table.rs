//! The committed table, `xtask/shape.toml`: the measures, how each is taken, its last value and the wanted one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::Error;

/// Where it is, from the root of the repository.
pub(crate) const PATH: &str = "xtask/shape.toml";

/// All measures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(rename = "measure")]
    pub(crate) measures: Vec<Measure>,
}

/// A measure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    pub(crate) name: String,
    /// What is counted, in a sentence.
    pub(crate) says: String,
    /// The last value; none where there is no patch to take it with.
    pub(crate) committed: Option<u32>,
    /// The value that it shall have one day.
    pub(crate) wanted: u32,
    pub(crate) by: By,
}

/// How a measure is taken.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum By {
    /// Names of types that are public in several places.
    Names {},
    /// Functions with more lines of code than `most`.
    Functions { most: usize },
    /// Macros by example.
    Macros {},
    /// Calls of `expect` in these folders.
    Expects { folders: Vec<String> },
    /// Items that state a kernel's parameters.
    Lists(Lists),
    /// The share of a family that is its own arithmetic.
    Own(Own),
    /// The library's traits that a file implements.
    Traits {
        file: String,
        /// The type whose traits are counted; all types of the file if there is none.
        #[serde(default)]
        of: Option<String>,
        /// Where the library's traits are.
        library: Vec<String>,
    },
    /// Tools that exist as a library for any family.
    Tools {
        /// Where the libraries are.
        library: Vec<String>,
        tool: Vec<Tool>,
    },
    /// Things that exist several times.
    Entries {
        /// An item each, as `file::item`.
        entries: Vec<String>,
        /// What would be another one.
        #[serde(default)]
        search: Option<Search>,
    },
    /// The shipped files that a patch touches: that in `xtask/patches` which names the measure.
    Patch {},
}

/// The parameters of a kernel, and where they are stated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lists {
    pub(crate) folders: Vec<String>,
    /// Folders in these that do not count.
    #[serde(default)]
    pub(crate) without: Vec<String>,
    /// For each parameter its spellings: identifiers or texts.
    pub(crate) parameters: Vec<Vec<String>>,
}

/// The files of a family.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    /// The folders, or files, that are the family.
    pub(crate) folders: Vec<String>,
    /// Files whose code is the family's own.
    #[serde(default)]
    pub(crate) own: Vec<String>,
    /// Files whose code another family has to write again.
    #[serde(default)]
    pub(crate) plumbing: Vec<String>,
    /// Files of which these items are the family's own.
    #[serde(default)]
    pub(crate) parts: BTreeMap<String, Vec<String>>,
}

/// A tool that an outside family gets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// The path of a public item; of a function or a method with `over`, it is one that mentions one of these.
    pub(crate) item: String,
    #[serde(default)]
    pub(crate) over: Vec<String>,
    /// An item that says that the tool does not do all yet, as `file::item`.
    #[serde(default)]
    pub(crate) but: Option<String>,
}

/// A search for things of a kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    pub(crate) folders: Vec<String>,
    /// Begins of names of functions; empty: all.
    #[serde(default)]
    pub(crate) begins: Vec<String>,
    /// Whether functions must be public.
    #[serde(default)]
    pub(crate) public: bool,
    /// What the signature must mention one of; empty: nothing.
    #[serde(default)]
    pub(crate) takes: Vec<String>,
    /// What the body must mention all of: identifiers and literals.
    #[serde(default)]
    pub(crate) mentions: Vec<String>,
    /// Files and functions that belong to an entry, or are none, and why.
    #[serde(default)]
    pub(crate) known: BTreeMap<String, String>,
}

impl Table {
    /// Reads the table of a repository.
    ///
    /// # Errors
    /// It cannot be read, or is no such table.
    pub(crate) fn read(root: &Path) -> Result<(Self, String), Error> {
        let path: PathBuf = root.join(PATH);
        let text = fs::read_to_string(&path).map_err(|source| Error::CannotRead { path, source })?;
        let table = Self::parse(&text)?;
        Ok((table, text))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let table: Self = toml::from_str(text).map_err(|error| Error::Shape(format!("{PATH}: {error}")))?;
        let mut names = std::collections::BTreeSet::new();
        match table.measures.iter().find(|measure| !names.insert(&measure.name)) {
            Some(twice) => Err(Error::Shape(format!("{PATH} has two measures `{}`", twice.name))),
            None => Ok(table),
        }
    }
}

/// The text of the table with other committed values, by the measures' names. All else stays as it is.
pub(crate) fn rewritten(text: &str, values: &BTreeMap<&str, Option<u32>>) -> String {
    let mut value: Option<Option<u32>> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let name = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"'));
        if let Some(name) = name {
            value = values.get(name).copied();
        }
        if value.is_some() && line.starts_with("committed =") {
            continue;
        }
        if line.starts_with("wanted =")
            && let Some(Some(value)) = value.take()
        {
            lines.push(format!("committed = {value}"));
        }
        lines.push(line.to_owned());
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Kept.\n[[measure]]\nname = \"a\"\nsays = \"..\"\ncommitted = 3\nwanted = 1\nby = { kind = \"names\" }\n\n\
                        [[measure]]\nname = \"b\"\nsays = \"..\"\nwanted = 1\nby = { kind = \"patch\" }\n";

    #[test]
    fn values_are_written_where_they_stand() {
        for (values, want) in [
            (vec![("a", Some(2))], TEXT.replace("committed = 3", "committed = 2")),
            (vec![("a", Some(3)), ("b", None)], TEXT.to_owned()),
            (
                vec![("b", Some(7))],
                TEXT.replace(
                    "wanted = 1\nby = { kind = \"patch\"",
                    "committed = 7\nwanted = 1\nby = { kind = \"patch\"",
                ),
            ),
            (vec![("a", None)], TEXT.replace("committed = 3\n", "")),
        ] {
            assert_eq!(rewritten(TEXT, &values.into_iter().collect()), want);
        }
    }

    #[test]
    fn the_committed_table_is_one() {
        let table = Table::parse(include_str!("../../shape.toml")).expect("a table");
        assert!(table.measures.len() > 20, "{} measures", table.measures.len());
    }

    #[test]
    fn a_table_is_refused_with_a_sentence() {
        for (text, words) in [
            (TEXT.replace("\"b\"", "\"a\""), "two measures `a`"),
            (TEXT.replace("wanted = 1\nby = { kind = \"patch\"", "by = { kind = \"patch\""), "wanted"),
            (TEXT.replace("patch", "guess"), "guess"),
            (TEXT.replace("says", "say"), "say"),
        ] {
            let error = Table::parse(&text).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(Table::parse(TEXT).expect("a table").measures.len(), 2);
    }
}
