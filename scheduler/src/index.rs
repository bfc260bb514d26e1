//! Numbers that tiles are dealt out with: host integers and device values alike.

use num_traits::NumOps;
use ptx::Value;

/// An unsigned 32-bit number on the host or on the device.
///
/// Its constants belong to a program, so that it is none of `num_traits`' numbers; it has their operators.
pub trait Index: Copy + NumOps + NumOps<u32, Self> {
    /// A constant where this number is: on the host, or in the program that computes it.
    fn constant(self, value: u32) -> Self;

    /// The smaller of the number and a constant.
    fn at_most(self, limit: u32) -> Self;

    /// The smaller of two numbers.
    fn least(self, other: Self) -> Self;

    /// The larger of two numbers.
    fn most(self, other: Self) -> Self;

    /// `yes` where the number is less than `limit`, otherwise `no`.
    fn less(self, limit: Self, yes: Self, no: Self) -> Self;

    /// The number of parts of `size` each, the last of which may be smaller.
    fn parts(self, size: u32) -> Self;
}

impl Index for u32 {
    fn constant(self, value: u32) -> Self {
        value
    }

    fn at_most(self, limit: u32) -> Self {
        self.min(limit)
    }

    fn least(self, other: Self) -> Self {
        self.min(other)
    }

    fn most(self, other: Self) -> Self {
        self.max(other)
    }

    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        if self < limit { yes } else { no }
    }

    fn parts(self, size: u32) -> Self {
        self.div_ceil(size)
    }
}

impl Index for Value<'_, u32> {
    fn constant(self, value: u32) -> Self {
        self.builder().constant(value)
    }

    fn at_most(self, limit: u32) -> Self {
        self.min(limit)
    }

    fn least(self, other: Self) -> Self {
        self.min(other)
    }

    fn most(self, other: Self) -> Self {
        self.max(other)
    }

    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        yes.where_or(self.less_than(limit), no)
    }

    fn parts(self, size: u32) -> Self {
        self.div_ceil(size)
    }
}
