//! Benchmarks alone: `cargo bench -p benchmarks`.
