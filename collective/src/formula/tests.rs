//! Formulas: trees of the library by name, texts that are read and written, types, refusals, arguments.

use std::collections::BTreeSet;

use half::{bf16, f16};
use typenum::{U8, U128};

use super::dialect::Index;
use super::kinds::{
    ACCUMULATOR, BOUND, CYCLIC, EACH, GATES, LET, LITERAL, REDUCTIONS, SCALAR, functions, read, residual,
    store, words,
};
use super::{Formula, FormulaError, Input};
use crate::element::Format;
use crate::functions::{Add, Multiply, MultiplyAdd, MultiplyAddGelu, Relu, Silu};
use crate::real::{Fast, Fastest};
use crate::tree::{
    self, Accumulator, Amax, Blocks, Compute, Cyclic, Dropout, Gated, Glu, Node, NodeTraits, OrderedRow,
    Quantize, ReduceRow, ReduceScalar, Residual, Rotate, RowVector, Scalar, ScalarPointer, Shape, Split, Sum,
};

fn formula(text: &str) -> Formula {
    text.parse().unwrap_or_else(|error: FormulaError| panic!("{error}"))
}

/// `alpha * acc + bias`, and `alpha * acc`.
type Biased = Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<bf16>)>;
type Scaled = Compute<Multiply, (Accumulator, Scalar)>;

/// Name, traits without what a number of the host stands for, and the formula.
fn of<X: Node>() -> (String, NodeTraits, Option<Formula>) {
    (X::name(), X::TRAITS, Formula::of_tree::<X>())
}

#[test]
fn named_formulas_are_trees_of_the_librarys_nodes() {
    for (name, (tree, traits, text)) in [
        ("scaled", of::<Scaled>()),
        ("bias", of::<Biased>()),
        ("bias-relu", of::<Compute<Relu, (Biased,)>>()),
        ("bias-gelu", of::<Compute<MultiplyAddGelu<Fastest>, (Accumulator, Scalar, RowVector<bf16>)>>()),
        ("residual", of::<Compute<Add, (Biased, Residual<bf16>)>>()),
        ("swiglu-blocks", of::<Gated<Glu<Silu<Fast>>, Scaled, Blocks<U8>>>()),
        ("swiglu-split", of::<Gated<Glu<Silu<Fast>>, Scaled, Split>>()),
        ("bias-dropout", of::<Dropout<Biased>>()),
        ("rope", of::<Rotate<Scaled, Cyclic<bf16, U128>>>()),
        ("bias-sums-ordered", of::<OrderedRow<Sum, Biased>>()),
        ("bias-sums", of::<ReduceRow<Sum, Biased>>()),
        ("bias-fp8", of::<Compute<Multiply, (ReduceScalar<Amax, Biased>, ScalarPointer<f32>)>>()),
        ("quantized", of::<Quantize<crate::F8E4M3, Scaled>>()),
    ] {
        let lowered = Formula::named(name).unwrap().lowered(Format::Bf16);
        assert_eq!((lowered.name(), lowered.traits()), (tree.as_str(), traits), "{name}");
        assert_eq!(text, Formula::named(name));
    }
    let f16 = Formula::named("bias").unwrap().lowered(Format::F16);
    assert_eq!(f16.name(), <Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<f16>)>>::name());
}

