//! Number formats of operands and results: each is described here once, and everything else asks this description.
//!
//! Results are any [`Format`]: `f32`, `bf16`, `f16`, and the 8-bit floats [`F8E4M3`] and [`F8E5M2`]. Operands are those
//! that [`MultipliesWith`] joins.

mod float;

use core::fmt;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use ptx::abi::TensorElement;
use ptx::inst::{AluOp, Cvt};
use ptx::{Builder, Value, WgmmaTypes};

use float::Float;

/// A number format that matrices and vectors are made of: how it is rounded, loaded, and stored by pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// Eight bits of exponent, seven of mantissa.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Four bits of exponent, three of mantissa, no infinity; what is too large becomes the largest.
    E4m3,
    /// Five bits of exponent, two of mantissa; what is too large becomes the largest finite value.
    E5m2,
}

/// A [`Format`] as a type.
pub trait Element: Copy + fmt::Debug + 'static {
    /// Which.
    const FORMAT: Format;
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;
}

impl Element for bf16 {
    const FORMAT: Format = Format::Bf16;
}

impl Element for f16 {
    const FORMAT: Format = Format::F16;
}

impl Element for F8E4M3 {
    const FORMAT: Format = Format::E4m3;
}

impl Element for F8E5M2 {
    const FORMAT: Format = Format::E5m2;
}

