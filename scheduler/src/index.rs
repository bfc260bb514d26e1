//! The numbers that schedules are computed with: host integers or device values.

use num_traits::NumOps;
use ptx::Value;

use crate::{RasterOrder, Tiles};

/// An unsigned 32-bit number on the host or on the device.
///
/// It has the operators of `num_traits`' numbers. It is not one of those numbers, because a constant on the
/// device belongs to a program. Wherever a second number is taken, it may also be a constant.
///
/// ```
/// use scheduler::Index;
///
/// /// The column of a tile in rows of `columns` tiles: from left to right, in odd rows from right to left.
/// fn column<I: Index>(id: I, columns: u32) -> I {
///     let (row, column) = (id / columns, id % columns);
///     (row % 2).less(1, column, id.constant(columns - 1) - column)
/// }
/// assert_eq!([0, 1, 2, 3, 4, 5].map(|id: u32| column(id, 3)), [0, 1, 2, 2, 1, 0]);
/// ```
pub trait Index: Copy + IntoIndex<Self> + NumOps + NumOps<u32, Self> {
    /// A constant of the same kind as this number: on the host, or in the same program.
    fn constant(self, value: u32) -> Self;

    /// The smaller of two numbers.
    fn least(self, other: impl IntoIndex<Self>) -> Self;

    /// The larger of two numbers.
    fn most(self, other: impl IntoIndex<Self>) -> Self;

    /// `yes` if the number is less than `limit`, otherwise `no`.
    fn less(self, limit: impl IntoIndex<Self>, yes: impl IntoIndex<Self>, no: impl IntoIndex<Self>) -> Self;

    /// The number divided by `size`, rounded up.
    fn parts(self, size: u32) -> Self;

    /// The tile with this number in a raster order, with bands or squares of `size` tiles.
    fn placed(self, order: &RasterOrder, tiles: Tiles<Self>, size: u32) -> (Self, Self);
}

/// A number of the kind `I`, or a constant, `u32`.
pub trait IntoIndex<I>: Copy {
    /// The number, of the same kind as `like`.
    fn index(self, like: I) -> I;
}

impl<I: Index> IntoIndex<I> for u32 {
    #[track_caller]
    fn index(self, like: I) -> I {
        like.constant(self)
    }
}

impl<'f> IntoIndex<Value<'f, u32>> for Value<'f, u32> {
    fn index(self, _: Value<'f, u32>) -> Self {
        self
    }
}

impl Index for u32 {
    fn constant(self, value: u32) -> Self {
        value
    }

    fn least(self, other: impl IntoIndex<Self>) -> Self {
        self.min(other.index(self))
    }

    fn most(self, other: impl IntoIndex<Self>) -> Self {
        self.max(other.index(self))
    }

    fn less(self, limit: impl IntoIndex<Self>, yes: impl IntoIndex<Self>, no: impl IntoIndex<Self>) -> Self {
        if self < limit.index(self) { yes.index(self) } else { no.index(self) }
    }

    fn parts(self, size: u32) -> Self {
        self.div_ceil(size)
    }

    fn placed(self, order: &RasterOrder, tiles: Tiles<Self>, size: u32) -> (Self, Self) {
        order.on_host(self, tiles, size)
    }
}

impl Index for Value<'_, u32> {
    #[track_caller]
    fn constant(self, value: u32) -> Self {
        self.builder().constant(value)
    }

    #[track_caller]
    fn least(self, other: impl IntoIndex<Self>) -> Self {
        self.min(other.index(self))
    }

    #[track_caller]
    fn most(self, other: impl IntoIndex<Self>) -> Self {
        self.max(other.index(self))
    }

    #[track_caller]
    fn less(self, limit: impl IntoIndex<Self>, yes: impl IntoIndex<Self>, no: impl IntoIndex<Self>) -> Self {
        yes.index(self).where_or(self.less_than(limit.index(self)), no.index(self))
    }

    #[track_caller]
    fn parts(self, size: u32) -> Self {
        self.div_ceil(size)
    }

    #[track_caller]
    fn placed(self, order: &RasterOrder, tiles: Tiles<Self>, size: u32) -> (Self, Self) {
        self.builder().for_caller(|| order.on_device(self, tiles, size))
    }
}
