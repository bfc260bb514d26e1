//! The arithmetic of [`Numerics::Fast`](crate::Numerics::Fast): one product after the other, each sum rounded
//! to nearest.

use ptx::inst::{Reg, WgmmaElement, WgmmaSum};

use super::operands::Matrices;
use super::products::{OfA, OfB, Sums, add, add_products};
use super::spread::{Halves, spread};
use super::vectors::{Vectors, dispatch};
use crate::float::{NAN32, element, from_bf16, from_f16, to_f16};
use crate::warp::Registers;

/// Operands as floats, in the layout of the accumulators. For a sparse multiply they are in the order of the
/// matrices.
#[derive(Debug, Default)]
pub(crate) struct Fast {
    /// Per 8 rows: an element of A per k and lane.
    a: Vec<OfA>,
    /// Per 8 columns: an element of B per k, parity of the column and each of 4 lanes.
    b: Vec<OfB>,
}

impl Fast {
    /// Converts the operands: from shared memory where [`Halves`] have them, the others from the matrices.
    pub(crate) fn begin(&mut self, matrices: &Matrices, negate: bool, [of_a, of_b]: [Option<Halves<'_>>; 2]) {
        let k = matrices.k_a;
        let (from_a, from_b) = (element(matrices.types.a()), element(matrices.types.b()));
        let from_a = |bits| if negate { -from_a(bits) } else { from_a(bits) };
        if matrices.places(0).is_some() {
            self.a.resize(matrices.a.len() / 32, [0.0; 32]);
            self.b.resize(matrices.b.len() / 8, [[0.0; 4]; 2]);
            for (place, &bits) in self.a.as_flattened_mut().iter_mut().zip(&matrices.a) {
                *place = from_a(bits);
            }
            for (place, &bits) in self.b.as_flattened_mut().as_flattened_mut().iter_mut().zip(&matrices.b) {
                *place = from_b(bits);
            }
            return;
        }
        self.a.resize(8 * k, [0.0; 32]);
        self.b.resize(matrices.b.len() / 8, [[0.0; 4]; 2]);
        let sign = if negate { 1 << 15 } else { 0 };
        if let Some(halves) = of_a {
            if matrices.types.a() == WgmmaElement::Bf16 {
                spread(halves, &mut self.a, |bits| from_bf16(bits ^ sign));
            } else {
                spread(halves, &mut self.a, |bits| from_f16(bits ^ sign));
            }
        } else {
            for (row, elements) in matrices.a.chunks_exact(k).enumerate() {
                for (lanes, &bits) in self.a[row / 8 * k..].iter_mut().zip(elements) {
                    lanes[row % 8 * 4..][..4].fill(from_a(bits));
                }
            }
        }
        if let Some(halves) = of_b {
            if matrices.types.b() == WgmmaElement::Bf16 {
                spread(halves, &mut self.b, from_bf16);
            } else {
                spread(halves, &mut self.b, from_f16);
            }
        } else {
            for (column, elements) in matrices.b.chunks_exact(k).enumerate() {
                for (lanes, &bits) in self.b[column / 8 * k..].iter_mut().zip(elements) {
                    lanes[column % 2][column % 8 / 2] = from_b(bits);
                }
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
        let start = |sums: Sums| if accumulate { sums } else { [[0.0; 32]; 2] };
        if matrices.types.d() == WgmmaSum::F16 {
            for (r, &reg) in d.iter().enumerate() {
                let lanes = registers.lent(reg);
                let old = |parity: usize| lanes.map(|bits| from_f16((bits >> (16 * parity)) as u16));
                let mut sums = start([old(0), old(1)]);
                add_products(&mut sums, a(r % 2), b(r / 2));
                *lanes = core::array::from_fn(|lane| {
                    u32::from(to_f16(sums[0][lane])) | u32::from(to_f16(sums[1][lane])) << 16
                });
            }
        } else {
            dispatch(Singles { registers, d, operands: (a, b), accumulate });
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
        let (a, b) = (self.a.as_flattened(), self.b.as_flattened().as_flattened());
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

/// The products of one warp whose sums are `.f32`.
struct Singles<'m, 'p, A, B> {
    registers: &'m mut Registers<'p>,
    d: &'m [Reg],
    /// A by half of the warp's rows, and B by 8 columns.
    operands: (A, B),
    accumulate: bool,
}

impl<'o, A: Fn(usize) -> &'o [OfA], B: Fn(usize) -> &'o [OfB]> Vectors for Singles<'_, '_, A, B> {
    #[inline(always)]
    fn run<const W: usize>(self) {
        let Self { registers, d, operands: (a, b), accumulate } = self;
        for (pair, regs) in d.as_chunks::<2>().0.iter().enumerate() {
            let mut sums = [[0.0; 32]; 2];
            if accumulate {
                for (sums, &reg) in sums.iter_mut().zip(regs) {
                    for (sum, &bits) in sums.iter_mut().zip(&*registers.lent(reg)) {
                        *sum = f32::from_bits(bits);
                    }
                }
            }
            add::<W>(&mut sums, a(pair % 2), b(pair / 2));
            for (sums, &reg) in sums.iter().zip(regs) {
                for (&sum, bits) in sums.iter().zip(registers.lent(reg)) {
                    *bits = if sum.is_nan() { NAN32 } else { sum.to_bits() };
                }
            }
        }
    }
}
