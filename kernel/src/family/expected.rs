//! What a kernel must write; and what it computes of a request block by block, for a picture.

use core::ops::Range;

use reference::{Format, Wanted};

/// What a piece of memory must hold. Of other elements, it is only checked that the kernel wrote something there.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The piece's name. Pieces of one name have their elements one after the other, in the order in which they are visited.
    pub name: &'static str,
    /// Consecutive elements: the number of the first one in the order of the piece's lines, and what they may be.
    pub elements: Vec<(usize, Vec<Allowed>)>,
}

impl Expected {
    /// Consecutive elements: the number of the first one; values, and how far the kernel's may be from them.
    pub fn near(name: &'static str, elements: Vec<(usize, Vec<(f64, f64)>)>) -> Self {
        let near = |(value, bound)| Allowed::Near(value, bound);
        let of_line = |(first, line): (usize, Vec<_>)| (first, line.into_iter().map(near).collect());
        Self { name, elements: elements.into_iter().map(of_line).collect() }
    }
}

/// What an element may be.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// So far from a value, at most. An infinity and NaN have no neighbours.
    Near(f64, f64),
    /// What a value is rounded to.
    Rounded(Wanted),
    /// An element of a GEMM's D in this format, whose intermediate values may overflow.
    Product(Format, reference::Expected),
    /// What it was before the launch: the kernel does not write it.
    Kept,
}

impl Allowed {
    /// The value, and how far the kernel's may be from it.
    pub fn value(&self) -> (f64, f64) {
        match self {
            Self::Near(value, bound) => (*value, *bound),
            Self::Rounded(wanted) => (wanted.value, wanted.bound()),
            Self::Product(_, expected) => (expected.value, expected.bound),
            Self::Kept => (f64::NAN, f64::INFINITY),
        }
    }

    /// Whether an element of this value is right.
    pub fn admits(&self, found: f64) -> bool {
        match *self {
            Self::Near(value, bound) => {
                let same = found == value || (found.is_nan() && value.is_nan());
                same || value.is_finite() && (found - value).abs() <= bound
            }
            Self::Rounded(wanted) => wanted.admits_value(found),
            Self::Product(format, expected) => expected.admits(format, found),
            Self::Kept => false,
        }
    }

    /// What an integer is that is computed modulo 2^32, because 32 bits do not hold it.
    pub fn wraps(&self) -> Option<f64> {
        if let Self::Product(_, expected) = self { expected.wraps } else { None }
    }

    /// How far an element of this value is from what it should be, and that as a fraction of its bound, if it is right.
    pub fn error(&self, found: f64) -> (f64, f64) {
        match *self {
            Self::Near(value, bound) => {
                let same = found == value || !value.is_finite();
                let error = if same { 0.0 } else { (found - value).abs() };
                (error, if error > 0.0 { error / bound } else { 0.0 })
            }
            Self::Rounded(wanted) => (wanted.distance(found), wanted.ratio(found)),
            Self::Product(format, expected) => {
                (expected.distance(format, found), expected.ratio(format, found))
            }
            Self::Kept => (0.0, 0.0),
        }
    }
}

/// The blocks of a request of which a kernel computes some.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// What is drawn, in a sentence.
    pub of: String,
    /// What the rows and the columns are.
    pub axes: [&'static str; 2],
    /// Rows and columns of a block.
    pub block: [u32; 2],
    /// How much of each block is needed, by row of blocks.
    pub needed: Vec<Vec<Needed>>,
    /// The products for each block that is not left out, in order.
    pub products: Vec<String>,
    /// How the warpgroups share the work, in a sentence.
    pub turns: String,
}

/// How much of a block is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Nothing: the block is left out.
    Nothing,
    /// Some of it: it is computed, and masked.
    Some,
    /// All of it.
    All,
}

impl Needed {
    /// For a block of which `needed(row, column)` says what is needed.
    pub fn of_block([rows, columns]: [Range<u32>; 2], needed: impl Fn(u32, u32) -> bool) -> Self {
        let all = rows.len() * columns.len();
        match rows.map(|row| columns.clone().filter(|&column| needed(row, column)).count()).sum::<usize>() {
            0 => Self::Nothing,
            count if count == all => Self::All,
            _ => Self::Some,
        }
    }
}
