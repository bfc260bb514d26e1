//! The errors of tasks. Each message is one paragraph that says what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::msrv::RustVersion;
use crate::ptxas;

/// Why a task failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// A program could not be started.
    CannotStart { command: String, source: io::Error },
    /// A program ran and failed. Its own output says why.
    CommandFailed { command: String, status: ExitStatus },
    /// The output of `cargo metadata` could not be read.
    Metadata { problem: String },
    /// Some steps of `check` failed. Each entry says what failed and how to fix it.
    ChecksFailed(Vec<String>),
    /// Locked dependencies need a newer Rust than the `rust-version` of the workspace.
    DependenciesTooNew { promised: RustVersion, above: Vec<String> },
    /// Examples failed or did not end. Each entry says which one and how.
    Examples(Vec<String>),
    /// A file could not be written.
    CannotWrite { path: PathBuf, source: io::Error },
    /// Dependencies break the rules for them. Each entry says which one and how.
    Dependencies(Vec<String>),
    /// Published packages lack files or have files that they do not need.
    Packages(Vec<String>),
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
            Self::Proof(problem) => f.write_str(problem),
            Self::CannotStart { command, source } => {
                write!(f, "`{command}` could not be started: {source}")
            }
            Self::CommandFailed { command, status } => {
                write!(f, "`{command}` failed ({status}); see its output above")
            }
            Self::Metadata { problem } => {
                write!(f, "the output of `cargo metadata` could not be read: {problem}")
            }
            Self::ChecksFailed(failed) => {
                write!(f, "{} checks failed; see their output above", failed.len())?;
                failed.iter().try_for_each(|step| write!(f, "\n  - {step}"))
            }
            Self::Examples(failed) => {
                write!(f, "{} examples failed; see their output above", failed.len())?;
                failed.iter().try_for_each(|one| write!(f, "\n  - {one}"))
            }
            Self::CannotWrite { path, source } => {
                write!(f, "{} could not be written: {source}", path.display())
            }
            Self::Dependencies(broken) => {
                write!(f, "dependencies break the rules in xtask/src/dependencies.rs")?;
                broken.iter().try_for_each(|one| write!(f, "\n  - {one}"))
            }
            Self::Packages(wrong) => {
                write!(f, "published packages: correct `include` in the manifests, or add the files")?;
                wrong.iter().try_for_each(|one| write!(f, "\n  - {one}"))
            }
            Self::DependenciesTooNew { promised, above } => {
                write!(
                    f,
                    "the workspace declares Rust {promised}, but locked dependencies need a newer one: lock \
                     older releases of them (`cargo update <name> --precise <version>`), or raise \
                     `rust-version` in the root Cargo.toml"
                )?;
                above.iter().try_for_each(|package| write!(f, "\n  - {package}"))
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
