//! Tensor copies of operand tiles: which boxes bring a tile, and where each one lands.

use super::{Major, SwizzleMode, smem};
use crate::error::LayoutError;
use crate::layout::Layout;

/// The boxes that bring one operand tile into shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TmaTiles {
    major: Major,
    /// Extents of every box in elements, contiguous direction first.
    pub box_dims: [u32; 2],
    /// How many boxes.
    pub count: u32,
    /// How many slices share the work of a box; see [`TmaTiles::sliced`].
    pub slices: u32,
    layout: Layout,
    element_bits: u32,
}

/// One box of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileBox {
    /// First row of M or N inside the tile.
    pub mn: u32,
    /// First K inside the tile.
    pub k: u32,
    /// Where the box's image begins, in bytes from the tile's start.
    pub offset_bytes: u32,
}

/// Extents of the boxes that bring a tile, contiguous direction first: one swizzle width, and all of the other.
///
/// It is what [`TmaTiles::new`] takes without a look at the tile's layout, for launches that need no more.
pub const fn box_dims(major: Major, mode: SwizzleMode, element_bits: u32, mn: u32, k: u32) -> [u32; 2] {
    let other = match major {
        Major::K => mn,
        Major::Mn => k,
    };
    [mode.elements(element_bits), other]
}

impl TmaTiles {
    /// The boxes of the tile that [`smem::tile`] describes: each is one swizzle width of the contiguous direction
    /// and all of the other.
    ///
    /// # Errors
    /// Those of [`smem::tile`]; [`LayoutError::Range`] for a box extent above 256.
    pub const fn new(
        major: Major,
        mode: SwizzleMode,
        element_bits: u32,
        mn: u32,
        k: u32,
    ) -> Result<Self, LayoutError> {
        let layout = match smem::tile(major, mode, element_bits, mn, k) {
            Ok(tile) => tile.layout,
            Err(error) => return Err(error),
        };
        let [width, other] = box_dims(major, mode, element_bits, mn, k);
        let contiguous = match major {
            Major::K => k,
            Major::Mn => mn,
        };
        if other > 256 {
            return Err(LayoutError::Range { name: "a box extent", value: other, low: 1, high: 256 });
        }
        Ok(Self {
            major,
            box_dims: [width, other],
            count: contiguous / width,
            slices: 1,
            layout,
            element_bits,
        })
    }

    /// The `i`-th box.
    pub const fn get(&self, i: u32) -> TileBox {
        let start = i * self.box_dims[0];
        let (mn, k) = match self.major {
            Major::K => (0, start),
            Major::Mn => (start, 0),
        };
        let offset = self.layout.at_modes(&[mn as i64, k as i64]) as u32;
        TileBox { mn, k, offset_bytes: offset * self.element_bits / 8 }
    }

    /// All boxes.
    pub fn boxes(&self) -> impl Iterator<Item = TileBox> + '_ {
        (0..self.count).map(|i| self.get(i))
    }

    /// The same tile brought by `slices` copies a box, as CTAs of a cluster do that share a tile: slice `i` holds the
    /// `i`-th part of the direction that is not contiguous.
    ///
    /// # Errors
    /// [`LayoutError::Extents`] unless each slice has a multiple of 8 rows, the height of a swizzle pattern.
    pub const fn sliced(mut self, slices: u32) -> Result<Self, LayoutError> {
        let [_, extent] = self.box_dims;
        if slices == 0 || !extent.is_multiple_of(8 * slices) {
            return Err(LayoutError::Extents {
                name: "the extent that is sliced",
                extent,
                multiple: 8 * slices,
            });
        }
        self.box_dims[1] = extent / slices;
        self.slices = slices;
        Ok(self)
    }

    /// Bytes from one slice's image to the next.
    pub const fn slice_bytes(&self) -> u32 {
        let rows = self.box_dims[1] as i64;
        let coord = match self.major {
            Major::K => [rows, 0],
            Major::Mn => [0, rows],
        };
        // The last slice ends where the layout does; a single slice has no next one.
        if self.slices == 1 { 0 } else { self.layout.at_modes(&coord) as u32 * self.element_bits / 8 }
    }

    /// Bytes that one slice of all boxes brings.
    pub const fn bytes(&self) -> u32 {
        self.count * self.box_dims[0] * self.box_dims[1] * self.element_bits / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::tests::{swizzled_address, tiles};

    /// A tile's start: aligned to every pattern's period, and no multiple of more.
    const BASE: u32 = 0x400;

    #[test]
    fn images_of_all_boxes_are_the_tile() {
        let mut tried = 0;
        for (major, mode, bits, mn, k) in tiles() {
            let Ok(tiles) = TmaTiles::new(major, mode, bits, mn, k) else {
                assert!(mn > 256 || k > 256, "only boxes that are too long are refused");
                continue;
            };
            tried += 1;
            let tile = smem::tile(major, mode, bits, mn, k).unwrap();
            let bytes = bits / 8;
            let [inner, outer] = tiles.box_dims;
            assert_eq!(inner * bytes, mode.bytes(), "a box is as wide as the swizzle");
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
        let range = |value| LayoutError::Range { name: "a box extent", value, low: 1, high: 256 };
        for (why, major, mn, k, want) in [
            ("as long as it may be", Major::K, 256, 64, None),
            ("too many rows", Major::K, 264, 64, Some(range(264))),
            ("the contiguous direction is cut into boxes", Major::K, 64, 512, None),
            ("too much K", Major::Mn, 64, 512, Some(range(512))),
        ] {
            let got = TmaTiles::new(major, SwizzleMode::B128, 16, mn, k);
            assert_eq!(got.err(), want, "{why}");
        }
    }
}
