//! Inverses: layouts that undo others.

use super::Modes;
use crate::coord_layout::CoordLayout;
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

impl Layout {
    /// The inverse on the run of offsets `0, 1, 2, …` that consecutive modes of L form: `L(R(i)) = i` for
    /// `i < size(R)`. Each mode of the run begins where the previous one ends. If L is a permutation, the run
    /// covers all its offsets.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let rows = Layout::flat(&[4, 8], &[8, 1])?;
    /// assert_eq!(rows.right_inverse()?.to_string(), "(8,4):(4,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// None at present; the `Result` allows refusing layouts in a later version.
    pub const fn right_inverse(&self) -> Result<Self, LayoutError> {
        let flat = self.merged(false);
        let mut modes = Modes::new();
        let mut reach: i64 = 1;
        loop {
            // Finds the mode that begins where the run ends, and the integer coordinate of one step along it.
            let mut i = 0;
            let mut step = 1;
            while i < flat.len && flat.stride[i] != reach {
                step *= flat.shape[i];
                i += 1;
            }
            if i == flat.len {
                break;
            }
            ok!(modes.push(flat.shape[i], step, 0));
            reach = flat.shape[i].saturating_mul(reach);
        }
        modes.layout()
    }

    /// The inverse of an injective L: `R(L(i)) = i` for every `i < size(L)`. Offsets that L leaves out map to
    /// coordinates from `size(L)` on.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let padded = Layout::flat(&[4, 3], &[1, 8])?;
    /// let inverse = padded.left_inverse()?;
    /// assert_eq!(inverse.to_string(), "(4,2,3):(1,12,4)");
    /// assert_eq!(inverse.at(padded.at(7)), 7);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotInjective`] if L repeats an offset; those of [`Layout::complement`].
    pub const fn left_inverse(&self) -> Result<Self, LayoutError> {
        each!(i, 0..self.shape().len(), {
            if self.shape().leaf(i) > 1 && self.stride().leaf(i) == 0 {
                return Err(LayoutError::NotInjective { stride: 0, reach: 1 });
            }
        });
        let flat = self.coalesce();
        let rest = ok!(flat.complement(flat.cosize()));
        // L together with its complement is a permutation, and the right inverse of a permutation is its
        // inverse.
        ok!(Self::concat(&[flat, rest])).right_inverse()
    }

    /// The coordinates that broadcasts of L map to 0: `L(R(i)) = 0` for every `i < size(R)`. `size(R)` is the
    /// product of all extents with stride 0. These are all coordinates with offset 0, unless other leaves
    /// cancel each other.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let broadcast = Layout::flat(&[4, 3, 2], &[1, 0, 0])?;
    /// assert_eq!(broadcast.nullspace()?.to_string(), "6:4");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// None at present; the `Result` allows refusing layouts in a later version.
    pub const fn nullspace(&self) -> Result<Self, LayoutError> {
        let flat = self.merged(false);
        let mut modes = Modes::new();
        let mut step = 1;
        each!(i, 0..flat.len, {
            if flat.stride[i] == 0 {
                ok!(modes.push(flat.shape[i], step, 0));
            }
            step *= flat.shape[i];
        });
        modes.layout()
    }
}

impl CoordLayout {
    /// The inverse on the box of coordinates that L covers from 0 on, component by component: `L(R(c)) = c`
    /// for every coordinate `c` of R. R has the nesting of the profile. Along a component, each mode of L
    /// begins where the previous one ends.
    ///
    /// If L says which elements a tile contains, its right inverse says where in the tile each element is.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tiler};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let tiles = identity.zipped_divide_by(&Tiler::Shape(&IntTuple::from((4, 2))))?;
    /// let place = tiles.right_inverse()?;
    /// assert_eq!(place.to_string(), "((4,2),(2,3)):((1,8),(4,16))");
    /// assert_eq!(tiles.at(place.at_modes(&[5, 3])), IntTuple::from((5, 3)));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] above [`MAX_LEAVES`] leaves.
    pub const fn right_inverse(&self) -> Result<Layout, LayoutError> {
        let (flat, mut found) = (self.inner().merged(false), [Layout::EMPTY; MAX_LEAVES]);
        each!(component, 0..self.profile().len(), {
            let mut modes = Modes::new();
            let mut reach: i64 = 1;
            loop {
                let (mut i, mut step) = (0, 1);
                while i < flat.len && (flat.axis[i] as usize != component + 1 || flat.stride[i] != reach) {
                    step *= flat.shape[i];
                    i += 1;
                }
                if i == flat.len {
                    break;
                }
                ok!(modes.push(flat.shape[i], step, 0));
                reach = flat.shape[i].saturating_mul(reach);
            }
            found[component] = ok!(modes.layout());
        });
        nested(&self.profile(), &found, 0)
    }

