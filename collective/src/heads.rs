//! Tensors of heads, for kernels over sequences: where a call has one, and what follows from it: its memory, and the parameters by which
//! a program reaches it. Sequences are as long as each other, packed ([`Packed`]), or in pages of a cache ([`Pages`]).

mod lengths;
mod pages;

use cute_rs::atom::Major;
use ptx::abi::TensorMap;
use ptx::{Builder, Value};

pub use lengths::{Beginnings, DeviceLengths, Packed};
pub use pages::{BlockPages, DevicePages, Page, Pages};

use crate::element::Format;
use crate::form::Batch;
use crate::mainloop::{Origin, TensorCopy};
use crate::operand::Matrix;
use crate::operands::{Contents, Extents, Memory, Visit};
use crate::pipeline::Stage;
use crate::plan::OperandTile;

/// Where the rows of a tensor are: `batch` sequences of `heads` heads of rows that follow each other at a fixed
/// distance. All strides are in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadsRef {
    /// Device address of the first element.
    pub address: u64,
    /// From one row to the next.
    pub row: u64,
    /// From one head to the next.
    pub head: u64,
    /// From one sequence to the next.
    pub batch: u64,
}

impl HeadsRef {
    /// A packed tensor `(batch, heads, length, d)`.
    pub fn heads_first(address: u64, [heads, length, d]: [u32; 3]) -> Self {
        let [heads, length, row] = [heads, length, d].map(u64::from);
        let head = length * row;
        Self { address, row, head, batch: heads.saturating_mul(head) }
    }

    /// A packed tensor `(batch, length, heads, d)`.
    pub fn length_first(address: u64, [heads, length, d]: [u32; 3]) -> Self {
        let [heads, length, head] = [heads, length, d].map(u64::from);
        let row = heads * head;
        Self { address, head, row, batch: length.saturating_mul(row) }
    }

    /// Elements from the first to one past the last one; 0 if there are none.
    pub fn reach(&self, [batch, heads, rows, d]: [u32; 4]) -> u64 {
        if batch == 0 || heads == 0 || rows == 0 || d == 0 {
            return 0;
        }
        let last = |count: u32, stride: u64| u64::from(count - 1).saturating_mul(stride);
        let rows = last(rows, self.row).saturating_add(u64::from(d));
        rows.saturating_add(last(heads, self.head)).saturating_add(last(batch, self.batch))
    }
}

/// A tensor of a call: all that is said of it, once.
///
/// ```
/// use collective::heads::{HeadTensor, HeadsRef};
/// use collective::operands::Visit;
/// use collective::{Format, OperandTile, TileLayout};
/// use cute_rs::atom::Major;
///
/// const TILE: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [64, 128], TileLayout::Widest);
///
/// /// Keys (batch, heads, length, 128) in `bf16`, of which a program copies 64 at a time.
/// fn keys<'c>(at: &'c mut HeadsRef, [batch, heads, length]: [u32; 3]) -> HeadTensor<'c> {
///     HeadTensor::copied(["K", "k_map"], TILE, at, [batch, heads, length, 128], Some(1))
/// }
///
/// fn interface(at: &mut HeadsRef, visit: &mut dyn Visit) {
///     HeadTensor::state_all(vec![keys(at, [2, 8, 1000])], visit);
/// }
/// ```
#[derive(Debug)]
pub struct HeadTensor<'c> {
    /// What it is, in the words of errors.
    pub name: &'static str,
    /// Where it is.
    pub at: &'c mut HeadsRef,
    /// Batch, heads, rows and elements of a head that a launch accesses. Packed sequences are one; of a cache, they are pages, heads,
    /// rows of a page and elements.
    pub shape: [u32; 4],
    /// Which rows follow each other.
    pub rows: HeadRows,
    /// Format of its elements.
    pub format: Format,
    /// What a launch does with it.
    pub used: HeadUse,
    /// By which parameters a program reaches it.
    pub reached: Reached,
}

/// What a launch does with a tensor of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadUse {
    /// It reads it: an operand of a product, A (0) or B (1).
    Multiplied(usize),
    /// It reads it.
    Read,
    /// It writes all of it.
    Written,
    /// It writes some of it, and keeps the rest.
    Updated,
}

impl HeadUse {
    /// What is in a tensor of this format, and whether it is written.
    const fn contents(self, format: Format) -> (Contents, bool) {
        match self {
            Self::Multiplied(i) => (Contents::Multiplied(i, format), false),
            Self::Read => (Contents::Source(format), false),
            Self::Written => (Contents::Output(format), true),
            Self::Updated => (Contents::Source(format), true),
        }
    }
}

/// An operand of a product, or what is written.
impl From<Option<usize>> for HeadUse {
    fn from(operand: Option<usize>) -> Self {
        operand.map_or(Self::Written, Self::Multiplied)
    }
}

