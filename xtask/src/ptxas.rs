//! Finds or installs `ptxas`, NVIDIA's assembler, with which tests assemble the printed kernels.
//!
//! NVIDIA publishes it as a Python package of about 30 MB, so no CUDA toolkit is needed. It is installed once
//! in the target folder. The crates neither link nor ship any part of it.

use std::env;
use std::fs;
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::{self, Command, Stdio};

use crate::cargo;
use crate::error::Error;

/// The environment variable with the path of the assembler. It is read here, and set for the tests.
pub(crate) const VARIABLE: &str = "FALCHION_PTXAS";

/// The release of the Python package that is installed.
pub(crate) const VERSION: &str = "13.0.88";

/// An assembler that runs.
#[derive(Debug)]
pub(crate) struct Ptxas {
    /// The absolute path of the program.
    pub(crate) path: PathBuf,
    /// Its release, from `--version`.
    pub(crate) release: String,
}

/// The assembler that `FALCHION_PTXAS` names, otherwise the one in the target folder, which is installed if
/// missing.
pub(crate) fn ensure() -> Result<Ptxas, Error> {
    if let Some(given) = env::var_os(VARIABLE).filter(|given| !given.is_empty()) {
        // Tests run in the folder of their package, so a relative path must be made absolute here.
        let given = path::absolute(&given).unwrap_or_else(|_| PathBuf::from(given));
        return probe(given, true);
    }
    let home = cargo::target_directory()?.join(format!("ptxas-{VERSION}"));
    if !program(&home).is_file() {
        install(&home)?;
    }
    probe(program(&home), false)
}

/// The path of the program in the folder in which the Python package is installed.
fn program(home: &Path) -> PathBuf {
    let folder: PathBuf = ["nvidia", "cu13", "bin"].iter().collect();
    home.join(folder).join(format!("ptxas{}", env::consts::EXE_SUFFIX))
}

/// Runs the program once, so that a wrong path or platform is reported here and not by each test.
fn probe(path: PathBuf, given: bool) -> Result<Ptxas, Error> {
    let unusable = |path, cause| Err(Error::PtxasUnusable { path, given, cause });
    let output = match Command::new(&path).arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return unusable(path, format!("it could not be started ({error})")),
    };
    if !output.status.success() {
        return unusable(path, format!("`--version` ended with {}", output.status));
    }
    match release(&String::from_utf8_lossy(&output.stdout)) {
        Some(release) => Ok(Ptxas { path, release }),
        None => unusable(path, "`--version` names no CUDA release".to_owned()),
    }
}

/// The words `release 13.0, V13.0.88` from the output of `--version`.
fn release(answer: &str) -> Option<String> {
    let line = answer.lines().find(|line| line.contains("release"))?;
    line.find("release").map(|start| line[start..].trim_end().to_owned())
}

/// Installs the package next to `home` and then moves it to `home`, so that a broken download leaves nothing
/// there.
fn install(home: &Path) -> Result<(), Error> {
    let python = python_with_pip()?;
    let partial = home.with_file_name(format!("ptxas-{VERSION}.partial-{}", process::id()));
    eprintln!("xtask: installing ptxas {VERSION} (30 MB) into {}", home.display());
    let outcome = pip_install(python, &partial).and_then(|()| {
        place(&partial, home).map_err(|error| format!("{} could not be written ({error})", home.display()))
    });
    if outcome.is_err() {
        // A failure here does no harm, and the first error is the one to report.
        let _ = fs::remove_dir_all(&partial);
    }
    outcome.map_err(|cause| Error::PtxasMissing { cause })
}

/// The first Python interpreter that has pip.
fn python_with_pip() -> Result<&'static str, Error> {
    let has_pip = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-m", "pip", "--version"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["python3", "python"].into_iter().find(has_pip).ok_or_else(|| Error::PtxasMissing {
        cause: "neither `python3 -m pip` nor `python -m pip` runs".to_owned(),
    })
}

fn pip_install(python: &str, into: &Path) -> Result<(), String> {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps", "--only-binary", ":all:"]);
    command.arg("--target").arg(into).arg(format!("nvidia-cuda-nvcc=={VERSION}"));
    // The target is a plain folder, so pip's rules and warnings for environments do not apply.
    command.env("PIP_REQUIRE_VIRTUALENV", "0").env("PIP_USER", "0").env("PIP_ROOT_USER_ACTION", "ignore");
    command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    // Standard output is reserved for the path that `cargo xtask ptxas` prints.
    command.stdin(Stdio::null()).stdout(io::stderr());
    match command.status() {
        Ok(status) if !status.success() => {
            Err(format!("`{python} -m pip install` failed ({status}; its own report is above)"))
        }
        Ok(_) if program(into).is_file() => Ok(()),
        Ok(_) => Err("the package was installed but holds no ptxas".to_owned()),
        Err(error) => Err(format!("`{python}` could not be started ({error})")),
    }
}

/// Moves `partial` to `home`, unless another run of this task has put the program there in the meantime.
fn place(partial: &Path, home: &Path) -> io::Result<()> {
    if program(home).is_file() {
        return fs::remove_dir_all(partial);
    }
    if home.exists() {
        fs::remove_dir_all(home)?;
    }
    match fs::rename(partial, home) {
        Err(_) if program(home).is_file() => fs::remove_dir_all(partial),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_the_answer() {
        let answer = "ptxas: NVIDIA (R) Ptx optimizing assembler\n\
                      Cuda compilation tools, release 13.0, V13.0.88\r\n\
                      Build cuda_13.0.r13.0/compiler.36424714_0\n";
        for (why, answer, want) in [
            ("the line that says release, without its line end", answer, Some("release 13.0, V13.0.88")),
            ("another program says no such thing", "true (coreutils) 9.4", None),
            ("silence is no release", "", None),
        ] {
            assert_eq!(release(answer).as_deref(), want, "{why}");
        }
    }

    #[test]
    fn a_path_that_is_no_program_is_refused_with_the_variable_and_the_path() {
        let error = probe(PathBuf::from("no-such-folder/ptxas"), true).unwrap_err().to_string();
        assert!(error.contains(VARIABLE) && error.contains("no-such-folder"), "{error}");
    }

    #[test]
    fn an_install_replaces_a_broken_one_and_yields_to_a_whole_one() {
        let root = env::temp_dir().join(format!("falchion-xtask-{}", process::id()));
        let (partial, home) = (root.join("partial"), root.join("home"));
        let write = |home: &Path, text: &str| {
            fs::create_dir_all(program(home).parent().unwrap()).unwrap();
            fs::write(program(home), text).unwrap();
        };
        let read = || fs::read_to_string(program(&home)).unwrap();

        fs::create_dir_all(home.join("left over")).unwrap();
        write(&partial, "first");
        place(&partial, &home).unwrap();
        assert_eq!(read(), "first", "a folder without the program is replaced");
        assert!(!home.join("left over").exists(), "nothing of the broken install stays");

        write(&partial, "second");
        place(&partial, &home).unwrap();
        assert_eq!(read(), "first", "a whole install is kept");
        assert!(!partial.exists(), "the partial folder never stays");
        fs::remove_dir_all(&root).unwrap();
    }
}
