//! NVIDIA's assembler, a program that the user names: what build scripts and the driver's loader run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment variable that names the assembler.
pub const PTXAS: &str = "FALCHION_PTXAS";

/// Why the assembler that the user named gave no binary. No other compiler takes its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblerError {
    /// It cannot be started.
    #[error(
        "{PTXAS} names {}, which cannot be started ({reason}): name NVIDIA's ptxas, or unset {PTXAS} to do without",
        path.display()
    )]
    NotStarted {
        /// What was named.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// It does not say of which version it is.
    #[error(
        "{PTXAS} names {}, whose `--version` gave no version ({status}): name NVIDIA's ptxas, or unset {PTXAS} to do without",
        path.display()
    )]
    NoVersion {
        /// What was named.
        path: PathBuf,
        /// How it ended.
        status: String,
    },
    /// It refused a kernel.
    #[error("{} (from {PTXAS}) failed for kernel `{kernel}` with {status}:\n{log}", path.display())]
    Failed {
        /// The assembler.
        path: PathBuf,
        /// The kernel's name.
        kernel: String,
        /// How it ended.
        status: String,
        /// What it said.
        log: String,
    },
    /// There is no place for the text that it reads.
    #[error("no temporary file for {} (from {PTXAS}), which was to assemble kernel `{kernel}`: {reason}", path.display())]
    NoFile {
        /// The assembler.
        path: PathBuf,
        /// The kernel's name.
        kernel: String,
        /// The system's words.
        reason: String,
    },
    /// The driver refused what it made, for example because the driver is older.
    #[error(
        "the driver refused what {} (from {PTXAS}) made of kernel `{kernel}` ({reason}): name a ptxas that is not newer than \
         the driver, or unset {PTXAS} to have the driver compile",
        path.display()
    )]
    NotLoaded {
        /// The assembler.
        path: PathBuf,
        /// The kernel's name.
        kernel: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The program that the environment names; an empty name is none.
pub(crate) fn named() -> Option<PathBuf> {
    env::var_os(PTXAS).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What an assembler made of a text.
pub(crate) struct Assembled {
    /// The file of the binary, beside the text's.
    pub(crate) file: PathBuf,
    /// The binary: it begins as an ELF file does.
    #[cfg_attr(not(feature = "driver"), allow(dead_code, reason = "build scripts name the file"))]
    pub(crate) binary: Vec<u8>,
    /// What was said.
    pub(crate) log: String,
}

/// Has the assembler make a binary of a file of text; `more` are arguments behind those that every run has.
///
/// # Errors
/// It cannot be started, it fails, or it leaves no binary. Then no file of a binary is there.
pub(crate) fn assemble(
    path: &Path,
    kernel: &str,
    ptx: &Path,
    more: &[&str],
) -> Result<Assembled, AssemblerError> {
    let file = ptx.with_extension("cubin");
    let mut command = Command::new(path);
    command.arg(format!("-arch={}", ptx::Target::Sm90a.name())).arg("-o").arg(&file).arg(ptx).args(more);
    let output = command.stdin(Stdio::null()).output().map_err(|error| not_started(path, &error))?;
    let log = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let binary = fs::read(&file).ok().filter(|binary| binary.starts_with(b"\x7fELF"));
    match binary {
        Some(binary) if output.status.success() => Ok(Assembled { file, binary, log }),
        Some(_) | None => {
            // A half-written one is no binary.
            let _ = fs::remove_file(&file);
            let status = match output.status.success() {
                true => "no binary".to_owned(),
                false => output.status.to_string(),
            };
            let (path, kernel) = (path.to_owned(), kernel.to_owned());
            Err(AssemblerError::Failed { path, kernel, status, log: log.trim().to_owned() })
        }
    }
}

fn not_started(path: &Path, error: &std::io::Error) -> AssemblerError {
    AssemblerError::NotStarted { path: path.to_owned(), reason: error.to_string() }
}

/// The assembler of this process, as its environment names it at the first use.
#[cfg(feature = "driver")]
pub(crate) struct Assembler {
    path: PathBuf,
    /// All that it says of its version.
    version: String,
}

#[cfg(feature = "driver")]
impl Assembler {
    /// The assembler that the environment names, if it names one. It is asked for its version once a process.
    ///
    /// # Errors
    /// What is named cannot be started, or says no version.
    pub(crate) fn of_process() -> Result<Option<&'static Self>, AssemblerError> {
        static ASSEMBLER: std::sync::OnceLock<Result<Option<Assembler>, AssemblerError>> =
            std::sync::OnceLock::new();
        let assembler = ASSEMBLER.get_or_init(|| named().map(Self::asked).transpose());
        assembler.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The assembler of that path, asked for its version.
    fn asked(path: PathBuf) -> Result<Self, AssemblerError> {
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| not_started(&path, &error))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && !version.is_empty() {
            return Ok(Self { path, version });
        }
        let status = match output.status.success() {
            true => "it said nothing".to_owned(),
            false => output.status.to_string(),
        };
        Err(AssemblerError::NoVersion { path, status })
    }

    /// All that it says of its version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Makes a binary of a text, with a log that says which registers and how much local memory it uses.
    ///
    /// # Errors
    /// There is no place for the text, or the assembler fails.
    pub(crate) fn assemble(&self, kernel: &str, text: &str) -> Result<crate::disk::Compiled, AssemblerError> {
        let no_file = |error: std::io::Error| {
            let (path, kernel) = (self.path.clone(), kernel.to_owned());
            AssemblerError::NoFile { path, kernel, reason: error.to_string() }
        };
        let folder = tempfile::Builder::new().prefix("falchion-").tempdir().map_err(no_file)?;
        let ptx = folder.path().join("kernel.ptx");
        fs::write(&ptx, text).map_err(no_file)?;
        let Assembled { binary, log, .. } = assemble(&self.path, kernel, &ptx, &["-v"])?;
        Ok(crate::disk::Compiled { cubin: binary, log: log.trim().to_owned() })
    }

    /// The driver's refusal of what it made, or another flaw of that.
    pub(crate) fn not_loaded(&self, kernel: &str, reason: impl ToString) -> AssemblerError {
        let (path, kernel) = (self.path.clone(), kernel.to_owned());
        AssemblerError::NotLoaded { path, kernel, reason: reason.to_string() }
    }
}