/// Trees of types without a name, as text. Nodes that the text would join stay apart.
#[test]
fn trees_of_types_as_text() {
    use crate::functions::{Add, Clamp, Gelu, Gradient, Multiply, MultiplyAdd, Silu};
    use crate::tree::{
        Accumulator, AuxStore, Bound, ColumnVector, Compute, Constant, Each, Gated, Glu, Let, Load, Max,
        Named, ReduceColumn, Residual, RowVector, Scalar, ScalarPointer, TopKSoftmax,
    };
    use crate::{Fast, Real};
    use typenum::{U1, U2, U3};
    type Row = RowVector<bf16>;
    type Plus<A, B> = Compute<Add, (A, B)>;
    type Times<A, B> = Compute<Multiply, (A, B)>;
    crate::labels! { Shift = "row shift"; }
    fn text<X: Node>() -> String {
        Formula::of_tree::<X>().map_or_else(String::new, |formula| formula.text().to_owned())
    }
    /// A node of one's own.
    struct Own;
    impl crate::Pointwise for Own {
        type Arguments = ();
        fn name() -> String {
            "own_of_a_test".to_owned()
        }
        fn apply<R: Real>((): (), [x]: [R; 1]) -> R {
            x * x
        }
    }
    type OwnTree = Compute<Own, (Accumulator,)>;
    assert_eq!(text::<OwnTree>(), "");
    Formula::define::<Own, 1>().unwrap();
    for (typed, want) in [
        (text::<OwnTree>(), "own_of_a_test(acc)"),
        (
            text::<Compute<Gelu, (Compute<MultiplyAdd, (Accumulator, Scalar, Row)>,)>>(),
            "gelu(acc*x0+x1[n]:bf16)",
        ),
        (text::<Plus<Times<Accumulator, Scalar>, Row>>(), "add(mul(acc,x0),x1[n]:bf16)"),
        (text::<Times<Scalar, Accumulator>>(), "mul(x0,acc)"),
        (text::<Times<Plus<Accumulator, Constant<U1, U2>>, Load<i8>>>(), "(acc+0.5)*x0[m,n]:s8"),
        (text::<Plus<Accumulator, Named<Shift, ColumnVector<f64>>>>(), "acc+row_shift[m]:f64"),
        (text::<Compute<Clamp, (Plus<Accumulator, Residual<f32>>,)>>(), "clamp(acc+x0*c,x1,x2)"),
        (
            text::<Let<Accumulator, Let<Row, Plus<Bound<U1>, Times<Bound, Bound>>>>>(),
            "x0=acc;x1=x2[n]:bf16;add(x0,mul(x1,x1))",
        ),
        (text::<Gated<Glu<Silu<Fast>>, Plus<Accumulator, Each<Row>>>>(), "gated(silu_fast,acc+x0[l,n]:bf16)"),
        (text::<AuxStore<f16, ReduceColumn<Max, Accumulator>>>(), "store(x0[m,n]:f16,reduce_max(x1[m],acc))"),
        (text::<TopKSoftmax<U3, Times<Accumulator, ScalarPointer<f32>>>>(), "top3_softmax(acc*x0[0]:f32)"),
        (text::<Compute<Gradient<Gelu>, (Accumulator, Load<bf16>)>>(), "d_gelu(acc,x0[m,n]:bf16)"),
    ] {
        assert_eq!(typed, want);
    }
}

#[test]
fn functions_of_ones_own() {
    /// `x^3`, and a function with the name of one of the library.
    struct Cube;
    struct Relu;
    struct Spaced;
    macro_rules! named {
        ($($ty:ident $name:literal;)*) => {$(
            impl crate::Pointwise for $ty {
                type Arguments = ();
                fn name() -> String {
                    $name.to_owned()
                }
                fn apply<R: crate::Real>((): (), [x]: [R; 1]) -> R {
                    x * x * x
                }
            }
        )*};
    }
    named! { Cube "cube"; Relu "relu"; Spaced "two words"; }
    let error = "acc + cube(acc)".parse::<Formula>().unwrap_err();
    assert!(error.column == 6 && error.reason.starts_with("`cube` is no function"), "{error}");
    Formula::define::<Cube, 1>().unwrap();
    Formula::define::<Cube, 1>().unwrap();
    assert_eq!(formula("cube(acc)+d_cube(acc,x[n])").text(), "cube(acc)+d_cube(acc,x[n])");
    assert_eq!(formula("s32(cube(acc))").lowered(Format::S8).arithmetic(), crate::Arithmetic::S32);
    let relu = Formula::define::<Relu, 1>().unwrap_err();
    assert_eq!(
        relu.to_string(),
        "the name has a meaning in formulas already: give the function another\nrelu\n^"
    );
    assert!(Formula::define::<Spaced, 1>().unwrap_err().reason.starts_with("a function's name is a word"));
}

#[test]
fn texts_without_blanks_are_read_as_they_are_written() {
    for (text, canonical) in [
        ("acc", "acc"),
        ("  alpha *acc+ bias [ n ] ", "bias"),
        ("((acc + 1) * 2) - (3 - x)", "(acc+1)*2-(3-x)"),
        ("a - (b - acc) - -c1", "a-(b-acc)-(-c1)"),
        ("-(acc * 2) * -0.5", "(-(acc*2))*(-0.5)"),
        ("y = relu(acc); z = y*y; max(z, y + z)", "y=relu(acc);z=y*y;max(z,y+z)"),
        ("2 * (y = acc / 3; y * y)", "2*(y=acc/3;y*y)"),
        ("clamp(acc, -1e-3, high)", "clamp(acc,-0.001,high)"),
        ("store(aux[m, n]:f32, acc) + bias[l, n]:f16", "store(aux[m,n]:f32,acc)+bias[l,n]:f16"),
        ("rotate(acc, angles[m, n % 64])", "rotate(acc,angles[m,n%64])"),
        ("e5m2(acc)", "e5m2(acc)"),
    ] {
        let read = formula(text);
        assert_eq!(read.to_string(), canonical);
        assert_eq!((formula(read.text()), formula(canonical)), (read, read));
    }
}

