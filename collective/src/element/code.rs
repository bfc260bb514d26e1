//! Codes: 16-bit elements that are stored in 4 or 8 bits.

use core::fmt;

use float8::{F8E4M3, F8E5M2};

/// The stored form of a 16-bit operand in fewer bits. `bf16` and `f16` represent every code's number exactly.
///
/// | code | bits | numbers |
/// |---|---|---|
/// | `s4`, `u4` | 4 | -8 to 7, 0 to 15 |
/// | `s8`, `u8` | 8 | -128 to 127, 0 to 255 |
/// | `e4m3`, `e5m2` | 8 | as in the [formats](crate::Format), without NaN and infinities, which no weight may be |
/// | `e2m1` | 4 | 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their opposites: the elements of MXFP4 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Integers from -8 to 7.
    S4,
    /// Integers from 0 to 15.
    U4,
    /// Integers from -128 to 127.
    S8,
    /// Integers from 0 to 255.
    U8,
    /// Four exponent bits, three mantissa bits.
    E4m3,
    /// Five exponent bits, two mantissa bits.
    E5m2,
    /// Two exponent bits, one mantissa bit.
    E2m1,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 7] = [Self::S4, Self::U4, Self::S8, Self::U8, Self::E4m3, Self::E5m2, Self::E2m1];

    /// Its name, its Rust type, and its width in bits.
    const fn facts(self) -> (&'static str, &'static str, u32) {
        match self {
            Self::S4 => ("s4", "Int4", 4),
            Self::U4 => ("u4", "Uint4", 4),
            Self::S8 => ("s8", "i8", 8),
            Self::U8 => ("u8", "u8", 8),
            Self::E4m3 => ("e4m3", "F8E4M3", 8),
            Self::E5m2 => ("e5m2", "F8E5M2", 8),
            Self::E2m1 => ("e2m1", "F4E2M1", 4),
        }
    }

    /// Its name in kernel names, in specs and on the command line.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// The Rust type of a code, as it appears in kernel types.
    pub const fn rust_type(self) -> &'static str {
        self.facts().1
    }

    /// The code of this name, which may be that of other libraries, as in [`Format::named`](crate::Format::named); `None` if
    /// there is none.
    pub fn named(name: &str) -> Option<Self> {
        let name = match name {
            "int4" | "i4" => "s4",
            "uint4" => "u4",
            "fp4" | "float4_e2m1" | "float4_e2m1fn" => "e2m1",
            // Codes of 8 bits are called as formats are.
            other => match crate::Format::named(other) {
                Some(format) => format.name(),
                None => other,
            },
        };
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// Width in bits: 4 or 8.
    pub const fn bits(self) -> u32 {
        self.facts().2
    }

    /// Bit positions of a 4-bit code within the 16 bits that four codes share, lowest bit first.
    ///
    /// The bits of a float are placed so that few shifts and masks move sign, exponent and mantissa to their
    /// places in `bf16`: one mask for the first code, a shift and the same mask for the next two.
    pub(crate) const fn places(self, index: u32) -> [u32; 4] {
        let first = 4 * index;
        match (self, index) {
            (Self::E2m1, 0) => [6, 7, 8, 15],
            (Self::E2m1, 1) => [3, 4, 5, 12],
            (Self::E2m1, 2) => [0, 1, 2, 9],
            (Self::E2m1, _) => [13, 10, 11, 14],
            _ => [first, first + 1, first + 2, first + 3],
        }
    }

    /// Whether its numbers are integers.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::S4 | Self::U4 | Self::S8 | Self::U8)
    }

    /// The number of a code, taken from the lowest bits of `code`; `None` if the code is not a number.
    ///
    /// ```
    /// use collective::Code;
    ///
    /// assert_eq!([0xF, 0x7].map(|code| Code::S4.value(code)), [Some(-1.0), Some(7.0)]);
    /// assert_eq!(Code::E2m1.value(0xB), Some(-1.5));
    /// assert_eq!(Code::E4m3.value(0x7F), None); // NaN
    /// ```
    pub fn value(self, code: u8) -> Option<f64> {
        let value = match self {
            Self::S4 => f64::from((code << 4).cast_signed() >> 4),
            Self::U4 => f64::from(code & 15),
            Self::S8 => f64::from(code.cast_signed()),
            Self::U8 => f64::from(code),
            Self::E4m3 => F8E4M3::from_bits(code).to_f64(),
            Self::E5m2 => F8E5M2::from_bits(code).to_f64(),
            Self::E2m1 => {
                let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
                if code & 8 == 0 { size } else { -size }
            }
        };
        value.is_finite().then_some(value)
    }

    /// The code of the nearest number; ties go to the even code, and values beyond the largest number to the
    /// largest. `None` for NaN.
    ///
    /// ```
    /// use collective::Code;
    ///
    /// assert_eq!(Code::S4.nearest(-20.0), Some(8)); // -8
    /// assert_eq!(Code::E2m1.nearest(2.6), Some(5)); // 3
    /// ```
    pub fn nearest(self, value: f64) -> Option<u8> {
        let all = 0..=if self.bits() == 4 { 15 } else { 255 };
        if value.is_nan() {
            return None;
        }
        // Infinities are nearest to the largest number.
        let value = value.clamp(-1e9, 1e9);
        let distance = |code: u8| Some(((self.value(code)? - value).abs(), code % 2, code));
        let near = |a: &(f64, u8, u8), b: &(f64, u8, u8)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        all.filter_map(distance).min_by(near).map(|(.., code)| code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// [`Code::S4`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct Int4;

/// [`Code::U4`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct Uint4;

/// [`Code::E2m1`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct F4E2M1;

/// A [`Code`] as a type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no code of few bits",
    note = "write `Int4`, `Uint4`, `i8`, `u8`, `F8E4M3`, `F8E5M2` or `F4E2M1`, or `ZeroPoints` of one of the integers"
)]
pub trait Coded: 'static {
    /// The code.
    const CODE: Code;
    /// Whether each group has a zero point, which is subtracted first.
    const ZEROS: bool = false;
}

macro_rules! coded {
    ($($code:ident $ty:ty,)*) => { $(impl Coded for $ty {
        const CODE: Code = Code::$code;
    })* };
}

coded! { S4 Int4, U4 Uint4, S8 i8, U8 u8, E4m3 F8E4M3, E5m2 F8E5M2, E2m1 F4E2M1, }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_nearest_to_itself() {
        for code in Code::ALL {
            assert_eq!(Code::named(code.name()), Some(code));
            let others = ["int4", "uint4", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "fp4"];
            assert!(others.map(Code::named).contains(&Some(code)), "{code}");
            for bits in 0..=if code.bits() == 4 { 15 } else { 255 } {
                let Some(value) = code.value(bits) else { continue };
                let nearest = code.nearest(value).expect("a number has a nearest code");
                assert_eq!(code.value(nearest), Some(value), "{code} {bits}");
                assert_eq!(half::bf16::from_f64(value).to_f64(), value, "{code} {bits} in bf16");
                assert_eq!(half::f16::from_f64(value).to_f64(), value, "{code} {bits} in f16");
            }
            assert_eq!(code.nearest(f64::NAN), None);
            assert!(code.nearest(f64::INFINITY).and_then(|bits| code.value(bits)) > Some(5.0), "{code}");
        }
    }
}
