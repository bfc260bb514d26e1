//! The arithmetic of [`Numerics::Fast`](crate::Numerics::Fast): one product after the other, each sum rounded
//! to nearest.

use ptx::inst::{Reg, WgmmaSum};

use super::operands::Matrices;
use crate::float::{NAN32, element, from_f16, to_f16};
use crate::warp::Registers;

/// Operands as floats, in the layout of the accumulators. For a sparse multiply they are in the order of the
/// matrices.
#[derive(Debug, Default)]
pub(crate) struct Fast {
    /// Per 8 rows: an element of A per k and lane.
    a: Vec<[f32; 32]>,
    /// Per 8 columns and parity of the column: an element of B per k and each of 4 lanes.
    b: Vec<[f32; 4]>,
}

impl Fast {
    /// Converts the operands.
    pub(crate) fn begin(&mut self, matrices: &Matrices, negate: bool) {
        let k = matrices.k_a;
        let (from_a, from_b) = (element(matrices.types.a()), element(matrices.types.b()));
        let from_a = |bits| if negate { -from_a(bits) } else { from_a(bits) };
        if matrices.places(0).is_some() {
            self.a.resize(matrices.a.len() / 32, [0.0; 32]);
            self.b.resize(matrices.b.len() / 4, [0.0; 4]);
            for (place, &bits) in self.a.as_flattened_mut().iter_mut().zip(&matrices.a) {
                *place = from_a(bits);
            }
            for (place, &bits) in self.b.as_flattened_mut().iter_mut().zip(&matrices.b) {
                *place = from_b(bits);
            }
            return;
        }
        self.a.resize(8 * k, [0.0; 32]);
        for (row, elements) in matrices.a.chunks_exact(k).enumerate() {
            for (lanes, &bits) in self.a[row / 8 * k..].iter_mut().zip(elements) {
                lanes[row % 8 * 4..][..4].fill(from_a(bits));
            }
        }
        self.b.resize(matrices.b.len() / 4, [0.0; 4]);
        for (column, elements) in matrices.b.chunks_exact(k).enumerate() {
            for (lanes, &bits) in self.b[(column / 8 * 2 + column % 2) * k..].iter_mut().zip(elements) {
                lanes[column % 8 / 2] = from_b(bits);
            }
        }
    }

    /// Adds one warp's products to its accumulators.
    pub(crate) fn multiply(
        &self,
        matrices: &Matrices,
        registers: &mut Registers<'_>,
        quarter: usize,
        d: &[Reg],
        accumulate: bool,
    ) {
        if matrices.places(0).is_some() {
            return self.multiply_sparse(matrices, registers, quarter, d, accumulate);
        }
        let k = matrices.k_a;
        let a = |half: usize| &self.a[(quarter * 2 + half) * k..][..k];
        let b = |group: usize| &self.b[group * k..][..k];
        if matrices.types.d() == WgmmaSum::F16 {
            for (r, &reg) in d.iter().enumerate() {
                let lanes = registers.lent(reg);
                let mut packed = [0u32; 32];
                for parity in 0..2 {
                    let old = lanes.map(|bits| from_f16((bits >> (16 * parity)) as u16));
                    let mut sums = if accumulate { old } else { [0.0; 32] };
                    add_products(&mut sums, a(r % 2), b(r / 2 * 2 + parity));
                    for (packed, sum) in packed.iter_mut().zip(sums) {
                        *packed |= u32::from(to_f16(sum)) << (16 * parity);
                    }
                }
                *lanes = packed;
            }
        } else {
            for (v, &reg) in d.iter().enumerate() {
                let lanes = registers.lent(reg);
                let mut sums = if accumulate { lanes.map(f32::from_bits) } else { [0.0; 32] };
                add_products(&mut sums, a(v / 2 % 2), b(v / 4 * 2 + v % 2));
                *lanes = sums.map(|sum| if sum.is_nan() { NAN32 } else { sum.to_bits() });
            }
        }
    }

    fn multiply_sparse(
        &self,
        matrices: &Matrices,
        registers: &mut Registers<'_>,
        quarter: usize,
        d: &[Reg],
        accumulate: bool,
    ) {
        let halves = matrices.types.d() == WgmmaSum::F16;
        let (a, b) = (self.a.as_flattened(), self.b.as_flattened());
        matrices.each_sum(registers, quarter, d, |row, column, old| {
            let old = if halves { from_f16(old as u16) } else { f32::from_bits(old) };
            let mut sum = if accumulate { old } else { 0.0 };
            let (a, b) = (&a[row * matrices.k_a..], &b[column * matrices.k_b..]);
            for (&place, a) in matrices.places(row).into_iter().flatten().zip(a) {
                sum += a * b[usize::from(place)];
            }
            match halves {
                true => to_f16(sum).into(),
                false if sum.is_nan() => NAN32,
                false => sum.to_bits(),
            }
        });
    }
}

/// `sums[lane] += a[k][lane] * b[k][lane % 4]` for every k in order. Most of the time is spent in this loop.
#[inline(never)]
fn add_products(sums: &mut [f32; 32], a: &[[f32; 32]], b: &[[f32; 4]]) {
    let mut total = *sums;
    for (a, b) in a.iter().zip(b) {
        for row in 0..8 {
            for c in 0..4 {
                total[row * 4 + c] += a[row * 4 + c] * b[c];
            }
        }
    }
    *sums = total;
}