#[test]
fn trees_as_rust_types() {
    for (text, ty) in [
        ("bias", "Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<bf16>)>"),
        (
            "gelu_tanh_fast(bias[n] + acc*alpha)",
            "Compute<MultiplyAddGelu<Fast>, (Accumulator, Scalar, RowVector<bf16>)>",
        ),
        (
            "gelu(alpha*acc + beta*c)",
            "Compute<Gelu<Exact>, (Compute<Add, (Compute<Multiply, (Accumulator, Scalar)>, Residual<bf16>)>,)>",
        ),
        (
            "y = acc/3; y*y",
            "Let<Compute<Divide, (Accumulator, Constant<U3, U1>)>, Compute<Multiply, (Bound, Bound)>>",
        ),
        (
            "reduce_max(top[m], 0.5*acc - 0.1)",
            "ReduceColumn<Max, Compute<Subtract, (Compute<Multiply, (Accumulator, Constant<U1, U2>)>, Constant<U1, U10>)>>",
        ),
        (
            "gated8(max, acc + each[l,m]:f32)",
            "Gated<Maximum, Compute<Add, (Accumulator, Each<ColumnVector<f32>>)>, Blocks<U8>>",
        ),
        ("rotate(acc, t[m,n%16])", "Rotate<Accumulator, Cyclic<bf16, U16>>"),
    ] {
        assert_eq!(formula(text).lowered(Format::Bf16).rust_type(), ty, "{text}");
    }
}

#[test]
fn refusals_point_at_the_mistake() {
    for (text, column, reason) in [
        ("", 0, "a number, a name or `(` was needed, here is the end"),
        ("alpha * ", 8, "a number, a name or `(` was needed, here is the end"),
        ("acc + $", 6, "`$` has no meaning in a formula"),
        ("acc)", 3, "the formula ends before `)`"),
        ("relu(acc", 8, "`)` was needed, here is the end"),
        ("alpha + bias[n]", 0, "the formula has no `acc`, the element of A * B"),
        ("acc + bias[k]", 11, "`k` is no index"),
        ("acc + bias[n,m]", 11, "`[n,m]` is no index"),
        ("acc + bias[n]:int", 14, "`int` is no format of a formula"),
        ("acc + n", 6, "`n` is an index"),
        ("acc * c", 6, "C is read where a number"),
        ("acc + f(acc)", 6, "`f` is no function; the functions are abs, add,"),
        ("clamp(acc, 1)", 0, "`clamp` takes 3 arguments (x, low, high), 2 were given"),
        ("clamp(acc, acc, 1)", 11, "this is a number for the whole matrix"),
        ("relu(acc, 1)", 0, "`relu` takes 1 argument (x), 2 were given"),
        ("acc + x[n] + x[m]", 13, "`x` is x[m] here, and x[n] elsewhere"),
        ("x[n]*gated(silu, acc + x[n])", 0, "`x` is x[n] here, and x[n] inside of a gate elsewhere"),
        ("acc + gated(silu, acc)", 0, "a gated pair is combined with values that are not gated"),
        ("gated(silu, gated(silu, acc))", 0, "a Gated stands inside of another"),
        ("gated(sum, acc)", 6, "the function of the gate was needed: one of identity,"),
        ("reduce_sum(acc, acc)", 11, "a place to write to was needed"),
        ("store(acc, aux[m,n])", 6, "a place to write to was needed before the value: a matrix aux[m,n]"),
        ("reduce_sum(out[m,n], acc)", 11, "a place to write to was needed"),
        ("reduce_sum(out[l,n], acc)", 11, "what is written is shared by all GEMMs"),
        ("reduce_sum(out[n]:bf16, acc)", 11, "values are reduced in f32"),
        ("top2_softmax(store(x[m,n], acc))", 0, "a TopKSoftmax computes what is inside of it twice"),
        ("y = acc; y = y; y", 9, "`y` has a meaning already"),
        ("acc = 2; acc", 0, "`acc` has a meaning of its own"),
        ("1e99*acc", 0, "`1e99` is no number of f32"),
        ("acc + e4m3(acc)", 6, "`e4m3` says D's format"),
        ("s32(acc * 0.5)", 10, "`0.5` is no integer below 2^31, and D is s32"),
        ("s32(acc + bias[n]:bf16)", 10, "D is s32, computed in integers, which this is not"),
        ("s32(2 * tanh(acc))", 8, "exponentials, roots and their like"),
        ("s32(hard_swish(acc))", 4, "D is s32, computed in integers: functions with fractions"),
        ("s32(acc / 2)", 4, "D is s32, computed in integers: functions with fractions"),
        ("s32(reduce_sum(x[n], acc))", 4, "D is s32, computed in integers, which this is not"),
        ("rotate(acc, t[m,n%12])", 12, "a repeated matrix has one of 8, 16,"),
    ] {
        let error = text.parse::<Formula>().expect_err(text);
        assert!(
            error.column == column && error.reason.starts_with(reason),
            "{text}: {} {}",
            error.column,
            error.reason
        );
    }
    let deep = "(".repeat(5000) + "acc";
    for text in [&deep[4000..], &"-".repeat(3000), &"relu(".repeat(800), &deep] {
        assert!(text.parse::<Formula>().is_err());
    }
    let long = vec!["acc"; 1000].join("+");
    assert!(long.parse::<Formula>().is_ok());
}

