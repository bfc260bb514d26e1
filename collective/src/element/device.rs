//! Elements in registers: loading, widening, rounding and storing.

use ptx::inst::{AluOp, Cvt, Rounding};
use ptx::{Builder, Value};

use half::{bf16, f16};

use super::Format;

/// One element in a register, in its memory format.
#[derive(Clone, Copy, Debug)]
pub enum Narrow<'f> {
    /// [`Format::F32`], or [`Format::Tf32`].
    F32(Value<'f, f32>),
    /// [`Format::Bf16`].
    Bf16(Value<'f, bf16>),
    /// [`Format::F16`].
    F16(Value<'f, f16>),
    /// An 8-bit float or integer.
    Byte(Value<'f, u8>),
    /// [`Format::S32`].
    S32(Value<'f, i32>),
    /// [`Format::F64`].
    F64(Value<'f, f64>),
}

/// Two neighbouring elements in registers.
#[derive(Clone, Copy, Debug)]
pub enum Packed<'f> {
    /// Two 32-bit registers. 32-bit integers are held as the bits of an `f32`.
    Pair([Value<'f, f32>; 2]),
    /// Two 16-bit elements, the first in the low half.
    Word(Value<'f, u32>),
    /// Two 8-bit elements, the first in the low half.
    Half(Value<'f, u16>),
    /// Two 64-bit elements.
    Doubles([Value<'f, f64>; 2]),
}

impl<'f> Packed<'f> {
    /// The pair as one 32-bit matrix element of `stmatrix`; `None` if it is not 32 bits in one register.
    pub fn word(self) -> Option<Value<'f, u32>> {
        match self {
            Self::Word(word) => Some(word),
            Self::Pair(_) | Self::Half(_) | Self::Doubles(_) => None,
        }
    }

    /// Stores the pair at `address + offset` bytes of global memory, a multiple of the pair's size.
    #[track_caller]
    pub fn store_global(self, address: Value<'f, u64>, offset: i32) {
        let f = address.builder();
        match self {
            Self::Pair(pair) => f.store_global(address, offset, pair),
            Self::Word(word) => f.store_global(address, offset, [word]),
            Self::Half(half) => f.store_global(address, offset, [half]),
            Self::Doubles(pair) => f.store_global(address, offset, pair),
        }
    }

    /// Stores the pair at a shared address, a multiple of the pair's size.
    #[track_caller]
    pub fn store_shared(self, address: Value<'f, u32>) {
        let f = address.builder();
        match self {
            Self::Pair(pair) => f.store_shared(address, 0, pair),
            Self::Word(word) => f.store_shared(address, 0, [word]),
            Self::Half(half) => f.store_shared(address, 0, [half]),
            Self::Doubles(pair) => f.store_shared(address, 0, pair),
        }
    }
}

impl<'f> Narrow<'f> {
    /// Stores the element at `address + offset` bytes of global memory.
    #[track_caller]
    pub fn store_global(self, address: Value<'f, u64>, offset: i32) {
        let f = address.builder();
        match self {
            Self::F32(value) => f.store_global(address, offset, [value]),
            Self::Bf16(value) => f.store_global(address, offset, [value]),
            Self::F16(value) => f.store_global(address, offset, [value]),
            Self::Byte(value) => f.store_global(address, offset, [value]),
            Self::S32(value) => f.store_global(address, offset, [value]),
            Self::F64(value) => f.store_global(address, offset, [value]),
        }
    }
}

/// Elements of a format from what `$load` loads of their type.
macro_rules! loaded {
    ($format:expr, $load:expr) => {
        match $format {
            Format::F32 | Format::Tf32 => $load.map(Narrow::F32),
            Format::Bf16 => $load.map(Narrow::Bf16),
            Format::F16 => $load.map(Narrow::F16),
            Format::E4m3 | Format::E5m2 | Format::S8 | Format::U8 => $load.map(Narrow::Byte),
            Format::S32 => $load.map(Narrow::S32),
            Format::F64 => $load.map(Narrow::F64),
        }
    };
}

impl Format {
    /// Loads one element from `address + offset` bytes of global memory.
    #[track_caller]
    pub fn load<'f>(self, f: &'f Builder, address: Value<'f, u64>, offset: i32) -> Narrow<'f> {
        let [element] = loaded!(self, [f.load_global(address, offset)]);
        element
    }

    /// Loads two neighbours from `address + offset` bytes of global memory, a multiple of their size.
    #[track_caller]
    pub fn load_pair<'f>(self, f: &'f Builder, address: Value<'f, u64>, offset: i32) -> [Narrow<'f>; 2] {
        loaded!(self, f.load_global_vector(address, offset))
    }

    /// Loads two neighbours from a shared address, a multiple of their size.
    #[track_caller]
    pub fn load_shared_pair<'f>(self, f: &'f Builder, address: Value<'f, u32>) -> [Narrow<'f>; 2] {
        loaded!(self, f.load_shared_vector(address, 0))
    }

    /// The two 16-bit elements of a word; `None` for formats of other widths.
    #[track_caller]
    pub fn of_word<'f>(self, f: &'f Builder, word: Value<'f, u32>) -> Option<[Narrow<'f>; 2]> {
        match self {
            Self::Bf16 => Some(f.unpack(word).map(Narrow::Bf16)),
            Self::F16 => Some(f.unpack(word).map(Narrow::F16)),
            Self::F32
            | Self::Tf32
            | Self::E4m3
            | Self::E5m2
            | Self::S8
            | Self::U8
            | Self::S32
            | Self::F64 => None,
        }
    }

    /// Widens a stored element to `f32` on the device. An `f64` is rounded to the nearest `f32`.
    #[track_caller]
    pub fn widen(self, element: Narrow<'_>) -> Value<'_, f32> {
        match element {
            Narrow::F32(value) => value,
            Narrow::Bf16(value) => value.cast(),
            Narrow::F16(value) => value.cast(),
            Narrow::S32(value) => value.cast(),
            Narrow::F64(value) => value.cast(),
            Narrow::Byte(value) if self == Self::U8 => value.cast::<u32>().cast(),
            Narrow::Byte(value) if self == Self::S8 => {
                ((value.cast::<u32>() << 24).bits_as::<i32>() >> 24).cast()
            }
            Narrow::Byte(value) => {
                let f = value.builder();
                let [low, _] = f.unpack::<f16>(self.halves(value.cast()));
                low.cast()
            }
        }
    }

    /// Two neighbours of an 8-bit float format as a word of `f16`.
    fn halves(self, pair: Value<'_, u16>) -> Value<'_, u32> {
        let e5m2 = self == Self::E5m2;
        pair.builder().alu(AluOp::Cvt(Cvt::WidenFp8 { e5m2, relu: false }), &[pair.operand()])
    }

    /// The elements of a word of an 8-bit float format as two words of `to`, a 16-bit format. Nothing is rounded, and NaN stays NaN.
    /// `None` for other formats.
    #[track_caller]
    pub fn widen_word<'f>(self, word: Value<'f, u32>, to: Self) -> Option<[Value<'f, u32>; 2]> {
        let f = word.builder();
        f.for_caller(|| {
            let bytes = matches!(self, Self::E4m3 | Self::E5m2);
            if !bytes || !matches!(to, Self::F16 | Self::Bf16) {
                return None;
            }
            Some(f.unpack::<u16>(word).map(|pair| {
                let halves = self.halves(pair);
                if to == Self::F16 {
                    return halves;
                }
                let [low, high] = f.unpack::<f16>(halves).map(Value::cast);
                f.pack::<bf16>(low, high)
            }))
        })
    }

    /// Rounds two neighbours to this format, the first in the low half. Integers are rounded to nearest and
    /// saturated.
    #[track_caller]
    pub fn pack<'f>(self, f: &'f Builder, pair: [Value<'f, f32>; 2]) -> Packed<'f> {
        f.for_caller(|| self.packed(f, pair))
    }

    fn packed<'f>(self, f: &'f Builder, [low, high]: [Value<'f, f32>; 2]) -> Packed<'f> {
        let bytes = |e5m2| {
            let pack = AluOp::Cvt(Cvt::PackFp8 { e5m2, relu: false });
            Packed::Half(f.alu(pack, &[high.operand(), low.operand()]))
        };
        let nearest = |value: Value<'f, f32>| -> Value<'f, i32> {
            f.alu(AluOp::Cvt(Cvt::ToSigned(Rounding::Nearest)), &[value.operand()])
        };
        match self {
            Self::F32 | Self::Tf32 => Packed::Pair([low, high]),
            Self::S32 => Packed::Pair([low, high].map(|value| nearest(value).bits_as())),
            Self::S8 | Self::U8 => self.pack_whole(f, [low, high].map(nearest)),
            Self::F64 => Packed::Doubles([low, high].map(Value::cast)),
            Self::Bf16 => Packed::Word(f.pack::<bf16>(low, high)),
            Self::F16 => Packed::Word(f.pack::<f16>(low, high)),
            Self::E4m3 => bytes(false),
            Self::E5m2 => bytes(true),
        }
    }

    /// Two integers in this format of integers, saturated, the first in the low half.
    #[track_caller]
    pub(crate) fn pack_whole<'f>(self, f: &'f Builder, [low, high]: [Value<'f, i32>; 2]) -> Packed<'f> {
        if !matches!(self, Self::S8 | Self::U8) {
            return Packed::Pair([low, high].map(Value::bits_as));
        }
        let pack = AluOp::Cvt(Cvt::PackInt8 { signed: self == Self::S8 });
        let word: Value<'f, u32> = f.alu(pack, &[high.operand(), low.operand(), f.constant(0u32).operand()]);
        Packed::Half(word.cast())
    }

    /// An element of this format of integers, as an integer; `None` for formats of other widths.
    #[track_caller]
    pub fn widen_whole(self, element: Narrow<'_>) -> Option<Value<'_, i32>> {
        match element {
            Narrow::S32(value) => Some(value),
            Narrow::Byte(value) if self == Self::U8 => Some(value.cast::<u32>().cast()),
            Narrow::Byte(value) => Some((value.cast::<u32>() << 24).bits_as::<i32>() >> 24),
            Narrow::F32(_) | Narrow::Bf16(_) | Narrow::F16(_) | Narrow::F64(_) => None,
        }
    }

    /// The two elements of a pair, to be stored separately.
    #[track_caller]
    pub fn unpack<'f>(self, f: &'f Builder, packed: Packed<'f>) -> [Narrow<'f>; 2] {
        match packed {
            Packed::Pair(pair) => pair.map(Narrow::F32),
            Packed::Doubles(pair) => pair.map(Narrow::F64),
            Packed::Word(word) if self == Self::F16 => f.unpack(word).map(Narrow::F16),
            Packed::Word(word) => f.unpack(word).map(Narrow::Bf16),
            Packed::Half(half) => [half.cast(), (half >> 8).cast()].map(Narrow::Byte),
        }
    }
}
