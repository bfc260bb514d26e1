//! Memory of a launch: the allocations that its arguments point into, cut to what may be recorded.

use std::collections::BTreeMap;

use crate::driver;

/// The allocations that are pointed into.
pub(crate) struct Memory<'a> {
    /// Where an address is: the allocation's beginning, and its bytes.
    allocation: &'a dyn Fn(u64) -> Option<(u64, u64)>,
    used: BTreeMap<u64, Used>,
}

/// An allocation.
#[derive(Clone, Copy, Debug)]
struct Used {
    bytes: u64,
    /// The lowest address that is pointed to.
    lowest: u64,
}

/// A piece of memory that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// What its allocation has.
    pub(crate) whole: u64,
}

impl Piece {
    /// The offset of an address in it: one behind its end is an end.
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.start).filter(|&offset| offset <= self.bytes)
    }
}

/// Memory of the driver.
pub(crate) fn of_driver() -> Memory<'static> {
    Memory { allocation: &driver::allocation, used: BTreeMap::new() }
}

impl Memory<'_> {
    /// Notes an address, if it is one.
    pub(crate) fn note(&mut self, address: u64) -> bool {
        if address < SMALLEST {
            return false;
        }
        // An address right behind an allocation is the end of a range.
        let Some((base, size)) = (self.allocation)(address).or_else(|| {
            let before = address - 1;
            (self.allocation)(before).filter(|(base, _)| self.used.contains_key(base))
        }) else {
            return false;
        };
        let used = self.used.entry(base).or_insert(Used { bytes: size, lowest: address });
        used.lowest = used.lowest.min(address);
        true
    }

    /// Where each allocation is pointed to first, and the bytes from there on.
    pub(crate) fn starts(&self) -> Vec<(u64, u64)> {
        self.used.iter().map(|(base, used)| (used.lowest, base + used.bytes - used.lowest)).collect()
    }

    /// The pieces that are recorded: whole allocations, if these have at most so many bytes together; otherwise the largest ones are
    /// cut. What is cut begins where it is pointed to.
    pub(crate) fn pieces(&self, most: u64) -> Vec<Piece> {
        let mut sizes: Vec<u64> = self.used.values().map(|used| used.bytes).collect();
        sizes.sort_unstable();
        // Small ones leave the rest of their share to the others.
        let (mut left, mut share) = (most, u64::MAX);
        for (number, &size) in sizes.iter().enumerate() {
            let fair = left / (sizes.len() - number) as u64;
            if size > fair {
                share = fair;
                break;
            }
            left -= size;
        }
        let piece = |(&base, used): (&u64, &Used)| {
            if used.bytes <= share {
                return Piece { start: base, bytes: used.bytes, whole: used.bytes };
            }
            let start = (used.lowest & !255).max(base);
            Piece { start, bytes: share.min(base + used.bytes - start), whole: used.bytes }
        };
        self.used.iter().map(piece).collect()
    }
}

/// No allocation begins below.
const SMALLEST: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Memory, Piece};

    /// Two allocations: of 1 KiB and of 1 MiB.
    fn allocation(address: u64) -> Option<(u64, u64)> {
        [(0x10_0000, 0x400), (0x20_0000, 0x10_0000)]
            .into_iter()
            .find(|&(base, bytes)| (base..base + bytes).contains(&address))
    }

    fn noted() -> Memory<'static> {
        let mut memory = Memory { allocation: &allocation, used: BTreeMap::new() };
        assert!(memory.note(0x10_0000) && memory.note(0x21_0010) && memory.note(0x22_0000));
        assert!(!memory.note(7) && !memory.note(0x50_0000));
        memory
    }

    #[test]
    fn allocations_that_fit_are_whole() {
        let whole = |start, bytes| Piece { start, bytes, whole: bytes };
        let mut memory = noted();
        assert!(memory.note(0x10_0400), "the end of a known allocation");
        assert_eq!(memory.pieces(1 << 30), [whole(0x10_0000, 0x400), whole(0x20_0000, 0x10_0000)]);
        assert_eq!(memory.pieces(1 << 30)[0].offset(0x10_0400), Some(0x400));
    }

    #[test]
    fn large_ones_are_cut() {
        let pieces = noted().pieces(0x8400);
        assert_eq!(pieces[0], Piece { start: 0x10_0000, bytes: 0x400, whole: 0x400 });
        assert_eq!(pieces[1], Piece { start: 0x21_0000, bytes: 0x8000, whole: 0x10_0000 });
    }
}
