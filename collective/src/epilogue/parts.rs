//! Parts of a tile as the nodes of a tree see them: in D's rows and columns, independent of the order of a
//! thread's accumulators.

use core::cell::RefCell;

use ptx::{Builder, Scalar, Value, Var};

use crate::element::{Format, Packed};
use crate::extent::Extent;
use crate::mainloop::{Fragment, FragmentRow};
use crate::plan::Plan;
use crate::tree::{Arithmetic, Columns, NodeTile, NodeTraits, Number, Pair, Part, PartRow};

/// The order in which the groups of 8 columns of a tile are visited: those of a gate, then those of its up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// [`NodeTraits::gate_block`].
    pub(super) gate_block: u32,
    /// Groups per tile.
    pub(super) groups: u32,
}

impl Order {
    /// The group at position `index`.
    const fn group(self, index: u32) -> u32 {
        let groups = if self.gate_block == NodeTraits::SPLIT { self.groups / 2 } else { self.gate_block / 8 };
        if groups < 2 {
            // Alternating columns, or blocks of 8 and 8: the order is unchanged.
            return index;
        }
        let (pair, up) = (index / 2, index % 2);
        pair / groups * 2 * groups + up * groups + pair % groups
    }

    /// The accumulators in that order. Their columns remain those of their original places.
    pub(super) fn of<'f, T>(self, fragment: &Fragment<'f, T>) -> Vec<Vec<Var<'f, T>>> {
        let block = |values: &Vec<Var<'f, T>>| {
            let groups: Vec<_> = values.chunks(4).collect();
            let order = (0..).take(groups.len()).map(|i| self.group(i) as usize);
            order.filter_map(|group| groups.get(group)).copied().flatten().copied().collect()
        };
        fragment.blocks.iter().map(block).collect()
    }
}

/// The parts of one warpgroup's fragment of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'f> {
    /// The tile in D's rows and columns.
    pub(super) tile: NodeTile<'f>,
    order: Order,
    /// Whether pairs of columns are joined.
    halved: bool,
    /// Under swap-AB: the element of the kernel's output that is the thread's value 0.
    turned: Option<[Value<'f, u32>; 2]>,
}

/// How many of the columns from `column` on are less than `n`.
fn inside<'f>(column: Value<'f, u32>, n: Value<'f, u32>) -> Value<'f, u32> {
    (n - column).where_or(column.less_than(n), 0)
}

/// Accumulators and results that a thread holds, as registers and as a tree computes with them.
pub(super) trait Held<'f>: Scalar {
    /// In what the tree computes in.
    fn number(value: Value<'f, Self>, arithmetic: Arithmetic) -> Number<'f>;

    /// The register of a result.
    fn register(number: Number<'f>) -> Value<'f, Self>;

    /// Two neighbours in D's format.
    fn pack(format: Format, f: &'f Builder, pair: [Value<'f, Self>; 2]) -> Packed<'f>;
}

/// Integers are held as the bits of an `f32`.
impl<'f> Held<'f> for f32 {
    fn number(value: Value<'f, Self>, arithmetic: Arithmetic) -> Number<'f> {
        if arithmetic == Arithmetic::S32 { Number::S32(value.bits_as()) } else { value.into() }
    }

    #[track_caller]
    fn register(number: Number<'f>) -> Value<'f, Self> {
        number.register()
    }

    #[track_caller]
    fn pack(format: Format, f: &'f Builder, pair: [Value<'f, Self>; 2]) -> Packed<'f> {
        format.pack(f, pair)
    }
}

impl<'f> Held<'f> for f64 {
    fn number(value: Value<'f, Self>, _arithmetic: Arithmetic) -> Number<'f> {
        Number::F64(value)
    }

    #[track_caller]
    fn register(number: Number<'f>) -> Value<'f, Self> {
        match number {
            Number::F64(value) => value,
            Number::F32(_) | Number::S32(_) => number.single().cast(),
        }
    }

    fn pack(_format: Format, _f: &'f Builder, pair: [Value<'f, Self>; 2]) -> Packed<'f> {
        Packed::Doubles(pair)
    }
}

