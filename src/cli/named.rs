//! `--kernel`: a kernel's name, or the words of a spec.

use kernel::{AnyGemm, KernelSpec};

use crate::cli::options::Given;
use crate::cli::{Failure, catalogue};

/// The text of `--kernel`, with a spec as the library prints it. No words at all are the default spec.
pub(crate) fn text(given: &str) -> Result<String, Failure> {
    if !given.contains('=') && !given.trim().is_empty() {
        return Ok(given.trim().to_owned());
    }
    let spec: KernelSpec = given.parse().map_err(|error| usage!("--kernel: {error}"))?;
    Ok(spec.to_string())
}

/// The text of `--kernel`, if it is given.
pub(crate) fn kernel(given: &Given) -> Result<Option<String>, Failure> {
    given.get::<String>("kernel").map(|words| text(&words)).transpose()
}

/// The text of `--kernel`.
///
/// # Errors
/// It is not given.
pub(crate) fn needed(given: &Given) -> Result<String, Failure> {
    let missing = "--kernel was needed: a name from `falchion configs`, or the words of a spec";
    kernel(given)?.ok_or_else(|| Failure::usage(missing))
}

/// The kernel of `--kernel` for a command without arguments for a fused epilogue; `None` if it is not given. `instead` is that
/// of [`catalogue::plain`].
pub(crate) fn plain(
    given: &Given,
    instead: impl FnOnce(&str, &str) -> String,
) -> Result<Option<AnyGemm>, Failure> {
    kernel(given)?.map(|name| catalogue::plain(&name, instead)).transpose()
}

/// The kernel of `--kernel`.
///
/// # Errors
/// It is not given, or there is no such kernel.
pub(crate) fn find(given: &Given) -> Result<AnyGemm, Failure> {
    catalogue::find(&needed(given)?)
}
