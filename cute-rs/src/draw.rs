//! Pictures of layouts: text tables, SVG and TikZ.
//!
//! A [`Picture`] is a grid of labelled, coloured cells. Use it to see a layout in a terminal, a page or a
//! paper. It is made from
//!
//! - a layout ([`Picture::of_layout`], [`Picture::of_composed`]): the offset at each coordinate. Cells get
//!   darker from the smallest to the largest offset, which shows the order in memory;
//! - a coordinate layout ([`Picture::of_coords`]): the coordinate that each coordinate maps to;
//! - a thread-value layout ([`Picture::of_thread_value`]): the owner `T{thread}V{value}` of each element,
//!   coloured by thread;
//! - a tile in shared memory and an access to it ([`Picture::of_banks`]): the bank of each element, coloured
//!   by bank. The picture marks the elements that the lanes of a warp touch and says what their bank
//!   conflicts cost;
//! - an instruction's name ([`Atom`]).
//!
//! ```
//! use cute_rs::Layout;
//! use cute_rs::draw::Picture;
//!
//! let picture = Picture::of_layout(&Layout::flat(&[2, 4], &[1, 2])?)?;
//! assert_eq!(
//!     picture.table(),
//!     "    0 1 2 3\n  \
//!        +--------\n\
//!      0 | 0 2 4 6\n\
//!      1 | 1 3 5 7\n"
//! );
//! assert!(picture.svg().starts_with("<svg"));
//! assert!(picture.latex().contains("tikzpicture"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A layout with two modes is drawn as rows x columns. With more modes, the modes from the second on together
//! are the columns. With one mode, it is a single row.

mod atom;
mod banks;
mod colour;
mod latex;
mod svg;
mod table;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::partition::Tensor;
use crate::swizzle::Swizzle;
use crate::thread_value::ThreadValue;
use colour::Colour;

pub use atom::Atom;
pub use banks::{Access, Conflicts, LaneAccess, Walk};

/// The largest number of cells of a picture.
pub const MAX_CELLS: i64 = 1 << 16;

/// A grid of labelled, coloured cells; see the [module](self) for its sources.
#[derive(Clone, Debug)]
pub struct Picture {
    title: String,
    rows: usize,
    columns: usize,
    /// The cells, row by row.
    cells: Vec<Cell>,
    frames: Vec<Frame>,
    notes: Vec<String>,
}

/// One cell of a picture.
#[derive(Clone, Debug, Default)]
struct Cell {
    label: String,
    colour: Colour,
}

/// A frame around some neighbouring cells.
#[derive(Clone, Debug)]
struct Frame {
    label: String,
    row: usize,
    column: usize,
    rows: usize,
    columns: usize,
}

impl Picture {
    /// Draws the offsets of a layout.
    ///
    /// # Errors
    /// [`DrawError::TooLarge`] above [`MAX_CELLS`] cells.
    pub fn of_layout(layout: &Layout) -> Result<Self, DrawError> {
        Self::offsets(layout.to_string(), &plain(layout))
    }

    /// Draws the offsets of a layout with a swizzle.
    ///
    /// ```
    /// # use cute_rs::{ComposedLayout, Layout, Swizzle, draw::Picture};
    /// let swizzle = Swizzle { bits: 1, base: 0, shift: 2 };
    /// let tile = ComposedLayout { swizzle, offset: 0, layout: Layout::flat(&[2, 4], &[4, 1])? };
    /// let table = Picture::of_composed(&tile)?.table();
    /// assert!(table.ends_with("0 | 0 1 2 3\n1 | 5 4 7 6\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DrawError::TooLarge`] above [`MAX_CELLS`] cells.
    pub fn of_composed(composed: &ComposedLayout) -> Result<Self, DrawError> {
        Self::offsets(composed.to_string(), composed)
    }

