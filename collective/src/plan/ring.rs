//! The plan of a ring: from the list of tiles in a stage to bytes, barriers and the number of stages.

use super::units::{MBARRIER_BYTES, round_up};

/// The space of one tile in a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StageSlot {
    /// Bytes.
    pub bytes: u32,
    /// What its offset is a multiple of, in bytes.
    pub alignment: u32,
}

impl StageSlot {
    /// No tile.
    pub const NONE: Self = Self { bytes: 0, alignment: 1 };

    /// `bytes` bytes that a bulk copy loads: block scales, metadata, a bias.
    pub const fn line(bytes: u32) -> Self {
        Self { bytes, alignment: 128 }
    }
}

/// The plan of a ring of stages, each of which holds the same list of tiles.
///
/// A kernel has one for the ring of its mainloop. A mainloop that needs further rings makes its own plans;
/// attention, for example, has one ring for K and one for V. Build a plan in this order: the tiles of a
/// stage, the number of stages, their place, the number of arrivals.
///
/// ```
/// use collective::{RingPlan, StageSlot};
///
/// // A, two tiles of B, and 512 bytes of scales.
/// let tile = |bytes| StageSlot { bytes, alignment: 1024 };
/// let ring = RingPlan::of(&[tile(16384), tile(8192), tile(8192), StageSlot::line(512)]);
/// assert_eq!((ring.offset(2), ring.offset(3), ring.stage_bytes), (24576, 32768, 33792));
/// // The stages that fit into 100 KB, each with two mbarriers. The mbarriers follow the stages.
/// let stages = ring.fit(100 << 10);
/// let ring = ring.placed(stages, 0, stages * ring.stage_bytes).arrivals(1, 2);
/// assert_eq!((ring.stages, ring.transaction_bytes()), (3, 33280));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingPlan {
    rooms: [StageSlot; Self::MOST],
    offsets: [u32; Self::MOST],
    /// Bytes from one stage to the next.
    pub stage_bytes: u32,
    /// Number of stages.
    pub stages: u32,
    /// Offset of the first stage in dynamic shared memory, in bytes.
    pub start: u32,
    /// Offset of the mbarriers, in bytes: the full ones of all stages, then the empty ones.
    pub barriers: u32,
    /// Arrivals that mark a stage as full; 0 if no thread waits for that.
    pub filling: u32,
    /// Arrivals that mark a stage as empty; 0 if no thread waits for that.
    pub emptying: u32,
}

/// What the offset of a stage is a multiple of: the period of the widest swizzle, in bytes.
const STAGE_ALIGNMENT: u32 = 1024;

impl RingPlan {
    /// Most tiles per stage.
    pub const MOST: usize = 6;

    /// A stage of these tiles, in this order. Tiles beyond [`MOST`](Self::MOST) are ignored. Byte counts
    /// saturate instead of overflowing, so a ring that is too large fits nowhere.
    pub const fn of(tiles: &[StageSlot]) -> Self {
        let (mut rooms, mut offsets) = ([StageSlot::NONE; Self::MOST], [0; Self::MOST]);
        let (mut end, mut i) = (0_u32, 0);
        while i < tiles.len() && i < Self::MOST {
            rooms[i] = tiles[i];
            let alignment = if tiles[i].alignment == 0 { 1 } else { tiles[i].alignment };
            offsets[i] = round_up(end, alignment);
            end = offsets[i].saturating_add(tiles[i].bytes);
            i += 1;
        }
        let stage_bytes = round_up(end, STAGE_ALIGNMENT);
        Self { rooms, offsets, stage_bytes, stages: 0, start: 0, barriers: 0, filling: 1, emptying: 1 }
    }

    /// The same ring with stages that follow each other as closely as their slots allow. Only mbarriers may follow it.
    #[must_use]
    pub const fn dense(self) -> Self {
        let (mut end, mut alignment, mut i) = (0, 16, 0);
        while i < Self::MOST {
            let beyond = self.offsets[i].saturating_add(self.rooms[i].bytes);
            end = if beyond > end { beyond } else { end };
            alignment = if self.rooms[i].alignment > alignment { self.rooms[i].alignment } else { alignment };
            i += 1;
        }
        Self { stage_bytes: round_up(end, alignment), ..self }
    }

    /// Number of stages that fit into `bytes` bytes, with their mbarriers.
    pub const fn fit(&self, bytes: u32) -> u32 {
        bytes / self.stage_bytes.saturating_add(2 * MBARRIER_BYTES)
    }

    /// Bytes of `stages` stages with their mbarriers.
    pub const fn need(&self, stages: u32) -> u32 {
        stages.saturating_mul(self.stage_bytes.saturating_add(2 * MBARRIER_BYTES))
    }

    /// The same ring with `stages` stages from byte `start` of dynamic shared memory on (a multiple of 1024),
    /// and its mbarriers from byte `barriers` on (a multiple of 8).
    #[must_use]
    pub const fn placed(self, stages: u32, start: u32, barriers: u32) -> Self {
        Self { stages, start, barriers, ..self }
    }

    /// Rings with these numbers of stages: one after the other from byte `start` of dynamic shared memory on (a
    /// multiple of 1024), and the mbarriers of all of them after the last stage. Returns where these end, too.
    pub const fn placed_together<const N: usize>(
        mut rings: [Self; N],
        stages: [u32; N],
        start: u32,
    ) -> ([Self; N], u32) {
        let (mut end, mut i) = (start, 0);
        while i < N {
            rings[i] = rings[i].placed(stages[i], end, 0);
            end += stages[i] * rings[i].stage_bytes;
            i += 1;
        }
        i = 0;
        while i < N {
            rings[i].barriers = end;
            end += rings[i].barrier_bytes();
            i += 1;
        }
        (rings, end)
    }

    /// The same ring with these numbers of arrivals on a full and on an empty barrier.
    #[must_use]
    pub const fn arrivals(self, filling: u32, emptying: u32) -> Self {
        Self { filling, emptying, ..self }
    }

    /// Bytes of all mbarriers.
    pub const fn barrier_bytes(&self) -> u32 {
        self.stages.saturating_mul(2 * MBARRIER_BYTES)
    }

    /// Offset of tile `i` in a stage, in bytes; 0 if there is no such tile.
    pub const fn offset(&self, i: usize) -> u32 {
        if i < Self::MOST { self.offsets[i] } else { 0 }
    }

    /// Bytes of tile `i`; 0 if there is no such tile.
    pub const fn tile_bytes(&self, i: usize) -> u32 {
        if i < Self::MOST { self.rooms[i].bytes } else { 0 }
    }

    /// Offset and bytes of tile `i`.
    pub const fn place(&self, i: usize) -> [u32; 2] {
        [self.offset(i), self.tile_bytes(i)]
    }

    /// Bytes of all tiles of a stage: what the copies load per phase.
    pub const fn transaction_bytes(&self) -> u32 {
        let (mut bytes, mut i) = (0_u32, 0);
        while i < Self::MOST {
            bytes = bytes.saturating_add(self.rooms[i].bytes);
            i += 1;
        }
        bytes
    }
}
