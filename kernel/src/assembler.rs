//! NVIDIA's assembler (`ptxas`), if the user names one. Build scripts and the driver's loader run it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment variable that holds the path of the assembler.
pub const PTXAS: &str = "FALCHION_PTXAS";

/// Why the assembler that the user named gave no binary. No other compiler is used in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblerError {
    /// It cannot be started.
    #[error(
        "{PTXAS} names {}, which cannot be started ({reason}): name NVIDIA's ptxas, or unset {PTXAS} to do without",
        path.display()
    )]
    NotStarted {
        /// The path that was given.
        path: PathBuf,
        /// The operating system's error message.
        reason: String,
    },
    /// It does not print its version.
    #[error(
        "{PTXAS} names {}, whose `--version` gave no version ({status}): name NVIDIA's ptxas, or unset {PTXAS} to do without",
        path.display()
    )]
    NoVersion {
        /// The path that was given.
        path: PathBuf,
        /// Its exit status.
        status: String,
    },
    /// It rejected a kernel.
    #[error("{} (from {PTXAS}) failed for kernel `{kernel}` with {status}:\n{log}", path.display())]
    Failed {
        /// The assembler's path.
        path: PathBuf,
        /// The kernel's name.
        kernel: String,
        /// Its exit status.
        status: String,
        /// Its output.
        log: String,
    },
    /// No temporary file can be made for the PTX text.
    #[error("no temporary file for {} (from {PTXAS}), which was to assemble kernel `{kernel}`: {reason}", path.display())]
    NoFile {
        /// The assembler's path.
        path: PathBuf,
        /// The kernel's name.
        kernel: String,
        /// The operating system's error message.
        reason: String,
    },
    /// The driver rejected the binary, for example because the driver is older than the assembler.
    #[error(
        "the driver refused what {} (from {PTXAS}) made of kernel `{kernel}` ({reason}): name a ptxas that is not newer than \
         the driver, or unset {PTXAS} to have the driver compile",
        path.display()
    )]
    NotLoaded {
        /// The assembler's path.
        path: PathBuf,
        /// The kernel's name.
        kernel: String,
        /// What is wrong with the binary.
        reason: String,
    },
}

/// The path in the environment variable; an empty one counts as none.
pub(crate) fn named() -> Option<PathBuf> {
    env::var_os(PTXAS).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The result of assembling a PTX text.
pub(crate) struct Assembled {
    /// The file of the binary, in the same folder as the text.
    pub(crate) file: PathBuf,
    /// The binary, an ELF file.
    #[cfg_attr(not(feature = "driver"), allow(dead_code, reason = "build scripts name the file"))]
    pub(crate) binary: Vec<u8>,
    /// What the assembler printed.
    pub(crate) log: String,
}

/// Runs the assembler on a file of PTX text. `more` holds arguments that follow those of every run.
///
/// # Errors
/// It cannot be started, it fails, or it leaves no binary. In each case no binary file is left.
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
            // A file that is only partly written is not a binary.
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

/// The assembler of this process, from the environment at its first use.
#[cfg(feature = "driver")]
pub(crate) struct Assembler {
    path: PathBuf,
    /// All that it prints about its version.
    version: String,
}

#[cfg(feature = "driver")]
impl Assembler {
    /// The assembler that the environment names, if any. It is asked for its version once per process.
    ///
    /// # Errors
    /// It cannot be started, or does not print its version.
    pub(crate) fn of_process() -> Result<Option<&'static Self>, AssemblerError> {
        static ASSEMBLER: std::sync::OnceLock<Result<Option<Assembler>, AssemblerError>> =
            std::sync::OnceLock::new();
        let assembler = ASSEMBLER.get_or_init(|| named().map(Self::asked).transpose());
        assembler.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The assembler at a path, after it was asked for its version.
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

    /// All that it prints about its version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// What it says about its version, without the rest: `ptxas V13.0.88`.
    pub(crate) fn release(&self) -> String {
        let mut words = self.version.split([',', '\n', ' ']).map(str::trim);
        let number = |word: &str| {
            word.strip_prefix('V').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        match words.find(|word| number(word)) {
            Some(version) => format!("ptxas {version}"),
            None => "an assembler without a version".to_owned(),
        }
    }

    /// The path of the program.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Assembles a PTX text. The log says how many registers and how much local memory the kernel uses.
    ///
    /// # Errors
    /// No temporary file can be made for the text, or the assembler fails.
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

    /// The error for a binary that the driver rejects, or that has another defect.
    pub(crate) fn not_loaded(&self, kernel: &str, reason: impl ToString) -> AssemblerError {
        let (path, kernel) = (self.path.clone(), kernel.to_owned());
        AssemblerError::NotLoaded { path, kernel, reason: reason.to_string() }
    }
}