    /// Draws the coordinates that a coordinate layout yields, darker from the first to the last of its
    /// [coshape](CoordLayout::coshape).
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, draw::Picture};
    /// let identity = CoordLayout::identity(IntTuple::from((2, 3)))?;
    /// let table = Picture::of_coords(&identity)?.table();
    /// assert!(table.ends_with("0 | (0,0) (0,1) (0,2)\n1 | (1,0) (1,1) (1,2)\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DrawError::TooLarge`] above [`MAX_CELLS`] cells.
    pub fn of_coords(coords: &CoordLayout) -> Result<Self, DrawError> {
        Self::coordinates(coords.to_string(), coords, &coords.profile())
    }

    /// Draws the coordinates of a part of a coordinate layout. The part's first coordinate is added to each.
    ///
    /// ```
    /// # use cute_rs::{CoordLayout, IntTuple, Tensor, Tiler, draw::Picture};
    /// let identity = CoordLayout::identity(IntTuple::from((8, 9)))?;
    /// let tiler = IntTuple::from((2, 3));
    /// let (layout, start) = identity.local_tile(&Tiler::Shape(&tiler), &[Some(1), Some(2)])?;
    /// let table = Picture::of_part(&Tensor::new(layout, start))?.table();
    /// assert!(table.ends_with("0 | (2,6) (2,7) (2,8)\n1 | (3,6) (3,7) (3,8)\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DrawError::TooLarge`] above [`MAX_CELLS`] cells; [`DrawError::Layout`] if the first coordinate has
    /// another nesting than the layout's coordinates.
    pub fn of_part(part: &Tensor<CoordLayout, IntTuple>) -> Result<Self, DrawError> {
        part.start.elem_add(&part.layout.profile()).map_err(DrawError::Layout)?;
        Self::coordinates(format!("{} o {}", part.start, part.layout), &part.layout, &part.start)
    }

    fn coordinates(title: String, coords: &CoordLayout, start: &IntTuple) -> Result<Self, DrawError> {
        let places = plain(coords.inner());
        let grid = Grid::new(&places)?;
        let shape = coords.coshape();
        let last = shape.size() - 1;
        let cell = |(row, column): (usize, usize)| {
            // At most `MAX_CELLS`.
            let coord = coords.at((row + grid.rows * column) as i64);
            let index = shape.crd2idx(&coord).unwrap_or(0).clamp(0, last);
            let label = start.elem_add(&coord).unwrap_or(coord).to_string();
            Cell { label, colour: Colour::along(index, 0, last) }
        };
        Ok(Self::new(title, (grid.rows, grid.columns), grid.coords().map(cell).collect()))
    }

    fn offsets(title: String, composed: &ComposedLayout) -> Result<Self, DrawError> {
        let grid = Grid::new(composed)?;
        let offsets: Vec<_> = grid.coords().map(|(row, column)| grid.at(row, column)).collect();
        let (low, high) = offsets
            .iter()
            .fold((i64::MAX, i64::MIN), |(low, high), &offset| (low.min(offset), high.max(offset)));
        let cell =
            |&offset: &i64| Cell { label: offset.to_string(), colour: Colour::along(offset, low, high) };
        Ok(Self::new(title, (grid.rows, grid.columns), offsets.iter().map(cell).collect()))
    }

    /// Draws the thread and value that hold each element of a tile.
    ///
    /// If several threads or values hold an element, the cell shows the first and the number of others:
    /// `T0V0+3`.
    ///
    /// ```
    /// # use cute_rs::{atom::wgmma, draw::Picture};
    /// let table = Picture::of_thread_value(&wgmma::accumulator(8)?)?.table();
    /// let row_1 = table.lines().find(|line| line.trim_start().starts_with("1 |"));
    /// let owners: Vec<_> = row_1.unwrap_or_default().split_whitespace().skip(2).collect();
    /// assert_eq!(owners, ["T4V0", "T4V1", "T5V0", "T5V1", "T6V0", "T6V1", "T7V0", "T7V1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DrawError::TooLarge`] above [`MAX_CELLS`] cells or pairs of thread and value;
    /// [`DrawError::OutsideTile`] if a value lies outside the tile.
    pub fn of_thread_value(fragment: &ThreadValue) -> Result<Self, DrawError> {
        let (rows, columns) = fragment.tile();
        let (rows, columns) = extents(rows, columns)?;
        let layout = fragment.layout();
        extents(layout.mode(0).size(), layout.mode(1).size())?;
        let mut owners: Vec<(Option<(i64, i64)>, usize)> = vec![(None, 0); rows * columns];
        for (thread, value) in
            (0..layout.mode(0).size()).flat_map(|t| (0..layout.mode(1).size()).map(move |v| (t, v)))
        {
            let (row, column) = fragment.coord(thread, value);
            let place = (usize::try_from(row), usize::try_from(column));
            let (Ok(row), Ok(column)) = place else {
                return Err(DrawError::OutsideTile { thread, value });
            };
            if row >= rows || column >= columns {
                return Err(DrawError::OutsideTile { thread, value });
            }
            let (first, count) = &mut owners[row * columns + column];
            first.get_or_insert((thread, value));
            *count += 1;
        }
        let cell = |&(first, count): &(Option<(i64, i64)>, usize)| match (first, count) {
            (None, _) => Cell::default(),
            (Some((t, v)), 1) => Cell { label: format!("T{t}V{v}"), colour: Colour::of_class(t) },
            (Some((t, v)), more) => {
                Cell { label: format!("T{t}V{v}+{}", more - 1), colour: Colour::of_class(t) }
            }
        };
        Ok(Self::new(layout.to_string(), (rows, columns), owners.iter().map(cell).collect()))
    }

    /// Draws the banks of a tile in shared memory, and the lanes of a warp that touch it. `element_bits` is
    /// the width of an element in bits.
    ///
    /// ```
    /// use cute_rs::atom::{Major, SwizzleMode, smem};
    /// use cute_rs::draw::{Access, Picture};
    ///
    /// let tile = smem::tile(Major::K, SwizzleMode::B128, 16, 64, 64)?;
    /// let table = Picture::of_banks(&tile, 16, &Access::column(0, 16))?.table();
    /// assert!(table.ends_with("32 lanes of 16 bytes down column 0: 4 wavefronts, 4 without conflicts, conflict degree 1\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DrawError::TooLarge`], and those of [`Conflicts::of`].
    pub fn of_banks(tile: &ComposedLayout, element_bits: u32, access: &Access) -> Result<Self, DrawError> {
        let grid = Grid::new(tile)?;
        let conflicts = Conflicts::of(tile, element_bits, access)?;
        let cells = grid
            .coords()
            .map(|(row, column)| {
                let bank = banks::bank(grid.at(row, column), element_bits);
                Cell { label: bank.to_string(), colour: Colour::of_class(bank) }
            })
            .collect();
        let mut picture = Self::new(tile.to_string(), (grid.rows, grid.columns), cells);
        picture.frames.extend(conflicts.lanes.iter().filter_map(frame));
        picture.notes.push(conflicts.to_string());
        Ok(picture)
    }

    fn new(title: String, (rows, columns): (usize, usize), cells: Vec<Cell>) -> Self {
        Self { title, rows, columns, cells, frames: Vec::new(), notes: Vec::new() }
    }

    /// The same picture under another title.
    ///
    /// ```
    /// # use cute_rs::{Layout, draw::Picture};
    /// let picture = Picture::of_layout(&Layout::flat(&[2, 3], &[1, 2])?)?.titled("operand A");
    /// assert!(picture.svg().contains("<title>operand A</title>"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn titled(self, title: &str) -> Self {
        Self { title: title.into(), ..self }
    }

    /// The notes under the picture: what an access costs.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// The cells inside of frames.
    fn framed(&self) -> BTreeSet<(usize, usize)> {
        let cells = |frame: &Frame| {
            let (rows, columns) =
                (frame.row..frame.row + frame.rows, frame.column..frame.column + frame.columns);
            rows.flat_map(move |row| columns.clone().map(move |column| (row, column)))
        };
        self.frames.iter().flat_map(cells).collect()
    }

    /// The cells of each row.
    fn lines(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunks(self.columns.max(1))
    }
}

