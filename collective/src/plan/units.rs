//! Constants and arithmetic that every plan uses.

use ptx::Target;

/// The architecture that kernels are made for.
pub(super) const TARGET: Target = Target::Sm90a;

/// Bytes of a word.
pub(crate) const WORD_BYTES: u32 = 4;

/// Bytes of an mbarrier.
pub(crate) const MBARRIER_BYTES: u32 = 8;

/// `value` rounded up to a multiple of `to`; saturates.
pub(super) const fn round_up(value: u32, to: u32) -> u32 {
    value.div_ceil(to).saturating_mul(to)
}

/// The larger of two numbers.
pub(super) const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

/// What is right, or the error is returned: `?` for constants.
macro_rules! ok {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Err(error),
        }
    };
}
pub(super) use ok;
