//! The values of operands: random bits that produce every hard case of a sum.

use fastrand::Rng;
use ptx::WgmmaTypes;
use ptx::inst::{Fp8, WgmmaElement};

/// The kind of values in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Magnitudes around one.
    Normal,
    /// Products that cancel in pairs, except for few.
    Cancelling,
    /// Products within about 14 binades, where truncation determines the result.
    Window,
    /// Products within about 30 binades.
    Wide,
    /// Every exponent of the format.
    Spread,
    /// Subnormal operands, multiplied with large ones and with each other.
    Subnormal,
    /// The largest exponents.
    Huge,
    /// The smallest exponents, so that products underflow.
    Tiny,
    /// Mostly zeros of both signs.
    Zeros,
    /// Some infinities, some zeros.
    Infinite,
    /// Some NaN with different payloads.
    Nan,
    /// Any bits. For integers, this and [`Kind::Extreme`] are the only kinds.
    Bits,
    /// The limits of the integers' ranges.
    Extreme,
}

/// The fields of a floating-point format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    /// Number of bits below the fraction that are not read.
    pub(super) dropped: u32,
    pub(super) exponent: u32,
    pub(super) fraction: u32,
    pub(super) infinities: bool,
}

impl Fields {
    /// The format of an element; `None` for integers.
    pub(super) fn of(element: WgmmaElement) -> Option<Self> {
        let (dropped, exponent, fraction, infinities) = match element {
            WgmmaElement::F16 => (0, 5, 10, true),
            WgmmaElement::Bf16 => (0, 8, 7, true),
            WgmmaElement::Tf32 => (13, 8, 10, true),
            WgmmaElement::Fp8(Fp8::E4m3) => (0, 4, 3, false),
            WgmmaElement::Fp8(Fp8::E5m2) => (0, 5, 2, true),
            WgmmaElement::Int8(_) | WgmmaElement::B1 => return None,
        };
        Some(Self { dropped, exponent, fraction, infinities })
    }

    fn top(self) -> u32 {
        (1 << self.exponent) - 1
    }

    fn bias(self) -> i32 {
        (self.top() >> 1).cast_signed()
    }

    /// The exponents of the smallest normal number and of the largest number.
    fn range(self) -> (i32, i32) {
        let last = if self.infinities { self.top() - 1 } else { self.top() };
        (1 - self.bias(), last.cast_signed() - self.bias())
    }

    fn bits(self, random: &mut Rng, field: u32, fraction: u32) -> u32 {
        let sign = u32::from(random.bool()) << self.exponent << self.fraction;
        let dropped = random.u32(..) & ((1 << self.dropped) - 1);
        (sign | field << self.fraction | fraction) << self.dropped | dropped
    }

    /// A number with an exponent in the range, clipped to the format's. An exponent below the smallest gives
    /// a subnormal number.
    fn number(self, random: &mut Rng, low: i32, high: i32) -> u32 {
        let (first, last) = self.range();
        let exponent = random.i32(low..=high).clamp(first - 1, last);
        let fraction = random.u32(..) & ((1 << self.fraction) - 1);
        let field = (exponent + self.bias()).cast_unsigned();
        let nan = !self.infinities && field == self.top() && fraction == (1 << self.fraction) - 1;
        self.bits(random, field, fraction - u32::from(nan))
    }

    fn zero(self, random: &mut Rng) -> u32 {
        // The unread bits of a zero stay zero, because they count for an accumulator of `.f32`.
        self.bits(random, 0, 0) >> self.dropped << self.dropped
    }

    fn infinity(self, random: &mut Rng) -> u32 {
        if self.infinities {
            self.bits(random, self.top(), 0) >> self.dropped << self.dropped
        } else {
            self.nan(random)
        }
    }

    fn nan(self, random: &mut Rng) -> u32 {
        let all = (1 << self.fraction) - 1;
        let payload = if self.infinities { random.u32(1..=all) } else { all };
        self.bits(random, self.top(), payload)
    }
}

