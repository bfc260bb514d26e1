//! Operations on the offsets of a swizzled layout: inverses, vectors, elements of another size.

use core::fmt;

use super::ComposedLayout;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, gcd};
use crate::layout::Layout;
use crate::swizzle::Swizzle;

/// The inverse of a [`ComposedLayout`]: `i -> layout(swizzle(i) - offset)`. It undoes the swizzle, subtracts
/// the offset, and then applies a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SwizzledInverse {
    /// Applied last.
    pub layout: Layout,
    /// Subtracted after the swizzle.
    pub offset: i64,
    /// Applied first.
    pub swizzle: Swizzle,
}

impl SwizzledInverse {
    /// The coordinate of an offset.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(2, 0, 2)?.after(Layout::flat(&[4, 4], &[4, 1])?);
    /// let inverse = tile.left_inverse()?;
    /// assert_eq!(inverse.at(tile.at(7)), 7);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at(&self, offset: i64) -> i64 {
        let swizzled = self.swizzle.apply(offset.cast_unsigned()).cast_signed();
        self.layout.at(swizzled.wrapping_sub(self.offset))
    }
}

impl fmt::Display for SwizzledInverse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.layout, self.offset.wrapping_neg(), self.swizzle)
    }
}

impl ComposedLayout {
    /// The plain layout and the offset that equal the composed layout: `C(c) = offset + R(c)`. They exist if
    /// the bits that the coordinates change take no part in the swizzle. Use it to turn a slice of a swizzled
    /// tile into ordinary strides. `None` if the bits collide or might collide.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(2, 0, 2)?.after(Layout::flat(&[4, 4, 8], &[4, 1, 16])?);
    /// let element = tile.slice(&[Some(3), Some(1), None])?;
    /// let (layout, offset) = element.decay().expect("bits above the swizzle");
    /// assert_eq!((layout.to_string().as_str(), offset), ("(8):(16)", 12 + (1 ^ 3)));
    /// assert_eq!(tile.slice(&[Some(3), None, None])?.decay(), None);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn decay(&self) -> Option<(Layout, i64)> {
        let (shape, stride) = (self.layout.shape_ref(), self.layout.stride_ref());
        let start = self.offset.cast_unsigned();
        let swizzled = self.swizzle.apply(start);
        if self.swizzle.bits == 0 {
            return Some((self.layout, self.offset));
        }
        // Bits that must not change: those that the swizzle reads, and those that are already set.
        let mut busy = self.swizzle.source_mask() | start | swizzled;
        each!(i, 0..shape.len(), {
            let d = stride.leaf(i);
            let last = (shape.leaf(i) - 1).wrapping_mul(d);
            if last < 0 || self.offset < 0 {
                return None;
            }
            if last > 0 {
                // From the lowest bit of the stride to the highest bit of the last offset.
                let bits = (u64::MAX >> last.leading_zeros()) & !((1 << d.trailing_zeros()) - 1);
                if bits & busy != 0 {
                    return None;
                }
                busy |= bits;
            }
        });
        Some((self.layout, swizzled.cast_signed()))
    }

    /// The inverse on the run of offsets that L forms: `C(R(i)) = i` for every `i` with
    /// `0 <= Sw(i) - offset < size(right_inverse(L))`. These are all offsets if L is compact, the offset is
    /// 0, and the size is a multiple of the swizzle's period.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(2, 0, 2)?.after(Layout::flat(&[4, 4], &[4, 1])?);
    /// let inverse = tile.right_inverse()?;
    /// assert_eq!(inverse.to_string(), "(4,4):(4,1) o 0 o Sw<2,0,2>");
    /// assert!((0..16).all(|i| tile.at(inverse.at(i)) == i));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::right_inverse`].
    pub const fn right_inverse(&self) -> Result<SwizzledInverse, LayoutError> {
        self.undone(self.layout.right_inverse())
    }

    /// The inverse of an injective C: `R(C(i)) = i` for every `i < size(C)`.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(2, 0, 2)?.after(Layout::flat(&[4, 4], &[8, 1])?);
    /// let inverse = tile.left_inverse()?;
    /// assert!((0..16).all(|i| inverse.at(tile.at(i)) == i));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::left_inverse`].
    pub const fn left_inverse(&self) -> Result<SwizzledInverse, LayoutError> {
        self.undone(self.layout.left_inverse())
    }

    const fn undone(&self, inverse: Result<Layout, LayoutError>) -> Result<SwizzledInverse, LayoutError> {
        let layout = ok!(inverse);
        Ok(SwizzledInverse { layout, offset: self.offset, swizzle: self.swizzle.inverse() })
    }

    /// The longest run that this layout and a plain layout of the same size have in the same order and that
    /// the swizzle keeps together: `C(R(i)) = C(R(0)) + i` and `B(R(i)) = i` for every `i < size(R)`. Its
    /// size divides the size of the [`max_common_layout`](Layout::max_common_layout) of L and B, so that such
    /// runs cover it.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let rows = Layout::flat(&[8, 64], &[64, 1])?;
    /// assert_eq!(Swizzle::new(3, 3, 3)?.after(rows).max_common_layout(&rows)?.to_string(), "8:8");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::max_common_layout`].
    pub const fn max_common_layout(&self, other: &Layout) -> Result<Layout, LayoutError> {
        self.max_common_layout_swizzled(&Swizzle::NONE.after(*other))
    }

    /// [`max_common_layout`](Self::max_common_layout) of two swizzled layouts: `C(R(i)) = C(R(0)) + i` for both.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let rows = Layout::flat(&[8, 64], &[64, 1])?;
    /// let (eights, fours) = (Swizzle::new(3, 3, 3)?.after(rows), Swizzle::new(2, 2, 3)?.after(rows));
    /// assert_eq!(eights.max_common_layout_swizzled(&fours)?.to_string(), "4:8");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::max_common_layout`].
    pub const fn max_common_layout_swizzled(&self, other: &Self) -> Result<Layout, LayoutError> {
        ok!(self.layout.max_common_layout(&other.layout)).first(gcd(self.together(), other.together()))
    }

    /// The number of consecutive offsets before the swizzle, from the offset on, that are consecutive after
    /// it; 0 for all.
    const fn together(&self) -> i64 {
        if self.swizzle.bits == 0 { 0 } else { gcd(self.swizzle.max_alignment(), self.offset) }
    }

    /// The number of elements that are contiguous in both this layout and a plain layout of the same size:
    /// the size of [`max_common_layout`](Self::max_common_layout).
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let rows = Layout::flat(&[8, 64], &[64, 1])?;
    /// assert_eq!(Swizzle::new(3, 3, 3)?.after(rows).max_common_vector(&rows)?, 8);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::max_common_layout`].
    pub const fn max_common_vector(&self, other: &Layout) -> Result<i64, LayoutError> {
        Ok(ok!(self.max_common_layout(other)).size())
    }

    /// [`max_common_vector`](Self::max_common_vector) of two swizzled layouts.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let rows = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(rows.max_common_vector_swizzled(&rows)?, 8);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::max_common_layout`].
    pub const fn max_common_vector_swizzled(&self, other: &Self) -> Result<i64, LayoutError> {
        Ok(ok!(self.max_common_layout_swizzled(other)).size())
    }

    /// The largest number of elements that can be joined into one everywhere: the common divisor of that of
    /// L, that of the swizzle, and the offset.
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let rows = Layout::flat(&[8, 64], &[64, 1])?;
    /// assert_eq!(Swizzle::new(3, 3, 3)?.after(rows).max_alignment(), 8);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn max_alignment(&self) -> i64 {
        gcd(gcd(self.layout.max_alignment(), self.swizzle.max_alignment()), self.offset)
    }

    /// The layout in elements that are `n` times as large: `R(c') = floor(C(c) / n)`, with `c'` as in
    /// [`Layout::upcast`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let bytes = Swizzle::new(3, 4, 3)?.after(Layout::flat(&[8, 128], &[128, 1])?);
    /// assert_eq!(bytes.upcast(2)?.to_string(), "Sw<3,3,3> o 0 o (8,64):(64,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::upcast`] and [`Swizzle::upcast`]; [`LayoutError::Recast`] for an offset inside an element.
    pub const fn upcast(&self, n: i64) -> Result<Self, LayoutError> {
        if n > 0 && self.offset % n != 0 {
            return Err(LayoutError::Recast { shape: 1, stride: self.offset, factor: n });
        }
        let (swizzle, layout) = (ok!(self.swizzle.upcast(n)), ok!(self.layout.upcast(n)));
        Ok(Self { swizzle, offset: self.offset / n, layout })
    }

    /// The layout in elements that are `n` times as small: `R(c') = n * C(c) + j`, with `c'` as in
    /// [`Layout::downcast`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let halves = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(halves.downcast(2)?.to_string(), "Sw<3,4,3> o 0 o (8,128):(128,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Layout::downcast`] and [`Swizzle::downcast`]; [`LayoutError::Wide`] if the offset does not
    /// fit into 64 bits.
    pub const fn downcast(&self, n: i64) -> Result<Self, LayoutError> {
        let (swizzle, layout) = (ok!(self.swizzle.downcast(n)), ok!(self.layout.downcast(n)));
        match self.offset.checked_mul(n) {
            Some(offset) => Ok(Self { swizzle, offset, layout }),
            None => {
                let (offset, n) = (IntTuple::int(self.offset), Some(IntTuple::int(n)));
                Err(LayoutError::Wide { number: "product", tuple: offset, other: n })
            }
        }
    }

    /// The layout of the same bits in elements of another width: `upcast(downcast(C, d), n)` with
    /// `new / old = n / d` in lowest terms. Widths are in bits. See [`Layout::recast`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Swizzle};
    /// let tile = Swizzle::new(3, 3, 3)?.after(Layout::flat(&[8, 64], &[64, 1])?);
    /// assert_eq!(tile.recast(16, 8)?.to_string(), "Sw<3,4,3> o 0 o (8,128):(128,1)");
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
