//! Composition: one layout after another.

use super::{Modes, Tiler};
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

impl Layout {
    /// `R = A o B`: `R(c) = A(B(c))` for every coordinate `c` of B. The shape of R refines the shape of B.
    ///
    /// Coordinates of A follow [`Layout::at`]. Where B reaches beyond the size of A, A continues along its
    /// last leaf. Where B is negative, `A(-x) = -A(x)`.
    ///
    /// ```
    /// # use cute_rs::Layout;
    /// let a = Layout::flat(&[6, 2], &[8, 2])?;
    /// let b = Layout::flat(&[4, 3], &[3, 1])?;
    /// assert_eq!(a.composition(&b)?.to_string(), "((2,2),3):((24,2),8)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::StrideDivisibility`] or [`LayoutError::ShapeDivisibility`] if a mode of B would cut
    /// across a mode of A; [`LayoutError::Carry`] if the sum of several modes of B would;
    /// [`LayoutError::MixedSigns`] if modes of B run in opposite directions across several modes of A;
    /// [`LayoutError::Overflow`]; [`LayoutError::Capacity`] if the result has too many leaves.
    pub const fn composition(&self, b: &Self) -> Result<Self, LayoutError> {
        let a = self.endless();
        let mut reach = Reach::NONE;
        let mut result = Self::EMPTY;
        each!(i, 0..b.shape_ref().len(), {
            ok!(compose_leaf(&a, b, i, &mut result, &mut reach));
        });
        ok!(reach.check(&a));
        Self::bounded(result.shape(), result.stride())
    }

    /// Composes mode by mode: `R((c0,c1,…)) = L((T0(c0),T1(c1),…))`. Modes with `_` or without a tiler stay
    /// as they are.
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout, Tiler};
    /// let a = Layout::new(IntTuple::from((12, (4, 8))), IntTuple::from((59, (13, 1))))?;
    /// let (rows, columns) = (Layout::flat(&[3], &[4])?.mode(0), Layout::flat(&[8], &[2])?.mode(0));
    /// let tile = a.composition_by(&Tiler::Modes(&[Tiler::By(&rows), Tiler::By(&columns)]))?;
    /// assert_eq!(tile.to_string(), "(3,(2,4)):(236,(26,1))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if the tiler has more modes than L; those of [`composition`](Self::composition).
    pub const fn composition_by(&self, tiler: &Tiler<'_>) -> Result<Self, LayoutError> {
        self.by_mode(tiler, super::tiler::Operation::Compose)
    }

    /// The merged leaves of the function of all integers; at least one.
    const fn endless(&self) -> Modes {
        let mut modes = self.merged(true);
        if modes.len == 0 {
            modes.len = 1; // `1:0`
        }
        modes
    }
}

/// `A o B` for strides of B that count along components. Component `k` selects the mode of A at leaf `k` of
/// `profile`.
pub(crate) const fn walk_components(
    a: &Layout,
    b: &Layout,
    profile: &IntTuple,
) -> Result<Layout, LayoutError> {
    if !profile.weakly_congruent(a.shape_ref()) {
        return Err(LayoutError::Profile { tuple: a.shape(), profile: *profile });
    }
    let mut result = Layout::EMPTY;
    each!(i, 0..b.shape_ref().len(), {
        let mut reach = Reach::NONE;
        let component = component(a, profile, b.stride_ref().axis(i)).endless();
        ok!(compose_leaf(&component, b, i, &mut result, &mut reach));
        // Leaves along the same component add up, so all of them are checked together.
        let mut scratch = Layout::EMPTY;
        each!(other, 0..b.shape_ref().len(), {
            if other != i && b.stride_ref().axis(other) == b.stride_ref().axis(i) {
                ok!(compose_leaf(&component, b, other, &mut scratch, &mut reach));
            }
        });
        ok!(reach.check(&component));
    });
    Layout::bounded(result.shape(), result.stride())
}

/// The sub-layout of A at leaf `axis - 1` of a profile; a point for a stride without a component.
const fn component(a: &Layout, profile: &IntTuple, axis: u8) -> Layout {
    if axis == 0 {
        return Layout::leaf(1, 0);
    }
    let (mut part, mut profile, mut leaf) = (*a, *profile, axis as usize - 1);
    while !profile.is_int() {
        let mut mode = 0;
        let mut inside = profile.mode(0);
        while leaf >= inside.len() && mode + 1 < profile.rank() {
            leaf -= inside.len();
            mode += 1;
            inside = profile.mode(mode);
        }
        (part, profile) = (part.mode(mode), inside);
    }
    part
}

/// The distance that the modes of B move along each mode of A, forwards and backwards.
struct Reach {
    up: [i64; MAX_LEAVES],
    down: [i64; MAX_LEAVES],
}

impl Reach {
    const NONE: Self = Self { up: [0; MAX_LEAVES], down: [0; MAX_LEAVES] };

    /// A is linear along each of its modes. So the moves of B may be added as long as no sum carries or
    /// borrows.
    const fn check(&self, a: &Modes) -> Result<(), LayoutError> {
        let (mut walked, mut up, mut down) = (0, 0, 0);
        each!(i, 0..a.len, {
            let reach = if self.up[i] > self.down[i] { self.up[i] } else { self.down[i] };
            if i + 1 < a.len && reach >= a.shape[i] {
                return Err(LayoutError::Carry { extent: a.shape[i], reach });
            }
            if reach > 0 {
                walked += 1;
            }
            up = if self.up[i] > up { self.up[i] } else { up };
            down = if self.down[i] > down { self.down[i] } else { down };
        });
        if walked > 1 && up > 0 && down > 0 {
            return Err(LayoutError::MixedSigns { stride: -down });
        }
        Ok(())
    }
}

