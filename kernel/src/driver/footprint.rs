//! The check that all memory of a call is lent.

use super::memory::DeviceSlice;
use crate::error::EngineError;
use crate::kernel::Kernel;
use crate::operands::{Memory, Visit};

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
