//! The oracle: elements of `A * B` in f64 with error bounds, all of them or a sample.
//!
//! ```
//! use reference::{Format, HostMatrix, Order, Sums};
//!
//! let ones = |extents, order| HostMatrix::from_fn(Format::Bf16, extents, order, 8, |_, _| 1.0);
//! let (a, b) = (ones([2, 8], Order::RowMajor), ones([8, 3], Order::ColumnMajor));
//! let sums = Sums::of(&a, &b, &|_| ());
//! assert!(sums.sums.iter().all(|sum| sum.value == 8.0));
//! ```

use core::cell::RefCell;
use core::hash::Hash;
use std::collections::HashMap;

use rayon::prelude::*;

use crate::bound::{DOUBLE_U, F32_OVERFLOW, U};
use crate::{Format, HostMatrix, Scales, scales};

/// One element of `A * B`: the sum of its products, and the error bound of a correct accumulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DotProduct {
    /// `sum A(i,k) * B(k,j)`. For integers modulo 2^32, as in the accumulator.
    pub value: f64,
    /// The same for integers that no accumulator limits; otherwise the value.
    pub exact: f64,
    /// `sum |A(i,k) * B(k,j)|`. For integers the magnitude of `value`, because integer sums are exact.
    pub magnitude: f64,
    /// The largest distance of a correct accumulator from `value` ([`bound`](crate::bound)).
    pub error: f64,
    /// The smallest magnitude at which an accumulator becomes infinite.
    pub overflow: f64,
}

impl DotProduct {
    /// A row of A times a column of B of these formats, for accumulators of this type.
    pub fn of(accumulators: AccumulatorPrecision, [a, b]: [Format; 2], [row, column]: [&[f64]; 2]) -> Self {
        Rule::of(accumulators, a, b).sum(row, column)
    }

    /// The same for 8-bit floats with block scales: `scale` gives that of a block of 128 along K, A's times B's.
    pub fn in_blocks(lines: [&[f64]; 2], scale: impl Fn(u32) -> f64) -> Self {
        scales::sum(lines, scale, |a, b| Rule::Fp8.sum(a, b))
    }

    /// The sum of `k` products that are exact in `f32`, with `f32` accumulators.
    pub fn single(k: u32, value: f64, magnitude: f64) -> Self {
        let error = (f64::from(k) + 16.0) * magnitude * U;
        Self { value, exact: value, magnitude, error, overflow: F32_OVERFLOW }
    }

    /// The sum of `k` products of 8-bit floats, with `f32` accumulators. `reach` is the largest magnitude of
    /// a product or of a sum of consecutive products.
    pub fn of_fp8(k: u32, value: f64, magnitude: f64, reach: f64) -> Self {
        let cut = reach * grown(FP8_STEP, (f64::from(k) / 32.0).ceil());
        let single = Self::single(k, value, magnitude);
        Self { error: single.error + cut, ..single }
    }

    /// The sum of `k` products with `f16` accumulators: products of `f16` if `wide`, otherwise of 8-bit
    /// floats. `reach` is the largest magnitude of a product or of a sum of consecutive products.
    pub fn in_half(k: u32, value: f64, magnitude: f64, reach: f64, wide: bool) -> Self {
        let (at_once, step) = if wide { (16.0, WIDE_STEP) } else { (32.0, FP8_STEP) };
        let instructions = (f64::from(k) / at_once).ceil();
        let rounded = reach * grown(step + HALF_ROUNDOFF, instructions) + instructions * f64::powi(2.0, -25);
        let single = Self::single(k, value, magnitude);
        Self { error: single.error + rounded, overflow: Format::F16.overflow(), ..single }
    }

    /// The sum of `k` products of `f64`, with `f64` accumulators.
    pub fn double(k: u32, value: f64, magnitude: f64) -> Self {
        let error = (f64::from(k) + 2.0) * magnitude * DOUBLE_U + value.abs() * DOUBLE_U;
        Self { value, exact: value, magnitude, error, overflow: f64::INFINITY }
    }

