//! Device memory: whose it is, and who keeps it.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::marker::PhantomData;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use collective::Record;

use super::context::{Context, lock};
use super::records::Records;
use super::sys::RawStream;
use crate::error::EngineError;

/// Memory that goes back when the last that needs it is dropped.
#[derive(Debug)]
pub(super) struct Allocation {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl Allocation {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Arc<Self>, EngineError> {
        context.bind()?;
        let bytes = bytes.max(1);
        let mut address = 0;
        // SAFETY: the context is current, and one address is written.
        let status = unsafe { (context.functions().allocate)(&mut address, bytes) };
        context.check("cuMemAlloc", status)?;
        Ok(Arc::new(Self { context: Arc::clone(context), address, bytes }))
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: it was allocated by this value, and nothing that is left needs it. The call waits for work that is in
            // flight; after a fault it answers with that fault, and the memory goes with the context.
            let _ = unsafe { (self.context.functions().free)(self.address) };
        }
    }
}

/// The memory of one GPU value, by its addresses.
#[derive(Debug, Default)]
pub(super) struct Memories(Mutex<BTreeMap<u64, Arc<Allocation>>>);

impl Memories {
    pub(super) fn insert(&self, allocation: Arc<Allocation>) {
        lock(&self.0).insert(allocation.address, allocation);
    }

    pub(super) fn remove(&self, address: u64) -> Option<Arc<Allocation>> {
        lock(&self.0).remove(&address)
    }

    /// The memory that begins at an address.
    pub(super) fn get(&self, address: u64) -> Option<Arc<Allocation>> {
        lock(&self.0).get(&address).cloned()
    }

    /// The memory that so many bytes at an address lie in.
    pub(super) fn around(&self, address: u64, bytes: u64) -> Option<Arc<Allocation>> {
        let all = lock(&self.0);
        let (_, allocation) = all.range(..=address).next_back()?;
        let end = address.checked_add(bytes)?;
        (end <= allocation.address + allocation.bytes as u64).then(|| Arc::clone(allocation))
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// A buffer of a [`Gpu`](super::Gpu) that stays allocated as long as this is kept.
#[derive(Clone, Debug)]
pub struct DeviceMemory(pub(super) Arc<Allocation>);

impl DeviceMemory {
    /// Device address.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// Device memory that its owner lends to a launch: an address, and how many bytes from there on.
///
/// Buffers of a [`Gpu`](super::Gpu) and, with the feature `cudarc`, slices of cudarc lend themselves. Nobody else knows
/// whether an address is one of device memory, so that [`readable`](Self::readable) and [`writable`](Self::writable) are
/// `unsafe`.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a> {
    address: u64,
    bytes: u64,
    writable: bool,
    /// The one stream that its owner lends it for.
    stream: Option<usize>,
    /// What it holds, where these are records.
    records: Option<&'a Records>,
    owner: PhantomData<&'a ()>,
}

impl<'a> DeviceSlice<'a> {
    /// Memory that launches may read.
    ///
    /// # Safety
    /// So many bytes from the address on are memory that the device reads, which stays allocated and which nobody writes until
    /// every launch that was given the slice has finished.
    pub unsafe fn readable(address: u64, bytes: u64) -> Self {
        Self { address, bytes, writable: false, stream: None, records: None, owner: PhantomData }
    }

    /// Memory that launches may read and write.
    ///
    /// # Safety
    /// So many bytes from the address on are memory that the device reads and writes, which stays allocated and which nobody
    /// else reads or writes until every launch that was given the slice has finished.
    pub unsafe fn writable(address: u64, bytes: u64) -> Self {
        Self { address, bytes, writable: true, stream: None, records: None, owner: PhantomData }
    }

    /// Device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same for launches on one stream alone.
    #[cfg(feature = "cudarc")]
    pub(super) fn on(self, stream: RawStream) -> Self {
        Self { stream: Some(stream.addr()), ..self }
    }

    /// Whether launches on a stream may use it.
    pub(super) fn serves(&self, stream: RawStream) -> bool {
        self.stream.is_none_or(|lent| lent == stream.addr())
    }

    /// The records that begin at an address.
    pub(super) fn records(&self, address: u64) -> Option<&'a Records> {
        self.records.filter(|records| records.address() == address)
    }

    /// Whether so many bytes at an address are part of it, and may be written if they have to be.
    pub(super) fn covers(&self, address: u64, bytes: u64, writes: bool) -> bool {
        let inside = address >= self.address
            && address.checked_add(bytes).is_some_and(|end| end - self.address <= self.bytes);
        inside && (self.writable || !writes)
    }
}

impl<'a> From<&'a DeviceMemory> for DeviceSlice<'a> {
    fn from(memory: &'a DeviceMemory) -> Self {
        let (address, bytes) = (memory.address(), memory.bytes() as u64);
        Self { address, bytes, writable: true, stream: None, records: None, owner: PhantomData }
    }
}

impl<'a> From<&'a Records> for DeviceSlice<'a> {
    fn from(records: &'a Records) -> Self {
        let bytes = (records.as_slice().len() * Record::BYTES[0] as usize) as u64;
        let (address, records) = (records.address(), Some(records));
        Self { address, bytes, writable: false, stream: None, records, owner: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceSlice;

    #[test]
    #[allow(unsafe_code, reason = "nothing is launched with the slices")]
    fn slices_cover_what_lies_inside_and_may_be_written() {
        // SAFETY: nothing is launched with them.
        let [read, write] = unsafe { [DeviceSlice::readable(100, 50), DeviceSlice::writable(100, 50)] };
        for (why, address, bytes, covered) in [
            ("all of it", 100, 50, true),
            ("nothing at its end", 150, 0, true),
            ("a byte too many", 100, 51, false),
            ("begins before it", 99, 10, false),
            ("an end beyond the last address", 120, u64::MAX, false),
        ] {
            assert_eq!(read.covers(address, bytes, false), covered, "{why}");
            assert_eq!(write.covers(address, bytes, true), covered, "{why}");
            assert!(!read.covers(address, bytes, true), "{why}: it may not be written");
        }
    }
}
