//! Whole numbers for masks: on the host, and device values in a kernel.

use core::fmt::Debug;
use core::ops::{Add, BitAnd, BitOr, Div, Mul, Not, Sub};

use collective::{Bounded, Dual, Real};
use ptx::Value;

/// A whole number on the host (`i64`) or on the device: an index of a query, a key or a head, or a length. A mask
/// is written once, generic over it.
///
/// Numbers and results must fit 31 bits and a sign. `/` rounds towards zero.
pub trait Count:
    Copy + Debug + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// The result of a comparison.
    type Truth: Copy + BitAnd<Output = Self::Truth> + BitOr<Output = Self::Truth> + Not<Output = Self::Truth>;

    /// Real numbers of the same kind: on the host those with a bound on the device's error.
    type Real: Real;

    /// A constant of the same kind as `self`.
    fn constant(self, value: i32) -> Self;

    /// The smaller.
    fn min(self, other: Self) -> Self;

    /// The larger.
    fn max(self, other: Self) -> Self;

    /// `self < other`.
    fn less(self, other: Self) -> Self::Truth;

    /// `self <= other`.
    fn at_most(self, other: Self) -> Self::Truth;

    /// `self == other`.
    fn equals(self, other: Self) -> Self::Truth;

    /// The number as a real one.
    fn real(self) -> Self::Real;

    /// `self + addend`.
    #[track_caller]
    fn plus(self, addend: i32) -> Self {
        self + self.constant(addend)
    }
}

/// A whole number whose real numbers have a derivative, by the product of a query and a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Differentiated<N>(pub(crate) N);

impl<N: Count> Add for Differentiated<N> {
    type Output = Self;

    #[track_caller]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl<N: Count> Sub for Differentiated<N> {
    type Output = Self;

    #[track_caller]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl<N: Count> Mul for Differentiated<N> {
    type Output = Self;

    #[track_caller]
    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }
}

impl<N: Count> Div for Differentiated<N> {
    type Output = Self;

    #[track_caller]
    fn div(self, other: Self) -> Self {
        Self(self.0 / other.0)
    }
}

impl<N: Count> Count for Differentiated<N> {
    type Truth = N::Truth;
    type Real = Dual<N::Real>;

    #[track_caller]
    fn constant(self, value: i32) -> Self {
        Self(self.0.constant(value))
    }

    #[track_caller]
    fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    #[track_caller]
    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    #[track_caller]
    fn less(self, other: Self) -> Self::Truth {
        self.0.less(other.0)
    }

    #[track_caller]
    fn at_most(self, other: Self) -> Self::Truth {
        self.0.at_most(other.0)
    }

    #[track_caller]
    fn equals(self, other: Self) -> Self::Truth {
        self.0.equals(other.0)
    }

    #[track_caller]
    fn real(self) -> Self::Real {
        Dual::fixed(self.0.real())
    }
}

impl Count for i64 {
    type Truth = bool;
    type Real = Bounded;

    fn constant(self, value: i32) -> Self {
        value.into()
    }

    fn min(self, other: Self) -> Self {
        Ord::min(self, other)
    }

    fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }

    fn less(self, other: Self) -> bool {
        self < other
    }

    fn at_most(self, other: Self) -> bool {
        self <= other
    }

    fn equals(self, other: Self) -> bool {
        self == other
    }

    fn real(self) -> Bounded {
        // The device rounds to `f32`.
        let value = self as f64;
        Bounded::new(value, value - f64::from(self as f32))
    }
}

impl<'f> Count for Value<'f, i32> {
    type Truth = Value<'f, bool>;
    type Real = Value<'f, f32>;

    #[track_caller]
    fn constant(self, value: i32) -> Self {
        self.builder().constant(value)
    }

    #[track_caller]
    fn min(self, other: Self) -> Self {
        self.min(other)
    }

    #[track_caller]
    fn max(self, other: Self) -> Self {
        self.max(other)
    }

    #[track_caller]
    fn less(self, other: Self) -> Self::Truth {
        self.less_than(other)
    }

    #[track_caller]
    fn at_most(self, other: Self) -> Self::Truth {
        self.at_most(other)
    }

    #[track_caller]
    fn equals(self, other: Self) -> Self::Truth {
        self.equals(other)
    }

    #[track_caller]
    fn real(self) -> Self::Real {
        self.cast()
    }
}
