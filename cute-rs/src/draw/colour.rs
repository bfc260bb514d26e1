//! Fill colours on which dark text is readable.

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Colour(pub(super) [u8; 3]);

impl Default for Colour {
    fn default() -> Self {
        Self::WHITE
    }
}

/// Hues that can be distinguished next to each other.
const HUES: [[u8; 3]; 8] = [
    [228, 70, 60],
    [60, 130, 215],
    [75, 175, 85],
    [240, 160, 30],
    [150, 90, 195],
    [40, 180, 185],
    [225, 100, 175],
    [160, 135, 75],
];

/// The strengths of the shades of a hue, in per cent.
const SHADES: [i64; 4] = [28, 42, 56, 70];

impl Colour {
    pub(super) const WHITE: Self = Self([255; 3]);

    /// This much of a hue, in per cent, on white.
    fn shade(hue: [u8; 3], per_cent: i64) -> Self {
        // Both factors are below 256 and 101, so the quotient is below 256.
        Self(hue.map(|part| 255 - (i64::from(255 - part) * per_cent / 100) as u8))
    }

    /// The colour of a thread or bank, one of 32: one hue per four neighbours, and one shade for each of
    /// them.
    pub(super) fn of_class(class: i64) -> Self {
        let class = class.rem_euclid(32) as usize;
        Self::shade(HUES[class / 4], SHADES[class % 4])
    }

    /// The colour of a value between two others: the darker, the higher.
    pub(super) fn along(value: i64, low: i64, high: i64) -> Self {
        let [value, low, high] = [value, low, high].map(i128::from);
        let per_cent = 5 + 60 * (value - low) / (high - low).max(1);
        Self::shade(HUES[1], per_cent as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn thirty_two_classes_and_a_ramp() {
        let classes: BTreeSet<_> = (0..32).map(Colour::of_class).collect();
        assert_eq!(classes.len(), 32, "no two banks look alike");
        assert_eq!(Colour::of_class(37), Colour::of_class(5));
        let bright = |colour: Colour| colour.0.iter().map(|&part| u32::from(part)).sum::<u32>();
        let ramp =
            [i64::MIN, -1, 0, 7, i64::MAX].map(|value| bright(Colour::along(value, i64::MIN, i64::MAX)));
        assert!(ramp.is_sorted_by(|a, b| a >= b), "{ramp:?}");
        assert_eq!(Colour::along(3, 3, 3), Colour::along(0, 0, 9), "one value is the lowest");
    }
}
