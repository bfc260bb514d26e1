//! What adapters share, by itself: descriptions in words, arguments by name, files, and calls in the emulator on the host's memory.

mod attention;
#[cfg(target_os = "linux")]
mod captured;
mod choices;
mod cost;
mod doors;
mod drawn;
mod files;
mod plan;
mod products;
mod slots;
mod tables;
mod weights;
mod words;

#[cfg(target_os = "linux")]
#[path = "../../../../kernel/tests/support/stand_in.rs"]
mod stand_in;

use falchion::collective::Format;
use falchion_core::Refusal;

/// The words of a refusal.
fn refused<T>(result: Result<T, Refusal>) -> String {
    match result {
        Ok(_) => panic!("it is not refused"),
        Err(error) => error.to_string(),
    }
}

/// Elements in a format.
fn bytes(format: Format, values: &[f64]) -> Vec<u8> {
    let size = format.bytes() as usize;
    values.iter().flat_map(|&value| format.encode(value).to_le_bytes().into_iter().take(size)).collect()
}

/// Their values.
fn values(format: Format, bytes: &[u8]) -> Vec<f64> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    bytes.chunks_exact(format.bytes() as usize).map(|bytes| format.decode(word(bytes))).collect()
}

/// Multiples of an eighth from -1 to 1, other ones for each seed.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 17
    };
    (0..count).map(|_| next() as f64 / 8.0 - 1.0).collect()
}

/// Bytes that begin at a multiple of 256.
struct Aligned(Vec<u8>, usize, usize);

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let mut all = vec![0xA5; bytes.len() + 512];
        let start = all.as_ptr().align_offset(256);
        all[start..start + bytes.len()].copy_from_slice(bytes);
        Self(all, start, bytes.len())
    }

    fn address(&mut self) -> u64 {
        let Self(all, start, _) = self;
        all[*start..].as_mut_ptr().expose_provenance() as u64
    }

    fn bytes(&self) -> &[u8] {
        &self.0[self.1..self.1 + self.2]
    }

    /// Whether nothing was written around the bytes.
    fn is_intact(&self) -> bool {
        self.0[..self.1].iter().chain(&self.0[self.1 + self.2..]).all(|&byte| byte == 0xA5)
    }
}
