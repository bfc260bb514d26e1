//! Checks the files of the published packages: each has a README and the licences, and no file that only this
//! repository needs.

use crate::cargo;
use crate::error::Error;
use crate::msrv::list;

/// Files that every package must have.
const NEEDED: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Files and folders that packages may have. Cargo itself adds some of them.
const ALLOWED: [&str; 13] = [
    "src/",
    "examples/",
    "benches/kernels.rs",
    "tests/cases/",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "Cargo.toml",
    "Cargo.toml.orig",
    "Cargo.lock",
    ".cargo_vcs_info.json",
];

/// Checks the list of files of each published package. Returns the number of packages.
pub(crate) fn check() -> Result<usize, Error> {
    let metadata = cargo::metadata(&["--no-deps"])?;
    let published = list(&metadata, "packages")?.iter().filter(|package| package["publish"].is_null());
    let names: Vec<&str> = published.filter_map(|package| package["name"].as_str()).collect();
    let mut wrong = Vec::new();
    for name in &names {
        let files = cargo::output(&["package", "--list", "--quiet", "--allow-dirty", "--package", name])?;
        wrong.extend(judge(name, &files));
    }
    if wrong.is_empty() { Ok(names.len()) } else { Err(Error::Packages(wrong)) }
}

/// The files that are missing and those that are not allowed.
fn judge(package: &str, files: &str) -> Vec<String> {
    let files: Vec<String> = files.lines().map(|file| file.replace('\\', "/")).collect();
    let missing = NEEDED.iter().filter(|needed| !files.iter().any(|file| file == *needed));
    let allowed = |file: &str| {
        ALLOWED
            .iter()
            .any(|allowed| if allowed.ends_with('/') { file.starts_with(allowed) } else { file == *allowed })
    };
    let more = files.iter().filter(|file| !allowed(file));
    missing
        .map(|file| format!("{package} lacks {file}"))
        .chain(more.map(|file| format!("{package} carries {file}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_packages() {
        let whole = "Cargo.toml\nLICENSE-APACHE\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\n";
        for (why, files, want) in [
            ("what there has to be", whole.to_owned(), vec![]),
            ("a licence is missing", whole.replace("LICENSE-MIT\n", ""), vec!["p lacks LICENSE-MIT"]),
            ("a case table is part of the program", format!("{whole}tests/cases/a.toml\n"), vec![]),
            (
                "a record is not",
                format!("{whole}tests/selection/a.json\n"),
                vec!["p carries tests/selection/a.json"],
            ),
            ("nor is a pipeline", format!("{whole}.ci/run\n"), vec!["p carries .ci/run"]),
        ] {
            assert_eq!(judge("p", &files), want, "{why}");
        }
    }

    #[test]
    fn the_packages_of_this_repository() {
        let judged = check();
        assert!(matches!(judged, Ok(8)), "{judged:?}");
    }
}
