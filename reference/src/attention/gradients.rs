//! The reference for the backward pass of attention, in f64, with bounds on the errors of a correct kernel.
//!
//! For a query `i` and a key `j` that it sees, let `x` be their score and `l` the log-sum-exp of the query. Then
//!
//! ```text
//! P = exp(x - l)      dP = dO_i V_j      D = dO_i O_i      dS = P (dP - D)
//! dV_j = sum_i P dO_i      dK_j = scale sum_i dS Q_i      dQ_i = scale sum_j dS K_j
//! ```
//!
//! If scores are a function of the products, `dS` is also multiplied by the function's derivative.
//!
//! O and `l` are those that the kernel is given, so their own errors do not matter here. `u = 2^-24` is the unit roundoff of
//! f32.
//!
//! *Weights.* A kernel computes `2^(x c - l c')`, where `c` is `log2(e)` times the scale and `c' = log2(e)`, each rounded. The
//! natural exponent errs by the error of `x` plus `3 u |x| + 3 u |l|`. The hardware's `2^x` errs by a relative `6 u`, and may
//! flush to zero below `2^-126`.
//!
//! *Gradients of scores.* `dP` and `D` are sums of `d` products: `(d + 16) u` of the sums of magnitudes. Their difference and
//! its product with `P` are rounded once each.
//!
//! *Sums.* `P` and `dS` are rounded to 16 bits before they are multiplied. `n` products are added in any order: `(n + 16) u` of
//! the sum of magnitudes. The scale errs by `2 u`.
//!
//! ```
//! use reference::Format;
//! use reference::attention::gradients::{Gradient, QueryKey, Query};
//!
//! // One key: its weight is 1 and has no gradient, so dV is dO.
//! let (q, k, v, d_o) = ([1.0], [0.5], [3.0], [2.0]);
//! let query = Query { q: &q, d_o: &d_o, log_sum_exp: 0.5, row_sum: Query::row_sum(&v, &d_o) };
//! let pair = QueryKey::of(&query, &k, &v, 1.0);
//! let mut dv = Gradient::new(Format::Bf16, 1);
//! dv.add(pair.weight, &d_o);
//! assert!(dv.row(1.0)[0].value == 2.0 && pair.difference.0 == 0.0);
//! ```

use super::{Columns, FLUSHED, Score, products};
use crate::bound::U;
use crate::{Format, Wanted};

/// A value, and the largest error of a correct kernel.
pub type Erring = (f64, f64);

/// A row of Q with what belongs to it.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The query.
    pub q: &'a [f64],
    /// The gradient of its row of O.
    pub d_o: &'a [f64],
    /// Its log-sum-exp, as the kernel is given it; minus infinity if it sees no key.
    pub log_sum_exp: f64,
    /// `D`, from [`row_sum`](Self::row_sum).
    pub row_sum: Erring,
}

/// A query and a key that it sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryKey {
    /// `P`.
    pub weight: Erring,
    /// `dS`, without the scale.
    pub difference: Erring,
}

/// A sum of products, with the bound of its rounding.
fn product(a: &[f64], b: &[f64]) -> Erring {
    let [sum, magnitude] = products(a, b);
    (sum, (a.len() as f64 + 16.0) * U * magnitude)
}

impl Query<'_> {
    /// `D` of a row of O, as the kernel is given it, and of its gradient.
    pub fn row_sum(o: &[f64], d_o: &[f64]) -> Erring {
        product(o, d_o)
    }
}

impl QueryKey {
    /// The weight of a key, and the gradient of its score.
    pub fn of(query: &Query<'_>, k: &[f64], v: &[f64], scale: f32) -> Self {
        Self::changed(query, v, Score::of(query.q, k, scale), (1.0, 0.0))
    }

    /// The same of a score that is a function of the product of Q and K times the scale, with the function's derivative there. The
    /// kernel multiplies the weight by it, rounded once.
    pub fn changed(query: &Query<'_>, v: &[f64], score: Score, (slope, slope_error): Erring) -> Self {
        let Score { value, error } = score;
        let exponent = error + 3.0 * U * value.abs() + 3.0 * U * query.log_sum_exp.abs();
        let weight = (value - query.log_sum_exp).exp();
        let weight_error = weight * (exponent.exp_m1() + 6.0 * U) + FLUSHED;
        let ((gradient, gradient_error), (sum, sum_error)) = (product(query.d_o, v), query.row_sum);
        let difference = gradient - sum;
        let error = gradient_error + sum_error;
        let error = error + U * (difference.abs() + error);
        let (sloped, largest) = (weight * slope, slope.abs() + slope_error);
        let rounded = if (slope, slope_error) == (1.0, 0.0) { 0.0 } else { U };
        let sloped_error = weight_error * largest + weight * slope_error;
        let sloped_error = sloped_error + rounded * (sloped.abs() + sloped_error);
        let largest = (sloped.abs() + sloped_error) * (difference.abs() + error);
        let error = sloped_error * (difference.abs() + error) + sloped.abs() * error + U * largest + FLUSHED;
        Self { weight: (weight, weight_error), difference: (sloped * difference, error) }
    }
}

