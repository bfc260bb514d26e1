//! The check that all memory of a call is lent.

use super::memory::DeviceSlice;
use crate::error::EngineError;
use crate::kernel::Kernel;
use crate::operands::{Memory, Path, Visit};

/// The first memory that is not inside a slice.
struct Lent<'a> {
    kernel: &'a str,
    lent: &'a [DeviceSlice<'a>],
    result: Result<(), EngineError>,
}

impl Lent<'_> {
    /// Whether memory is the first that is not lent.
    fn misses(&self, Memory { address, extents, writes, .. }: &Memory<'_>) -> bool {
        let bytes = extents.bytes();
        let lent = || self.lent.iter().any(|slice| slice.covers(**address, bytes, *writes));
        self.result.is_ok() && bytes > 0 && !lent()
    }
}

impl Visit for Lent<'_> {
    fn memory(&mut self, memory: Memory<'_>) {
        if self.misses(&memory) {
            let (kernel, Memory { name, address, extents, writes, .. }) = (self.kernel.to_owned(), memory);
            let (address, bytes) = (*address, extents.bytes());
            self.result = Err(EngineError::NotLent { kernel, name, address, bytes, writes });
        }
    }

    fn node(&mut self, path: &Path<'_>, memory: Memory<'_>) {
        if self.misses(&memory) {
            let error = path.not_lent(*memory.address, memory.extents.bytes(), memory.writes);
            self.result = Err(EngineError::Call { kernel: self.kernel.to_owned(), source: error.into() });
        }
    }
}

/// Checks that all memory that a call's kernel visits is inside slices.
///
/// # Errors
/// The first memory that is not.
pub(super) fn check<C: Clone>(
    kernel: &impl Kernel<C>,
    name: &str,
    call: &C,
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let mut visit = Lent { kernel: name, lent, result: Ok(()) };
    kernel.visit(&mut call.clone(), &mut visit);
    visit.result
}
