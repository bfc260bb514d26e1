//! Checks the published packages. Each has a README and the licences, and no file that only this repository
//! needs. Each is named in the profiles that do not optimise other packages.

use std::fs;
use std::path::Path;

use toml::Table;

use crate::cargo;
use crate::error::Error;
use crate::msrv::list;

/// Files that every package must have.
const NEEDED: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Files and folders that packages may have. Cargo itself adds some of them.
const ALLOWED: [&str; 12] = [
    "src/",
    "examples/",
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

/// What is said of packages that are wrong.
pub(crate) const WRONG: &str = "published packages: correct `include` in the manifests, or add the files";

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
    let root = Path::new(metadata["workspace_root"].as_str().unwrap_or_default()).join("Cargo.toml");
    let manifest = fs::read_to_string(&root).map_err(|error| Error::Metadata(error.to_string()))?;
    wrong.extend(unnamed(&names, &manifest)?);
    Error::if_any(wrong, WRONG).map(|()| names.len())
}

/// Packages without an `opt-level` in a profile that has one for all others, `"*"`. Where they come from a registry,
/// they would be built with that one.
fn unnamed(packages: &[&str], manifest: &str) -> Result<Vec<String>, Error> {
    let manifest: Table =
        manifest.parse().map_err(|error: toml::de::Error| Error::Metadata(error.to_string()))?;
    let profiles = manifest.get("profile").and_then(|profiles| profiles.as_table());
    let mut missing = Vec::new();
    for (profile, settings) in profiles.into_iter().flatten() {
        let level = |package: &str| settings.get("package")?.get(package)?.get("opt-level");
        if level("*").is_some() {
            let without = packages.iter().filter(|package| level(package).is_none());
            missing.extend(without.map(|package| {
                format!("{package} has no opt-level in profile {profile}, where \"*\" has one: it counts for registries")
            }));
        }
    }
    Ok(missing)
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
    fn profiles_name_each_package() {
        let all = "[profile.p.package]\n\"*\" = { opt-level = 0 }\n";
        for (why, manifest, want) in [
            ("no profile", String::new(), 0),
            ("others are optimised as well", "[profile.p]\nopt-level = 1\n".to_owned(), 0),
            ("named by no one", all.to_owned(), 1),
            ("named, without a level", format!("{all}own = {{ codegen-units = 1 }}\n"), 1),
            ("named", format!("{all}own = {{ opt-level = 3 }}\n"), 0),
        ] {
            let missing = unnamed(&["own"], &manifest);
            assert!(matches!(&missing, Ok(missing) if missing.len() == want), "{why}: {missing:?}");
        }
    }

    #[test]
    fn the_packages_of_this_repository() {
        let judged = check();
        assert!(matches!(judged, Ok(11)), "{judged:?}");
    }
}
