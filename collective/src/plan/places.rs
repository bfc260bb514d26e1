//! Where elements of a matrix are in shared memory.

use cute_rs::ComposedLayout;
use cute_rs::atom::Major;
use ptx::Value;

use super::OperandTile;

/// An offset in a matrix that is in shared memory, as a layout gives it: elements of shared memory are fewer than 2^32.
pub const fn element_offset(of: i64) -> u32 {
    debug_assert!(of >= 0 && of <= u32::MAX as i64, "shared memory has fewer than 2^32 elements");
    of as u32
}

/// The offset of the element at these coordinates of a matrix, in elements.
#[track_caller]
pub fn element_place<'f>(layout: &ComposedLayout, at: [Value<'f, u32>; 2]) -> Value<'f, u32> {
    at[0].builder().for_caller(|| layout.apply_modes(&at).expect("a matrix has two modes"))
}

impl OperandTile {
    /// Offset of the element `(mn, k)` from the beginning of the tile, in elements.
    #[track_caller]
    pub fn place<'f>(&self, at: [Value<'f, u32>; 2]) -> Value<'f, u32> {
        element_place(&self.layout(), at)
    }

    /// A slab of the tile as threads fill it: `8 * eights` rows of one swizzle width. For an MN-major tile, its rows are those of K.
    pub const fn slab(&self, eights: u32) -> Self {
        Self { major: Major::K, mn: 8 * eights, k: self.swizzle.elements(self.bits()), ..*self }
    }
}
