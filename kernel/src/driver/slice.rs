//! Slices of device memory that owners lend to launches.
#![allow(unsafe_code, reason = "its constructors are promises of the caller")]

use collective::Record;

use super::memory::DeviceMemory;
use super::records::DeviceRecords;
use super::stream::Held;
use super::sys::RawStream;
use crate::lent::Lent;

/// Device memory that its owner lends to a launch: an address and a number of bytes.
///
/// A [`DeviceMemory`] converts to it, and so do [`DeviceRecords`]. With the feature `cudarc`, `cudarc::read` and
/// `cudarc::write` lend cudarc's slices. For other memory nothing proves that an address is valid, so
/// [`readable`](Self::readable) and [`writable`](Self::writable) are `unsafe`.
///
/// A launch may be captured into a graph. The graph keeps [`DeviceMemory`] and [`DeviceRecords`]. If another
/// library captures, they are kept as long as the process runs. All other memory is kept by its owner: as
/// long as the graph may be replayed.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a> {
    address: u64,
    bytes: u64,
    writable: bool,
    /// The only stream that it may be used on, if there is one.
    stream: Option<usize>,
    /// The records in it, if it holds records.
    records: Option<&'a DeviceRecords>,
    /// The memory that it is, if it is of this library.
    memory: Option<&'a DeviceMemory>,
}

impl<'a> DeviceSlice<'a> {
    /// Memory that launches may read, from a device address, in bytes.
    ///
    /// # Safety
    /// The memory must be readable by the device. It must stay allocated, and nothing may write it, until
    /// every launch that was given the slice has finished, also from a graph that captured the launch.
    pub unsafe fn readable(address: u64, bytes: u64) -> Self {
        Self { address, bytes, writable: false, stream: None, records: None, memory: None }
    }

    /// Memory that launches may read and write, from a device address, in bytes.
    ///
    /// # Safety
    /// The memory must be readable and writable by the device. It must stay allocated, and nothing else may
    /// read or write it, until every launch that was given the slice has finished, also from a graph that
    /// captured the launch.
    pub unsafe fn writable(address: u64, bytes: u64) -> Self {
        Self { address, bytes, writable: true, stream: None, records: None, memory: None }
    }

    /// Device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether launches may write it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The same, restricted to launches on one stream.
    #[cfg(feature = "cudarc")]
    pub(super) fn on(self, stream: RawStream) -> Self {
        Self { stream: Some(stream.addr()), ..self }
    }

    /// Whether launches on a stream may use it.
    pub(super) fn serves(&self, stream: RawStream) -> bool {
        self.stream.is_none_or(|lent| lent == stream.addr())
    }

    /// The memory, to be kept by a graph; `None` for memory of other owners.
    pub(super) fn held(&self) -> Option<Held> {
        self.memory.map(DeviceMemory::held)
    }

    /// Whether `bytes` bytes at an address are inside this slice, and are writable if `writes` is set.
    fn covers(&self, address: u64, bytes: u64, writes: bool) -> bool {
        let inside = address >= self.address
            && address.checked_add(bytes).is_some_and(|end| end - self.address <= self.bytes);
        inside && (self.writable || !writes)
    }
}

/// The memory of a launch.
pub(super) struct LentSlices<'a> {
    /// What its owners lend.
    pub(super) lent: &'a [DeviceSlice<'a>],
    /// A workspace of the kernel.
    pub(super) workspace: Option<DeviceSlice<'a>>,
}

impl<'a> LentSlices<'a> {
    /// All of it.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DeviceSlice<'a>> {
        self.lent.iter().chain(&self.workspace)
    }
}

impl Lent for LentSlices<'_> {
    fn covers(&self, address: u64, bytes: u64, writes: bool) -> bool {
        self.iter().any(|slice| slice.covers(address, bytes, writes))
    }

    fn records(&self, address: u64) -> Option<&[Record]> {
        let mut lent = self.lent.iter().filter_map(|slice| slice.records);
        lent.find(|records| records.address() == address).map(DeviceRecords::as_slice)
    }
}

impl<'a> From<&'a DeviceMemory> for DeviceSlice<'a> {
    fn from(memory: &'a DeviceMemory) -> Self {
        let (address, bytes) = (memory.address(), memory.bytes() as u64);
        Self { address, bytes, writable: true, stream: None, records: None, memory: Some(memory) }
    }
}

impl<'a> From<&'a DeviceRecords> for DeviceSlice<'a> {
    fn from(records: &'a DeviceRecords) -> Self {
        let bytes = (records.as_slice().len() * Record::BYTES[0] as usize) as u64;
        let (address, records) = (records.address(), Some(records));
        let memory = records.map(DeviceRecords::memory);
        Self { address, bytes, writable: false, stream: None, records, memory }
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
