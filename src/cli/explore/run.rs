//! A run for a page, and its errors.

use crate::explore::run;
use kernel::{AnyGemm, GemmProblem};
use serde_json::Value;

use crate::cli::{Failure, trace};

/// Runs the kernel on random matrices and records it.
pub(super) fn of(entry: &AnyGemm, problem: GemmProblem) -> Result<Value, Failure> {
    let beta = if entry.plan().epilogue.sourced { 1.0 } else { 0.0 };
    let run = trace::Run { problem, beta, ..trace::Run::default() };
    let (trace, outcome) = run.traced(entry).map_err(|failure| of_run(problem, failure))?;
    let fault = match outcome {
        Ok(()) => None,
        Err(Failure::Environment(message)) => Some(message),
        Err(other) => return Err(other),
    };
    Ok(run::of(entry, problem, &trace, fault))
}

/// Rewrites an error of `falchion trace` for the argument `--run`.
fn of_run(GemmProblem { m, n, k }: GemmProblem, failure: Failure) -> Failure {
    let Failure::Usage(message) = failure else { return failure };
    let words = [("--m", "M"), ("--n", "N"), ("--k", "K")];
    let message = words.into_iter().fold(message, |said, (flag, extent)| said.replace(flag, extent));
    usage!("--run {m}x{n}x{k}: {message}")
}
