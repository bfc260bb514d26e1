//! Formats of results: what an element's bits mean, and how far rounding moves a value.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// A format of elements that a kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE binary32.
    F32,
    /// The upper half of binary32.
    Bf16,
    /// IEEE binary16.
    F16,
    /// 8 bits, 4 of them exponent: no infinity, and one NaN of either sign.
    E4m3,
    /// 8 bits, 5 of them exponent.
    E5m2,
}

impl Element {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::F32, Self::Bf16, Self::F16, Self::E4m3, Self::E5m2];

    /// The format of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
        }
    }

    /// Bytes in memory.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// The value of an element's bits.
    pub fn decode(self, bits: u64) -> f64 {
        match self {
            Self::F32 => f32::from_bits(bits as u32).into(),
            Self::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Self::F16 => f16::from_bits(bits as u16).to_f64(),
            Self::E4m3 => F8E4M3::from_bits(bits as u8).to_f64(),
            Self::E5m2 => F8E5M2::from_bits(bits as u8).to_f64(),
        }
    }

    /// The largest relative error of rounding: half of the distance of two neighbours above one.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            Self::F32 => f64::powi(2.0, -24),
            Self::Bf16 => f64::powi(2.0, -8),
            Self::F16 => f64::powi(2.0, -11),
            Self::E4m3 => f64::powi(2.0, -4),
            Self::E5m2 => f64::powi(2.0, -3),
        }
    }

    /// The smallest positive value: the absolute error of rounding near zero is half of it.
    pub fn tiniest(self) -> f64 {
        match self {
            Self::F32 => f64::powi(2.0, -149),
            Self::Bf16 => f64::powi(2.0, -133),
            Self::F16 => f64::powi(2.0, -24),
            Self::E4m3 => f64::powi(2.0, -9),
            Self::E5m2 => f64::powi(2.0, -16),
        }
    }

    /// The largest finite value.
    pub fn largest(self) -> f64 {
        match self {
            Self::F32 => f32::MAX.into(),
            Self::Bf16 => bf16::MAX.to_f64(),
            Self::F16 => f16::MAX.to_f64(),
            Self::E4m3 => 448.0,
            Self::E5m2 => 57344.0,
        }
    }

    /// Whether what is beyond the largest value becomes the largest value: `cvt` to 8 bits knows no other way
    /// (PTX ISA, `cvt`, `.satfinite`).
    pub const fn saturates(self) -> bool {
        matches!(self, Self::E4m3 | Self::E5m2)
    }
}

/// What an element has to be: the value of its formula, and how far a correct kernel may be from it before the element is
/// rounded.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its format.
    pub element: Element,
    /// The error is that of the element itself: nothing rounds it once more.
    pub unrounded: bool,
    /// The formula's value.
    pub value: f64,
    /// The largest distance from it.
    pub error: f64,
}

impl Wanted {
    fn roundoff(&self) -> f64 {
        if self.unrounded { 0.0 } else { self.element.unit_roundoff() }
    }

    /// The largest distance of a correct element from the value.
    pub fn bound(&self) -> f64 {
        let tiniest = if self.unrounded { 0.0 } else { self.element.tiniest() };
        self.error + self.roundoff() * (self.value.abs() + self.error) + tiniest / 2.0
    }

    /// Whether an element with these bits is correct. Where the value is NaN it must be NaN; where it may be beyond the
    /// format's largest, infinity will do, or the largest itself where the format saturates.
    pub fn admits(&self, bits: u64) -> bool {
        let Self { element, value, error, .. } = *self;
        let (got, largest) = (element.decode(bits), element.largest());
        if value.is_nan() {
            return got.is_nan();
        }
        if element.saturates() {
            let [low, high] = [value - error, value + error].map(|end| end.clamp(-largest, largest));
            let slack = self.roundoff() * low.abs().max(high.abs()) + element.tiniest() / 2.0;
            return (low - slack..=high + slack).contains(&got);
        }
        if got.is_infinite() {
            let beyond = value.abs() + error >= largest * (1.0 - self.roundoff());
            return beyond && got.signum() == value.signum();
        }
        got == value || (got - value).abs() <= self.bound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bits of the formats that have few.
    #[test]
    fn numbers_are_those_of_the_bits() {
        for element in [Element::Bf16, Element::F16, Element::E4m3, Element::E5m2] {
            let name = element.name();
            let bits = 0..1u64 << (8 * element.bytes());
            let mut positive: Vec<f64> = bits.map(|bits| element.decode(bits)).filter(|x| *x > 0.0).collect();
            positive.retain(|x| x.is_finite());
            positive.sort_by(f64::total_cmp);
            assert_eq!(
                (positive[0], positive[positive.len() - 1]),
                (element.tiniest(), element.largest()),
                "{name}"
            );
            let above = positive[positive.partition_point(|&x| x <= 1.0)];
            assert_eq!((above - 1.0) / 2.0, element.unit_roundoff(), "{name}");
            assert_eq!(Element::named(name), Some(element));
        }
    }

    #[test]
    fn what_is_admitted() {
        let wanted = |element, value, error| Wanted { element, unrounded: false, value, error };
        let half = |value: f32| u64::from(f16::from_f32(value).to_bits());
        for (why, wanted, bits, right) in [
            ("the value", wanted(Element::F16, 1.0, 0.0), half(1.0), true),
            ("the next one", wanted(Element::F16, 1.0, 0.0), half(1.001), false),
            ("the next one, within the error", wanted(Element::F16, 1.0, 1e-3), half(1.001), true),
            ("NaN for a number", wanted(Element::F16, 1.0, 1e9), half(f32::NAN), false),
            ("NaN for NaN", wanted(Element::F16, f64::NAN, 0.0), half(f32::NAN), true),
            ("infinity for what is beyond", wanted(Element::F16, 1e6, 0.0), half(f32::INFINITY), true),
            ("the other infinity", wanted(Element::F16, 1e6, 0.0), half(f32::NEG_INFINITY), false),
            ("infinity for what is not", wanted(Element::F16, 6e4, 0.0), half(f32::INFINITY), false),
            ("the largest for what is beyond", wanted(Element::E4m3, 1e6, 0.0), 0x7e, true),
            ("less than that", wanted(Element::E4m3, 1e6, 0.0), 0x7c, false),
        ] {
            assert_eq!(wanted.admits(bits), right, "{why}");
        }
        let sum = Wanted { unrounded: true, ..wanted(Element::F32, 1.0, 0.0) };
        assert!(sum.admits(1.0f32.to_bits().into()) && !sum.admits(1.0f32.next_up().to_bits().into()));
    }
}
