//! What kernels over rows must write, in f64, and how far a correct kernel may be from it.
//!
//! `u = 2^-24` is the unit roundoff of f32. Kernels compute in f32, and round a result once more to its format.
//!
//! *Copies* are exact, and so are the largest logit of a row and its target's.
//!
//! *Sums.* `D + X` rounds once: `u` of the sum. `n` rows of a table are added one by one, with weights by `fma`: `n + 1` roundings
//! cover those of first order, each of at most `u` of the sum of magnitudes, and all others.
//!
//! *Exponentials.* `e^(x - m)` rounds the difference, `d`: `u |d|`. It is `2^(d log2(e))`, whose product, with a constant that is rounded, errs
//! by `2 u |d|`. The hardware's `2^x` errs by a relative `6 u`, and may flush to zero below `2^-126`.
//! So the exponent errs by `3 u |d|` and the result by `6 u` more.
//!
//! *Logarithms.* `ln(s)` is `log2(s)`, which errs by at most 2^-22 or a relative 2^-22, times a constant: `4 u + 8 u |ln(s)|`. The
//! relative error of `s` is added to it.
//!
//! *Statistics.* A thread adds up the exponentials of its vectors of 8, one of each 128, and the threads' sums are added in 8 steps. So an
//! exponential is in that many additions, each of which errs by at most `u` of the sum. Merged, statistics are multiplied by exponentials
//! and added by `fma`.
//!
//! *Merged results.* The larger of two logarithms, `m`, is exact, so the sum of `e^(a - m)` and `e^(b - m)` is at least 1. It is rounded, and
//! so is the quotient of each; a product and its sum with the other round twice more. A row of one result alone is a copy.

use std::collections::BTreeMap;

use kernel::{Expected, Inputs};
use reference::{Format, Wanted};

use crate::problem::RowProblem;
use crate::spec::RowKind;

/// Unit roundoff of f32.
const U: f64 = 1.0 / 16_777_216.0;
/// The smallest normal f32: an exponential below it may be zero.
const FLUSHED: f64 = f32::MIN_POSITIVE as f64;

/// A value, and how far a kernel's may be from it.
type Bounded = (f64, f64);

/// What a kernel of a problem must write.
pub(crate) fn expected(request: &RowProblem, inputs: &Inputs<'_>) -> Vec<Expected> {
    let (rows, columns) = (request.rows as usize, request.columns as usize);
    let all = |name, (rows, length): (usize, usize), expected: &(dyn Fn(usize) -> Vec<Bounded> + Sync)| {
        let elements = inputs.rows(rows, |row| (row * length, expected(row)));
        Expected::near(name, elements)
    };
    let each = |name, length: usize, expected: &(dyn Fn(usize) -> Vec<Bounded> + Sync)| {
        all(name, (rows, length), expected)
    };
    match request.kind {
        RowKind::Add => vec![each("D", columns, &|row| add(request, inputs, row))],
        RowKind::Gather => vec![each("D", columns, &|row| copied(request, inputs, row))],
        RowKind::GatherSum | RowKind::GatherWeighted => {
            vec![each("D", columns, &|row| summed(request, inputs, row))]
        }
        RowKind::Peak => vec![each("the statistics", 4, &|row| statistics(request, inputs, row))],
        RowKind::Merge => vec![
            each("the loss", 1, &|row| vec![merged(request, inputs, row)[1]]),
            each("the log-sum-exp", 1, &|row| vec![merged(request, inputs, row)[0]]),
        ],
        RowKind::Gradient => vec![each("the gradient", columns, &|row| gradient(request, inputs, row))],
        RowKind::MergeAttention => {
            let rows = rows * request.heads as usize;
            vec![
                all("O", (rows, columns), &|row| merged_attention(request, inputs, row)),
                all("the log-sum-exp", (rows, 1), &|row| vec![merged_sum(inputs, row)]),
            ]
        }
        RowKind::AppendPages => {
            let RowProblem { heads, pages, keys, values, .. } = *request;
            let (cached, slots) = (pages as usize * heads as usize * keys as usize, slots(request, inputs));
            let of = |cache, name, columns: u32| {
                let columns = columns as usize;
                let cached = if columns == 0 { 0 } else { cached };
                let expected = |row| cached_row(request, inputs, (&slots, [cache, name]), (row, columns));
                all(cache, (cached, columns), &expected)
            };
            vec![of("the cache of K", "K", request.columns), of("the cache of V", "V", values)]
        }
    }
}

