//! Tensor copies of operand tiles: the boxes that move a tile, and the place of each box in shared memory.
//!
//! ```
//! use cute_rs::atom::{Major, SwizzleMode, tma::TmaTiles};
//!
//! let tiles = TmaTiles::new(Major::Mn, SwizzleMode::B128, 16, 128, 64)?;
//! let places: Vec<_> = tiles.boxes().map(|tile| (tile.mn, tile.k, tile.offset_bytes)).collect();
//! assert_eq!(places, [(0, 0, 0), (64, 0, 8192)]); // two boxes, each 64 of M wide
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```

use super::boxes::{BoxPlan, rows_of_a_box, tma_box};
use super::{Major, SwizzleMode, smem};
use crate::algebra::Tiler;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

/// The boxes that move one operand tile `(MN, K)` into shared memory. [`tma_box`] derives them from the
/// layout of [`smem::tile`] and a matrix with the same contiguous direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TmaTiles {
    plan: BoxPlan,
    /// Extents of each box in elements, the contiguous direction first.
    pub box_dims: [u32; 2],
    /// Number of boxes.
    pub count: u32,
    /// Number of copies that share each box; see [`TmaTiles::sliced`].
    pub slices: u32,
}

/// One box of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileBox {
    /// First row of M or N of the box, relative to the tile.
    pub mn: u32,
    /// First K of the box, relative to the tile.
    pub k: u32,
    /// Start of the box's image in shared memory, in bytes from the tile's start.
    pub offset_bytes: u32,
}

/// Extents of the boxes that move a tile, in elements, the contiguous direction first. The first is one
/// swizzle width. The second is the whole other direction, or an equal part of it if that exceeds the limit
/// of a box.
///
/// Same result as [`TmaTiles::new`], but without the tile's layout. Use it for launches that need only the
/// extents.
pub const fn box_dims(major: Major, mode: SwizzleMode, element_bits: u32, mn: u32, k: u32) -> [u32; 2] {
    let other = match major {
        Major::K => mn,
        Major::Mn => k,
    };
    [mode.elements(element_bits), rows_of_a_box(other, mode)]
}

impl TmaTiles {
    /// Plans the boxes of a tile. Each box is one swizzle width of the contiguous direction, and the whole
    /// other direction or the largest equal part of it that a box can hold.
    ///
    /// # Errors
    /// Those of [`smem::tile`]; [`LayoutError::Box`] for an extent above 256 that has no such parts.
    pub const fn new(
        major: Major,
        mode: SwizzleMode,
        element_bits: u32,
        mn: u32,
        k: u32,
    ) -> Result<Self, LayoutError> {
        let tile = ok!(smem::tile(major, mode, element_bits, mn, k));
        let (mn, k) = (mn as i64, k as i64);
        let extents = ok!(IntTuple::flat(&[mn, k]));
        // A matrix of one tile. The leading dimension of a larger matrix does not change the boxes.
        let matrix = match major {
            Major::K => Layout::row_major(extents),
            Major::Mn => Layout::column_major(extents),
        };
        Ok(Self::of(ok!(tma_box(&ok!(matrix), &tile, &Tiler::Shape(&extents), element_bits))))
    }

    const fn of(plan: BoxPlan) -> Self {
        let extents = plan.extents();
        Self { plan, box_dims: [extents[0], extents[1]], count: plan.count(), slices: plan.slices() }
    }

    /// The boxes, with the matrix `(MN, K)` as their tensor.
    pub const fn plan(&self) -> &BoxPlan {
        &self.plan
    }

    /// Box `i`.
    pub const fn get(&self, i: u32) -> TileBox {
        let place = self.plan.get(i);
        TileBox {
            mn: place.coord.leaf(0) as u32,
            k: place.coord.leaf(1) as u32,
            offset_bytes: place.offset_bytes,
        }
    }

    /// All boxes.
    pub fn boxes(&self) -> impl Iterator<Item = TileBox> + '_ {
        (0..self.count).map(|i| self.get(i))
    }

    /// The same tile with each box moved by `slices` copies. Use it when the CTAs of a cluster share a tile.
    /// Slice `i` is part `i` of the direction that is not contiguous.
    ///
    /// # Errors
    /// [`LayoutError::Box`] unless `slices` divides the boxes into slices of a multiple of 8 rows, the height
    /// of a swizzle pattern.
    pub const fn sliced(self, slices: u32) -> Result<Self, LayoutError> {
        Ok(Self::of(ok!(self.plan.sliced(slices))))
    }

    /// Bytes from one slice's image to the next; 0 if there is one slice.
    pub const fn slice_bytes(&self) -> u32 {
        // A single slice has no next one.
        if self.slices == 1 { 0 } else { self.plan.slice_bytes() }
    }

    /// Bytes that one slice of all boxes moves.
    pub const fn bytes(&self) -> u32 {
        self.plan.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::tests::{swizzled_address, tiles};

    /// A start address of a tile: aligned to the period of every pattern, and not to more.
    const BASE: u32 = 0x400;

    #[test]
    fn images_of_all_boxes_are_the_tile() {
        let mut tried = 0;
        for (major, mode, bits, mn, k) in tiles() {
            let tiles = TmaTiles::new(major, mode, bits, mn, k).expect("a multiple of 8 rows");
            tried += 1;
            let tile = smem::tile(major, mode, bits, mn, k).unwrap();
            let bytes = bits / 8;
            let [inner, outer] = tiles.box_dims;
            assert_eq!(inner * bytes, mode.bytes(), "a box is as wide as the swizzle");
            assert_eq!(
                box_dims(major, mode, bits, mn, k),
                tiles.box_dims,
                "{major:?} {mode:?} {bits} {mn}x{k}"
            );
            assert_eq!(tiles.bytes(), mn * k * bytes, "the boxes bring the whole tile");
            assert_eq!(tiles.boxes().count(), tiles.count as usize);
            for part in tiles.boxes() {
                assert_eq!(part.offset_bytes % mode.alignment(), 0, "each box lands on the pattern's period");
                for (i0, i1) in (0..outer).flat_map(|i1| (0..inner).map(move |i0| (i0, i1))) {
                    let linear = bytes * (i0 + inner * i1);
                    let address = swizzled_address(mode, BASE + part.offset_bytes + linear);
                    let (m, kk) = match major {
                        Major::K => (part.mn + i1, part.k + i0),
                        Major::Mn => (part.mn + i0, part.k + i1),
                    };
                    let element = tile.at_modes(&[m.into(), kk.into()]);
                    assert_eq!(
                        i64::from(address - BASE),
                        element * i64::from(bytes),
                        "element ({m},{kk}) of {mn}x{k}, {major:?}, {mode:?}, {bits} bits"
                    );
                }
            }
        }
        assert!(tried > 200, "most extents fit into boxes: {tried}");
    }

    #[test]
    fn boxes_of_a_transposed_tile() {
        let tiles = TmaTiles::new(Major::Mn, SwizzleMode::B128, 16, 128, 64).unwrap();
        assert_eq!((tiles.box_dims, tiles.count, tiles.bytes()), ([64, 64], 2, 16_384));
        assert_eq!(tiles.get(1), TileBox { mn: 64, k: 0, offset_bytes: 8192 });
    }

    #[test]
    fn slices_of_a_tile_are_the_tile() {
        for (major, mode, bits, mn, k) in tiles() {
            let Ok(whole) = TmaTiles::new(major, mode, bits, mn, k) else { continue };
            for slices in [1, 2, 4] {
                let Ok(sliced) = whole.sliced(slices) else {
                    assert_ne!(
                        whole.box_dims[1] % (8 * slices),
                        0,
                        "only slices without whole patterns are refused"
                    );
                    continue;
                };
                assert_eq!(sliced.bytes() * slices, whole.bytes());
                assert_eq!(sliced.box_dims[1] * slices, whole.box_dims[1]);
                let row = mode.bytes();
                for slice in 1..slices {
                    let (rows, offset) = (slice * sliced.box_dims[1], slice * sliced.slice_bytes());
                    assert_eq!(offset, rows * row, "rows of a box follow each other");
                    assert_eq!(offset % (8 * row), 0, "a slice begins where the pattern does");
                }
            }
        }
    }

    #[test]
    fn box_extents_have_a_limit() {
        for (why, major, mn, k, want) in [
            ("as long as it may be", Major::K, 256, 64, Ok(([64, 256], 1))),
            ("two of 160 rows", Major::K, 320, 64, Ok(([64, 160], 2))),
            ("the same for each of two blocks of columns", Major::K, 320, 128, Ok(([64, 160], 4))),
            ("three of 88 rows, as 132 are no whole patterns", Major::K, 264, 64, Ok(([64, 88], 3))),
            ("a prime number of patterns", Major::K, 8 * 37, 64, Ok(([64, 8], 37))),
            ("the contiguous direction is cut into boxes", Major::K, 64, 512, Ok(([64, 64], 8))),
            ("too much K", Major::Mn, 64, 512, Ok(([64, 256], 2))),
        ] {
            let got = TmaTiles::new(major, SwizzleMode::B128, 16, mn, k);
            assert_eq!(got.map(|tiles| (tiles.box_dims, tiles.count)), want, "{why}");
        }
    }
}