    /// The value, and the largest distance of its computation in `f32` from that value: its error bound, plus
    /// one subnormal per product (`k` products). Infinite if an `f16` accumulator may overflow.
    pub fn in_single(&self, k: u32) -> (f64, f64) {
        let Self { value, magnitude, error, overflow, .. } = *self;
        let infinite = overflow < F32_OVERFLOW && (magnitude + value.abs()) / 2.0 + error >= overflow;
        (value, if infinite { f64::INFINITY } else { error + f64::from(k) * f64::powi(2.0, -149) })
    }

    /// The sum of integer products: the exact sum modulo 2^32. The error is that of rounding it to the
    /// nearest `f32`.
    pub fn of_integers(exact: f64) -> Self {
        let value = f64::from(wrapped(exact as i128));
        let error = (f64::from(value as f32) - value).abs();
        Self { value, exact, magnitude: value.abs(), error, overflow: F32_OVERFLOW }
    }
}

/// The error of one instruction on 8-bit floats, as a fraction of the largest magnitude
/// ([`bound`](crate::bound)).
const FP8_STEP: f64 = 34.0 / 8192.0;

/// The error of one instruction on `f16`, as a fraction of the largest magnitude.
const WIDE_STEP: f64 = 21.0 * U;

/// Unit roundoff of `f16`.
const HALF_ROUNDOFF: f64 = 1.0 / 2048.0;

/// The relative growth after `times` steps that grow by the fraction `step` each.
fn grown(step: f64, times: f64) -> f64 {
    (1.0 + step).powf(times) - 1.0
}

/// The type of a kernel's accumulators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccumulatorPrecision {
    /// `f32`, or `s32` for integers.
    #[default]
    Single,
    /// `f16`.
    Half,
}

/// An integer modulo 2^32, as `s32`.
pub(crate) fn wrapped(exact: i128) -> i32 {
    exact as i32
}

/// Elements of `A * B` with their error bounds, for some rows and columns.
#[derive(Clone, Debug)]
pub struct Sums {
    /// The rows that were computed.
    pub rows: Vec<u32>,
    /// The columns that were computed.
    pub columns: Vec<u32>,
    /// One element per computed row and column, row by row.
    pub sums: Vec<DotProduct>,
    /// Whether all rows and columns were computed.
    pub complete: bool,
}

/// Above this number of products, M * N * K, only a sample is computed.
pub const COMPLETE: u64 = 1 << 33;

/// Number of rows and of columns of a sample, including the first and the last.
pub const SAMPLE: u32 = 96;

/// At most `count` places in `0..extent`: all of them, or evenly spread ones with both ends. The uneven stride
/// visits every position inside a tile.
pub fn spread(extent: u32, count: u32) -> Vec<u32> {
    if extent <= count.max(2) {
        return (0..extent).collect();
    }
    let (last, steps) = (u64::from(extent - 1), u64::from(count.max(2) - 1));
    (0..=steps).map(|i| (i * last / steps) as u32).collect()
}

impl Sums {
    /// Computes `A (M, K) * B (K, N)`, for `f32` accumulators, `s32` for integers, or `f64` for `f64`. `step`
    /// is called after each row with the total number of rows.
    ///
    /// Above 2^33 products (M * N * K), only a sample of 96 rows and 96 columns is computed, including the
    /// first and the last.
    pub fn of(a: &HostMatrix, b: &HostMatrix, step: &(dyn Fn(u64) + Sync)) -> Self {
        Self::in_accumulators(AccumulatorPrecision::Single, a, b, step)
    }

    /// As [`of`](Self::of), with error bounds for the given type of accumulators.
    pub fn in_accumulators(
        accumulators: AccumulatorPrecision,
        a: &HostMatrix,
        b: &HostMatrix,
        step: &(dyn Fn(u64) + Sync),
    ) -> Self {
        Elements::new(accumulators, a, b).sums(step)
    }

    /// As [`of`](Self::of), for 8-bit floats with the block scales of A and of B.
    pub fn in_blocks(
        a: &HostMatrix,
        b: &HostMatrix,
        scales: [&Scales; 2],
        step: &(dyn Fn(u64) + Sync),
    ) -> Self {
        Elements::in_blocks(a, b, scales).sums(step)
    }

