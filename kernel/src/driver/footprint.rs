//! The check that all memory of a call is lent.

use super::memory::DeviceSlice;
use crate::error::EngineError;
use crate::kernel::Kernel;
use crate::operands::{Memory, Path, Visit};
use crate::problem::Launch;
use crate::program::Program;

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

/// Whether an address begins in memory that a call visits.
struct Told(u64, bool);

impl Visit for Told {
    fn memory(&mut self, Memory { address, extents, .. }: Memory<'_>) {
        let begins = *address..address.saturating_add(extents.bytes().max(1));
        self.1 |= begins.contains(&self.0);
    }
}

/// Checks that a call visits all memory that its launch has the addresses of.
///
/// # Errors
/// The first parameter with another address.
pub(super) fn told<C: Clone>(
    kernel: &impl Kernel<C>,
    program: &Program,
    call: &C,
    launch: &Launch,
) -> Result<(), EngineError> {
    for (param, argument) in program.function().params.iter().zip(&launch.arguments) {
        let address = argument.clone().address().filter(|_| !param.number).map_or(0, |address| *address);
        let mut told = Told(address, address == 0);
        kernel.visit(&mut call.clone(), &mut told);
        if !told.1 {
            let (kernel, parameter) = (program.name().to_owned(), param.name);
            return Err(EngineError::Untold { kernel, parameter, address });
        }
    }
    Ok(())
}
