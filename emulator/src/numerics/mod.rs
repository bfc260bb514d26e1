//! How floating-point matrix multiplies round.
//!
//! PTX does not define the order and the rounding of the sum in a `wgmma`. [`Numerics::Exact`] does what the
//! hardware does: for each element of D, all products and the old D are summed in one step. With `F` fraction
//! bits:
//!
//! 1. Each product is the exact product of two significands, in [0, 4). Its exponent is the sum of the two
//!    exponents. A subnormal operand has the smallest exponent of its format.
//! 2. `M` is the largest exponent of all products and the old D that are not zero, and at least -133.
//! 3. Each term is truncated toward zero to a multiple of `2^(M - F)`.
//! 4. The terms are added exactly, and the sum is rounded once. A sum that rounds to zero becomes +0.
//!
//! | operands | F | `.f32` result | `.f16` result |
//! |---|---|---|---|
//! | `.f16`, `.bf16`, `.tf32` | 25 | truncated | to nearest even |
//! | `.e4m3`, `.e5m2` | 13 | truncated to 13 fraction bits | to nearest even |
//!
//! `mma.sync` always sums by this rule, whatever the option: the results of an H200 have the same bits.
//!
//! A NaN operand, infinity times zero, and infinities of both signs give the canonical NaN. A sparse multiply
//! sums the products of the kept elements.
//!
//! Source: "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (2025). Three points are
//! corrected by the results of `falchion verify --suite instructions` on an H200 (`docs/hardware.md`): the
//! limit -133, that zeros have no exponent, and the sign of zero.

mod atomic;
mod sum;
mod unpack;

use core::ops::Range;

use ptx::WgmmaTypes;
use ptx::inst::{WgmmaElement, WgmmaSum};

pub(crate) use self::atomic::{changed, flushed};
use self::sum::{Rounding, Rule};
use self::unpack::{Format, Unpacked};

/// How floating-point `wgmma`s round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// Adds one product after the other along K, and rounds each addition to nearest in `.f32`. Fast.
    ///
    /// Error bound: `|D - exact| <= K * 2^-24 * S / (1 - K * 2^-24)`. K is the number of products per element
    /// in a chain of multiplies. S is the sum of the magnitudes of these products and of the first
    /// accumulator. Products of `.tf32` and 16-bit operands are exact in `.f32` unless they leave its range.
    /// `.f16` results are rounded once more per multiply.
    #[default]
    Fast,
    /// The bits of the hardware. Several times slower than [`Numerics::Fast`].
    ///
    /// For each element of D, all products and the old D are summed in one step. With `F` fraction bits:
    ///
    /// 1. Each product is exact. Its exponent is the sum of the exponents of its operands. A subnormal
    ///    operand has the smallest exponent of its format.
    /// 2. `M` is the largest exponent of all products and the old D that are not zero, and at least -133.
    /// 3. Each term is truncated toward zero to a multiple of `2^(M - F)`.
    /// 4. The terms are added exactly, and the sum is rounded once. A sum that rounds to zero becomes +0.
    ///
    /// `F` is 25 for `.f16`, `.bf16` and `.tf32` operands, and 13 for `.e4m3` and `.e5m2`. An `.f32` result
    /// is truncated, for 8-bit operands to 13 fraction bits. An `.f16` result is rounded to nearest even.
    /// Infinities and NaN are as in IEEE 754, with the canonical NaN.
    Exact,
}

/// The operands of one multiply, unpacked into exponents and significands.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    a: Vec<Unpacked>,
    b: Vec<Unpacked>,
    /// The elements of B that are multiplied with a row of a sparse A.
    met: Vec<Unpacked>,
    rule: Rule,
}

impl Exact {
    /// Unpacks the raw elements of both operands.
    pub(crate) fn begin(&mut self, types: WgmmaTypes, negate: bool, a: &[u32], b: &[u32]) {
        self.rule = rule(types);
        let (of_a, of_b) = (format(types.a()), format(types.b()));
        self.a.clear();
        self.a.extend(a.iter().map(|&bits| of_a.unpack(bits).negated(negate)));
        self.b.clear();
        self.b.extend(b.iter().map(|&bits| of_b.unpack(bits)));
    }

    /// One element of D: the dot product of the elements of A from index `a` on and those of B in `b`. For a
    /// sparse A, only the elements of B at `places` take part.
    pub(crate) fn sum(&mut self, a: usize, b: Range<usize>, places: Option<&[u16]>, old: Option<u32>) -> u32 {
        let old = old.map(|bits| self.rule.addend.unpack(bits));
        let b = &self.b[b];
        match places {
            None => self.rule.sum(&self.a[a..][..b.len()], b, old),
            Some(places) => {
                self.met.clear();
                self.met.extend(places.iter().map(|&place| b[usize::from(place)]));
                self.rule.sum(&self.a[a..][..places.len()], &self.met, old)
            }
        }
    }
}

fn format(element: WgmmaElement) -> Format {
    match element {
        WgmmaElement::F16 => Format::F16,
        WgmmaElement::Bf16 => Format::BF16,
        WgmmaElement::Tf32 => Format::TF32,
        WgmmaElement::Fp8(ptx::inst::Fp8::E4m3) => Format::E4M3,
        WgmmaElement::Fp8(ptx::inst::Fp8::E5m2) => Format::E5M2,
        // Integer types are not summed here.
        WgmmaElement::Int8(_) | WgmmaElement::B1 => Format::F16,
    }
}

fn rule(types: WgmmaTypes) -> Rule {
    let short = matches!(types.a(), WgmmaElement::Fp8(_));
    let fraction = if short { 13 } else { 25 };
    let (addend, rounding) = match types.d() {
        WgmmaSum::F16 => (Format::F16, Rounding::Half),
        WgmmaSum::F32 | WgmmaSum::S32 => {
            (Format::F32, Rounding::Single { fraction: if short { 13 } else { 23 } })
        }
    };
    let product_fraction = format(types.a()).fraction + format(types.b()).fraction;
    Rule { fraction, product_fraction, addend, rounding }
}

#[cfg(test)]
mod tests;
