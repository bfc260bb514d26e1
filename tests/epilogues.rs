//! Epilogues that are trees, on the emulator, held against themselves on the host.

use falchion::collective::Store;
use falchion::collective::tree::*;
use falchion::prelude::*;
use falchion::verify::{Bench, Format};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;

/// A kernel of 64 x 32 tiles with a tree.
type Small<S, X> =
    Composed<TmaWgmma<Kk, Tile<U64, U32, U64>, Cooperative<U1>>, TreeEpilogue<bf16, S, X>, OneTile<AlongN>>;

/// alpha * acc + bias of columns.
type Biased = Compute<Add, (Compute<Mul, (Scalar, Accumulator)>, RowVector<bf16>)>;

fn biased(bias: u64, len: u32) -> ((f32, ()), RowArgument) {
    ((0.5, ()), RowArgument { address: bias, len })
}

fn with_bias<S: Store<bf16>>(problem: GemmProblem, shift: u32) {
    let mut engine = Emulator::new();
    let mut bench = Bench::new(&mut engine, 3);
    let bias = bench.random(Format::Bf16, problem.n, shift).expect("memory");
    let checked = bench.check::<Small<S, Biased>>(problem, &biased(bias, problem.n));
    let checked = checked.unwrap_or_else(|error| panic!("{problem:?} shifted by {shift}: {error}"));
    assert_eq!(checked.compared, (problem.m * problem.n) as usize);
}

#[test]
fn a_bias_of_any_alignment_inside_and_at_the_edge() {
    for (m, n, k) in [(128, 64, 64), (70, 40, 72), (1, 8, 8), (65, 33, 8)] {
        for shift in [0, 1, 2] {
            with_bias::<DirectStore>(GemmProblem { m, n, k }, shift);
            if n % 8 == 0 {
                with_bias::<TmaStore>(GemmProblem { m, n, k }, shift);
            }
        }
    }
}
