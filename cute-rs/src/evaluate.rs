//! Evaluates layouts with any number type. The same code computes offsets on the host and emits the
//! instructions that compute them on a device.
//!
//! It only requires operators of the standard library, so a code generator's value type works without changes
//! to this crate. It uses few operations: modes of extent 1 vanish, runs of modes merge, the last mode needs
//! no remainder, and multiplications by one are left out.

use core::ops::{Add, BitAnd, BitXor, Div, Mul, Rem, Shl, Shr};

use crate::error::LayoutError;
use crate::layout::Layout;

/// An unsigned number type with which a layout can be evaluated: `u32`, or a device value.
pub trait Arithmetic:
    Copy
    + Add<Output = Self>
    + Add<u32, Output = Self>
    + Mul<u32, Output = Self>
    + Div<u32, Output = Self>
    + Rem<u32, Output = Self>
    + BitAnd<u32, Output = Self>
    + BitXor<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
}

impl<V> Arithmetic for V where
    V: Copy
        + Add<Output = V>
        + Add<u32, Output = V>
        + Mul<u32, Output = V>
        + Div<u32, Output = V>
        + Rem<u32, Output = V>
        + BitAnd<u32, Output = V>
        + BitXor<Output = V>
        + Shl<u32, Output = V>
        + Shr<u32, Output = V>
{
}

/// The number in the form that the operators take.
pub(crate) fn unsigned(value: i64) -> Result<u32, LayoutError> {
    u32::try_from(value).map_err(|_| match value {
        ..0 => LayoutError::NegativeStride { stride: value },
        0.. => LayoutError::Width { value },
    })
}

impl Layout {
    /// Computes the offset of an integer coordinate with `V`'s operators; equals [`Layout::at`]. The
    /// coordinate must be below the size.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[2, 3], &[3, 1])?;
    /// assert_eq!(rows.apply(3_u32)?, 4);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NegativeStride`] for a negative stride; [`LayoutError::Width`] for an extent or a
    /// stride that does not fit into a `u32`.
    pub fn apply<V: Arithmetic>(&self, coord: V) -> Result<V, LayoutError> {
        let flat = self.coalesce();
        let (shape, stride) = (flat.shape(), flat.stride());
        let mut offset: Option<V> = None;
        // Coordinates are below 2^32. So a leaf with a larger step has digit 0, and so have all leaves after
        // it.
        let mut step = Some(1u32);
        for i in 0..shape.len() {
            let (s, d) = (unsigned(shape.leaf(i))?, unsigned(stride.leaf(i))?);
            if d != 0
                && let Some(step) = step
            {
                let mut digit = if step == 1 { coord } else { coord / step };
                if i + 1 < shape.len() {
                    digit = digit % s;
                }
                let part = if d == 1 { digit } else { digit * d };
                offset = Some(match offset {
                    Some(sum) => sum + part,
                    None => part,
                });
            }
            step = step.and_then(|step| step.checked_mul(s));
        }
        #[allow(clippy::erasing_op, reason = "a zero of type V has to be made from a V")]
        let zero = || coord * 0;
        Ok(offset.unwrap_or_else(zero))
    }

    /// Computes the offset at one coordinate per mode with `V`'s operators; equals [`Layout::at_modes`]. Each
    /// coordinate must be below its mode's size.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// assert_eq!(Layout::flat(&[2, 3], &[3, 1])?.apply_modes(&[1_u32, 2])?, 5);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is exactly one coordinate per mode; those of [`Layout::apply`].
    pub fn apply_modes<V: Arithmetic>(&self, coords: &[V]) -> Result<V, LayoutError> {
        let wrong_rank = LayoutError::Rank { needed: self.rank(), given: coords.len() };
        if coords.len() != self.rank() {
            return Err(wrong_rank);
        }
        let parts = coords.iter().enumerate().map(|(i, &coord)| self.mode(i).apply(coord));
        parts.reduce(|sum, part| Ok(sum? + part?)).unwrap_or(Err(wrong_rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::int_tuple::IntTuple;

    /// A number that counts the operations that produced it.
    #[derive(Clone, Copy)]
    struct Counted {
        value: u32,
        operations: u32,
    }

    impl Counted {
        /// The result of one more operation.
        fn after(value: u32, operations: u32) -> Self {
            Self { value, operations: operations + 1 }
        }
    }

    /// Implements an operator with a number.
    macro_rules! counted {
        ($($operator:ident $method:ident)+) => {$(
            impl $operator<u32> for Counted {
                type Output = Self;

                fn $method(self, other: u32) -> Self {
                    Self::after(self.value.$method(other), self.operations)
                }
            }
        )+};
    }

    counted!(Add add  Mul mul  Div div  Rem rem  BitAnd bitand  Shl shl  Shr shr);

    impl Add for Counted {
        type Output = Self;

        fn add(self, other: Self) -> Self {
            Self::after(self.value + other.value, self.operations + other.operations)
        }
    }

    impl BitXor for Counted {
        type Output = Self;

        fn bitxor(self, other: Self) -> Self {
            Self::after(self.value ^ other.value, [self, other].map(|part| part.operations).iter().sum())
        }
    }

    #[test]
    fn few_operations() {
        for (why, shape, stride, operations) in [
            ("contiguous: the coordinate itself", IntTuple::from((4, 8)), IntTuple::from((1, 4)), 0),
            ("one stride", IntTuple::int(8), IntTuple::int(3), 1),
            ("extent 1 vanishes", (8, 1).into(), (3, 7).into(), 1),
            ("i % 4 * 8 + i / 4", (4, 8).into(), (8, 1).into(), 4),
            ("a broadcast mode costs nothing", (4, 8).into(), (0, 1).into(), 1),
            ("nothing but a broadcast is zero", (4, 8).into(), (0, 0).into(), 1),
            ("i % 2 + i / 2 % 3 * 4 + i / 6 * 20", (2, 3, 5).into(), (1, 4, 20).into(), 8),
        ] {
            let layout = Layout::new(shape, stride).unwrap();
            for i in 0..layout.size() {
                let coord = Counted { value: i.try_into().unwrap(), operations: 0 };
                let offset = layout.apply(coord).unwrap();
                assert_eq!(i64::from(offset.value), layout.at(i), "{why}: {layout} at {i}");
                assert_eq!(offset.operations, operations, "{why}");
            }
        }
    }

    #[test]
    fn what_has_no_unsigned_value_is_refused() {
        let layout = |d| Layout::flat(&[2, 2], &[1, d]).unwrap();
        for (why, layout, coords, want) in [
            ("backwards", layout(-2), &[1, 1][..], LayoutError::NegativeStride { stride: -2 }),
            ("too wide", layout(1 << 32), &[1, 1], LayoutError::Width { value: 1 << 32 }),
            ("a coordinate is missing", layout(2), &[1], LayoutError::Rank { needed: 2, given: 1 }),
            ("no coordinate", layout(2), &[], LayoutError::Rank { needed: 2, given: 0 }),
        ] {
            assert_eq!(layout.apply_modes::<u32>(coords), Err(want), "{why}");
        }
    }
}
