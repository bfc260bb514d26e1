//! Traits that one implements to write a role, or a family; and tools that a family of one's own gets as a library.

use std::collections::BTreeSet;

use super::code::{Code, Item, Kind};
use super::sources::{Sources, is_under};
use super::table::Tool;
use super::taken::Taken;

/// The traits of the library that an example implements: different ones, for one type of the example or for all of them.
///
/// The library's traits are the public ones in `library`. Those of the standard library are not counted.
pub(crate) fn traits(sources: &Sources, example: &Code, of: Option<&str>, library: &[String]) -> Taken {
    let public = |item: &&Item| item.kind == Kind::Type && item.public;
    let known: BTreeSet<&str> = sources
        .under(library)
        .flat_map(|code| code.items.iter().filter(public).map(|item| item.path.as_str()))
        .collect();
    let implemented = example.items.iter().filter(|item| item.kind == Kind::Impl);
    let chosen = implemented.filter(|item| of.is_none_or(|of| item.path.ends_with(&format!(" for {of}"))));
    let names: BTreeSet<&str> = chosen.filter_map(|item| item.of_trait.as_deref()).collect();
    let names: Vec<String> =
        names.into_iter().filter(|name| known.contains(name)).map(str::to_owned).collect();
    let mut taken = Taken::each(names.into_iter());
    if taken.value == Some(0) {
        taken.wrong.push(format!("{} implements no trait of the library", example.path));
    }
    taken
}

/// The tools that exist: a public item each in the libraries, for any family or kernel.
pub(crate) fn tools(sources: &Sources, library: &[String], tools: &[Tool]) -> Taken {
    let found = |tool: &&Tool| {
        let exists = sources
            .under(library)
            .any(|code| code.find(&tool.item).any(|item| serves(code, item, &tool.over)));
        exists && tool.but.as_ref().is_none_or(|but| entry(sources, but).is_none())
    };
    Taken::each(tools.iter().filter(found).map(|tool| tool.name.clone()))
}

/// Whether an item is public, and a function's signature, or what it is a method of, mentions one of these.
fn serves(code: &Code, item: &Item, over: &[String]) -> bool {
    item.public && (over.is_empty() || code.words_of(item).any(|word| over.iter().any(|of| of == word)))
}

/// The item of an entry, `file::item`.
pub(crate) fn entry<'a>(sources: &'a Sources, entry: &str) -> Option<(&'a Code, &'a Item)> {
    let (path, item) = entry.split_once("::")?;
    let code = sources.file(path).filter(|code| is_under(&code.path, path))?;
    code.find(item).next().map(|item| (code, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traits_of_the_library_are_counted_once() {
        let library = "pub trait Role {}\npub trait Device {}\ntrait Hidden {}";
        let sources = Sources::of(&[("l/src/lib.rs", library)]);
        let example = "impl Role for A {}\nimpl<T> Device for B<T> {}\nimpl Device for &A {}\nimpl Clone for A {}\nimpl Hidden for A {}";
        for (of, text, want, wrong) in [
            (None, example, 2, 0),
            (Some("B"), example, 1, 0),
            (Some("A"), example, 2, 0),
            (Some("C"), example, 0, 1),
            (None, "impl Clone for A {}", 0, 1),
        ] {
            let code = Code::read("e.rs", text).expect("Rust");
            let taken = traits(&sources, &code, of, &["l/src".to_owned()]);
            assert_eq!((taken.value, taken.wrong.len()), (Some(want), wrong), "{of:?}: {taken:?}");
        }
    }

    #[test]
    fn tools_are_public_and_for_any_family() {
        let library = "pub fn tuned<K: Family>() {}\nfn hidden<K: Family>() {}\npub fn bench(of: &AnyGemm) {}\n\
                       impl<K> Loaded<K> {\n    pub fn launch<C>(&self) where K: Kernel<C> {}\n}\nfn alone() {}";
        let sources = Sources::of(&[("l/src/lib.rs", library)]);
        for (item, over, but, want) in [
            ("tuned", "Family", None, 1),
            ("hidden", "Family", None, 0),
            ("bench", "Family", None, 0),
            ("bench", "AnyGemm", None, 1),
            ("gone", "Family", None, 0),
            ("Loaded::launch", "Kernel", None, 1),
            ("Loaded::launch", "Kernel", Some("l/src/lib.rs::alone"), 0),
            ("Loaded::launch", "Kernel", Some("l/src/lib.rs::gone"), 1),
        ] {
            let tool = Tool {
                name: "a tool".to_owned(),
                item: item.to_owned(),
                over: vec![over.to_owned()],
                but: but.map(str::to_owned),
            };
            assert_eq!(tools(&sources, &["l".to_owned()], &[tool]).value, Some(want), "{item} over {over}");
        }
    }
}
