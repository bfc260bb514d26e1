//! What a kernel must write; and what it computes of a request block by block, for a picture.

use core::ops::Range;

/// What a piece of memory must hold. Of other elements, it is only checked that the kernel wrote something there.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The piece's name.
    pub name: &'static str,
    /// Consecutive elements: the number of the first one in the order of the piece's lines; values, and how far the kernel's may be from
    /// them.
    pub elements: Vec<(usize, Vec<(f64, f64)>)>,
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
