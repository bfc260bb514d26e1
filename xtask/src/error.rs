//! The errors of tasks. Each message is one paragraph that says what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::ptxas;

/// Why a task failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// A program could not be started.
    CannotStart { command: String, source: io::Error },
    /// A program ran and failed. Its own output says why.
    CommandFailed { command: String, status: ExitStatus },
    /// The output of `cargo metadata` could not be read.
    Metadata(String),
    /// Several things are wrong: what they are, and an entry for each.
    Several(String, Vec<String>),
    /// A file or a folder could not be read.
    #[cfg_attr(not(feature = "shape"), expect(dead_code, reason = "only the shape's files are read"))]
    CannotRead { path: PathBuf, source: io::Error },
    /// The shape of the code could not be measured: a sentence.
    #[cfg_attr(not(feature = "shape"), expect(dead_code, reason = "only the shape fails this way"))]
    Shape(String),
    /// A file could not be written.
    CannotWrite { path: PathBuf, source: io::Error },
    /// The assembler is not installed and could not be installed.
    PtxasMissing { cause: String },
    /// The installed assembler, or with `given` the one that the variable names, does not run.
    PtxasUnusable { path: PathBuf, given: bool, cause: String },
    /// The mutation proof has survivors or false alarms, or could not be made.
    #[cfg_attr(not(feature = "proof"), expect(dead_code, reason = "only the proof fails this way"))]
    Proof(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = ptxas::VARIABLE;
        match self {
            Self::Proof(problem) | Self::Shape(problem) => f.write_str(problem),
            Self::CannotStart { command, source } => {
                write!(f, "`{command}` could not be started: {source}")
            }
            Self::CommandFailed { command, status } => {
                write!(f, "`{command}` failed ({status}); see its output above")
            }
            Self::Metadata(problem) => {
                write!(f, "the output of `cargo metadata` could not be read: {problem}")
            }
            Self::Several(what, entries) => {
                f.write_str(what)?;
                entries.iter().try_for_each(|entry| write!(f, "\n  - {entry}"))
            }
            Self::CannotRead { path, source } => {
                write!(f, "{} could not be read: {source}", path.display())
            }
            Self::CannotWrite { path, source } => {
                write!(f, "{} could not be written: {source}", path.display())
            }
            Self::PtxasMissing { cause } => write!(
                f,
                "ptxas {version}, which the tests need to assemble kernels, could not be installed: {cause}. \
                 Make Python 3 with pip and the Python package index available and run this again; or set \
                 {variable} to the path of a ptxas from CUDA 13; or run `cargo xtask test --no-ptxas`, which \
                 skips those tests. NVIDIA publishes ptxas for Linux and Windows only.",
                version = ptxas::VERSION,
            ),
            Self::PtxasUnusable { path, given: true, cause } => write!(
                f,
                "{variable} names {}, which is not a ptxas that runs here: {cause}. Set it to the path of \
                 the ptxas program itself, or unset it to install a suitable one in the target folder.",
                path.display()
            ),
            Self::PtxasUnusable { path, given: false, cause } => write!(
                f,
                "the installed ptxas {} does not run here: {cause}. Delete its ptxas-{version} folder and \
                 run this again; or set {variable} to the path of a ptxas from CUDA 13 that runs; or run \
                 `cargo xtask test --no-ptxas`.",
                path.display(),
                version = ptxas::VERSION,
            ),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Fails if there are entries; `what` they are is said first.
    pub(crate) fn if_any(entries: Vec<String>, what: impl Into<String>) -> Result<(), Self> {
        if entries.is_empty() { Ok(()) } else { Err(Self::Several(what.into(), entries)) }
    }
}
