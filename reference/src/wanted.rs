//! The expected value of an element, and the check of its bits.
//!
//! ```
//! use reference::{Format, Wanted};
//!
//! let wanted = Wanted { format: Format::Bf16, unrounded: false, value: 1.0, error: 0.0 };
//! assert!(wanted.admits(Format::Bf16.round(1.0)) && !wanted.admits(Format::Bf16.round(1.1)));
//! ```

use crate::Format;

/// The expected value of an element, and the largest error of a correct kernel before the element is rounded
/// to its format.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The format of the element.
    pub format: Format,
    /// Whether `error` is that of the element itself, without a further rounding to the format.
    pub unrounded: bool,
    /// The expected value.
    pub value: f64,
    /// The largest distance of a correct result from the value.
    pub error: f64,
}

impl Wanted {
    fn roundoff(&self) -> f64 {
        if self.unrounded { 0.0 } else { self.format.unit_roundoff() }
    }

    /// The largest distance of a correct element from the value, including the rounding to the format.
    pub fn bound(&self) -> f64 {
        let tiniest = if self.unrounded { 0.0 } else { self.format.tiniest() };
        self.error + self.roundoff() * (self.value.abs() + self.error) + tiniest / 2.0
    }

    /// The distance of a correct element from the value. A format that saturates has its largest value in place
    /// of any beyond; infinities and NaN have no distance.
    pub fn distance(&self, got: f64) -> f64 {
        distance(self.format, self.value, got)
    }

    /// The error of a correct element as a fraction of the bound.
    pub fn ratio(&self, got: f64) -> f64 {
        fraction(self.distance(got), self.bound())
    }

    /// Whether an element with these bits is correct. If the value is NaN, the element must be NaN. If the
    /// value may be beyond the largest of the format, infinity is also correct, or for a format that
    /// saturates the largest value.
    pub fn admits(&self, bits: u64) -> bool {
        self.admits_value(self.format.decode(bits))
    }

    /// As [`admits`](Self::admits), for the value of an element.
    pub fn admits_value(&self, got: f64) -> bool {
        let Self { format, value, error, .. } = *self;
        let [least, largest] = format.range();
        if value.is_nan() {
            return got.is_nan();
        }
        if format.saturates() {
            let [low, high] = [value - error, value + error].map(|end| end.clamp(least, largest));
            let slack = self.roundoff() * low.abs().max(high.abs()) + format.tiniest() / 2.0;
            return (low - slack..=high + slack).contains(&got);
        }
        if got.is_infinite() {
            let beyond = value.abs() + error >= largest * (1.0 - self.roundoff());
            return beyond && got.signum() == value.signum();
        }
        got == value || (got - value).abs() <= self.bound()
    }
}

/// The distance of `got` from a value, in a format.
pub(crate) fn distance(format: Format, value: f64, got: f64) -> f64 {
    let [least, largest] = format.range();
    let value = if format.saturates() { value.clamp(least, largest) } else { value };
    let distance = (got - value).abs();
    if distance.is_finite() { distance } else { 0.0 }
}

/// A distance as a fraction of a bound; 0 if the bound says nothing.
pub(crate) fn fraction(distance: f64, bound: f64) -> f64 {
    if distance == 0.0 || !bound.is_finite() { 0.0 } else { distance / bound }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn what_is_admitted() {
        let wanted = |format, value, error| Wanted { format, unrounded: false, value, error };
        let half = |value: f32| u64::from(f16::from_f32(value).to_bits());
        for (why, wanted, bits, right) in [
            ("the value", wanted(Format::F16, 1.0, 0.0), half(1.0), true),
            ("the next one", wanted(Format::F16, 1.0, 0.0), half(1.001), false),
            ("the next one, within the error", wanted(Format::F16, 1.0, 1e-3), half(1.001), true),
            ("NaN for a number", wanted(Format::F16, 1.0, 1e9), half(f32::NAN), false),
            ("NaN for NaN", wanted(Format::F16, f64::NAN, 0.0), half(f32::NAN), true),
            ("infinity for what is beyond", wanted(Format::F16, 1e6, 0.0), half(f32::INFINITY), true),
            ("the other infinity", wanted(Format::F16, 1e6, 0.0), half(f32::NEG_INFINITY), false),
            ("infinity for what is not", wanted(Format::F16, 6e4, 0.0), half(f32::INFINITY), false),
            ("infinity within the error", wanted(Format::F16, 6.5e4, 600.0), half(f32::INFINITY), true),
            ("the largest for what is beyond", wanted(Format::E4m3, 1e6, 0.0), 0x7e, true),
            ("less than that", wanted(Format::E4m3, 1e6, 0.0), 0x7c, false),
        ] {
            assert_eq!(wanted.admits(bits), right, "{why}");
        }
        let sum = Wanted { unrounded: true, ..wanted(Format::F32, 1.0, 0.0) };
        assert!(sum.admits(1.0f32.to_bits().into()) && !sum.admits(1.0f32.next_up().to_bits().into()));
    }
}
