//! What can go wrong in a task, each as one paragraph that says what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::msrv::RustVersion;
use crate::ptxas;

/// Why a task ended without success.
#[derive(Debug)]
pub(crate) enum Error {
    /// A program could not be started at all.
    CannotStart { command: String, source: io::Error },
    /// A program ran and ended with a failure that it explained itself.
    CommandFailed { command: String, status: ExitStatus },
    /// `cargo metadata` answered with something that this tool cannot read.
    Metadata { problem: String },
    /// Some steps of `check` failed; each entry is what failed and how it is mended.
    ChecksFailed(Vec<String>),
    /// Locked dependencies need a newer Rust than the workspace promises.
    DependenciesTooNew { promised: RustVersion, above: Vec<String> },
    /// Examples failed or did not end; each entry says which and how.
    Examples(Vec<String>),
    /// A file of ours could not be written.
    CannotWrite { path: PathBuf, source: io::Error },
    /// Dependencies break the law for them; each entry says which and how.
    Dependencies(Vec<String>),
    /// Published packages lack files or carry more than they need.
    Packages(Vec<String>),
    /// The assembler is not there and could not be installed.
    PtxasMissing { cause: String },
    /// There is a file where the assembler should be, or its path was given, but it does not run.
    PtxasUnusable { path: PathBuf, given: bool, cause: String },
    /// The mutation proof found a hole, or could not be made.
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
                write!(f, "`{command}` failed ({status}); its own report is above")
            }
            Self::Metadata { problem } => {
                write!(f, "the answer of `cargo metadata` could not be read: {problem}")
            }
            Self::ChecksFailed(failed) => {
                write!(f, "{} of the checks failed; the report of each is above", failed.len())?;
                failed.iter().try_for_each(|step| write!(f, "\n  - {step}"))
            }
            Self::Examples(failed) => {
                write!(f, "{} of the examples failed; the report of each is above", failed.len())?;
                failed.iter().try_for_each(|one| write!(f, "\n  - {one}"))
            }
            Self::CannotWrite { path, source } => {
                write!(f, "{} could not be written: {source}", path.display())
            }
            Self::Dependencies(broken) => {
                write!(f, "dependencies break the law in xtask/src/dependencies.rs")?;
                broken.iter().try_for_each(|one| write!(f, "\n  - {one}"))
            }
            Self::Packages(wrong) => {
                write!(f, "published packages: mend `include` in the manifests or add the files")?;
                wrong.iter().try_for_each(|one| write!(f, "\n  - {one}"))
            }
            Self::DependenciesTooNew { promised, above } => {
                write!(
                    f,
                    "the workspace promises to build with Rust {promised}, but locked dependencies need \
                     more: lock older releases of them (`cargo update <name> --precise <version>`), or \
                     raise `rust-version` in the root Cargo.toml"
                )?;
                above.iter().try_for_each(|package| write!(f, "\n  - {package}"))
            }
            Self::PtxasMissing { cause } => write!(
                f,
                "ptxas {version}, with which the tests assemble every kernel, is not here and could not \
                 be installed: {cause}. Make Python 3 with pip and the Python package index reachable and \
                 run this again; or set {variable} to the path of a ptxas from CUDA 13 that you already \
                 have; or go on without it by `cargo xtask test --no-ptxas`, which leaves those tests out. \
                 NVIDIA publishes ptxas for Linux and Windows only.",
                version = ptxas::VERSION,
            ),
            Self::PtxasUnusable { path, given: true, cause } => write!(
                f,
                "{variable} names {}, which is no ptxas that runs here: {cause}. Set it to the path of the \
                 ptxas program itself, or unset it and a suitable one is installed below the target folder.",
                path.display()
            ),
            Self::PtxasUnusable { path, given: false, cause } => write!(
                f,
                "the ptxas installed as {} does not run here: {cause}. Delete its ptxas-{version} folder \
                 and run this again; or set {variable} to the path of a ptxas from CUDA 13 that does run; or \
                 go on without it by `cargo xtask test --no-ptxas`.",
                path.display(),
                version = ptxas::VERSION,
            ),
        }
    }
}

impl std::error::Error for Error {}
