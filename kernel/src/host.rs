//! The memory of this machine: how much is free, and the check that a process gets what it needs.

use std::fs;

use crate::error::EngineError;

/// Fails unless this process can have `needed` bytes more.
///
/// # Errors
/// [`EngineError::Memory`], with both numbers.
pub fn check_memory(needed: u128) -> Result<(), EngineError> {
    let free = free_memory();
    if free.is_some_and(|free| u128::from(free) < needed) {
        return Err(EngineError::Memory { needed, free });
    }
    // The system may not tell how much is free, or this process may have a limit: try to reserve the memory.
    let mut trial = Vec::<u8>::new();
    let given = usize::try_from(needed).is_ok_and(|needed| trial.try_reserve_exact(needed).is_ok());
    // Without the black box, the optimiser may remove the allocation.
    drop(core::hint::black_box(trial));
    if given { Ok(()) } else { Err(EngineError::Memory { needed, free: None }) }
}

/// Bytes that processes may still take, where the system says so: on Linux, the least of what is free and of what a
/// container has left.
pub fn free_memory() -> Option<u64> {
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

/// A number of bytes with a unit, for example `41.9 MB`.
pub fn bytes_in_words(count: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count / unit),
        None => format!("{count:.0} B"),
    }
}

/// How much is free, in the words of an error.
pub fn free_in_words(free: Option<u64>) -> String {
    match free {
        Some(free) => format!("{} are free on this machine", bytes_in_words(free as f64)),
        None => "more than this process is given".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_fits() {
        for (count, want) in [(0.0, "0 B"), (999.0, "999 B"), (41_943_040.0, "41.9 MB"), (5.0e9, "5.0 GB")] {
            assert_eq!(bytes_in_words(count), want);
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
        let refused = check_memory(1 << 100).map_err(|error| error.to_string());
        let Err(words) = refused else { panic!("2^100 bytes are given") };
        assert!(
            words.starts_with("1267650600228229") && words.contains("GB of memory are needed"),
            "{words}"
        );
        assert!(check_memory(0).is_ok());
    }
}
