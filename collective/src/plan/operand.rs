//! An operand's tile: its elements, its layout in shared memory, and how copies load it.

use cute_rs::atom::{Major, SwizzleMode, smem};
use cute_rs::{ComposedLayout, LayoutError};
use ptx::abi::Promotion;

use super::{PlanError, StageSlot};
use crate::element::Format;

/// The L2 eviction priority of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CachePolicy {
    /// No hint: L2's default.
    Normal,
    /// Its lines are evicted first.
    EvictFirst,
    /// Its lines are evicted last.
    EvictLast,
}

impl CachePolicy {
    /// The operand of `.L2::cache_hint`, as `createpolicy.fractional` makes it for all lines; `None` for no
    /// hint.
    pub const fn bits(self) -> Option<u64> {
        match self {
            Self::Normal => None,
            Self::EvictFirst => Some(0x12F0_0000_0000_0000),
            Self::EvictLast => Some(0x14F0_0000_0000_0000),
        }
    }

    /// The policy's part of a kernel's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Normal => "",
            Self::EvictFirst => "f",
            Self::EvictLast => "l",
        }
    }
}

/// The layout of an operand's tile in shared memory.
///
/// A tile consists of layout atoms: 8 rows (or columns, if MN-major) of one swizzle width, `W` elements. The
/// atoms of the same `W` columns follow each other and form a *slab*; the slabs follow each other. `wgmma`
/// reads this layout, and one tensor copy loads one slab. Source: PTX ISA "Shared Memory Matrix Layout".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TileLayout {
    /// The widest swizzle that divides the tile's contiguous extent. The default.
    #[default]
    Widest,
    /// Slabs of this swizzle's width.
    Slabs(SwizzleMode),
}

impl TileLayout {
    /// The layout of a tile made of this atom, with elements of `element_bits` bits; `None` for the widest.
    ///
    /// # Errors
    /// [`PlanError::Atom`] for an atom that `wgmma` does not read; the sentence lists those that it does.
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

    /// As [`of_atom`](Self::of_atom), in a constant. An illegal atom stops the build.
    ///
    /// # Panics
    /// At compile time, with the error's sentence.
    pub const fn checked(atom: Option<ComposedLayout>, major: Major, element_bits: u32) -> Self {
        match Self::of_atom(atom, major, element_bits) {
            Ok(layout) => layout,
            Err(error) => panic!("{}", error.sentence().as_str()),
        }
    }

    /// The layout's part of a kernel's name: bytes per row of a slab.
    pub(crate) fn suffix(self) -> String {
        match self {
            Self::Widest => String::new(),
            Self::Slabs(mode) => mode.bytes().to_string(),
        }
    }

    /// The swizzle of a tile of `(mn, k)` elements.
    pub const fn mode(self, major: Major, element_bits: u32, mn: u32, k: u32) -> SwizzleMode {
        match self {
            Self::Widest => smem::widest_mode(major, element_bits, mn, k),
            Self::Slabs(mode) => mode,
        }
    }
}

/// One operand's tile of `(mn, k)` elements in a stage: copies fill it and instructions read it.
///
/// A tile is checked when it is made, so its later methods cannot fail. A mainloop of your own has its tiles
/// in constants:
///
/// ```
/// use collective::{Format, OperandTile, StageSlot, TileLayout};
/// use cute_rs::atom::{Major, SwizzleMode};
///
/// /// 128 rows of weights, 64 elements of K, in two slabs of 64 bytes.
/// const WEIGHTS: OperandTile =
///     OperandTile::checked(Format::Bf16, Major::K, [128, 64], TileLayout::Slabs(SwizzleMode::B64));
/// assert_eq!(WEIGHTS.room(), StageSlot { bytes: 16384, alignment: 512 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandTile {
    pub(crate) format: Format,
    pub(crate) major: Major,
    pub(crate) swizzle: SwizzleMode,
    /// The tile's extents along M or N, and along K, in elements.
    pub(crate) mn: u32,
    pub(crate) k: u32,
    /// Offset in a stage, in bytes.
    pub(crate) offset: u32,
    /// Number of slices the tile is loaded in. The CTAs that share the tile load them together.
    pub(crate) slices: u32,
    /// Number of CTAs that load the whole tile in turn, each for all of them.
    pub(crate) turns: u32,
    /// Whether half of the tile's columns come from each half of the matrix.
    pub(crate) split: bool,
    pub(crate) cache: CachePolicy,
    pub(crate) promotion: Promotion,
}

