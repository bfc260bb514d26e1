//! How much memory and work a problem takes, and whether this machine has it. Commands check this before they
//! allocate.

use crate::verify::product::rows_compared;
use crate::verify::{Formula, fusions};
pub(crate) use kernel::host::bytes_in_words as bytes;
use kernel::host::{check_memory, free_in_words};
use kernel::{AnyGemm, Call, Demand, Engine, EngineError, GemmProblem, Kernel};

use crate::cli::Failure;

/// Fails unless `needed` bytes are available. `what` names what needs them, with its numbers; `lower` says
/// what to lower.
pub(crate) fn enough(what: &str, needed: u128, lower: &str) -> Result<(), Failure> {
    check_memory(needed).map_err(|error| refused(what, &error, lower))
}

fn refused(what: &str, error: &EngineError, lower: &str) -> Failure {
    if let EngineError::Memory { needed, free } = error {
        let (needed, there) = (bytes(*needed as f64), free_in_words(*free));
        usage!("{what} needs {needed} of memory, {there}: lower {lower}")
    } else {
        usage!("{what}: {error}: lower {lower}")
    }
}

/// Fails if an engine does not take on the work of some GEMMs.
pub(crate) fn work(
    engine: &dyn Engine,
    kernel: &AnyGemm,
    products: &[GemmProblem],
    lower: &str,
) -> Result<(), Failure> {
    let of = |&problem: &GemmProblem| kernel.total_work(&Call::of(problem));
    let demand = Demand { bytes: 0, work: products.iter().map(of).sum() };
    engine.admit(&demand, 0).map_err(|error| refused(kernel.name(), &error, lower))
}

/// Fails if a call of a kernel of any family is too large to be traced.
pub(crate) fn traced<C: Clone>(
    what: &str,
    kernel: &impl Kernel<C>,
    call: &C,
    (clusters, lower): (u32, &str),
) -> Result<(), Failure> {
    let demand = Demand::of(kernel, call, clusters).map_err(|error| usage!("{what}: {error}"))?;
    demand.traced().map_err(|error| refused(what, &error, lower))
}

/// Bytes needed to run some GEMMs and to check them one by one.
pub(crate) fn checked(products: &[GemmProblem]) -> u128 {
    // Per GEMM, in addition to its elements: descriptions, gaps, guards.
    const EACH: u128 = 1024;
    // A, B, C and D: 64 bits per element on the host, at most as much as bytes in transfer, and the copy on
    // the engine.
    let matrices: u128 = products.iter().map(|&problem| 12 * matrices(problem) + EACH).sum();
    matrices + products.iter().map(|&problem| oracle(problem)).max().unwrap_or(0)
}

/// Fails if a fused epilogue has a random matrix with more elements than are possible, or if this machine has not
/// enough memory to check it.
pub(crate) fn fused(problem: GemmProblem, fusion: Formula) -> Result<(), Failure> {
    drawn(problem)?;
    let GemmProblem { m, n, k } = problem;
    let needed = checked(&[problem]) + u128::from(fusions::evaluated_bytes(fusion, problem));
    enough(&format!("{m} x {n} x {k} with epilogue {}", fusion.name()), needed, "--m, --n or --k")
}

/// Fails if a random matrix of a fused epilogue has more elements than are possible.
pub(crate) fn drawn(GemmProblem { m, n, .. }: GemmProblem) -> Result<(), Failure> {
    // A matrix is as large as D, or has rows of 128 elements; its rows may be padded by two.
    let elements = u64::from(m) * (u64::from(n.max(128)) + 2);
    if u32::try_from(elements).is_ok() {
        return Ok(());
    }
    Err(usage!(
        "D has {m} x {n} = {} elements, and a matrix of a fused epilogue up to {elements}; at most {} are possible: lower --m or --n",
        u64::from(m) * u64::from(n),
        u32::MAX
    ))
}

/// Bytes of a problem's A, B, C and D with 16-bit elements.
pub(crate) fn matrices(GemmProblem { m, n, k }: GemmProblem) -> u128 {
    let [m, n, k] = [m, n, k].map(u128::from);
    2 * (m * k + k * n + 2 * m * n)
}

/// Bytes of the reference: the columns of B in f64, and what is expected in the rows that are compared.
fn oracle(problem: GemmProblem) -> u128 {
    let [m, n, k] = [problem.m, problem.n, problem.k].map(u128::from);
    8 * n * k + 64 * m.min(rows_compared(problem) as u128) * n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_the_number() {
        let refused = enough("A of 5 x 7", 1 << 100, "--m");
        let Err(Failure::Usage(message)) = refused else { panic!("{refused:?}") };
        assert!(message.starts_with("A of 5 x 7 needs 1267650600228229"), "{message}");
        assert!(message.ends_with(": lower --m"), "{message}");
        assert!(enough("nothing", 0, "--m").is_ok());
    }
}
