//! Number formats as types, and which of them can be multiplied together.

use core::fmt;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use ptx::WgmmaTypes;

use super::Format;

/// A [`Format`] as a type.
pub trait Element: Copy + fmt::Debug + 'static {
    /// The format.
    const FORMAT: Format;
}

/// An `f32` in memory of which a multiply reads the upper 19 bits: the low 13 bits of the mantissa are
/// ignored.
///
/// Only operands can have this type. Results and vectors are `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Tf32(pub f32);

macro_rules! elements {
    ($($element:ty: $format:ident;)*) => { $(impl Element for $element {
        const FORMAT: Format = Format::$format;
    })* };
}

elements! {
    f32: F32;
    f64: F64;
    bf16: Bf16;
    f16: F16;
    F8E4M3: E4m3;
    F8E5M2: E5m2;
    Tf32: Tf32;
    i8: S8;
    u8: U8;
    i32: S32;
}

/// Pairs of element types that `wgmma` multiplies, into `f32` accumulators, or `i32` for integers.
#[diagnostic::on_unimplemented(
    message = "Hopper has no `wgmma` that multiplies `{Self}` by `{Other}`",
    note = "A and B are both `bf16`, both `f16` or both `Tf32`, each `F8E4M3` or `F8E5M2`, or each `i8` or `u8`"
)]
pub trait MultipliesWith<Other: Element>: Element {
    /// The instruction's types.
    const TYPES: WgmmaTypes = match Self::FORMAT.multiplies(Other::FORMAT) {
        Some(types) => types,
        None => panic!("no wgmma multiplies these formats"),
    };
}

impl MultipliesWith<Self> for bf16 {}
impl MultipliesWith<Self> for f16 {}
impl MultipliesWith<Self> for Tf32 {}
impl MultipliesWith<Self> for F8E4M3 {}
impl MultipliesWith<F8E5M2> for F8E4M3 {}
impl MultipliesWith<F8E4M3> for F8E5M2 {}
impl MultipliesWith<Self> for F8E5M2 {}
impl MultipliesWith<Self> for i8 {}
impl MultipliesWith<u8> for i8 {}
impl MultipliesWith<i8> for u8 {}
impl MultipliesWith<Self> for u8 {}
