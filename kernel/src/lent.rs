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

#[cfg(test)]
mod tests {
    use collective::operands::{Contents, Extents};

    use super::*;

    /// 64 bytes at 0x1000 to read, and 16 at 0x2000 to write.
    struct Two;

    impl Lent for Two {
        fn covers(&self, address: u64, bytes: u64, writes: bool) -> bool {
            let inside = |begin: u64, size: u64| begin <= address && address + bytes <= begin + size;
            (!writes && inside(0x1000, 64)) || inside(0x2000, 16)
        }

        fn records(&self, _address: u64) -> Option<&[Record]> {
            None
        }
    }

    /// The first piece that is not lent is named, as memory of the kernel or of a node of its epilogue.
    #[test]
    fn the_first_memory_that_is_not_lent_is_named() {
        let node = Path::ROOT;
        let node = node.then("bias");
        for (pieces, wanted) in [
            (&[(0x1000, 64, false), (0x2000, 16, true)][..], None),
            (&[(0x1000, 65, false)], Some(0)),
            (&[(0x1000, 64, true)], Some(0)),
            (&[(0x2000, 16, true), (0x2004, 13, true), (0x9000, 1, false)], Some(1)),
            // Nothing is accessed.
            (&[(0x9000, 0, true), (0x1000, 1, false)], None),
        ] {
            for of_node in [false, true] {
                let mut visit = Unlent::new("mine", &Two);
                for &(mut address, bytes, writes) in pieces {
                    let (extents, contents) = (Extents::line(8, bytes), Contents::Elements(1));
                    let memory = Memory { name: "A", address: &mut address, extents, contents, writes };
                    if of_node { visit.node(&node, memory) } else { visit.memory(memory) }
                }
                let of = wanted.map(|at: usize| {
                    let (address, bytes, writes) = pieces[at];
                    let kernel = "mine".to_owned();
                    if of_node {
                        let source = node.not_lent(address, bytes, writes).into();
                        EngineError::Call { kernel, source }.to_string()
                    } else {
                        EngineError::NotLent { kernel, name: "A", address, bytes, writes }.to_string()
                    }
                });
                assert_eq!(visit.result.err().map(|error| error.to_string()), of, "{pieces:x?}");
            }
        }
    }
}
