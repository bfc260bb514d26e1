//! Global memory of the emulated device.
//!
//! Words are relaxed atomics, so clusters on different host threads can share them. A program with a race
//! reads old or new words, as on the device, without undefined behaviour on the host.

use core::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use ptx::abi::{Im2colMap, MapDescription, TensorMap};

use crate::error::EmulatorError;
use crate::schedule::Random;
use crate::tensor_map::encode;
use crate::trap::Fault;

/// Unused bytes after each allocation.
const GUARD: u64 = 1 << 24;
/// Alignment of every allocation in bytes, as with `cudaMalloc`.
const ALIGNMENT: u64 = 256;
/// Number of bytes that the host fetches together.
const HOST_LINE: usize = 64;
/// Number of bytes that are read or written in one step.
const WORD: usize = 8;

/// Global memory of the emulated device: a set of allocations.
///
/// It remembers which bytes have been written, and so finds reads of uninitialised memory.
pub struct Memory {
    /// In order of address.
    allocations: Vec<Allocation>,
    next: u64,
}

struct Allocation {
    base: u64,
    /// The GPU whose memory it is, and whether other GPUs may access it.
    gpu: u32,
    peers: bool,
    len: usize,
    words: Vec<AtomicU64>,
    /// Index of the word with which the memory begins: there the host begins to fetch, too.
    begin: usize,
    /// One bit per byte: whether it has been written.
    written: Vec<AtomicU32>,
}

/// A part of an allocation.
#[derive(Clone, Copy)]
pub(crate) struct Part<'m> {
    allocation: &'m Allocation,
}

impl<'m> Part<'m> {
    fn words(self, address: u64, len: usize) -> (usize, &'m [AtomicU64]) {
        let offset = (address - self.allocation.base) as usize;
        (offset, &self.allocation.words()[offset / WORD..(offset + len) / WORD])
    }

    /// The words of a range in it, for a program. All bytes must be written.
    #[inline]
    pub(crate) fn load(self, address: u64, len: usize) -> Result<&'m [AtomicU64], Fault> {
        let (offset, words) = self.words(address, len);
        if !self.allocation.written(offset, len) {
            return Err(Fault::GlobalUninitialised {
                address,
                bytes: u32::try_from(len).unwrap_or(u32::MAX),
            });
        }
        Ok(words)
    }

    /// Looks at ranges in it that will be read soon, so that the host fetches them at the same time, and not one after the other.
    pub(crate) fn look(self, ranges: impl Iterator<Item = (u64, usize)>) {
        let mut seen = 0;
        for (address, len) in ranges {
            for word in self.words(address, len).1.iter().step_by(HOST_LINE / WORD) {
                seen |= word.load(Relaxed);
            }
        }
        core::hint::black_box(seen);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.allocations.iter().map(|one| (one.base, one.len))).finish()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { allocations: Vec::new(), next: 0x7F00_0000_0000 }
    }
}

fn zeroed<T: Default>(count: usize) -> Vec<T> {
    core::iter::repeat_with(T::default).take(count).collect()
}

impl Allocation {
    fn new((base, gpu, peers): (u64, u32, bool), len: usize) -> Self {
        let words: Vec<AtomicU64> = zeroed(len.div_ceil(WORD) + HOST_LINE / WORD);
        let begin = words.as_ptr().align_offset(HOST_LINE).min(HOST_LINE / WORD);
        Self { base, gpu, peers, len, words, begin, written: zeroed(len.div_ceil(32)) }
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words[self.begin..]
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        let head = (offset.next_multiple_of(WORD) - offset).min(out.len());
        let (first, out) = out.split_at_mut(head);
        if head > 0 {
            let word = self.words()[offset / WORD].load(Relaxed).to_le_bytes();
            first.copy_from_slice(&word[offset % WORD..offset % WORD + head]);
        }
        let words = &self.words()[(offset + head) / WORD..];
        let (whole, last) = out.as_chunks_mut::<WORD>();
        for (bytes, word) in whole.iter_mut().zip(words) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
        if let (false, Some(word)) = (last.is_empty(), words.get(whole.len())) {
            last.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..last.len()]);
        }
    }

    /// Replaces some bytes of one word.
    fn patch(&self, word: usize, at: usize, bytes: &[u8]) {
        let Some(word) = self.words().get(word).filter(|_| !bytes.is_empty()) else { return };
        let update = |old: u64| {
            let mut new = old.to_le_bytes();
            new[at..at + bytes.len()].copy_from_slice(bytes);
            Some(u64::from_le_bytes(new))
        };
        // The closure always returns `Some`, so the result carries no information.
        let _old = word.fetch_update(Relaxed, Relaxed, update);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let head = (offset.next_multiple_of(WORD) - offset).min(bytes.len());
        let (first, rest) = bytes.split_at(head);
        self.patch(offset / WORD, offset % WORD, first);
        let start = (offset + head) / WORD;
        let (whole, last) = rest.as_chunks::<WORD>();
        for (bytes, word) in whole.iter().zip(&self.words()[start..]) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        self.patch(start + whole.len(), 0, last);
        for (index, mask) in masks(offset, bytes.len()) {
            if self.written[index].load(Relaxed) & mask != mask {
                self.written[index].fetch_or(mask, Relaxed);
            }
        }
    }

    fn written(&self, offset: usize, len: usize) -> bool {
        if offset.is_multiple_of(32) && len.is_multiple_of(32) {
            let words = &self.written[offset / 32..(offset + len) / 32];
            return words.iter().fold(u32::MAX, |all, word| all & word.load(Relaxed)) == u32::MAX;
        }
        masks(offset, len).all(|(index, mask)| self.written[index].load(Relaxed) & mask == mask)
    }
}

