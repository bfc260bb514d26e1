//! Element types of operands and results, and which of them Hopper multiplies.
//!
//! Results are any [`Element`]: `f32`, `bf16`, `f16`, and the 8-bit floats [`F8E4M3`] and [`F8E5M2`]. Operands are those
//! that [`MultipliesWith`] joins.

mod format;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use ptx::abi::TensorElement;
use ptx::inst::{AluOp, Cvt};
use ptx::{Builder, Scalar, Value, WgmmaTypes};

use format::Format;

/// An element that matrices and vectors are made of: how it is rounded, loaded, and stored by pairs.
pub trait Element: Copy + core::fmt::Debug + 'static {
    /// Its name in kernel names and on the command line.
    const NAME: &'static str;
    /// Width in bits.
    const BITS: u32;
    /// What a tensor map calls it.
    const TENSOR: TensorElement;
    /// The unit roundoff: the largest relative error of rounding to this type.
    const UNIT_ROUNDOFF: f64;
    /// The smallest positive value (subnormal): the absolute error of rounding near zero is half of it.
    const TINIEST: f64;
    /// The largest finite value.
    const LARGEST: f64;
    /// What is larger becomes the largest; otherwise infinity.
    const SATURATES: bool;

    /// One element in a register, as it lies in memory.
    type Memory: Scalar;
    /// Two neighbouring elements in registers.
    type Packed<'f>: Copy + core::fmt::Debug;

    /// Widens one stored element on the device.
    fn widen(value: Value<'_, Self::Memory>) -> Value<'_, f32>;

    /// Rounds two neighbours, the first of them first.
    fn pack<'f>(f: &'f Builder, pair: [Value<'f, f32>; 2]) -> Self::Packed<'f>;

    /// The two elements of a pair, each to be stored on its own.
    fn unpack<'f>(f: &'f Builder, packed: Self::Packed<'f>) -> [Value<'f, Self::Memory>; 2];

    /// Stores a pair at `address + offset` bytes of global memory, a multiple of the pair's size.
    fn store_global<'f>(f: &'f Builder, address: Value<'f, u64>, offset: i32, packed: Self::Packed<'f>);

    /// Stores a pair at `address + offset` bytes of shared memory, a multiple of the pair's size.
    fn store_shared<'f>(f: &'f Builder, address: Value<'f, u32>, offset: i32, packed: Self::Packed<'f>);

    /// The pair as one matrix element of `stmatrix`, where it has 32 bits.
    fn word<'f>(f: &'f Builder, packed: Self::Packed<'f>) -> Option<Value<'f, u32>>;

    /// The value of an element's bits.
    fn decode(bits: u64) -> f64;

    /// The bits of the element nearest to a value, ties to even, with one rounding: what the device stores for a value
    /// that `f32` has. NaN has the bits of one of the type's NaNs.
    fn encode(value: f64) -> u64;
}

macro_rules! halves {
    ($($ty:ident, $name:literal, $tensor:ident, $format:expr;)*) => {$(
        impl Element for $ty {
            const NAME: &'static str = $name;
            const BITS: u32 = 16;
            const TENSOR: TensorElement = TensorElement::$tensor;
            const UNIT_ROUNDOFF: f64 = $format.unit_roundoff();
            const TINIEST: f64 = $format.tiniest();
            const LARGEST: f64 = $format.largest();
            const SATURATES: bool = false;
            type Memory = Self;
            type Packed<'f> = Value<'f, u32>;

            fn widen(value: Value<'_, Self>) -> Value<'_, f32> {
                value.cast()
            }

            fn pack<'f>(f: &'f Builder, [low, high]: [Value<'f, f32>; 2]) -> Value<'f, u32> {
                f.pack::<Self>(low, high)
            }

            fn unpack<'f>(f: &'f Builder, packed: Value<'f, u32>) -> [Value<'f, Self>; 2] {
                f.unpack(packed)
            }

            fn store_global<'f>(f: &'f Builder, address: Value<'f, u64>, offset: i32, packed: Value<'f, u32>) {
                f.store_global(address, offset, [packed]);
            }

            fn store_shared<'f>(f: &'f Builder, address: Value<'f, u32>, offset: i32, packed: Value<'f, u32>) {
                f.store_shared(address, offset, [packed]);
            }

            fn word<'f>(_f: &'f Builder, packed: Value<'f, u32>) -> Option<Value<'f, u32>> {
                Some(packed)
            }

            fn decode(bits: u64) -> f64 {
                $format.decode(bits)
            }

            fn encode(value: f64) -> u64 {
                $format.encode(value)
            }
        }
    )*};
}

