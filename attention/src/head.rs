//! The elements of a head: which numbers there are, and how wide its rows are in shared memory.
//!
//! Device memory keeps rows of as many elements as a head has. In shared memory they are as wide as slabs of 64 elements, with the swizzle of
//! 128 bytes that `wgmma` reads fastest: tensor copies fill the rest with zeros, and products leave it out. So 80 elements are 64 and 16 there.

use crate::error::{AttentionError, refused};

/// Elements of the largest heads, apart from latent attention: registers of two consumers hold half of O each.
pub(crate) const LARGEST: u32 = 512;

/// What the elements of a head of Q and K must be whose O fits into the registers of one consumer.
pub(crate) const NEEDED: &str = "a multiple of 16 from 32 to 256";

/// Whether a head may have `d` elements.
const fn is_possible(d: u32) -> bool {
    matches!(d, 32..=256) && d.is_multiple_of(16)
}

/// Elements of a row of a head in shared memory. 32 and 96 have slabs of 32 elements: with 64, shared memory would hold a quarter less, or half.
pub(crate) const fn padded(d: u32) -> u32 {
    if matches!(d, 32 | 96) { d } else { d.next_multiple_of(64) }
}

/// Checks the elements of a head of Q and K, and of V and O. `needed` is what those of Q and K must be.
pub(crate) fn checked([d, dv]: [u32; 2], needed: &'static str) -> Result<(), AttentionError> {
    if !is_possible(d) {
        return Err(refused("d, the elements of a head of Q and K,", d, needed));
    }
    if !is_possible(dv) || dv > d {
        return Err(refused("d of V and O", dv, "a multiple of 16 from 32 to that of Q and K"));
    }
    Ok(())
}
