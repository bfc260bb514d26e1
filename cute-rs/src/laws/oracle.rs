//! The oracle of the laws: layouts and tuples, read from their text and evaluated in plain arithmetic.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

/// A tree of integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    Leaf(i64),
    Node(Vec<Self>),
}

impl Tree {
    /// Reads `(4,(2,3))`.
    pub(super) fn of(tuple: &impl fmt::Display) -> Self {
        let text = tuple.to_string();
        let mut rest = text.as_bytes();
        Self::read(&mut rest)
    }

    fn read(rest: &mut &[u8]) -> Self {
        if rest.first() != Some(&b'(') {
            let end = rest.iter().position(|b| matches!(b, b',' | b')' | b':')).unwrap_or(rest.len());
            let number = rest[..end].iter().filter(|b| b.is_ascii_digit());
            let value = number.fold(0_i64, |value, b| value * 10 + i64::from(b - b'0'));
            let negative = rest.first() == Some(&b'-');
            *rest = &rest[end..];
            return Self::Leaf(if negative { -value } else { value });
        }
        let mut members = Vec::new();
        while rest.first().is_some_and(|b| matches!(b, b'(' | b',')) {
            *rest = &rest[1..];
            if rest.first() == Some(&b')') {
                break;
            }
            members.push(Self::read(rest));
        }
        *rest = &rest[1..];
        Self::Node(members)
    }

    pub(super) fn leaves(&self) -> Vec<i64> {
        match self {
            Self::Leaf(value) => Vec::from([*value]),
            Self::Node(members) => members.iter().flat_map(Self::leaves).collect(),
        }
    }

    pub(super) fn product(&self) -> i64 {
        self.leaves().iter().product()
    }

    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Leaf(_) => 0,
            Self::Node(members) => 1 + members.iter().map(Self::depth).max().unwrap_or(0),
        }
    }

    /// The members; a leaf is its own only member.
    pub(super) fn modes(&self) -> Vec<Self> {
        match self {
            Self::Leaf(_) => Vec::from([self.clone()]),
            Self::Node(members) => members.clone(),
        }
    }

    /// Whether two trees have the same nesting.
    pub(super) fn congruent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf(_), Self::Leaf(_)) => true,
            (Self::Node(a), Self::Node(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.congruent(b))
            }
            _ => false,
        }
    }

    /// Whether `self` is weakly congruent to `other`; with `sizes`, whether `self` is compatible with
    /// `other`.
    pub(super) fn refined_by(&self, other: &Self, sizes: bool) -> bool {
        match (self, other) {
            (Self::Leaf(a), b) => !sizes || *a == b.product(),
            (Self::Node(_), Self::Leaf(_)) => false,
            (Self::Node(a), Self::Node(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.refined_by(b, sizes))
            }
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf(value) => write!(f, "{value}"),
            Self::Node(members) => {
                f.write_str("(")?;
                for (i, member) in members.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    member.fmt(f)?;
                }
                f.write_str(")")
            }
        }
    }
}

/// A layout, read from its text and evaluated in plain arithmetic. Use it to compute expected values in a law
/// of your own.
///
/// ```
/// use cute_rs::Layout;
/// use cute_rs::laws::Oracle;
/// let oracle = Oracle::of(&Layout::flat(&[2, 3], &[3, 1])?);
/// assert_eq!(oracle.offsets(), [0, 3, 1, 4, 2, 5]);
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oracle {
    pub(super) shape: Tree,
    pub(super) stride: Tree,
    leaves: Vec<(i64, i64)>,
}

impl Oracle {
    /// Reads a layout's text `shape:stride`.
    pub fn of(layout: &impl fmt::Display) -> Self {
        let text = layout.to_string();
        let (shape, stride) = text.split_once(':').unwrap_or((&text, "0"));
        Self::new(Tree::of(&shape), Tree::of(&stride))
    }

    fn new(shape: Tree, stride: Tree) -> Self {
        let leaves = shape.leaves().into_iter().zip(stride.leaves()).collect();
        Self { shape, stride, leaves }
    }

