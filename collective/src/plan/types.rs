//! The instructions that multiply, by the types of their operands and accumulators.

use ptx::WgmmaTypes;
use ptx::inst::{MmaTypes, WgmmaSum};

use super::Atom;
use crate::element::Format;

/// An instruction that multiplies, and its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomTypes {
    /// `wgmma`: a warpgroup multiplies 64 rows. B comes from shared memory, and A as [`Source`](super::Source) says.
    Wgmma(WgmmaTypes),
    /// `mma.sync`: each of four warps multiplies 16 rows. Its operands come from shared memory by `ldmatrix`.
    MmaSync(MmaTypes),
    /// `fma` of `f32`: each thread multiplies the rows and columns of its own elements of the tile.
    Simt,
}

/// The type of the accumulators during the mainloop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccumulatorType {
    /// Half precision, two per register.
    F16,
    /// Single precision.
    F32,
    /// 32-bit integers.
    S32,
    /// Double precision, two registers each.
    F64,
}

impl AccumulatorType {
    /// Its name in specs.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::S32 => "s32",
            Self::F64 => "f64",
        }
    }

    /// Number of 32-bit registers per accumulator, as the epilogue receives it.
    pub const fn registers(self) -> u32 {
        match self {
            Self::F16 | Self::F32 | Self::S32 => 1,
            Self::F64 => 2,
        }
    }
}

impl From<WgmmaSum> for AccumulatorType {
    fn from(sum: WgmmaSum) -> Self {
        Self::of(sum)
    }
}

impl AccumulatorType {
    /// The accumulator type of a `wgmma`.
    pub const fn of(sum: WgmmaSum) -> Self {
        match sum {
            WgmmaSum::F16 => Self::F16,
            WgmmaSum::F32 => Self::F32,
            WgmmaSum::S32 => Self::S32,
        }
    }
}

/// An instruction that multiplies, without its types: what a spec names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MmaKind {
    /// `wgmma`.
    Wgmma,
    /// `mma.sync`.
    MmaSync,
    /// `fma`.
    Simt,
}

impl MmaKind {
    /// All of them, the fastest first.
    pub const ALL: [Self; 3] = [Self::Wgmma, Self::MmaSync, Self::Simt];

    /// Its name in specs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wgmma => "wgmma",
            Self::MmaSync => "mma.sync",
            Self::Simt => "simt",
        }
    }

    /// The atom that multiplies elements of these formats; `None` if the instruction has none.
    ///
    /// ```
    /// use collective::{Format, MmaKind};
    ///
    /// let k = |by: MmaKind, format| by.atom(format, format).map(|atom| atom.k());
    /// assert_eq!(k(MmaKind::MmaSync, Format::Bf16), Some(16));
    /// assert_eq!(k(MmaKind::Simt, Format::F32), Some(4));
    /// assert_eq!(k(MmaKind::Wgmma, Format::F32), None);
    /// ```
    pub const fn atom(self, a: Format, b: Format) -> Option<Atom> {
        match (self, a, b) {
            (Self::Wgmma, _, _) => match a.multiplies(b) {
                Some(types) => Some(Atom::shared(types)),
                None => None,
            },
            (Self::MmaSync, Format::Bf16, Format::Bf16) => Some(Atom::mma_sync(MmaTypes::Bf16F32)),
            (Self::MmaSync, Format::F16, Format::F16) => Some(Atom::mma_sync(MmaTypes::F16F32)),
            (Self::MmaSync, Format::Tf32, Format::Tf32) => Some(Atom::mma_sync(MmaTypes::Tf32F32)),
            (Self::MmaSync, Format::S8 | Format::U8, Format::S8 | Format::U8) => {
                let (signed_a, signed_b) = (matches!(a, Format::S8), matches!(b, Format::S8));
                Some(Atom::mma_sync(MmaTypes::Int8 { signed_a, signed_b, saturate: false }))
            }
            (Self::MmaSync, Format::F64, Format::F64) => Some(Atom::mma_sync(MmaTypes::F64)),
            (Self::Simt, Format::F32, Format::F32) => Some(Atom::simt()),
            (Self::MmaSync | Self::Simt, _, _) => None,
        }
    }

    /// The fastest instruction that multiplies elements of these formats; `None` if there is none.
    pub const fn fastest(a: Format, b: Format) -> Option<Self> {
        let mut i = 0;
        while i < Self::ALL.len() {
            if Self::ALL[i].atom(a, b).is_some() {
                return Some(Self::ALL[i]);
            }
            i += 1;
        }
        None
    }
}

