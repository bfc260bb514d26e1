//! Element formats by name, where the type is known at run time only.

use half::{bf16, f16};

use collective::Element;

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
            Self::Bf16 => bf16::NAME,
            Self::F16 => f16::NAME,
        }
    }

    /// The bits of the nearest element, ties to even.
    pub fn round(self, value: f64) -> u16 {
        match self {
            Self::Bf16 => bf16::from_f64(value).to_bits(),
            Self::F16 => f16::from_f64(value).to_bits(),
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
            Self::Bf16 => bf16::UNIT_ROUNDOFF,
            Self::F16 => f16::UNIT_ROUNDOFF,
        }
    }

    /// The smallest positive value.
    pub const fn tiniest(self) -> f64 {
        match self {
            Self::Bf16 => bf16::TINIEST,
            Self::F16 => f16::TINIEST,
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