/// Transposes 8 x 8 values, of which each lane of a warp holds two neighbours in a row. It is its own
/// inverse.
///
/// Lane `4 i + j` holds elements `(i, 2 j)` and `(i, 2 j + 1)`. Lanes of neighbouring rows exchange one
/// element, so that each lane has two neighbours in a column. Then each lane fetches the values it needs.
fn turn<'f, T: Scalar>(
    f: &'f Builder,
    thread: Value<'f, u32>,
    [low, high]: [Value<'f, T>; 2],
) -> [Value<'f, T>; 2] {
    let lane = thread % 32;
    let row = lane >> 2;
    let odd = (row & 1).equals(1);
    let other = f.shuffle_xor(low.where_or(odd, high), 4);
    let column = [other.where_or(odd, low), high.where_or(odd, other)];
    let from = (lane & 3) * 8 + (row & 1) * 4 + (row >> 1);
    column.map(|value| f.shuffle(value, from))
}

impl<'f> Parts<'f> {
    /// `whole`: the whole tile is inside D, and pairs may be accessed at once. `ahead`: there are registers
    /// for row vectors of the whole tile.
    pub(super) fn new<T: Scalar>(
        (f, arithmetic): (&'f Builder, Arithmetic),
        plan: &Plan,
        extent: Extent<'f>,
        fragment: &Fragment<'f, T>,
        order: Order,
        [whole, ahead]: [bool; 2],
    ) -> Self {
        let (start, thread) = (fragment.start(), fragment.thread);
        let (transposed, halved) = (plan.swapped(), plan.epilogue.halvings > 0);
        let ([tile_m, tile_n, _], [cluster_m, cluster_n]) = (plan.mainloop.tile, plan.mainloop.cluster);
        let cluster_tile = [tile_m * cluster_m, tile_n * cluster_n];
        let (lane, of_rows) = (thread % 32, plan.form.shares_rows());
        let (extent, first, pairs, first_row, aligned) = match transposed {
            false => (extent, start[1], tile_n / 8, fragment.first[0], !of_rows),
            true => (
                Extent { m: extent.n, n: extent.m, ..extent },
                start[0] - (lane >> 2) + (lane & 3) * 2,
                plan.blocks() * 2,
                fragment.first[1],
                !of_rows && tile_n.is_multiple_of(16),
            ),
        };
        let doubled = Columns { first, pairs, n: extent.n };
        let columns = match halved {
            false => doubled,
            true => {
                let first = (fragment.first[1] >> 1) + (first - fragment.first[1]);
                Columns { first, pairs: pairs / 2, n: extent.n >> 1 }
            }
        };
        let tile = NodeTile {
            f,
            arithmetic,
            whole,
            extent,
            displacement: None,
            thread,
            ahead,
            columns,
            doubled,
            first_row,
            aligned,
            blocks: plan.blocks(),
            cluster_tile,
            barrier: fragment.barrier(),
        };
        Self { tile, order, halved, turned: transposed.then_some(start) }
    }

    /// The part of a tile that consists of these rows of a block.
    pub(super) fn of<T: Held<'f>>(&self, block: u32, rows: &[FragmentRow<'f, T>]) -> Part<'f> {
        if let Some(start) = self.turned {
            return self.of_columns(start, block, rows);
        }
        let places: Vec<u32> =
            rows.first().map_or_else(Vec::new, |row| row.pairs.iter().map(|p| p.column).collect());
        if !self.halved {
            return self.part(self.tile.columns, block, rows, places, &|_| true);
        }
        let Columns { first, pairs, n } = self.tile.columns;
        let joined: Vec<u32> = places.iter().step_by(2).map(|place| place / 2).collect();
        let doubled = if self.order.gate_block == NodeTraits::SPLIT {
            let ups = Columns { first: first + n, pairs, n: self.tile.doubled.n };
            [(self.tile.columns, 0), (ups, 1)]
                .map(|(columns, up)| self.part(columns, block, rows, joined.clone(), &|pair| pair % 2 == up))
                .into()
        } else {
            let columns = places.iter().map(|place| self.order.group(place / 8) * 8).collect();
            vec![self.part(self.tile.doubled, block, rows, columns, &|_| true)]
        };
        // 16 columns become 8, of which a thread holds the pair in the same place.
        Part { doubled, ..self.part(self.tile.columns, block, rows, joined, &|_| false) }
    }

    /// Rows of a block with those of their pairs that `takes` selects by index, in these columns.
    fn part<T: Held<'f>>(
        &self,
        columns: Columns<'f>,
        block: u32,
        rows: &[FragmentRow<'f, T>],
        pairs: Vec<u32>,
        takes: &dyn Fn(usize) -> bool,
    ) -> Part<'f> {
        let inside = inside(columns.first, columns.n);
        let number = |value| T::number(value, self.tile.arithmetic);
        let row = |(index, row): (usize, &FragmentRow<'f, T>)| PartRow {
            index: block as usize * rows.len() + index,
            row: row.row,
            columns: inside.where_or(row.row.less_than(self.tile.extent.m), 0),
            accumulators: row
                .pairs
                .iter()
                .enumerate()
                .filter(|(i, _)| takes(*i))
                .map(|(_, pair)| pair.values.map(number))
                .collect(),
        };
        Part {
            tile: self.tile,
            rows: rows.iter().enumerate().map(row).collect(),
            column: columns.first,
            columns: inside,
            pairs,
            doubled: Vec::new(),
            bound: RefCell::default(),
        }
    }

    /// As [`of`](Self::of), when rows are D's columns: each pair of the upper and of the lower row belongs to
    /// one row of D.
    fn of_columns<T: Held<'f>>(
        &self,
        start: [Value<'f, u32>; 2],
        block: u32,
        rows: &[FragmentRow<'f, T>],
    ) -> Part<'f> {
        let (tile, lane) = (self.tile, self.tile.thread % 32);
        let (column, first_row) = (tile.columns.first, start[1] - (lane & 3) * 2 + (lane >> 2));
        let columns = inside(column, tile.columns.n);
        let turned =
            |values| turn(tile.f, tile.thread, values).map(|value| T::number(value, tile.arithmetic));
        let numbers = 0..rows.first().map_or(0, |row| row.pairs.len());
        let row = |i: usize| {
            let place = rows.first().map_or(0, |row| row.pairs[i].column);
            let row = first_row + place;
            PartRow {
                index: place as usize / 8,
                row,
                columns: columns.where_or(row.less_than(tile.extent.m), 0),
                accumulators: rows.iter().map(|row| turned(row.pairs[i].values)).collect(),
            }
        };
        Part {
            tile,
            rows: numbers.map(row).collect(),
            column,
            columns,
            pairs: (0..).step_by(8).take(rows.len()).map(|below| block * 64 + below).collect(),
            doubled: Vec::new(),
            bound: RefCell::default(),
        }
    }

    /// Computes a whole part, row by row within each pair of columns, and appends its pairs to the rows from
    /// which [`of`](Self::of) made the part.
    pub(super) fn collect<T: Held<'f>>(
        &self,
        part: &Part<'f>,
        values: &mut [Vec<[Value<'f, T>; 2]>],
        compute: &mut dyn FnMut(usize, usize) -> Pair<'f>,
    ) {
        for pair in 0..part.pairs.len() {
            for row in 0..part.rows.len() {
                let value = compute(row, pair).map(T::register);
                match self.turned {
                    Some(_) => values[pair].push(turn(part.tile.f, part.tile.thread, value)),
                    None => values[row].push(value),
                }
            }
        }
    }
}