impl OperandTile {
    /// The tile of `mn` rows (of M or N) and `k` columns, at offset 0 of a stage, loaded by one CTA.
    ///
    /// # Errors
    /// [`LayoutError::Extents`] if an extent is not a multiple of the layout atom's; [`LayoutError::Range`]
    /// for a tile larger than shared memory.
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
        match smem::atom_extents(major, swizzle, format.bits(), mn, k) {
            Ok(_) => Ok(Self {
                format,
                major,
                swizzle,
                mn,
                k,
                offset: 0,
                slices: 1,
                turns: 1,
                split: false,
                cache: CachePolicy::Normal,
                promotion: Promotion::B256,
            }),
            Err(error) => Err(error),
        }
    }

    /// As [`new`](Self::new), in a constant. An illegal tile stops the build.
    ///
    /// # Panics
    /// At compile time, with the rule that is broken.
    pub const fn checked(format: Format, major: Major, extents: [u32; 2], layout: TileLayout) -> Self {
        match Self::new(format, major, extents, layout) {
            Ok(tile) => tile,
            Err(_) => panic!(
                "a tile's extents are multiples of its layout atom's: 8 rows of one swizzle width (128, 64, 32 or 16 bytes)"
            ),
        }
    }

    /// The same tile at `offset` bytes from the start of a stage, as
    /// [`RingPlan::offset`](super::RingPlan::offset) returns it.
    #[must_use]
    pub const fn at(self, offset: u32) -> Self {
        Self { offset, ..self }
    }

    /// The same tile with an L2 policy for the lines of its matrix.
    #[must_use]
    pub const fn cached(self, cache: CachePolicy) -> Self {
        Self { cache, ..self }
    }

    /// The same tile, of whose matrix L2 fetches so much per access.
    #[must_use]
    pub const fn fetching(self, promotion: Promotion) -> Self {
        Self { promotion, ..self }
    }

    /// The same tile for copies that load one of `slices` equal parts of its rows each, as
    /// [`Origin::slice`](crate::Origin::slice) says: parts that lie apart in memory. Rows are those of M or N if K is contiguous, and those of
    /// K otherwise; there must be a multiple of 8 in a part.
    #[must_use]
    pub const fn in_slices(self, slices: u32) -> Self {
        Self { slices, ..self }
    }

    /// The same tile, which `turns` CTAs load in turn, one k-tile each, for all of them; [`Origin::slice`](crate::Origin::slice) says which
    /// of them a CTA is. For rows that have no multiple of 8 for each CTA, and not with [`in_slices`](Self::in_slices). 0 and 1 are no turns.
    #[must_use]
    pub const fn in_turns(self, turns: u32) -> Self {
        Self { turns, ..self }
    }

    /// Format of the elements in memory.
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

    /// Extents along M or N, and along K, in elements.
    pub const fn extents(&self) -> [u32; 2] {
        [self.mn, self.k]
    }

    /// Bits per element in memory.
    pub const fn bits(&self) -> u32 {
        self.format.bits()
    }

    /// Bytes and alignment that it needs in a stage.
    pub const fn room(&self) -> StageSlot {
        StageSlot { bytes: self.mn * self.k * self.bits() / 8, alignment: self.swizzle.alignment() }
    }

    /// The layout in shared memory: `(mn, k) -> offset`, in elements.
    pub fn layout(&self) -> ComposedLayout {
        smem::tile(self.major, self.swizzle, self.bits(), self.mn, self.k)
            .expect("a tile is checked when it is made")
    }
}
