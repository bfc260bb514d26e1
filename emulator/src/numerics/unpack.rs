//! Floats taken apart.

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    /// Bits that the element is cut from its container below.
    drop: u32,
    /// Bits of the exponent.
    exponent: u32,
    /// Bits of the fraction.
    pub(super) fraction: u32,
    /// Whether the largest exponent means infinities and NaN, and not numbers and one NaN.
    infinities: bool,
}

/// A value: `significand * 2^(exponent - fraction of its format)`, or something that is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    pub(super) class: Class,
    pub(super) negative: bool,
    /// Of a subnormal the smallest of the format.
    pub(super) exponent: i32,
    pub(super) significand: u32,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Finite,
    Infinite,
    Nan,
}

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
        let class = match self.infinities {
            true if field == top && fraction == 0 => Class::Infinite,
            true if field == top => Class::Nan,
            false if field == top && fraction == (1 << self.fraction) - 1 => Class::Nan,
            _ => Class::Finite,
        };
        let (exponent, significand) = if field == 0 {
            (1 - bias, fraction)
        } else {
            (field.cast_signed() - bias, fraction | 1 << self.fraction)
        };
        Unpacked { class, negative, exponent, significand }
    }
}

impl Unpacked {
    pub(super) fn negated(self, negate: bool) -> Self {
        Self { negative: self.negative != negate, ..self }
    }
}
