//! Where the queue of drawn numbers lies.

/// Where the queue lies in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Numbers that it holds; 0 where nothing is drawn.
    pub slots: u32,
    /// Where its mbarriers begin, in bytes: full and empty ones.
    pub barriers: u32,
    /// Where its words begin, each in a chunk of [`CHUNK_BYTES`](Self::CHUNK_BYTES) of its own.
    pub words: u32,
}

impl QueuePlan {
    /// Numbers of a queue: as many as an even ring of stages has of the shortest tiles.
    pub const SLOTS: u32 = 4;

    /// Bytes from one word to the next: those of a chunk that stores to a peer may be on their way to.
    pub const CHUNK_BYTES: u32 = 16;

    /// Bytes of the workspace that the counter takes: nobody shares its line of L2.
    pub const WORKSPACE_BYTES: u64 = 128;
}