/// The frame around the elements of a lane.
fn frame(lane: &LaneAccess) -> Option<Frame> {
    let (&(row, column), &(last_row, last_column)) = (lane.elements.first()?, lane.elements.last()?);
    let label = format!("L{}", lane.lane);
    Some(Frame { label, row, column, rows: last_row - row + 1, columns: last_column - column + 1 })
}

const fn plain(layout: &Layout) -> ComposedLayout {
    ComposedLayout { swizzle: Swizzle::NONE, offset: 0, layout: *layout }
}

/// Rows and columns, if a picture can hold that many.
fn extents(rows: i64, columns: i64) -> Result<(usize, usize), DrawError> {
    let cells = i128::from(rows) * i128::from(columns);
    match (usize::try_from(rows), usize::try_from(columns)) {
        (Ok(rows), Ok(columns)) if cells <= i128::from(MAX_CELLS) => Ok((rows, columns)),
        _ => Err(DrawError::TooLarge { rows, columns }),
    }
}

/// A layout as rows x columns.
struct Grid<'l> {
    composed: &'l ComposedLayout,
    rows: usize,
    columns: usize,
}

impl<'l> Grid<'l> {
    fn new(composed: &'l ComposedLayout) -> Result<Self, DrawError> {
        let layout = &composed.layout;
        let rows = if layout.rank() < 2 { 1 } else { layout.mode(0).size() };
        let (rows, columns) = extents(rows, layout.size() / rows.max(1))?;
        Ok(Self { composed, rows, columns })
    }

    /// Row and column of each cell, row by row.
    fn coords(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rows, columns) = (self.rows, self.columns);
        (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
    }

    fn at(&self, row: usize, column: usize) -> i64 {
        // At most `MAX_CELLS`.
        self.composed.at((row + self.rows * column) as i64)
    }
}

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "errors of the algebra are values without a heap")]
#[non_exhaustive]
pub enum DrawError {
    /// More than [`MAX_CELLS`] cells.
    TooLarge {
        /// Rows of the picture.
        rows: i64,
        /// Columns of the picture.
        columns: i64,
    },
    /// A thread-value layout leaves its tile.
    OutsideTile {
        /// The thread.
        thread: i64,
        /// Its value.
        value: i64,
    },
    /// An access that no warp can make.
    Access {
        /// The reason.
        reason: String,
    },
    /// No instruction has this name.
    Atom {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The algebra refuses a layout of the picture.
    Layout(LayoutError),
}

impl fmt::Display for DrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { rows, columns } => {
                write!(f, "a picture of {rows} x {columns} cells is too large, at most {MAX_CELLS} are drawn")
            }
            Self::OutsideTile { thread, value } => {
                write!(f, "value {value} of thread {thread} lies outside the tile")
            }
            Self::Access { reason } => f.write_str(reason),
            Self::Atom { name, reason } => write!(f, "no atom is called `{name}`: {reason}"),
            Self::Layout(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DrawError {}

impl From<LayoutError> for DrawError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}
