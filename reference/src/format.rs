//! Number formats by name: the value of an element's bits, rounding, and its error.
//!
//! The 16-bit and 8-bit floats are those of the crates `half` and `float8`: no code is shared with the
//! kernels that are checked.
//!
//! ```
//! use reference::Format;
//!
//! assert_eq!(Format::Bf16.round(1.0), 0x3f80);
//! assert_eq!(Format::E4m3.decode(0x7e), 448.0); // its largest number
//! ```

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// A format of matrix elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// The upper half of binary32.
    Bf16,
    /// IEEE binary16.
    F16,
    /// 8-bit float with 4 bits of exponent and 3 of mantissa. No infinity; one NaN per sign.
    E4m3,
    /// 8-bit float with 5 bits of exponent and 2 of mantissa.
    E5m2,
    /// A binary32 whose low 13 bits `wgmma` does not read. They do not count in the value of an element.
    Tf32,
    /// Signed 8-bit integer.
    S8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    S32,
    /// IEEE binary64.
    F64,
}

/// The properties of a format.
struct Facts {
    name: &'static str,
    bytes: u32,
    /// Bits of the mantissa without the leading one; `None` for integers.
    mantissa: Option<i32>,
    /// The exponent of the smallest positive value.
    tiniest: i32,
    largest: f64,
    saturates: bool,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::Bf16,
        Self::F16,
        Self::E4m3,
        Self::E5m2,
        Self::Tf32,
        Self::S8,
        Self::U8,
        Self::S32,
        Self::F64,
    ];

    fn facts(self) -> Facts {
        let float = |name, bytes, mantissa, tiniest, largest| Facts {
            name,
            bytes,
            mantissa: Some(mantissa),
            tiniest,
            largest,
            // `cvt` to 8-bit floats always saturates (PTX ISA, `cvt`, `.satfinite`).
            saturates: bytes == 1,
        };
        let integer = |name, bytes, largest| Facts {
            name,
            bytes,
            mantissa: None,
            tiniest: 0,
            largest,
            saturates: true,
        };
        match self {
            Self::F32 => float("f32", 4, 23, -149, f32::MAX.into()),
            Self::Tf32 => float("tf32", 4, 10, -136, f32::from_bits(0x7F7F_E000).into()),
            Self::Bf16 => float("bf16", 2, 7, -133, bf16::MAX.to_f64()),
            Self::F16 => float("f16", 2, 10, -24, f16::MAX.to_f64()),
            Self::E4m3 => float("e4m3", 1, 3, -9, 448.0),
            Self::E5m2 => float("e5m2", 1, 2, -16, 57344.0),
            Self::S8 => integer("s8", 1, 127.0),
            Self::U8 => integer("u8", 1, 255.0),
            Self::S32 => integer("s32", 4, i32::MAX.into()),
            Self::F64 => float("f64", 8, 52, -1074, f64::MAX),
        }
    }

    /// The format with a [`name`](Self::name), or `None`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The name of the format, for example `bf16`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Size of an element in bytes.
    pub fn bytes(self) -> u32 {
        self.facts().bytes
    }

    /// Whether it is a format of integers.
    pub fn is_integer(self) -> bool {
        self.facts().mantissa.is_none()
    }

    /// The value of an element's bits.
    pub fn decode(self, bits: u64) -> f64 {
        match self {
            Self::F32 => f32::from_bits(bits as u32).into(),
            Self::Tf32 => f32::from_bits(bits as u32 & !0x1FFF).into(),
            Self::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Self::F16 => f16::from_bits(bits as u16).to_f64(),
            Self::E4m3 => F8E4M3::from_bits(bits as u8).to_f64(),
            Self::E5m2 => F8E5M2::from_bits(bits as u8).to_f64(),
            Self::S8 => (bits as u8).cast_signed().into(),
            Self::U8 => (bits as u8).into(),
            Self::S32 => (bits as u32).cast_signed().into(),
            Self::F64 => f64::from_bits(bits),
        }
    }

    /// The smallest and the largest finite value.
    pub fn range(self) -> [f64; 2] {
        let largest = self.largest();
        match self {
            Self::U8 => [0.0, largest],
            Self::S8 | Self::S32 => [-largest - 1.0, largest],
            Self::F32 | Self::Bf16 | Self::F16 | Self::E4m3 | Self::E5m2 | Self::Tf32 | Self::F64 => {
                [-largest, largest]
            }
        }
    }

    /// The bits of the nearest element, ties to even, if the format holds the value: `None` for a number that
    /// rounds to one beyond the [`range`](Self::range), and for infinity or NaN where the format has none. The low
    /// bits of a `tf32` are zero.
    pub fn nearest(self, value: f64) -> Option<u64> {
        if self == Self::E5m2 && value.is_infinite() {
            return Some(if value > 0.0 { 0x7C } else { 0xFC });
        }
        if !value.is_finite() {
            let lacks = self.is_integer() || self == Self::E4m3 && value.is_infinite();
            return (!lacks).then(|| self.round(value));
        }
        let [least, most] = self.range();
        let inside = match self {
            Self::S8 | Self::U8 | Self::S32 => (least..=most).contains(&value.round_ties_even()),
            // Half a unit above the largest value. The tie goes to the even one of 448 and the NaN beyond.
            Self::E4m3 => value.abs() <= 464.0,
            Self::E5m2 => value.abs() < 61440.0,
            Self::Tf32 => {
                let bits = to_odd(value).to_bits();
                let rounded = (bits + 0xFFF + (bits >> 13 & 1)) & !0x1FFF;
                return f32::from_bits(rounded).is_finite().then_some(rounded.into());
            }
            Self::F32 | Self::Bf16 | Self::F16 | Self::F64 => self.decode(self.round(value)).is_finite(),
        };
        inside.then(|| self.round(value))
    }

    /// The bits of the nearest element, ties to even, as kernels store it: 8-bit floats and integers saturate. A
    /// `tf32` is rounded to binary32: its low bits stay in memory.
    pub fn round(self, value: f64) -> u64 {
        // `half`'s own conversion from f64 reads the upper 32 bits only: it mistakes a value just above a tie
        // for the tie.
        let single = to_odd(value);
        let whole = value.round_ties_even();
        match self {
            Self::F64 => value.to_bits(),
            Self::F32 | Self::Tf32 => (value as f32).to_bits().into(),
            Self::Bf16 => bf16::from_f32(single).to_bits().into(),
            Self::F16 => f16::from_f32(single).to_bits().into(),
            Self::E4m3 => F8E4M3::from_f32(single).to_bits().into(),
            Self::E5m2 => F8E5M2::from_f32(single).to_bits().into(),
            Self::S8 => (whole as i8).cast_unsigned().into(),
            Self::U8 => (whole as u8).into(),
            Self::S32 => (whole as i32).cast_unsigned().into(),
        }
    }

    /// The unit roundoff: the largest relative error of rounding, half of the distance from 1 to the next
    /// value. 0 for integers: see [`tiniest`](Self::tiniest).
    pub fn unit_roundoff(self) -> f64 {
        self.facts().mantissa.map_or(0.0, |bits| f64::powi(2.0, -bits - 1))
    }

    /// The smallest positive value. The absolute error of rounding near zero is half of it.
    pub fn tiniest(self) -> f64 {
        // In two factors, because `powi` returns 0 for subnormal results.
        f64::powi(2.0, self.facts().tiniest / 2)
            * f64::powi(2.0, self.facts().tiniest - self.facts().tiniest / 2)
    }

    /// The largest finite value.
    pub fn largest(self) -> f64 {
        self.facts().largest
    }

    /// Whether values beyond the largest one become the largest one. Otherwise they become infinity.
    pub fn saturates(self) -> bool {
        self.facts().saturates
    }

    /// The smallest magnitude that rounds to infinity, or saturates.
    pub fn overflow(self) -> f64 {
        self.largest() * (1.0 + self.unit_roundoff() / 2.0)
    }

    /// Bits that no kernel computes, to detect elements that were not written: a NaN that the hardware does
    /// not produce, or a number that results do not reach.
    pub fn poison(self) -> u64 {
        match self {
            Self::F64 => 0x7FF5_7FA5_7FA5_7FA5,
            Self::F32 | Self::Tf32 => 0x7FA5_7FA5,
            Self::Bf16 | Self::F16 => 0x7FA5,
            Self::E4m3 => 0xFF,
            Self::E5m2 => 0xFD,
            Self::S8 | Self::U8 => 0xA5,
            Self::S32 => 0x8000_7FA5,
        }
    }

    /// The bits of elements, from their bytes in memory (little-endian).
    pub fn elements(self, bytes: &[u8]) -> Vec<u64> {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        bytes.chunks_exact(self.bytes() as usize).map(word).collect()
    }

    /// The values of elements, from their bytes in memory (little-endian).
    pub fn values(self, bytes: &[u8]) -> Vec<f64> {
        fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            bytes.as_chunks::<N>().0.iter().map(|&bytes| value(bytes)).collect()
        }
        match self {
            // The upper half of a number in f32.
            Self::Bf16 => {
                each(bytes, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16).into())
            }
            Self::F32 => each(bytes, |bytes| f32::from_le_bytes(bytes).into()),
            Self::E4m3 => each(bytes, |[byte]| F8E4M3::from_bits(byte).to_f64()),
            Self::F16 | Self::E5m2 | Self::Tf32 | Self::S8 | Self::U8 | Self::S32 | Self::F64 => {
                self.elements(bytes).into_iter().map(|bits| self.decode(bits)).collect()
            }
        }
    }

    /// The bytes of elements in memory (little-endian), from their bits.
    pub fn memory(self, elements: &[u64]) -> Vec<u8> {
        let bytes = self.bytes() as usize;
        elements.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(bytes)).collect()
    }
}

