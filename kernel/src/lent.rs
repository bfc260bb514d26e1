//! The check that all memory of a call is lent.

use collective::Record;

use crate::error::EngineError;
use crate::operands::{Memory, Path, Visit};

/// The memory that its owners lend to a launch. On a GPU it is slices of device memory
/// ([`DeviceSlice`](crate::driver::DeviceSlice)).
pub trait Lent {
    /// Whether `bytes` bytes at an address are lent, as writable if `writes` is set.
    fn covers(&self, address: u64, bytes: u64, writes: bool) -> bool;

    /// The records that begin at an address, if they were lent as such: on a GPU, as
    /// [`DeviceRecords`](crate::driver::DeviceRecords).
    fn records(&self, address: u64) -> Option<&[Record]>;
}

/// The first memory of a kernel's call that is not lent.
pub(crate) struct Unlent<'a> {
    kernel: &'a str,
    lent: &'a dyn Lent,
    pub(crate) result: Result<(), EngineError>,
}

impl<'a> Unlent<'a> {
    pub(crate) fn new(kernel: &'a str, lent: &'a dyn Lent) -> Self {
        Self { kernel, lent, result: Ok(()) }
    }

    /// Whether memory is the first that is not lent.
    fn misses(&self, Memory { address, extents, writes, .. }: &Memory<'_>) -> bool {
        let bytes = extents.bytes();
        self.result.is_ok() && bytes > 0 && !self.lent.covers(**address, bytes, *writes)
    }
}

impl Visit for Unlent<'_> {
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
