//! Hand lists of a kernel's parameters.
//!
//! An item *states* a parameter if one of the parameter's spellings is an identifier in it, or the whole text of a literal; after a
//! dot it is used (`call.rows`) and not stated. An item is a list if it states at least half of the parameters: whoever adds one has to find it. Items are types with their fields,
//! functions and methods with their bodies, and calls of macros that are items; an `impl` counts by its methods. The order does
//! not matter: two lists of the same parameters may have different ones, and that is no better.

use super::code::{Code, Item, Kind};
use super::sources::{Sources, is_under};
use super::table::Lists;
use super::taken::Taken;

/// The items that are lists of these parameters.
pub(crate) fn count(sources: &Sources, Lists { folders, without, parameters }: &Lists) -> Taken {
    let mut seen = vec![false; parameters.len()];
    let mut details = Vec::new();
    let left_out = |code: &&Code| without.iter().any(|folder| is_under(&code.path, folder));
    for code in sources.under(folders).filter(|code| !left_out(code)) {
        for item in &code.items {
            if !matches!(item.kind, Kind::Type | Kind::Function | Kind::Call) {
                continue;
            }
            let states = stated(code, item, parameters);
            seen.iter_mut().zip(&states).for_each(|(seen, states)| *seen |= states);
            let count = states.iter().filter(|states| **states).count();
            if 2 * count >= parameters.len() {
                details.push(format!("{}::{} states {count} of {}", code.path, item.path, parameters.len()));
            }
        }
    }
    let unseen = parameters.iter().zip(seen).filter(|(_, seen)| !seen);
    let wrong = unseen
        .map(|(of, _)| format!("nothing states the parameter {}: take it out of the list", of.join("/")));
    let wrong = wrong.collect();
    Taken { wrong, ..Taken::each(details.into_iter()) }
}

/// Which parameters an item states.
fn stated(code: &Code, item: &Item, parameters: &[Vec<String>]) -> Vec<bool> {
    let mut states = vec![false; parameters.len()];
    for word in code.stated_by(item) {
        if let Some(i) = parameters.iter().position(|of| of.iter().any(|spelling| spelling == word)) {
            states[i] = true;
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_items_with_half_of_the_parameters() {
        let one = "struct Parameters { rows: u32, columns: u32, x: u64, d: u64 }\n\
                   impl Kernel for K {\n    fn launch() { [x.into(), rows.into()] }\n    fn visit() { visit.memory(\"X\", d); }\n\
                   fn name() { rows() }\n}";
        let parameters = || [vec!["rows"], vec!["columns"], vec!["x", "X"], vec!["d"]].map(owned).to_vec();
        for (why, text, want, wrong) in [
            ("a struct and two methods", one.to_owned(), 3, 0),
            ("another list", format!("{one}\nfn declare() {{ [\"rows\", \"columns\"].map(param) }}"), 4, 0),
            ("a call of a macro", format!("{one}\nparameters! {{ rows, x }}"), 4, 0),
            ("a use", format!("{one}\nfn used() {{ (call.rows + call.columns, a.d..b.x) }}"), 3, 0),
            ("a range", format!("{one}\nfn range() {{ (0..rows, 0..columns) }}"), 4, 0),
            ("a test", format!("{one}\n#[cfg(test)] fn t() {{ rows + x; }}"), 3, 0),
            ("one stated list", one.replace("x.into(), rows.into()", "").replace("\"X\", d", "d"), 1, 0),
            ("a parameter that is gone", one.replace("columns", "lines"), 3, 1),
        ] {
            let sources = Sources::of(&[("k/src/lib.rs", &text)]);
            let lists = Lists {
                folders: vec!["k/src".to_owned()],
                without: vec!["k/src/other".to_owned()],
                parameters: parameters(),
            };
            let taken = count(&sources, &lists);
            assert_eq!((taken.value, taken.wrong.len()), (Some(want), wrong), "{why}: {taken:?}");
        }
    }

    fn owned(spellings: Vec<&str>) -> Vec<String> {
        spellings.into_iter().map(str::to_owned).collect()
    }
}
