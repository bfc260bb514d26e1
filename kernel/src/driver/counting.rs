//! For tests: the number of allocations, and the GPU for tests that need one.

use super::Gpu;

#[path = "../../tests/support/counting.rs"]
mod allocator;

pub(super) use allocator::allocations;

/// The first GPU, if there is one. Otherwise the test reports that it was skipped.
pub(super) fn card() -> Option<Gpu> {
    Gpu::new(0).map_err(|_| crate::skipped::skipped("GPU")).ok()
}
