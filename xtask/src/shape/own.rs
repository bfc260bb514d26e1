//! The share of a family's code that is its own arithmetic: device code and rules.
//!
//! The table says of each file whether it is `own` (device code; rules of the problem, its model and its reference) or `plumbing`
//! (texts, parameters in order, launches, visits, spaces: what the next family writes again), or names the items of a file that
//! are own. The share is in lines of code, in percent, rounded down.

use super::code::Code;
use super::sources::Sources;
use super::table::Own;
use super::taken::Taken;

/// The share. `files` are the family's files that are not shipped.
pub(crate) fn share(sources: &Sources, files: &[Code], family: &Own) -> Taken {
    let of = sources.under(&family.folders).chain(files);
    let (mut own, mut all, mut details, mut wrong) = (0, 0, Vec::new(), Vec::new());
    let mut met = Vec::new();
    for code in of {
        let (path, lines) = (&code.path, code.lines());
        let [is_own, is_plumbing] = [&family.own, &family.plumbing].map(|list| list.contains(path));
        let parts = family.parts.get(path);
        let listed = usize::from(is_own) + usize::from(is_plumbing) + usize::from(parts.is_some());
        if listed != 1 {
            wrong.push(format!("{path} is in {listed} of the lists own, plumbing and parts: one was needed"));
        }
        let of_file = match parts {
            _ if is_own => lines,
            Some(parts) => {
                let found =
                    |part: &String| code.find(part).map(|item| code.lines_of(item)).reduce(|a, b| a + b);
                let missing = parts.iter().filter(|part| found(part).is_none());
                wrong.extend(missing.map(|part| format!("{path} has no item `{part}`")));
                parts.iter().filter_map(found).sum()
            }
            None => 0,
        };
        met.push(path);
        details.push(format!("{path}: {of_file} of {lines}"));
        (own, all) = (own + of_file, all + lines);
    }
    let listed = family.own.iter().chain(&family.plumbing).chain(family.parts.keys());
    wrong.extend(listed.filter(|path| !met.contains(path)).map(|path| format!("there is no file {path}")));
    Taken { value: (all > 0).then(|| (100 * own / all) as u32), details, wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_files_in_no_list() {
        let files = [
            ("f/src/lib.rs", "mod emit;\nmod plain;"),
            ("f/src/emit.rs", "fn emit() {\n}\n"),
            ("f/src/plain.rs", "fn text() {\n}\nimpl Rule for F {\n    fn rule() {\n    }\n}"),
        ];
        let owned = |list: &[&str]| list.iter().map(|path| path.to_string()).collect::<Vec<_>>();
        let (lib, emit, plain) = ("f/src/lib.rs", "f/src/emit.rs", "f/src/plain.rs");
        for (why, own, plumbing, parts, want, wrong) in [
            ("all of a file", vec![emit], vec![lib, plain], vec![], 20, 0),
            ("some items", vec![emit], vec![lib], vec![(plain, vec!["Rule for F"])], 60, 0),
            ("a method", vec![], vec![lib, emit], vec![(plain, vec!["Rule for F::rule"])], 20, 0),
            ("no such item", vec![emit], vec![lib], vec![(plain, vec!["Rule for G"])], 20, 1),
            ("a file in no list", vec![emit], vec![lib], vec![], 20, 1),
            ("a file in two lists", vec![emit, plain], vec![lib, plain], vec![], 80, 1),
            ("no such file", vec![emit, "f/src/gone.rs"], vec![lib, plain], vec![], 20, 1),
        ] {
            let family = Own {
                folders: vec!["f/src".to_owned()],
                own: owned(&own),
                plumbing: owned(&plumbing),
                parts: parts.into_iter().map(|(path, items)| (path.to_owned(), owned(&items))).collect(),
            };
            let taken = share(&Sources::of(&files), &[], &family);
            assert_eq!((taken.value, taken.wrong.len()), (Some(want), wrong), "{why}: {taken:?}");
        }
    }
}
