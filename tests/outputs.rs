//! Results of every element type, stored in both ways, on the emulator.

use falchion::collective::functions::Multiply;
use falchion::collective::tree::*;
use falchion::collective::{Element, F8E4M3, F8E5M2, Store};
use falchion::prelude::*;
use falchion::verify::Bench;

/// factor * acc, stored as `T` from tiles of 64 x `N`.
type Scaled<T, S, N> = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, N, U64>, Cooperative<U1>>,
    TreeEpilogue<T, S, Compute<Multiply, (Scalar, Accumulator)>>,
    OneTile<AlongN>,
>;

fn check<C>(problem: GemmProblem, factor: f32)
where
    C: GemmConfig,
    C::Epilogue: falchion::collective::HasTree<Tree = Compute<Multiply, (Scalar, Accumulator)>>
        + falchion::collective::Epilogue<Arguments = ((), (f32, ()))>,
{
    let mut engine = Emulator::new();
    let mut bench = Bench::new(&mut engine, 11);
    if let Err(error) = bench.check::<C>(problem, &((), (factor, ()))) {
        panic!("{} at {problem:?}: {error}", Gemm::<C>::name());
    }
}

/// Whole tiles and edges; a thousandfold result saturates what saturates.
fn stored<T: Element>()
where
    DirectStore: Store<T>,
    TmaStore: Store<T>,
{
    let shapes = [(64, 128, 64), (70, 80, 72), (1, 16, 8)];
    for (m, n, k) in shapes {
        for factor in [1.0, 1000.0] {
            let problem = GemmProblem { m, n, k };
            check::<Scaled<T, DirectStore, U64>>(problem, factor);
            check::<Scaled<T, TmaStore, U16>>(problem, factor);
            check::<Scaled<T, TmaStore, U32>>(problem, factor);
            check::<Scaled<T, TmaStore, U64>>(problem, factor);
            check::<Scaled<T, TmaStore, U256>>(problem, factor);
        }
    }
    for (m, n, k) in [(67, 41, 64), (3, 1, 8), (2, 7, 8)] {
        check::<Scaled<T, DirectStore, U32>>(GemmProblem { m, n, k }, 0.25);
    }
}

#[test]
fn results_in_single_precision() {
    stored::<f32>();
    check::<Scaled<f32, TmaStore, U8>>(GemmProblem { m: 70, n: 20, k: 16 }, 1.0);
}

#[test]
fn results_in_16_bits() {
    stored::<bf16>();
    stored::<f16>();
}

#[test]
fn results_in_8_bits() {
    stored::<F8E4M3>();
    stored::<F8E5M2>();
}