halves! {
    bf16, "bf16", Bf16, Format::BF16;
    f16, "f16", F16, Format::F16;
}

impl Element for f32 {
    const NAME: &'static str = "f32";
    const BITS: u32 = 32;
    const TENSOR: TensorElement = TensorElement::F32;
    const UNIT_ROUNDOFF: f64 = Format::F32.unit_roundoff();
    const TINIEST: f64 = Format::F32.tiniest();
    const LARGEST: f64 = Format::F32.largest();
    const SATURATES: bool = false;
    type Memory = Self;
    type Packed<'f> = [Value<'f, f32>; 2];

    fn widen(value: Value<'_, Self>) -> Value<'_, f32> {
        value
    }

    fn pack<'f>(_f: &'f Builder, pair: [Value<'f, f32>; 2]) -> [Value<'f, f32>; 2] {
        pair
    }

    fn unpack<'f>(_f: &'f Builder, packed: [Value<'f, f32>; 2]) -> [Value<'f, f32>; 2] {
        packed
    }

    fn store_global<'f>(f: &'f Builder, address: Value<'f, u64>, offset: i32, packed: [Value<'f, f32>; 2]) {
        f.store_global(address, offset, packed);
    }

    fn store_shared<'f>(f: &'f Builder, address: Value<'f, u32>, offset: i32, packed: [Value<'f, f32>; 2]) {
        f.store_shared(address, offset, packed);
    }

    fn word<'f>(_f: &'f Builder, _packed: [Value<'f, f32>; 2]) -> Option<Value<'f, u32>> {
        None
    }

    fn decode(bits: u64) -> f64 {
        Format::F32.decode(bits)
    }

    fn encode(value: f64) -> u64 {
        Format::F32.encode(value)
    }
}

macro_rules! bytes {
    ($($ty:ident, $name:literal, $e5m2:literal, $format:expr;)*) => {$(
        impl Element for $ty {
            const NAME: &'static str = $name;
            const BITS: u32 = 8;
            const TENSOR: TensorElement = TensorElement::U8;
            const UNIT_ROUNDOFF: f64 = $format.unit_roundoff();
            const TINIEST: f64 = $format.tiniest();
            const LARGEST: f64 = $format.largest();
            const SATURATES: bool = true;
            type Memory = u8;
            type Packed<'f> = Value<'f, u16>;

            fn widen(value: Value<'_, u8>) -> Value<'_, f32> {
                let f = value.builder();
                let pair = value.cast::<u16>();
                let wide = f.alu(AluOp::Cvt(Cvt::WidenFp8 { e5m2: $e5m2, relu: false }), &[pair.operand()]);
                let [low, _] = f.unpack::<f16>(wide);
                low.cast()
            }

            fn pack<'f>(f: &'f Builder, [low, high]: [Value<'f, f32>; 2]) -> Value<'f, u16> {
                f.alu(AluOp::Cvt(Cvt::PackFp8 { e5m2: $e5m2, relu: false }), &[high.operand(), low.operand()])
            }

            fn unpack<'f>(_f: &'f Builder, packed: Value<'f, u16>) -> [Value<'f, u8>; 2] {
                [packed.cast(), (packed >> 8).cast()]
            }

            fn store_global<'f>(f: &'f Builder, address: Value<'f, u64>, offset: i32, packed: Value<'f, u16>) {
                f.store_global(address, offset, [packed]);
            }

            fn store_shared<'f>(f: &'f Builder, address: Value<'f, u32>, offset: i32, packed: Value<'f, u16>) {
                f.store_shared(address, offset, [packed]);
            }

            fn word<'f>(_f: &'f Builder, _packed: Value<'f, u16>) -> Option<Value<'f, u32>> {
                None
            }

            fn decode(bits: u64) -> f64 {
                $format.decode(bits)
            }

            fn encode(value: f64) -> u64 {
                $format.encode(value)
            }
        }
    )*};
}

bytes! {
    F8E4M3, "e4m3", false, Format::E4M3;
    F8E5M2, "e5m2", true, Format::E5M2;
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
