//! Leaves with one value per column or one value per row.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use ptx::{Builder, Value, Var};

use super::early::EarlyRow;
use super::{
    Bounded, Declare, Host, Node, NodeError, NodeTraits, Pair, Parameters, Part, Path, Shape, Visit,
};
use crate::element::{Element, Narrow};

/// A vector with one element per column, the same for all rows: for example, a bias.
#[derive(Clone, Copy, Debug)]
pub struct RowVector<T>(PhantomData<T>);

/// The vector of a [`RowVector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowArgument {
    /// Device address of its first element.
    pub address: u64,
    /// Number of elements: the number of columns.
    pub len: u32,
}

/// The vector of a [`RowVector`] on the device.
#[derive(Clone, Copy, Debug)]
pub struct RowDevice<'f> {
    base: Value<'f, u64>,
    early: Option<EarlyRow<'f>>,
}

/// The state of a [`RowVector`] for a part.
#[derive(Debug)]
pub struct RowState<'f> {
    base: Value<'f, u64>,
    /// The pairs of the whole tile, if there are registers for them.
    ahead: Vec<Loaded<'f>>,
    /// The pairs of a part, by pair of columns.
    loaded: Vec<Loaded<'f>>,
}

/// Two neighbouring elements, if the whole tile is inside.
fn load_pair<'f, T: Element>(f: &'f Builder, base: Value<'f, u64>, column: u32) -> Loaded<'f> {
    Loaded::Narrow(T::FORMAT.load_pair(f, base, (column * T::FORMAT.bytes()).cast_signed()))
}

