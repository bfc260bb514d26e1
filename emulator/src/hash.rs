//! A hash of a number. The numbers are addresses, so nobody chooses them to collide.

use core::hash::{BuildHasherDefault, Hasher};

/// A hash map by numbers.
pub(crate) type Numbered<V> = std::collections::HashMap<u64, V, BuildHasherDefault<Mixed>>;

/// A hash map by what consists of numbers.
pub(crate) type ByNumbers<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Mixed>>;

/// The hasher of [`Numbered`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // The map uses the highest and the lowest bits.
        let product = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32;
    }
}
