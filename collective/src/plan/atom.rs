//! The multiply atom: the instruction that multiplies, and where its operand A comes from.

use cute_rs::atom::{Major, mma, wgmma};
use cute_rs::{LayoutError, MmaAtom};
use ptx::WgmmaTypes;
use ptx::inst::MmaTypes;

use super::{AccumulatorType, AtomTypes, OperandSpec, PlanError};

/// Where an instruction reads operand A from. It always reads B from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Shared memory. A is stored there in the format that is multiplied.
    Shared,
    /// Registers. Threads load A's tile, and may convert it, before each multiply.
    Registers,
}

/// The multiply atom: `m64nNk(32 bytes)` of `wgmma` for some types of A, B and the accumulators, or the same
/// multiply by other instructions.
///
/// ```
/// use collective::{Atom, AccumulatorType};
/// use ptx::WgmmaTypes;
/// use ptx::inst::Int8;
///
/// let bytes = Atom::shared(WgmmaTypes::Int8 { a: Int8::S8, b: Int8::S8, saturate: false });
/// assert_eq!((bytes.rows(), bytes.k(), bytes.sums()), (64, 32, AccumulatorType::S32));
/// assert!(bytes.allows(48) && !bytes.allows(40));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atom {
    /// The instruction and its types.
    pub types: AtomTypes,
    /// Where A comes from.
    pub a: Source,
    /// Number of instructions along K after which an accumulator is added to a separate `f32` register and
    /// starts again from zero; 0 for never.
    ///
    /// `wgmma` accumulates products of 8-bit floats with few bits: see [`Promoted`](crate::Promoted).
    pub promote: u32,
    /// Whether A is 2:4 sparse: half of each chunk of K is stored, with metadata. The instruction's K is then
    /// twice as long.
    pub sparse: bool,
}

impl Atom {
    /// Most instructions along K between two promotions. The k-tiles of one interval are emitted as
    /// straight-line code.
    pub const MOST_PROMOTED: u32 = 64;

    /// `wgmma` with both operands from shared memory.
    pub const fn shared(types: WgmmaTypes) -> Self {
        Self { types: AtomTypes::Wgmma(types), a: Source::Shared, promote: 0, sparse: false }
    }

    /// `wgmma` with A from registers.
    pub const fn registers(types: WgmmaTypes) -> Self {
        Self { types: AtomTypes::Wgmma(types), a: Source::Registers, promote: 0, sparse: false }
    }

    /// `mma.sync`. Threads load its operands from shared memory into registers.
    pub const fn mma_sync(types: MmaTypes) -> Self {
        Self { types: AtomTypes::MmaSync(types), a: Source::Shared, promote: 0, sparse: false }
    }

    /// Plain `fma` instructions on `f32`.
    pub const fn simt() -> Self {
        Self { types: AtomTypes::Simt, a: Source::Shared, promote: 0, sparse: false }
    }

    /// The same atom with its accumulators promoted after every `every` instructions along K; 0 for never.
    #[must_use]
    pub const fn promoted(self, every: u32) -> Self {
        Self { promote: every, ..self }
    }

    /// The same atom for an operand A stored as `a` says. Weights in few bits are read from registers; a
    /// sparse A has instructions of its own.
    #[must_use]
    pub const fn taking(self, a: OperandSpec) -> Self {
        let source = if a.weights.is_some() { Source::Registers } else { self.a };
        Self { a: source, sparse: a.sparse, ..self }
    }

    /// Elements along K that one stored element of A stands for: 2 if A is sparse, else 1.
    pub const fn density(self) -> u32 {
        if self.sparse { 2 } else { 1 }
    }

    /// The types of `wgmma`; `None` for other instructions.
    pub const fn wgmma(self) -> Option<WgmmaTypes> {
        self.types.wgmma()
    }

    /// Whether threads load both operands into registers and synchronise at barriers, as `mma.sync` and `fma`
    /// need.
    pub const fn by_threads(self) -> bool {
        self.wgmma().is_none()
    }

    /// Rows of one `wgmma`, or of the instructions of four warps together: a *block* of a tile.
    pub const fn rows(self) -> u32 {
        64
    }

