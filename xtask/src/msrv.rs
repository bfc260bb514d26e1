//! Checks the `rust-version` of the workspace against the versions that the locked dependencies declare.
//!
//! Clippy's lint `incompatible_msrv` checks that our own code uses no newer part of the standard library.
//! Neither check replaces a build with that toolchain.

use std::fmt;

use serde_json::Value;

use crate::cargo;
use crate::error::Error;

/// A Rust release as written in `rust-version`: `1.88` or `1.88.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RustVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl RustVersion {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let version = Self {
            major: parts.next()??,
            minor: parts.next().unwrap_or(Some(0))?,
            patch: parts.next().unwrap_or(Some(0))?,
        };
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for RustVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch == 0 { Ok(()) } else { write!(f, ".{}", self.patch) }
    }
}

/// The number of dependencies that were checked, when none needs a newer Rust.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    promised: RustVersion,
    /// Dependencies that declare a version; none is above that of the workspace.
    declared: usize,
    /// Dependencies that declare no version.
    silent: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { promised, declared, silent } = self;
        write!(f, "{declared} dependencies declare Rust {promised} or older; {silent} declare no version")
    }
}

/// Checks all packages in the lock file, with all features and for all platforms.
pub(crate) fn check() -> Result<Report, Error> {
    judge(&cargo::metadata(&["--all-features"])?)
}

fn judge(metadata: &Value) -> Result<Report, Error> {
    let packages = list(metadata, "packages")?;
    let members = list(metadata, "workspace_members")?;
    let (ours, theirs): (Vec<&Value>, Vec<&Value>) =
        packages.iter().partition(|package| members.contains(&package["id"]));

    // The lowest version of a member applies to the whole workspace.
    let mut promised: Option<RustVersion> = None;
    for package in ours {
        let Some(version) = declared(package)? else {
            return Err(Error::Metadata(format!("{} declares no rust-version", name(package))));
        };
        promised = Some(promised.map_or(version, |smallest| smallest.min(version)));
    }
    let Some(promised) = promised else {
        return Err(Error::Metadata("the workspace has no members".to_owned()));
    };

    let mut report = Report { promised, declared: 0, silent: 0 };
    let mut above = Vec::new();
    for package in theirs {
        match declared(package)? {
            None => report.silent += 1,
            Some(version) if version <= promised => report.declared += 1,
            Some(version) => above.push(format!("{} needs Rust {version}", name(package))),
        }
    }
    let what = format!(
        "the workspace declares Rust {promised}, but locked dependencies need a newer one: lock older releases of them \
         (`cargo update <name> --precise <version>`), or raise `rust-version` in the root Cargo.toml"
    );
    Error::if_any(above, what).map(|()| report)
}

/// The list with this key.
pub(crate) fn list<'m>(metadata: &'m Value, key: &str) -> Result<&'m Vec<Value>, Error> {
    metadata[key].as_array().ok_or_else(|| Error::Metadata(format!("it has no list of {key}")))
}

fn declared(package: &Value) -> Result<Option<RustVersion>, Error> {
    match package["rust_version"].as_str() {
        None => Ok(None),
        Some(text) => RustVersion::parse(text)
            .map(Some)
            .ok_or_else(|| Error::Metadata(format!("{} declares the rust-version `{text}`", name(package)))),
    }
}

/// Name and version of a package.
pub(crate) fn name(package: &Value) -> String {
    let part = |key: &str| package[key].as_str().unwrap_or("?").to_owned();
    format!("{} {}", part("name"), part("version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rust_versions_are_read_and_ordered() {
        for (why, text, want) in [
            ("a patch of zero is not written back", "1.88.0", Some("1.88")),
            ("two numbers are usual", "1.88", Some("1.88")),
            ("a patch is kept", "1.70.1", Some("1.70.1")),
            ("one number is a version too", "1", Some("1.0")),
            ("nothing is no version", "", None),
            ("a word is no version", "1.beta", None),
            ("four numbers are no version", "1.2.3.4", None),
        ] {
            let got = RustVersion::parse(text).map(|version| version.to_string());
            assert_eq!(got.as_deref(), want, "{why}");
        }
        assert!(RustVersion::parse("1.9") < RustVersion::parse("1.88"), "numbers are not compared as text");
        assert!(RustVersion::parse("1.88") < RustVersion::parse("1.88.1"), "a patch counts");
    }

    #[test]
    fn a_dependency_above_the_promise_is_named() {
        let workspace = |dependency: Value| {
            json!({
                "workspace_members": ["ours"],
                "packages": [
                    { "id": "ours", "name": "ours", "version": "0.1.0", "rust_version": "1.88" },
                    { "id": "theirs", "name": "theirs", "version": "2.0.0", "rust_version": dependency },
                ],
            })
        };
        let promised = RustVersion { major: 1, minor: 88, patch: 0 };
        for (why, dependency, want) in [
            ("an equal version is kept", json!("1.88.0"), Ok(Report { promised, declared: 1, silent: 0 })),
            ("an older one is kept", json!("1.9"), Ok(Report { promised, declared: 1, silent: 0 })),
            ("a silent one is counted apart", Value::Null, Ok(Report { promised, declared: 0, silent: 1 })),
            ("a newer one is refused", json!("1.89"), Err("theirs 2.0.0 needs Rust 1.89")),
            ("nonsense is refused", json!("new"), Err("theirs 2.0.0 declares the rust-version `new`")),
        ] {
            match (judge(&workspace(dependency)), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{why}"),
                (Err(got), Err(want)) => assert!(got.to_string().contains(want), "{why}: {got}"),
                (got, want) => panic!("{why}: got {got:?}, want {want:?}"),
            }
        }
    }
}
