//! The reference for attention: a row of O and its log-sum-exp in f64, with bounds on the errors of a correct
//! kernel.
//!
//! For one query let `x_j` be its scores, `w_j = exp(x_j - max x)`, `D = sum w_j` and `N = sum w_j v_j`; then `O =
//! N / D`, and the log-sum-exp is `ln D + max x`. `u = 2^-24` is the unit roundoff of f32.
//!
//! *Scores.* A product of `d` pairs of 16-bit elements errs by at most `(d + 16) u` of the sum of magnitudes (see
//! [`bound`](crate::bound)). The scale, and with it every score, has a relative error of `u` more.
//!
//! *Exponents.* A kernel computes `2^(x_j c - m c)`, where `m` is the largest score so far, or an older one by which
//! no weight exceeds `2^8`, and `c = log2(e)` times
//! the scale, rounded once more than the scale. `m c` is rounded, the difference is rounded once. So the natural
//! exponent errs by the error of `x_j` plus `3 u |x_j| + 3 u M`, where `M` is the largest magnitude of a score. The
//! hardware's `2^x` errs by a relative `6 u`, and may flush to zero below `2^-126`.
//!
//! *Rescaling.* When a block of keys has been multiplied, what was summed before is multiplied by `2^((m - m')
//! c)`. The differences of all steps add up to `2 M` at most. So they err by `3 u * 2 M` together, and each block
//! by `8 u` for the function and the product.
//!
//! *Sums.* `n` weights are added one by one, and so are their products with values by tensor cores: `(n + 16) u`
//! of the sum of magnitudes.
//!
//! *8-bit floats.* Products err as in [`bound`](crate::bound): `n` instructions by `R ((1 + 34 * 2^-13)^n - 1)`, where `R` is at most the
//! sum of magnitudes. Weights are multiplied by `2^8` before they are rounded, so the smallest subnormal is smaller by that factor, and
//! the exponent errs by `24 u` more. A block takes an instruction per 32 keys, and the last one may be whole.
//!
//! *Weights* are rounded to the format of V before they are multiplied, but not before they are added up. In `f16`
//! a small weight errs by half of the smallest subnormal. `D` is at least 1, less its error.
//!
//! *The quotient* is a product with the hardware's reciprocal: `4 u`.
//!
//! ```
//! use reference::{Format, attention::{Row, Score}};
//!
//! // Two keys with equal scores: the mean of their values.
//! let mut row = Row::new(Format::Bf16, 64);
//! row.key(Score { value: 0.0, error: 0.0 });
//! row.key(Score { value: 0.0, error: 0.0 });
//! let o = row.outputs(Format::Bf16, 1, &|key| vec![[1.0, 3.0][key]]);
//! assert!(o[0].value == 2.0 && o[0].error < 0.01);
//! assert!((row.log_sum_exp().value - 2f64.ln()).abs() < 1e-12);
//! ```

pub mod gradients;
#[cfg(test)]
mod held;
pub mod sequences;

use crate::bound::U;
use crate::{Format, Wanted};

/// The score of a query and a key, in units of the natural exponent, and the largest error of a correct kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The score.
    pub value: f64,
    /// The largest error.
    pub error: f64,
}

impl Score {
    /// The score `scale * sum(q_i k_i)`, without a mask.
    pub fn of(q: &[f64], k: &[f64], scale: f32) -> Self {
        Self::of_products(products(q, k), q.len(), scale)
    }

    fn of_products([sum, magnitude]: [f64; 2], count: usize, scale: f32) -> Self {
        let (scale, u) = (f64::from(scale), U);
        let error = (count as f64 + 16.0) * u * magnitude;
        Self { value: sum * scale, error: (error + 2.0 * u * magnitude) * scale }
    }

    /// The same of 8-bit floats.
    pub fn of_bytes(q: &[f64], k: &[f64], scale: f32) -> Self {
        let products = products(q, k);
        let Self { value, error } = Self::of_products(products, q.len(), scale);
        Self { value, error: error + products[1] * of_instructions(q.len()) * f64::from(scale) }
    }

