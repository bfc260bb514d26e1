//! Strides along one component of a coordinate.

use core::fmt;

use crate::error::LayoutError;
use crate::int_tuple::IntTuple;

/// The largest number of modes of a component's path.
const DEPTH: usize = 6;

/// A stride along one component of a coordinate: a value and the mode path of the component. CuTe writes
/// `2*E<0,1>` for the value 2 at mode 1 of mode 0. It prints the innermost mode first: `2@1@0`.
///
/// ```
/// # use cute_rs::Basis;
/// assert_eq!(Basis::new(2, &[0, 1])?.to_string(), "2@1@0");
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Basis {
    scale: i64,
    path: [u8; DEPTH],
    len: u8,
}

impl Basis {
    /// Creates the stride `scale * E<path…>`.
    ///
    /// ```
    /// # use cute_rs::Basis;
    /// assert_eq!(Basis::new(5, &[0, 1])?.to_string(), "5@1@0");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Depth`] for a path of more than 6 modes; [`LayoutError::Capacity`] for a mode above 255.
    pub const fn new(scale: i64, path: &[usize]) -> Result<Self, LayoutError> {
        if path.len() > DEPTH {
            return Err(LayoutError::Depth { limit: DEPTH });
        }
        let mut basis = Self { scale, path: [0; DEPTH], len: path.len() as u8 };
        each!(i, 0..path.len(), {
            if path[i] > u8::MAX as usize {
                return Err(LayoutError::Capacity { leaves: path[i] });
            }
            basis.path[i] = path[i] as u8;
        });
        Ok(basis)
    }

    /// The coarsest profile in which each of these strides has a component: CuTe's `coprofile`. Strides of 0 need none.
    ///
    /// ```
    /// # use cute_rs::Basis;
    /// let strides = [Basis::new(1, &[0, 1])?, Basis::new(8, &[2])?];
    /// assert_eq!(Basis::coprofile(&strides)?.to_string(), "((0,0),0,0)");
    /// assert_eq!(Basis::coprofile(&[Basis::new(3, &[])?])?.to_string(), "0"); // A plain integer.
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::BasisSplit`] if one stride counts along a component and another along a part of it,
    /// such as `1@0` and `1@1@0`; [`LayoutError::Capacity`] above [`MAX_LEAVES`](crate::MAX_LEAVES)
    /// components.
    pub const fn coprofile(strides: &[Self]) -> Result<IntTuple, LayoutError> {
        Self::new_profile(strides, &Self::plain(0))
    }

    /// The profile below a path.
    const fn new_profile(strides: &[Self], below: &Self) -> Result<IntTuple, LayoutError> {
        let depth = below.len as usize;
        // The number of members that the strides need, and a stride that ends here.
        let (mut members, mut ends) = (0, None);
        each!(i, 0..strides.len(), {
            let stride = &strides[i];
            if stride.scale != 0 && stride.begins_with(below) {
                if stride.len as usize == depth {
                    ends = Some(stride.scale);
                } else if stride.path[depth] as usize >= members {
                    members = stride.path[depth] as usize + 1;
                }
            }
        });
        match ends {
            Some(scale) if members > 0 => return Err(LayoutError::BasisSplit { scale }),
            _ if members == 0 => return Ok(IntTuple::int(0)),
            _ => {}
        }
        let mut profile = IntTuple::EMPTY;
        each!(member, 0..members, {
            let mut inner = *below;
            inner.path[depth] = member as u8;
            inner.len += 1;
            let part = ok!(Self::new_profile(strides, &inner));
            ok!(profile.extend(&part));
        });
        profile.close()
    }

    /// A stride along no component.
    pub(super) const fn plain(scale: i64) -> Self {
        Self { scale, path: [0; DEPTH], len: 0 }
    }

    /// Whether the path begins with that of `other`.
    const fn begins_with(&self, other: &Self) -> bool {
        each!(i, 0..other.len as usize, {
            if i >= self.len as usize || self.path[i] != other.path[i] {
                return false;
            }
        });
        true
    }

    /// The value.
    ///
    /// ```
    /// # use cute_rs::Basis;
    /// assert_eq!(Basis::new(5, &[0, 1])?.scale(), 5);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub const fn scale(&self) -> i64 {
        self.scale
    }

    /// The mode path, outermost first.
    ///
    /// ```
    /// # use cute_rs::Basis;
    /// assert_eq!(Basis::new(5, &[0, 1])?.path().collect::<Vec<_>>(), [0, 1]);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    pub fn path(&self) -> impl Iterator<Item = usize> + '_ {
        self.path.iter().take(self.len.into()).map(|&mode| mode.into())
    }

    /// The leaf of a profile to which the path leads.
    pub(super) const fn leaf(&self, profile: &IntTuple) -> Option<usize> {
        let (mut part, mut leaf) = (*profile, 0);
        each!(i, 0..self.len as usize, {
            let mode = self.path[i] as usize;
            if part.is_int() || mode >= part.rank() {
                return None;
            }
            leaf += part.mode_range(mode).0;
            part = part.mode(mode);
        });
        if part.is_int() { Some(leaf) } else { None }
    }

    /// The stride `scale` along leaf `leaf` of a profile.
    pub(super) fn of_leaf(scale: i64, profile: &IntTuple, leaf: usize) -> Self {
        let mut basis = Self::plain(scale);
        let (mut part, mut leaf) = (*profile, leaf);
        while !part.is_int() && usize::from(basis.len) < DEPTH {
            let mut mode = 0;
            while leaf >= part.mode(mode).len() {
                leaf -= part.mode(mode).len();
                mode += 1;
            }
            basis.path[usize::from(basis.len)] = mode as u8;
            basis.len += 1;
            part = part.mode(mode);
        }
        basis
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scale)?;
        self.path[..self.len.into()].iter().rev().try_for_each(|mode| write!(f, "@{mode}"))
    }
}
