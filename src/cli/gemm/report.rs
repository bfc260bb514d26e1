//! What `falchion gemm` prints of a kernel and of its run.

use std::fmt::Display;
use std::io::Write;

use crate::verify::product::formats;
use crate::verify::{Format, Outcome};
use collective::WeightsSpec;
use kernel::AnyGemm;

use crate::cli::Failure;

/// A kernel's formats as text: one name if all matrices have the same format.
pub(super) fn words(entry: &AnyGemm) -> String {
    let [a, b, d] = formats(entry).map(Format::name);
    let [of_a, of_b] = entry.plan().call_operands().map(|operand| operand.weights);
    let name = |format: &str, weights: Option<WeightsSpec>| {
        weights.map_or_else(|| format.to_owned(), |weights| weights.code.to_string())
    };
    match [name(a, of_a), name(b, of_b), d.to_owned()] {
        [a, b, d] if a == b && b == d => a,
        [a, b, d] => format!("{a} by {b} to {d}"),
    }
}

/// Prints the time of a run of so many operations, and its error, if it has no wrong element.
pub(super) fn report(
    out: &mut impl Write,
    outcome: &Outcome,
    operations: f64,
    emulated: bool,
) -> Result<(), Failure> {
    match outcome.time.map(|time| time.as_secs_f64()) {
        Some(seconds) if emulated => {
            writeln!(out, "time      {seconds:.3} s on this machine's CPU; it says nothing about a GPU")?;
        }
        Some(seconds) => {
            let (us, rate) = (seconds * 1e6, operations / seconds / 1e12);
            writeln!(out, "time      {us:.1} us on the device, {rate:.1} TFLOP/s (one cold run)")?;
        }
        None => writeln!(out, "time      nothing to launch")?,
    }
    if let Some(time) = outcome.transposed.filter(|_| !emulated) {
        writeln!(out, "          and {:.1} us of transposes before it", time.as_secs_f64() * 1e6)?;
    }
    let Outcome { error, bound, ratio, compared, .. } = outcome;
    if outcome.mismatch.is_some() {
        return Ok(());
    }
    let which = if outcome.complete {
        "of all elements".to_owned()
    } else {
        format!("of {compared} elements, a sample")
    };
    Ok(writeln!(
        out,
        "error     at most {error:.3e}, with a bound of {bound:.3e} ({ratio:.2} of it), {which}"
    )?)
}

/// Prints the last line: what is wrong, or that nothing is, in any of the runs.
pub(super) fn verdict(
    out: &mut impl Write,
    mismatch: Option<impl Display>,
    runs: u32,
) -> Result<(), Failure> {
    if let Some(mismatch) = mismatch {
        writeln!(out, "WRONG {mismatch}")?;
        return Err(Failure::Wrong);
    }
    if runs > 1 {
        writeln!(out, "repeated  the same bits in all {runs} runs")?;
    }
    writeln!(out, "verified")?;
    Ok(out.flush()?)
}
