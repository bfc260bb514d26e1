//! The legal forms of `wgmma.mma_async`: types and shapes.
//!
//! Source: PTX ISA "Asynchronous warpgroup-level matrix multiply-accumulate", shapes and types.
//!
//! ```
//! use ptx::WgmmaTypes;
//!
//! let types = WgmmaTypes::Bf16F32;
//! assert_eq!(types.suffix(), "f32.bf16.bf16");
//! assert_eq!((types.k(), types.accumulators(256)), (16, 128));
//! // Any multiple of 8 columns up to 256.
//! assert!(types.allows(24) && !types.allows(20) && !types.allows(264));
//! ```

use super::{Operand, Reg};

/// Element types of a `wgmma`: of A and B, then of D. M is 64, K follows from the types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WgmmaTypes {
    /// `.f32.bf16.bf16`, K = 16.
    Bf16F32,
    /// `.f32.f16.f16`, K = 16.
    F16F32,
    /// `.f16.f16.f16`, K = 16.
    F16F16,
    /// `.f32.tf32.tf32`, K = 8. Elements are 32 bits wide; the low 13 bits are not read.
    Tf32F32,
    /// `.f32` accumulators of 8-bit floats, K = 32: the formats of A and B.
    Fp8F32(Fp8, Fp8),
    /// `.f16` accumulators of 8-bit floats, K = 32: the formats of A and B.
    Fp8F16(Fp8, Fp8),
    /// `.s32` accumulators of 8-bit integers, K = 32.
    Int8 {
        /// A's elements.
        a: Int8,
        /// B's elements.
        b: Int8,
        /// `.satfinite`: whether accumulators are clamped to the range of `.s32`; otherwise they wrap.
        saturate: bool,
    },
    /// `.s32.b1.b1.and.popc`, K = 256: adds the number of bits that are set in both operands.
    B1,
}

/// An 8-bit floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8 {
    /// 4 bits of exponent, 3 of significand; no infinities, largest 448.
    E4m3,
    /// 5 bits of exponent, 2 of significand; largest 57344.
    E5m2,
}

/// An 8-bit integer format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Int8 {
    /// Signed.
    S8,
    /// Unsigned.
    U8,
}

/// The format of an element of A or B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WgmmaElement {
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// The upper 19 bits of a binary32.
    Tf32,
    /// An 8-bit float.
    Fp8(Fp8),
    /// An 8-bit integer.
    Int8(Int8),
    /// One bit.
    B1,
}

/// The format of an element of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WgmmaSum {
    /// IEEE binary16, two per register, the even column in the low half.
    F16,
    /// IEEE binary32.
    F32,
    /// A 32-bit integer.
    S32,
}

impl WgmmaElement {
    /// Width in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 => 32,
            Self::Fp8(_) | Self::Int8(_) => 8,
            Self::B1 => 1,
        }
    }

    /// PTX's suffix, without the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Tf32 => "tf32",
            Self::Fp8(Fp8::E4m3) => "e4m3",
            Self::Fp8(Fp8::E5m2) => "e5m2",
            Self::Int8(Int8::S8) => "s8",
            Self::Int8(Int8::U8) => "u8",
            Self::B1 => "b1",
        }
    }
}

impl WgmmaSum {
    /// PTX's suffix, without the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::S32 => "s32",
        }
    }
}

impl WgmmaTypes {
    /// All combinations of types that exist.
    pub fn all() -> impl Iterator<Item = Self> {
        let floats = [Fp8::E4m3, Fp8::E5m2];
        let integers = [Int8::S8, Int8::U8];
        let fp8 = floats.into_iter().flat_map(move |a| floats.map(|b| (a, b)));
        let int8 = integers.into_iter().flat_map(move |a| integers.map(|b| (a, b)));
        [Self::Bf16F32, Self::F16F32, Self::F16F16, Self::Tf32F32]
            .into_iter()
            .chain(fp8.flat_map(|(a, b)| [Self::Fp8F32(a, b), Self::Fp8F16(a, b)]))
            .chain(int8.flat_map(|(a, b)| [false, true].map(|saturate| Self::Int8 { a, b, saturate })))
            .chain([Self::B1])
    }

    /// The format of A's elements.
    pub const fn a(self) -> WgmmaElement {
        match self {
            Self::Bf16F32 => WgmmaElement::Bf16,
            Self::F16F32 | Self::F16F16 => WgmmaElement::F16,
            Self::Tf32F32 => WgmmaElement::Tf32,
            Self::Fp8F32(a, _) | Self::Fp8F16(a, _) => WgmmaElement::Fp8(a),
            Self::Int8 { a, .. } => WgmmaElement::Int8(a),
            Self::B1 => WgmmaElement::B1,
        }
    }