/// A pair of elements: in the memory format, or widened.
#[derive(Clone, Copy, Debug)]
enum Loaded<'f> {
    Narrow([Narrow<'f>; 2]),
    Wide(Pair<'f>),
    Guarded([Var<'f, f32>; 2]),
}

impl<T: Element> Node for RowVector<T> {
    type Arguments = RowArgument;
    type Device<'f> = RowDevice<'f>;
    type State<'f> = RowState<'f>;
    const TRAITS: NodeTraits = NodeTraits { row_vectors: 1, ..NodeTraits::LEAF };

    fn name() -> String {
        format!("r{}", T::FORMAT.name())
    }

    fn check(vector: &RowArgument, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        path.check_len(vector.len, shape.n)?;
        path.reads(T::FORMAT, vector.address, vector.len.into())
    }

    fn pairs(vector: &RowArgument) -> bool {
        vector.address.is_multiple_of(u64::from(T::FORMAT.bits() / 4))
    }

    fn parameters(vector: &RowArgument, out: &mut Parameters) {
        out.push(vector.address);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> RowDevice<'f> {
        let base = declare.param();
        let early = if T::FORMAT.bits() == 16 { declare.early_row(base) } else { None };
        RowDevice { base, early }
    }

    fn begin<'f>(tile: &Visit<'f>, device: &RowDevice<'f>) -> RowState<'f> {
        let pairs = if tile.whole && tile.ahead { tile.columns.pairs } else { 0 };
        let base = tile.place(device.base) + tile.columns.first.mul_wide(T::FORMAT.bytes());
        let early = device.early.filter(|_| tile.whole);
        let ahead = match early.as_ref().and_then(|early| early.of(tile.columns.pairs)) {
            Some(words) => {
                let pair = |word: Var<'f, u32>| T::FORMAT.of_word(tile.f, word.get()).map(Loaded::Narrow);
                words.filter_map(pair).collect()
            }
            None => (0..pairs).map(|pair| load_pair::<T>(tile.f, base, pair * 8)).collect(),
        };
        RowState { base, ahead, loaded: Vec::new() }
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(part: &Part<'f>, state: &mut RowState<'f>) {
        let (f, base) = (part.tile.f, state.base);
        let offset = |column: u32| (column * T::FORMAT.bytes()).cast_signed();
        let load = |&column: &u32| {
            if let Some(loaded) = state.ahead.get(column as usize / 8) {
                return *loaded;
            }
            if part.tile.whole {
                return load_pair::<T>(f, base, column);
            }
            let values = [f.variable(0.0), f.variable(0.0)];
            for (column, value) in (column..).zip(values) {
                part.if_column_inside(column, || {
                    value.set(T::FORMAT.widen(T::FORMAT.load(f, base, offset(column))));
                });
            }
            Loaded::Guarded(values)
        };
        state.loaded = part.pairs.iter().map(load).collect();
    }

    fn compute<'f>(_part: &Part<'f>, state: &mut RowState<'f>, _row: usize, pair: usize) -> Pair<'f> {
        let loaded = &mut state.loaded[pair];
        let values = match *loaded {
            Loaded::Narrow(values) => values.map(|value| T::FORMAT.widen(value)),
            Loaded::Guarded(values) => values.map(Var::get),
            Loaded::Wide(values) => values,
        };
        *loaded = Loaded::Wide(values);
        values
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut RowState<'f>) {}

    fn evaluate(host: &mut Host<'_>, vector: &RowArgument, [_, column]: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, vector.address + u64::from(column) * u64::from(T::FORMAT.bytes()))
    }
}

/// A vector with one element per row, the same for all columns.
#[derive(Clone, Copy, Debug)]
pub struct ColumnVector<T>(PhantomData<T>);

/// The vector of a [`ColumnVector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnArgument {
    /// Device address of its first element.
    pub address: u64,
    /// Number of elements: the number of rows.
    pub len: u32,
}

/// The state of a [`ColumnVector`] for a tile.
#[derive(Debug)]
pub struct ColumnState<'f> {
    base: Value<'f, u64>,
    /// The rows that have been loaded.
    rows: BTreeMap<usize, Value<'f, f32>>,
}

impl<T: Element> Node for ColumnVector<T> {
    type Arguments = ColumnArgument;
    type Device<'f> = Value<'f, u64>;
    type State<'f> = ColumnState<'f>;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        format!("c{}", T::FORMAT.name())
    }

    fn check(vector: &ColumnArgument, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        path.check_len(vector.len, shape.m)?;
        path.reads(T::FORMAT, vector.address, vector.len.into())
    }

    fn pairs(_vector: &ColumnArgument) -> bool {
        true
    }

    fn parameters(vector: &ColumnArgument, out: &mut Parameters) {
        out.push(vector.address);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Value<'f, u64> {
        declare.param()
    }

    fn begin<'f>(tile: &Visit<'f>, device: &Value<'f, u64>) -> ColumnState<'f> {
        ColumnState { base: tile.place(*device), rows: BTreeMap::new() }
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(part: &Part<'f>, state: &mut ColumnState<'f>) {
        let (f, base) = (part.tile.f, state.base);
        for row in &part.rows {
            state.rows.entry(row.index).or_insert_with(|| {
                let address = base + row.row.mul_wide(T::FORMAT.bytes());
                if part.tile.whole {
                    return T::FORMAT.widen(T::FORMAT.load(f, address, 0));
                }
                let value = f.variable(0.0);
                f.if_(row.columns.more_than(0), || {
                    value.set(T::FORMAT.widen(T::FORMAT.load(f, address, 0)));
                });
                value.get()
            });
        }
    }

    fn compute<'f>(part: &Part<'f>, state: &mut ColumnState<'f>, row: usize, _pair: usize) -> Pair<'f> {
        let index = part.rows[row].index;
        [state.rows.get(&index).copied().unwrap_or_else(|| part.tile.f.constant(0.0)); 2]
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut ColumnState<'f>) {}

    fn evaluate(host: &mut Host<'_>, vector: &ColumnArgument, [row, _]: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, vector.address + u64::from(row) * u64::from(T::FORMAT.bytes()))
    }
}
