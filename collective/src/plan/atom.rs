//! The multiply atom: the instruction that multiplies, and where its A comes from.

use cute_rs::atom::{Major, mma, wgmma};
use cute_rs::{LayoutError, MmaAtom};
use ptx::WgmmaTypes;
use ptx::inst::MmaTypes;

use super::{AtomTypes, OperandSpec, SumType};

/// Where an instruction takes operand A from. B always comes from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Shared memory, as the instruction reads it: A lies there in the format that is multiplied.
    Shared,
    /// Registers: threads load A's tile, and may convert it, before each multiply.
    Registers,
}

/// The multiply atom: `m64nNk(32 bytes)` of `wgmma`, for some types of A, B and the sums, or the same by other instructions.
///
/// ```
/// use collective::{Atom, SumType};
/// use ptx::WgmmaTypes;
/// use ptx::inst::Int8;
///
/// let bytes = Atom::shared(WgmmaTypes::Int8 { a: Int8::S8, b: Int8::S8, saturate: false });
/// assert_eq!((bytes.rows(), bytes.k(), bytes.sums()), (64, 32, SumType::S32));
/// assert!(bytes.allows(48) && !bytes.allows(40));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atom {
    /// The instruction and its types.
    pub types: AtomTypes,
    /// Where A comes from.
    pub a: Source,
    /// After how many instructions along K a sum is added to one in `f32` registers of its own, and begins anew; 0 for never.
    ///
    /// `wgmma` adds products of 8-bit floats with few bits: [`Promoted`](crate::Promoted) says how few.
    pub promote: u32,
    /// Whether A holds half of each chunk of K, with metadata: an instruction has twice the K then.
    pub sparse: bool,
}

impl Atom {
    /// Most instructions along K between two promotions: the k-tiles of so many are emitted one after the other.
    pub const MOST_PROMOTED: u32 = 64;

    /// Both operands from shared memory.
    pub const fn shared(types: WgmmaTypes) -> Self {
        Self { types: AtomTypes::Wgmma(types), a: Source::Shared, promote: 0, sparse: false }
    }

    /// A from registers.
    pub const fn registers(types: WgmmaTypes) -> Self {
        Self { types: AtomTypes::Wgmma(types), a: Source::Registers, promote: 0, sparse: false }
    }

    /// `mma.sync`, whose operands threads bring from shared memory to registers.
    pub const fn mma_sync(types: MmaTypes) -> Self {
        Self { types: AtomTypes::MmaSync(types), a: Source::Shared, promote: 0, sparse: false }
    }

    /// Plain multiplications of `f32`.
    pub const fn simt() -> Self {
        Self { types: AtomTypes::Simt, a: Source::Shared, promote: 0, sparse: false }
    }

    /// The same with sums promoted after so many instructions along K; 0 for never.
    #[must_use]
    pub const fn promoted(self, every: u32) -> Self {
        Self { promote: every, ..self }
    }

    /// The same for an operand A that lies in memory so: in few bits it comes from registers, and a sparse one has its own instructions.
    #[must_use]
    pub const fn taking(self, a: OperandSpec) -> Self {
        let source = if a.weights.is_some() { Source::Registers } else { self.a };
        Self { a: source, sparse: a.sparse, ..self }
    }

    /// How many elements along K a chunk of A stands for: 2 for each that a sparse one keeps.
    pub const fn density(self) -> u32 {
        if self.sparse { 2 } else { 1 }
    }

    /// The types of `wgmma`; `None` of other instructions.
    pub const fn wgmma(self) -> Option<WgmmaTypes> {
        self.types.wgmma()
    }

    /// Whether threads load both operands into registers and wait for each other at barriers, in place of `wgmma`.
    pub const fn by_threads(self) -> bool {
        self.wgmma().is_none()
    }

    /// Rows of one instruction, or of those of four warps: a *block* of a tile.
    pub const fn rows(self) -> u32 {
        64
    }

    /// K of one instruction.
    pub const fn k(self) -> u32 {
        self.types.k() * self.density()
    }

    /// Bits of an element of A and B as they are multiplied.
    pub const fn element_bits(self) -> u32 {
        self.types.element_bits()
    }

    /// The accumulators' type.
    pub const fn sums(self) -> SumType {
        self.types.d()
    }

    /// Accumulators of a thread for so many columns, in 32-bit registers.
    pub const fn accumulators(self, columns: u32) -> u32 {
        self.types.accumulators(columns)
    }

    /// Whether one instruction multiplies so many columns.
    pub const fn allows(self, columns: u32) -> bool {
        self.types.allows(columns)
    }

    /// In which steps of columns the widths of all instructions lie: 16 for sums of integers and for `mma.sync`, of which one
    /// `ldmatrix` feeds two, else 8.
    pub const fn column_step(self) -> u32 {
        match (self.types, self.sums()) {
            (AtomTypes::MmaSync(_), _) | (_, SumType::S32) => 16,
            (AtomTypes::Wgmma(_) | AtomTypes::Simt, SumType::F32 | SumType::F16 | SumType::F64) => 8,
        }
    }

    /// The same with sums in `f16`; `None` where no instruction sums so.
    pub const fn in_half(self) -> Option<Self> {
        let Some(types) = self.wgmma() else { return None };
        match types.in_half() {
            Some(types) => Some(Self { types: AtomTypes::Wgmma(types), ..self }),
            None => None,
        }
    }

    /// What promotion adds to the name of a kernel.
    pub(super) fn promotion(self) -> String {
        if self.promote == 0 { String::new() } else { format!("_promoted_{}", self.promote) }
    }

    /// What it adds to the name of a kernel whose operands do not say it.
    pub(super) fn suffix(self) -> String {
        let source = match self.a {
            Source::Shared => "",
            Source::Registers => "_rs",
        };
        format!("_{}{source}{}", self.types.suffix(), self.promotion())
    }

    /// Which thread holds which element, for an instruction of so many columns.
    ///
    /// # Errors
    /// Those of [`wgmma::atom`].
    pub const fn layout(self, columns: u32) -> Result<MmaAtom, LayoutError> {
        match (self.types, self.a) {
            // Sums lie as those of `wgmma` do, whoever multiplies.
            (AtomTypes::Wgmma(_) | AtomTypes::Simt, Source::Shared) => {
                wgmma::atom(columns, self.element_bits())
            }
            (AtomTypes::Wgmma(_) | AtomTypes::Simt, Source::Registers) => {
                wgmma::atom_with_a_in_registers(columns, self.element_bits())
            }
            (AtomTypes::MmaSync(MmaTypes::F64), _) => mma::doubles(columns),
            (AtomTypes::MmaSync(_), _) => mma::atom(columns, self.element_bits()),
        }
    }

    /// What each thread names to `ldmatrix` or loads itself, where threads do, for operands in these directions.
    ///
    /// # Errors
    /// Those of [`mma::ldmatrix`].
    pub const fn loads(self, majors: [Major; 2]) -> Result<MmaAtom, LayoutError> {
        match self.types {
            AtomTypes::Simt => mma::fma(self.k()),
            AtomTypes::MmaSync(MmaTypes::F64) => mma::doubles(8),
            AtomTypes::Wgmma(_) | AtomTypes::MmaSync(_) => mma::ldmatrix(majors, self.element_bits()),
        }
    }
}
