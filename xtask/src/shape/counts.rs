//! Measures that count in all shipped code: names, long functions, macros, `expect`.

use std::collections::BTreeMap;

use super::code::Kind;
use super::sources::Sources;
use super::taken::Taken;

/// The names of types, traits and aliases that are defined as `pub` in several places, with the places.
///
/// `pub(crate)` is not public. A module's type counts even if no path leads to it from outside: a reader meets it.
pub(crate) fn names(sources: &Sources) -> Taken {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for code in sources.files() {
        for item in code.items.iter().filter(|item| item.public && item.kind == Kind::Type) {
            places.entry(&item.path).or_default().push(&code.path);
        }
    }
    places.retain(|_, places| places.len() > 1);
    Taken::each(places.into_iter().map(|(name, places)| format!("{name}: {}", places.join(", "))))
}

/// Functions with more lines of code than `most`, from the first attribute to the closing brace.
pub(crate) fn functions(sources: &Sources, most: usize) -> Taken {
    let of_file = |code: &super::code::Code| {
        let long = code.items.iter().filter(|item| item.kind == Kind::Function).filter_map(|item| {
            let lines = code.lines_of(item);
            (lines > most).then(|| format!("{}::{}: {lines}", code.path, item.path))
        });
        long.collect::<Vec<_>>()
    };
    Taken::each(sources.files().flat_map(of_file))
}

/// Definitions by `macro_rules!`, also in functions; not those inside of other macros.
pub(crate) fn macros(sources: &Sources) -> Taken {
    let of_file = |code: &super::code::Code| {
        let macros = code.items.iter().filter(|item| item.kind == Kind::Macro);
        macros.map(|item| format!("{}::{}", code.path, item.path)).collect::<Vec<_>>()
    };
    Taken::each(sources.files().flat_map(of_file))
}

/// Calls of the method `expect` in files of these folders, also inside of calls of macros.
pub(crate) fn expects(sources: &Sources, folders: &[String]) -> Taken {
    let found = sources.under(folders).filter(|code| code.expects > 0);
    let (mut count, mut details, mut unused) = (0, Vec::new(), Vec::new());
    for code in found {
        count += code.expects;
        details.push(format!("{}: {}", code.path, code.expects));
    }
    for folder in folders {
        if sources.under(std::slice::from_ref(folder)).next().is_none() {
            unused.push(format!("no shipped file is in {folder}: take it out of the list"));
        }
    }
    Taken { value: Some(count as u32), details, wrong: unused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted() {
        let sources = Sources::of(&[
            (
                "a/src/lib.rs",
                "pub struct Twice;\npub enum Twice2 {}\npub(crate) struct Inner;\n\
                 #[cfg(test)]\nmod tests { pub struct Tested; macro_rules! m { () => {} } fn f() { x.expect(\"\"); } }\n\
                 macro_rules! one { () => {} }\nfn f() { macro_rules! two { () => {} } }\n\
                 fn g() { a.expect(\"..\"); assert!(b.expect(\"..\")); c.expected(); }",
            ),
            (
                "b/src/lib.rs",
                "pub trait Twice {}\npub type Inner = u32;\npub struct Tested;\nmod m { pub union Twice2 { a: u32 } }\n\
                 #[cfg(all(test, unix))] fn t() { x.expect(\"\"); }\n#[cfg(any(test, unix))] fn u() { x.expect(\"\"); }",
            ),
        ]);
        let names = names(&sources);
        assert_eq!(names.value, Some(2), "Twice and Twice2: {:?}", names.details);
        assert_eq!(macros(&sources).value, Some(2));
        for (folder, count, wrong) in [("a", 2, 0), ("b/src", 1, 0), ("b/src/lib.rs", 1, 0), ("c", 0, 1)] {
            let taken = expects(&sources, &[folder.to_owned()]);
            assert_eq!((taken.value, taken.wrong.len()), (Some(count), wrong), "{folder}");
        }
    }

    #[test]
    fn lines_of_functions_are_lines_of_code() {
        let text = "/// Documentation.\n#[inline]\nfn f() {\n    // A comment.\n\n    let text = \"two\n    lines\";\n    /* a\n    comment */\n}\n\
                    impl T {\n    fn g() {\n        fn h() {\n        }\n    }\n}";
        let sources = Sources::of(&[("a/src/lib.rs", text)]);
        for (most, want) in [(0, 3), (2, 2), (3, 2), (4, 1), (5, 0)] {
            let taken = functions(&sources, most);
            assert_eq!(taken.value, Some(want), "more than {most}: {:?}", taken.details);
        }
    }
}
