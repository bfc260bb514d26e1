//! Element formats by name, where the type is known at run time only.

use half::{bf16, f16};

/// A 16-bit element format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `bf16`.
    Bf16,
    /// `f16`.
    F16,
}

impl Format {
    /// The format of a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Bf16, Self::F16].into_iter().find(|format| format.name() == name)
    }

    /// `bf16` or `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// The bits of the nearest element, ties to even.
    pub fn round(self, value: f64) -> u16 {
        // Not `half`'s own conversion from f64: it reads the upper 32 bits only, and so takes a value just above a tie
        // for the tie.
        let single = to_odd(value);
        match self {
            Self::Bf16 => bf16::from_f32(single).to_bits(),
            Self::F16 => f16::from_f32(single).to_bits(),
        }
    }

    /// The value of an element.
    pub fn widen(self, bits: u16) -> f64 {
        match self {
            Self::Bf16 => bf16::from_bits(bits).to_f64(),
            Self::F16 => f16::from_bits(bits).to_f64(),
        }
    }

    /// The largest relative error of rounding.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::Bf16 => power(-8),
            Self::F16 => power(-11),
        }
    }

    /// The smallest positive value.
    pub const fn tiniest(self) -> f64 {
        match self {
            Self::Bf16 => power(-133),
            Self::F16 => power(-24),
        }
    }

    /// From here on values round to infinity.
    pub fn overflow(self) -> f64 {
        let largest = match self {
            Self::Bf16 => bf16::MAX.to_f64(),
            Self::F16 => f16::MAX.to_f64(),
        };
        largest * (1.0 + self.unit_roundoff() / 2.0)
    }
}

/// `2^exponent` of a normal number.
const fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Rounds to f32, what is inexact to the neighbour with an odd last bit. Rounding that again to a format of 22 bits or
/// fewer gives what rounding once would have given.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    if value.is_nan() || back == value || !bits.is_multiple_of(2) {
        return nearest;
    }
    // The magnitude is in the low bits: one up is away from zero.
    f32::from_bits(if value.abs() > back.abs() { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_nearest_and_ties_to_even() {
        for (format, largest) in [(Format::Bf16, 0x7f7f_u16), (Format::F16, 0x7bff)] {
            for low in 0..largest {
                let (a, b) = (format.widen(low), format.widen(low + 1));
                let middle = (a + b) / 2.0;
                let even = if low.is_multiple_of(2) { low } else { low + 1 };
                for (why, value, want) in [
                    ("an element is itself", a, low),
                    ("a tie goes to the even one", middle, even),
                    ("just below a tie", middle.next_down(), low),
                    ("just above a tie", middle.next_up(), low + 1),
                ] {
                    assert_eq!(format.round(value), want, "{}: {why}: {value:e}", format.name());
                    assert_eq!(format.round(-value), want | 0x8000, "{}: {why}: {:e}", format.name(), -value);
                }
            }
        }
    }

    #[test]
    fn rounds_the_ends_of_the_range() {
        for format in [Format::Bf16, Format::F16] {
            let name = format.name();
            assert!(format.widen(format.round(f64::NAN)).is_nan(), "{name}");
            for (value, want) in [
                (f64::INFINITY, f64::INFINITY),
                (f64::MAX, f64::INFINITY),
                (-f64::MAX, f64::NEG_INFINITY),
                (f64::MIN_POSITIVE, 0.0),
                (format.tiniest(), format.tiniest()),
                (format.tiniest() * 0.5, 0.0),
                (format.tiniest() * 0.500_001, format.tiniest()),
            ] {
                assert_eq!(format.widen(format.round(value)), want, "{name}: {value:e}");
            }
        }
    }
}
