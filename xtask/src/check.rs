//! `cargo xtask check`: the checks that run no code of the workspace.
//!
//! All steps run, even if an early one fails, so that one call shows all problems.

use crate::cargo;
use crate::dependencies;
use crate::error::Error;
use crate::msrv;
use crate::package;
use crate::shape;

/// One cargo command that must succeed.
struct Step {
    /// What is wrong if the command fails, and how to fix it.
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
        remedy: "lints: fix each warning, or allow it at its place with a `reason`",
        arguments: &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
        environment: None,
    },
    Step {
        remedy: "lints without default features: fix each warning, or put the item behind the feature that needs it",
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
        remedy: "documentation: fix each warning of rustdoc",
        arguments: &["doc", "--workspace", "--no-deps", "--all-features"],
        environment: Some(("RUSTDOCFLAGS", "-D warnings")),
    },
];

/// Crates outside the workspace that have lock files.
const OUTSIDE: [&str; 3] = ["adapters/burn", "adapters/candle", "adapters/cust"];

/// Runs all checks and lists those that failed.
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
    eprintln!("\nxtask: lock files of the crates outside the workspace");
    for folder in OUTSIDE {
        let manifest = format!("{folder}/Cargo.toml");
        let arguments = ["update", "--quiet", "--workspace", "--locked", "--manifest-path", &manifest];
        if let Err(error) = cargo::run(&arguments, |_| {}) {
            failed.push(format!("lock files: run `cargo update --workspace` in {folder} ({error})"));
        }
    }
    eprintln!("\nxtask: files and profiles of the published packages");
    match package::check() {
        Ok(count) => {
            eprintln!(
                "{count} packages have a README, the licences and their sources, and no other files; each is \
                 named in the profiles"
            );
        }
        Err(error) => failed.push(error.to_string()),
    }
    eprintln!("\nxtask: the shape of the code");
    if let Err(error) = shape::check() {
        failed.push(error.to_string());
    }
    let what = format!("{} checks failed; see their output above", failed.len());
    Error::if_any(failed, what)
}
