//! Results of every element type, with every store, mainloop and scheduler, on the emulator.

use falchion::collective::functions::{Gelu, Multiply, MultiplyAdd};
use falchion::collective::tree::*;
use falchion::collective::{CopyWgmma, Element, F8E4M3, F8E5M2, Fast, MmaSync, Transposed, Unspecialised};
use falchion::prelude::*;
use falchion::verify::{Bench, Format, Sample};
use scheduler::Dynamic;

/// `factor * acc`, stored as `T` from tiles of 64 x `N`.
type Scaled<T, S, N> = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, N, U64>, Cooperative<U1>>,
    TreeEpilogue<T, S, Compute<Multiply, (Scalar, Accumulator)>>,
    OneTile<AlongN>,
>;

fn check<C>(problem: GemmProblem, factor: f64)
where
    C: GemmConfig,
    C::Epilogue: falchion::collective::Epilogue<Arguments = ((), (f64, ()))>,
{
    let mut engine = Emulator::new();
    let mut bench = Bench::new(&mut engine, 11);
    if let Err(error) = bench.check::<C>(problem, &((), (factor, ()))) {
        panic!("{} at {problem:?}: {error}", Gemm::<C>::name());
    }
}

/// Whether this is a long run.
fn long() -> bool {
    std::env::var_os("FALCHION_LONG").is_some()
}

