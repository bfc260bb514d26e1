//! Coordinate layouts: layouts whose strides count along components, so that they map to coordinates.
//!
//! They are a separate type so that `Layout::at` always returns an integer. The same code computes both,
//! since the component of a stride is stored with its value.

mod algebra;
mod basis;

use alloc::vec::Vec;
use core::fmt;

use crate::algebra::walk_components;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

pub use basis::Basis;

/// A function from coordinates to coordinates. It has a shape and a congruent stride whose leaves count along
/// components of a coordinate. The *profile* is the nesting of that coordinate.
///
/// An [identity](Self::identity) layout, tiled, sliced and partitioned like the layout of a tensor, says
/// which element of the tensor is meant. Use the result as the coordinates of a tensor copy, or compare it
/// with the tensor's shape as a predicate.
///
/// ```
/// # use cute_rs::{CoordLayout, IntTuple, Tiler};
/// let identity = CoordLayout::identity(IntTuple::from((100, 60)))?;
/// assert_eq!(identity.to_string(), "(100,60):(1@0,1@1)");
///
/// // The 64 x 32 tiles of a 100 x 60 matrix: which elements of tile (1,1) are inside?
/// let tiles = identity.tiled_divide(&Tiler::Shape(&IntTuple::from((64, 32))))?;
/// let inside = |element| tiles.at_modes(&[element, 1, 1]).elem_less(&IntTuple::from((100, 60)));
/// assert_eq!(tiles.at_modes(&[64 * 2 + 5, 1, 1]).to_string(), "(69,34)");
/// assert_eq!((0..64 * 32).filter(|&element| inside(element)).count(), 36 * 28);
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CoordLayout {
    /// The strides carry their components.
    pub(crate) layout: Layout,
    pub(crate) profile: IntTuple,
}

impl CoordLayout {
    /// The layout that maps each coordinate to itself: `L(c) = c`.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((4, (2, 3))))?;
    /// assert_eq!(identity.to_string(), "(4,(2,3)):(1@0,(1@0@1,1@1@1))");
    /// assert_eq!(identity.at(17).to_string(), "(1,(0,2))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for an extent below 1; [`LayoutError::Overflow`].
    pub const fn identity(shape: IntTuple) -> Result<Self, LayoutError> {
        let mut axes = [0; MAX_LEAVES];
        each!(i, 0..shape.len(), {
            axes[i] = i as u8 + 1;
        });
        let layout = ok!(Layout::new(shape, shape.filled(1).with_axes(&axes)));
        Ok(Self { layout, profile: shape.filled(0) })
    }

    /// Creates a layout into coordinates with the nesting of `profile`. `strides` has one stride per leaf of
    /// the shape, from the left.
    ///
    /// ```
    /// # use cute_rs::{Basis, CoordLayout, IntTuple};
    /// let profile = IntTuple::from((0, 0));
    /// let strides = [Basis::new(1, &[1])?, Basis::new(64, &[0])?];
    /// let swapped = CoordLayout::new(IntTuple::from((4, 5)), &strides, profile)?;
    /// assert_eq!(swapped.to_string(), "(4,5):(1@1,64@0)");
    /// assert_eq!(swapped.at_modes(&[3, 2]).to_string(), "(128,3)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// [`LayoutError::Rank`] unless there is one stride per leaf; [`LayoutError::Basis`] for a path that
    /// leads to no leaf of the profile; those of [`Layout::new`].
    /// profile; those of [`Layout::new`].
    pub const fn new(shape: IntTuple, strides: &[Basis], profile: IntTuple) -> Result<Self, LayoutError> {
        if strides.len() != shape.len() {
            return Err(LayoutError::Rank { needed: shape.len(), given: strides.len() });
        }
        let (mut scales, mut axes) = ([0; MAX_LEAVES], [0; MAX_LEAVES]);
        each!(i, 0..strides.len(), {
            let scale = strides[i].scale();
            scales[i] = scale;
            axes[i] = match strides[i].leaf(&profile) {
                Some(leaf) => leaf as u8 + 1,
                None if scale == 0 => 0,
                None => return Err(LayoutError::Basis { scale, components: profile.len() }),
            };
        });
        let layout = ok!(Layout::new(shape, shape.with_leaves(&scales).with_axes(&axes)));
        Ok(Self { layout, profile: profile.filled(0) })
    }

