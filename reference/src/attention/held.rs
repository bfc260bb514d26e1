//! Each bound of attention's errors is held from both sides: a kernel that is right comes to a third of it, and not
//! beyond. The kernels here lose all that the definition lets them lose.

use super::gradients::{Gradient, Query, QueryKey};
use super::{Row, Score};
use crate::Format;
use crate::bound::U;
use crate::held::{held, held_loosely, largest};

/// Half of the last place of 1 in f32, as a product: what is lost when it is added to 1.
const LOST: f64 = U;

/// `count` terms: 1, and others that an `f32` accumulator loses, one by one.
fn losing(count: usize) -> Vec<f64> {
    let terms: Vec<f64> = core::iter::once(1.0).chain(core::iter::repeat_n(LOST, count - 1)).collect();
    assert_eq!(terms.iter().fold(0.0f32, |sum, &term| sum + term as f32), 1.0);
    terms
}

#[test]
fn scores() {
    let ones = vec![1.0; 128];
    let score = Score::of(&losing(128), &ones, 0.125);
    held("a score", score.value - 0.125, score.error);
    // Four instructions, which cut off each term but the first.
    let bytes: Vec<f64> = (0..128).map(|i| if i == 0 { 1.0 } else { 1.75 / 16384.0 }).collect();
    let score = Score::of_bytes(&bytes, &ones, 0.125);
    held("a score of 8-bit floats", score.value - 0.125, score.error);
    let mut random = fastrand::Rng::with_seed(1);
    let all = (0..10_000).map(|_| {
        let [value, q, k] = [(); 3].map(|()| random.f32() + 0.5);
        let score = Score { value: value.into(), error: 0.0 }.times([q, k]);
        ((f64::from(value * q * k) - score.value).abs(), score.error)
    });
    let (error, bound) = largest(all);
    held_loosely("factors", error, bound);
    held("an error, times factors", 1.2, Score { value: 1.0, error: 0.1 }.times([3.0, -4.0]).error);
}

/// A row of these scores, which do not err.
fn row(format: Format, block: u32, scores: &[f64]) -> Row {
    let mut row = Row::new(format, block);
    scores.iter().for_each(|&value| row.key(Score { value, error: 0.0 }));
    row
}

/// The score of a key whose weight is some factor of the largest.
fn weight(of: f64) -> f64 {
    of.ln()
}

#[test]
fn sums_of_weights() {
    // All weights but the largest are lost.
    let scores = |count| losing(count).into_iter().map(weight).collect::<Vec<_>>();
    let lost = |count: u32| (f64::from(count - 1) * LOST).ln_1p();
    for format in [Format::F32, Format::Bf16, Format::E4m3] {
        held_loosely("a log-sum-exp", lost(300), row(format, 128, &scores(300)).log_sum_exp().bound());
        let mut merged = row(format, 128, &scores(1000));
        merged.merge();
        held_loosely("a log-sum-exp of parts", lost(1000), merged.log_sum_exp().bound());
        let mut with_sink = row(format, 128, &scores(300)[1..]);
        with_sink.sink(0.0);
        held_loosely("a log-sum-exp with a sink", lost(300), with_sink.log_sum_exp().bound());
    }
    // Every score errs by as much.
    let mut erring = Row::new(Format::Bf16, 128);
    (0..100).for_each(|_| erring.key(Score { value: 1.0, error: 1e-3 }));
    held_loosely("scores that err", 1e-3, erring.log_sum_exp().bound());
}

/// The bound of the only column of O in f32, of keys with these scores and values.
fn bound(row: &Row, values: &[f64]) -> f64 {
    row.outputs(Format::F32, 1, &|key| vec![values[key]])[0].bound()
}

