//! Element types of operands and results, and which of them Hopper multiplies.

use half::{bf16, f16};
use ptx::abi::TensorElement;
use ptx::{Scalar, Value, WgmmaTypes};

/// A 16-bit float that matrices are made of.
pub trait Element: Scalar {
    /// Its name in kernel names and on the command line.
    const NAME: &'static str;
    /// Width in bits.
    const BITS: u32 = Self::TYPE.bits();
    /// What a tensor map calls it.
    const TENSOR: TensorElement;
    /// The unit roundoff: the largest relative error of rounding to this type.
    const UNIT_ROUNDOFF: f64;
    /// The smallest positive value (subnormal): the absolute error of rounding near zero is half of it.
    const TINIEST: f64;

    /// Widens one stored element on the device.
    fn widen<'f>(value: Value<'f, Self>) -> Value<'f, f32>;
}

impl Element for bf16 {
    const NAME: &'static str = "bf16";
    const TENSOR: TensorElement = TensorElement::Bf16;
    const UNIT_ROUNDOFF: f64 = 1.0 / 256.0;
    const TINIEST: f64 = f64::from_bits((1023 - 133) << 52);

    fn widen<'f>(value: Value<'f, Self>) -> Value<'f, f32> {
        value.cast()
    }
}

impl Element for f16 {
    const NAME: &'static str = "f16";
    const TENSOR: TensorElement = TensorElement::F16;
    const UNIT_ROUNDOFF: f64 = 1.0 / 2048.0;
    const TINIEST: f64 = 1.0 / 16_777_216.0;

    fn widen<'f>(value: Value<'f, Self>) -> Value<'f, f32> {
        value.cast()
    }
}

/// Pairs of element types that `wgmma` multiplies into `f32` accumulators.
#[diagnostic::on_unimplemented(
    message = "Hopper has no `wgmma` that multiplies `{Self}` by `{Other}`",
    note = "A and B have the same element type: `bf16` or `f16`"
)]
pub trait MultipliesWith<Other>: Element {
    /// The instruction's types.
    const TYPES: WgmmaTypes;
}

impl MultipliesWith<bf16> for bf16 {
    const TYPES: WgmmaTypes = WgmmaTypes::Bf16F32;
}

impl MultipliesWith<f16> for f16 {
    const TYPES: WgmmaTypes = WgmmaTypes::F16F32;
}