    /// The same if Q and K have factors, by which the scale was multiplied: two products in f32, which are rounded.
    #[must_use]
    pub fn times(self, factors: [f32; 2]) -> Self {
        if factors == [1.0; 2] {
            return self;
        }
        let factor = factors.into_iter().map(f64::from).product::<f64>();
        let value = self.value * factor;
        Self { value, error: self.error * factor.abs() + 3.0 * U * value.abs() }
    }
}

/// The sum of products, and that of their magnitudes.
fn products(a: &[f64], b: &[f64]) -> [f64; 2] {
    // Sums of their own, so that no addition waits for the one before it.
    const LANES: usize = 8;
    let mut lanes = [[0.0; LANES]; 2];
    let ((whole_a, rest_a), (whole_b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in whole_a.iter().zip(whole_b) {
        for i in 0..LANES {
            let product = a[i] * b[i];
            lanes[0][i] += product;
            lanes[1][i] += product.abs();
        }
    }
    let [mut sum, mut magnitude] = lanes.map(|lanes| lanes.iter().sum::<f64>());
    for product in rest_a.iter().zip(rest_b).map(|(a, b)| a * b) {
        (sum, magnitude) = (sum + product, magnitude + product.abs());
    }
    [sum, magnitude]
}

/// The error of products of 8-bit floats over this many elements, as a part of the sum of magnitudes.
fn of_instructions(elements: usize) -> f64 {
    (1.0 + 34.0 / 8192.0_f64).powi(elements.div_ceil(32) as i32) - 1.0
}

/// A query's scores for the keys that it sees.
#[derive(Clone, Debug)]
pub struct Row {
    format: Format,
    /// Keys per block.
    block: usize,
    scores: Vec<Score>,
    sink: Option<Score>,
    merged: bool,
    /// The factor of V.
    factor: f32,
}

impl Row {
    /// A query without keys. Weights are rounded to `format`; keys come in blocks of `block`.
    pub fn new(format: Format, block: u32) -> Self {
        Self {
            format,
            block: block.max(1) as usize,
            scores: Vec::new(),
            sink: None,
            merged: false,
            factor: 1.0,
        }
    }

    /// Adds the next key that the query sees.
    pub fn key(&mut self, score: Score) {
        self.scores.push(score);
    }

    /// Adds a score without a value, which takes part in the sum of weights.
    pub fn sink(&mut self, value: f64) {
        self.sink = Some(Score { value, error: 0.0 });
    }

    /// Keys were divided into parts, whose outputs were added with the exponentials of their log-sum-exp's as weights.
    pub fn merge(&mut self) {
        self.merged = true;
    }

    /// V has a factor, by which the quotient's reciprocal is multiplied.
    pub fn factor(&mut self, factor: f32) {
        self.factor = factor;
    }

    fn all(&self) -> impl Iterator<Item = &Score> + Clone {
        self.scores.iter().chain(&self.sink)
    }

    /// Number of keys that it sees.
    pub fn keys(&self) -> usize {
        self.scores.len()
    }

    /// Whether weights have 8 bits.
    fn bytes(&self) -> bool {
        self.format == Format::E4m3
    }

    fn most(&self) -> f64 {
        self.all().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Each weight, and its relative error; last that of the sink.
    fn weights(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let most = self.most();
        let largest = self.all().map(|score| score.value.abs() + score.error).fold(0.0, f64::max);
        // There may be a block more than whole ones at each end of a mask's range, and the sink is one of its own.
        let blocks = (self.scores.len() / self.block + 3) as f64;
        // A part's log-sum-exp errs as that of all, and so does the exponent that is computed from it.
        let logarithm = (self.scores.len() as f64 + 1.0).ln() + 5.6;
        let merging = if self.merged { 24.0 * U * (logarithm + largest) + 32.0 * U } else { 0.0 };
        let shifted = if self.bytes() { 24.0 * U } else { 0.0 };
        let rescaling = 6.0 * U * largest + 8.0 * U * blocks + merging + shifted;
        // The largest score of a correct kernel may be another one; all of its scores err.
        self.all().map(move |score| {
            let exponent = score.error + 3.0 * U * score.value.abs() + 3.0 * U * largest + rescaling;
            ((score.value - most).exp(), exponent.exp_m1() + 6.0 * U)
        })
    }

    /// The sum of weights, and its error.
    fn sum(&self) -> (f64, f64) {
        let count = self.scores.len() as f64 + 16.0;
        let (sum, error) = self.weights().fold((0.0, 0.0), |(sum, error), (weight, relative)| {
            (sum + weight, error + weight * relative + FLUSHED)
        });
        (sum, error + count * U * (sum + error))
    }

    /// A row of O, before it is rounded to `output`; `values` returns V's row of `width` elements for a key, by its number among
    /// those that the query sees.
    pub fn outputs(&self, output: Format, width: usize, values: &dyn Fn(usize) -> Vec<f64>) -> Vec<Wanted> {
        let wanted = |value, error| Wanted { format: output, unrounded: false, value, error };
        if self.scores.is_empty() {
            return vec![Wanted { unrounded: true, ..wanted(0.0, 0.0) }; width];
        }
        let (sum, sum_error) = self.sum();
        let round = self.format.unit_roundoff();
        let tiniest = self.format.tiniest() / if self.bytes() { 256.0 } else { 1.0 };
        let mut columns = Columns::new(width);
        for (key, (weight, relative)) in self.weights().take(self.scores.len()).enumerate() {
            let relative = relative + round + relative * round;
            columns.add((weight, weight * relative + tiniest / 2.0 + FLUSHED), &values(key));
        }
        let count = self.scores.len() as f64 + 16.0;
        let least = sum - sum_error;
        let of_column = |(total, magnitude, mut error): (f64, f64, f64)| {
            error += count * U * (magnitude + error);
            if self.bytes() {
                // Masks may leave parts of a block at each end.
                error += of_instructions(self.scores.len() + 2 * self.block) * (magnitude + error);
            }
            let quotient = total / sum;
            if least <= 0.0 {
                return wanted(quotient, f64::INFINITY);
            }
            let error = (error + quotient.abs() * sum_error) / least;
            // The product with a factor is rounded.
            let (factor, rounding) = (f64::from(self.factor), if self.factor == 1.0 { 4.0 } else { 6.0 });
            let error = error + rounding * U * (quotient.abs() + error);
            wanted(quotient * factor, error * factor.abs())
        };
        columns.sums().map(of_column).collect()
    }

    /// The log-sum-exp, in f32; minus infinity for a query without keys.
    pub fn log_sum_exp(&self) -> Wanted {
        let format = Format::F32;
        if self.scores.is_empty() && self.sink.is_none() {
            return Wanted { format, unrounded: true, value: f64::NEG_INFINITY, error: 0.0 };
        }
        let ((sum, error), most) = (self.sum(), self.most());
        let own = self.scores.iter().map(|score| score.error).fold(0.0, f64::max);
        let relative = error / (sum - error).max(f64::MIN_POSITIVE);
        let logarithm = sum.ln();
        // The kernel's own logarithm is larger by that of 2^8 at most.
        let error =
            own + relative + 8.0 * U * (logarithm.abs() + 5.6) + 4.0 * U + 4.0 * U * (most.abs() + 5.6);
        Wanted { format, unrounded: false, value: logarithm + most, error }
    }
}

/// Sums of rows of elements times factors, column by column.
#[derive(Clone, Debug)]
struct Columns {
    totals: Vec<f64>,
    magnitudes: Vec<f64>,
    errors: Vec<f64>,
}

impl Columns {
    fn new(width: usize) -> Self {
        let [totals, magnitudes, errors] = [(); 3].map(|()| vec![0.0; width]);
        Self { totals, magnitudes, errors }
    }

    /// Adds a row times a factor, which errs.
    fn add(&mut self, (factor, error): (f64, f64), row: &[f64]) {
        let Self { totals, magnitudes, errors } = self;
        let sums = totals.iter_mut().zip(magnitudes).zip(errors);
        for (((total, magnitude), sum), &element) in sums.zip(row) {
            *total += factor * element;
            *magnitude += (factor * element).abs();
            *sum += error * element.abs();
        }
    }

    /// The total, the sum of magnitudes and that of errors, for each column.
    fn sums(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let Self { totals, magnitudes, errors } = self;
        totals
            .iter()
            .zip(magnitudes)
            .zip(errors)
            .map(|((&total, &magnitude), &error)| (total, magnitude, error))
    }
}

/// The smallest normal f32: a weight below it may be zero.
const FLUSHED: f64 = f32::MIN_POSITIVE as f64;