    /// Multiplies each element by the factor of its row and the factor of its column. The bound is that of a
    /// kernel that multiplies in `f32`, by one factor after the other.
    #[must_use]
    pub fn times(mut self, rows: &[f32], columns: &[f32]) -> Self {
        let at = |factors: &[f32], place: u32| f64::from(factors[place as usize]);
        let places = self.rows.iter().flat_map(|&row| self.columns.iter().map(move |&column| (row, column)));
        for ((row, column), sum) in places.zip(&mut self.sums) {
            let factor = at(rows, row) * at(columns, column);
            sum.value *= factor;
            sum.magnitude *= factor.abs();
            sum.error = sum.error * factor.abs() + 3.0 * U * sum.value.abs();
            sum.overflow = (sum.overflow * factor.abs()).min(F32_OVERFLOW);
        }
        self
    }
}

/// The elements of `A * B`, computed when they are asked for.
///
/// ```
/// use reference::{AccumulatorPrecision, Elements, Format, HostMatrix, Order};
///
/// let ones = |extents, order| HostMatrix::from_fn(Format::Bf16, extents, order, 8, |_, _| 1.0);
/// let (a, b) = (ones([2, 8], Order::RowMajor), ones([8, 3], Order::ColumnMajor));
/// assert_eq!(Elements::new(AccumulatorPrecision::Single, &a, &b).at(1, 2).value, 8.0);
/// ```
#[derive(Debug)]
pub struct Elements<'m> {
    factors: Factors<'m>,
    kept: RefCell<Kept>,
}

/// Two matrices and how they are multiplied.
#[derive(Clone, Copy, Debug)]
struct Factors<'m> {
    a: &'m HostMatrix,
    b: &'m HostMatrix,
    rule: Rule,
    /// The block scales of A and B.
    scales: Option<[&'m Scales; 2]>,
}

impl Factors<'_> {
    fn row(&self, row: u32) -> Vec<f64> {
        (0..self.a.columns).map(|i| self.a.get(row, i)).collect()
    }

    fn column(&self, column: u32) -> Vec<f64> {
        (0..self.b.rows).map(|i| self.b.get(i, column)).collect()
    }

    /// The element of a row of A and a column of B.
    fn sum(&self, [row, column]: [u32; 2], a: &[f64], b: &[f64]) -> DotProduct {
        match self.scales {
            None => self.rule.sum(a, b),
            Some([of_a, of_b]) => {
                let scale = |block| of_a.get(row, block) * of_b.get(column, block);
                scales::sum([a, b], scale, |a, b| self.rule.sum(a, b))
            }
        }
    }
}

/// What [`Elements`] keeps: rows of A and columns of B as numbers, and sums.
#[derive(Debug, Default)]
struct Kept {
    lines: [HashMap<u32, Vec<f64>>; 2],
    sums: HashMap<[u32; 2], DotProduct>,
}

/// Largest number of elements of A, and of B, that are kept.
const MOST_ELEMENTS: usize = 1 << 24;

/// Largest number of sums that are kept.
const MOST_SUMS: usize = 1 << 18;

impl<'m> Elements<'m> {
    /// The elements of `A (M, K) * B (K, N)`, for accumulators of this type.
    pub fn new(accumulators: AccumulatorPrecision, a: &'m HostMatrix, b: &'m HostMatrix) -> Self {
        let rule = Rule::of(accumulators, a.format, b.format);
        Self { factors: Factors { a, b, rule, scales: None }, kept: RefCell::default() }
    }

