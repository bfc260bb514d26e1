//! The embedded case tables, run on every available engine.

#[path = "../kernel/tests/support/skipped.rs"]
mod skipped;

use falchion::verify::tables::{Case, tables};
use kernel::{Emulator, Gpu};
use rayon::prelude::*;

fn quick() -> Vec<Case> {
    tables().expect("the tables are well-formed").into_iter().filter(|case| case.suite == "quick").collect()
}

#[test]
fn every_case_is_for_kernels_of_the_catalogue() {
    let all = kernel::catalogue().into_iter().chain(kernel::several()).chain(kernel::by_threads());
    let names: Vec<String> = all.map(|entry| entry.name().to_owned()).collect();
    for case in tables().expect("the tables are well-formed") {
        assert!(["quick", "full"].contains(&case.suite.as_str()), "{}: suite {}", case.name, case.suite);
        for kernel_case in case.kernel_cases() {
            assert!(
                names.contains(&kernel_case.kernel),
                "{}: there is no kernel {}",
                case.name,
                kernel_case.kernel
            );
        }
    }
    for name in &names {
        let cases = quick();
        let run = cases.iter().flat_map(Case::kernel_cases).any(|kernel_case| &kernel_case.kernel == name);
        assert!(run, "no quick case runs {name}");
    }
}

/// A case with every third value of M, N and K, from one of the first three on each, as the digits of `which` say.
fn thinned(case: &Case, which: usize) -> Case {
    let every_third = |values: &[u32], from: usize| {
        values.iter().copied().skip(from % 3 % values.len().max(1)).step_by(3).collect::<Vec<u32>>()
    };
    let [m, n, k] = [(&case.m, which), (&case.n, which / 3), (&case.k, which / 9)]
        .map(|(values, from)| every_third(values, from));
    Case { m, n, k, ..case.clone() }
}

/// Every third case of the K-major kernels of `bf16`, and of each other kernel one case in twelve, each with one in 27 of its
/// problems; and all that compute nothing. With `cargo xtask test --long` it is all cases; `falchion verify` always runs all.
#[test]
fn quick_cases_on_the_emulator() {
    let cases = quick();
    let long = std::env::var_os("FALCHION_LONG").is_some();
    let few: Vec<Vec<Case>> =
        (0..27).map(|which| cases.iter().map(|case| thinned(case, which)).collect()).collect();
    let mut met = std::collections::HashMap::<String, usize>::new();
    let mut kernel_cases = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for (number, kernel_case) in case.kernel_cases().into_iter().enumerate() {
            let before = met.entry(kernel_case.kernel.clone()).or_default();
            let one_in = if kernel_case.kernel.ends_with("-bf16-kk") { 3 } else { 12 };
            if long || case.name == "no-products" {
                kernel_cases.push(kernel_case);
            } else if before.is_multiple_of(one_in) {
                kernel_cases.push(few[kernel_cases.len() % 27][at].kernel_cases().swap_remove(number));
            }
            *before += 1;
        }
    }
    let failures: Vec<String> = kernel_cases
        .par_iter()
        .filter_map(|kernel_case| {
            let verdict = kernel_case.run(&mut Emulator::new(), 7);
            verdict
                .failure
                .map(|failure| format!("{} {}: {failure}", kernel_case.case.name, kernel_case.kernel))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs if there is a usable GPU; `falchion verify --engine gpu` requires one.
#[test]
fn quick_cases_on_the_gpu() {
    let Ok(mut gpu) = Gpu::new(0) else { return skipped::skipped("GPU") };
    let cases = quick();
    for kernel_case in cases.iter().flat_map(Case::kernel_cases) {
        let verdict = kernel_case.run(&mut gpu, 7);
        assert_eq!(verdict.failure, None, "{} {}", kernel_case.case.name, kernel_case.kernel);
    }
}
