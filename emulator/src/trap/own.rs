//! What a program can do wrong with memory that is a thread's own.

/// What is wrong with an access to a thread's local memory or to the kernel's parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnFault {
    /// An access outside the memory.
    #[error("{bytes} B at byte {offset} are outside the .{space} memory, which has {size} B")]
    OutOfBounds {
        /// The state space: `local` or `param`.
        space: &'static str,
        /// Offset of the first byte; negative if it is before the beginning.
        offset: i64,
        /// Number of bytes.
        bytes: u32,
        /// Size of the memory in bytes.
        size: u64,
    },
    /// An address that is not a multiple of the number of bytes that are accessed.
    #[error("the address of byte {offset} of .{space} memory is not a multiple of {alignment} B")]
    Misaligned {
        /// The state space: `local` or `param`.
        space: &'static str,
        /// Offset of the first byte.
        offset: i64,
        /// The required alignment in bytes.
        alignment: u32,
    },
    /// A use of local bytes that the thread never wrote.
    #[error("{bytes} B at byte {offset} of local memory are used, but not all were written before")]
    Uninitialised {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// A store to parameters.
    #[error("byte {offset} of the parameters is written: they are read-only (ISA \"Parameter State Space\")")]
    ReadOnly {
        /// Offset of the first byte.
        offset: u64,
    },
    /// An atomic operation by a generic address in memory that no other thread has.
    #[error("an atomic operation in .{space} memory does not exist (ISA \"atom\")")]
    Atomic {
        /// The state space: `local` or `param`.
        space: &'static str,
    },
}