/// One element in a register, as it lies in memory.
#[derive(Clone, Copy, Debug)]
pub enum Narrow<'f> {
    /// [`Format::F32`].
    F32(Value<'f, f32>),
    /// [`Format::Bf16`].
    Bf16(Value<'f, bf16>),
    /// [`Format::F16`].
    F16(Value<'f, f16>),
    /// A float of 8 bits.
    Byte(Value<'f, u8>),
}

/// Two neighbouring elements in registers.
#[derive(Clone, Copy, Debug)]
pub enum Packed<'f> {
    /// Two registers.
    Pair([Value<'f, f32>; 2]),
    /// Two elements of 16 bits, the first in the low half.
    Word(Value<'f, u32>),
    /// Two elements of 8 bits, the first in the low half.
    Half(Value<'f, u16>),
}

impl<'f> Packed<'f> {
    /// The pair as one matrix element of `stmatrix`, where it has 32 bits.
    pub fn word(self) -> Option<Value<'f, u32>> {
        match self {
            Self::Word(word) => Some(word),
            Self::Pair(_) | Self::Half(_) => None,
        }
    }

    /// Stores the pair at `address + offset` bytes of global memory, a multiple of the pair's size.
    pub fn store_global(self, address: Value<'f, u64>, offset: i32) {
        let f = address.builder();
        match self {
            Self::Pair(pair) => f.store_global(address, offset, pair),
            Self::Word(word) => f.store_global(address, offset, [word]),
            Self::Half(half) => f.store_global(address, offset, [half]),
        }
    }

    /// Stores the pair at a shared address, a multiple of the pair's size.
    pub fn store_shared(self, address: Value<'f, u32>) {
        let f = address.builder();
        match self {
            Self::Pair(pair) => f.store_shared(address, 0, pair),
            Self::Word(word) => f.store_shared(address, 0, [word]),
            Self::Half(half) => f.store_shared(address, 0, [half]),
        }
    }
}

impl<'f> Narrow<'f> {
    /// Stores the element at `address + offset` bytes of global memory.
    pub fn store_global(self, address: Value<'f, u64>, offset: i32) {
        let f = address.builder();
        match self {
            Self::F32(value) => f.store_global(address, offset, [value]),
            Self::Bf16(value) => f.store_global(address, offset, [value]),
            Self::F16(value) => f.store_global(address, offset, [value]),
            Self::Byte(value) => f.store_global(address, offset, [value]),
        }
    }
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 5] = [Self::F32, Self::Bf16, Self::F16, Self::E4m3, Self::E5m2];

    /// Its name in kernel names and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
        }
    }

    /// The type of a kernel's parameters that stands for it.
    pub const fn rust_type(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "F8E4M3",
            Self::E5m2 => "F8E5M2",
        }
    }

    /// The instruction that multiplies elements of this format by those of another, summed in `f32`; `None` where there is
    /// none.
    pub const fn multiplies(self, other: Self) -> Option<WgmmaTypes> {
        match (self, other) {
            (Self::Bf16, Self::Bf16) => Some(WgmmaTypes::Bf16F32),
            (Self::F16, Self::F16) => Some(WgmmaTypes::F16F32),
            (Self::F32 | Self::Bf16 | Self::F16 | Self::E4m3 | Self::E5m2, _) => None,
        }
    }

    /// The format of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Width in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::F32 => 32,
            Self::Bf16 | Self::F16 => 16,
            Self::E4m3 | Self::E5m2 => 8,
        }
    }

    /// Width in bytes.
    pub const fn bytes(self) -> u32 {
        self.bits() / 8
    }

    /// What a tensor map calls it.
    pub const fn tensor(self) -> TensorElement {
        match self {
            Self::F32 => TensorElement::F32,
            Self::Bf16 => TensorElement::Bf16,
            Self::F16 => TensorElement::F16,
            Self::E4m3 | Self::E5m2 => TensorElement::U8,
        }
    }

    /// What is larger becomes the largest; otherwise infinity.
    pub const fn saturates(self) -> bool {
        match self {
            Self::E4m3 | Self::E5m2 => true,
            Self::F32 | Self::Bf16 | Self::F16 => false,
        }
    }

    const fn float(self) -> Float {
        match self {
            Self::F32 => Float::F32,
            Self::Bf16 => Float::BF16,
            Self::F16 => Float::F16,
            Self::E4m3 => Float::E4M3,
            Self::E5m2 => Float::E5M2,
        }
    }

    /// The unit roundoff: the largest relative error of rounding to it.
    pub const fn unit_roundoff(self) -> f64 {
        self.float().unit_roundoff()
    }

    /// The smallest positive value (subnormal): the absolute error of rounding near zero is half of it.
    pub const fn tiniest(self) -> f64 {
        self.float().tiniest()
    }

    /// The largest finite value.
    pub const fn largest(self) -> f64 {
        self.float().largest()
    }

    /// The value of an element's bits.
    pub fn decode(self, bits: u64) -> f64 {
        self.float().decode(bits)
    }

    /// The bits of the element nearest to a value, ties to even, with one rounding: what the device stores for a value
    /// that `f32` has. NaN has the bits of one of the format's NaNs.
    pub fn encode(self, value: f64) -> u64 {
        self.float().encode(value)
    }

    /// Loads one element from `address + offset` bytes of global memory.
    pub fn load<'f>(self, f: &'f Builder, address: Value<'f, u64>, offset: i32) -> Narrow<'f> {
        match self {
            Self::F32 => Narrow::F32(f.load_global(address, offset)),
            Self::Bf16 => Narrow::Bf16(f.load_global(address, offset)),
            Self::F16 => Narrow::F16(f.load_global(address, offset)),
            Self::E4m3 | Self::E5m2 => Narrow::Byte(f.load_global(address, offset)),
        }
    }

    /// Loads two neighbours from `address + offset` bytes of global memory, a multiple of their size.
    pub fn load_pair<'f>(self, f: &'f Builder, address: Value<'f, u64>, offset: i32) -> [Narrow<'f>; 2] {
        match self {
            Self::F32 => f.load_global_vector(address, offset).map(Narrow::F32),
            Self::Bf16 => f.load_global_vector(address, offset).map(Narrow::Bf16),
            Self::F16 => f.load_global_vector(address, offset).map(Narrow::F16),
            Self::E4m3 | Self::E5m2 => f.load_global_vector(address, offset).map(Narrow::Byte),
        }
    }

    /// Loads two neighbours from a shared address, a multiple of their size.
    pub fn load_shared_pair<'f>(self, f: &'f Builder, address: Value<'f, u32>) -> [Narrow<'f>; 2] {
        match self {
            Self::F32 => f.load_shared_vector(address, 0).map(Narrow::F32),
            Self::Bf16 => f.load_shared_vector(address, 0).map(Narrow::Bf16),
            Self::F16 => f.load_shared_vector(address, 0).map(Narrow::F16),
            Self::E4m3 | Self::E5m2 => f.load_shared_vector(address, 0).map(Narrow::Byte),
        }
    }

    /// The two elements of 16 bits of a word; wider and narrower ones are in no such word.
    pub fn of_word<'f>(self, f: &'f Builder, word: Value<'f, u32>) -> Option<[Narrow<'f>; 2]> {
        match self {
            Self::Bf16 => Some(f.unpack(word).map(Narrow::Bf16)),
            Self::F16 => Some(f.unpack(word).map(Narrow::F16)),
            Self::F32 | Self::E4m3 | Self::E5m2 => None,
        }
    }

    /// Widens one stored element on the device.
    pub fn widen(self, element: Narrow<'_>) -> Value<'_, f32> {
        match element {
            Narrow::F32(value) => value,
            Narrow::Bf16(value) => value.cast(),
            Narrow::F16(value) => value.cast(),
            Narrow::Byte(value) => {
                let f = value.builder();
                let pair = value.cast::<u16>();
                let e5m2 = self == Self::E5m2;
                let wide = f.alu(AluOp::Cvt(Cvt::WidenFp8 { e5m2, relu: false }), &[pair.operand()]);
                let [low, _] = f.unpack::<f16>(wide);
                low.cast()
            }
        }
    }

    /// Rounds two neighbours, the first of them first.
    pub fn pack<'f>(self, f: &'f Builder, [low, high]: [Value<'f, f32>; 2]) -> Packed<'f> {
        let bytes = |e5m2| {
            let pack = AluOp::Cvt(Cvt::PackFp8 { e5m2, relu: false });
            Packed::Half(f.alu(pack, &[high.operand(), low.operand()]))
        };
        match self {
            Self::F32 => Packed::Pair([low, high]),
            Self::Bf16 => Packed::Word(f.pack::<bf16>(low, high)),
            Self::F16 => Packed::Word(f.pack::<f16>(low, high)),
            Self::E4m3 => bytes(false),
            Self::E5m2 => bytes(true),
        }
    }

    /// The two elements of a pair, each to be stored on its own.
    pub fn unpack<'f>(self, f: &'f Builder, packed: Packed<'f>) -> [Narrow<'f>; 2] {
        match packed {
            Packed::Pair(pair) => pair.map(Narrow::F32),
            Packed::Word(word) if self == Self::F16 => f.unpack(word).map(Narrow::F16),
            Packed::Word(word) => f.unpack(word).map(Narrow::Bf16),
            Packed::Half(half) => [half.cast(), (half >> 8).cast()].map(Narrow::Byte),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
