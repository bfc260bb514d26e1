//! Number formats of operands, accumulators and results. Each is described once, here; all other code queries
//! this description.
//!
//! | format | in memory | operand | result |
//! |---|---|---|---|
//! | `bf16`, `f16` | 16 bits | K-major or MN-major | yes |
//! | `tf32` | 32 bits: an `f32` of which `wgmma` reads the upper 19 bits | K-major | no: `f32` |
//! | `e4m3`, `e5m2` | 8 bits | K-major; A and B may differ | yes |
//! | `s8`, `u8` | 8 bits | K-major; A and B may differ | yes, saturated, for 8-bit integer operands; else `s32` or a float |
//! | `f32` | 32 bits | by `fma` only; `wgmma` has `tf32` | yes |
//! | `f64` | 64 bits | by `mma.sync` only, K-major | for `f64` operands |
//! | `s32` | 32 bits | no | yes, for 8-bit integer operands |

mod code;
mod device;
mod float;
mod integer;
mod types;

use core::fmt;

use ptx::WgmmaTypes;
use ptx::abi::TensorElement;
use ptx::inst::{Fp8, Int8, WgmmaElement};

pub use code::{Code, Coded, F4E2M1, Int4, Uint4};
pub use device::{Narrow, Packed};
use float::Float;
use integer::Integer;
pub use types::{Element, MultipliesWith, Tf32};

/// A number format of matrices and vectors: how it is rounded, loaded, and stored in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// bfloat16: eight exponent bits, seven mantissa bits.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Four exponent bits, three mantissa bits, no infinity. Rounding saturates to the largest value.
    E4m3,
    /// Five exponent bits, two mantissa bits. Rounding saturates to the largest finite value.
    E5m2,
    /// Single precision in memory; a multiply reads the sign, eight exponent bits and ten mantissa bits.
    Tf32,
    /// Integers from -128 to 127.
    S8,
    /// Integers from 0 to 255.
    U8,
    /// Signed 32-bit integers.
    S32,
    /// IEEE double precision.
    F64,
}

/// The description of a format.
struct Facts {
    /// Name in kernel names, in specs and on the command line.
    name: &'static str,
    /// Other words for it that are read, and never written: those of PyTorch, NumPy and CUTLASS.
    others: &'static [&'static str],
    /// The Rust type of an element.
    rust_type: &'static str,
    /// The element type in a tensor map.
    tensor: TensorElement,
    /// Its values.
    number: Number,
    /// The element type of `wgmma`; `None` if `wgmma` has no such operand.
    operand: Option<WgmmaElement>,
    /// D's default format, for operands of this format.
    output: Format,
    /// Whether D can have this format.
    result: bool,
}

/// The values of a format.
#[derive(Clone, Copy, Debug)]
enum Number {
    Float(Float),
    /// `f64`, the format the host computes in.
    Double,
    Integer(Integer),
}

impl Format {
    /// Every format.
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

    /// The error for operands that no instruction multiplies. It lists the pairs that are possible.
    pub const NO_PRODUCT: &str = "Hopper has no instruction that multiplies these operands: A and B are both bf16, both f16, both \
                                  tf32, both f32 or both f64, each e4m3 or e5m2, or each s8 or u8";

    /// D's formats in words, those for integer accumulators last.
    pub(crate) const RESULTS: [&str; 2] = ["f32, bf16, f16, e4m3 or e5m2", "s32, s8, u8"];

