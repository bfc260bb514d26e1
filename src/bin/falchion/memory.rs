//! How much memory a problem needs, and whether this machine has it. Commands check this before they
//! allocate.

use std::fs;

use falchion::verify::{Formula, Sums, fusions};
use kernel::GemmProblem;

use crate::Failure;

/// Fails unless `needed` bytes are available. `what` names what needs them, with its numbers; `lower` says
/// what to lower.
pub(crate) fn enough(what: &str, needed: u128, lower: &str) -> Result<(), Failure> {
    let there = available();
    let refused = |there: &str| {
        let needed = bytes(needed as f64);
        Err(usage!("{what} needs {needed} of memory, {there}: lower {lower}"))
    };
    if let Some(there) = there.filter(|&there| u128::from(there) < needed) {
        return refused(&format!("{} are free on this machine", bytes(there as f64)));
    }
    // The system may not tell how much is free, or this process may have a limit: try to reserve the memory.
    let mut trial = Vec::<u8>::new();
    let given = usize::try_from(needed).is_ok_and(|needed| trial.try_reserve_exact(needed).is_ok());
    // Without the black box, the optimiser may remove the allocation.
    drop(std::hint::black_box(trial));
    if given { Ok(()) } else { refused("more than this process is given") }
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

/// Bytes of the reference: its columns in f64, and its sums, of four numbers each.
fn oracle(GemmProblem { m, n, k }: GemmProblem) -> u128 {
    let product = [m, n, k].map(u128::from);
    let (rows, columns) = (Sums::rows_of(product), Sums::columns_of(product));
    8 * columns * product[2] + 32 * rows * columns
}

/// Bytes that processes may still take, where the system says so: on Linux, the least of what is free and of what a
/// container has left.
fn available() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let free = read("/proc/meminfo").and_then(|text| field(&text, "MemAvailable:")).map(|kib| kib << 10);
    let limit = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    let used = read("/sys/fs/cgroup/memory.stat").and_then(|text| field(&text, "anon"));
    let left = limit.map(|limit| limit.saturating_sub(used.unwrap_or(0)));
    [free, left].into_iter().flatten().min()
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A number of bytes with a unit.
pub(crate) fn bytes(count: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count / unit),
        None => format!("{count:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_fits() {
        for (count, want) in [(0.0, "0 B"), (999.0, "999 B"), (41_943_040.0, "41.9 MB"), (5.0e9, "5.0 GB")] {
            assert_eq!(bytes(count), want);
        }
    }

    #[test]
    fn what_the_system_says_is_read() {
        let meminfo = "MemTotal:       64000 kB\nMemAvailable:   32000 kB\n";
        assert_eq!(field(meminfo, "MemAvailable:"), Some(32_000));
        assert_eq!(field("anon_thp 5\nanon 7\n", "anon"), Some(7), "the whole name counts");
        assert_eq!(field("max\n", "anon"), None);
    }

    #[test]
    fn what_no_machine_has_is_refused_with_the_number() {
        let refused = enough("A of 5 x 7", 1 << 100, "--m");
        let Err(Failure::Usage(message)) = refused else { panic!("{refused:?}") };
        assert!(message.starts_with("A of 5 x 7 needs 1267650600228229"), "{message}");
        assert!(message.ends_with(": lower --m"), "{message}");
        assert!(enough("nothing", 0, "--m").is_ok());
    }
}
