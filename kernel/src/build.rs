//! Kernels built ahead of time: a build script writes their PTX, and the compiled crate includes it.
//!
//! The build script depends on this crate only, without features:
//!
//! ```no_run
//! // build.rs
//! use kernel::build::{self, Ahead};
//! use kernel::{AnyGemm, KernelSpec, Transpose};
//!
//! # mod kernels {
//! #     use kernel::Composed;
//! #     use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
//! #     use half::bf16;
//! #     use scheduler::{AlongN, OneTile};
//! #     use typenum::{U1, U32, U64};
//! #     pub type Mine = Composed<
//! #         TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U32, U64>, Cooperative<U1>>,
//! #         LinearCombination<bf16>,
//! #         OneTile<AlongN>,
//! #     >;
//! # }
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let streamed: KernelSpec = "tile=64x160x64 roles=pingpong scheduler=stream-k".parse()?;
//!     build::emit(&[
//!         AnyGemm::of::<kernels::Mine>("mine").into(), // a type, for example of a file that the crate's own code includes too
//!         streamed.named("streamed")?.into(),
//!         Ahead::of("turned", &Transpose::of(collective::Format::Bf16).ok_or("16 bits")?), // any kernel
//!     ])?;
//!     Ok(())
//! }
//! ```
//!
//! In the crate itself, `OUT_DIR` then holds `mine.ptx`, `streamed.ptx` and `turned.ptx`, for
//! `include_str!(concat!(env!("OUT_DIR"), "/mine.ptx"))`. A kernel of several programs has a file for each, `name_1.ptx` the first that
//! runs. `OUT_DIR` also holds `kernels.rs`, which names all of them:
//!
//! ```
//! # mod ahead {
//! #     pub(super) const MINE_PTX: &str = "";
//! #     pub(super) const MINE_CUBIN: Option<&[u8]> = None;
//! # }
//! # /* Here there is no such file; the crate in `tests/ahead` has one.
//! mod ahead {
//!     include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
//! }
//! # */
//! let text: &str = ahead::MINE_PTX;
//! let binary: Option<&[u8]> = ahead::MINE_CUBIN;
//! ```
//!
//! # Binaries
//!
//! If the environment variable `FALCHION_PTXAS` holds the path of NVIDIA's assembler while the crate is
//! built, each kernel also gets a binary, `mine.cubin`, and `MINE_CUBIN` holds it. Otherwise `MINE_CUBIN` is
//! `None`, and the build needs nothing from NVIDIA. `Loaded::load_ahead` (feature `driver`) loads binaries
//! together with their texts. The same variable names the assembler for kernels that are loaded while the
//! program runs (module `driver`).

use core::fmt;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::assembler;
pub use crate::assembler::{AssemblerError, PTXAS};
use crate::gemm::AnyGemm;
use crate::kernel::Kernel;
use crate::program::Program;

/// Why kernels were not built ahead of time.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `OUT_DIR` is not set.
    #[error("OUT_DIR is not set: call `kernel::build::emit` from a build script")]
    NoFolder,
    /// A kernel's name that cannot become a file name and a constant's name.
    #[error(
        "kernel name `{name}`: {needed} was needed; `Ahead::of`, `AnyGemm::of` and `KernelSpec::named` take a name of yours"
    )]
    Name {
        /// The name.
        name: String,
        /// What was needed.
        needed: &'static str,
    },
    /// A program that breaks a rule.
    #[error("kernel `{kernel}`: {source}")]
    Program {
        /// The kernel's name.
        kernel: String,
        /// The faults that the verifier found.
        source: ptx::VerifyError,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The assembler gave no binary.
    #[error("{source}")]
    Assembler {
        /// Which assembler, and why.
        source: AssemblerError,
    },
}

/// The same text as `Display`: a `main` that returns an error prints this form, and the person who builds
/// must understand it.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A kernel to build, and the name for its files and constants.
#[derive(Clone, Debug)]
pub struct Ahead {
    name: String,
    programs: Result<Vec<Program>, ptx::VerifyError>,
}

impl Ahead {
    /// Any kernel. What its programs break is an error of [`emit`].
    pub fn of<C, K: Kernel<C> + ?Sized>(name: impl Into<String>, kernel: &K) -> Self {
        Self { name: name.into(), programs: kernel.programs() }
    }
}

/// By its own name.
impl From<AnyGemm> for Ahead {
    fn from(kernel: AnyGemm) -> Self {
        Self::of::<crate::Call, _>(kernel.name(), &kernel)
    }
}