    const fn facts(self) -> Facts {
        const fn float(name: &'static str, tensor: TensorElement, float: Float, format: Format) -> Facts {
            let (number, operand) = (Number::Float(float), None);
            Facts {
                name,
                others: &[],
                rust_type: name,
                tensor,
                number,
                operand,
                output: format,
                result: true,
            }
        }
        const fn integer(name: &'static str, rust_type: &'static str, of: Int8, number: Integer) -> Facts {
            let (number, operand) = (Number::Integer(number), Some(WgmmaElement::Int8(of)));
            // A tensor map has bytes, without a sign.
            let tensor = TensorElement::U8;
            Facts { name, others: &[], rust_type, tensor, number, operand, output: Format::S32, result: true }
        }
        const fn fp8(name: &'static str, rust_type: &'static str, of: Fp8, number: Float) -> Facts {
            let operand = Some(WgmmaElement::Fp8(of));
            Facts { rust_type, operand, ..float(name, TensorElement::U8, number, Format::Bf16) }
        }
        match self {
            Self::F32 => Facts {
                others: &["float32", "fp32"],
                ..float("f32", TensorElement::F32, Float::F32, Self::F32)
            },
            Self::Bf16 => Facts {
                others: &["bfloat16"],
                operand: Some(WgmmaElement::Bf16),
                ..float("bf16", TensorElement::Bf16, Float::BF16, Self::Bf16)
            },
            Self::F16 => Facts {
                others: &["float16", "fp16", "half"],
                operand: Some(WgmmaElement::F16),
                ..float("f16", TensorElement::F16, Float::F16, Self::F16)
            },
            Self::E4m3 => Facts {
                others: &["e4m3fn", "float8_e4m3fn", "float8_e4m3", "fp8_e4m3"],
                ..fp8("e4m3", "F8E4M3", Fp8::E4m3, Float::E4M3)
            },
            Self::E5m2 => Facts {
                others: &["float8_e5m2", "fp8_e5m2"],
                ..fp8("e5m2", "F8E5M2", Fp8::E5m2, Float::E5M2)
            },
            Self::Tf32 => Facts {
                rust_type: "Tf32",
                operand: Some(WgmmaElement::Tf32),
                result: false,
                ..float("tf32", TensorElement::F32, Float::F32, Self::F32)
            },
            Self::S8 => Facts { others: &["int8", "i8"], ..integer("s8", "i8", Int8::S8, Integer::S8) },
            Self::U8 => Facts { others: &["uint8"], ..integer("u8", "u8", Int8::U8, Integer::U8) },
            Self::S32 => Facts {
                name: "s32",
                others: &["int32", "i32"],
                rust_type: "i32",
                tensor: TensorElement::S32,
                number: Number::Integer(Integer::S32),
                operand: None,
                output: Self::S32,
                result: true,
            },
            Self::F64 => Facts {
                name: "f64",
                others: &["float64", "fp64", "double"],
                rust_type: "f64",
                tensor: TensorElement::F64,
                number: Number::Double,
                operand: None,
                output: Self::F64,
                // Only for `f64` accumulators.
                result: false,
            },
        }
    }

