//! Kernels with equal summations give the same bits, and those with others do not.

#[path = "support/orders.rs"]
mod orders;

use std::collections::HashSet;

use emulator::{Numerics, Schedule};
use fastrand::Rng;
use kernel::{Emulator, GemmProblem, KernelSpec, Types};
use orders::{CLASSES, Matrices, Trial, kernel, trial};

/// Trials per class: with `cargo xtask test --long` 8.
fn trials() -> u64 {
    if std::env::var_os("FALCHION_LONG").is_some() { 8 } else { 4 }
}

fn engine(seed: u64) -> Emulator {
    let multiprocessors = 10 + (seed % 3) as u32 * 5;
    Emulator::new()
        .with_multiprocessors(multiprocessors)
        .with_numerics(Numerics::Exact)
        .with_schedule(Schedule::Random, seed)
}

#[test]
fn equal_summations_give_equal_bits() {
    std::thread::scope(|scope| {
        for class in CLASSES {
            scope.spawn(move || {
                let ran = (0..trials()).filter_map(|seed| {
                    match trial(&mut engine(seed), class, seed).expect("the emulator runs legal kernels") {
                        Trial::Equal(other) => Some(*other),
                        Trial::Unfit => None,
                    }
                });
                let others: HashSet<KernelSpec> = ran.collect();
                assert!(
                    others.len() >= trials() as usize / 2,
                    "{class:?}: {} other kernels ran",
                    others.len()
                );
            });
        }
    });
}

/// Each pair differs in one part of its summation.
#[test]
fn other_summations_give_other_bits() {
    for (one, other) in [
        (
            "dtype=bf16 tile=64x64x64 consumers=1",
            "tile=64x64x64 consumers=1 store=direct scheduler=cluster-k splits=2",
        ),
        (
            "tile=64x64x64 consumers=1 store=direct scheduler=cluster-k splits=2",
            "tile=64x64x64 consumers=1 store=direct scheduler=cluster-k splits=3",
        ),
        (
            "tile=64x64x64 consumers=1 store=direct scheduler=cluster-k splits=2",
            "tile=64x64x128 consumers=1 store=direct scheduler=cluster-k splits=2",
        ),
        ("dtype=f16 tile=64x64x64 consumers=1", "dtype=f16 tile=64x64x64 consumers=1 sums=f16"),
        ("dtype=e4m3 tile=64x64x128 consumers=1", "dtype=e4m3 tile=64x64x128 consumers=1 promote=4"),
        (
            "dtype=e4m3 tile=64x64x128 consumers=1 promote=2",
            "dtype=e4m3 tile=64x64x128 consumers=1 promote=4",
        ),
        // Seven k-tiles of 64: the last three are added up together, or one by one.
        ("dtype=e4m3 tile=64x64x128 consumers=1 promote=8", "dtype=e4m3 tile=64x64x64 consumers=1 promote=8"),
    ] {
        let specs = [one, other].map(kernel);
        assert_ne!(specs[0].summation(), specs[1].summation(), "{one} and {other}");
        let types = Types::of_plan(&specs[0].kernel().expect("legal").plan());
        let problem = GemmProblem { m: 64, n: 64, k: 448 };
        let matrices = Matrices::new(types, problem, 0.0, &mut Rng::with_seed(1));
        let bits = specs.map(|spec| {
            let gemm = spec.kernel().expect("legal");
            matrices
                .part(&gemm, &mut engine(1), [0, 0, 64, 64])
                .expect("it runs")
                .expect("it takes the extents")
        });
        assert!(bits[0] != bits[1], "{one} and {other}");
    }
}

/// The order of these depends on extents, on the card, or on which CTA comes first.
#[test]
fn orders_that_depend_on_more_are_none() {
    for text in [
        "scheduler=stream-k",
        "scheduler=stream-k divide=split3",
        "scheduler=stream-k reduction=atomic",
        "scheduler=dynamic-tail",
    ] {
        assert_eq!(kernel(text).summation(), None, "{text}");
    }
    // Integers have no order.
    let exact = kernel("dtype=s8 scheduler=stream-k reduction=atomic").summation();
    assert_eq!(exact, kernel("dtype=s8").summation());
    assert!(exact.is_some());
}