/// The files of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The name: the kernel's, with the program's number after it if there are several.
    pub name: String,
    /// The file of its PTX text.
    pub ptx: PathBuf,
    /// The file of its binary, if an assembler was named.
    pub cubin: Option<PathBuf>,
}

/// Writes kernels to the build script's `OUT_DIR`. It also tells cargo to run the script again when the
/// script, the assembler or the variable `FALCHION_PTXAS` changes. Warnings of the assembler become warnings
/// of the build.
///
/// # Errors
/// A name that cannot become a file name, two names that give one constant, a program that breaks a rule, a
/// file that cannot be written, or an assembler that cannot be started or fails.
pub fn emit(kernels: &[Ahead]) -> Result<Vec<Built>, BuildError> {
    let folder = env::var_os("OUT_DIR").ok_or(BuildError::NoFolder)?;
    let assembler = assembler::named();
    let mut lines = String::new();
    let built = emit_to(kernels, Path::new(&folder), assembler.as_deref(), &mut lines);
    // Cargo must know what the script depends on even if the script fails.
    io::stdout()
        .write_all(lines.as_bytes())
        .map_err(|source| BuildError::Write { path: "standard output".into(), source })?;
    built
}

/// The same into any folder. `lines` receives the lines for cargo.
fn emit_to(
    kernels: &[Ahead],
    folder: &Path,
    assembler: Option<&Path>,
    lines: &mut String,
) -> Result<Vec<Built>, BuildError> {
    lines.push_str("cargo::rerun-if-changed=build.rs\n");
    lines.push_str(&format!("cargo::rerun-if-env-changed={PTXAS}\n"));
    if let Some(path) = assembler.filter(|path| path.is_file()) {
        lines.push_str(&format!("cargo::rerun-if-changed={}\n", path.display()));
    }
    let mut constants: Vec<String> = Vec::new();
    let mut module = String::new();
    let mut built = Vec::new();
    for Ahead { name, programs } in kernels {
        let refused =
            |source: &ptx::VerifyError| BuildError::Program { kernel: name.clone(), source: source.clone() };
        let programs = programs.as_ref().map_err(refused)?;
        for (number, program) in (1..).zip(programs) {
            let name = if programs.len() == 1 { name.clone() } else { format!("{name}_{number}") };
            let constant = constant(&name)?;
            if constants.contains(&constant) {
                let needed = "a name that differs from the others in more than case, `-` and `_`";
                return Err(BuildError::Name { name, needed });
            }
            let ptx = folder.join(format!("{name}.ptx"));
            write(&ptx, program.text())?;
            let cubin = assembler.map(|path| assemble(path, &name, &ptx, lines)).transpose()?;
            let binary = match &cubin {
                Some(_) => format!("Some(include_bytes!({:?}))", format!("{name}.cubin")),
                None => "None".to_owned(),
            };
            module.push_str(&format!(
                "/// Kernel `{name}` as PTX.\npub const {constant}_PTX: &str = include_str!({:?});\n\
                 /// Kernel `{name}` as a binary, where {PTXAS} named an assembler.\n\
                 pub const {constant}_CUBIN: Option<&[u8]> = {binary};\n",
                format!("{name}.ptx")
            ));
            constants.push(constant);
            built.push(Built { name, ptx, cubin });
        }
    }
    write(&folder.join("kernels.rs"), &module)?;
    Ok(built)
}

/// The prefix of a kernel's constants.
fn constant(name: &str) -> Result<String, BuildError> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(word) {
        return Ok(name.replace('-', "_").to_ascii_uppercase());
    }
    let needed = "a letter, and after it letters, digits, `-` and `_`";
    Err(BuildError::Name { name: name.to_owned(), needed })
}

/// Writes a file, unless it already holds that text. Rewriting it would make cargo compile the crate again.
fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    fs::write(path, text).map_err(|source| BuildError::Write { path: path.to_owned(), source })
}

/// Assembles a text. What the assembler prints becomes a warning.
fn assemble(path: &Path, kernel: &str, ptx: &Path, lines: &mut String) -> Result<PathBuf, BuildError> {
    let assembled = assembler::assemble(path, kernel, ptx, &[]);
    let assembled = assembled.map_err(|source| BuildError::Assembler { source })?;
    for line in assembled.log.lines().filter(|line| !line.trim().is_empty()) {
        lines.push_str(&format!("cargo::warning=kernel `{kernel}`: {}\n", line.trim()));
    }
    Ok(assembled.file)
}

#[cfg(test)]
mod tests;