    /// The format of B's elements.
    pub const fn b(self) -> WgmmaElement {
        match self {
            Self::Bf16F32 | Self::F16F32 | Self::F16F16 | Self::Tf32F32 | Self::B1 => self.a(),
            Self::Fp8F32(_, b) | Self::Fp8F16(_, b) => WgmmaElement::Fp8(b),
            Self::Int8 { b, .. } => WgmmaElement::Int8(b),
        }
    }

    /// The format of D's elements.
    pub const fn d(self) -> WgmmaSum {
        match self {
            Self::Bf16F32 | Self::F16F32 | Self::Tf32F32 | Self::Fp8F32(..) => WgmmaSum::F32,
            Self::F16F16 | Self::Fp8F16(..) => WgmmaSum::F16,
            Self::Int8 { .. } | Self::B1 => WgmmaSum::S32,
        }
    }

    /// The same operand types with `.f16` accumulators. `None` if there is no such instruction.
    pub const fn in_half(self) -> Option<Self> {
        match self {
            Self::F16F32 | Self::F16F16 => Some(Self::F16F16),
            Self::Fp8F32(a, b) | Self::Fp8F16(a, b) => Some(Self::Fp8F16(a, b)),
            Self::Bf16F32 | Self::Tf32F32 | Self::Int8 { .. } | Self::B1 => None,
        }
    }

    /// K of one dense instruction: the number of elements in 32 bytes. A sparse instruction has twice this K.
    pub const fn k(self) -> u32 {
        256 / self.element_bits()
    }

    /// Width of an element of A and B, in bits.
    pub const fn element_bits(self) -> u32 {
        self.a().bits()
    }

    /// The number of 32-bit accumulator registers per thread for a given N.
    pub const fn accumulators(self, n: u32) -> u32 {
        match self.d() {
            WgmmaSum::F32 | WgmmaSum::S32 => n / 2,
            WgmmaSum::F16 => n / 4,
        }
    }

    /// Whether the instruction exists for this N: 8 to 256 in steps of 8; for `.s32` accumulators in steps of
    /// 16 above 32.
    pub const fn allows(self, n: u32) -> bool {
        let step = if matches!(self.d(), WgmmaSum::S32) && n > 32 { 16 } else { 8 };
        n >= 8 && n <= 256 && n.is_multiple_of(step)
    }

    /// Whether operands in shared memory may be MN-major: 16-bit types only.
    pub const fn allows_transpose(self) -> bool {
        self.element_bits() == 16
    }

    /// Whether operands may be negated: floating-point types only.
    pub const fn allows_negation(self) -> bool {
        !matches!(self.d(), WgmmaSum::S32)
    }

    /// The largest metadata selector of the sparse form. `None` if there is no sparse form.
    pub const fn sparse_selectors(self) -> Option<u32> {
        match self.element_bits() {
            16 | 32 => Some(1),
            8 => Some(0),
            _ => None,
        }
    }

    /// The types of D, A and B as PTX writes them, without the first dot.
    pub fn suffix(self) -> String {
        let (d, a, b) = (self.d().suffix(), self.a().suffix(), self.b().suffix());
        match self {
            Self::Int8 { saturate: true, .. } => format!("satfinite.{d}.{a}.{b}"),
            Self::B1 => format!("{d}.{a}.{b}.and.popc"),
            Self::Bf16F32
            | Self::F16F32
            | Self::F16F16
            | Self::Tf32F32
            | Self::Fp8F32(..)
            | Self::Fp8F16(..)
            | Self::Int8 { .. } => format!("{d}.{a}.{b}"),
        }
    }
}

/// The source of operand A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WgmmaA {
    /// Shared memory, through a `.u64` matrix descriptor.
    Shared(Operand),
    /// The thread's fragment of A: four 32-bit registers.
    Registers([Reg; 4]),
}

/// The metadata of a sparse `wgmma`: A has half of the elements of each chunk of K, and the metadata says
/// which half.
///
/// For 16- and 8-bit types a chunk is four neighbours along K, and two are kept. For `.tf32` a chunk is two
/// neighbours, and one is kept. Each chunk has four bits of metadata. For 16- and 8-bit types they are the
/// two positions that are kept, the lower position in the low two bits. For `.tf32` they are `0b0100` for the
/// first element and `0b1110` for the second. Chunk j of a register is in bits 4j to 4j + 3. The registers
/// are distributed over the lanes of a warp:
///
/// * For 16- and 32-bit types, lane 4g + 2 * selector + h has the metadata of the h-th half of K: of row g of
///   the warp's 16 rows in its low 16 bits, and of row g + 8 in its high 16 bits. The registers of the other
///   lanes are not read.
/// * For 8-bit types, lane 4g + c has the metadata of row g + 8 (c % 2), of half c / 2 of K.
///
/// Source: PTX ISA "Sparse matrix storage" of `wgmma.mma_async.sp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WgmmaSparse {
    /// A `.u32` register with this lane's metadata.
    pub metadata: Reg,
    /// Selects the lanes whose metadata is read: 0 or 1; 0 for 8-bit types.
    pub selector: u32,
}