    /// The nesting of the coordinates that the layout yields, with zeros as leaves.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.mode(1).profile(), IntTuple::from((0, 0)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn profile(&self) -> IntTuple {
        self.profile
    }

    /// The stride of leaf `i`. It is 0, along no component, for broadcasts and beyond the last leaf.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.stride(1).to_string(), "1@1");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub fn stride(&self, i: usize) -> Basis {
        let (scale, axis) = (self.layout.stride_ref().leaf(i), self.layout.stride_ref().axis(i));
        match axis {
            0 => Basis::plain(scale),
            axis => Basis::of_leaf(scale, &self.profile, usize::from(axis) - 1),
        }
    }

    /// Levels of nesting of the modes.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.group(0, 2)?.depth(), 2);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn depth(&self) -> usize {
        self.layout.depth()
    }

    /// The smallest shape that contains all coordinates that the layout yields: one past the largest in each
    /// component. CuTe's `coshape`; its product is the `cosize`.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Layout};
    /// let identity = CoordLayout::identity(IntTuple::from((64, 32)))?;
    /// let every_fourth_row = identity.composition(&Layout::flat(&[16, 32], &[4, 64])?)?;
    /// assert_eq!(every_fourth_row.coshape().to_string(), "(61,32)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn coshape(&self) -> IntTuple {
        let (shape, stride) = (self.layout.shape_ref(), self.layout.stride_ref());
        let mut extents = [1; MAX_LEAVES];
        each!(i, 0..shape.len(), {
            let reach = (shape.leaf(i) - 1) * stride.leaf(i);
            if stride.axis(i) > 0 && reach > 0 {
                extents[stride.axis(i) as usize - 1] += reach;
            }
        });
        self.profile.with_leaves(&extents)
    }

    /// The result at an integer coordinate. Each component is the sum of digits times the strides along it.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.at(17), IntTuple::from((1, 2)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at(&self, coord: i64) -> IntTuple {
        let mut sums = [0; MAX_LEAVES];
        self.add(&self.layout.shape_ref().idx2crd(coord), &mut sums);
        self.profile.with_leaves(&sums)
    }

    /// The result at one integer coordinate per mode. Missing coordinates count as zero.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.at_modes(&[1, 2]), IntTuple::from((1, 2)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn at_modes(&self, coords: &[i64]) -> IntTuple {
        let mut sums = [0; MAX_LEAVES];
        let rank = self.rank();
        let mut i = 0;
        while i < rank && i < coords.len() {
            let mode = self.mode(i);
            mode.add(&mode.layout.shape_ref().idx2crd(coords[i]), &mut sums);
            i += 1;
        }
        self.profile.with_leaves(&sums)
    }

    /// The result at a coordinate with the nesting of the shape or a coarser one.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// assert_eq!(identity.at_coord(&IntTuple::from((1, 2)))?, IntTuple::from((1, 2)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the coordinate has a tuple for an integer mode, or a tuple of another
    /// rank.
    pub const fn at_coord(&self, coord: &IntTuple) -> Result<IntTuple, LayoutError> {
        match self.layout.shape_ref().crd2idx(coord) {
            // A coarse coordinate has the digits of its own part of the shape, so none carries into another
            // part.
            Ok(_) => {
                let mut sums = [0; MAX_LEAVES];
                self.add_coord(coord, &mut sums);
                Ok(self.profile.with_leaves(&sums))
            }
            Err(error) => Err(error),
        }
    }

    const fn add_coord(&self, coord: &IntTuple, sums: &mut [i64; MAX_LEAVES]) {
        if coord.is_int() {
            self.add(&self.layout.shape_ref().idx2crd(coord.leaf(0)), sums);
            return;
        }
        each!(i, 0..coord.rank(), {
            self.mode(i).add_coord(&coord.mode(i), sums);
        });
    }

    /// Adds digits times strides to the components.
    const fn add(&self, digits: &IntTuple, sums: &mut [i64; MAX_LEAVES]) {
        let stride = self.layout.stride_ref();
        each!(i, 0..digits.len(), {
            let axis = stride.axis(i) as usize;
            if axis > 0 {
                let part = digits.leaf(i).wrapping_mul(stride.leaf(i));
                sums[axis - 1] = sums[axis - 1].wrapping_add(part);
            }
        });
    }

    /// The same with another layout of strides that carry their components.
    pub(crate) fn map_inner<E>(&self, change: impl FnOnce(&Layout) -> Result<Layout, E>) -> Result<Self, E> {
        Ok(Self { layout: change(&self.layout)?, profile: self.profile })
    }

    /// The same strides with the coarsest profile that they allow; a plain layout if none counts along a
    /// component.
    pub(crate) fn coarsest(&self) -> Result<Self, Layout> {
        let shape = self.shape();
        let strides: Vec<_> = (0..shape.len()).map(|i| self.stride(i)).collect();
        match Basis::coprofile(&strides) {
            Ok(profile) if !profile.is_int() => Ok(Self::new(shape, &strides, profile).unwrap_or(*self)),
            // In a legal layout, no stride counts along a part of another stride's component.
            _ => {
                let mut scales = [0; MAX_LEAVES];
                for (scale, stride) in scales.iter_mut().zip(&strides) {
                    *scale = stride.scale();
                }
                Err(Layout::from_parts(shape, shape.with_leaves(&scales)))
            }
        }
    }

    /// The same strides with a profile that also has all modes of `shape`.
    pub(crate) fn covering(&self, shape: &IntTuple) -> Result<Self, LayoutError> {
        fn cover(profile: &IntTuple, shape: &IntTuple) -> Result<IntTuple, LayoutError> {
            if profile.is_int() || shape.is_int() {
                return Ok(*profile);
            }
            let modes = (0..profile.rank().max(shape.rank())).map(|i| match i < profile.rank() {
                true => cover(&profile.mode(i), &shape.mode(i)),
                false => Ok(IntTuple::int(0)),
            });
            IntTuple::tuple(&modes.collect::<Result<Vec<_>, _>>()?)
        }
        let strides: Vec<_> = (0..self.shape().len()).map(|i| self.stride(i)).collect();
        Self::new(self.shape(), &strides, cover(&self.profile, shape)?)
    }

    /// Component `i` of the coordinates as a layout: `R(c) = leaf i of L(c)`.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple};
    /// let identity = CoordLayout::identity(IntTuple::from((4, (2, 3))))?;
    /// assert_eq!(identity.component(2).to_string(), "(4,(2,3)):(0,(0,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn component(&self, i: usize) -> Layout {
        let (shape, stride) = (self.layout.shape(), self.layout.stride_ref());
        let mut strides = [0; MAX_LEAVES];
        each!(leaf, 0..shape.len(), {
            if stride.axis(leaf) as usize == i + 1 {
                strides[leaf] = stride.leaf(leaf);
            }
        });
        Layout::from_parts(shape, shape.with_leaves(&strides))
    }
}