#[test]
fn arguments_are_given_by_name() {
    let shape = Shape { m: 4, n: 8 };
    let bind = |text: &str, given: &[(&str, Input)]| {
        formula(text).bind(Format::Bf16, shape, given).map(|_| ()).map_err(|error| error.to_string())
    };
    let bias = ("bias", Input::Address(64));
    assert_eq!(bind("bias", &[bias]), Ok(()));
    assert_eq!(bind("bias", &[]), Err("bias: not given: Input::Address was needed".to_owned()));
    assert_eq!(bind("residual", &[bias]), Ok(()), "C is not read where beta is 0");
    let given = [bias, ("beta", Input::Scalar(1.0))];
    assert_eq!(bind("residual", &given), Err("c: not given: Input::Matrix was needed".to_owned()));
    let c = ("c", Input::matrix(64, 8));
    for text in ["residual", "acc + beta*c", "acc + beta*c[m,n]:f16"] {
        let given = if text == "residual" { vec![bias, c] } else { vec![c] };
        assert_eq!(
            bind(text, &given),
            Err("beta: not given: Input::Scalar was needed".to_owned()),
            "C is not dropped"
        );
        assert_eq!(bind(text, &[&given[..], &[("beta", Input::Scalar(0.0))]].concat()), Ok(()));
    }
    assert_eq!(
        bind("bias", &[bias, ("beta", Input::Scalar(1.0))]),
        Err("beta: no argument of bias: its arguments are alpha, bias".to_owned())
    );
    assert_eq!(
        bind("bias", &[("bias", Input::Scalar(1.0))]),
        Err("bias: Scalar(1.0), Input::Address was needed".to_owned())
    );
    assert_eq!(bind("bias", &[bias, bias]), Err("bias: given twice".to_owned()));
    let each = Input::Each { address: 64, ld: 0, stride: 16 };
    assert_eq!(bind("acc + bias[l,n]", &[("bias", each)]), Ok(()));
    assert_eq!(
        bind("acc + bias[l,n]", &[bias]),
        Err("bias: Address(64), Input::Each was needed: each GEMM has its own".to_owned())
    );
}

/// The types of a formula's nodes, without their parameters.
fn nodes() -> BTreeSet<&'static str> {
    let of = Format::F32;
    let places = [Index::Zero, Index::Column, Index::Row, Index::Both].into_iter();
    let places = places.chain(CYCLIC.map(Index::Cyclic)).filter_map(|index| read(index, of));
    let functions = functions().values().map(|function| &function.node);
    let gates = GATES.iter().flat_map(|(_, functions)| functions.iter().map(|function| &function.node));
    let reductions = REDUCTIONS.iter().flat_map(|(_, nodes)| nodes);
    let called = tree::words().map(|word| &word.node);
    let own = [&ACCUMULATOR, &SCALAR, &LITERAL, &EACH, &LET, &BOUND[0]].into_iter();
    let nodes = own.chain(places).chain(residual(of)).chain(store(of)).chain(functions);
    nodes.chain(gates).chain(reductions).chain(called).map(|node| type_of(node.rust)).collect()
}

/// The name of a node's type: of `<f32>Load<T>`, `Load`. A formula's literal is a constant of types.
fn type_of(rust: &'static str) -> &'static str {
    let rust = rust.strip_prefix('<').and_then(|of| of.split_once('>')).map_or(rust, |(_, rest)| rest);
    let name = rust.split('<').next().unwrap_or(rust).trim();
    if name == "Literal" { "Constant" } else { name }
}

/// The manual's table of nodes lists every word and every node that formulas have, and no others.
#[test]
fn the_manual_lists_every_node() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/manual/epilogues.md");
    let page = std::fs::read_to_string(page).expect("the manual");
    let section =
        page.split("\n## ").find(|part| part.starts_with("What a formula can contain")).expect("a section");
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").collect())
        .collect();
    let spans = |cell: usize| rows.iter().flat_map(move |row| row[cell].split('`').skip(1).step_by(2));
    let called: BTreeSet<&str> = spans(0)
        .filter_map(|text| text.split_once('(').map(|(name, _)| name.rsplit(' ').next().unwrap_or(name)))
        .filter(|name| !functions().contains_key(*name))
        .collect();
    assert_eq!(called, words().collect::<BTreeSet<_>>());
    assert_eq!(spans(1).collect::<BTreeSet<_>>(), nodes());
}