/// The words of a bit map that a range of bits touches: each word's index, and the mask of the range's bits
/// in it.
fn masks(offset: usize, len: usize) -> impl Iterator<Item = (usize, u32)> {
    let end = offset + len;
    (offset / 32..end.div_ceil(32)).map(move |index| {
        let low = offset.saturating_sub(index * 32);
        let high = (end - index * 32).min(32);
        (index, u32::MAX.checked_shr((32 - (high - low)) as u32).unwrap_or(0) << low)
    })
}

impl Memory {
    /// Memory without allocations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates `bytes` bytes and returns their device address, a multiple of 256.
    ///
    /// A program that reads a byte before it is written traps. At least 16 MiB after the allocation stay
    /// unused, so an access shortly past the end traps too.
    pub fn allocate(&mut self, bytes: usize) -> u64 {
        self.allocate_on(0, bytes, false)
    }

    /// The same in the memory of one of several GPUs ([`launch_together`](crate::launch_together)). `peers`: the other
    /// GPUs may access it too, at the same address.
    pub fn allocate_on(&mut self, gpu: u32, bytes: usize, peers: bool) -> u64 {
        let base = self.next;
        let size = u64::try_from(bytes).unwrap_or(u64::MAX);
        let end = base.saturating_add(size).checked_next_multiple_of(ALIGNMENT);
        self.next = end.and_then(|end| end.checked_add(GUARD)).unwrap_or(u64::MAX);
        self.allocations.push(Allocation::new((base, gpu, peers), bytes));
        base
    }

    /// Allocates memory, fills it with `bytes`, and returns its device address.
    pub fn upload(&mut self, bytes: &[u8]) -> u64 {
        let base = self.allocate(bytes.len());
        if let Some(allocation) = self.allocations.last() {
            allocation.write(0, bytes);
        }
        base
    }

    /// Allocates memory for a tensor map and returns its device address. Copies can use the map, and kernels
    /// can change it.
    ///
    /// # Errors
    /// [`EmulatorError::TensorMap`] if the description is not valid.
    pub fn upload_tensor_map(&mut self, map: &TensorMap) -> Result<u64, EmulatorError> {
        map.check().map_err(EmulatorError::TensorMap)?;
        Ok(self.upload(&encode(MapDescription::Tiled(map))))
    }

    /// Allocates memory for an im2col tensor map and returns its device address. Copies can use the map.
    ///
    /// # Errors
    /// [`EmulatorError::TensorMap`] if the description is not valid.
    pub fn upload_im2col_map(&mut self, map: &Im2colMap) -> Result<u64, EmulatorError> {
        map.check().map_err(EmulatorError::TensorMap)?;
        Ok(self.upload(&encode(MapDescription::Im2col(map))))
    }