/// Whole tiles and edges. A factor of a thousand saturates the formats that saturate; without `cargo xtask test --long`
/// each kernel has one of the factors for a shape, and the other one for the next shape.
fn stored<T: Element>() {
    let kernels: [fn(GemmProblem, f64); 8] = [
        check::<Scaled<T, DirectStore, U64>>,
        check::<Scaled<T, TmaStore, U16>>,
        check::<Scaled<T, TmaStore, U32>>,
        check::<Scaled<T, TmaStore, U64>>,
        check::<Scaled<T, TmaStore, U256>>,
        check::<Scaled<T, Transposed<DirectStore>, U16>>,
        check::<Scaled<T, Transposed<TmaStore>, U16>>,
        check::<Scaled<T, Transposed<TmaStore>, U64>>,
    ];
    for (shape, (m, n, k)) in [(64, 128, 64), (70, 80, 72), (1, 16, 8)].into_iter().enumerate() {
        for (number, check) in kernels.into_iter().enumerate() {
            for (turn, factor) in [1.0, 1000.0].into_iter().enumerate() {
                if long() || (shape + number + turn) % 2 == 0 {
                    check(GemmProblem { m, n, k }, factor);
                }
            }
        }
    }
    for (m, n, k) in [(67, 41, 64), (3, 1, 8), (2, 7, 8)] {
        check::<Scaled<T, DirectStore, U32>>(GemmProblem { m, n, k }, 0.25);
        check::<Scaled<T, Transposed<DirectStore>, U8>>(GemmProblem { m, n, k }, 0.25);
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

/// `gelu(scale * acc + bias)` with one scale per row and one bias per column; also the sums of its columns,
/// and the gelu's operand.
type Tree = ReduceRow<
    Sum,
    Compute<
        Gelu<Fast>,
        (AuxStore<bf16, Compute<MultiplyAdd, (Accumulator, ColumnVector<bf16>, RowVector<bf16>)>>,),
    >,
>;

/// Whole tiles, and edges in both directions; without `cargo xtask test --long` in turns, as the letters of the kernel's name say.
fn tree<C>()
where
    C: GemmConfig,
    C::Epilogue: falchion::collective::Epilogue<Arguments = <Tree as Node>::Arguments>,
{
    let turn = Gemm::<C>::name().bytes().fold(0, |sum, byte| sum ^ byte) % 2;
    for (number, (m, n, k)) in [(256, 256, 64), (200, 136, 200)].into_iter().enumerate() {
        if !long() && number != usize::from(turn) {
            continue;
        }
        let mut engine = Emulator::new().with_multiprocessors(3);
        let mut bench = Bench::new(&mut engine, 12);
        let arguments = Tree::sample(&mut bench, Shape { m, n }).expect("memory");
        if let Err(error) = bench.check::<C>(GemmProblem { m, n, k }, &arguments) {
            panic!("{} at {m} x {n} x {k}: {error}", Gemm::<C>::name());
        }
    }
}

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Block = Tile<U128, U64, U64>;

/// Every mainloop with every scheduler, with D stored by TMA, as computed and transposed.
macro_rules! matrix {
    ($($name:ident $mainloop:ty;)*) => {$(
        #[test]
        fn $name() {
            matrix!($mainloop: OneTile<AlongM>, Persistent<Grouped<AlongM, U2>>, Dynamic<AlongN>, StreamK<AlongM, Ordered>,
                StreamK<AlongN, Atomic>, StreamK<AlongM, Separate>);
        }
    )*};
    ($mainloop:ty: $($scheduler:ty),*) => {$(
        tree::<Composed<$mainloop, TreeEpilogue<bf16, TmaStore, Tree>, $scheduler>>();
        tree::<Composed<$mainloop, TreeEpilogue<bf16, Transposed<TmaStore>, Tree>, $scheduler>>();
    )*};
}

matrix! {
    cooperative_consumers TmaWgmma<Kk, Block, Cooperative<U2>>;
    clusters TmaWgmma<Kk, Block, Cooperative<U2, Cluster<U1, U2>>>;
    consumers_that_take_turns TmaWgmma<Kk, Block, Pingpong>;
    no_producer TmaWgmma<Kk, Block, Unspecialised<U2>>;
    copied_operands CopyWgmma<Kk, Block, Cooperative<U2>>;
}

/// `alpha * acc + beta * C` of any format, compared with its formula by the same bench as trees.
#[test]
fn linear_combinations_are_held_to_their_formula() {
    type Kk<X> = Operands<KMajor<X>, KMajor<X>>;
    type Wgmma<X, D, K> = Composed<TmaWgmma<Kk<X>, Tile<U64, U64, K>, Cooperative<U1>>, D, OneTile<AlongN>>;
    type Doubles = Composed<
        MmaSync<Kk<f64>, Tile<U64, U64, U16>, Unspecialised<U1, U3>>,
        LinearCombination<f64>,
        OneTile<AlongN>,
    >;
    fn check<C>(format: Format, of_c: Format, [alpha, beta]: [f64; 2])
    where
        C: GemmConfig<Epilogue: falchion::collective::Epilogue<Arguments = LinearArguments>>,
    {
        let problem = GemmProblem { m: 70, n: 80, k: 80 };
        let mut engine = Emulator::new();
        let mut bench = Bench::new(&mut engine, 13);
        let ld = 88;
        let c = MatrixRef::new(bench.random(of_c, problem.m * ld, 0).expect("memory"), ld.into());
        let checked = bench
            .check::<C>(problem, &LinearArguments { alpha, beta, c: Some(c) })
            .unwrap_or_else(|error| panic!("{format:?}, {alpha} and {beta}: {error}"));
        assert_eq!(checked.compared, 70 * 80, "{format:?}");
        // Integers are exact, and so are doubles compared with sums in twice their precision.
        let ratio = checked.ratio;
        assert!(
            ratio <= 1.0 && (ratio > 0.0 || matches!(format, Format::S8 | Format::F64)),
            "{format:?}: {ratio}"
        );
    }
    for factors in [[1.0, 0.0], [0.5, 2.0], [-3.0, 1.0], [0.0, 1.5], [0.1, -1.0 / 3.0]] {
        check::<Wgmma<bf16, LinearCombination<bf16, TmaStore>, U64>>(Format::Bf16, Format::Bf16, factors);
        check::<Wgmma<f16, LinearCombination<f32>, U64>>(Format::F16, Format::F32, factors);
        check::<Wgmma<F8E4M3, LinearCombination<f16, TmaStore>, U128>>(Format::E4m3, Format::F16, factors);
        check::<Doubles>(Format::F64, Format::F64, factors);
        let whole = factors.map(f64::trunc);
        check::<Wgmma<i8, LinearCombination<i32>, U128>>(Format::S8, Format::S32, whole);
        check::<Wgmma<i8, LinearCombination<f32>, U128>>(Format::S8, Format::F32, factors);
    }
}
