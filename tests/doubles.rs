//! GEMMs of `f64`: the partial sums of tiles that are split among several CTAs, and the factors, are in double precision.

use emulator::Schedule;
use falchion::collective::tree::{
    Accumulator, Compute, Constant, Load, Residual, ResidualArgument, Scalar, Shape,
};
use falchion::collective::{
    DirectStore, Formula, Input, KMajor, LinearArguments, LinearCombination, MmaSync, Operands, Tile,
    TreeEpilogue, Unspecialised, functions,
};
use falchion::verify::matrix::Distribution;
use falchion::verify::product::{formats, orders};
use falchion::verify::{GemmCase, HostMatrix, Order};
use kernel::{
    AnyGemm, Arguments, Call, Composed, Emulator, Engine, EpilogueArgs, Gemm, GemmProblem, Kernel,
    KernelSpec, MatrixRef, Tree,
};
use scheduler::{AlongN, OneTile};
use typenum::{U1, U3, U10, U16, U64};

fn kernel(text: &str) -> AnyGemm {
    text.parse::<KernelSpec>().unwrap_or_else(|error| panic!("{text}: {error}")).kernel().expect(text)
}

fn product(gemm: &AnyGemm, GemmProblem { m, n, k }: GemmProblem, seed: u64) -> GemmCase {
    let ([of_a, of_b, of_d], [a_order, b_order]) = (formats(gemm), orders(gemm));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut fill = |format, extents, order| {
        HostMatrix::random(format, extents, order, 2, Distribution::Normal, &mut random)
    };
    GemmCase {
        a: fill(of_a, [m, k], a_order),
        b: fill(of_b, [k, n], b_order),
        scales: None,
        weights: None,
        vectors: None,
        operand_offset: 0,
        c: Some(fill(of_d, [m, n], Order::RowMajor)),
        alpha: 0.5,
        beta: -2.0,
        d_ld: n,
        d_offset: 0,
        in_place: false,
    }
}

#[test]
fn divided_tiles_are_added_up_in_double_precision() {
    let (mut seed, mut divided) = (0, 0);
    for scheduler in [
        "scheduler=stream-k divide=remainder min-k-tiles=1",
        "scheduler=stream-k reduction=atomic divide=remainder min-k-tiles=2",
        "scheduler=stream-k reduction=separate divide=split3 min-k-tiles=1",
        "scheduler=stream-k divide=split4 min-k-tiles=1",
        "scheduler=dynamic-tail min-k-tiles=1",
    ] {
        for tile in [
            "tile=128x64x16 consumers=1 stages=4",
            "tile=128x64x16 consumers=2 stages=3",
            "tile=64x32x16 consumers=1",
        ] {
            let gemm = kernel(&format!("dtype=f64 {tile} {scheduler}"));
            for problem in [[150, 70, 400], [64, 32, 1000], [200, 131, 17]] {
                let [m, n, k] = problem;
                let problem = GemmProblem { m, n, k };
                seed += 1;
                // The workspace has partial sums and flags, not only a counter of tiles.
                divided += u32::from(gemm.workspace(&Call::of(problem), 7) > 1 << 16);
                let schedule = [Schedule::Default, Schedule::Latest, Schedule::Random][seed as usize % 3];
                let mut emulator = Emulator::new().with_multiprocessors(7).with_schedule(schedule, seed);
                let product = product(&gemm, problem, seed);
                // Atomic additions may give other bits in another run.
                let runs = if scheduler.contains("atomic") { 1 } else { 2 };
                let outcome = product.run_times(&gemm, &mut emulator, runs);
                let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", gemm.name()));
                assert_eq!(outcome.mismatch, None, "{}: {problem:?}", gemm.name());
            }
        }
    }
    assert!(divided >= seed as u32 / 2, "{divided} of {seed} products have divided tiles");
}

