//! Epilogues whose trees compute their own expected values, compared with independent formulas: a gated pair
//! by its definition on columns ordered by hand, a rotation as complex numbers in polar form, a softmax by
//! sorting. Each formula must also reject a wrong kernel.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use falchion::collective::functions::*;
use falchion::collective::tree::*;
use falchion::collective::{Pointwise, Real, Scalars};
use falchion::prelude::*;
use falchion::ptx;
use falchion::verify::{Bench, Format};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Kernel<X> = Composed<
    TmaWgmma<Kk, Tile<U64, U32, U64>, Cooperative<U1>>,
    TreeEpilogue<f32, DirectStore, X>,
    OneTile<AlongN>,
>;

/// A shape with partial tiles in both directions.
const PROBLEM: GemmProblem = GemmProblem { m: 70, n: 80, k: 72 };

/// The rows of a kernel's D. Equal problems have equal A and B.
fn run<X: Node>(
    problem: GemmProblem,
    arguments: impl FnOnce(&mut Bench<'_>) -> X::Arguments,
) -> Vec<Vec<f64>> {
    let mut engine = Emulator::new();
    let mut bench = Bench::new(&mut engine, 11);
    let arguments = arguments(&mut bench);
    let checked = bench.check::<Kernel<X>>(problem, &arguments).unwrap_or_else(|error| panic!("{error}"));
    checked.d.chunks_exact(checked.d.len() / problem.m as usize).map(<[f64]>::to_vec).collect()
}

/// The scaled accumulators that all of these epilogues begin with.
fn sums(problem: GemmProblem) -> Vec<Vec<f64>> {
    run::<Accumulator>(problem, |_| ())
}

/// The first element that differs from the expected one in five digits.
fn judge(got: &[Vec<f64>], want: &[Vec<f64>]) -> Result<(), String> {
    if got.len() != want.len() || got.iter().zip(want).any(|(got, want)| got.len() != want.len()) {
        return Err("another shape".to_owned());
    }
    for (row, (got, want)) in got.iter().zip(want).enumerate() {
        for (column, (got, want)) in got.iter().zip(want).enumerate() {
            if (got - want).abs() > 1e-5 * want.abs().max(0.1) {
                return Err(format!("({row}, {column}) is {got}, not {want}"));
            }
        }
    }
    Ok(())
}

/// `silu(gate) * up` of columns that are listed one by one.
fn swiglu(sums: &[Vec<f64>], columns: &[[usize; 2]]) -> Vec<Vec<f64>> {
    let silu = |x: f64| x / (1.0 + (-x).exp());
    sums.iter().map(|row| columns.iter().map(|&[gate, up]| silu(row[gate]) * row[up]).collect()).collect()
}

/// The result of a wrong kernel: the function of the up, times the gate.
struct Swapped;

impl Pointwise<2> for Swapped {
    type Arguments = ();
    const ARGUMENTS: &'static [&'static str] = &[];
    const REGISTERS: u32 = <Glu<Silu> as Pointwise<2>>::REGISTERS;

    fn name() -> String {
        "swapped".to_owned()
    }

    fn apply<R: Real>(arguments: <() as Scalars>::Of<R>, [gate, up]: [R; 2]) -> R {
        <Glu<Silu> as Pointwise<2>>::apply(arguments, [up, gate])
    }
}

/// The columns (of 80) that are gates and ups, in each of the three orders.
fn orders() -> [Vec<[usize; 2]>; 3] {
    let mut alternating = Vec::new();
    let mut blocks = Vec::new();
    let mut split = Vec::new();
    for gate in [0, 2, 4, 6, 8] {
        alternating.extend((0..8).map(|pair| [8 * gate + 2 * pair, 8 * gate + 2 * pair + 1]));
        blocks.extend((0..8).map(|gates| [8 * gate + gates, 8 * gate + 8 + gates]));
    }
    for gate in 0..40 {
        split.push([gate, 40 + gate]);
    }
    [alternating, blocks, split]
}

