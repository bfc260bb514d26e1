//! The numbers that schedules are computed with: host integers or device values.

use num_traits::NumOps;
use ptx::Value;

/// An unsigned 32-bit number on the host or on the device.
///
/// It has the operators of `num_traits`' numbers. It is not one of those numbers, because a constant on the
/// device belongs to a program.
pub trait Index: Copy + NumOps + NumOps<u32, Self> {
    /// A constant of the same kind as this number: on the host, or in the same program.
    fn constant(self, value: u32) -> Self;

    /// The smaller of the number and a constant.
    fn at_most(self, limit: u32) -> Self;

    /// The smaller of two numbers.
    fn least(self, other: Self) -> Self;

    /// The larger of two numbers.
    fn most(self, other: Self) -> Self;

    /// `yes` if the number is less than `limit`, otherwise `no`.
    fn less(self, limit: Self, yes: Self, no: Self) -> Self;

    /// The number divided by `size`, rounded up.
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
    #[track_caller]
    fn constant(self, value: u32) -> Self {
        self.builder().constant(value)
    }

    #[track_caller]
    fn at_most(self, limit: u32) -> Self {
        self.min(limit)
    }

    #[track_caller]
    fn least(self, other: Self) -> Self {
        self.min(other)
    }

    #[track_caller]
    fn most(self, other: Self) -> Self {
        self.max(other)
    }

    #[track_caller]
    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        yes.where_or(self.less_than(limit), no)
    }

    #[track_caller]
    fn parts(self, size: u32) -> Self {
        self.div_ceil(size)
    }
}
