//! `falchion check --compiler`: tests what compiles kernels.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kernel::Gpu;
use kernel::build::PTXAS;
use kernel::disk::VARIABLE;

use crate::check::{CheckError, compiler, known_compiler};
use crate::cli::Failure;
use crate::cli::output::{out, plain};

/// The kernel whose load the self-test is compared with.
const KERNEL: &str = "128x256-bf16-kk";

/// Tests the process's compiler, or each of some assemblers in a process of its own.
pub(super) fn run(assemblers: &[PathBuf]) -> Result<(), Failure> {
    let mut is_right = true;
    if assemblers.is_empty() {
        is_right = here()?;
    }
    for (number, path) in assemblers.iter().enumerate() {
        if number > 0 {
            writeln!(out())?;
        }
        is_right &= with(path)?;
    }
    if is_right { Ok(()) } else { Err(Failure::Wrong) }
}

/// Tests this process's compiler. Kernels are loaded as in any process, and the self-test comes after the first one, which starts the
/// driver's compiler.
fn here() -> Result<bool, Failure> {
    let start = Instant::now();
    let mut gpu = Gpu::new(0)?;
    let opened = start.elapsed();
    let kernel = kernel::find(KERNEL).map_err(Failure::usage)?;
    gpu.kernel(&kernel.program().map_err(Failure::environment)?)?;
    let first = start.elapsed();
    let failed = |error| {
        if let CheckError::Engine(error) = error { error.into() } else { Failure::environment(error) }
    };
    let start = Instant::now();
    let report = compiler(&mut gpu).map_err(failed)?;
    let all = start.elapsed();
    // The first call keeps what it finds.
    known_compiler(&mut gpu).map_err(failed)?;
    let known = known_compiler(&mut gpu).map_err(failed)?;
    let mut out = out();
    for line in report.to_string().lines() {
        writeln!(out, "{}", plain(line))?;
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let share = |time: Duration| 100.0 * time.as_secs_f64() / first.as_secs_f64();
    writeln!(
        out,
        "first     {:.2} ms to the first kernel, {KERNEL}: {:.2} ms of it open the GPU",
        ms(first),
        ms(opened)
    )?;
    writeln!(out, "cost      {:.2} ms, {:.2} % of that", ms(all), share(all))?;
    let how = if known.report.is_some() { "nothing is kept" } else { "a later process reads what is kept" };
    writeln!(out, "known     {:.2} ms, {:.2} % of that: {how}", ms(known.time), share(known.time))?;
    out.flush()?;
    Ok(report.is_right())
}

/// Tests an assembler, in a process of its own: which one is used is decided once per process. Nothing comes from the folder of compiled
/// kernels.
fn with(path: &Path) -> Result<bool, Failure> {
    out().flush()?;
    let program = env::current_exe().map_err(Failure::environment)?;
    let mut command = Command::new(program);
    command.args(["check", "--compiler"]).env(PTXAS, path).env(VARIABLE, "").stdin(Stdio::null());
    let status = command.status().map_err(Failure::environment)?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        // It has said why.
        _ => Err(usage!("the test of {} ended with {status}", path.display())),
    }
}