/// Which operand an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    A,
    B,
    /// The old D.
    Old,
}

impl Kind {
    /// The kinds that are useful for a type.
    pub(super) fn of(types: WgmmaTypes) -> Vec<Self> {
        if !types.allows_negation() {
            return vec![Self::Bits, Self::Extreme];
        }
        vec![
            Self::Normal,
            Self::Cancelling,
            Self::Window,
            Self::Wide,
            Self::Spread,
            Self::Subnormal,
            Self::Huge,
            Self::Tiny,
            Self::Zeros,
            Self::Infinite,
            Self::Nan,
            Self::Bits,
        ]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Cancelling => "cancelling",
            Self::Window => "window of exponents",
            Self::Wide => "wide window of exponents",
            Self::Spread => "every exponent",
            Self::Subnormal => "subnormal",
            Self::Huge => "largest exponents",
            Self::Tiny => "smallest exponents",
            Self::Zeros => "zeros",
            Self::Infinite => "infinities",
            Self::Nan => "NaN",
            Self::Bits => "any bits",
            Self::Extreme => "extremes",
        }
    }

    /// Draws one element.
    pub(super) fn draw(self, random: &mut Rng, element: WgmmaElement, role: Role) -> u32 {
        let old = role == Role::Old;
        let Some(format) = Fields::of(element) else { return self.integer(random, old) };
        let (first, last) = format.range();
        let one_in = |random: &mut Rng, n: u32| random.u32(..n) == 0;
        match self {
            Self::Normal | Self::Cancelling if old => format.number(random, -2, 3),
            Self::Normal | Self::Cancelling => format.number(random, -3, 1),
            Self::Window if old => format.number(random, -14, 1),
            Self::Window => format.number(random, -7, 0),
            Self::Wide if old => format.number(random, -30, 1),
            Self::Wide => format.number(random, -15, 0),
            Self::Spread => format.number(random, first - 1, last),
            Self::Subnormal if old => format.number(random, first - 1, first + last),
            Self::Subnormal if role == Role::A || one_in(random, 4) => {
                format.number(random, first - 1, first)
            }
            Self::Subnormal => format.number(random, last - 3, last),
            Self::Huge => format.number(random, last - 2, last),
            Self::Tiny if old && random.bool() => format.zero(random),
            Self::Tiny if old => format.number(random, first - 1, first + 6),
            // About half of the smallest exponent, so that products are on both sides of the smallest `.f32`.
            Self::Tiny if one_in(random, 2) => format.number(random, first / 2 - 16, first / 2),
            Self::Tiny => format.number(random, first - 1, first + 4),
            Self::Zeros if old && random.bool() => format.number(random, first - 1, 0),
            Self::Zeros if one_in(random, 5) => format.number(random, -20, 20),
            Self::Zeros => format.zero(random),
            Self::Infinite if one_in(random, if old { 8 } else { 48 }) => format.infinity(random),
            Self::Infinite if one_in(random, 24) => format.zero(random),
            Self::Nan if one_in(random, if old { 16 } else { 128 }) => format.nan(random),
            Self::Infinite | Self::Nan => format.number(random, -3, 1),
            Self::Bits | Self::Extreme => random.u32(..),
        }
    }

    fn integer(self, random: &mut Rng, old: bool) -> u32 {
        match self {
            Self::Extreme if old => {
                let near = random.u32(..0x4_0000);
                if random.bool() { i32::MAX.cast_unsigned() - near } else { i32::MIN.cast_unsigned() + near }
            }
            Self::Extreme => [0x7F, 0x80, 0xFF, 0x00, 0x81][random.usize(..5)],
            Self::Normal
            | Self::Cancelling
            | Self::Window
            | Self::Wide
            | Self::Spread
            | Self::Subnormal
            | Self::Huge
            | Self::Tiny
            | Self::Zeros
            | Self::Infinite
            | Self::Nan
            | Self::Bits => random.u32(..),
        }
    }
}
