//! Addresses that a thread reads in an operand's tile.

use std::collections::BTreeMap;

use cute_rs::{ComposedLayout, Layout, LayoutError, Partition};
use ptx::{Builder, Value};

use crate::plan::{OperandTile, element_offset};

/// The places of a tile that a thread reads, by value, by instruction along M or N, and by instruction along
/// K.
///
/// Whole periods of the swizzle are added after it is applied. So only the places within a period are
/// computed, once, before the loop.
#[derive(Debug)]
pub(super) struct Places<'f> {
    /// `(value, instruction, step)`, in elements.
    part: Layout,
    /// Byte offsets within a period, from the tile's start.
    within: BTreeMap<i64, Value<'f, u32>>,
    period: i64,
    /// Bytes per element.
    bytes: u32,
    /// Offset of the tile in a stage, in bytes.
    offset: u32,
}

impl<'f> Places<'f> {
    /// The places of the thread `coord` in a partition of the tile's layout. The thread reads `vector` values
    /// at a time.
    pub(super) fn new(
        f: &'f Builder,
        tile: &OperandTile,
        parts: &Partition<ComposedLayout>,
        coord: &[Option<Value<'f, u32>>],
        vector: i64,
    ) -> Result<Self, LayoutError> {
        let own = parts.tensor(f.constant(0), coord)?;
        let bytes = tile.bits() / 8;
        let period = i64::from(tile.swizzle.alignment() / bytes);
        let part = own.layout.layout;
        let mut within = BTreeMap::new();
        for place in (0..part.size()).step_by(vector.unsigned_abs() as usize).map(|i| part.at(i) % period) {
            within.entry(place).or_insert_with(|| {
                let near = element_offset(place);
                own.layout.swizzle.apply_to(own.start + near) * bytes
            });
        }
        Ok(Self { part, within, period, bytes, offset: tile.offset })
    }

    /// Shared address of a place, in the stage at shared address `stage`.
    pub(super) fn at(&self, stage: Value<'f, u32>, [value, instruction, step]: [u32; 3]) -> Value<'f, u32> {
        let place = self.part.at_modes(&[value, instruction, step].map(i64::from));
        let near = self.within[&(place % self.period)];
        let far = element_offset(place / self.period * self.period) * self.bytes;
        stage + near + (far + self.offset)
    }
}