    /// K of one instruction, in elements.
    pub const fn k(self) -> u32 {
        self.types.k() * self.density()
    }

    /// Bits of an element of A and B as they are multiplied.
    pub const fn element_bits(self) -> u32 {
        self.types.element_bits()
    }

    /// The accumulators' type.
    pub const fn sums(self) -> AccumulatorType {
        self.types.d()
    }

    /// Number of accumulator registers per thread for a tile of this many columns, in 32-bit registers.
    pub const fn accumulators(self, columns: u32) -> u32 {
        self.types.accumulators(columns)
    }

    /// Whether one instruction can multiply this many columns.
    pub const fn allows(self, columns: u32) -> bool {
        self.types.allows(columns)
    }

    /// What an instruction's number of columns is a multiple of: 16 for integer accumulators and for
    /// `mma.sync` (one `ldmatrix` feeds two instructions), else 8.
    pub const fn column_step(self) -> u32 {
        match (self.types, self.sums()) {
            (AtomTypes::MmaSync(_), _) | (_, AccumulatorType::S32) => 16,
            (
                AtomTypes::Wgmma(_) | AtomTypes::Simt,
                AccumulatorType::F32 | AccumulatorType::F16 | AccumulatorType::F64,
            ) => 8,
        }
    }

    /// The same atom with `f16` accumulators; `None` if no such instruction exists.
    pub const fn in_half(self) -> Option<Self> {
        let Some(types) = self.wgmma() else { return None };
        match types.in_half() {
            Some(types) => Some(Self { types: AtomTypes::Wgmma(types), ..self }),
            None => None,
        }
    }

    /// Checks that the instruction can read operands of these bits per element, with these contiguous directions.
    pub(super) const fn reads(self, [a, b]: [(u32, Major); 2]) -> Result<(), PlanError> {
        let (bits, shared) = (self.element_bits(), matches!(self.a, Source::Shared));
        if !shared && !matches!(a.1, Major::K) {
            return Err(PlanError::Fragments);
        }
        let (a_wrong, b_wrong) = (shared && a.0 != bits, b.0 != bits);
        if a_wrong || b_wrong {
            let (operand, stored) = if a_wrong { ("A", a.0) } else { ("B", b.0) };
            return Err(PlanError::Stored { operand, stored, bits });
        }
        if !self.types.allows_transpose() {
            if shared && matches!(a.1, Major::Mn) {
                return Err(PlanError::KMajorOnly { operand: "A", bits });
            }
            if matches!(b.1, Major::Mn) {
                return Err(PlanError::KMajorOnly { operand: "B", bits });
            }
        }
        Ok(())
    }

    /// The part of a kernel's name that states promotion.
    pub(super) fn promotion(self) -> String {
        if self.promote == 0 { String::new() } else { format!("_promoted_{}", self.promote) }
    }

    /// The atom's part of a kernel's name, used if the operands do not determine the atom.
    pub(super) fn suffix(self) -> String {
        let source = match self.a {
            Source::Shared => "",
            Source::Registers => "_rs",
        };
        format!("_{}{source}{}", self.types.suffix(), self.promotion())
    }

    /// Which thread holds which element, for an instruction of this many columns.
    ///
    /// # Errors
    /// As for [`wgmma::atom`].
    pub const fn layout(self, columns: u32) -> Result<MmaAtom, LayoutError> {
        match (self.types, self.a) {
            // Accumulators have the layout of `wgmma`, for `fma` too.
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

    /// Which elements each thread addresses for `ldmatrix`, or loads itself, for operands with these
    /// contiguous directions.
    ///
    /// # Errors
    /// As for [`mma::ldmatrix`].
    pub const fn loads(self, majors: [Major; 2]) -> Result<MmaAtom, LayoutError> {
        match self.types {
            AtomTypes::Simt => mma::fma(self.k()),
            AtomTypes::MmaSync(MmaTypes::F64) => mma::doubles(8),
            AtomTypes::Wgmma(_) | AtomTypes::MmaSync(_) => mma::ldmatrix(majors, self.element_bits()),
        }
    }
}