    /// The inverse of an injective L: `R(L(i)) = i` for every `i < size(L)`. R has the nesting of the
    /// profile. Coordinates that L leaves out map to integer coordinates from `size(L)` on.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Layout};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 6)))?;
    /// let rows = identity.composition(&Layout::flat(&[4, 6], &[2, 8])?)?; // Every other row.
    /// let inverse = rows.left_inverse()?;
    /// assert_eq!(inverse.to_string(), "((2,4),6):((24,1),4)");
    /// assert_eq!(inverse.at_coord(&rows.at(13))?, 13);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotInjective`] if L repeats a coordinate, or if modes along one component do not each
    /// step over all smaller ones; [`LayoutError::NegativeStride`]; [`LayoutError::Capacity`].
    pub const fn left_inverse(&self) -> Result<Layout, LayoutError> {
        let (flat, mut found) = (self.inner().merged(false), [Layout::EMPTY; MAX_LEAVES]);
        each!(i, 0..flat.len, {
            if flat.stride[i] < 0 {
                return Err(LayoutError::NegativeStride { stride: flat.stride[i] });
            }
            if flat.stride[i] == 0 && flat.shape[i] > 1 {
                return Err(LayoutError::NotInjective { stride: 0, reach: 1 });
            }
        });
        // The first free integer coordinate for coordinates that L leaves out.
        let mut beyond = self.size();
        each!(component, 0..self.profile().len(), {
            let mut modes = Modes::new();
            let (mut reach, mut done): (i64, i64) = (1, 0);
            loop {
                // The next larger stride along this component.
                let (mut next, mut step, mut steps) = (flat.len, 1, 1);
                each!(i, 0..flat.len, {
                    let along = flat.axis[i] as usize == component + 1 && flat.shape[i] > 1;
                    if along
                        && flat.stride[i] > done
                        && (next == flat.len || flat.stride[i] < flat.stride[next])
                    {
                        (next, step) = (i, steps);
                    } else if along && next < flat.len && flat.stride[i] == flat.stride[next] {
                        return Err(LayoutError::NotInjective {
                            stride: flat.stride[i],
                            reach: flat.stride[i].saturating_mul(flat.shape[i]),
                        });
                    }
                    steps *= flat.shape[i];
                });
                if next == flat.len {
                    break;
                }
                let (extent, stride) = (flat.shape[next], flat.stride[next]);
                if stride % reach != 0 {
                    return Err(LayoutError::NotInjective { stride, reach });
                }
                if stride > reach {
                    ok!(modes.push(stride / reach, beyond, 0));
                    beyond = beyond.saturating_mul(stride / reach);
                }
                ok!(modes.push(extent, step, 0));
                reach = stride.saturating_mul(extent);
                done = stride;
            }
            found[component] = ok!(modes.layout());
        });
        nested(&self.profile(), &found, 0)
    }
}

/// Nests layouts, one per leaf of a profile from `first` on, like the profile.
const fn nested(
    profile: &IntTuple,
    leaves: &[Layout; MAX_LEAVES],
    first: usize,
) -> Result<Layout, LayoutError> {
    if profile.is_int() {
        return Ok(leaves[first]);
    }
    let (mut whole, mut leaf) = (Layout::EMPTY, first);
    each!(i, 0..profile.rank(), {
        let mode = profile.mode(i);
        let part = ok!(nested(&mode, leaves, leaf));
        ok!(whole.extend(&part));
        leaf += mode.len();
    });
    whole.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn inverses() {
        for (why, a, want) in [
            ("row-major", layout((4, 8), (8, 1)), "(8,4):(4,1)"),
            ("column-major is its own inverse", layout((4, 8), (1, 4)), "32:1"),
            ("the run ends at a gap", layout((4, 2), (1, 8)), "4:1"),
            ("no offset 1, no run", layout(4, 2), "1:0"),
            ("a broadcast is stepped over", layout((3, 4), (0, 1)), "4:3"),
        ] {
            assert_eq!(a.right_inverse().map(|r| r.to_string()), Ok(want.into()), "right: {why}");
        }
        for (why, a, want) in [
            ("row-major", layout((4, 8), (8, 1)), Ok("(8,4):(4,1)")),
            ("a gap", layout(4, 2), Ok("(2,4):(4,1)")),
            ("a point", layout(1, 7), Ok("1:0")),
            ("a broadcast", layout((3, 4), (0, 1)), Err(LayoutError::NotInjective { stride: 0, reach: 1 })),
            ("a repetition", layout((2, 2), (1, 1)), Err(LayoutError::NotInjective { stride: 1, reach: 2 })),
        ] {
            assert_eq!(a.left_inverse().map(|r| r.to_string()), want.map(Into::into), "left: {why}");
        }
    }
}