#[test]
fn gated_pairs_are_those_of_their_order() {
    let sums = sums(PROBLEM);
    let got = [
        run::<Gated<Glu<Silu>, Accumulator, Alternating>>(PROBLEM, |_| ((), ())),
        run::<Gated<Glu<Silu>, Accumulator, Blocks>>(PROBLEM, |_| ((), ())),
        run::<Gated<Glu<Silu>, Accumulator, Split>>(PROBLEM, |_| ((), ())),
    ];
    let swapped = [
        run::<Gated<Swapped, Accumulator, Alternating>>(PROBLEM, |_| ((), ())),
        run::<Gated<Swapped, Accumulator, Blocks>>(PROBLEM, |_| ((), ())),
        run::<Gated<Swapped, Accumulator, Split>>(PROBLEM, |_| ((), ())),
    ];
    let wants = orders().map(|columns| swiglu(&sums, &columns));
    for (order, (got, swapped)) in got.iter().zip(&swapped).enumerate() {
        for (other, want) in wants.iter().enumerate() {
            let verdict = judge(got, want);
            assert_eq!(verdict.is_ok(), order == other, "order {order} as {other}: {verdict:?}");
            assert!(judge(swapped, want).is_err(), "order {order}: gate and up exchanged pass as {other}");
        }
    }
}

/// One angle per pair of columns, from all four quadrants.
fn angles() -> Vec<f64> {
    (0..PROBLEM.n / 2).map(|pair| 0.37 * f64::from(pair) - 7.0).collect()
}

/// A rotated GEMM result: cosines and `sign` times sines, in pairs of columns.
fn turned(sign: f64) -> Vec<Vec<f64>> {
    run::<Rotate<Accumulator, RowVector<f32>>>(PROBLEM, |bench| {
        let table = angles().into_iter().flat_map(|angle| [angle.cos(), sign * angle.sin()]);
        let bytes: Vec<u8> = table.flat_map(|number| (number as f32).to_le_bytes()).collect();
        ((), RowArgument { address: bench.upload(&bytes).expect("memory"), len: PROBLEM.n })
    })
}

/// A pair of columns is a complex number: a rotation adds to its angle and keeps its length.
#[test]
fn rotations_turn_complex_numbers() {
    let angles = angles();
    let want: Vec<Vec<f64>> = sums(PROBLEM)
        .iter()
        .map(|row| {
            let points = row.chunks_exact(2).zip(&angles);
            let polar =
                points.map(|(point, angle)| (point[0].hypot(point[1]), point[1].atan2(point[0]) + angle));
            polar.flat_map(|(length, angle)| [length * angle.cos(), length * angle.sin()]).collect()
        })
        .collect();
    assert_eq!(judge(&turned(1.0), &want), Ok(()));
    assert!(judge(&turned(-1.0), &want).is_err(), "a rotation the other way passes");
    let plain = run::<Accumulator>(PROBLEM, |_| ());
    assert!(judge(&plain, &want).is_err(), "no rotation passes");
}

/// The softmax over the `kept` largest of each row, by sorting its columns.
fn softmax(sums: &[Vec<f64>], kept: usize) -> Vec<Vec<f64>> {
    let weights = |row: &Vec<f64>| {
        let mut columns: Vec<usize> = (0..row.len()).collect();
        columns.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        columns.truncate(kept);
        let total: f64 = columns.iter().map(|&column| row[column].exp()).sum();
        let mut weights = vec![0.0; row.len()];
        for column in columns {
            weights[column] = row[column].exp() / total;
        }
        weights
    };
    sums.iter().map(weights).collect()
}

#[test]
fn top_k_keeps_the_largest() {
    // One tile has the whole row.
    let problem = GemmProblem { n: 24, ..PROBLEM };
    let sums = sums(problem);
    let got = run::<TopKSoftmax<U3, Accumulator>>(problem, |_| ());
    for kept in 1..=24 {
        let verdict = judge(&got, &softmax(&sums, kept));
        assert_eq!(verdict.is_ok(), kept == 3, "{kept} of a row: {verdict:?}");
    }
    let lowest = run::<TopKSoftmax<U3, Compute<Negate, (Accumulator,)>>>(problem, |_| ((), ((),)));
    assert!(judge(&lowest, &softmax(&sums, 3)).is_err(), "the smallest pass");
    assert!(got.iter().all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-5), "weights sum to one");
}

/// A node of one's own that looks at rows before it has values: the largest value of X in a row.
struct Peak<X>(PhantomData<X>);

struct PeakState<'f> {
    largest: BTreeMap<usize, ptx::Value<'f, f32>>,
    x: [State<'f>; 1],
}

