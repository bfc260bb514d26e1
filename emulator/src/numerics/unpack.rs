//! Floats unpacked into exponent and significand.

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    /// Number of low bits of the container that do not belong to the element.
    drop: u32,
    /// Number of exponent bits.
    exponent: u32,
    /// Number of fraction bits.
    pub(super) fraction: u32,
    /// Whether the largest exponent encodes infinities and NaN. If not, it encodes numbers and one NaN.
    infinities: bool,
}

/// A value: `significand * 2^(exponent - fraction of its format)`.
///
/// Infinities, NaN and zero have exponents far outside every format. So the sum of two exponents is enough to
/// recognise them, and the sum of a row and a column checks nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// For a subnormal: the smallest exponent of the format.
    pub(super) exponent: i32,
    /// Signed. 1 or -1 for an infinity, 0 for a NaN.
    pub(super) significand: i32,
}

/// Exponent of zero.
const ZERO: i32 = -(1 << 12);
/// Exponent of infinities and NaN. Its sum with [`ZERO`] is still above [`SPECIAL`].
const NO_NUMBER: i32 = 1 << 14;
/// If the sum of two exponents is above this, one of them is [`NO_NUMBER`].
pub(super) const SPECIAL: i32 = 1 << 12;

impl Format {
    pub(super) const F16: Self = Self { drop: 0, exponent: 5, fraction: 10, infinities: true };
    pub(super) const BF16: Self = Self { drop: 0, exponent: 8, fraction: 7, infinities: true };
    pub(super) const TF32: Self = Self { drop: 13, exponent: 8, fraction: 10, infinities: true };
    pub(super) const F32: Self = Self { drop: 0, exponent: 8, fraction: 23, infinities: true };
    pub(super) const E4M3: Self = Self { drop: 0, exponent: 4, fraction: 3, infinities: false };
    pub(super) const E5M2: Self = Self { drop: 0, exponent: 5, fraction: 2, infinities: true };

    pub(super) fn unpack(self, bits: u32) -> Unpacked {
        let bits = bits >> self.drop;
        let negative = bits >> (self.exponent + self.fraction) & 1 == 1;
        let top = (1u32 << self.exponent) - 1;
        let field = bits >> self.fraction & top;
        let fraction = bits & ((1 << self.fraction) - 1);
        let bias = (top >> 1).cast_signed();
        let nan_or_infinity = match self.infinities {
            true => field == top,
            false => field == top && fraction == (1 << self.fraction) - 1,
        };
        let magnitude = match (nan_or_infinity, field) {
            (true, _) => u32::from(self.infinities && fraction == 0),
            (false, 0) => fraction,
            (false, _) => fraction | 1 << self.fraction,
        };
        let exponent = match (nan_or_infinity, magnitude) {
            (true, _) => NO_NUMBER,
            (false, 0) => ZERO,
            (false, _) => field.max(1).cast_signed() - bias,
        };
        let significand = magnitude.cast_signed();
        Unpacked { exponent, significand: if negative { -significand } else { significand } }
    }
}

impl Unpacked {
    pub(super) fn negated(self, negate: bool) -> Self {
        Self { significand: if negate { -self.significand } else { self.significand }, ..self }
    }

    /// The value as a term of a sum that is infinite or NaN. Only its class and sign matter.
    pub(super) fn special(self) -> f64 {
        match (self.exponent, self.significand) {
            (NO_NUMBER, 0) => f64::NAN,
            (NO_NUMBER, sign) => f64::from(sign) * f64::INFINITY,
            (_, significand) => significand.into(),
        }
    }
}
