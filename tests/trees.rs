//! Trees of every kind of node on random shapes: the kernel's output in the emulator equals the tree on the
//! host.

mod random;

use falchion::collective::functions::*;
use falchion::collective::tree::*;
use falchion::collective::{Arithmetic, Fast, Fastest, Formula, FormulaError};
use falchion::prelude::*;
use falchion::verify::family::FamilyError;
use falchion::verify::{Bench, FusedGemm, Sample, TreeError};
use random::{EXACT, FAMILIES, Family};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Bands = Persistent<Grouped<AlongM, U2>>;
type One<S, X> =
    Composed<TmaWgmma<Kk, Tile<U64, U32, U64>, Cooperative<U1>>, TreeEpilogue<bf16, S, X>, OneTile<AlongN>>;
type Turns<S, X> = Composed<TmaWgmma<Kk, Tile<U128, U96, U64>, Pingpong>, TreeEpilogue<bf16, S, X>, Bands>;

type Check = fn(&mut Bench<'_>, GemmProblem, u32) -> Result<(), TreeError>;

fn check<X: Sample>(bench: &mut Bench<'_>, problem: GemmProblem, kernel: u32) -> Result<(), TreeError> {
    let halvings = X::TRAITS.halvings.unwrap_or(0);
    let step = if X::TRAITS.gate_block == NodeTraits::SPLIT { 4 } else { (X::TRAITS.gate_block * 2).max(1) };
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
type Biased = Compute<MultiplyAdd, (Accumulator, Scalar, Row)>;

const TREES: [Check; 36] = [
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
    check::<ReduceColumn<Sum, ReduceRow<Amax, Accumulator>>>,
    check::<ReduceColumn<Max, Compute<Subtract, (Accumulator, Column)>>>,
    check::<ReduceColumn<Amax, Accumulator>>,
    check::<ReduceRow<Max, Compute<Negate, (Compute<Absolute, (Accumulator,)>,)>>>,
    check::<ReduceScalar<Amax, Compute<GeluTanh<Fastest>, (Plus<Accumulator, Row>,)>>>,
    check::<ReduceScalar<Sum, Sigmoids<Accumulator>>>,
    check::<Let<Plus<Accumulator, Row>, Times<Bound, Sigmoids<Bound>>>>,
    check::<Let<Matrix, Let<Accumulator, Plus<Bound<U1>, Times<Bound, Bound>>>>>,
    check::<Gated<Glu<Silu<Fast>>, Accumulator>>,
    check::<Plus<Column, Gated<Glu<Relu>, Plus<Accumulator, Row>>>>,
    check::<Times<Row, ReduceScalar<Amax, Gated<Glu<Relu>, Plus<Accumulator, Row>>>>>,
    check::<AuxStore<bf16, Gated<Maximum, AuxStore<bf16, Times<Scalar, Accumulator>>>>>,
    check::<ReduceRow<Sum, Gated<Add, ReduceRow<Sum, Accumulator>>>>,
    check::<Let<Gated<Glu<Tanh<Fast>>, Accumulator>, Times<Bound, Plus<Bound, Row>>>>,
    check::<Plus<Biased, Residual<bf16>>>,
    check::<Compute<MultiplyAdd, (Accumulator, Column, Row)>>,
    check::<Plus<Row, Dropout<Accumulator>>>,
    check::<Gated<Glu<Silu<Fast>>, Dropout<Plus<Accumulator, Row>>, Blocks>>,
    check::<OrderedRow<Sum, OrderedColumn<Max, Times<Accumulator, Matrix>>>>,
    check::<OrderedScalar<Sum, Plus<Accumulator, Column>>>,
    check::<Dropout<AuxStore<bf16, Dropout<Accumulator>>>>,
    check::<Times<ReduceScalar<Amax, Biased>, ScalarPointer<f32>>>,
    check::<Compute<MultiplyAddGelu<Fastest>, (Accumulator, Scalar, Row)>>,
    check::<Gated<Glu<Silu<Fast>>, Rotate<Dropout<AuxStore<bf16, Plus<Accumulator, Row>>>, Matrix>, Split>>,
    check::<
        OrderedRow<Sum, Plus<Row, Gated<Glu<Relu>, ReduceColumn<Sum, ReduceRow<Sum, Accumulator>>, Split>>>,
    >,
];

#[test]
fn typed_trees_on_random_shapes() {
    use rayon::prelude::*;
    let cases = thinned(4 * TREES.len() as u64);
    let failures: Vec<String> = (0..cases)
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
    assert!(failures.is_empty(), "{} of {cases}:\n{}", failures.len(), failures.join("\n"));
}

/// Kernels in whose place a random tree is tried: stored directly and by tensor copies, in turns, with
/// pingpong consumers, split along K, and for 8-bit operands; for rows whose columns are a multiple of 8.
const KERNELS: [(&str, bool); 6] = [
    ("tile=64x32x64 store=direct scheduler=one-tile", false),
    ("tile=128x96x64 store=direct roles=pingpong", false),
    ("tile=64x32x64 scheduler=one-tile", true),
    ("tile=128x96x64 roles=pingpong raster=m2", true),
    ("tile=64x96x64 store=direct scheduler=stream-k divide=split2 min-k-tiles=1", false),
    ("tile=64x96x128 store=direct dtype=e4m3 out=bf16 scheduler=one-tile", false),
];

/// Kernels that compute D's transpose.
const TURNED: [(&str, bool); 4] = [
    ("tile=64x32x64 store=direct swap=yes scheduler=one-tile", false),
    ("tile=128x8x64 store=direct swap=yes scheduler=one-tile", false),
    ("tile=128x96x64 swap=yes roles=pingpong raster=m2", true),
    ("tile=128x8x64 swap=yes scheduler=one-tile", true),
];

/// Kernels for formulas in integers.
const WHOLE: [(&str, bool); 5] = [
    ("dtype=s8 tile=64x32x128 store=direct scheduler=one-tile", false),
    ("dtype=u8 tile=128x96x128 roles=pingpong raster=m2", true),
    ("dtype=s8 dtype-b=u8 tile=64x96x128 store=direct scheduler=stream-k divide=split2 min-k-tiles=1", false),
    ("dtype=s8 tile=128x8x128 store=direct swap=yes scheduler=one-tile", false),
    ("dtype=s8 tile=128x96x128 swap=yes raster=m2", true),
];

/// Kernels for formulas in double precision.
const DOUBLE: [(&str, bool); 3] = [
    ("dtype=f64 tile=64x64x8 stages=4 scheduler=one-tile", false),
    ("dtype=f64 tile=128x64x16 consumers=2 stages=3", false),
    ("dtype=f64 tile=64x32x16 consumers=1 scheduler=stream-k divide=split2 min-k-tiles=1", false),
];

/// Draws a formula, and runs a kernel with it on a random shape.
fn draw_and_run(family: Family, case: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(case);
    let text = family.draw(&mut random, 1 + case as u32 / 8 % 4);
    let formula: Formula = text.parse().map_err(|error: FormulaError| error.to_string())?;
    let again: Result<Formula, _> = formula.text().parse();
    if again.as_ref() != Ok(&formula) {
        return Err(format!("{} is read as {again:?}", formula.text()));
    }
    let mut extent = |most: u32, step: u32| random.u32(1..=most / step) * step;
    let (m, n, k) = (extent(150, 1), extent(100, 2), extent(72, 8));
    let kernels = match family.arithmetic {
        Arithmetic::F32 if family.unordered => &TURNED[..],
        Arithmetic::F32 => &KERNELS,
        Arithmetic::S32 => &WHOLE,
        Arithmetic::F64 => &DOUBLE,
    };
    let (spec, wide) = kernels[random.usize(..kernels.len())];
    // Ordered reductions and softmax need whole tiles.
    let spec = if spec.contains("stream-k") && (text.contains("ordered") || family.surveys) {
        KERNELS[0].0
    } else {
        spec
    };
    // A softmax looks at whole rows in one tile.
    let most = match family.surveys {
        true if spec.contains("x32x") => 32,
        true => 96,
        false => u32::MAX,
    };
    let k = k.next_multiple_of(16);
    // Rotations need an even number of columns, also of a gated value.
    let step = match family.gated {
        None => 2,
        Some("gated8(max,") => 16,
        Some("gated16(relu,") => 32,
        Some(_) => 4,
    };
    let step = step * if wide { 8 } else { 1 };
    let problem = GemmProblem { m, n: n.next_multiple_of(step).min(most), k };
    run(spec, &text, problem, case)
}

/// Runs the kernel of a spec with a formula on random matrices.
fn run(spec: &str, formula: &str, problem: GemmProblem, seed: u64) -> Result<(), String> {
    let gemm = random::kernel(spec, formula)?.kernel().map_err(|error| format!("{spec}: {error}"))?;
    let fused = FusedGemm::of(gemm).ok_or("no formula")?;
    let mut engine = Emulator::new().with_multiprocessors(3);
    let checked = fused.check(&mut Bench::new(&mut engine, seed), problem);
    checked.map(|_| ()).map_err(|error| format!("{spec}, {problem:?}: {error}"))
}

/// Two thousand formulas with every kind of node, four levels deep at most.
#[test]
fn random_formulas_on_random_shapes() {
    all_are_right(2000, &FAMILIES);
}

/// Formulas whose D is `s32` or `f64`: every operation of integers is exact, and errors are those of `f64`.
#[test]
fn random_formulas_in_integers_and_doubles() {
    all_are_right(600, &EXACT);
}

/// The number of cases: without `cargo xtask test --long`, half of them.
fn thinned(cases: u64) -> u64 {
    if std::env::var_os("FALCHION_LONG").is_some() { cases } else { cases / 2 }
}

fn all_are_right(cases: u64, families: &[Family]) {
    use rayon::prelude::*;
    let wrong = |case: u64| {
        let family = families[case as usize % families.len()];
        let error = draw_and_run(family, case).err()?;
        let mut random = fastrand::Rng::with_seed(case);
        let text = family.draw(&mut random, 1 + case as u32 / 8 % 4);
        Some(format!("case {case}, {text}: {error}"))
    };
    let cases = thinned(cases);
    let failures: Vec<String> = (0..cases).into_par_iter().filter_map(wrong).collect();
    assert!(failures.is_empty(), "{} of {cases}:\n{}", failures.len(), failures.join("\n"));
}

/// Formulas in launches of several GEMMs.
#[test]
fn random_formulas_in_several_products() {
    use falchion::verify::SeveralProducts;
    use rayon::prelude::*;
    let cases = thinned(300);
    let run = |case: u64| -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(case);
        let family = FAMILIES[[0, 3, 4][case as usize % 3]];
        let text = Family { unordered: true, ..family }.draw(&mut random, 1 + case as u32 / 4 % 4);
        let formula: Formula = text.parse().map_err(|error: FormulaError| error.to_string())?;
        let mut extent = |most: u32, step: u32| random.u32(1..=most / step) * step;
        let (rows, n, k) = ([extent(90, 1), extent(20, 1), extent(150, 1)], extent(100, 16), extent(72, 8));
        let (form, several) = match case / 3 % 4 {
            0 => ("batched", SeveralProducts::batch(GemmProblem { m: rows[0], n, k }, 3)),
            1 => ("ragged", SeveralProducts::of_rows(&[rows[0], 0, rows[1], rows[2]], 2, [n, k])),
            2 => ("masked", SeveralProducts::masked(&[rows[0], 0, rows[1]], 100, [n, k])),
            _ => ("k-grouped", SeveralProducts::of_lengths(&[64, 0, 128, k], [rows[0], n])),
        };
        let spec = format!("form={form} tile=64x32x64 store=direct");
        // What GEMMs of one batch write to one matrix is written in no order.
        if text.contains("store(") && matches!(form, "batched" | "k-grouped") {
            let refused = random::kernel(&spec, &text)?.kernel().map_err(|error| error.to_string()).err();
            let refused = refused.is_some_and(|error| error.contains("would store to the same one"));
            return if refused { Ok(()) } else { Err(format!("{spec}, {text}: legal")) };
        }
        let gemm = random::kernel(&spec, &text)?.kernel().map_err(|error| format!("{spec}: {error}"))?;
        let mut engine = Emulator::new().with_multiprocessors(3);
        let mut bench = Bench::new(&mut engine, case);
        let arguments = bench.sample(formula, falchion::collective::Format::Bf16, several.shape(formula));
        let checked = bench.check_several(&gemm, &several, &arguments.map_err(|error| error.to_string())?);
        checked.map(|_| ()).map_err(|error| format!("{spec}, {text}, {rows:?} x {n} x {k}: {error}"))
    };
    let wrong = |case: u64| run(case).err().map(|error| format!("case {case}: {error}"));
    let failures: Vec<String> = (0..cases).into_par_iter().filter_map(wrong).collect();
    assert!(failures.is_empty(), "{} of {cases}:\n{}", failures.len(), failures.join("\n"));
}

/// The fused epilogues that other libraries have a class for each: biases by row and by column, activations,
/// scales and largest magnitudes of 8-bit results, inputs and gradients of activations that are kept, sums for
/// the gradient of a bias, gates of experts.
#[test]
fn usual_fusions_are_a_line_each() {
    use rayon::prelude::*;
    let linear = [
        "alpha*acc",
        "alpha*acc + beta*c",
        "alpha[m]:f32*acc + beta[m]:f32*c[m,n]",
        "alpha[0]:f32*acc + beta[0]:f32*c[m,n]",
    ];
    let biases = ["{}", "{} + bias[m]", "{} + bias[n]", "{} + bias[n]:f32", "{} + bias[l,m]"];
    let around = [
        "{}",
        "relu({})",
        "gelu({})",
        "gelu_tanh({})",
        "silu({})",
        "sigmoid({})",
        "tanh({})",
        "hard_swish({})",
        "leaky_relu({}, slope)",
        "clamp({}, 0, 6)",
        "relu(store(aux[m,n], {}))",
        "gelu(store(aux[m,n]:f32, {}))",
        "x[m,n] * relu({})",
        "d_relu({}, x[m,n])",
        "d_gelu({}, x[m,n])",
        "reduce_sum(dbias[m], d_gelu({}, x[m,n]))",
        "ordered_sum(dbias[n], {})",
        "e4m3(reduce_amax(amax[0], gelu({}))*scale[0]:f32)",
        "e5m2(clamp(({})*scale, -57344, 57344))",
        "reduce_amax(amax[0], store(aux[m,n]:e4m3, {}))",
        "dropout(mask, {}) + x[m,n]",
        "y = {}; y * sigmoid(y*1.702)",
    ];
    let mut texts: Vec<String> =
        ["top2_softmax(alpha*acc + beta*c)", "top4_softmax(alpha*acc)"].map(str::to_owned).to_vec();
    for (i, around) in around.into_iter().enumerate() {
        for (j, bias) in biases.into_iter().enumerate() {
            let linear = linear[(i + j) % linear.len()];
            texts.push(around.replace("{}", &bias.replace("{}", linear)));
        }
    }
    let problem = GemmProblem { m: 70, n: 40, k: 72 };
    let wrong = |text: &String| {
        run("tile=64x64x64 store=direct", text, problem, 1).err().map(|error| format!("{text}: {error}"))
    };
    let failures: Vec<String> = texts.par_iter().filter_map(wrong).collect();
    assert_eq!((texts.len(), &failures[..]), (112, &[] as &[String]));
}

/// The fused epilogues of CUTLASS's device tests for this architecture: how many tests have each, operands, and the epilogue as one
/// line. Of 118 tests, 3 pack a mask into bits, 5 have an auxiliary matrix in another direction than D, and one maps a
/// number to another.
const OF_CUTLASS: [(u32, &str, &str); 26] = [
    (24, "f16", "alpha*scale_a[0]:f32*scale_b[0]:f32*acc + scale_c[0]:f32*(beta*c) + bias[m]"),
    (11, "e5m2", "e5m2((alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c)*scale_d[0]:f32)"),
    (8, "e4m3", "f32(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c)"),
    (7, "e4m3", "bf16(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c)"),
    (8, "e4m3", "e4m3((alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:bf16 + beta*c)*scale_d[0]:f32)"),
    (2, "e4m3", "bf16(relu(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c))"),
    (1, "e4m3", "e4m3(relu(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:bf16 + beta*c)*scale_d[0]:f32)"),
    (1, "e4m3", "bf16(relu(alpha*scale_a[m]:f32*scale_b[n]:f32*acc + bias[m]:f32 + beta*c))"),
    (1, "e4m3", "f32(relu(alpha*scale_a[m]:f32*scale_b[n]:f32*acc + bias[m]:f32 + beta*c))"),
    (1, "e4m3", "e4m3(relu(alpha*scale_a[m]:f32*scale_b[n]:f32*acc + bias[m]:f32 + beta*c)*scale_d[0]:f32)"),
    (5, "f16", "relu(alpha*acc + beta*c)"),
    (2, "f16", "relu(alpha*acc + bias[m]:f32 + beta*c)"),
    (4, "f16", "relu(store(aux[m,n]:f16, alpha*acc + bias[m]:f32 + beta*c))"),
    (2, "f16", "gelu(store(aux[m,n]:f16, alpha*acc + bias[m]:f32 + beta*c))"),
    (2, "f16", "-store(aux[m,n]:f16, alpha*acc + bias[m]:f32 + beta*c)"),
    (1, "f16", "relu(store(aux[m,n]:f16, alpha*acc + bias[m]:s8))"),
    (6, "f16", "alpha*acc + aux[m,n] + beta*c"),
    (1, "f16", "alpha*acc + aux[m,n]:f32 + beta*c"),
    (4, "f16", "alpha*acc + bias[n]:f32 + beta*c"),
    (1, "f16", "d_gelu(alpha*acc + beta*c, aux[m,n])"),
    (2, "f16", "x = aux[m,n]; relu(alpha*acc + x) + x + beta*c"),
    (2, "f16", "x = store(aux[m,n], alpha*acc + beta*c); max(x + bias[m], x)"),
    (2, "f16", "reduce_sum(sums[n], alpha*acc + beta*c)"),
    (2, "f16", "reduce_sum(sums[m], alpha*acc + beta*c)"),
    (2, "f16", "reduce_sum(sums[0], alpha*acc + beta*c)"),
    (
        7,
        "e4m3",
        "e4m3(z = alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c; \
         a = store(aux[m,n]:e4m3, reduce_amax(amax_aux[0], z)*scale_aux[0]:f32); \
         reduce_amax(amax[0], relu(z))*scale_d[0]:f32)",
    ),
];

#[test]
fn fusions_of_cutlass_are_one_line() {
    use rayon::prelude::*;
    let tests: u32 = OF_CUTLASS.iter().map(|(tests, ..)| tests).sum();
    assert_eq!(tests, 118 - 3 - 5 - 1);
    let problem = GemmProblem { m: 150, n: 76, k: 144 };
    let wrong = |&(_, dtype, text): &(u32, &str, &str)| {
        let spec = format!("tile=128x64x64 dtype={dtype} store=direct");
        run(&spec, text, problem, 5).err().map(|error| format!("{text}: {error}"))
    };
    let failures: Vec<String> = OF_CUTLASS.par_iter().filter_map(wrong).collect();
    assert_eq!(failures, [""; 0]);
}

/// Every word of a formula is drawn.
#[test]
fn every_node_is_drawn() {
    let mut random = fastrand::Rng::with_seed(1);
    let texts: Vec<String> = (0..1500)
        .map(|case| FAMILIES[case % FAMILIES.len()].draw(&mut random, 1 + case as u32 / 8 % 4))
        .collect();
    for word in [
        "acc",
        "0.5",
        "[0]",
        "[n]",
        "[m]",
        "[m,n]",
        "[m,n%16]",
        "*c",
        "[l,n]",
        ":f32",
        ":e4m3",
        "clamp(",
        "leaky_relu(",
        "dropout(",
        "-(",
        "relu(",
        "gelu_fast(",
        "gelu_tanh_fastest(",
        "silu_fast(",
        ";",
        "rotate(",
        "+",
        ")-",
        "max(",
        "d_silu_fast(",
        "store(",
        "reduce_sum(",
        "reduce_max(",
        "reduce_amax(",
        "ordered_sum(",
        "ordered_max(",
        "ordered_amax(",
        "gated(",
        "gated8(",
        "gated16(",
        "gated_split(",
        "top3_softmax(",
    ] {
        let count = texts.iter().filter(|text| text.contains(word)).count();
        assert!(count >= 10, "{word} is drawn {count} times");
    }
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
    assert!(matches!(checked, Err(TreeError::Check(FamilyError::Element { .. }))), "{checked:?}");
}
