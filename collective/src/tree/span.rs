//! A value and how far the device may be from it.

use core::ops::{Add, Mul};

/// Roundoff of f32.
const U: f64 = 1.0 / 16_777_216.0;

/// Half of the smallest positive f32.
const TINY: f64 = f64::from_bits((1023 - 150) << 52);

/// A value in f64, and a bound for the distance of what is computed in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The exact value.
    pub value: f64,
    /// The bound.
    pub error: f64,
}

impl Span {
    /// A value that the device has exactly.
    pub const fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// A value rounded to f32 once more.
    #[must_use]
    pub fn rounded(value: f64, error: f64) -> Self {
        Self { value, error: error + U * (value.abs() + error) + TINY }
    }

    /// `self * factor + addend`, rounded once.
    #[must_use]
    pub fn mul_add(self, factor: Self, addend: Self) -> Self {
        let value = self.value.mul_add(factor.value, addend.value);
        Self::rounded(value, self.product_error(factor) + addend.error)
    }

    fn product_error(self, other: Self) -> f64 {
        self.value.abs() * other.error + other.value.abs() * self.error + self.error * other.error
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::rounded(self.value + other.value, self.error + other.error)
    }
}

impl Mul for Span {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::rounded(self.value * other.value, self.product_error(other))
    }
}