/// Factors, named numbers and constants that `f32` has not. D has the bits of the same operations on the host, whatever way
/// they are said in.
#[test]
fn factors_are_doubles() {
    type Mainloop = MmaSync<Operands<KMajor<f64>, KMajor<f64>>, Tile<U64, U64, U16>, Unspecialised<U1, U3>>;
    type Of<E> = Composed<Mainloop, E, OneTile<AlongN>>;
    type Linear = LinearCombination<f64>;
    type Scaled = Compute<functions::Multiply, (Accumulator, Scalar)>;
    type Sum = Compute<functions::Add, (Scaled, Residual<f64>)>;
    type Tenth = Compute<
        functions::Add,
        (
            Compute<functions::Multiply, (Constant<U1, U10>, Accumulator)>,
            Compute<functions::Scale, (Load<f64>,)>,
        ),
    >;
    let problem @ GemmProblem { m, n, k } = GemmProblem { m: 70, n: 40, k: 32 };
    // Sums of small integers are exact.
    let small = |count: u32, by: u32| (0..count).map(|i| f64::from(i * by % 7) - 3.0).collect::<Vec<_>>();
    let [a, b, c] = [(m * k, 5), (n * k, 3), (m * n, 4)].map(|(count, by)| small(count, by));
    let dot =
        |at: u32| (0..k).map(|l| a[(at / n * k + l) as usize] * b[(at % n * k + l) as usize]).sum::<f64>();
    let [alpha, beta] = [0.1, -1.0 / 3.0];
    type Run = dyn Fn(&AnyGemm, Call, &mut Emulator);
    let run = |gemm: &AnyGemm, arguments: &dyn Fn(MatrixRef) -> Box<Run>| {
        let mut engine = Emulator::new().with_multiprocessors(3);
        let mut upload = |all: &[f64]| {
            let bytes: Vec<u8> = all.iter().flat_map(|x| x.to_le_bytes()).collect();
            engine.upload(&bytes).expect("memory")
        };
        let d = upload(&vec![f64::NAN; c.len()]);
        let [of_a, of_b, of_c] = [&a, &b, &c].map(|all| upload(all).address);
        let call = Call::of(problem).a(of_a, k.into()).b(of_b, k.into()).d(d.address, n.into());
        arguments(MatrixRef::new(of_c, n.into()))(gemm, call, &mut engine);
        let d = engine.read(d).expect("memory");
        d.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect::<Vec<_>>()
    };
    fn with<E: Arguments + Clone + 'static>(epilogue: E) -> Box<Run> {
        Box::new(move |gemm, call, engine| {
            Kernel::run(gemm, engine, &call.with(epilogue.clone())).expect("runs");
        })
    }
    let text = |text: &'static str| {
        let spec: KernelSpec = format!("dtype=f64 tile=64x32x16 epilogue=\"{text}\"").parse().expect(text);
        let formula: Formula = text.parse().expect(text);
        let bind = move |c: MatrixRef| {
            let named = [("alpha", alpha), ("beta", beta), ("low", beta), ("high", alpha)];
            let known = |name: &str| formula.inputs().contains(&name);
            let numbers = named.into_iter().map(|(name, number)| (name, Input::Scalar(number)));
            let given: Vec<_> =
                numbers.chain([("c", Input::Matrix(c))]).filter(|(name, _)| known(name)).collect();
            let operand = falchion::collective::Format::F64;
            with(formula.bind(operand, Shape { m, n }, &given).expect(text))
        };
        (spec.kernel().expect(text), bind)
    };
    let linear = move |c: MatrixRef| LinearArguments { alpha, beta, c: Some(c) };
    type Want<'a> = &'a dyn Fn(f64, f64) -> f64;
    let fused: Want<'_> = &|sum, c| c.mul_add(beta, sum * alpha);
    let check = |why: &str, found: Vec<f64>, want: Want<'_>| {
        for (at, (found, c)) in (0..).zip(found.into_iter().zip(&c)) {
            let want = want(dot(at), *c);
            assert_eq!(found.to_bits(), want.to_bits(), "{why}: {found:e}, {want:e} at {at}");
        }
    };
    let of_spec = "dtype=f64 tile=128x64x16 consumers=2 stages=3".parse::<KernelSpec>().expect("a spec");
    check("a spec", run(&of_spec.kernel().expect("legal"), &|c| with(linear(c))), fused);
    let of_type = Gemm::<Of<Linear>>::kernel();
    check("a type", run(&of_type, &|c| with(EpilogueArgs::<Linear>(linear(c)))), fused);
    let typed = run(&of_type, &|c| {
        Box::new(move |_, call, engine| {
            let launch = Gemm::<Of<Linear>>::launch(&call.with(linear(c)), 3).expect("legal").expect("work");
            let program = Gemm::<Of<Linear>>::program().expect("legal");
            engine.launch(&program, launch.grid, &launch.arguments).expect("runs");
        })
    });
    check("a type's launch", typed, fused);
    let sum = |c| with(Tree::<Sum>(((), (((), ((), alpha)), ResidualArgument { beta, c: Some(c) }))));
    let of_tree = Gemm::<Of<TreeEpilogue<f64, DirectStore, Sum>>>::kernel();
    check("a tree", run(&of_tree, &sum), &|sum, c| sum * alpha + c * beta);
    let of_tree = Gemm::<Of<TreeEpilogue<f64, DirectStore, Tenth>>>::kernel();
    let tenth = |c| with(Tree::<Tenth>(((), (((), ((), ())), (beta, (c,))))));
    check("a constant", run(&of_tree, &tenth), &|sum, c| 0.1 * sum + c * beta);
    let (gemm, bind) = text("alpha*acc + beta*c");
    check("a text", run(&gemm, &|c| bind(c)), &|sum, c| sum * alpha + c * beta);
    let (gemm, bind) = text("clamp(acc, low, high) + 0.1");
    check("named numbers", run(&gemm, &|c| bind(c)), &|sum, _| sum.clamp(beta, alpha) + 0.1);
}