/// A row of a gradient: the sum of rows of elements times weights, or times gradients of scores.
#[derive(Clone, Debug)]
pub struct Gradient {
    format: Format,
    count: f64,
    columns: Columns,
}

impl Gradient {
    /// A sum of nothing. `format` is that of the kernel's tensors.
    pub fn new(format: Format, width: usize) -> Self {
        Self { format, count: 0.0, columns: Columns::new(width) }
    }

    /// Adds a row times a factor.
    pub fn add(&mut self, (factor, own): Erring, row: &[f64]) {
        let own = own + self.format.unit_roundoff() * (factor.abs() + own) + self.format.tiniest() / 2.0;
        self.columns.add((factor, own), row);
        self.count += 1.0;
    }

    /// `scale` times the sum. Without a scale, give 1.
    pub fn row(&self, scale: f32) -> Vec<Wanted> {
        let (scale, scaled) = (f64::from(scale), if scale == 1.0 { 0.0 } else { 2.0 * U });
        let of_column = |(total, magnitude, error): (f64, f64, f64)| {
            let error = error + (self.count + 16.0) * U * (magnitude + error);
            let error = error * scale + scaled * scale * (total.abs() + error);
            Wanted { format: self.format, unrounded: self.count == 0.0, value: total * scale, error }
        };
        self.columns.sums().map(of_column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Erring, Gradient, Query, QueryKey};
    use crate::Format;

    const D: usize = 5;
    const QUERIES: usize = 4;
    const KEYS: usize = 6;
    const SCALE: f32 = 0.5;

    /// Numbers from -1 to 1 that look random.
    fn numbers(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let next = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
        };
        core::iter::repeat_with(next).take(count).collect()
    }

    fn row(of: &[f64], i: usize) -> &[f64] {
        &of[i * D..(i + 1) * D]
    }

    /// The log-sum-exp of a query, and its row of O; query `i` sees keys up to `i + 2`.
    fn forward(q: &[f64], k: &[f64], v: &[f64], i: usize) -> (f64, Vec<f64>) {
        let score = |j| f64::from(SCALE) * row(q, i).iter().zip(row(k, j)).map(|(a, b)| a * b).sum::<f64>();
        let keys = 0..KEYS.min(i + 3);
        let sum: f64 = keys.clone().map(|j| score(j).exp()).sum();
        let o = (0..D).map(|c| keys.clone().map(|j| score(j).exp() * row(v, j)[c]).sum::<f64>() / sum);
        (sum.ln(), o.collect())
    }

    /// The gradients are the slopes of `sum(dO * O)`.
    #[test]
    fn gradients_are_slopes() {
        let [q, d_o] = [1, 2].map(|seed| numbers(QUERIES * D, seed));
        let [k, v] = [3, 4].map(|seed| numbers(KEYS * D, seed));
        let loss = |q: &[f64], k: &[f64], v: &[f64]| -> f64 {
            let of = |i| forward(q, k, v, i).1.iter().zip(row(&d_o, i)).map(|(o, d)| o * d).sum::<f64>();
            (0..QUERIES).map(of).sum()
        };
        let pair = |i: usize, j: usize| {
            let (log_sum_exp, o) = forward(&q, &k, &v, i);
            let d_o = row(&d_o, i);
            let query = Query { q: row(&q, i), d_o, log_sum_exp, row_sum: Query::row_sum(&o, d_o) };
            QueryKey::of(&query, row(&k, j), row(&v, j), SCALE)
        };
        let step = 1e-5;
        let slope = |of: usize, at: usize| {
            let moved = |by: f64| {
                let mut all = [q.clone(), k.clone(), v.clone()];
                all[of][at] += by;
                loss(&all[0], &all[1], &all[2])
            };
            (moved(step) - moved(-step)) / (2.0 * step)
        };
        let near = |name: &str, value: f64, slope: f64| {
            assert!((value - slope).abs() < 1e-8, "{name}: {value}, the slope is {slope}");
            assert!(value.abs() > 1e-6, "{name} says nothing");
        };
        let gradient = |name, scale, place: (usize, usize), terms: Vec<(Erring, &[f64])>| {
            let mut sum = Gradient::new(Format::F32, D);
            terms.into_iter().for_each(|(factor, row)| sum.add(factor, row));
            for (c, wanted) in sum.row(scale).iter().enumerate() {
                near(name, wanted.value, slope(place.0, place.1 * D + c));
            }
        };
        for i in 0..QUERIES {
            let keys = 0..KEYS.min(i + 3);
            gradient("dQ", SCALE, (0, i), keys.map(|j| (pair(i, j).difference, row(&k, j))).collect());
        }
        for j in 0..KEYS {
            let queries = || (0..QUERIES).filter(move |i| j < i + 3);
            gradient("dK", SCALE, (1, j), queries().map(|i| (pair(i, j).difference, row(&q, i))).collect());
            gradient("dV", 1.0, (2, j), queries().map(|i| (pair(i, j).weight, row(&d_o, i))).collect());
        }
    }
}
