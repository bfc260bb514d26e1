//! The 32 lanes of a warp: masks of them, and a value of each.

/// Every lane.
pub(crate) const ALL: u32 = u32::MAX;

/// One value per lane.
pub(crate) type Lanes<T> = [T; 32];

/// Extends the hash `all` of a sequence of numbers by one more number.
pub(crate) fn mix(all: u64, value: u64) -> u64 {
    (all ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// The lanes of a mask, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(lanes(0b1010).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(lanes(ALL).count(), 32);
    }
}