/// Rounds to f32; an inexact value goes to the neighbour with an odd last bit (round to odd). A second
/// rounding, to a format with a precision of 22 bits or fewer, then gives the same result as rounding once.
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
            for low in 0..u64::from(largest) {
                let (a, b) = (format.decode(low), format.decode(low + 1));
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

    /// Tests all bit patterns of the 16-bit and 8-bit floats.
    #[test]
    fn numbers_are_those_of_the_bits() {
        for format in [Format::Bf16, Format::F16, Format::E4m3, Format::E5m2] {
            let name = format.name();
            let bits = 0..1u64 << (8 * format.bytes());
            let mut positive: Vec<f64> = bits.map(|bits| format.decode(bits)).filter(|x| *x > 0.0).collect();
            positive.retain(|x| x.is_finite());
            positive.sort_by(f64::total_cmp);
            assert_eq!(
                (positive[0], positive[positive.len() - 1]),
                (format.tiniest(), format.largest()),
                "{name}"
            );
            let above = positive[positive.partition_point(|&x| x <= 1.0)];
            assert_eq!((above - 1.0) / 2.0, format.unit_roundoff(), "{name}");
            assert_eq!(Format::named(name), Some(format));
        }
    }

    /// What a format holds, and what it does not: no value becomes another one without a word.
    #[test]
    fn what_a_format_does_not_hold_is_none() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (format, value, want) in [
            (Format::E5m2, inf, Some(inf)),
            (Format::E5m2, -inf, Some(-inf)),
            (Format::E5m2, nan, Some(nan)),
            (Format::E5m2, 61439.0, Some(57344.0)),
            (Format::E5m2, 61440.0, None),
            (Format::E4m3, nan, Some(nan)),
            (Format::E4m3, inf, None),
            (Format::E4m3, 464.0, Some(448.0)),
            (Format::E4m3, -464.1, None),
            (Format::S8, nan, None),
            (Format::S8, inf, None),
            (Format::S8, 127.4, Some(127.0)),
            (Format::S8, 127.5, None),
            (Format::S8, -128.5, Some(-128.0)),
            (Format::S8, -129.0, None),
            (Format::U8, -0.5, Some(0.0)),
            (Format::U8, -1.0, None),
            (Format::U8, 256.0, None),
            (Format::S32, 2_147_483_647.0, Some(2_147_483_647.0)),
            (Format::S32, 2_147_483_648.0, None),
            (Format::F16, 65519.9, Some(65504.0)),
            (Format::F16, 65520.0, None),
            (Format::F16, inf, Some(inf)),
            (Format::Bf16, 1e39, None),
            (Format::F32, 1e39, None),
            (Format::F64, f64::MAX, Some(f64::MAX)),
            (Format::Tf32, nan, Some(nan)),
            (Format::Tf32, -inf, Some(-inf)),
            (Format::Tf32, f64::from(f32::MAX), None),
        ] {
            let got = format.nearest(value).map(|bits| format.decode(bits));
            let same = got == want || got.is_some_and(f64::is_nan) && want.is_some_and(f64::is_nan);
            assert!(same, "{value} in {}: {got:?}, not {want:?}", format.name());
        }
    }

    /// A `tf32` is rounded to 10 bits of mantissa once, to nearest, ties to even.
    #[test]
    fn tf32_is_rounded() {
        let unit = f64::powi(2.0, -10);
        for (value, want) in [
            (1.0 + unit * 0.499, 1.0),
            (1.0 + unit * 0.5, 1.0),
            (1.0 + unit * (0.5 + f64::powi(2.0, -30)), 1.0 + unit),
            (1.0 + unit * 1.5, 1.0 + 2.0 * unit),
            (-(1.0 + unit * 0.75), -(1.0 + unit)),
            (2.0 - unit * 0.25, 2.0),
        ] {
            let bits = Format::Tf32.nearest(value).expect("in the range");
            assert_eq!((f64::from(f32::from_bits(bits as u32)), bits & 0x1FFF), (want, 0), "{value}");
        }
    }

    #[test]
    fn rounds_the_ends_of_the_range() {
        for format in [Format::Bf16, Format::F16] {
            let name = format.name();
            assert!(format.decode(format.round(f64::NAN)).is_nan(), "{name}");
            for (value, want) in [
                (f64::INFINITY, f64::INFINITY),
                (f64::MAX, f64::INFINITY),
                (-f64::MAX, f64::NEG_INFINITY),
                (f64::MIN_POSITIVE, 0.0),
                (format.tiniest(), format.tiniest()),
                (format.tiniest() * 0.5, 0.0),
                (format.tiniest() * 0.500_001, format.tiniest()),
            ] {
                assert_eq!(format.decode(format.round(value)), want, "{name}: {value:e}");
            }
        }
    }
}
