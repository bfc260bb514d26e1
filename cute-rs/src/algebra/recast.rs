//! Recasts: the same layout in larger or smaller elements.

use crate::error::LayoutError;
use crate::int_tuple::{MAX_LEAVES, gcd};
use crate::layout::Layout;

impl Layout {
    /// The layout in elements that are `n` times as large: `R(c') = floor(L(c) / n)`. Along a leaf of stride
    /// `d < n`, `n / d` coordinates become one: `c'_i = floor(c_i * d / n)`. Coordinates along the other
    /// leaves do not change.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let bytes = Layout::flat(&[64, 4], &[1, 128])?;
    /// assert_eq!(bytes.upcast(4)?.to_string(), "(16,4):(1,32)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Recast`] if a mode cuts through a larger element; [`LayoutError::Extent`] for `n` below
    /// 1.
    pub const fn upcast(&self, n: i64) -> Result<Self, LayoutError> {
        if n < 1 {
            return Err(LayoutError::Extent { shape: crate::int_tuple::IntTuple::int(n) });
        }
        let (shape, stride) = (self.shape_ref(), self.stride_ref());
        let (mut extents, mut strides) = ([1; MAX_LEAVES], [0; MAX_LEAVES]);
        // The largest offset inside a group.
        let mut inside: i64 = 0;
        each!(i, 0..shape.len(), {
            let (s, d) = (shape.leaf(i), stride.leaf(i));
            if d % n == 0 {
                (extents[i], strides[i]) = (s, d / n);
            } else if s > 1 {
                let refused = Err(LayoutError::Recast { shape: s, stride: d, factor: n });
                if d < 0 || n % d != 0 {
                    return refused;
                }
                // The number of coordinates in one group.
                let joined = n / d;
                if s % joined == 0 {
                    (extents[i], strides[i]) = (s / joined, if s == joined { 0 } else { 1 });
                    inside = inside.saturating_add((joined - 1) * d);
                } else if joined % s == 0 {
                    inside = inside.saturating_add((s - 1) * d);
                } else {
                    return refused;
                }
                if inside >= n {
                    return refused;
                }
            }
        });
        Ok(Self::from_parts(shape.with_leaves(&extents), shape.with_leaves(&strides)))
    }

    /// The layout in elements that are `n` times as small. The first leaf of stride 1 becomes `n` times as
    /// long; a leaf of extent 2 or more has precedence. Along it `c'_i = n * c_i + j`, and
    /// `R(c') = n * L(c) + j` for `0 <= j < n`. If no leaf has stride 1, R reaches only the first part of
    /// each element: `R(c) = n * L(c)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let words = Layout::flat(&[16, 4], &[1, 32])?;
    /// assert_eq!(words.downcast(4)?.to_string(), "(64,4):(1,128)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for `n` below 1; [`LayoutError::Overflow`].
    pub const fn downcast(&self, n: i64) -> Result<Self, LayoutError> {
        if n < 1 {
            return Err(LayoutError::Extent { shape: crate::int_tuple::IntTuple::int(n) });
        }
        let (shape, stride) = (self.shape_ref(), self.stride_ref());
        let (mut extents, mut strides) = ([1; MAX_LEAVES], [0; MAX_LEAVES]);
        let mut unit = MAX_LEAVES;
        each!(i, 0..shape.len(), {
            let better = unit == MAX_LEAVES || shape.leaf(unit) == 1 && shape.leaf(i) > 1;
            if stride.leaf(i) == 1 && better {
                unit = i;
            }
        });
        each!(i, 0..shape.len(), {
            let (s, d) = (shape.leaf(i), stride.leaf(i));
            (extents[i], strides[i]) =
                if i == unit { (s.saturating_mul(n), 1) } else { (s, d.saturating_mul(n)) };
        });
        Self::bounded(shape.with_leaves(&extents), shape.with_leaves(&strides))
    }

    /// The layout of the same bits in elements of another width: `upcast(downcast(L, d), n)` with
    /// `new / old = n / d` in lowest terms. Widths are in bits.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let halves = Layout::flat(&[64, 8], &[1, 64])?;
    /// assert_eq!(halves.recast(16, 8)?.to_string(), "(128,8):(1,128)");
    /// assert_eq!(halves.recast(16, 128)?.to_string(), "(8,8):(1,8)");
    /// assert_eq!(Layout::flat(&[8, 4], &[1, 8])?.recast(6, 4)?.to_string(), "(12,4):(1,12)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`upcast`](Self::upcast) and [`downcast`](Self::downcast).
    pub const fn recast(&self, old_bits: i64, new_bits: i64) -> Result<Self, LayoutError> {
        let common = gcd(old_bits, new_bits);
        if old_bits < 1 || new_bits < 1 {
            return self.upcast(0);
        }
        ok!(self.downcast(old_bits / common)).upcast(new_bits / common)
    }
}
