//! `cargo xtask check`: everything that is judged without running the workspace's code.
//!
//! All steps run even when an early one fails, so that one call shows all there is to mend.

use crate::cargo;
use crate::dependencies;
use crate::error::Error;
use crate::msrv;
use crate::package;

/// One cargo command that must succeed.
struct Step {
    /// What is wrong, and what mends it, when the command fails.
    remedy: &'static str,
    arguments: &'static [&'static str],
    environment: Option<(&'static str, &'static str)>,
}

const STEPS: [Step; 4] = [
    Step {
        remedy: "format: run `cargo fmt --all`",
        arguments: &["fmt", "--all", "--", "--check"],
        environment: None,
    },
    Step {
        remedy: "lints: mend each warning, or allow it at its place with a `reason`",
        arguments: &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
        environment: None,
    },
    Step {
        remedy: "lints without default features: mend each warning, or have the feature that needs the item declare it",
        arguments: &[
            "clippy",
            "-p",
            "falchion",
            "-p",
            "falchion-kernel",
            "--no-default-features",
            "--",
            "-D",
            "warnings",
        ],
        environment: None,
    },
    Step {
        remedy: "documentation: mend each warning of rustdoc",
        arguments: &["doc", "--workspace", "--no-deps", "--all-features"],
        environment: Some(("RUSTDOCFLAGS", "-D warnings")),
    },
];

/// Runs every check and names those that failed.
pub(crate) fn all() -> Result<(), Error> {
    let mut failed = Vec::new();
    for step in &STEPS {
        let outcome = cargo::run(step.arguments, |command| {
            command.envs(step.environment);
        });
        if let Err(error) = outcome {
            failed.push(format!("{} ({error})", step.remedy));
        }
    }
    eprintln!("\nxtask: Rust version that the locked dependencies need");
    match msrv::check() {
        Ok(report) => eprintln!("{report}"),
        Err(error) => failed.push(error.to_string()),
    }
    eprintln!("\nxtask: licences and sources of the locked dependencies");
    match dependencies::check() {
        Ok(count) => eprintln!("{count} packages have permissive licences and come from crates.io"),
        Err(error) => failed.push(error.to_string()),
    }
    eprintln!("\nxtask: files of the published packages");
    match package::check() {
        Ok(count) => {
            eprintln!("{count} packages have their words and licences, and nothing else than their sources");
        }
        Err(error) => failed.push(error.to_string()),
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::ChecksFailed(failed)) }
}
