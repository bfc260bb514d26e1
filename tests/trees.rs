//! Trees of every kind of node on random shapes: the kernel's output in the emulator equals the tree on the
//! host.

mod random;

use falchion::collective::functions::*;
use falchion::collective::tree::*;
use falchion::collective::{Fast, Fastest, Transposed};
use falchion::prelude::*;
use falchion::verify::{Bench, Sample, TreeError};
use random::{Family, InEights, InHalves, InPairs, InSixteens, Plain, Random, Rows, Turned, draw};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Bands = Persistent<Grouped<AlongM, U2>>;
type One<S, X> =
    Composed<TmaWgmma<Kk, Tile<U64, U32, U64>, Cooperative<U1>>, TreeEpilogue<bf16, S, X>, OneTile<AlongN>>;
/// A kernel for few rows of D, 8, that stores the transpose.
type Few<S, X> =
    Composed<TmaWgmma<Kk, Tile<U128, U8, U64>, Cooperative<U1>>, TreeEpilogue<bf16, S, X>, OneTile<AlongN>>;
type Turns<S, X> = Composed<TmaWgmma<Kk, Tile<U128, U96, U64>, Pingpong>, TreeEpilogue<bf16, S, X>, Bands>;

type Check = fn(&mut Bench<'_>, GemmProblem, u32) -> Result<(), TreeError>;

fn check<X: Sample>(bench: &mut Bench<'_>, problem: GemmProblem, kernel: u32) -> Result<(), TreeError> {
    let halvings = X::FACTS.halvings.unwrap_or(0);
    let step = if X::FACTS.gate_block == Facts::SPLIT { 4 } else { (X::FACTS.gate_block * 2).max(1) };
    let problem = GemmProblem { n: problem.n.next_multiple_of(step), ..problem };
    let columns = problem.n >> halvings;
    let arguments = X::sample(bench, Shape { m: problem.m, n: columns })?;
    if columns.is_multiple_of(8) && kernel & 2 != 0 {
        bench.check::<Turns<TmaStore, X>>(problem, &arguments)?;
    } else {
        bench.check::<One<DirectStore, X>>(problem, &arguments)?;
    }
    Ok(())
}

type Sigmoids<X> = Compute<Sigmoid<Fast>, (X,)>;
type Plus<X, Y> = Compute<Add, (X, Y)>;
type Times<X, Y> = Compute<Multiply, (X, Y)>;
type Row = RowVector<bf16>;
type Column = ColumnVector<bf16>;
type Matrix = Load<bf16>;
type Half = Constant<U1, U2>;

const TREES: [Check; 33] = [
    check::<Accumulator>,
    check::<Times<Half, Plus<Accumulator, Row>>>,
    check::<Plus<Times<Row, Accumulator>, Times<Column, Matrix>>>,
    check::<Compute<MultiplyAdd, (Accumulator, ScalarPointer<bf16>, Residual<bf16>)>>,
    check::<Compute<Clamp, (Plus<Accumulator, Column>,)>>,
    check::<Compute<LeakyRelu, (Compute<Gelu, (Accumulator,)>,)>>,
    check::<Compute<Gradient<Silu<Fast>>, (Accumulator, Matrix)>>,
    check::<Compute<Maximum, (AuxStore<bf16, Accumulator>, Row)>>,
    check::<AuxStore<bf16, Compute<Relu, (AuxStore<bf16, Plus<Accumulator, Row>>,)>>>,
    check::<ReduceRow<Sum, Times<Accumulator, Matrix>>>,
    check::<ReduceRow<Max, Plus<Accumulator, Row>>>,
    check::<ReduceColumn<Sum, ReduceRow<AbsMax, Accumulator>>>,
    check::<ReduceColumn<Max, Compute<Subtract, (Accumulator, Column)>>>,
    check::<Amax<Compute<GeluTanh<Fastest>, (Plus<Accumulator, Row>,)>>>,
    check::<ReduceScalar<Sum, Sigmoids<Accumulator>>>,
    check::<Let<Plus<Accumulator, Row>, Times<Bound, Sigmoids<Bound>>>>,
    check::<Let<Matrix, Let<Accumulator, Plus<Bound<U1>, Times<Bound, Bound>>>>>,
    check::<Gated<Glu<Silu<Fast>>, Accumulator>>,
    check::<Plus<Column, Gated<Glu<Relu>, Plus<Accumulator, Row>>>>,
    check::<AuxStore<bf16, Gated<Maximum, AuxStore<bf16, Times<Scalar, Accumulator>>>>>,
    check::<ReduceRow<Sum, Gated<Add, ReduceRow<Sum, Accumulator>>>>,
    check::<Let<Gated<Glu<Tanh<Fast>>, Accumulator>, Times<Bound, Plus<Bound, Row>>>>,
    check::<LinearResidual<bf16>>,
    check::<RowScaled<bf16>>,
    check::<Plus<Row, Dropout<Accumulator>>>,
    check::<Gated<Glu<Silu<Fast>>, Dropout<Plus<Accumulator, Row>>, Blocks>>,
    check::<OrderedRow<Sum, OrderedColumn<Max, Times<Accumulator, Matrix>>>>,
    check::<OrderedScalar<Sum, Plus<Accumulator, Column>>>,
    check::<Dropout<AuxStore<bf16, Dropout<Accumulator>>>>,
    check::<LinearBiasScaled<bf16>>,
    check::<LinearBiasGelu<bf16>>,
    check::<Gated<Glu<Silu<Fast>>, Rotate<Dropout<AuxStore<bf16, Plus<Accumulator, Row>>>, Matrix>, Split>>,
    check::<
        OrderedRow<Sum, Plus<Row, Gated<Glu<Relu>, ReduceColumn<Sum, ReduceRow<Sum, Accumulator>>, Split>>>,
    >,
];

#[test]
fn typed_trees_on_random_shapes() {
    use rayon::prelude::*;
    let failures: Vec<String> = (0..120u64)
        .into_par_iter()
        .filter_map(|case| {
            let mut random = fastrand::Rng::with_seed(case);
            let tree = case as usize % TREES.len();
            let mut extent = |most: u32, step: u32| random.u32(1..=most / step) * step;
            let (m, k) = (extent(150, 1), extent(72, 8));
            // Whole chunks, pairs, or any number of columns.
            let step = [8, 2, 1][case as usize / TREES.len() % 3];
            let problem = GemmProblem { m, n: extent(100, step), k };
            let kernel = random.u32(..4);
            let mut engine = Emulator::new().with_multiprocessors(3);
            let mut bench = Bench::new(&mut engine, case);
            let result = TREES[tree](&mut bench, problem, kernel);
            result
                .err()
                .map(|error| format!("case {case}, tree {tree}, {problem:?}, kernel {kernel}: {error}"))
        })
        .collect();
    assert!(failures.is_empty(), "{} of 120:\n{}", failures.len(), failures.join("\n"));
}

/// Runs this thread's tree of a family in one of four kernels.
fn run<F: Family>(bench: &mut Bench<'_>, problem: GemmProblem, kernel: u32) -> Result<(), TreeError> {
    let most = if F::FACTS.surveys { [32, 96][kernel as usize & 1] } else { u32::MAX };
    let problem = GemmProblem { n: problem.n.next_multiple_of(F::STEP).min(most), ..problem };
    let columns = problem.n >> F::FACTS.halvings.unwrap_or(0);
    let arguments = Random::<F>::sample(bench, Shape { m: problem.m, n: columns })?;
    match (columns.is_multiple_of(8) && kernel & 2 != 0, kernel & 1 != 0) {
        (false, false) => bench.check::<One<DirectStore, Random<F>>>(problem, &arguments)?,
        (false, true) => bench.check::<Turns<DirectStore, Random<F>>>(problem, &arguments)?,
        (true, false) => bench.check::<One<TmaStore, Random<F>>>(problem, &arguments)?,
        (true, true) => bench.check::<Turns<TmaStore, Random<F>>>(problem, &arguments)?,
    };
    Ok(())
}

/// The same with kernels that compute D's transpose.
fn run_turned(bench: &mut Bench<'_>, problem: GemmProblem, kernel: u32) -> Result<(), TreeError> {
    type X = Random<Turned>;
    let problem = GemmProblem { n: problem.n.next_multiple_of(2), ..problem };
    let arguments = X::sample(bench, Shape { m: problem.m, n: problem.n })?;
    match (problem.n.is_multiple_of(8) && kernel & 2 != 0, kernel & 1 != 0) {
        (false, false) => bench.check::<One<Transposed<DirectStore>, X>>(problem, &arguments)?,
        (false, true) => bench.check::<Few<Transposed<DirectStore>, X>>(problem, &arguments)?,
        (true, false) => bench.check::<Turns<Transposed<TmaStore>, X>>(problem, &arguments)?,
        (true, true) => bench.check::<Few<Transposed<TmaStore>, X>>(problem, &arguments)?,
    };
    Ok(())
}

fn draw_and_run<F: Family>(case: u64, problem: GemmProblem, kernel: u32) -> Option<String> {
    let tree = draw::<F>(&mut fastrand::Rng::with_seed(case), 1 + case as u32 % 4);
    let mut engine = Emulator::new().with_multiprocessors(3);
    let mut bench = Bench::new(&mut engine, case);
    let run = if F::UNORDERED { run_turned } else { run::<F> };
    let result = run(&mut bench, problem, kernel);
    result.err().map(|error| format!("case {case}, {tree:?}, {problem:?}, kernel {kernel}: {error}"))
}

/// A thousand trees of every kind of node, four levels deep at most.
#[test]
fn random_trees_on_random_shapes() {
    use rayon::prelude::*;
    const CASES: u64 = 1000;
    type Run = fn(u64, GemmProblem, u32) -> Option<String>;
    const FAMILIES: [Run; 8] = [
        draw_and_run::<Plain>,
        draw_and_run::<Plain>,
        draw_and_run::<Rows>,
        draw_and_run::<InPairs>,
        draw_and_run::<InEights>,
        draw_and_run::<InSixteens>,
        draw_and_run::<InHalves>,
        draw_and_run::<Turned>,
    ];
    let failures: Vec<String> = (0..CASES)
        .into_par_iter()
        .filter_map(|case| {
            let mut random = fastrand::Rng::with_seed(case + CASES);
            let mut extent = |most: u32, step: u32| random.u32(1..=most / step) * step;
            let (m, n, k) = (extent(150, 1), extent(100, 2), extent(72, 8));
            FAMILIES[case as usize / 4 % 8](case, GemmProblem { m, n, k }, random.u32(..4))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {CASES}:\n{}", failures.len(), failures.join("\n"));
}

/// The check must reject a kernel that leaves out the bias.
#[test]
fn another_tree_is_noticed() {
    let mut engine = Emulator::new();
    let mut bench = Bench::new(&mut engine, 1);
    let problem = GemmProblem { m: 64, n: 32, k: 64 };
    let arguments = Plus::<Accumulator, Row>::sample(&mut bench, Shape { m: 64, n: 32 }).expect("memory");
    struct Forgetful;
    impl falchion::collective::Pointwise<2> for Forgetful {
        type Arguments = ();
        fn name() -> String {
            "forgetful".into()
        }
        fn apply<R: falchion::collective::Real>((): (), [x, y]: [R; 2]) -> R {
            // On the host it is the sum, in a kernel it is not: `Debug` of a device value names a register.
            if format!("{x:?}").contains("Reg") { x } else { x + y }
        }
    }
    let checked =
        bench.check::<One<DirectStore, Compute<Forgetful, (Accumulator, Row)>>>(problem, &arguments);
    assert!(matches!(checked, Err(TreeError::Value { .. })), "{checked:?}");
}
