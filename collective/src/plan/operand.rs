//! An operand's tile: its elements, how they lie in shared memory, and how copies bring it.

use cute_rs::atom::{Major, SwizzleMode, smem};
use cute_rs::{ComposedLayout, LayoutError};
use ptx::abi::Promotion;

use super::{PlanError, Room};
use crate::element::Format;

/// What L2 does with the lines of a matrix when it has to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CachePolicy {
    /// As it likes.
    Normal,
    /// They go first.
    EvictFirst,
    /// They stay longest.
    EvictLast,
}

impl CachePolicy {
    /// The operand of `.L2::cache_hint`, as `createpolicy.fractional` makes it for all lines; `None` for no hint.
    pub const fn bits(self) -> Option<u64> {
        match self {
            Self::Normal => None,
            Self::EvictFirst => Some(0x12F0_0000_0000_0000),
            Self::EvictLast => Some(0x14F0_0000_0000_0000),
        }
    }

    /// What it adds to a kernel's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Normal => "",
            Self::EvictFirst => "f",
            Self::EvictLast => "l",
        }
    }
}

/// How an operand's tile lies in shared memory.
///
/// A tile consists of layout atoms: 8 rows (or columns, MN-major) of one swizzle width, `W` elements. Atoms of the same `W`
/// columns follow each other and make a *slab*; slab follows slab. This is what `wgmma` reads and what one tensor copy per slab
/// brings. Source: PTX ISA "Shared Memory Matrix Layout".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TileLayout {
    /// The widest swizzle whose rows divide the tile's contiguous extent.
    #[default]
    Widest,
    /// Slabs of this swizzle's width.
    Slabs(SwizzleMode),
}

impl TileLayout {
    /// The layout of a tile of these atoms, of elements of so many bits.
    ///
    /// # Errors
    /// [`PlanError::Atom`] for an atom that `wgmma` does not read, with those that it reads.
    pub const fn of_atom(
        atom: Option<ComposedLayout>,
        major: Major,
        element_bits: u32,
    ) -> Result<Self, PlanError> {
        let Some(atom) = atom else { return Ok(Self::Widest) };
        match smem::atom_mode(major, element_bits, &atom) {
            Some(mode) => Ok(Self::Slabs(mode)),
            None => Err(PlanError::Atom { major, bits: element_bits }),
        }
    }

    /// The same in a constant; an illegal atom stops the build.
    ///
    /// # Panics
    /// While compiling, with the error's sentence.
    pub const fn checked(atom: Option<ComposedLayout>, major: Major, element_bits: u32) -> Self {
        match Self::of_atom(atom, major, element_bits) {
            Ok(layout) => layout,
            Err(error) => panic!("{}", error.sentence().as_str()),
        }
    }

    /// What it adds to a kernel's name: bytes of a slab's rows.
    pub(crate) fn suffix(self) -> String {
        match self {
            Self::Widest => String::new(),
            Self::Slabs(mode) => mode.bytes().to_string(),
        }
    }

    /// The swizzle of a tile `(mn, k)`.
    pub const fn mode(self, major: Major, element_bits: u32, mn: u32, k: u32) -> SwizzleMode {
        match self {
            Self::Widest => smem::widest_mode(major, element_bits, mn, k),
            Self::Slabs(mode) => mode,
        }
    }
}

/// One operand's tile `(mn, k)` of a stage: what copies fill and multiplies read.
///
/// A tile is checked where it is made, so everything that is asked of it later has an answer. A mainloop of your own has its
/// tiles in constants:
///
/// ```
/// use collective::{Format, OperandTile, Room, TileLayout};
/// use cute_rs::atom::{Major, SwizzleMode};
///
/// /// 128 rows of weights, 64 elements of K, in two slabs of 64 bytes.
/// const WEIGHTS: OperandTile =
///     OperandTile::checked(Format::Bf16, Major::K, [128, 64], TileLayout::Slabs(SwizzleMode::B64));
/// assert_eq!(WEIGHTS.room(), Room { bytes: 16384, alignment: 512 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandTile {
    pub(crate) format: Format,
    pub(crate) major: Major,
    pub(crate) swizzle: SwizzleMode,
    /// The tile's extent along M or N, and along K.
    pub(crate) mn: u32,
    pub(crate) k: u32,
    /// Where it begins in a stage, in bytes.
    pub(crate) offset: u32,
    /// CTAs that bring a tile together.
    pub(crate) slices: u32,
    /// Half of the tile along N is from either half of the matrix.
    pub(crate) split: bool,
    pub(crate) cache: CachePolicy,
    pub(crate) promotion: Promotion,
}

impl OperandTile {
    /// The tile of `mn` rows (of M or N) and `k` columns, at a stage's start, brought by one CTA.
    ///
    /// # Errors
    /// [`LayoutError::Extents`] where an extent is no multiple of the layout atom's, [`LayoutError::Range`] for a tile that no
    /// shared memory holds.
    pub const fn new(
        format: Format,
        major: Major,
        [mn, k]: [u32; 2],
        layout: TileLayout,
    ) -> Result<Self, LayoutError> {
        let swizzle = layout.mode(major, format.bits(), mn, k);
        let (bytes, most) = (mn as u64 * k as u64 / 8, super::units::TARGET.limits().shared_bytes);
        if bytes.saturating_mul(format.bits() as u64) > most as u64 {
            let value = if mn > k { mn } else { k };
            return Err(LayoutError::Range { name: "the tile's larger extent", value, low: 1, high: most });
        }
        match smem::tile(major, swizzle, format.bits(), mn, k) {
            Ok(_) => Ok(Self {
                format,
                major,
                swizzle,
                mn,
                k,
                offset: 0,
                slices: 1,
                split: false,
                cache: CachePolicy::Normal,
                promotion: Promotion::B256,
            }),
            Err(error) => Err(error),
        }
    }

    /// The same in a constant; an illegal tile stops the build.
    ///
    /// # Panics
    /// While compiling, with the rule that is broken.
    pub const fn checked(format: Format, major: Major, extents: [u32; 2], layout: TileLayout) -> Self {
        match Self::new(format, major, extents, layout) {
            Ok(tile) => tile,
            Err(_) => panic!(
                "a tile's extents are multiples of its layout atom's: 8 rows of one swizzle width (128, 64, 32 or 16 bytes)"
            ),
        }
    }

    /// The tile `offset` bytes behind a stage's start: what [`RingPlan::offset`](super::RingPlan::offset) says.
    #[must_use]
    pub const fn at(self, offset: u32) -> Self {
        Self { offset, ..self }
    }

    /// The tile with a policy for the lines of its matrix in L2.
    #[must_use]
    pub const fn cached(self, cache: CachePolicy) -> Self {
        Self { cache, ..self }
    }

    /// Elements in memory.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The contiguous direction.
    pub const fn major(&self) -> Major {
        self.major
    }

    /// The swizzle.
    pub const fn swizzle(&self) -> SwizzleMode {
        self.swizzle
    }

    /// Extents along M or N, and along K.
    pub const fn extents(&self) -> [u32; 2] {
        [self.mn, self.k]
    }

    /// Bits of an element in memory.
    pub const fn bits(&self) -> u32 {
        self.format.bits()
    }

    /// What it takes in a stage.
    pub const fn room(&self) -> Room {
        Room { bytes: self.mn * self.k * self.bits() / 8, alignment: self.swizzle.alignment() }
    }

    /// `(mn, k) -> offset` in elements.
    pub fn layout(&self) -> ComposedLayout {
        smem::tile(self.major, self.swizzle, self.bits(), self.mn, self.k)
            .expect("a tile is checked when it is made")
    }
}