    /// Its name in kernel names and on the command line.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The Rust type of an element, as it appears in kernel types.
    pub const fn rust_type(self) -> &'static str {
        self.facts().rust_type
    }

    /// The format of this name, which may be that of other libraries; `None` if there is none.
    ///
    /// ```
    /// use collective::Format;
    ///
    /// let words = ["bf16", "bfloat16", "fp16", "int8", "float8_e4m3fn"].map(Format::named);
    /// assert_eq!(words.map(|of| of.map(Format::name)), [Some("bf16"), Some("bf16"), Some("f16"), Some("s8"), Some("e4m3")]);
    /// assert_eq!((Format::named("fp8"), Format::ambiguous("fp8")), (None, Some("e4m3 or e5m2")));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name || format.facts().others.contains(&name))
    }

    /// The names of the formats that a word may mean, if it may mean several: for errors that ask for one.
    pub fn ambiguous(name: &str) -> Option<&'static str> {
        matches!(name, "fp8" | "float8" | "f8").then_some("e4m3 or e5m2")
    }

    /// The formats of operands that `wgmma` multiplies.
    pub fn operands() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|format| format.facts().operand.is_some())
    }

    /// The `wgmma` types that multiply elements of this format by those of another, with accumulators in
    /// `f32`, or in `s32` for integers. `None` if there is no such instruction.
    ///
    /// ```
    /// use collective::Format;
    /// use ptx::inst::WgmmaSum;
    ///
    /// let sums = |a: Format, b| a.multiplies(b).map(|types| types.d());
    /// assert_eq!(sums(Format::E4m3, Format::E5m2), Some(WgmmaSum::F32));
    /// assert_eq!(sums(Format::S8, Format::U8), Some(WgmmaSum::S32));
    /// assert_eq!(sums(Format::Bf16, Format::F16), None);
    /// ```
    pub const fn multiplies(self, other: Self) -> Option<WgmmaTypes> {
        let (Some(a), Some(b)) = (self.facts().operand, other.facts().operand) else { return None };
        match (a, b) {
            (WgmmaElement::Bf16, WgmmaElement::Bf16) => Some(WgmmaTypes::Bf16F32),
            (WgmmaElement::F16, WgmmaElement::F16) => Some(WgmmaTypes::F16F32),
            (WgmmaElement::Tf32, WgmmaElement::Tf32) => Some(WgmmaTypes::Tf32F32),
            (WgmmaElement::Fp8(a), WgmmaElement::Fp8(b)) => Some(WgmmaTypes::Fp8F32(a, b)),
            (WgmmaElement::Int8(a), WgmmaElement::Int8(b)) => {
                Some(WgmmaTypes::Int8 { a, b, saturate: false })
            }
            (
                WgmmaElement::Bf16
                | WgmmaElement::F16
                | WgmmaElement::Tf32
                | WgmmaElement::Fp8(_)
                | WgmmaElement::Int8(_)
                | WgmmaElement::B1,
                _,
            ) => None,
        }
    }

    /// D's default format for an operand A of this format: `f32` for `tf32`, `bf16` for 8-bit floats, `s32`
    /// for 8-bit integers, the operand's own for 16 bits.
    pub const fn output(self) -> Self {
        self.facts().output
    }

    /// Whether D can have this format: floats can, and integers can if the accumulators are integers.
    pub const fn is_output(self, integer_sums: bool) -> bool {
        self.facts().result && (self.is_float() || integer_sums)
    }

    /// Whether its values are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self.facts().number, Number::Float(_) | Number::Double)
    }

    /// Width in bits.
    pub const fn bits(self) -> u32 {
        self.bytes() * 8
    }

    /// Width in bytes.
    pub const fn bytes(self) -> u32 {
        self.facts().tensor.bytes()
    }

    /// The element type in a tensor map.
    pub const fn tensor(self) -> TensorElement {
        self.facts().tensor
    }

    /// Whether rounding saturates to the largest value instead of giving infinity.
    pub const fn saturates(self) -> bool {
        match self.facts().number {
            Number::Float(float) => float.saturates(),
            Number::Double => false,
            Number::Integer(_) => true,
        }
    }

    /// The unit roundoff: the largest relative error of rounding to this format. 0 for integers: see
    /// [`tiniest`](Self::tiniest).
    pub const fn unit_roundoff(self) -> f64 {
        match self.facts().number {
            Number::Float(float) => float.unit_roundoff(),
            Number::Double => f64::EPSILON / 2.0,
            Number::Integer(_) => 0.0,
        }
    }

    /// The smallest positive value (subnormal for floats). The absolute rounding error near zero is half of
    /// it.
    pub const fn tiniest(self) -> f64 {
        match self.facts().number {
            Number::Float(float) => float.tiniest(),
            Number::Double => f64::from_bits(1),
            Number::Integer(_) => 1.0,
        }
    }

    /// The largest finite value.
    pub const fn largest(self) -> f64 {
        match self.facts().number {
            Number::Float(float) => float.largest(),
            Number::Double => f64::MAX,
            Number::Integer(integer) => integer.largest(),
        }
    }

    /// The value of an element, given its bits.
    pub fn decode(self, bits: u64) -> f64 {
        match self.facts().number {
            Number::Float(float) => float.decode(bits),
            Number::Double => f64::from_bits(bits),
            Number::Integer(integer) => integer.decode(bits),
        }
    }

    /// The bits of the element nearest to a value, ties to even, rounded once. For values that `f32` can
    /// represent, this is what the device stores. NaN becomes one of the format's NaNs; for integers it
    /// becomes 0.
    pub fn encode(self, value: f64) -> u64 {
        match self.facts().number {
            Number::Float(float) => float.encode(value),
            Number::Double => value.to_bits(),
            Number::Integer(integer) => integer.encode(value),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Format;
    use crate::MmaKind;

    /// The sentences list exactly the formats of the table.
    #[test]
    fn sentences_name_every_format() {
        let [floats, integers] = Format::RESULTS;
        for format in Format::ALL {
            let named = |words: &str| words.split([' ', ',']).any(|word| word == format.name());
            assert_eq!(named(floats), format.is_output(false), "{format}");
            assert_eq!(named(integers), format.is_output(true) && !format.is_float(), "{format}");
            let multiplied = MmaKind::fastest(format, format).is_some();
            assert_eq!(named(Format::NO_PRODUCT), multiplied, "{format}");
            for name in format.facts().others.iter().chain([&format.name()]) {
                assert_eq!(Format::named(name), Some(format), "{name}");
            }
        }
    }

    /// D's default format is one that D can have.
    #[test]
    fn every_product_has_a_result() {
        for a in Format::operands() {
            let fitting = Format::ALL.into_iter().filter(|&b| a.multiplies(b).is_some());
            assert!(fitting.clone().any(|b| b == a), "{a} multiplies itself");
            assert!(fitting.clone().all(|b| b.bits() == a.bits() && b.output() == a.output()), "{a}");
            assert!(a.output().is_output(!a.is_float()), "{a}");
        }
    }
}
