//! Corrects the model's times by measurements at similar shapes.
//!
//! The model's error is some percent of a kernel's time, and nearly the same for similar shapes and similar
//! kernels. So the logarithm of measured over predicted time is treated as a smooth function of both.
//! Gaussian process regression estimates it from the records of the nearest shapes: from those measured
//! kernels that are most similar to the kernels the model ranks first. Far from all records the estimate is
//! zero, and only the model decides.

use std::collections::HashMap;

use collective::{CachePolicy, Roles, StorePath};
use scheduler::{AlongM, AlongN, DivideSpec, Grouped, Raster, Rule};
use typenum::{U8, U16};

use super::known::{self, Point, Row, Shape, Shipped, logarithms};
use super::space::Entry;
use super::{Machine, Prediction, Request};
use crate::problem::GemmProblem;
use crate::spec::KernelSpec;

/// Number of kernels that are corrected: those that the model ranks first.
pub(super) const CORRECTED: usize = 48;

/// Number of nearest shapes that are used.
const SHAPES: usize = 16;

/// Number of measured kernels that an estimate uses.
const ROWS: usize = 96;

/// The measured kernels are those most similar to one of this number of kernels that the model ranks first.
const PROBES: usize = 16;

/// Standard deviation of the model's error as a fraction of the time: from kernel to kernel, and from shape
/// to shape.
const SPREAD: f32 = 0.04;
const SPREAD_OF_SHAPES: f32 = 0.03;

/// The model's error is limited to this; larger errors are outliers.
const MOST: f64 = 0.4;

/// The point of a kernel: logarithms of the extents as the kernel sees them, properties of its spec, how full its last
/// wave is, what its predicted time is made of, and how it was or will be launched.
fn point(problem: GemmProblem, spec: &KernelSpec, predicted: &Prediction, in_graphs: bool) -> Point {
    let (waves, time) = (predicted.waves, predicted.microseconds);
    // Kernels that the same resource limits have the same errors.
    let part = |time_of: f64| (6.0 * time_of / time) as f32;
    let seen = if spec.store.transposed { problem.transposed() } else { problem };
    let (mainloop, scheduler) = (&spec.mainloop, spec.scheduler);
    let log = |number: u32, unit: f32| (number.max(1) as f32).log2() / unit;
    let is = |fact: bool| if fact { 0.5 } else { 0.0 };
    let odd = |extent: u32| if extent.is_multiple_of(64) { 0.0 } else { 2.0 / 3.0 };
    let divide = if let Rule::StreamK { divide, .. } = scheduler.rule { Some(divide) } else { None };
    let [m, n, k] = mainloop.tile;
    [
        log(seen.m, 3.0),
        log(seen.n, 3.0),
        log(seen.k, 3.0),
        log(m, 2.0),
        log(n, 2.0),
        log(k, 2.0),
        is(mainloop.cluster[0] > 1),
        is(mainloop.cluster[1] > 1),
        is(spec.store.transposed),
        is(mainloop.roles == Roles::Pingpong),
        is(spec.store.way == StorePath::Direct),
        is(mainloop.operands.iter().any(|operand| operand.cache == CachePolicy::EvictFirst)),
        is(scheduler.rule == Rule::OneTile),
        is(divide.is_some()),
        is(divide == Some(DivideSpec::Remainder)),
        is(matches!(divide, Some(divide @ DivideSpec::Heuristic { .. }) if divide != DivideSpec::HEURISTIC)),
        is(scheduler.raster == AlongM::RASTER),
        is(scheduler.raster == Grouped::<AlongM, U16>::RASTER),
        is(scheduler.raster.is::<Grouped<AlongN, U8>>()),
        2.0 * (waves / waves.ceil().max(1.0)) as f32,
        odd(seen.m),
        odd(seen.n),
        // At long K this is up to a third of the time.
        if spec.overlaps { 0.0 } else { 2.0 },
        is(matches!(scheduler.rule, Rule::NarrowTail { .. })),
        part(predicted.launch),
        part(predicted.multiply),
        part(predicted.epilogue),
        part(predicted.l2),
        part(predicted.dram),
        0.3 * time.log2() as f32,
        is(in_graphs),
        0.0,
    ]
}

