//! Links of the repository's pages lead somewhere, and the files that they name exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page: those of the root, of `docs` and of the manual.
fn pages() -> Vec<PathBuf> {
    ["", "docs", "src/manual"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The anchors of a page's headings, as forges make them.
fn anchors(page: &str) -> Vec<String> {
    let of = |line: &str| -> String {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    page.lines().filter(|line| line.starts_with('#')).map(of).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    for path in pages() {
        let page = text(&path);
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // The manual's pages are also documentation, where links name items.
            if link.starts_with("http") || link.contains("::") || link == "crate" {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            assert!(target.exists(), "{}: no file {link}", path.display());
            let found = anchor.is_empty() || anchors(&text(&target)).iter().any(|other| other == anchor);
            assert!(found, "{}: no heading {link}", path.display());
            count += 1;
        }
    }
    assert!(count > 50, "{count} links");
}

#[test]
fn sources_that_pages_name_exist() {
    let mut count = 0;
    for path in pages() {
        let page = text(&path);
        let is_path = |letter: char| letter.is_ascii_alphanumeric() || "/_.-".contains(letter);
        for name in page.split(|letter| !is_path(letter)) {
            let crates =
                ["kernel/", "collective/", "scheduler/", "ptx/", "emulator/", "cute-rs/", "reference/"];
            let known = crates.iter().any(|folder| name.starts_with(&format!("{folder}src/")));
            if known && name.ends_with(".rs") {
                assert!(root().join(name).exists(), "{}: no file {name}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count} files");
}
