//! The rules for dependencies: permissive licences, crates from crates.io, and no crates that need system
//! libraries.

use serde_json::Value;

use crate::cargo;
use crate::error::Error;
use crate::msrv::{list, name};

/// The licences that are allowed: permissive ones, so that a binary may be shipped under our licences.
const LICENCES: [&str; 8] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that are not allowed, and why.
const REFUSED: [(&str, &str); 2] = [
    (
        "cust_raw",
        "its build script panics where no CUDA toolkit is installed; adapters live outside the workspace",
    ),
    ("openssl-sys", "nothing here may need a system library to build"),
];

/// The only source of crates that is allowed.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all packages in the lock file, with all features and for all platforms. Returns their number.
pub(crate) fn check() -> Result<usize, Error> {
    judge(&cargo::metadata(&["--all-features"])?)
}

fn judge(metadata: &Value) -> Result<usize, Error> {
    let packages = list(metadata, "packages")?;
    let mut broken = Vec::new();
    for package in packages {
        let title = name(package);
        let licence = package["license"].as_str().unwrap_or_default();
        if !permitted(licence) {
            broken.push(format!(
                "{title} has the licence `{licence}`, which is not among {}",
                LICENCES.join(", ")
            ));
        }
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| package["name"] == *refused) {
            broken.push(format!("{title} is refused: {why}"));
        }
        match package["source"].as_str() {
            None | Some(REGISTRY) => {}
            Some(source) => broken.push(format!("{title} comes from {source}, not from crates.io")),
        }
        if package["source"].is_null() {
            let wild = list(package, "dependencies")?.iter().filter(|dependency| dependency["req"] == "*");
            broken.extend(wild.map(|wild| format!("{title} takes any version of {}", wild["name"])));
        }
    }
    Error::if_any(broken, "dependencies break the rules in xtask/src/dependencies.rs")
        .map(|()| packages.len())
}

/// Whether an SPDX expression can be satisfied with allowed licences. A slash is an old form of `OR`.
fn permitted(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    either(&mut words) == Some(true) && words.is_empty()
}

/// Terms joined by `OR`. `None` if the words are not an expression.
fn either(words: &mut Vec<&str>) -> Option<bool> {
    let mut met = both(words)?;
    while words.last() == Some(&"OR") {
        words.pop();
        met |= both(words)?;
    }
    Some(met)
}

/// Terms joined by `AND`.
fn both(words: &mut Vec<&str>) -> Option<bool> {
    let mut met = term(words)?;
    while words.last() == Some(&"AND") {
        words.pop();
        met &= term(words)?;
    }
    Some(met)
}

/// A licence, with its exception, or an expression in parentheses.
fn term(words: &mut Vec<&str>) -> Option<bool> {
    let word = words.pop()?;
    if word == "(" {
        let met = either(words)?;
        return (words.pop()? == ")").then_some(met);
    }
    if words.last() == Some(&"WITH") {
        words.pop();
        let whole = format!("{word} WITH {}", words.pop()?);
        return Some(LICENCES.contains(&whole.as_str()));
    }
    Some(LICENCES.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_of_licences() {
        for (why, expression, want) in [
            ("one", "MIT", true),
            ("another", "GPL-3.0", false),
            ("a choice", "MIT OR GPL-3.0", true),
            ("the old way", "Unlicense/MIT", true),
            ("both", "MIT AND GPL-3.0", false),
            ("parentheses", "(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("`AND` binds closer", "GPL-3.0 AND MIT OR Zlib", true),
            ("an exception", "Apache-2.0 WITH LLVM-exception", true),
            ("an unknown one", "MIT WITH something", false),
            ("none", "", false),
            ("no expression", "MIT OR", false),
            ("a parenthesis left open", "(MIT", false),
            ("a word too many", "MIT Zlib", false),
        ] {
            assert_eq!(permitted(expression), want, "{why}");
        }
    }

    #[test]
    fn what_breaks_the_law_is_named() {
        let of = |name: &str, licence: Value, source: Value, requirement: &str| {
            json!({ "packages": [{
                "name": name, "version": "1.0.0", "license": licence, "source": source,
                "dependencies": [{ "name": "other", "req": requirement }],
            }] })
        };
        for (why, workspace, want) in [
            ("a lawful crate", of("fine", json!("MIT"), json!(REGISTRY), "*"), None),
            ("ours", of("ours", json!("MIT OR Apache-2.0"), Value::Null, "^1"), None),
            (
                "a licence",
                of("free", json!("GPL-3.0"), json!(REGISTRY), "^1"),
                Some("free 1.0.0 has the licence `GPL-3.0`"),
            ),
            (
                "no licence",
                of("bare", Value::Null, json!(REGISTRY), "^1"),
                Some("bare 1.0.0 has the licence ``"),
            ),
            (
                "a name",
                of("cust_raw", json!("MIT"), json!(REGISTRY), "^1"),
                Some("cust_raw 1.0.0 is refused: its build"),
            ),
            (
                "a source",
                of("fork", json!("MIT"), json!("git+https://example.com"), "^1"),
                Some("fork 1.0.0 comes from git+"),
            ),
            (
                "any version",
                of("ours", json!("MIT"), Value::Null, "*"),
                Some("ours 1.0.0 takes any version of \"other\""),
            ),
        ] {
            match (judge(&workspace), want) {
                (Ok(count), None) => assert_eq!(count, 1, "{why}"),
                (Err(got), Some(want)) => assert!(got.to_string().contains(want), "{why}: {got}"),
                (got, want) => panic!("{why}: got {got:?}, want {want:?}"),
            }
        }
    }
}