/// Points in blocks, coordinate by coordinate: distances to the points of a block are computed together.
type Block = [[f32; LANES]; known::COORDINATES];
const LANES: usize = 8;

fn blocks<'a>(points: impl ExactSizeIterator<Item = &'a Point>) -> Vec<Block> {
    let mut blocks = vec![[[0.0; LANES]; known::COORDINATES]; points.len().div_ceil(LANES)];
    for (place, point) in points.enumerate() {
        let block = &mut blocks[place / LANES];
        for (lanes, coordinate) in block.iter_mut().zip(point) {
            lanes[place % LANES] = *coordinate;
        }
    }
    blocks
}

/// The covariances of a point and those of a block: 1 if they are equal, 1/2 at a distance of the square root of 2.
#[inline]
fn alike(at: &Point, block: &Block) -> [f32; LANES] {
    let mut sums = [0.0_f32; LANES];
    for (x, others) in at.iter().zip(block) {
        for i in 0..LANES {
            let apart = x - others[i];
            sums[i] += apart * apart;
        }
    }
    for sum in &mut sums {
        *sum = 1.0 / (1.0 + 0.5 * *sum);
    }
    sums
}

impl Shipped {
    /// The measured kernels of a shape together with the model's predictions for the card that they were measured on.
    fn rows<'s>(&self, shape: &'s Shape) -> &'s [Row] {
        shape.rows.get_or_init(|| {
            let [m, n, k] = shape.extents;
            let problem = GemmProblem { m, n, k };
            let request = Request::packed(self.types, [cute_rs::atom::Major::K; 2], problem);
            let (machine, mut best) = (Machine::of(&self.card), f64::INFINITY);
            let row = |(entry, measured): (&Entry, f64)| {
                best = best.min(measured);
                let prediction = machine.predict_subject(&entry.subject(), &request);
                let deviation: f32 = match measured / best {
                    ratio if ratio < 1.12 => 0.02,
                    ratio if ratio < 1.35 => 0.04,
                    _ => 0.12,
                };
                Row {
                    point: point(problem, &entry.spec, &prediction, shape.in_graphs),
                    error: (measured / prediction.microseconds).ln().clamp(-MOST, MOST) as f32,
                    doubt: deviation * deviation,
                }
            };
            self.kernels(shape).map(row).collect()
        })
    }
}

/// The shapes nearest to a problem or to its transpose, by the logarithms of their extents.
fn nearest(of: &Shipped, problem: GemmProblem, without: Option<[u32; 3]>) -> Vec<&Shape> {
    let ([m, n, k], all) = (logarithms([problem.m, problem.n, problem.k]), &of.shapes);
    let mut by_distance: Vec<(f64, usize)> = (0..all.len())
        .filter(|&i| all[i].compares && Some(all[i].extents) != without)
        .map(|i| {
            let at = all[i].logarithms;
            let across = |m: f64, n: f64| (at[0] - m).powi(2) + (at[1] - n).powi(2);
            (across(m, n).min(across(n, m)) + (at[2] - k).powi(2), i)
        })
        .collect();
    let order = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if by_distance.len() > SHAPES {
        by_distance.select_nth_unstable_by(SHAPES, order);
        by_distance.truncate(SHAPES);
    }
    by_distance.sort_unstable_by(order);
    by_distance.iter().map(|&(_, i)| &all[i]).collect()
}