    /// The same for 8-bit floats with the block scales of A and of B.
    pub fn in_blocks(a: &'m HostMatrix, b: &'m HostMatrix, scales: [&'m Scales; 2]) -> Self {
        let factors = Factors { a, b, rule: Rule::Fp8, scales: Some(scales) };
        Self { factors, kept: RefCell::default() }
    }

    fn extents(&self) -> [u32; 3] {
        [self.factors.a.rows, self.factors.b.columns, self.factors.a.columns]
    }

    /// The element in a row and a column.
    pub fn at(&self, row: u32, column: u32) -> DotProduct {
        let (place, factors) = ([row, column], &self.factors);
        let Kept { lines: [rows, columns], sums } = &mut *self.kept.borrow_mut();
        if let Some(sum) = sums.get(&place) {
            return *sum;
        }
        let most = MOST_ELEMENTS / factors.a.columns.max(1) as usize;
        let a = kept(rows, row, most, || factors.row(row));
        let b = kept(columns, column, most, || factors.column(column));
        let sum = factors.sum(place, a, b);
        *kept(sums, place, MOST_SUMS, || sum)
    }

    /// All elements. `step` is called after each row with the total number of rows.
    pub fn all(&self, step: &(dyn Fn(u64) + Sync)) -> Sums {
        let [m, n, _] = self.extents();
        let (rows, columns) = ((0..m).collect(), (0..n).collect());
        Sums { complete: true, ..self.some(rows, columns, step) }
    }

    /// All elements, or a sample of more than 2^33 products.
    fn sums(&self, step: &(dyn Fn(u64) + Sync)) -> Sums {
        let [m, n, k] = self.extents();
        if complete([m, n, k].map(u128::from)) {
            return self.all(step);
        }
        self.some(spread(m, SAMPLE), spread(n, SAMPLE), step)
    }

    fn some(&self, rows: Vec<u32>, columns: Vec<u32>, step: &(dyn Fn(u64) + Sync)) -> Sums {
        let factors = self.factors;
        let lines: Vec<Vec<f64>> = columns.par_iter().map(|&column| factors.column(column)).collect();
        let total = rows.len() as u64;
        let sums = rows
            .par_iter()
            .flat_map_iter(|&row| {
                let line = factors.row(row);
                let columns = columns.iter().zip(&lines);
                let sums: Vec<_> =
                    columns.map(|(&column, other)| factors.sum([row, column], &line, other)).collect();
                step(total);
                sums
            })
            .collect();
        Sums { rows, columns, sums, complete: false }
    }
}

/// The value of a key: kept, or made and then kept. At most `most` values are kept.
fn kept<K: Eq + Hash, V>(
    values: &mut HashMap<K, V>,
    key: K,
    most: usize,
    make: impl FnOnce() -> V,
) -> &mut V {
    if values.len() > most && !values.contains_key(&key) {
        values.clear();
    }
    values.entry(key).or_insert_with(make)
}

/// How products are accumulated.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Single,
    Double,
    Fp8,
    Half {
        /// Whether the operands are `f16`; otherwise 8-bit floats.
        wide: bool,
    },
    Integers,
}

impl Rule {
    fn of(accumulators: AccumulatorPrecision, a: Format, b: Format) -> Self {
        match (accumulators, a.is_integer() && b.is_integer(), a.bytes()) {
            (_, true, _) => Self::Integers,
            (AccumulatorPrecision::Half, false, bytes) => Self::Half { wide: bytes > 1 },
            (AccumulatorPrecision::Single, false, 1) => Self::Fp8,
            (AccumulatorPrecision::Single, false, 8) => Self::Double,
            (AccumulatorPrecision::Single, false, _) => Self::Single,
        }
    }

    fn sum(self, a: &[f64], b: &[f64]) -> DotProduct {
        let (value, magnitude) = dot(a, b);
        let k = a.len() as u32;
        match self {
            Self::Single => DotProduct::single(k, value, magnitude),
            Self::Double => DotProduct::double(k, exactly(a, b).unwrap_or(value), magnitude),
            Self::Fp8 => DotProduct::of_fp8(k, value, magnitude, reach(a, b)),
            Self::Half { wide } => DotProduct::in_half(k, value, magnitude, reach(a, b), wide),
            Self::Integers => DotProduct::of_integers(value),
        }
    }
}

/// The sum of products of `f64` in twice the precision: the sum, and its rounding errors in a second number.
/// `None` if it is not finite.
fn exactly(a: &[f64], b: &[f64]) -> Option<f64> {
    let (mut large, mut lost) = (0.0f64, 0.0f64);
    for (&x, &y) in a.iter().zip(b) {
        let product = x * y;
        let sum = large + product;
        // The rounding error of the addition, whichever of the two is larger, and that of the product.
        let other = sum - large;
        lost += (large - (sum - other)) + (product - other) + x.mul_add(y, -product);
        large = sum;
    }
    let sum = large + lost;
    sum.is_finite().then_some(sum)
}

