//! Memory next to pages that nobody can access, and random numbers.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        first: i64,
    ) -> *mut c_void;
    fn mprotect(at: *mut c_void, bytes: usize, access: c_int) -> c_int;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
}

/// A multiple of every page's size on the machines that the tests run on.
const PAGE: usize = 1 << 16;

/// On which side of an array the page is that nobody can access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Side {
    /// The array ends where the page begins.
    Behind,
    /// The array begins where the page ends.
    Before,
}

/// An array with a page that nobody can access on one side, or on both where it fills its pages. Its address is a multiple of its
/// alignment: behind its last byte there may be fewer bytes than that.
pub(crate) struct Guarded {
    whole: *mut c_void,
    mapped: usize,
    start: *mut u8,
    bytes: usize,
}

impl Guarded {
    pub(crate) fn new(contents: &[u8], side: Side, alignment: usize) -> Self {
        let bytes = contents.len();
        let room = bytes.div_ceil(PAGE).max(1) * PAGE;
        let mapped = room + 2 * PAGE;
        // SAFETY: anonymous private memory at any address; the array lies in the pages that stay accessible.
        unsafe {
            // Readable and writable: 1 and 2. Private and anonymous: 2 and 32.
            let whole = mmap(null_mut(), mapped, 3, 2 | 32, -1, 0);
            assert!(whole.addr() != usize::MAX, "mmap failed");
            assert_eq!(mprotect(whole, PAGE, 0), 0);
            assert_eq!(mprotect(whole.wrapping_byte_add(PAGE + room), PAGE, 0), 0);
            let first = match side {
                Side::Before => PAGE,
                Side::Behind => (PAGE + room - bytes) / alignment * alignment,
            };
            let start = whole.cast::<u8>().wrapping_add(first);
            core::ptr::copy_nonoverlapping(contents.as_ptr(), start, bytes);
            Self { whole, mapped, start, bytes }
        }
    }

    /// An array of which an element is missing: the last one, or the first one, is on the page that nobody can access.
    pub(crate) fn short(contents: &[u8], side: Side, element: usize) -> Self {
        let there = match side {
            Side::Behind => &contents[..contents.len() - element],
            Side::Before => &contents[element..],
        };
        let mut all = Self::new(there, side, 1);
        if side == Side::Before {
            all.start = all.start.wrapping_sub(element);
        }
        all
    }

    pub(crate) fn at(&self) -> *const c_void {
        self.start.cast_const().cast()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are mapped, and no run is under way.
        unsafe { core::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: `mmap` returned the address.
        unsafe { munmap(self.whole, self.mapped) };
    }
}

/// SplitMix64 of S. Vigna.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    pub(crate) fn number(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.number(of.len())]
    }

    /// Once in `of` times.
    pub(crate) fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// -1, 0 or 1.
    pub(crate) fn small(&mut self) -> i8 {
        self.below(3) as i8 - 1
    }

    pub(crate) fn side(&mut self) -> Side {
        self.one(&[Side::Behind, Side::Before])
    }
}
