//! Why a spec is no kernel.

use collective::PlanError;
use cute_rs::LayoutError;
use kernel::words::WordError;

/// Why a spec is no kernel. Each error names the field, its value and what was needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttentionError {
    /// A word of a spec's text.
    #[error(transparent)]
    Word(#[from] WordError),
    /// A field that is not possible.
    #[error("{field} is {value}, {needed} was needed")]
    Field {
        /// Which one.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        needed: &'static str,
    },
    /// A tile that shared memory does not hold.
    #[error("a tile of the kernel: {0}")]
    Tile(#[source] Box<LayoutError>),
    /// A product that `wgmma` does not multiply.
    #[error("a product of the kernel: {0}")]
    Product(#[from] PlanError),
    /// The tiles do not fit into shared memory.
    #[error(
        "Q's tile and {stages} blocks each of K and V need {need} B of shared memory, a CTA has {have} B: take fewer keys per \
         block, or fewer stages"
    )]
    SharedMemory {
        /// Blocks of K, and of V.
        stages: u32,
        /// Bytes needed.
        need: u32,
        /// Bytes of a CTA.
        have: u32,
    },
    /// A thread has too few registers.
    #[error(
        "a consumer thread needs about {need} registers for a tile of {rows} x {keys}, it has {have}: take fewer {fewer}"
    )]
    Registers {
        /// Registers needed.
        need: u32,
        /// Registers of a thread.
        have: u32,
        /// Queries per tile.
        rows: u32,
        /// Keys per block.
        keys: u32,
        /// What fewer need fewer registers.
        fewer: &'static str,
    },
}

impl From<LayoutError> for AttentionError {
    fn from(error: LayoutError) -> Self {
        Self::Tile(Box::new(error))
    }
}

/// The error of a field.
pub(crate) fn refused(field: &'static str, value: impl ToString, needed: &'static str) -> AttentionError {
    AttentionError::Field { field, value: value.to_string(), needed }
}
