//! The place of the queue of drawn tile numbers.

use super::units::{MBARRIER_BYTES, round_up};

/// The place of the queue in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Number of entries; 0 if the scheduler draws no tile numbers.
    pub entries: u32,
    /// Offset of its mbarriers in bytes: the full ones, then the empty ones.
    pub barriers: u32,
    /// Offset of its words in bytes. Each word has a chunk of [`CHUNK_BYTES`](Self::CHUNK_BYTES) of its own.
    pub words: u32,
}

impl QueuePlan {
    /// Number of entries of a kernel's queue.
    pub const ENTRIES: u32 = 4;

    /// Bytes from one word to the next: one chunk, so that no two words share a chunk to which a store to a
    /// peer may be under way.
    pub const CHUNK_BYTES: u32 = 16;

    /// A queue in shared memory from byte `start` on, a multiple of 8, and where it ends.
    pub const fn placed(entries: u32, start: u32) -> (Self, u32) {
        let words = round_up(start + entries * 2 * MBARRIER_BYTES, Self::CHUNK_BYTES);
        let queue = Self { entries, barriers: start, words };
        (queue, if entries > 0 { words + entries * Self::CHUNK_BYTES } else { start })
    }

    /// Bytes of workspace for the counter: it has a line of L2 to itself.
    pub const WORKSPACE_BYTES: u64 = 128;
}
