//! Things that exist several times: harnesses, grammars, ways to launch, models of epilogues.
//!
//! The table has an item for each. One that no longer exists must leave the table, so the count goes down when the code does. A
//! search finds functions that look like another one: each must be an entry, be in an entry's file, or be known with a reason.

use super::code::{Code, Item, Kind};
use super::roles::entry;
use super::sources::Sources;
use super::table::Search;
use super::taken::Taken;

/// The entries that exist, if the search finds no other. `files` are files of entries that are not shipped.
pub(crate) fn count(sources: &Sources, files: &[Code], entries: &[String], search: Option<&Search>) -> Taken {
    let unshipped = |of: &str| {
        let (path, item) = of.split_once("::")?;
        files.iter().find(|code| code.path == path)?.find(item).next()
    };
    let exists = |of: &&String| entry(sources, of).is_some() || unshipped(of).is_some();
    let mut taken = Taken::each(entries.iter().filter(exists).cloned());
    let missing = entries.iter().filter(|of| !exists(of));
    taken.wrong.extend(missing.map(|of| format!("there is no {of}: take it out of the entries")));
    let Some(search) = search else { return taken };
    let mut used = Vec::new();
    for code in sources.under(&search.folders) {
        for item in
            code.items.iter().filter(|item| item.kind == Kind::Function && matches(code, item, search))
        {
            let name = format!("{}::{}", code.path, item.path);
            let is_entry = entries.iter().any(|of| *of == name || name.starts_with(&format!("{of}::")));
            let known = search.known.keys().find(|known| **known == name || **known == code.path);
            used.extend(known);
            if !is_entry && known.is_none() {
                taken
                    .wrong
                    .push(format!("{name} is another one: an entry, or known with the reason why not"));
            }
        }
    }
    let unused = search.known.keys().filter(|known| !used.contains(known));
    taken
        .wrong
        .extend(unused.map(|known| format!("the search finds no {known}: take it out of what is known")));
    taken
}

fn matches(code: &Code, item: &Item, search: &Search) -> bool {
    let Search { begins, public, takes, mentions, .. } = search;
    let name = item.path.rsplit("::").next().unwrap_or_default();
    let named = begins.is_empty()
        || begins.iter().any(|of| {
            name.strip_prefix(of.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        });
    let takes = takes.is_empty() || code.signature_of(item).any(|word| takes.iter().any(|of| of == word));
    let mentions = mentions.iter().all(|of| code.words_of(item).any(|word| word == of));
    named && (item.public || !public) && takes && mentions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn entries_exist_and_nothing_else_does() {
        let text = "pub struct Bench;\nimpl Bench {\n    pub fn run(&mut self, engine: &mut dyn Engine) {}\n    fn run_all(engine: &mut dyn Engine) {}\n}\n\
                    pub fn run_once(engine: &mut dyn Engine) {}\npub fn runs(engine: &mut dyn Engine) {}\npub fn run_free() {}\n\
                    fn parse() { word.split_once('='); }\nfn other() { word.split_once(':'); }";
        let sources = Sources::of(&[("v/src/lib.rs", text)]);
        let at = |item: &str| format!("v/src/lib.rs::{item}");
        let bench = || (vec!["run"], true, vec!["Engine"], vec![]);
        let grammar = || (vec![], false, vec![], vec!["split_once", "'='"]);
        for (why, entries, (begins, public, takes, mentions), known, want, wrong) in [
            ("both are entries", vec!["Bench", "run_once"], bench(), vec![], 2, 0),
            ("one is no entry", vec!["Bench"], bench(), vec![], 1, 1),
            ("one is known", vec!["Bench"], bench(), vec!["run_once"], 1, 0),
            ("one that the search does not find", vec!["Bench", "run_once"], bench(), vec!["run_free"], 2, 1),
            ("one is gone", vec!["Bench", "run_once", "Case"], bench(), vec![], 2, 1),
            ("a grammar", vec!["parse"], grammar(), vec![], 1, 0),
            ("a new grammar", vec![], grammar(), vec![], 0, 1),
        ] {
            let owned = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
            let search = Search {
                folders: vec!["v".to_owned()],
                begins: owned(begins),
                public,
                takes: owned(takes),
                mentions: owned(mentions),
                known: known
                    .into_iter()
                    .map(|of| (at(of), "a reason".to_owned()))
                    .collect::<BTreeMap<_, _>>(),
            };
            let entries: Vec<String> = entries.into_iter().map(at).collect();
            let taken = count(&sources, &[], &entries, Some(&search));
            assert_eq!((taken.value, taken.wrong.len()), (Some(want), wrong), "{why}: {taken:?}");
        }
    }
}