/// The largest magnitude of a product, or of a sum of consecutive products.
fn reach(a: &[f64], b: &[f64]) -> f64 {
    let [mut sum, mut least, mut most, mut largest] = [0.0f64; 4];
    for (x, y) in a.iter().zip(b) {
        sum += x * y;
        (least, most, largest) = (least.min(sum), most.max(sum), largest.max((x * y).abs()));
    }
    largest.max(most - least)
}

/// Whether all elements of a problem (M, N, K) are computed, not only a sample.
fn complete([m, n, k]: [u128; 3]) -> bool {
    m * n * k <= u128::from(COMPLETE)
}

/// The sum of products and of their magnitudes, in four independent chains.
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    let mut sums = [0.0; 4];
    let mut magnitudes = [0.0; 4];
    let (a_chunks, b_chunks) = (a.chunks_exact(4), b.chunks_exact(4));
    for (x, y) in a_chunks.remainder().iter().zip(b_chunks.remainder()) {
        sums[0] += x * y;
        magnitudes[0] += (x * y).abs();
    }
    for (x, y) in a_chunks.zip(b_chunks) {
        for i in 0..4 {
            let product = x[i] * y[i];
            sums[i] += product;
            magnitudes[i] += product.abs();
        }
    }
    (sums.iter().sum(), magnitudes.iter().sum())
}

#[cfg(test)]
mod tests {
    use half::f16;
    use ptx::WgmmaTypes;
    use ptx::inst::{Fp8, WgmmaSum};

    use super::*;
    use crate::bound::Expected;
    use crate::matrix::Distribution;
    use crate::{Order, wgmma};

    /// Accumulation in the hardware's steps, over all of K and over parts of it, is within the bounds.
    #[test]
    fn sums_are_within_their_bounds() {
        use WgmmaTypes::{F16F16, Fp8F16, Fp8F32};
        let mut random = fastrand::Rng::with_seed(8);
        for (format, types, k) in [
            (Format::E4m3, Fp8F32(Fp8::E4m3, Fp8::E4m3), 96u32),
            (Format::E5m2, Fp8F32(Fp8::E5m2, Fp8::E5m2), 1000),
            (Format::E4m3, Fp8F32(Fp8::E4m3, Fp8::E4m3), 4096),
            (Format::F16, F16F16, 16),
            (Format::F16, F16F16, 1000),
            (Format::F16, F16F16, 4096),
            (Format::E4m3, Fp8F16(Fp8::E4m3, Fp8::E4m3), 1000),
            (Format::E5m2, Fp8F16(Fp8::E5m2, Fp8::E5m2), 4096),
        ] {
            let half = types.d() == WgmmaSum::F16;
            let mut matrix = |extents, order| {
                HostMatrix::random(format, extents, order, 1, Distribution::Normal, &mut random)
            };
            let (a, b) = (matrix([8, k], Order::RowMajor), matrix([k, 8], Order::ColumnMajor));
            let accumulators = if half { AccumulatorPrecision::Half } else { AccumulatorPrecision::Single };
            let sums = Sums::in_accumulators(accumulators, &a, &b, &|_| ());
            let at_once = types.k() as usize;
            let mut largest = 0.0f64;
            for (place, sum) in (0u32..).zip(&sums.sums) {
                let (row, column) = (place / 8, place % 8);
                let pairs: Vec<_> = (0..k)
                    .map(|i| (a.bits[a.index(row, i)] as u32, b.bits[b.index(i, column)] as u32))
                    .collect();
                for parts in [1, 3] {
                    let part = (k as usize).div_ceil(at_once * parts) * at_once;
                    let each = pairs.chunks(part).map(|part| {
                        let bits = part
                            .chunks(at_once)
                            .fold(None, |old, pairs| Some(wgmma::sum(types, pairs, false, old)))
                            .unwrap_or(0);
                        if half { f16::from_bits(bits as u16).to_f64() } else { f32::from_bits(bits).into() }
                    });
                    let error = (each.sum::<f64>() - sum.value).abs();
                    assert!(error <= sum.error, "{types:?} K {k}: {error} > {}", sum.error);
                    largest = largest.max(error / sum.error);
                }
            }
            assert!(largest > 1e-3, "the bound says something of {types:?} at K {k}: {largest}");
        }
    }