/// The factors by which to multiply the times of kernels that the model has ranked. `without` leaves out a
/// shape's own records.
fn factors(
    of: &Shipped,
    problem: GemmProblem,
    kernels: &[(KernelSpec, Prediction)],
    without: Option<[u32; 3]>,
) -> Vec<f64> {
    let points: Vec<Point> =
        kernels.iter().map(|(spec, prediction)| point(problem, spec, prediction, true)).collect();
    let near = nearest(of, problem, without);
    let all: Vec<(usize, &Row)> = near
        .into_iter()
        .enumerate()
        .flat_map(|(i, shape)| of.rows(shape).iter().map(move |row| (i, row)))
        .collect();
    let mut rows: Vec<(f32, usize)> = Vec::with_capacity(all.len() + LANES);
    for (place, block) in blocks(all.iter().map(|(_, row)| &row.point)).iter().enumerate() {
        let mut most = [0.0; LANES];
        for at in points.iter().take(PROBES) {
            for (most, like) in most.iter_mut().zip(alike(at, block)) {
                *most = like.max(*most);
            }
        }
        rows.extend((place * LANES..).zip(most).map(|(row, most)| (most, row)));
    }
    rows.truncate(all.len());
    // The choice among equals is always the same.
    if rows.len() > ROWS {
        rows.select_nth_unstable_by(ROWS, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        rows.truncate(ROWS);
    }
    let rows: Vec<(usize, &Row)> = rows.into_iter().map(|(_, row)| all[row]).collect();
    let known = blocks(rows.iter().map(|(_, row)| &row.point));
    let count = rows.len();
    let mut covariance = vec![0.0_f32; count * count];
    for (i, (shape, row)) in rows.iter().enumerate() {
        for (place, block) in known.iter().enumerate().skip(i / LANES) {
            for (j, like) in (place * LANES..count).zip(alike(&row.point, block)) {
                let same = if *shape == rows[j].0 { SPREAD_OF_SHAPES * SPREAD_OF_SHAPES } else { 0.0 };
                covariance[i * count + j] = SPREAD * SPREAD * like + same;
            }
        }
        covariance[i * count + i] += row.doubt;
    }
    let mut weights: Vec<f32> = rows.iter().map(|(_, row)| row.error).collect();
    solve(&mut covariance, &mut weights);
    let error = |at: &Point| {
        let mut sums = [0.0; LANES];
        for (block, weights) in known.iter().zip(weights.chunks(LANES)) {
            for (sum, (like, weight)) in sums.iter_mut().zip(alike(at, block).into_iter().zip(weights)) {
                *sum += weight * like;
            }
        }
        SPREAD * SPREAD * sums.iter().sum::<f32>()
    };
    points.iter().map(|at| f64::from(error(at)).exp()).collect()
}

/// Solves for `right`, in place. `matrix` is symmetric and positive definite; only its upper triangle is
/// read.
fn solve(matrix: &mut [f32], right: &mut [f32]) {
    let count = right.len();
    for k in 0..count {
        let (done, rest) = matrix.split_at_mut((k + 1) * count);
        let pivot = &done[k * count..];
        for i in k + 1..count {
            let part = pivot[i] / pivot[k];
            let (row, from) = (&mut rest[(i - k - 1) * count..][i..count], &pivot[i..count]);
            for j in 0..row.len().min(from.len()) {
                row[j] -= part * from[j];
            }
            right[i] -= part * right[k];
        }
    }
    for k in (0..count).rev() {
        let row = &matrix[k * count..(k + 1) * count];
        let known: f32 = row[k + 1..].iter().zip(&right[k + 1..]).map(|(a, x)| a * x).sum();
        right[k] = (right[k] - known) / row[k];
    }
}

/// Corrects the model's times, each with the index of its kernel, if there are records for such calls.
/// Kernels that are not corrected get the mean correction of the others, so neither group gains. Returns the
/// kernels that move forward, each with its factor.
pub(super) fn correct(
    request: &Request<'_>,
    machine: &Machine,
    times: &mut [(f64, usize)],
    look: impl Fn(usize) -> Option<(KernelSpec, Prediction)>,
) -> HashMap<usize, f64> {
    let mut earlier = HashMap::new();
    let Some(of) = known::correcting(request, machine).filter(|_| !times.is_empty()) else {
        return earlier;
    };
    let order = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let count = CORRECTED.min(times.len());
    times.select_nth_unstable_by(count - 1, order);
    let (first, rest) = times.split_at_mut(count);
    first.sort_unstable_by(order);
    let Some(kernels) = first.iter().map(|&(_, i)| look(i)).collect::<Option<Vec<_>>>() else {
        return earlier;
    };
    let factors = factors(of, request.call.problem, &kernels, None);
    let mean = (factors.iter().map(|factor| factor.ln()).sum::<f64>() / count as f64).exp();
    rest.iter_mut().for_each(|(time, _)| *time *= mean);
    let corrected =
        |(place, (&(time, i), &factor)): (usize, (&(f64, usize), &f64))| ((time * factor, i), place, factor);
    let mut all: Vec<_> = first.iter().zip(&factors).enumerate().map(corrected).collect();
    all.sort_unstable_by(|a, b| order(&a.0, &b.0));
    for (place, (at, (time, placed, factor))) in first.iter_mut().zip(all).enumerate() {
        *at = time;
        if place < placed {
            earlier.insert(time.1, factor);
        }
    }
    earlier
}

#[cfg(test)]
mod tests {
    use collective::Format;

    use super::*;
    use crate::select::Card;
    use crate::types::Types;

    #[test]
    fn equations_are_solved() {
        let mut matrix = [4.0, 1.0, 0.5, 9.0, 3.0, 1.0, 9.0, 9.0, 2.0];
        let mut right = [7.5, 10.0, 8.5];
        solve(&mut matrix, &mut right);
        for (found, wanted) in right.into_iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - wanted as f32).abs() < 1e-5, "{right:?}");
        }
    }

    /// For each shape of the records of a card and of formats, using only the records of the others: how often the choice is within 3 %
    /// of the fastest, and what it costs.
    #[test]
    fn records_of_other_shapes_improve_the_choice() {
        let (bf16, scaled) = (Types::of(Format::Bf16), Types::of(Format::E4m3).scaled([1, 128]));
        // Most shapes of an H100 were measured with one turn, whose errors are a part of the cost.
        for (card, types, least, better, cheaper) in [
            (Card::H200, bf16, 900, 0.07, 0.9),
            (Card::H100, bf16, 160, 0.04, 1.0),
            (Card::H100, scaled, 70, 0.05, 0.95),
        ] {
            let machine = Machine::of(&card);
            let (mut good, mut cost, mut count) = ([0_u32; 2], [0.0; 2], 0_u32);
            let request = |problem| Request::packed(types, [cute_rs::atom::Major::K; 2], problem);
            let any = request(GemmProblem { m: 64, n: 64, k: 64 });
            let of = known::correcting(&any, &machine).expect("its records");
            for shape in of.shapes.iter().filter(|shape| shape.compares) {
                let [m, n, k] = shape.extents;
                let problem = GemmProblem { m, n, k };
                let request = request(problem);
                let mut kernels: Vec<(KernelSpec, Prediction, f64)> = of
                    .kernels(shape)
                    .map(|(entry, time)| {
                        (entry.spec, machine.predict_subject(&entry.subject(), &request), time)
                    })
                    .collect();
                let best = kernels[0].2;
                // The order of equal predictions must not depend on the measured times.
                kernels.sort_by_cached_key(|(spec, ..)| spec.to_string());
                kernels.sort_by(|a, b| a.1.microseconds.total_cmp(&b.1.microseconds));
                kernels.truncate(CORRECTED);
                let predicted: Vec<(KernelSpec, Prediction)> =
                    kernels.iter().map(|&(spec, prediction, _)| (spec, prediction)).collect();
                let near = factors(of, problem, &predicted, Some(shape.extents));
                for (way, factors) in [vec![1.0; near.len()], near].into_iter().enumerate() {
                    let time = |i: usize| kernels[i].1.microseconds * factors[i];
                    let taken =
                        (0..kernels.len()).min_by(|&a, &b| time(a).total_cmp(&time(b))).expect("a kernel");
                    let ratio = kernels[taken].2 / best;
                    good[way] += u32::from(ratio <= 1.03);
                    cost[way] += ratio - 1.0;
                }
                count += 1;
            }
            let [model, near] = good.map(|good| f64::from(good) / f64::from(count));
            let [model_cost, near_cost] = cost.map(|cost| cost / f64::from(count));
            println!("{count} shapes: {model:.3} and {near:.3} good, at {model_cost:.4} and {near_cost:.4}");
            assert!(
                count > least && near > model + better && near_cost < cheaper * model_cost,
                "{card:?}, {types:?}"
            );
        }
    }
}
