//! How floating-point matrix multiplies round.
//!
//! PTX leaves the order and the rounding of a `wgmma`'s sum open. [`Numerics::Exact`] does what the hardware does: for
//! each element of D all products and the old D are summed in one step. With `F` fraction bits,
//!
//! 1. each product is the exact product of two significands, in [0, 4), with the sum of the two exponents; a
//!    subnormal operand has the smallest exponent of its format;
//! 2. `M` is the largest exponent of all products and the old D that are not zero, and at least -133;
//! 3. each term is truncated toward zero to a multiple of `2^(M - F)`;
//! 4. the terms are added exactly, and the sum is rounded once; what rounds to zero is +0.
//!
//! | operands | F | `.f32` result | `.f16` result |
//! |---|---|---|---|
//! | `.f16`, `.bf16`, `.tf32` | 25 | truncated | to nearest even |
//! | `.e4m3`, `.e5m2` | 13 | truncated to 13 fraction bits | to nearest even |
//!
//! `mma.sync` sums in the same way, whatever the option: its results of an H200 have the bits of this rule.
//!
//! A NaN operand, an infinity times zero and infinities of both signs give the canonical NaN. A sparse multiply sums
//! the products of the kept elements. Source: "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix
//! Cores" (2025), corrected in the -133, the absence of zeros and the sign of zero by what an H200 answered to
//! `falchion verify --suite instructions` (`docs/hardware.md`).

mod sum;
mod unpack;

use core::ops::Range;

use ptx::WgmmaTypes;
use ptx::inst::{WgmmaElement, WgmmaSum};

use self::sum::{Rounding, Rule};
use self::unpack::{Format, Unpacked};

/// How floating-point `wgmma`s round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// One product after the other along K, each addition rounded to nearest in `.f32`: fast, and inside
    /// `|D - exact| <= K * 2^-24 * S / (1 - K * 2^-24)`, where K counts all products of a chain of multiplies and S is
    /// the sum of their magnitudes and of the first accumulator's (products of `.tf32` and 16-bit operands are exact in
    /// `.f32` unless they leave its range). `.f16` results are rounded once more for each multiply.
    #[default]
    Fast,
    /// Bit for bit what the hardware gives, at several times the cost.
    Exact,
}

/// The operands of one multiply, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    a: Vec<Unpacked>,
    b: Vec<Unpacked>,
    /// B's elements that meet a row of a sparse A.
    met: Vec<Unpacked>,
    rule: Rule,
}

impl Exact {
    /// Takes the raw elements of both operands.
    pub(crate) fn begin(&mut self, types: WgmmaTypes, negate: bool, a: &[u32], b: &[u32]) {
        self.rule = rule(types);
        let (of_a, of_b) = (format(types.a()), format(types.b()));
        self.a.clear();
        self.a.extend(a.iter().map(|&bits| of_a.unpack(bits).negated(negate)));
        self.b.clear();
        self.b.extend(b.iter().map(|&bits| of_b.unpack(bits)));
    }

    /// An element of D: the elements of A from `a` on meet those of B in `b`, for a sparse A those at `places`.
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
        // Integers are summed as such.
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