impl<'f> NodeState<'f> for PeakState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn survey(&mut self, part: &Part<'f>) {
        self.x[0].load(part);
        for pair in 0..part.pairs.len() {
            for (row, place) in part.rows.iter().enumerate() {
                let values = self.x[0].compute(part, row, pair);
                for (column, value) in (part.pairs[pair]..).zip(values) {
                    let value = part.inside_or(row, column, value, f32::NEG_INFINITY);
                    let largest = self.largest.entry(place.index).or_insert(value);
                    *largest = largest.max(value);
                }
            }
        }
    }

    fn load(&mut self, part: &Part<'f>) {
        for largest in self.largest.values_mut() {
            for mask in [1, 2] {
                *largest = largest.max(part.tile.f.shuffle_xor(*largest, mask));
            }
        }
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, _: usize) -> Pair<'f> {
        [self.largest[&part.rows[row].index].into(); 2]
    }
}

impl<X: Node> Node for Peak<X> {
    type Arguments = X::Arguments;
    const TRAITS: NodeTraits = NodeTraits { surveys: true, whole_tiles: true, ..X::TRAITS.in_single() };

    fn name() -> String {
        format!("peak_{}", X::name())
    }

    fn visit(x: &mut X::Arguments, shape: Shape, site: &mut Site<'_>) {
        X::visit(x, shape, site);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let x = X::device(given);
        Box::new(move |tile| Box::new(PeakState { largest: BTreeMap::new(), x: [x(tile)] }))
    }

    fn evaluate(host: &mut Host<'_>, x: &X::Arguments, [row, _]: [u32; 2]) -> Bounded {
        let all = (0..host.shape.n).map(|column| X::evaluate(host, x, [row, column]));
        all.reduce(Real::max).unwrap_or(Bounded::exact(f64::NAN))
    }
}

/// A `Bound` inside of such a node is the value of its `Let` at each column of the row, on the device as on the host.
#[test]
fn a_survey_sees_the_values_of_a_let_around_it() {
    type Positive = Compute<Relu, (Accumulator,)>;
    let problem = GemmProblem { m: 70, n: 24, k: 72 };
    let sums = sums(problem);
    let want: Vec<Vec<f64>> = sums
        .iter()
        .map(|row| {
            let most = row.iter().copied().fold(0.0, f64::max);
            row.iter().map(|x| x.max(0.0) * most).collect()
        })
        .collect();
    type One = Let<Positive, Compute<Multiply, (Bound, Peak<Bound>)>>;
    judge(&run::<One>(problem, |_| Default::default()), &want).expect("one Let around the node");
    // The inner X names the outer Let; the node names both.
    type Two = Let<
        Positive,
        Let<Compute<Multiply, (Bound, Bound)>, Compute<Multiply, (Bound<U1>, Peak<Bound<U1>>)>>,
    >;
    judge(&run::<Two>(problem, |_| Default::default()), &want).expect("the outer of two");
    let squares: Vec<Vec<f64>> = want
        .iter()
        .zip(&sums)
        .map(|(row, sums)| {
            let most = sums.iter().copied().fold(0.0, f64::max);
            row.iter().map(|x| x * most).collect()
        })
        .collect();
    type Inner =
        Let<Positive, Let<Compute<Multiply, (Bound, Bound)>, Compute<Multiply, (Bound<U1>, Peak<Bound>)>>>;
    judge(&run::<Inner>(problem, |_| Default::default()), &squares).expect("the inner of two");
    // X reads memory: its loads are started in the survey, too. The host's evaluation is the judge.
    type Biased = Let<Compute<Add, (Accumulator, RowVector<bf16>)>, Compute<Multiply, (Bound, Peak<Bound>)>>;
    run::<Biased>(problem, |bench| {
        let bias = RowArgument { address: bench.random(Format::Bf16, 24, 1).expect("memory"), len: 24 };
        (((), ((), bias)), Default::default())
    });
}

/// X would be written twice.
#[test]
fn a_survey_refuses_a_let_whose_value_writes() {
    type Written = Let<AuxStore<bf16, Accumulator>, Compute<Multiply, (Bound, Peak<Bound>)>>;
    let error = Gemm::<Kernel<Written>>::program().expect_err("two effects");
    assert!(error.to_string().contains("put reductions and AuxStore around the node"), "{error}");
}