    /// The number of coordinates.
    pub fn size(&self) -> i64 {
        self.leaves.iter().map(|leaf| leaf.0).product()
    }

    /// The extent and the stride of each leaf.
    pub fn leaves(&self) -> &[(i64, i64)] {
        &self.leaves
    }

    /// The offset of an integer coordinate: the sum of digits times strides. Beyond the size, the last leaf
    /// continues.
    pub fn at(&self, coord: i64) -> i64 {
        let mut rest = coord;
        let mut sum = 0;
        for (i, &(extent, stride)) in self.leaves.iter().enumerate() {
            let digit = if i + 1 == self.leaves.len() { rest } else { rest % extent };
            sum += digit * stride;
            rest /= extent;
        }
        sum
    }

    /// The offsets of all integer coordinates, in order.
    pub fn offsets(&self) -> Vec<i64> {
        // The offsets of all leaves so far, repeated for each digit of the next.
        let mut offsets = Vec::from([0]);
        for &(extent, stride) in &self.leaves {
            let step = offsets.len();
            for digit in 1..extent {
                for i in 0..step {
                    offsets.push(offsets[i] + digit * stride);
                }
            }
        }
        offsets
    }

    /// The modes, each as a layout.
    pub fn modes(&self) -> Vec<Self> {
        let parts = self.shape.modes().into_iter().zip(self.stride.modes());
        parts.map(|(shape, stride)| Self::new(shape, stride)).collect()
    }
}

/// The digits of an integer; the first digit varies fastest.
pub(super) fn digits(extents: &[i64], mut i: i64) -> Vec<i64> {
    let digit = |&extent: &i64| {
        let digit = i % extent;
        i /= extent;
        digit
    };
    extents.iter().map(digit).collect()
}

/// The `count` smallest shifts at which copies of these offsets fill the numbers from 0 up, and whether the
/// copies are disjoint.
pub(super) fn shifts(tile: &[i64], count: usize) -> (Vec<i64>, bool) {
    let mut taken = Vec::new();
    let mut shifts = Vec::new();
    let mut disjoint = true;
    let mut shift = 0;
    while shifts.len() < count {
        if taken.get(shift) != Some(&true) {
            shifts.push(shift as i64);
            for &offset in tile {
                let at = offset as usize + shift;
                if at >= taken.len() {
                    taken.resize(2 * at + 64, false);
                }
                disjoint &= !taken[at];
                taken[at] = true;
            }
        }
        shift += 1;
    }
    (shifts, disjoint)
}

/// Whether copies of `tile` at these starts cover the numbers below `target`, and one block fewer would not.
/// A block is the smallest number of copies that fill each other's gaps.
pub(super) fn covers(tile: &[i64], starts: &[i64], target: i64) -> bool {
    let each = tile.len() as i64;
    let closed = |&k: &usize| starts[k] == k as i64 * each;
    let block = (1..starts.len()).find(closed).unwrap_or(starts.len());
    let (all, fewer) = (starts.len() as i64 * each, (starts.len() - block) as i64 * each);
    all >= target && (fewer == 0 || fewer < target)
}

/// The fewest modes of any flat layout with these offsets.
pub(super) fn fewest_modes(offsets: &[i64]) -> Option<usize> {
    let n = offsets.len();
    if n == 1 {
        return Some(0);
    }
    let mut best = None;
    for s in 2..=n {
        // The first mode is a run of `s` offsets, and the rest are copies of it.
        if offsets[s - 1] != (s as i64 - 1) * offsets[1] {
            break;
        }
        if !n.is_multiple_of(s) || !(0..n).all(|i| offsets[i] == offsets[i % s] + offsets[i - i % s]) {
            continue;
        }
        let rest: Vec<_> = offsets.iter().copied().step_by(s).collect();
        let modes = fewest_modes(&rest).map(|modes| modes + 1);
        best = match (best, modes) {
            (Some(best), Some(modes)) => Some(if modes < best { modes } else { best }),
            (best, modes) => best.or(modes),
        };
    }
    best
}
