//! The innermost loop of a multiply: it makes each sum of products in the order of K, rounded after each product and each
//! addition. So the bits are the same on each vector unit.

use super::vectors::{Vectors, dispatch};

/// The sums of two columns of each of 4 lanes, for 8 rows: by the column's parity and the lane.
pub(super) type Sums = [[f32; 32]; 2];
/// An element of A per lane.
pub(super) type OfA = [f32; 32];
/// An element of B by the column's parity, for each of 4 lanes.
pub(super) type OfB = [[f32; 4]; 2];

/// `sums[parity][lane] += a[k][lane] * b[k][parity][lane % 4]` for every k in order. Most of the time is spent here.
pub(super) fn add_products(sums: &mut Sums, a: &[OfA], b: &[OfB]) {
    dispatch(Products { sums, a, b });
}

struct Products<'p> {
    sums: &'p mut Sums,
    a: &'p [OfA],
    b: &'p [OfB],
}

impl Vectors for Products<'_> {
    #[inline(always)]
    fn run<const W: usize>(self) {
        add::<W>(self.sums, self.a, self.b);
    }
}

/// The same, on vectors of `W` elements.
#[inline(always)]
pub(super) fn add<const W: usize>(sums: &mut Sums, a: &[OfA], b: &[OfB]) {
    if W < 8 {
        // Both do not fit in 16 vectors.
        for (parity, sums) in sums.iter_mut().enumerate() {
            let mut total = *sums;
            for (a, b) in a.iter().zip(b) {
                add_one::<W>(&mut total, a, &b[parity]);
            }
            *sums = total;
        }
        return;
    }
    let mut total = *sums;
    for (a, b) in a.iter().zip(b) {
        for (total, b) in total.iter_mut().zip(b) {
            add_one::<W>(total, a, b);
        }
    }
    *sums = total;
}

/// `total[lane] += a[lane] * b[lane % 4]`.
#[inline(always)]
fn add_one<const W: usize>(total: &mut [f32; 32], a: &OfA, b: &[f32; 4]) {
    let b: [f32; W] = core::array::from_fn(|lane| b[lane % 4]);
    for (total, a) in total.as_chunks_mut::<W>().0.iter_mut().zip(a.as_chunks::<W>().0) {
        for ((total, a), b) in total.iter_mut().zip(a).zip(b) {
            *total += a * b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn products(value: impl Fn(u32) -> f32) {
        for k in [0, 1, 8, 16, 32] {
            let of_a = |k: u32| core::array::from_fn(|lane| value(k * 64 + lane as u32 / 4));
            let of_b =
                |k: u32| [0, 1].map(|odd| core::array::from_fn(|c| value(7777 + k * 8 + odd * 4 + c as u32)));
            let (a, b): (Vec<OfA>, Vec<OfB>) = (0..k).map(|k| (of_a(k), of_b(k))).unzip();
            let start: Sums =
                [0, 1].map(|odd| core::array::from_fn(|lane| value(99 + odd * 32 + lane as u32)));
            let mut sums = start;
            add_products(&mut sums, &a, &b);
            for (parity, lane) in (0..2).flat_map(|parity| (0..32).map(move |lane| (parity, lane))) {
                let products = a.iter().zip(&b).map(|(a, b)| a[lane] * b[parity][lane % 4]);
                let want = products.fold(start[parity][lane], |sum, product| sum + product);
                let got = sums[parity][lane];
                assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{got} {want}");
            }
        }
    }

    fn mixed(seed: u32) -> u32 {
        seed.wrapping_mul(0x9E37_79B9) ^ seed << 7
    }

    /// Whatever the host has, the bits are those of the definition: of rounded products, infinities and subnormals too.
    #[test]
    fn each_vector_unit_gives_the_same_bits() {
        products(|seed| match mixed(seed) % 9 {
            0 => f32::from_bits(mixed(seed) >> 9),
            1 => f32::MAX,
            2 => f32::INFINITY,
            _ => (mixed(seed) >> 8) as f32 / 1e6 - 8.0,
        });
    }
}