/// An element that is rounded to the problem's format.
fn rounded(request: &RowProblem, value: f64, error: f64) -> Bounded {
    let format = Format::named(request.format.name()).unwrap_or(Format::F32);
    (value, Wanted { format, unrounded: false, value, error }.bound())
}

/// A row of a matrix.
fn line(request: &RowProblem, inputs: &Inputs<'_>, name: &str, row: usize) -> Vec<f64> {
    let columns = request.columns as usize;
    inputs.elements(name, row * columns, columns)
}

fn add(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> Vec<Bounded> {
    let [d, x] = ["D", "the residual"].map(|name| line(request, inputs, name, row));
    let sums = d.into_iter().zip(x).map(|(d, x)| d + x);
    sums.map(|sum| rounded(request, sum, U * sum.abs())).collect()
}

fn copied(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> Vec<Bounded> {
    let own = inputs.numbers("the indices", row, 1)[0] as usize;
    line(request, inputs, "the table", own).into_iter().map(|element| (element, 0.0)).collect()
}

fn summed(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> Vec<Bounded> {
    let RowProblem { kind, choices, table, first, limit, .. } = *request;
    let (choices, columns) = (choices as usize, request.columns as usize);
    let index = inputs.numbers("the indices", row * choices, choices);
    let weights = if kind == RowKind::GatherWeighted {
        inputs.elements("the weights", row * choices, choices)
    } else {
        vec![1.0; choices]
    };
    if index.iter().any(|&number| number >= limit) {
        return vec![(f64::NAN, 0.0); columns];
    }
    let (mut sums, mut count) = (vec![(0.0, 0.0); columns], 0);
    for (number, weight) in index.into_iter().zip(weights) {
        let Some(own) = number.checked_sub(first).filter(|own| *own < table) else { continue };
        count += 1;
        for ((sum, magnitude), x) in sums.iter_mut().zip(line(request, inputs, "the table", own as usize)) {
            *sum += weight * x;
            *magnitude += (weight * x).abs();
        }
    }
    let error = |magnitude: f64| if count == 0 { 0.0 } else { f64::from(count + 1) * U * magnitude };
    sums.into_iter().map(|(sum, magnitude)| rounded(request, sum, error(magnitude))).collect()
}

/// `e^d`, and the largest error of a kernel's for a `d` that it rounds.
fn exponential(d: f64) -> Bounded {
    let value = d.exp();
    (value, value * ((3.0 * U * d.abs()).exp_m1() + 6.0 * U) + FLUSHED)
}

/// The target of a row among the rank's columns.
fn target(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> Option<usize> {
    let own = inputs.numbers("the targets", row, 1)[0].checked_sub(request.first);
    own.filter(|own| *own < request.columns).map(|own| own as usize)
}

fn statistics(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> Vec<Bounded> {
    let logits = line(request, inputs, "the logits", row);
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let add = |(sum, error): Bounded, (value, own): Bounded| (sum + value, error + own);
    let (sum, error) = logits.iter().map(|x| exponential(x - most)).fold((0.0, 0.0), add);
    let right = target(request, inputs, row).map_or(f64::NEG_INFINITY, |own| logits[own]);
    let additions = 8 * logits.len().div_ceil(8 * 128) + 8;
    let error = error + (additions + 1) as f64 * U * (sum + error);
    vec![(most, 0.0), (sum, error), (right, 0.0), (0.0, 0.0)]
}

/// The log-sum-exp of a row, and its loss.
fn merged(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> [Bounded; 2] {
    let (rows, ranks) = (request.rows as usize, request.ranks as usize);
    let of = |rank: usize| inputs.elements("the statistics", 4 * (rank * rows + row), 4);
    let all: Vec<_> = (0..ranks).map(of).collect();
    let largest = |i: usize| all.iter().map(|of| of[i]).fold(f64::NEG_INFINITY, f64::max);
    let (most, right) = (largest(0), largest(2));
    let (mut sum, mut error) = (0.0, 0.0);
    for of in &all {
        let (factor, own) = exponential(of[0] - most);
        (sum, error) = (sum + of[1] * factor, error + of[1].abs() * own);
    }
    error += (ranks as f64 + 1.0) * U * (sum.abs() + error);
    let (log_sum_exp, error) = logarithm(most, (sum, error));
    let loss = log_sum_exp - right;
    [(log_sum_exp, error), (loss, error + U * (loss.abs() + error))]
}

/// `most + ln(sum)`.
fn logarithm(most: f64, (sum, error): Bounded) -> Bounded {
    let logarithm = sum.ln();
    let least = sum - error;
    let own = if least > 0.0 { error / least + U * (4.0 + 8.0 * logarithm.abs()) } else { f64::INFINITY };
    let all = most + logarithm;
    (all, own + U * (all.abs() + own))
}

/// The logarithms of a row of two results of attention, and which of them is not minus infinity, if one alone is.
fn logarithms(inputs: &Inputs<'_>, row: usize) -> ([f64; 2], Option<usize>) {
    let of = |name| inputs.elements(name, row, 1)[0];
    let both = ["the log-sum-exp of O_a", "the log-sum-exp of O_b"].map(of);
    let [a, b] = both.map(|of| of > f64::NEG_INFINITY);
    (both, (a != b).then_some(usize::from(b)))
}

/// `e^(a - m)` and `e^(b - m)`, and their sum.
fn exponentials(both: [f64; 2]) -> ([Bounded; 2], Bounded) {
    let of = both.map(|sum| exponential(sum - both[0].max(both[1])));
    let (sum, error) = (of[0].0 + of[1].0, of[0].1 + of[1].1);
    (of, (sum, error + U * (sum + error)))
}

fn merged_sum(inputs: &Inputs<'_>, row: usize) -> Bounded {
    match logarithms(inputs, row) {
        (both, Some(alone)) => (both[alone], 0.0),
        ([f64::NEG_INFINITY, _], None) => (f64::NEG_INFINITY, 0.0),
        (both, None) => logarithm(both[0].max(both[1]), exponentials(both).1),
    }
}

fn merged_attention(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> Vec<Bounded> {
    let (sums, alone) = logarithms(inputs, row);
    let both = ["O_a", "O_b"].map(|name| line(request, inputs, name, row));
    if let Some(alone) = alone {
        return both[alone].iter().map(|&element| (element, 0.0)).collect();
    }
    if sums[0] == f64::NEG_INFINITY {
        return vec![(0.0, 0.0); both[0].len()];
    }
    let (of, (sum, of_sum)) = exponentials(sums);
    let weights = of.map(|(value, error)| {
        let weight = value / sum;
        (weight, (error + weight * of_sum) / (sum - of_sum) + U * weight)
    });
    let merged = |(a, b): (&f64, &f64)| {
        let products = [(*a, weights[0]), (*b, weights[1])]
            .map(|(x, (weight, error))| (x * weight, x.abs() * (error + 2.0 * U * (weight + error))));
        let value = products[0].0 + products[1].0;
        let error = products[0].1 + products[1].1;
        rounded(request, value, error + U * (value.abs() + error))
    };
    both[0].iter().zip(&both[1]).map(merged).collect()
}

/// The rows that have a slot, by their slots.
fn slots(request: &RowProblem, inputs: &Inputs<'_>) -> BTreeMap<u64, usize> {
    let slots = inputs.elements("the slots", 0, request.rows as usize);
    slots.into_iter().enumerate().map(|(row, slot)| (slot as u64, row)).collect()
}

/// A key of a head in the cache: a new row, or what was there.
fn cached_row(
    request: &RowProblem,
    inputs: &Inputs<'_>,
    (slots, [cache, name]): (&BTreeMap<u64, usize>, [&str; 2]),
    (row, columns): (usize, usize),
) -> Vec<Bounded> {
    let [heads, keys] = [request.heads, request.keys].map(|of| of as usize);
    let (key, head, page) = (row % keys, row / keys % heads, row / keys / heads);
    let new = slots.get(&((page * keys + key) as u64));
    let (name, at) = new.map_or((cache, row), |new| (name, head * request.rows as usize + new));
    inputs.elements(name, at * columns, columns).into_iter().map(|element| (element, 0.0)).collect()
}

fn gradient(request: &RowProblem, inputs: &Inputs<'_>, row: usize) -> Vec<Bounded> {
    let all = inputs.elements("the log-sum-exp", row, 1)[0];
    let factor = f64::from(1.0 / request.rows as f32);
    let right = target(request, inputs, row);
    let logits = line(request, inputs, "the logits", row);
    let of = |(column, x): (usize, f64)| {
        let (share, error) = exponential(x - all);
        let value = if right == Some(column) { share - 1.0 } else { share };
        // The difference and the product are rounded.
        let error = error + 2.0 * U * (value.abs() + error);
        rounded(request, value * factor, error * factor)
    };
    logits.into_iter().enumerate().map(of).collect()
}