/// Appends `A o (s:d)` for leaf `leaf` of B to `result`. The code goes through the modes of A: it first steps
/// over `d` coordinates per step, then takes the `s` that are visited. If several modes result, they replace
/// the leaf as a tuple.
const fn compose_leaf(
    a: &Modes,
    b: &Layout,
    leaf: usize,
    result: &mut Layout,
    reach: &mut Reach,
) -> Result<(), LayoutError> {
    let (s, d) = (b.shape_ref().leaf(leaf), b.stride_ref().leaf(leaf));
    let start = result.shape_ref().len();
    if d == 0 || s == 1 {
        ok!(result.push(s, 0, 0));
    } else {
        let (mut visited, mut stepped) = (s, d.saturating_abs());
        let mut i = 0;
        while visited > 1 {
            let extent = a.shape[i];
            let walked = (visited - 1).saturating_mul(stepped);
            let taken = if walked < extent || i + 1 == a.len {
                visited
            } else if stepped % extent == 0 {
                1
            } else if extent % stepped != 0 {
                return Err(LayoutError::StrideDivisibility { shape: extent, stride: stepped });
            } else if visited % (extent / stepped) != 0 {
                return Err(LayoutError::ShapeDivisibility { offered: extent / stepped, wanted: visited });
            } else {
                extent / stepped
            };
            if taken > 1 {
                let part = (taken - 1).saturating_mul(stepped);
                let along = if d > 0 { &mut reach.up[i] } else { &mut reach.down[i] };
                *along = along.saturating_add(part);
                let Some(stride) = a.stride[i].checked_mul(if d > 0 { stepped } else { -stepped }) else {
                    return Err(LayoutError::Overflow { shape: b.shape(), stride: b.stride() });
                };
                ok!(result.push(taken, stride, a.axis[i]));
                visited /= taken;
            }
            stepped = if stepped % extent == 0 { stepped / extent } else { 1 };
            i += 1;
        }
    }
    let end = result.shape_ref().len();
    let (opens, closes) = b.shape_ref().parentheses(leaf);
    let own = if end - start > 1 { 1 } else { 0 };
    result.wrap_leaves(start, end, opens + own, closes + own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::int_tuple::IntTuple;
    use std::string::ToString;

    fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
        Layout::new(shape.into(), stride.into()).unwrap()
    }

    #[test]
    fn composition_where_it_exists() {
        for (why, a, b, want) in [
            ("modes split", layout((6, 2), (8, 2)), layout((4, 3), (3, 1)), "((2,2),3):((24,2),8)"),
            ("reshape a line to row-major", layout(20, 2), layout((5, 4), (4, 1)), "(5,4):(8,2)"),
            ("a mode's head", layout((10, 2), (16, 4)), layout((5, 4), (1, 5)), "(5,(2,2)):(16,(80,4))"),
            ("broadcasts stay", layout((4, 2), (1, 8)), layout((3, 2), (0, 4)), "(3,2):(0,8)"),
            ("a walk that ends inside a mode", layout((6, 2), (8, 2)), layout(2, 4), "2:32"),
            ("stepping over whole modes", layout((3, 4, 2), (1, 10, 100)), layout(2, 12), "2:100"),
            ("beyond the size the last mode goes on", layout((4, 2), (1, 10)), layout(12, 1), "(4,3):(1,10)"),
            ("also a last mode of extent 1", layout((4, 1), (1, 10)), layout(8, 1), "(4,2):(1,10)"),
            ("A may run backwards", layout((4, 2), (-1, 8)), layout((2, 2), (2, 4)), "(2,2):(-2,8)"),
            ("B may run backwards", layout((6, 2), (8, 2)), layout((2, 3), (-6, -2)), "(2,3):(-2,-16)"),
            (
                "back and forth within a mode",
                layout((6, 2), (8, 2)),
                layout((2, 3), (3, -1)),
                "(2,3):(24,-8)",
            ),
            ("an integer A", layout(8, 3), layout((2, (2, 2)), (4, (1, 2))), "(2,(2,2)):(12,(3,6))"),
        ] {
            assert_eq!(a.composition(&b).map(|r| r.to_string()), Ok(want.into()), "{why}");
        }
    }

    #[test]
    fn composition_where_it_does_not() {
        let a = layout((6, 2), (8, 2));
        for (why, b, want) in [
            (
                "steps of 4 meet 6 in the middle",
                layout(4, 4),
                LayoutError::StrideDivisibility { shape: 6, stride: 4 },
            ),
            (
                "9 are not whole modes of 6",
                layout(9, 1),
                LayoutError::ShapeDivisibility { offered: 6, wanted: 9 },
            ),
            ("a step back that borrows", layout((2, 2), (6, -1)), LayoutError::MixedSigns { stride: -1 }),
            ("steps back that carry", layout((4, 2), (-1, -3)), LayoutError::Carry { extent: 6, reach: 6 }),
            ("a sum that carries", layout((4, 2), (1, 3)), LayoutError::Carry { extent: 6, reach: 6 }),
            (
                "a repeated mode that carries",
                layout((6, 2), (1, 1)),
                LayoutError::Carry { extent: 6, reach: 6 },
            ),
        ] {
            assert_eq!(a.composition(&b), Err(want), "{why}");
        }
    }
}
