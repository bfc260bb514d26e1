//! Elements of buffers and scalar arguments, by name.

use core::fmt;

use reference::Format;
use serde::{Deserialize, Serialize};

/// The type of a buffer's elements, or of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// IEEE binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// 8-bit float with 4 bits of exponent.
    E4m3,
    /// 8-bit float with 5 bits of exponent.
    E5m2,
    /// Signed 8-bit integer.
    S8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 16-bit integer.
    S16,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 32-bit integer.
    S32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 64-bit integer.
    S64,
    /// Unsigned 64-bit integer.
    U64,
}

/// The value of an element. Integers are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Of a float.
    Float(f64),
    /// Of an integer.
    Integer(i128),
}

impl Element {
    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 | Self::S16 | Self::U16 => 2,
            Self::F32 | Self::S32 | Self::U32 => 4,
            Self::F64 | Self::S64 | Self::U64 => 8,
        }
    }

    /// The format of a float; `None` for an integer.
    fn float(self) -> Option<Format> {
        Some(match self {
            Self::F16 => Format::F16,
            Self::Bf16 => Format::Bf16,
            Self::F32 => Format::F32,
            Self::F64 => Format::F64,
            Self::E4m3 => Format::E4m3,
            Self::E5m2 => Format::E5m2,
            Self::S8 | Self::U8 | Self::S16 | Self::U16 | Self::S32 | Self::U32 | Self::S64 | Self::U64 => {
                return None;
            }
        })
    }

    /// Whether it is a type of integers.
    pub fn is_integer(self) -> bool {
        self.float().is_none()
    }

    fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// The smallest and the largest integer; `None` for a float.
    fn range(self) -> Option<[i128; 2]> {
        let bits = self.bytes() * 8;
        let whole = 1i128 << bits;
        self.is_integer()
            .then(|| if self.is_signed() { [-(whole / 2), whole / 2 - 1] } else { [0, whole - 1] })
    }

    /// The value of an element in memory: the first [`bytes`](Self::bytes) of the slice, little-endian.
    pub fn value(self, memory: &[u8]) -> Number {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(memory.iter().take(self.bytes())).for_each(|(to, from)| *to = *from);
        let bits = u64::from_le_bytes(bytes);
        match (self.float(), self.is_signed()) {
            (Some(format), _) => Number::Float(format.decode(bits)),
            (None, false) => Number::Integer(bits.into()),
            (None, true) => {
                let unused = 64 - 8 * self.bytes() as u32;
                Number::Integer(((bits << unused).cast_signed() >> unused).into())
            }
        }
    }

    /// The bytes of the element nearest to a number. `None` if the type does not hold it.
    pub fn memory(self, number: Number) -> Option<Vec<u8>> {
        let bits = match (self.float(), self.range(), number) {
            (Some(format), _, Number::Float(value)) => format.nearest(value)?,
            (Some(format), _, Number::Integer(value)) => format.nearest(value as f64)?,
            (None, range, number) => {
                let value = match number {
                    Number::Integer(value) => value,
                    Number::Float(value) if value.fract() == 0.0 => value as i128,
                    Number::Float(_) => return None,
                };
                let [low, high] = range?;
                (low..=high).contains(&value).then_some(value as u64)?
            }
        };
        Some(bits.to_le_bytes()[..self.bytes()].to_vec())
    }

    /// The element nearest to a number: integers are rounded down, and what the type does not hold becomes the nearest that it holds.
    pub(super) fn nearest(self, value: f64) -> Vec<u8> {
        let number = match (self.range(), self.float()) {
            (Some([low, high]), _) => Number::Integer((value.floor() as i128).clamp(low, high)),
            (None, Some(format)) => {
                let [low, high] = format.range();
                Number::Float(value.clamp(low, high))
            }
            (None, None) => Number::Float(value),
        };
        self.memory(number).unwrap_or_else(|| vec![0; self.bytes()])
    }
}

/// The name in descriptions: `f16`, `s32`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

impl Number {
    /// As a float.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Integer(value) => value as f64,
        }
    }

    /// Whether a result is what was wanted: `|got - want| <= atol + rtol |want|`. NaN is wanted where it is wanted, and so is each infinity.
    pub(super) fn is(self, want: Self, rtol: f64, atol: f64) -> bool {
        let bound = atol + rtol * want.as_f64().abs();
        match (self, want) {
            (Self::Integer(got), Self::Integer(want)) => got.abs_diff(want) as f64 <= bound,
            (got, want) => {
                let (got, want) = (got.as_f64(), want.as_f64());
                got == want
                    || got.is_nan() && want.is_nan()
                    || want.is_finite() && (got - want).abs() <= bound
            }
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_hold_numbers_and_read_them_back() {
        let float = Number::Float;
        let integer = Number::Integer;
        for (element, number, bytes) in [
            (Element::F16, float(1.5), Some(vec![0x00, 0x3E])),
            (Element::Bf16, float(-2.0), Some(vec![0x00, 0xC0])),
            (Element::F64, float(0.1), Some(0.1f64.to_le_bytes().to_vec())),
            (Element::E4m3, float(448.0), Some(vec![0x7E])),
            (Element::S8, integer(-1), Some(vec![0xFF])),
            (Element::S8, integer(128), None),
            (Element::U8, integer(-1), None),
            (Element::S32, float(-7.0), Some((-7i32).to_le_bytes().to_vec())),
            (Element::S32, float(0.5), None),
            (Element::U64, integer(u64::MAX.into()), Some(vec![0xFF; 8])),
            (Element::S64, integer(i64::MIN.into()), Some(i64::MIN.to_le_bytes().to_vec())),
        ] {
            let memory = element.memory(number);
            assert_eq!(memory, bytes, "{element} {number}");
            if let Some(bytes) = bytes {
                assert_eq!(element.value(&bytes).as_f64(), number.as_f64(), "{element}");
            }
        }
        assert_eq!(Element::U8.nearest(-3.0), [0]);
        assert_eq!(Element::S16.nearest(-1.5), (-2i16).to_le_bytes());
    }

    #[test]
    fn tolerances_are_of_the_wanted_number() {
        let is = |got, want, rtol, atol| Number::Float(got).is(Number::Float(want), rtol, atol);
        assert!(is(1.01, 1.0, 0.011, 0.0) && !is(1.02, 1.0, 0.011, 0.0));
        assert!(
            is(f64::NAN, f64::NAN, 0.0, 0.0) && !is(f64::NAN, 1.0, 9.0, 9.0) && !is(1.0, f64::NAN, 9.0, 9.0)
        );
        assert!(is(f64::INFINITY, f64::INFINITY, 0.0, 0.0) && !is(1.0, f64::INFINITY, 1.0, 1.0));
        assert!(!Number::Integer(i128::from(u64::MAX)).is(
            Number::Integer(i128::from(u64::MAX) - 1),
            0.0,
            0.0
        ));
    }
}
