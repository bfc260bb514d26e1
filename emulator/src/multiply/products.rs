//! The innermost loop of a multiply: it makes each sum of products in the order of K.

use super::vectors::{Vectors, dispatch};

/// The sums of two columns of each of 4 lanes, for 8 rows: by the column's parity and the lane.
pub(super) type Sums = [[f32; 32]; 2];
/// An element of A per lane.
pub(super) type OfA = [f32; 32];
/// An element of B by the column's parity, for each of 4 lanes.
pub(super) type OfB = [[f32; 4]; 2];

/// `sums[parity][lane] += a[k][lane] * b[k][parity][lane % 4]` for every k in order. Most of the time is spent here.
///
/// Each sum is rounded after each product. `exact`: no product is rounded, so that it is the same to fuse the two.
pub(super) fn add_products(sums: &mut Sums, a: &[OfA], b: &[OfB], exact: bool) {
    dispatch(Products { sums, a, b, exact });
}

struct Products<'p> {
    sums: &'p mut Sums,
    a: &'p [OfA],
    b: &'p [OfB],
    exact: bool,
}

impl Vectors for Products<'_> {
    #[inline(always)]
    fn run<const W: usize, const FUSED: bool>(self) {
        let Self { sums, a, b, exact } = self;
        if W < 8 {
            // Both do not fit in 16 vectors.
            for (parity, sums) in sums.iter_mut().enumerate() {
                let mut total = *sums;
                a.iter().zip(b).for_each(|(a, b)| add::<W, false>(&mut total, a, &b[parity]));
                *sums = total;
            }
        } else if FUSED && exact {
            add_both::<W, true>(sums, a, b);
        } else {
            add_both::<W, false>(sums, a, b);
        }
    }
}

#[inline(always)]
fn add_both<const W: usize, const FUSED: bool>(sums: &mut Sums, a: &[OfA], b: &[OfB]) {
    let mut total = *sums;
    for (a, b) in a.iter().zip(b) {
        total.iter_mut().zip(b).for_each(|(total, b)| add::<W, FUSED>(total, a, b));
    }
    *sums = total;
}

/// `total[lane] += a[lane] * b[lane % 4]`.
#[inline(always)]
fn add<const W: usize, const FUSED: bool>(total: &mut [f32; 32], a: &OfA, b: &[f32; 4]) {
    let b: [f32; W] = core::array::from_fn(|lane| b[lane % 4]);
    for (total, a) in total.as_chunks_mut::<W>().0.iter_mut().zip(a.as_chunks::<W>().0) {
        for ((total, a), b) in total.iter_mut().zip(a).zip(b) {
            *total = if FUSED { a.mul_add(b, *total) } else { *total + a * b };
        }
    }
}

/// The least and the first too large magnitude of elements of which every product is exact in `.f32`, if they have no more than 12
/// bits: their products are normal numbers, and finite.
const EXACT: core::ops::Range<u32> = (127 - 63) << 23..(127 + 63) << 23;

/// Whether a product of such elements is exact. Zeros are such elements too.
#[inline(always)]
pub(super) fn is_exact(element: f32) -> bool {
    let magnitude = element.to_bits() & 0x7FFF_FFFF;
    magnitude == 0 || magnitude.wrapping_sub(EXACT.start) < EXACT.end - EXACT.start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn products(exact: bool, value: impl Fn(u32) -> f32) {
        for k in [0, 1, 8, 16, 32] {
            let of_a = |k: u32| core::array::from_fn(|lane| value(k * 64 + lane as u32 / 4));
            let of_b =
                |k: u32| [0, 1].map(|odd| core::array::from_fn(|c| value(7777 + k * 8 + odd * 4 + c as u32)));
            let (a, b): (Vec<OfA>, Vec<OfB>) = (0..k).map(|k| (of_a(k), of_b(k))).unzip();
            let start: Sums =
                [0, 1].map(|odd| core::array::from_fn(|lane| value(99 + odd * 32 + lane as u32)));
            let mut sums = start;
            add_products(&mut sums, &a, &b, exact);
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
        products(false, |seed| match mixed(seed) % 9 {
            0 => f32::from_bits(mixed(seed) >> 9),
            1 => f32::MAX,
            2 => f32::INFINITY,
            _ => (mixed(seed) >> 8) as f32 / 1e6 - 8.0,
        });
    }

    /// The largest and smallest elements with exact products, and others between them, with 12 bits.
    #[test]
    fn exact_products_may_be_fused() {
        let ends = [EXACT.start, EXACT.end - (1 << 12), EXACT.start | 0xFFF << 12 & 0x7F_FFFF, 0];
        let values = |seed: u32| match mixed(seed) % 5 {
            0 => f32::from_bits(ends[seed as usize % 4]),
            _ => f32::from_bits((0x3F80_0000 + (mixed(seed) & 0x7F_F000)) ^ mixed(seed) << 31),
        };
        assert!((0..9999).all(|seed| is_exact(values(seed))));
        products(true, values);
        for bits in [EXACT.start - 1, EXACT.end, 1, 0x7F80_0000, 0x7FC0_0000] {
            assert!(!is_exact(f32::from_bits(bits)));
        }
    }
}
