//! Shared-memory banks: the cost of an access by a warp.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{DrawError, Grid};
use crate::composed::ComposedLayout;
use crate::layout::Layout;

/// Number of banks of shared memory. Each bank serves one word of 4 bytes per wavefront.
const BANKS: i64 = 32;
/// Bits of a word.
const WORD: i64 = 32;
/// Lanes of a warp.
const LANES: usize = 32;

/// The elements of a tile that the lanes of a warp touch, and the bytes that each lane moves.
///
/// ```
/// # use cute_rs::{Layout, draw::{Access, Walk}};
/// // The lanes begin at every other row of a tile of 16 rows, 8 of them in each column.
/// let lanes = Layout::flat(&[8, 4], &[2, 16])?;
/// let access = Access::threads(lanes, 4);
/// assert_eq!(access, Access { walk: Walk::Threads(lanes), lane_bytes: 4 });
/// assert_eq!(access.to_string(), "4 bytes at (8,4):(2,16)");
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The order of the lanes.
    pub walk: Walk,
    /// Bytes that each lane moves: 1, 2, 4, 8 or 16. If these are several elements, the elements are adjacent
    /// in memory.
    pub lane_bytes: u32,
}

/// The order in which the lanes of a warp go through a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "an access is made once")]
#[non_exhaustive]
pub enum Walk {
    /// Along a row. If the row has too few elements for all lanes, the next rows follow.
    Row(i64),
    /// Down a column. If the column has too few elements for all lanes, the next columns follow.
    Column(i64),
    /// Lane `i` begins at the element whose integer coordinate, rows fastest, is `L(i)`.
    Threads(Layout),
}

impl Access {
    /// An access along a row, with `lane_bytes` bytes per lane.
    pub const fn row(row: i64, lane_bytes: u32) -> Self {
        Self { walk: Walk::Row(row), lane_bytes }
    }

    /// An access down a column, with `lane_bytes` bytes per lane.
    pub const fn column(column: i64, lane_bytes: u32) -> Self {
        Self { walk: Walk::Column(column), lane_bytes }
    }

    /// An access whose lanes begin where a layout says, with `lane_bytes` bytes per lane.
    pub const fn threads(layout: Layout, lane_bytes: u32) -> Self {
        Self { walk: Walk::Threads(layout), lane_bytes }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.lane_bytes;
        write!(f, "{bytes} byte{} ", if bytes == 1 { "" } else { "s" })?;
        match &self.walk {
            Walk::Row(row) => write!(f, "along row {row}"),
            Walk::Column(column) => write!(f, "down column {column}"),
            Walk::Threads(layout) => write!(f, "at {layout}"),
        }
    }
}

/// The bank of the element at an offset.
pub(super) fn bank(offset: i64, element_bits: u32) -> i64 {
    word(offset, element_bits).rem_euclid(BANKS)
}

fn word(offset: i64, element_bits: u32) -> i64 {
    offset.wrapping_mul(element_bits.into()).div_euclid(WORD)
}

/// The elements that a lane touches: one of [`Conflicts::lanes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneAccess {
    /// The lane.
    pub lane: usize,
    /// Row and column of each element; the elements are adjacent in memory.
    pub elements: Vec<(usize, usize)>,
}

/// The cost of an access to shared memory.
///
/// Shared memory has 32 banks of 4-byte words. A *wavefront* serves one word of each bank, to any number of
/// lanes. A warp is served at once if its lanes move up to 4 bytes, in halves for 8 bytes, and in quarters
/// for 16 bytes. Each of these parts takes one wavefront per different word in its busiest bank. The tile is
/// assumed to begin at bank 0.
///
/// ```
/// use cute_rs::{ComposedLayout, Layout, Swizzle};
/// use cute_rs::draw::{Access, Conflicts};
///
/// // 32 rows of 32 words: all words of a column are in one bank.
/// let rows = Layout::flat(&[32, 32], &[32, 1])?;
/// let plain = ComposedLayout { swizzle: Swizzle::NONE, offset: 0, layout: rows };
/// assert_eq!(Conflicts::of(&plain, 32, &Access::row(0, 4))?.degree, 1);
/// assert_eq!(Conflicts::of(&plain, 32, &Access::column(0, 4))?.degree, 32);
///
/// // XORing the row onto the column spreads the words over the banks.
/// let swizzled = ComposedLayout { swizzle: Swizzle { bits: 5, base: 0, shift: 5 }, ..plain };
/// assert_eq!(Conflicts::of(&swizzled, 32, &Access::column(0, 4))?.degree, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts {
    /// Number of wavefronts that the access takes.
    pub wavefronts: usize,
    /// Number of wavefronts that the access would take with its words spread evenly over the banks.
    pub ideal: usize,
    /// The largest number of words that one part of the warp needs from one bank.
    pub degree: usize,
    /// The lanes that take part; fewer than 32 if the tile has too few elements.
    pub lanes: Vec<LaneAccess>,
    access: Access,
}

