//! What `falchion gemm` prints of a kernel and of its run.

use std::io::{self, Write};

use collective::WeightsSpec;
use falchion::verify::product::formats;
use falchion::verify::{Format, Outcome, Sums};
use kernel::{AnyGemm, GemmProblem};

/// A kernel's formats as text: one name if all matrices have the same format.
pub(crate) fn words(entry: &AnyGemm) -> String {
    let [a, b, d] = formats(entry).map(Format::name);
    let [of_a, of_b] = entry.plan().weights();
    let name = |format: &str, weights: Option<WeightsSpec>| {
        weights.map_or_else(|| format.to_owned(), |weights| weights.code.to_string())
    };
    match [name(a, of_a), name(b, of_b), d.to_owned()] {
        [a, b, d] if a == b && b == d => a,
        [a, b, d] => format!("{a} by {b} to {d}"),
    }
}

/// Prints that all runs gave the same bits, if there were several.
pub(crate) fn repeated(out: &mut impl Write, runs: u32) -> io::Result<()> {
    if runs > 1 { writeln!(out, "repeated  the same bits in all {runs} runs") } else { Ok(()) }
}

/// Prints the time and the error of a run.
pub(super) fn report(
    out: &mut impl Write,
    outcome: &Outcome,
    sums: &Sums,
    problem: GemmProblem,
    emulated: bool,
) -> io::Result<()> {
    if let Some(time) = outcome.time {
        let seconds = time.as_secs_f64();
        if emulated {
            writeln!(out, "time      {seconds:.3} s on this machine's CPU; it says nothing about a GPU")?;
        } else {
            let rate = problem.operations() / seconds / 1e12;
            writeln!(
                out,
                "time      {:.1} us on the device, {rate:.1} TFLOP/s (one cold run)",
                seconds * 1e6
            )?;
        }
    }
    if let Some(time) = outcome.transposed.filter(|_| !emulated) {
        writeln!(out, "          and {:.1} us of transposes before it", time.as_secs_f64() * 1e6)?;
    }
    let which = if sums.complete {
        "of all elements".to_owned()
    } else {
        format!(
            "of {} elements in {} rows and {} columns",
            outcome.compared,
            sums.rows.len(),
            sums.columns.len()
        )
    };
    writeln!(
        out,
        "error     at most {:.3e}, with a bound of {:.3e} ({:.2} of it), {which}",
        outcome.error, outcome.bound, outcome.ratio
    )
}
