//! Extents beyond any memory are refused, or counted without overflow.

use collective::{Format, OperandTile, RingPlan, StageSlot, TileLayout};
use cute_rs::LayoutError;
use cute_rs::atom::Major;

#[test]
fn extents_that_no_memory_holds_are_refused() {
    for major in [Major::K, Major::Mn] {
        for extents in [[1 << 20, 1 << 14], [64, 1 << 31], [u32::MAX - 7, u32::MAX - 7]] {
            let made = OperandTile::new(Format::Bf16, major, extents, TileLayout::Widest);
            assert!(matches!(made, Err(LayoutError::Range { .. })), "{extents:?}: {made:?}");
        }
    }
    let ring = RingPlan::of(&[StageSlot { bytes: u32::MAX, alignment: 1024 }; 2]);
    assert_eq!((ring.fit(1 << 17), ring.need(1), ring.transaction_bytes()), (0, u32::MAX, u32::MAX));
}