/// Which rows of a tensor follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadRows {
    /// Those of a sequence.
    Equal,
    /// Those of all sequences, which have this number of rows at most.
    Packed(u32),
    /// Those of a page of a cache.
    Page,
}

/// By which parameters a program reaches a tensor of heads.
#[derive(Clone, Copy, Debug)]
pub enum Reached {
    /// A tensor map of this name, which copies such tiles. Their rows are as many heads of each row as the first number says, of which the
    /// second one are there; `[1, 1]` for rows of one head. Address and strides are multiples of 16 bytes.
    Map(&'static str, OperandTile, [u32; 2]),
    /// Its address and its strides in bytes, of these names; all are multiples of this number of bytes.
    Strides([&'static str; 4], u64),
}

impl<'c> HeadTensor<'c> {
    /// A tensor (batch, heads, rows, d) of sequences of equal lengths that is copied in tiles by a tensor map. It is an operand of a product,
    /// or written.
    pub fn copied(
        [name, map]: [&'static str; 2],
        tile: OperandTile,
        at: &'c mut HeadsRef,
        shape: [u32; 4],
        operand: Option<usize>,
    ) -> Self {
        let reached = Reached::Map(map, tile, [1; 2]);
        Self { name, at, shape, rows: HeadRows::Equal, format: tile.format(), used: operand.into(), reached }
    }

    /// A tensor (batch, heads, rows, d) that a program reaches by its address and its strides of these names, all of which are multiples of
    /// 16 bytes.
    pub fn strided(
        name: &'static str,
        parameters: [&'static str; 4],
        at: &'c mut HeadsRef,
        shape: [u32; 4],
        (format, used): (Format, HeadUse),
    ) -> Self {
        let reached = Reached::Strides(parameters, 16);
        Self { name, at, shape, rows: HeadRows::Equal, format, used, reached }
    }

    /// Visits tensors, and states the parameters by which a program reaches them. Where one is not accessed, its tensor map begins at one
    /// that is.
    pub fn state_all(mut tensors: Vec<Self>, visit: &mut dyn Visit) {
        tensors.iter_mut().for_each(|tensor| tensor.visit(visit));
        let accessed = tensors.iter().find(|tensor| tensor.is_accessed()).or(tensors.first());
        let other = accessed.map_or(("", 0), |of| (of.name, of.at.address));
        tensors.iter().for_each(|tensor| tensor.state(other, visit));
    }

    /// Whether a launch accesses it.
    pub fn is_accessed(&self) -> bool {
        !self.shape.contains(&0)
    }

    /// What address and strides are multiples of, in bytes; and rows before the first one at which a tensor map begins.
    pub fn placed(&self) -> (u64, u32) {
        match self.reached {
            Reached::Map(..) => (16, self.before()),
            Reached::Strides(_, alignment) => (alignment, 0),
        }
    }

    /// Visits the memory.
    fn visit(&mut self, visit: &mut dyn Visit) {
        let Self { name, ref mut at, shape, format, used, .. } = *self;
        let [batch, heads, rows, d] = shape;
        let extents = Extents::line(format.bits(), at.reach(shape));
        let (contents, writes) = used.contents(format);
        visit.memory(Memory { name, address: &mut at.address, extents, contents, writes });
        visit.lines(d.into(), [(rows, at.row), (heads, at.head), (batch, at.batch)]);
        [&mut at.row, &mut at.head, &mut at.batch].into_iter().for_each(|length| visit.length(length));
    }

    /// States the parameters. Where nothing is accessed, a tensor map begins at `other` memory, by name and address.
    fn state(&self, other: (&'static str, u64), visit: &mut dyn Visit) {
        match self.reached {
            Reached::Map(name, tile, packed) => {
                let within = if self.is_accessed() { self.name } else { other.0 };
                let map = visit.sees_parameters().then(|| self.map(&tile, packed, other.1));
                visit.tensor_map(name, within, map);
            }
            Reached::Strides([address, strides @ ..], _) => {
                let HeadsRef { row, head, batch, .. } = *self.at;
                visit.address(address, self.name);
                for (name, stride) in strides.into_iter().zip([row, head, batch]) {
                    // One that is too long is that of the only head or sequence, and not used.
                    visit.number(name, Some(stride.wrapping_mul(self.format.bytes().into())));
                }
            }
        }
    }

    /// States a tensor map for boxes that have no row of the tensor: every box that does not begin at its only element is outside, and
    /// becomes zero. It begins at `other` memory, by name and address: a card reads a map's first bytes for such a box, so they have to be
    /// memory; those of maps that begin before their tensor need not be.
    pub fn state_outside(
        &self,
        name: &'static str,
        (other, address): (&'static str, u64),
        visit: &mut dyn Visit,
    ) {
        let Reached::Map(_, tile, packed) = self.reached else { return };
        let map = visit.sees_parameters().then(|| {
            let map = self.map(&tile, packed, address);
            TensorMap { address, dims: vec![1; map.dims.len()], reach: None, ..map }
        });
        visit.tensor_map(name, other, map);
    }

    /// Rows before the first one at which a tensor map begins.
    fn before(&self) -> u32 {
        match self.rows {
            HeadRows::Equal => 0,
            HeadRows::Packed(most) => most,
            HeadRows::Page => self.shape[2],
        }
    }

    /// The tensor map. Row `most - length` of beginning `before + length` is the first row of a packed sequence, and its last one is the last of
    /// the dimension: what follows is outside.
    ///
    /// A row of a page has two coordinates with the same stride: its number, below `page`, and a beginning, from 0 to `page`. The map
    /// begins `page` rows before the cache. At beginning `count`, row `page - count` is therefore the first row of a page, and the last row
    /// that is inside is the page's row `count - 1`. So a copy reads the first `count` rows, which are keys; the others become zero.
    fn map(&self, tile: &OperandTile, [pack, share]: [u32; 2], other: u64) -> TensorMap {
        let ([batch, heads, rows, d], at, before) = match self.is_accessed() {
            true => (self.shape, *self.at, self.before()),
            false => {
                let row = self.shape[3].into();
                ([1, 1, 1, self.shape[3]], HeadsRef { address: other, row, head: row, batch: row }, 0)
            }
        };
        // The dimensions after a row: its head and its sequence, or its beginning in between.
        let heads_of = (heads.checked_div(share).unwrap_or(0), at.head.saturating_mul(share.into()));
        let (most, further) = match self.rows {
            HeadRows::Equal => (rows, vec![heads_of, (batch, at.batch)]),
            HeadRows::Packed(_) => (before, vec![heads_of, (rows.saturating_add(1), at.row)]),
            HeadRows::Page => (rows, vec![(before.saturating_add(1), at.row), heads_of, (batch, at.batch)]),
        };
        let [mn, k] = match tile.major() {
            Major::K => [most, d],
            Major::Mn => [d, most],
        };
        let bytes = u64::from(tile.format().bytes());
        let first = u64::from(before).wrapping_mul(at.row).wrapping_mul(bytes);
        let address = at.address.wrapping_sub(first);
        let mut map = tile.tensor_map(Matrix { address, mn, k, ld: at.row, batch: Batch::ONE });
        if pack > 1 {
            // A row is `pack` heads, and then the next query. Those after `share` heads are outside, and become zero.
            map.dims.insert(1, share.into());
            map.strides.insert(0, at.head.wrapping_mul(bytes));
            map.box_dims.insert(1, pack);
            map.box_dims[2] /= pack;
        }
        for (count, stride) in further {
            // After the only one nothing follows, so any legal distance will do.
            let stride = if count > 1 { stride } else { at.row };
            map.dims.push(count.max(1).into());
            map.strides.push(stride.wrapping_mul(bytes));
            map.box_dims.push(1);
        }
        if before > 0 {
            let reach = at.reach([batch, heads, rows, d]).wrapping_mul(bytes);
            map.reach = Some([first, first.wrapping_add(reach)]);
        }
        map
    }
}

/// A tensor of heads on the device that is reached by its address and its strides.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTensor<'f> {
    /// Its address.
    pub address: Value<'f, u64>,
    /// Bytes from one row, head and sequence to the next.
    pub strides: [Value<'f, u64>; 3],
}

impl<'f> DeviceTensor<'f> {
    /// Finds the parameters that [`Reached::Strides`] states.
    pub fn of(f: &'f Builder, [address, strides @ ..]: [&'static str; 4]) -> Self {
        Self { address: f.parameter(address), strides: strides.map(|name| f.parameter(name)) }
    }

    /// The address of a row of a head of a sequence.
    #[track_caller]
    pub fn row(&self, [row, head, sequence]: [Value<'f, u32>; 3]) -> Value<'f, u64> {
        let steps = [row, head, sequence].into_iter().zip(self.strides);
        steps.fold(self.address, |at, (number, stride)| at + number.cast::<u64>() * stride)
    }
}

impl TensorCopy {
    /// Starts the copies of the tile of a head that begins at a row of a sequence, by the tensor map of a [`HeadTensor`].
    #[track_caller]
    pub fn load_head<'f>(
        &self,
        f: &'f Builder,
        stage: Stage<'f>,
        (map, head): (Value<'f, u64>, Value<'f, u32>),
        [row, sequence]: [Value<'f, u32>; 2],
    ) {
        let origin = Origin { matrix: Some(head), batch: Some(sequence), ..Origin::alone(map) };
        self.load_rows(f, stage, origin, row);
    }

    /// As [`load`](Self::load), of the tile that begins at a row, whichever direction is contiguous.
    #[track_caller]
    pub fn load_rows<'f>(&self, f: &'f Builder, stage: Stage<'f>, origin: Origin<'f>, row: Value<'f, u32>) {
        let zero = f.constant(0);
        let first = if self.major() == Major::K { [row, zero] } else { [zero, row] };
        self.load(f, stage, origin, first);
    }
}
