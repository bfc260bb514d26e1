//! Relations and quotients of floats.
//!
//! Source: PTX ISA "Comparison and Selection", "setp", "div".
//!
//! ```
//! use ptx::inst::{CompareOp, FloatRelation};
//!
//! // `.ltu` also holds where a number is NaN.
//! let below = FloatRelation::Unordered(CompareOp::Lt);
//! assert_eq!(below.suffix(), "ltu");
//! assert!(below.holds(f32::NAN, 1.0) && !below.holds(2.0, 1.0));
//! ```

use super::{CompareOp, Rounding};

/// A relation between two floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatRelation {
    /// Holds only if neither is NaN: `.eq`, `.ne`, `.lt`, `.le`, `.gt`, `.ge`.
    Ordered(CompareOp),
    /// Also holds if one is NaN: `.equ`, `.neu`, `.ltu`, `.leu`, `.gtu`, `.geu`.
    Unordered(CompareOp),
    /// `.num`: neither is NaN.
    Numbers,
    /// `.nan`: one is NaN.
    Nan,
}

impl FloatRelation {
    /// Whether the relation holds.
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        let numbers = a.partial_cmp(&b).is_some();
        match self {
            Self::Ordered(op) => numbers && op.holds(a, b),
            Self::Unordered(op) => !numbers || op.holds(a, b),
            Self::Numbers => numbers,
            Self::Nan => !numbers,
        }
    }

    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Ordered(CompareOp::Eq) => "eq",
            Self::Ordered(CompareOp::Ne) => "ne",
            Self::Ordered(CompareOp::Lt) => "lt",
            Self::Ordered(CompareOp::Le) => "le",
            Self::Ordered(CompareOp::Gt) => "gt",
            Self::Ordered(CompareOp::Ge) => "ge",
            Self::Unordered(CompareOp::Eq) => "equ",
            Self::Unordered(CompareOp::Ne) => "neu",
            Self::Unordered(CompareOp::Lt) => "ltu",
            Self::Unordered(CompareOp::Le) => "leu",
            Self::Unordered(CompareOp::Gt) => "gtu",
            Self::Unordered(CompareOp::Ge) => "geu",
            Self::Numbers => "num",
            Self::Nan => "nan",
        }
    }
}

/// How exact a quotient is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Division {
    /// `.approx`: 2 ulp, for divisors of magnitudes 2^-126 to 2^126.
    Approximate,
    /// `.full`: 2 ulp, for all divisors.
    Full,
    /// Rounded once.
    Exact(Rounding),
}

impl Division {
    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Approximate => "approx",
            Self::Full => "full",
            Self::Exact(rounding) => rounding.suffix(),
        }
    }
}
