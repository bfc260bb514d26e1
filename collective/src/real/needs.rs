//! What a function needs of numbers, found by evaluating it.

use core::ops::{Add, Div, Mul, Neg, Sub};

use super::{Elementary, Level, Real};

/// What a function needs of the numbers that it computes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Quotients, and constants that are no integers.
    pub fractions: bool,
    /// Elementary functions.
    pub elementary: bool,
}

impl Needs {
    const fn and(self, other: Self) -> Self {
        Self { fractions: self.fractions || other.fractions, elementary: self.elementary || other.elementary }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $fractions:literal;)*) => {$(
        impl $trait for Needs {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                self.and(other).and(Self { fractions: $fractions, elementary: false })
            }
        }
    )*};
}

operators! {
    Add add false;
    Sub sub false;
    Mul mul false;
    Div div true;
}

impl Neg for Needs {
    type Output = Self;
    fn neg(self) -> Self {
        self
    }
}

impl Real for Needs {
    fn constant(self, value: f64) -> Self {
        let whole = value.trunc() == value && value.abs() < 2f64.powi(31);
        Self { fractions: !whole, elementary: false }
    }

    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.and(factor).and(addend)
    }

    fn abs(self) -> Self {
        self
    }

    pairs!(copysign, min, max, min_nan, max_nan: |a, b| a.and(b));

    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        self.and(limit).and(yes).and(no)
    }

    fn elementary(self, _function: Elementary, _level: Level) -> Self {
        Self { elementary: true, ..self }
    }
}
