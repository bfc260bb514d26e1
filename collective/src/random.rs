//! Counter-based random numbers: Philox4x32-10, with the same results on host and device.
//!
//! Element (i, j) of a matrix can draw its number independently of all others, since the same counter and key
//! always give the same words. So a mask need not be stored. Source: Salmon, Moraes, Dror and Shaw, "Parallel
//! Random Numbers: As Easy as 1, 2, 3" (SC 2011).
//!
//! ```
//! use collective::random::{philox, uniform};
//!
//! let words = philox([1, 2, 3, 4], [5, 6]);
//! assert_eq!(words, philox([1, 2, 3, 4], [5, 6]));
//! assert!((0.0..1.0).contains(&uniform(words[0])));
//! ```

use core::fmt::Debug;

use ptx::Value;

/// 32 bits on the host or on the device.
pub trait Word: Copy + Debug {
    /// The number that [`uniform`] returns for such a word.
    type Real;

    /// `self + addend`, wrapping.
    fn plus(self, addend: u32) -> Self;

    /// `self ^ other`.
    fn xor(self, other: Self) -> Self;

    /// The high and the low half of `self * factor`.
    fn product(self, factor: u32) -> [Self; 2];

    /// The upper 24 bits as a fraction of `[0, 1)`.
    fn fraction(self) -> Self::Real;
}

impl Word for u32 {
    type Real = f32;

    fn plus(self, addend: u32) -> Self {
        self.wrapping_add(addend)
    }

    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    fn product(self, factor: u32) -> [Self; 2] {
        let wide = u64::from(self) * u64::from(factor);
        [(wide >> 32) as u32, wide as u32]
    }

    fn fraction(self) -> f32 {
        (self >> 8) as f32 * FRACTION
    }
}

impl<'f> Word for Value<'f, u32> {
    type Real = Value<'f, f32>;

    fn plus(self, addend: u32) -> Self {
        self + addend
    }

    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    fn product(self, factor: u32) -> [Self; 2] {
        let wide = self.mul_wide(factor);
        [(wide >> 32).cast(), wide.cast()]
    }

    fn fraction(self) -> Value<'f, f32> {
        (self >> 8).cast::<f32>() * FRACTION
    }
}

/// Value of the last of 24 fraction bits.
const FRACTION: f32 = 1.0 / 16_777_216.0;

/// Multipliers of the first and the third word of the counter.
const FACTORS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// Added to the key after each round: fractional parts of the golden ratio and of the square root of 3.
const STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for a counter and a key: 10 rounds, 20 multiplications.
pub fn philox<W: Word>(counter: [W; 4], key: [W; 2]) -> [W; 4] {
    let mut words = counter;
    for round in 0..10u32 {
        let [first, second] = [0, 1].map(|i: usize| key[i].plus(STEPS[i].wrapping_mul(round)));
        let [a, b, c, d] = words;
        let ([a_high, a_low], [c_high, c_low]) = (a.product(FACTORS[0]), c.product(FACTORS[1]));
        words = [c_high.xor(b).xor(first), c_low, a_high.xor(d).xor(second), a_low];
    }
    words
}

/// A number in `[0, 1)`, in steps of 2^-24, without rounding.
pub fn uniform<W: Word>(word: W) -> W::Real {
    word.fraction()
}

#[cfg(test)]
mod tests {
    use super::{philox, uniform};

    /// The known answers published with the authors' library.
    #[test]
    fn words_are_those_of_the_known_answers() {
        let ones = u32::MAX;
        for (counter, key, want) in [
            ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
            ([ones; 4], [ones; 2], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
            (
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ] {
            assert_eq!(philox::<u32>(counter, key), want, "{counter:x?} {key:x?}");
        }
    }

    #[test]
    fn fractions_are_exact_and_below_one() {
        assert_eq!([uniform(0u32), uniform(1 << 31), uniform(255)], [0.0, 0.5, 0.0]);
        assert_eq!(uniform(u32::MAX), 1.0 - 1.0 / 16_777_216.0);
    }
}
