//! Checks PTX that anybody wrote.

use std::sync::atomic::{AtomicBool, Ordering};

use falchion::check::{CheckError, Launch, Options, Report, Sarif, Suppression, check, compiler};
use falchion::kernel::{Emulator, Gpu};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::array::invalid;
use crate::error::of_engine;
use crate::plan::of_this_machine;
use crate::watch::watched;
use crate::whole::Whole;

/// Checks a launch: a description as TOML, or as JSON. `fetch` returns the bytes of each file that it names; `text` is the PTX of its
/// kernels, if that is no file, and `file` its name in the report. Returns the report as JSON, as text and as SARIF.
#[pyfunction]
#[pyo3(signature = (launch, fetch, *, is_json, text=None, file=None, schedules=Whole::Small(50), seed=Whole::Small(0), suppress=Vec::new()), text_signature = "(launch, fetch, *, is_json, text=None, file=None, schedules=50, seed=0, suppress=())")]
#[allow(clippy::too_many_arguments, reason = "those of the function in Python")]
pub(crate) fn checked(
    py: Python<'_>,
    launch: &str,
    fetch: &Bound<'_, PyAny>,
    is_json: bool,
    text: Option<String>,
    file: Option<String>,
    schedules: Whole,
    seed: Whole,
    suppress: Vec<String>,
) -> PyResult<(String, String, String)> {
    let read = if is_json {
        serde_json::from_str(launch).map_err(|error| error.to_string())
    } else {
        Launch::read(launch).map_err(|error| error.to_string())
    };
    let mut launch = read.or_else(|why| invalid(format!("launch: {why}")))?;
    for kernel in &mut launch.kernels {
        if let Some(text) = &text {
            kernel.text.clone_from(text);
        }
        if let Some(file) = &file {
            kernel.file.clone_from(file);
        }
    }
    let fetched = |name: &str| -> Result<Vec<u8>, String> {
        let bytes = fetch.call1((name,)).and_then(|bytes| bytes.extract());
        bytes.map_err(|error: PyErr| error.value(py).to_string())
    };
    launch.load(&fetched).or_else(|error| invalid(format!("launch: {error}")))?;
    let mut suppressions = launch.suppressions.clone();
    for rule in suppress {
        suppressions.push(rule.parse::<Suppression>().or_else(|why| invalid(format!("suppress: {why}")))?);
    }
    let schedules = schedules.from("schedules", [0, u32::MAX])?.into();
    let seed = seed.from("seed", [0, u32::MAX])?.into();
    let ended = AtomicBool::new(false);
    let report = watched(
        py,
        "falchion: checking",
        |watch| {
            let show = |done, of| watch.show(done, of);
            let options =
                Options { schedules, seed, progress: Some(&show), stop: Some(&ended), ..Options::default() };
            check(&launch, &options)
        },
        || ended.store(true, Ordering::Relaxed),
    )?;
    let mut report: Report = report.or_else(|error: CheckError| invalid(error.to_string()))?;
    report.suppress(&suppressions);
    let wrong = |error: serde_json::Error| PyRuntimeError::new_err(error.to_string());
    let json = serde_json::to_string(&report).map_err(wrong)?;
    let text = report.to_string();
    let sarif = serde_json::to_string(&Sarif::new(&[report])).map_err(wrong)?;
    Ok((json, text, sarif))
}

/// Tests the compiler of kernels on a card, or the test itself in the emulator. Returns the report as JSON and as text.
#[pyfunction]
pub(crate) fn compiled(py: Python<'_>, card: &str) -> PyResult<(String, String)> {
    let report = match (card, of_this_machine(card)) {
        ("emulator", _) => py.detach(|| compiler(&mut Emulator::new())),
        (_, Some(ordinal)) => py.detach(|| compiler(&mut Gpu::new(ordinal)?)),
        (_, None) => {
            return invalid(format!(
                "card is \"{card}\", one of this machine was needed, cuda:0, or emulator"
            ));
        }
    };
    let report = report.map_err(|error| {
        if let CheckError::Engine(error) = &error {
            of_engine(error)
        } else {
            PyRuntimeError::new_err(error.to_string())
        }
    })?;
    let json = serde_json::to_string(&report).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok((json, report.to_string()))
}