impl AtomTypes {
    /// The instruction without its types.
    pub const fn multiply(self) -> MmaKind {
        match self {
            Self::Wgmma(_) => MmaKind::Wgmma,
            Self::MmaSync(_) => MmaKind::MmaSync,
            Self::Simt => MmaKind::Simt,
        }
    }

    /// The types of `wgmma`; `None` for other instructions.
    pub const fn wgmma(self) -> Option<WgmmaTypes> {
        match self {
            Self::Wgmma(types) => Some(types),
            Self::MmaSync(_) | Self::Simt => None,
        }
    }

    /// K of one instruction, in elements. For `fma`: the number of elements a thread loads at a time.
    pub const fn k(self) -> u32 {
        match self {
            Self::Wgmma(types) => types.k(),
            Self::MmaSync(types) => types.k(),
            Self::Simt => 4,
        }
    }

    /// Bits of an element of A and B as it is multiplied.
    pub const fn element_bits(self) -> u32 {
        match self {
            Self::Wgmma(types) => types.element_bits(),
            Self::MmaSync(MmaTypes::F64) => 64,
            Self::MmaSync(types) => 256 / types.k(),
            Self::Simt => 32,
        }
    }

    /// The accumulators' type.
    pub const fn d(self) -> AccumulatorType {
        match self {
            Self::Wgmma(types) => AccumulatorType::of(types.d()),
            Self::MmaSync(MmaTypes::Int8 { .. }) => AccumulatorType::S32,
            Self::MmaSync(MmaTypes::F16F16) => AccumulatorType::F16,
            Self::MmaSync(MmaTypes::F64) => AccumulatorType::F64,
            Self::MmaSync(MmaTypes::Bf16F32 | MmaTypes::F16F32 | MmaTypes::Tf32F32) | Self::Simt => {
                AccumulatorType::F32
            }
        }
    }

    /// Accumulator registers per thread for this many columns, in 32-bit registers.
    pub const fn accumulators(self, columns: u32) -> u32 {
        match (self, self.d()) {
            (Self::Wgmma(types), _) => types.accumulators(columns),
            (Self::MmaSync(_) | Self::Simt, AccumulatorType::F16) => columns / 4,
            (Self::MmaSync(_) | Self::Simt, AccumulatorType::F32 | AccumulatorType::S32) => columns / 2,
            (Self::MmaSync(_) | Self::Simt, AccumulatorType::F64) => columns,
        }
    }

    /// Whether one instruction can multiply this many columns.
    pub const fn allows(self, columns: u32) -> bool {
        match self {
            Self::Wgmma(types) => types.allows(columns),
            Self::MmaSync(_) => columns >= 16 && columns <= 256 && columns.is_multiple_of(16),
            Self::Simt => columns >= 8 && columns <= 256 && columns.is_multiple_of(8),
        }
    }

    /// Whether A may be M-major and B N-major.
    pub const fn allows_transpose(self) -> bool {
        match self {
            Self::Wgmma(types) => types.allows_transpose(),
            Self::MmaSync(types) => types.k() == 16,
            Self::Simt => true,
        }
    }

    /// Its part of a kernel's name.
    pub(super) fn suffix(self) -> String {
        match self {
            Self::Wgmma(types) => types.suffix().replace('.', "_"),
            Self::MmaSync(_) => "mma_sync".to_owned(),
            Self::Simt => "simt".to_owned(),
        }
    }
}
