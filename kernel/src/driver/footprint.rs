//! The check that all memory of a call is lent.

use super::memory::DeviceSlice;
use crate::error::EngineError;
use crate::operands::{Layouts, Memory, Visit};
use crate::problem::Call;

/// The first memory that is not inside a slice.
struct Lent<'a> {
    kernel: &'a str,
    lent: &'a [DeviceSlice<'a>],
    result: Result<(), EngineError>,
}

impl Visit for Lent<'_> {
    fn memory(&mut self, Memory { name, address, extents, writes, .. }: Memory<'_>) {
        let (address, bytes) = (*address, extents.bytes());
        let lent = || self.lent.iter().any(|slice| slice.covers(address, bytes, writes));
        if self.result.is_ok() && bytes > 0 && !lent() {
            let kernel = self.kernel.to_owned();
            self.result = Err(EngineError::NotLent { kernel, name, address, bytes, writes });
        }
    }
}

/// Checks that all memory that a call accesses is inside slices. Memory that the epilogue accesses in
/// addition to D is not checked here.
///
/// # Errors
/// The first memory that is not inside a slice.
pub(super) fn check(
    kernel: &str,
    layouts: &Layouts,
    call: &Call<()>,
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let mut visit = Lent { kernel, lent, result: Ok(()) };
    call.clone().visit(layouts, &mut visit);
    visit.result
}