    /// Blocks accumulated in the hardware's steps and promoted with their scales in `f32` are within the
    /// bounds.
    #[test]
    fn sums_of_scaled_blocks_are_within_their_bounds() {
        let mut random = fastrand::Rng::with_seed(9);
        for k in [100u32, 128, 640, 1000] {
            let mut matrix = |extents, order| {
                HostMatrix::random(Format::E4m3, extents, order, 1, Distribution::Normal, &mut random)
            };
            let (a, b) = (matrix([8, k], Order::RowMajor), matrix([k, 8], Order::ColumnMajor));
            let of_a = Scales::random([8, k], 1, &mut random);
            let of_b = Scales::random([8, k], 128, &mut random);
            let sums = Sums::in_blocks(&a, &b, [&of_a, &of_b], &|_| ());
            let types = WgmmaTypes::Fp8F32(Fp8::E4m3, Fp8::E4m3);
            let mut largest = 0.0f64;
            for (place, sum) in (0u32..).zip(&sums.sums) {
                let (row, column) = (place / 8, place % 8);
                let (mut exact, mut got) = (0.0f64, 0.0f32);
                for (block, from) in (0..).zip((0..k).step_by(128)) {
                    let all = from..k.min(from + 128);
                    let pairs: Vec<_> = all
                        .clone()
                        .map(|i| (a.bits[a.index(row, i)] as u32, b.bits[b.index(i, column)] as u32))
                        .collect();
                    let bits = pairs
                        .chunks(32)
                        .fold(None, |old, pairs| Some(wgmma::sum(types, pairs, false, old)))
                        .unwrap_or(0);
                    let scale = of_a.get(row, block) * of_b.get(column, block);
                    let rounded = of_a.get(row, block) as f32 * of_b.get(column, block) as f32;
                    got = f32::from_bits(bits).mul_add(rounded, got);
                    exact += all.map(|i| scale * a.get(row, i) * b.get(i, column)).sum::<f64>();
                }
                assert!((exact - sum.value).abs() <= 1e-12 * sum.magnitude, "{exact} {}", sum.value);
                let error = (f64::from(got) - sum.value).abs();
                assert!(error <= sum.error, "K {k}: {error} > {}", sum.error);
                largest = largest.max(error / sum.error);
            }
            assert!(largest > 1e-3, "the bound says something at K {k}: {largest}");
        }
    }

    #[test]
    fn half_accumulators_overflow() {
        let of = |value: f64| HostMatrix::from_fn(Format::F16, [1, 1], Order::RowMajor, 1, |_, _| value);
        let sums = |value| Sums::in_accumulators(AccumulatorPrecision::Half, &of(value), &of(value), &|_| ());
        for (value, infinite, finite) in [(200.0, false, true), (300.0, true, true)] {
            let sums = sums(value);
            let expected = Expected::new(Format::F32, 1, [1.0, 0.0], sums.sums[0], None);
            let admits = |got| expected.admits(Format::F32, got);
            assert_eq!([admits(f64::INFINITY), admits(value * value)], [infinite, finite], "{value}");
            assert_eq!(sums.sums[0].in_single(1).1.is_infinite(), infinite, "{value}");
        }
    }

    #[test]
    fn sums_of_integers_wrap() {
        let of = |value: f64| HostMatrix::from_fn(Format::U8, [1, 1], Order::RowMajor, 1, |_, _| value);
        assert_eq!(Sums::of(&of(255.0), &of(255.0), &|_| ()).sums, [DotProduct::of_integers(65025.0)]);
        let sum = DotProduct::of_integers(4_294_967_297.0);
        assert_eq!((sum.value, sum.exact), (1.0, 4_294_967_297.0));
    }
}