    /// Writes `bytes` to a device address, from the host.
    ///
    /// # Errors
    /// [`EmulatorError::NotAllocated`] if the range is not inside one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), EmulatorError> {
        let (allocation, offset) = self.host(address, bytes.len())?;
        allocation.write(offset, bytes);
        Ok(())
    }

    /// Reads `len` bytes from a device address, to the host. Bytes that were never written read as zero.
    ///
    /// # Errors
    /// [`EmulatorError::NotAllocated`] if the range is not inside one allocation.
    pub fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, EmulatorError> {
        let (allocation, offset) = self.host(address, len)?;
        let mut bytes = vec![0; len];
        allocation.read(offset, &mut bytes);
        Ok(bytes)
    }

    /// Whether all `len` bytes at a device address have been written; `false` if they are not inside one
    /// allocation.
    pub fn written(&self, address: u64, len: usize) -> bool {
        self.host(address, len).is_ok_and(|(allocation, offset)| allocation.written(offset, len))
    }

    /// Frees an allocation. Programs that access it from now on trap.
    ///
    /// # Errors
    /// [`EmulatorError::NotAllocated`] if no allocation begins at `address`.
    pub fn free(&mut self, address: u64) -> Result<(), EmulatorError> {
        match self.allocations.binary_search_by_key(&address, |one| one.base) {
            Ok(index) => {
                self.allocations.remove(index);
                Ok(())
            }
            Err(_) => Err(EmulatorError::NotAllocated { address, bytes: 0 }),
        }
    }

    /// Size in bytes of the allocation that begins at an address; `None` if none does.
    pub fn size(&self, address: u64) -> Option<usize> {
        self.below(address).filter(|one| one.base == address).map(|one| one.len)
    }

    /// The GPU whose memory an address is in, and whether other GPUs may access it.
    pub(crate) fn owner(&self, address: u64) -> Option<(u32, bool)> {
        self.find(address, 1).map(|(allocation, _)| (allocation.gpu, allocation.peers))
    }

    /// The address of the allocation that begins at or below an address, or 0.
    pub(crate) fn base(&self, address: u64) -> u64 {
        self.below(address).map_or(0, |one| one.base)
    }

    /// The allocation that begins at or below an address.
    fn below(&self, address: u64) -> Option<&Allocation> {
        let count = self.allocations.partition_point(|one| one.base <= address);
        self.allocations.get(count.checked_sub(1)?)
    }

    fn find(&self, address: u64, len: usize) -> Option<(&Allocation, usize)> {
        let allocation = self.below(address)?;
        let offset = usize::try_from(address - allocation.base).ok()?;
        (offset.checked_add(len)? <= allocation.len).then_some((allocation, offset))
    }

    fn host(&self, address: u64, bytes: usize) -> Result<(&Allocation, usize), EmulatorError> {
        self.find(address, bytes).ok_or(EmulatorError::NotAllocated { address, bytes })
    }

    fn device(&self, address: u64, len: usize) -> Result<(&Allocation, usize), Fault> {
        self.find(address, len).ok_or_else(|| Fault::GlobalOutOfBounds {
            address,
            bytes: u32::try_from(len).unwrap_or(u32::MAX),
            near: self.below(address).map(|one| (one.base, one.len as u64)),
        })
    }

    /// The allocation that a range is in, for several reads of parts of the range.
    pub(crate) fn part(&self, address: u64, len: u64) -> Option<Part<'_>> {
        let (allocation, _) = self.find(address, usize::try_from(len).ok()?)?;
        Some(Part { allocation })
    }

    /// Reads for a program. All bytes must be allocated and written.
    pub(crate) fn load(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (allocation, offset) = self.device(address, out.len())?;
        if !allocation.written(offset, out.len()) {
            let bytes = u32::try_from(out.len()).unwrap_or(u32::MAX);
            return Err(Fault::GlobalUninitialised { address, bytes });
        }
        allocation.read(offset, out);
        Ok(())
    }

    /// Reads for a program. Bytes that nobody has written are drawn with a seed; returns whether there are none of them.
    pub(crate) fn load_any(&self, address: u64, out: &mut [u8], seed: u64) -> Result<bool, Fault> {
        let (allocation, offset) = self.device(address, out.len())?;
        allocation.read(offset, out);
        if allocation.written(offset, out.len()) {
            return Ok(true);
        }
        for (at, byte) in out.iter_mut().enumerate() {
            if !allocation.written(offset + at, 1) {
                *byte = Random::new(seed, address + at as u64).next() as u8;
            }
        }
        Ok(false)
    }

    /// Writes for a program.
    pub(crate) fn store(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (allocation, offset) = self.device(address, bytes.len())?;
        allocation.write(offset, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_reads_back_what_was_written() {
        for offset in 0..9 {
            for len in 0..40 {
                let mut memory = Memory::new();
                let base = memory.allocate(64);
                let bytes: Vec<u8> = (1..=len).collect();
                memory.write(base + offset, &bytes).unwrap();
                assert_eq!(memory.read(base + offset, bytes.len()).unwrap(), bytes);
                let all = memory.read(base, 64).unwrap();
                assert_eq!(
                    all.iter().filter(|&&byte| byte != 0).count(),
                    bytes.len(),
                    "nothing else changed"
                );
                assert!(memory.written(base + offset, bytes.len()), "{offset} {len}");
                assert!(!memory.written(base + offset, bytes.len() + 1), "{offset} {len}");
                assert!(offset == 0 || !memory.written(base + offset - 1, 1));
            }
        }
    }

    #[test]
    fn programs_trap_where_the_host_gets_an_error() {
        let mut memory = Memory::new();
        let first = memory.allocate(100);
        let second = memory.upload(&[7; 16]);
        assert!(first.is_multiple_of(256) && second.is_multiple_of(256));
        let mut out = [0; 4];
        assert!(matches!(memory.load(first, &mut out), Err(Fault::GlobalUninitialised { bytes: 4, .. })));
        assert!(matches!(
            memory.load(first + 98, &mut out),
            Err(Fault::GlobalOutOfBounds { near: Some((_, 100)), .. })
        ));
        assert!(matches!(memory.load(16, &mut out), Err(Fault::GlobalOutOfBounds { near: None, .. })));
        assert!(memory.load(second + 12, &mut out).is_ok() && out == [7; 4]);
        assert!(memory.store(second + 16, &[1]).is_err(), "one past the end");
        memory.free(second).unwrap();
        assert!(memory.load(second, &mut out).is_err(), "freed");
        assert!(memory.free(second).is_err() && memory.read(second, 1).is_err());
    }
}
