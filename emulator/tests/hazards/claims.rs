//! The table of what is exact, in the crate's documentation: each claim names tables of hazards or test files.

use std::path::Path;

use crate::table;

const MANUAL: &str = include_str!("../../src/lib.rs");

/// The rows of the table that begins with this header, cell by cell.
fn rows(header: &str) -> Vec<Vec<&'static str>> {
    let lines = MANUAL.lines().map(|line| line.trim_start_matches("//!").trim());
    let table = lines.skip_while(|line| *line != header).skip(2).take_while(|line| line.starts_with('|'));
    table.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn each_claim_is_tested_and_each_table_makes_a_claim_true() {
    let claims = rows("| claim | tested by |");
    assert!(claims.len() > 10, "{claims:?}");
    let groups: Vec<&str> = table::groups().into_iter().map(|(group, _)| group).collect();
    let others = ["Weak memory", "Orders of writes", "Unusual and legal"];
    let mut named = Vec::new();
    for claim in &claims {
        let [_, tests] = claim[..] else { panic!("{claim:?}") };
        for name in tests.split([';']).flat_map(|part| part.split("`, `")).map(str::trim) {
            let name = name.trim_matches('`');
            if name.contains('/') {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                assert!(text.contains("#[test]") || text.contains("fn main"), "{name} has no tests");
            } else {
                assert!(groups.contains(&name) || others.contains(&name), "no table {name:?}");
                named.push(name);
            }
        }
    }
    for group in groups {
        let said = named.contains(&group) || others.contains(&group) && MANUAL.contains(group);
        assert!(said, "the manual claims nothing of {group:?}");
    }
    assert!(rows("| state | kept | dropped, and what it hides |").iter().all(|row| row.len() == 3));
}