impl Layout {
    /// Evaluates this layout at the coordinates that another layout yields: `R(c) = A(B(c))`. A stride of B
    /// along the component at a path moves through the mode of A at that path. That mode may be nested: the
    /// component is its integer coordinate.
    ///
    /// ```
    /// # use cute_rs::{Basis, CoordLayout, IntTuple, Layout};
    /// let rows = Layout::flat(&[8, 16], &[16, 1])?;
    /// let strides = [Basis::new(4, &[1])?, Basis::new(2, &[0])?];
    /// let sampled = CoordLayout::new(IntTuple::from((4, 4)), &strides, IntTuple::from((0, 0)))?;
    /// assert_eq!(rows.composition_coords(&sampled)?.to_string(), "(4,4):(4,32)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] unless the shape of A refines the profile of B; those of
    /// [`composition`](Self::composition), for each component.
    pub const fn composition_coords(&self, b: &CoordLayout) -> Result<Self, LayoutError> {
        walk_components(self, &b.layout, &b.profile)
    }
}

impl fmt::Display for CoordLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = self.layout.shape_ref();
        write!(f, "{shape}:")?;
        if shape.is_empty() {
            return f.write_str("()");
        }
        for i in 0..shape.len() {
            if i > 0 {
                f.write_str(",")?;
            }
            let (opens, closes) = shape.parentheses(i);
            (0..opens).try_for_each(|_| f.write_str("("))?;
            write!(f, "{}", self.stride(i))?;
            (0..closes).try_for_each(|_| f.write_str(")"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for CoordLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