#[test]
fn outputs() {
    // Weights just below and just above a tie, half of them each: all roundings are to one side of O, which is 0. The
    // largest weight has no value.
    for (format, block) in [(Format::Bf16, 64), (Format::F16, 64), (Format::E4m3, 32)] {
        let unit = format.unit_roundoff();
        let ties = [-1e-6, 1e-6].map(|by| weight(0.5 * (1.0 + unit * (1.0 + by))));
        let scores: Vec<f64> = core::iter::once(0.0).chain((0..64).map(|i| ties[i % 2])).collect();
        let values: Vec<f64> = core::iter::once(0.0).chain((0..64).map(|i| [-1.0, 1.0][i % 2])).collect();
        let scale = if format == Format::E4m3 { 256.0 } else { 1.0 };
        let rounded = |score: &f64| format.decode(format.round(score.exp() * scale)) / scale;
        let (weights, sum): (Vec<f64>, f64) =
            (scores.iter().map(rounded).collect(), scores.iter().map(|of| of.exp()).sum());
        let error = |values: &[f64]| {
            weights.iter().zip(values).map(|(weight, value)| weight * value).sum::<f64>() / sum
        };
        let one = row(format, block, &scores);
        let name = format.name();
        let exact =
            |values: &[f64]| scores.iter().zip(values).map(|(of, value)| of.exp() * value).sum::<f64>() / sum;
        let erring = (error(&values) - exact(&values)).abs();
        held(&format!("weights in {name}"), erring, bound(&one, &values));
        let mut merged = one.clone();
        merged.merge();
        held(&format!("weights in {name}, of parts"), erring, bound(&merged, &values));
        let mut scaled = one.clone();
        scaled.factor(-3.7);
        held(
            &format!("weights in {name}, times a factor"),
            erring * f64::from(3.7f32),
            bound(&scaled, &values),
        );
    }
    // Weights that are half of the smallest number of the format, and become 0.
    for (format, scale) in [(Format::F16, 1.0), (Format::E4m3, 256.0)] {
        let tiny = format.tiniest() / 2.0 / scale;
        let scores: Vec<f64> = core::iter::once(0.0).chain(core::iter::repeat_n(weight(tiny), 99)).collect();
        let values: Vec<f64> = core::iter::once(0.0).chain(core::iter::repeat_n(1.0, 99)).collect();
        held(
            &format!("tiny weights in {}", format.name()),
            99.0 * tiny,
            bound(&row(format, 64, &scores), &values),
        );
    }
    // A weight below the smallest normal f32 is flushed.
    let flushed = f64::from(f32::MIN_POSITIVE) * 0.99;
    held("flushed", flushed * 1e30, bound(&row(Format::F32, 64, &[0.0, weight(flushed)]), &[0.0, 1e30]));
    // Equal weights, and values that the accumulators lose.
    let values = losing(1000);
    held_loosely("lost values", 999.0 * LOST / 1000.0, bound(&row(Format::F32, 1000, &[0.0; 1000]), &values));
    // Products of 8-bit floats that an instruction cuts off, beside one that is not.
    let cut: Vec<f64> = (0..1024).map(|i| if i == 0 { 448.0 } else { 448.0 * 1.75 / 16384.0 }).collect();
    let (lost, sum) = (1023.0 * cut[1], 1024.0);
    held_loosely(
        "values of 8-bit floats that are cut off",
        lost / sum,
        bound(&row(Format::E4m3, 1, &[0.0; 1024]), &cut),
    );
    // Every score of the first half errs upwards, and every other downwards.
    let mut erring = Row::new(Format::F32, 64);
    (0..100).for_each(|_| erring.key(Score { value: 0.0, error: 1e-3 }));
    let values: Vec<f64> = (0..100).map(|i| if i < 50 { 1.0 } else { -1.0 }).collect();
    held("scores that err", 1e-3, bound(&erring, &values));
    // If the sum may be 0, nothing is known.
    let mut wild = Row::new(Format::Bf16, 64);
    wild.key(Score { value: 0.0, error: 2.0 });
    assert_eq!(bound(&wild, &[1.0]), f64::INFINITY);
}

#[test]
fn pairs() {
    let (d, ones) = (128, vec![1.0; 128]);
    let (q, d_o) = (losing(d), losing(d));
    // The score, dP and D are 1 in a kernel's accumulators; D has the other sign.
    let negative = vec![-1.0; d];
    let query = Query { q: &q, d_o: &d_o, log_sum_exp: 1.0, row_sum: Query::row_sum(&negative, &d_o) };
    let pair = QueryKey::of(&query, &ones, &ones, 1.0);
    held("D", -1.0 - query.row_sum.0, query.row_sum.1);
    held("a weight", pair.weight.0 - 1.0, pair.weight.1);
    held("a gradient of a score", pair.difference.0 - 2.0, pair.difference.1);
    // A weight that is flushed, and its gradient.
    let far = Query { q: &[0.0], d_o: &[1.0], log_sum_exp: 87.4, row_sum: (0.0, 0.0) };
    let pair = QueryKey::of(&far, &[0.0], &[1.0], 1.0);
    assert!(pair.weight.0 < f64::from(f32::MIN_POSITIVE), "{}", pair.weight.0);
    held("a flushed weight", pair.weight.0, pair.weight.1);
    held_loosely("its gradient", pair.difference.0, pair.difference.1);
}

#[test]
fn gradients() {
    let of = |format, factors: &[f64], values: &[f64], scale: f32| {
        let mut sum = Gradient::new(format, 1);
        factors.iter().zip(values).for_each(|(&factor, value)| sum.add((factor, 0.0), &[*value]));
        sum.row(scale)[0].error
    };
    let lost = 999.0 * LOST;
    held("lost rows", lost, of(Format::F32, &losing(1000), &[1.0; 1000], 1.0));
    held("lost rows, times a scale", lost / 64.0, of(Format::F32, &losing(1000), &[1.0; 1000], 1.0 / 64.0));
    for format in [Format::Bf16, Format::F16] {
        let unit = format.unit_roundoff();
        // Factors that are rounded down and up, for rows of the two signs.
        let factors: Vec<f64> = (0..64).map(|i| 1.0 + unit * [1.0 - 1e-6, 1.0 + 1e-6][i % 2]).collect();
        let values: Vec<f64> = (0..64).map(|i| [-1.0, 1.0][i % 2]).collect();
        let rounding =
            factors.iter().map(|&factor| (format.decode(format.round(factor)) - factor).abs()).sum::<f64>();
        held(&format!("factors in {}", format.name()), rounding, of(format, &factors, &values, 1.0));
    }
    let tiny = Format::F16.tiniest() / 2.0;
    held("tiny factors", 64.0 * tiny, of(Format::F16, &[tiny; 64], &[1.0; 64], 1.0));
    let mut erring = Gradient::new(Format::F32, 1);
    (0..10).for_each(|_| erring.add((1.0, 0.1), &[-3.0]));
    held("factors that err", 3.0, erring.row(1.0)[0].error);
}
