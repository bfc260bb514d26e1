//! Epilogues that are trees: results of the emulator compared with the same tree on the host.

use falchion::collective::functions::*;
use falchion::collective::tree::*;
use falchion::collective::{CopyWgmma, Fast, Store};
use falchion::prelude::*;
use falchion::verify::{Bench, Format};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;

/// A kernel of 64 x 32 tiles with a tree.
type Small<S, X> =
    Composed<TmaWgmma<Kk, Tile<U64, U32, U64>, Cooperative<U1>>, TreeEpilogue<bf16, S, X>, OneTile<AlongN>>;

/// `alpha * acc` plus one bias per column.
type Biased = Compute<Add, (Compute<Multiply, (Scalar, Accumulator)>, RowVector<bf16>)>;

fn biased(bias: u64, len: u32) -> <Biased as Node>::Arguments {
    ((), (((), (0.5, ())), RowArgument { address: bias, len }))
}

fn with_bias<S: Store>(problem: GemmProblem, shift: u32) {
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

/// Runs a kernel with a tree on shapes of whole tiles and with edges.
fn run<C>(
    problems: &[(u32, u32, u32)],
    mut arguments: impl FnMut(
        &mut Bench<'_>,
        GemmProblem,
    ) -> <<C as GemmConfig>::Epilogue as falchion::collective::Epilogue>::Arguments,
) where
    C: GemmConfig,
{
    for &(m, n, k) in problems {
        let mut engine = Emulator::new();
        let mut bench = Bench::new(&mut engine, 7);
        let problem = GemmProblem { m, n, k };
        let arguments = arguments(&mut bench, problem);
        if let Err(error) = bench.check::<C>(problem, &arguments) {
            panic!("{} at {m} x {n} x {k}: {error}", Gemm::<C>::name());
        }
    }
}

fn vector(bench: &mut Bench<'_>, len: u32) -> u64 {
    bench.random(Format::Bf16, len, 0).expect("memory")
}

#[test]
fn pairs_of_split_weights() {
    type SwiGlu = Gated<Glu<Silu>, Accumulator, Split>;
    // F: whole tiles, across an edge of both halves, less than a tile, and not a multiple of 16 bytes.
    let shapes = [(128, 128, 64), (70, 80, 72), (3, 16, 8)];
    run::<Small<DirectStore, SwiGlu>>(&shapes, |_, _| ((), ()));
    run::<Small<TmaStore, SwiGlu>>(&shapes, |_, _| ((), ()));
    run::<Small<DirectStore, SwiGlu>>(&[(66, 44, 8), (1, 4, 8)], |_, _| ((), ()));
    // Nodes inside see N columns at their place in B.
    type Inside = Gated<Glu<Relu>, AuxStore<bf16, Compute<Add, (Accumulator, RowVector<bf16>)>>, Split>;
    run::<Small<TmaStore, Inside>>(&shapes, |bench, GemmProblem { m, n, .. }| {
        let row = RowArgument { address: vector(bench, n), len: n };
        let aux = bench.output((m * n * 2) as usize).expect("memory");
        ((), (MatrixRef::new(aux, n.into()), ((), ((), row))))
    });
    // Every way of loading B: along N, by two CTAs of a cluster, by four, and chunk by chunk.
    type E<S> = TreeEpilogue<bf16, S, SwiGlu>;
    type Kn = Operands<KMajor<bf16>, MnMajor<bf16>>;
    type Bands = Persistent<Grouped<AlongM, U2>>;
    type Roles<C> = Cooperative<U1, C>;
    let shapes = [(256, 256, 64), (200, 144, 72)];
    let none = |_: &mut Bench<'_>, _: GemmProblem| ((), ());
    run::<Composed<TmaWgmma<Kn, Tile<U64, U96, U64>, Roles<Cluster<U1, U1>>>, E<TmaStore>, Bands>>(
        &shapes, none,
    );
    run::<Composed<TmaWgmma<Kn, Tile<U64, U64, U64>, Roles<Cluster<U2, U1>>>, E<TmaStore>, Bands>>(
        &shapes, none,
    );
    run::<Composed<TmaWgmma<Kk, Tile<U64, U64, U64>, Roles<Cluster<U2, U2>>>, E<TmaStore>, Bands>>(
        &shapes, none,
    );
    run::<Composed<TmaWgmma<Kk, Tile<U64, U64, U64>, Roles<Cluster<U4, U1>>>, E<TmaStore>, Bands>>(
        &shapes, none,
    );
    let odd = [(200, 144, 71), (65, 20, 9)];
    run::<Composed<CopyWgmma<Kk, Tile<U64, typenum::U48, U128>, Cooperative<U1>>, E<DirectStore>, Bands>>(
        &odd, none,
    );
    run::<Composed<CopyWgmma<Kn, Tile<U64, U96, U64>, Cooperative<U1>>, E<DirectStore>, Bands>>(&odd, none);
    type Divided = StreamK<AlongM, Ordered>;
    run::<Composed<TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2>>, E<TmaStore>, Divided>>(&shapes, none);
}

#[test]
fn every_mainloop_and_scheduler_takes_a_tree() {
    type Tree = Compute<Gelu<Fast>, (Biased,)>;
    type E<S> = TreeEpilogue<bf16, S, Tree>;
    type Bands = Persistent<Grouped<AlongM, U2>>;
    let arguments =
        |bench: &mut Bench<'_>, problem: GemmProblem| ((), (biased(vector(bench, problem.n), problem.n),));
    let shapes = [(256, 256, 64), (200, 136, 72)];
    run::<Composed<TmaWgmma<Kk, Tile<U128, U128, U64>, Pingpong>, E<TmaStore>, Bands>>(&shapes, arguments);
    run::<
        Composed<TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2, Cluster<U2, U1>>>, E<DirectStore>, Bands>,
    >(&shapes, arguments);
    run::<Composed<TmaWgmma<Kk, Tile<U256, U64, U64>, Cooperative<U2>>, E<TmaStore>, Bands>>(
        &shapes, arguments,
    );
    run::<Composed<TmaWgmma<Kk, Tile<U64, U64, U64>, Unspecialised<U1, U1>>, E<DirectStore>, OneTile<AlongM>>>(
        &shapes, arguments,
    );
}

#[test]
fn illegal_arguments_name_their_node() {
    let problem = GemmProblem { m: 64, n: 32, k: 64 };
    let call = Call::of(problem).a(0x1000, 64).b(0x2000, 64).d(0x3000, 64);
    let refusal = |address, len| {
        let arguments = ((), (((), (0.5, ())), RowArgument { address, len }));
        let launch = Gemm::<Small<DirectStore, Biased>>::launch(&call.with(&arguments), 132);
        launch.expect_err("illegal").to_string()
    };
    assert_eq!(refusal(0, 32), "add.1 is a null pointer, a device address was needed");
    assert_eq!(refusal(0x4001, 32), "add.1 begins at 0x4001, a multiple of 2 B was needed");
    assert_eq!(refusal(0x4000, 31), "add.1 has 31 elements, 32 were needed");
    let arguments = ((), (ResidualArgument { beta: 2.0, c: None }, ()));
    type Linear = Compute<Add, (Residual<bf16>, Accumulator)>;
    let launch = Gemm::<Small<DirectStore, Linear>>::launch(&call.with(&arguments), 132);
    assert_eq!(
        launch.expect_err("no C").to_string(),
        "add.0: beta is 2 but there is no C: pass C, or beta = 0"
    );
    let odd = Call { problem: GemmProblem { n: 31, ..problem }, ..call }.with(((), ()));
    let launch = Gemm::<Small<DirectStore, Gated<Glu<Silu>, Accumulator>>>::launch(&odd, 132);
    let words = "epilogue: N is 31, a multiple of 2 was needed: the columns are gated in pairs";
    assert_eq!(launch.expect_err("odd").to_string(), words);
}

/// The bits of an ordered reduction, from a kernel on this number of SMs.
fn reduced<C, X>(multiprocessors: u32, problem: GemmProblem, place: fn(&X::Arguments) -> u64) -> Vec<u8>
where
    X: falchion::verify::Sample,
    C: GemmConfig,
    C::Epilogue: falchion::collective::Epilogue<Arguments = X::Arguments>,
{
    let mut engine = Emulator::new().with_multiprocessors(multiprocessors);
    let mut bench = Bench::new(&mut engine, 5);
    let arguments = X::sample(&mut bench, Shape { m: problem.m, n: problem.n }).expect("memory");
    if let Err(error) = bench.check::<C>(problem, &arguments) {
        panic!("{}: {error}", Gemm::<C>::name());
    }
    bench.read(place(&arguments)).expect("a result")
}

#[test]
fn ordered_reductions_have_the_same_bits_in_every_run() {
    type Rows = OrderedRow<Sum, Accumulator>;
    type Columns = OrderedColumn<Sum, Accumulator>;
    type All = OrderedScalar<Sum, Accumulator>;
    type Bands = Persistent<Grouped<AlongM, U2>>;
    type Turns<X> =
        Composed<TmaWgmma<Kk, Tile<U128, U96, U64>, Pingpong>, TreeEpilogue<bf16, TmaStore, X>, Bands>;
    type Cluster22<X> = Composed<
        TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2, Cluster<U2, U2>>>,
        TreeEpilogue<bf16, DirectStore, X>,
        Bands,
    >;
    let problem = GemmProblem { m: 300, n: 200, k: 72 };
    // A reduction over the rows of one column does not depend on the tiles.
    let rows = reduced::<Small<DirectStore, Rows>, Rows>(1, problem, |((row, _), ())| row.address);
    for multiprocessors in [2, 5, 9] {
        let place: fn(&<Rows as Node>::Arguments) -> u64 = |((row, _), ())| row.address;
        assert_eq!(reduced::<Small<TmaStore, Rows>, Rows>(multiprocessors, problem, place), rows);
        assert_eq!(reduced::<Turns<Rows>, Rows>(multiprocessors, problem, place), rows);
        assert_eq!(reduced::<Cluster22<Rows>, Rows>(multiprocessors * 4, problem, place), rows);
    }
    let columns = reduced::<Turns<Columns>, Columns>(1, problem, |((column, _), ())| column.address);
    let all = reduced::<Turns<All>, All>(1, problem, |((address, _), ())| *address);
    for multiprocessors in [2, 5, 9] {
        let place: fn(&<Columns as Node>::Arguments) -> u64 = |((column, _), ())| column.address;
        assert_eq!(reduced::<Turns<Columns>, Columns>(multiprocessors, problem, place), columns);
        reduced::<Cluster22<Columns>, Columns>(multiprocessors * 4, problem, place);
        let place: fn(&<All as Node>::Arguments) -> u64 = |((address, _), ())| *address;
        assert_eq!(reduced::<Turns<All>, All>(multiprocessors, problem, place), all);
        reduced::<Cluster22<All>, All>(multiprocessors * 4, problem, place);
    }
}

#[test]
fn scratch_that_is_too_small_and_rows_that_are_too_long_are_refused() {
    let problem = GemmProblem { m: 64, n: 40, k: 64 };
    let call = Call::of(problem).a(0x1000, 64).b(0x2000, 64).d(0x3000, 64);
    type Rows = OrderedRow<Sum, Accumulator>;
    let refusal = |address, bytes| {
        let row = RowArgument { address: 0x4000, len: 40 };
        let launch = Gemm::<Small<DirectStore, Rows>>::launch(
            &call.with(((row, Scratch { address, bytes }), ())),
            132,
        );
        launch.expect_err("illegal").to_string()
    };
    // Five counters, rounded up to 32 B, and 4 groups of 16 rows.
    let needed = 32 + 4 * 40 * 4;
    assert_eq!(refusal(0x8000, needed - 1), "sum.scratch: it has 671 B, 672 were needed");
    assert_eq!(refusal(0x8004, needed), "sum.scratch: it begins at 0x8004, a multiple of 16 B was needed");
    let launch = Gemm::<Small<DirectStore, TopKSoftmax<U2, Accumulator>>>::launch(&call.with(()), 132);
    let words = "N is 40, at most tile N = 32 was needed: the epilogue looks at whole rows";
    assert_eq!(launch.expect_err("two tiles").to_string(), words);
    let launch =
        Gemm::<Small<DirectStore, Gated<Glu<Silu>, Accumulator, Blocks>>>::launch(&call.with(((), ())), 132);
    let words = "epilogue: N is 40, a multiple of 16 was needed: the columns are gated in blocks of 8";
    assert_eq!(launch.expect_err("half a block").to_string(), words);
}

/// Epilogues of one's own around a tree whose row vector is loaded before a tile is multiplied: all that the tree does is done, by the
/// one with a change and by the one of functions.
#[test]
fn epilogues_of_ones_own_do_all_that_the_one_inside_does() {
    use std::rc::Rc;

    use falchion::collective::tree::{Host, Site};
    use falchion::collective::{Bounded, DeviceEpilogue, Epilogue, EpilogueSite, EpilogueSpec};
    use falchion::ptx::Builder;

    type Inside = TreeEpilogue<bf16, TmaStore, Compute<Add, (Accumulator, RowVector<bf16>)>>;
    struct Own<const FUNCTIONS: bool>;
    impl<const FUNCTIONS: bool> Epilogue for Own<FUNCTIONS> {
        type Arguments = <Inside as Epilogue>::Arguments;
        const SPEC: EpilogueSpec = Inside::SPEC;

        fn name() -> String {
            format!("own_{FUNCTIONS}")
        }

        fn visit(arguments: &mut Self::Arguments, of: &EpilogueSite<'_>, site: &mut Site<'_>) {
            Inside::visit(arguments, of, site);
        }

        fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
            let inside = Inside::device(f, plan);
            if !FUNCTIONS {
                return inside.with_change(|_, extent, fragment| (extent, fragment));
            }
            let [begin, store, integers, doubles, finish] = {
                let inside = Rc::new(inside);
                core::array::from_fn(|_| Rc::clone(&inside))
            };
            DeviceEpilogue::new(
                move |f, plan, extent, sums| store.store(f, plan, extent, sums),
                move |f, plan, thread| finish.finish(f, plan, thread),
            )
            .with_begin(move |pass, extent, consumer| begin.begin(pass, extent, consumer))
            .with_integers(move |f, plan, extent, sums| integers.store_integers(f, plan, extent, sums))
            .with_doubles(move |f, plan, extent, sums| doubles.store_doubles(f, plan, extent, sums))
        }

        fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Bounded {
            Inside::evaluate(host, arguments, at)
        }
    }
    type Of<const FUNCTIONS: bool> =
        Composed<TmaWgmma<Kk, Tile<U64, U32, U64>, Cooperative<U1>>, Own<FUNCTIONS>, OneTile<AlongN>>;
    let bias = |bench: &mut Bench<'_>, problem: GemmProblem| {
        ((), ((), RowArgument { address: vector(bench, problem.n), len: problem.n }))
    };
    run::<Of<false>>(&[(128, 64, 64), (70, 40, 72)], bias);
    run::<Of<true>>(&[(128, 64, 64), (70, 40, 72)], bias);
}