impl Conflicts {
    /// Computes the cost of an access. `element_bits` is the width of an element in bits.
    ///
    /// # Errors
    /// [`DrawError::Access`] unless elements have 4 to 128 bits, a power of two; unless each lane moves 1, 2,
    /// 4, 8 or 16 bytes and at least an element; if the elements of a lane are not adjacent in memory or not
    /// aligned; for a row, a column or a coordinate outside the tile.
    pub fn of(tile: &ComposedLayout, element_bits: u32, access: &Access) -> Result<Self, DrawError> {
        let refuse = |reason| Err(DrawError::Access { reason });
        if !element_bits.is_power_of_two() || !(4..=128).contains(&element_bits) {
            return refuse(format!("elements of {element_bits} bits; choose 4, 8, 16, 32, 64 or 128"));
        }
        let lane_bits = access.lane_bytes.saturating_mul(8);
        if !matches!(access.lane_bytes, 1 | 2 | 4 | 8 | 16) || lane_bits < element_bits {
            return refuse(format!(
                "lanes of {} bytes and elements of {element_bits} bits; choose 1, 2, 4, 8 or 16 bytes and at least an \
                 element",
                access.lane_bytes
            ));
        }
        let grid = Grid::new(tile)?;
        let count = (lane_bits / element_bits) as usize;
        let lanes = lanes(&grid, &access.walk, count)?;
        let mut firsts = Vec::new();
        for LaneAccess { lane, elements } in &lanes {
            let mut offsets = elements.iter().map(|&(row, column)| grid.at(row, column));
            let first = offsets.next().unwrap_or(0);
            if !offsets.eq((first..).skip(1).take(count - 1)) {
                return refuse(format!("the {count} elements of lane {lane} are no neighbours in memory"));
            }
            if first.rem_euclid(count as i64) != 0 {
                return refuse(format!(
                    "lane {lane} begins at element {first}, which is not aligned to {} bytes",
                    access.lane_bytes
                ));
            }
            firsts.push(first);
        }
        let (mut wavefronts, mut ideal, mut degree) = (0, 0, 0);
        let served_at_once = LANES * 4 / (access.lane_bytes.max(4) as usize);
        for part in firsts.chunks(served_at_once) {
            let words: BTreeSet<i64> = part
                .iter()
                .flat_map(|&first| (0..count as i64).map(move |i| word(first + i, element_bits)))
                .flat_map(|first| (0..i64::from(element_bits.div_ceil(32))).map(move |i| first + i))
                .collect();
            let mut wanted = vec![0; BANKS as usize];
            for word in &words {
                wanted[word.rem_euclid(BANKS) as usize] += 1;
            }
            let most = wanted.into_iter().max().unwrap_or(0);
            wavefronts += most;
            ideal += words.len().div_ceil(BANKS as usize);
            degree = degree.max(most);
        }
        Ok(Self { wavefronts, ideal, degree, lanes, access: access.clone() })
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.wavefronts == 1 { "" } else { "s" };
        write!(
            f,
            "{} lanes of {}: {} wavefront{plural}, {} without conflicts, conflict degree {}",
            self.lanes.len(),
            self.access,
            self.wavefronts,
            self.ideal,
            self.degree
        )
    }
}

/// The elements of each lane: `count` adjacent ones.
fn lanes(grid: &Grid<'_>, walk: &Walk, count: usize) -> Result<Vec<LaneAccess>, DrawError> {
    let outside = |what: &str, number: i64, extent: usize| DrawError::Access {
        reason: format!("{what} {number} is not one of the {extent} of the tile"),
    };
    // Elements that are adjacent in memory are in one row, or otherwise in one column.
    let in_row = count == 1 || (grid.columns > 1 && grid.at(0, 1) == grid.at(0, 0) + 1);
    let (high, wide) = if in_row { (1, count) } else { (count, 1) };
    let begin = |lane: usize| -> Result<Option<(usize, usize)>, DrawError> {
        match walk {
            Walk::Row(first) => {
                let row = usize::try_from(*first).ok().filter(|&row| row < grid.rows);
                let row = row.ok_or_else(|| outside("row", *first, grid.rows))?;
                let in_a_row = (grid.columns / wide).max(1);
                Ok(Some((row + lane / in_a_row * high, lane % in_a_row * wide)))
            }
            Walk::Column(first) => {
                let column = usize::try_from(*first).ok().filter(|&column| column < grid.columns);
                let column = column.ok_or_else(|| outside("column", *first, grid.columns))?;
                let in_a_column = (grid.rows / high).max(1);
                Ok(Some((lane % in_a_column * high, column + lane / in_a_column * wide)))
            }
            Walk::Threads(layout) if (lane as i64) < layout.size() => {
                let coord = layout.at(lane as i64);
                let place = usize::try_from(coord).ok().filter(|&place| place < grid.rows * grid.columns);
                let place = place.ok_or_else(|| outside("coordinate", coord, grid.rows * grid.columns))?;
                Ok(Some((place % grid.rows, place / grid.rows)))
            }
            Walk::Threads(_) => Ok(None),
        }
    };
    let mut lanes = Vec::new();
    for lane in 0..LANES {
        let Some((row, column)) = begin(lane)? else { break };
        if row + high > grid.rows || column + wide > grid.columns {
            if matches!(walk, Walk::Threads(_)) {
                let reason = format!("the {count} elements of lane {lane} leave the tile");
                return Err(DrawError::Access { reason });
            }
            break;
        }
        let elements =
            (0..count).map(|i| if in_row { (row, column + i) } else { (row + i, column) }).collect();
        lanes.push(LaneAccess { lane, elements });
    }
    if lanes.is_empty() {
        let reason =
            format!("the tile of {} x {} elements has not the {count} of one lane", grid.rows, grid.columns);
        return Err(DrawError::Access { reason });
    }
    Ok(lanes)
}
