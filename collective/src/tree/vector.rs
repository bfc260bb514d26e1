//! Leaves with one value per column or one value per row.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use ptx::Value;

use super::matrix::Loaded;
use super::{
    Begin, Bounded, Given, Host, Node, NodeState, NodeTraits, Number, Pair, Part, Shape, Site, Spell, State,
    Supplied, Supply,
};
use crate::element::{Element, Format};

/// A vector with one element per column, the same for all rows: for example, a bias.
#[derive(Clone, Copy, Debug)]
pub struct RowVector<T>(PhantomData<T>);

/// The vector of a [`RowVector`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowArgument {
    /// Device address of its first element.
    pub address: u64,
    /// Number of elements: the number of columns.
    pub len: u32,
}

/// The state of a [`RowVector`] for a part.
struct RowState<'f> {
    format: Format,
    base: Value<'f, u64>,
    /// The pairs of the whole tile, if there are registers for them.
    ahead: Vec<Loaded<'f>>,
    /// The pairs of a part, by pair of columns.
    loaded: Vec<Loaded<'f>>,
}

impl<'f> NodeState<'f> for RowState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut []
    }

    fn load(&mut self, part: &Part<'f>) {
        let inside = |column, load: &dyn Fn()| part.if_column_inside(column, load);
        let load = |&column: &u32| match self.ahead.get(column as usize / 8) {
            Some(loaded) => *loaded,
            None => Loaded::new(self.format, part, self.base, column, &inside),
        };
        self.loaded = part.pairs.iter().map(load).collect();
    }

    fn compute(&mut self, part: &Part<'f>, _row: usize, pair: usize) -> Pair<'f> {
        // All rows share the widened pair.
        let values = self.loaded[pair].widen(part, self.format);
        self.loaded[pair] = Loaded::Wide(values);
        values
    }
}

impl<T: Element> Node for RowVector<T> {
    type Arguments = RowArgument;
    const TRAITS: NodeTraits = NodeTraits { row_vectors: 1, ..NodeTraits::reading(T::FORMAT) };

    fn name() -> String {
        format!("r{}", T::FORMAT.name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit(vector: &mut RowArgument, shape: Shape, site: &mut Site<'_>) {
        site.len(vector.len, shape.n);
        site.reads(T::FORMAT, &mut vector.address, vector.len.into());
        site.visit.in_pairs(vector.address.is_multiple_of(u64::from(T::FORMAT.bits() / 4)));
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let vector = given.parameter();
        let early = if T::FORMAT.bits() == 16 { given.early_row(vector) } else { None };
        Box::new(move |tile| {
            let pairs = if tile.whole && tile.ahead { tile.columns.pairs } else { 0 };
            let base = tile.place(vector) + tile.columns.first.mul_wide(T::FORMAT.bytes());
            let early = early.filter(|_| tile.whole);
            let ahead = match early.as_ref().and_then(|early| early.of(tile.columns.pairs)) {
                Some(words) => words.filter_map(|word| T::FORMAT.of_word(tile.f, word.get())).collect(),
                None => {
                    let load = |pair: u32| {
                        T::FORMAT.load_pair(tile.f, base, (pair * 8 * T::FORMAT.bytes()).cast_signed())
                    };
                    (0..pairs).map(load).collect::<Vec<_>>()
                }
            };
            let ahead = ahead.into_iter().map(Loaded::Narrow).collect();
            Box::new(RowState { format: T::FORMAT, base, ahead, loaded: Vec::new() })
        })
    }

    fn evaluate(host: &mut Host<'_>, vector: &RowArgument, [_, column]: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, vector.address + u64::from(column) * u64::from(T::FORMAT.bytes()))
    }
}

impl<T: Element> Supplied for RowVector<T> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        RowArgument { address: from.vector(T::FORMAT, shape.n), len: shape.n }
    }
}

/// A vector with one element per row, the same for all columns.
#[derive(Clone, Copy, Debug)]
pub struct ColumnVector<T>(PhantomData<T>);

/// The vector of a [`ColumnVector`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnArgument {
    /// Device address of its first element.
    pub address: u64,
    /// Number of elements: the number of rows.
    pub len: u32,
}

/// The state of a [`ColumnVector`] for a tile.
struct ColumnState<'f> {
    format: Format,
    base: Value<'f, u64>,
    /// The rows that have been loaded.
    rows: BTreeMap<usize, Number<'f>>,
}

impl<'f> NodeState<'f> for ColumnState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut []
    }

    fn load(&mut self, part: &Part<'f>) {
        let (f, base, format, arithmetic) = (part.tile.f, self.base, self.format, part.tile.arithmetic);
        for row in &part.rows {
            self.rows.entry(row.index).or_insert_with(|| {
                let address = base + row.row.mul_wide(format.bytes());
                if part.tile.whole {
                    return arithmetic.widen(format, format.load(f, address, 0));
                }
                let value = arithmetic.variable(f);
                let load = || arithmetic.widen(format, format.load(f, address, 0));
                f.if_(row.columns.more_than(0), || value.set(load()));
                value.get()
            });
        }
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, _pair: usize) -> Pair<'f> {
        let index = part.rows[row].index;
        [self.rows.get(&index).copied().unwrap_or_else(|| part.tile.arithmetic.constant(part.tile.f, 0.0)); 2]
    }
}

impl<T: Element> Node for ColumnVector<T> {
    type Arguments = ColumnArgument;
    const TRAITS: NodeTraits = NodeTraits::reading(T::FORMAT);

    fn name() -> String {
        format!("c{}", T::FORMAT.name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit(vector: &mut ColumnArgument, shape: Shape, site: &mut Site<'_>) {
        site.len(vector.len, shape.m);
        site.reads(T::FORMAT, &mut vector.address, vector.len.into());
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let vector = given.parameter();
        Box::new(move |tile| {
            Box::new(ColumnState { format: T::FORMAT, base: tile.place(vector), rows: BTreeMap::new() })
        })
    }

    fn evaluate(host: &mut Host<'_>, vector: &ColumnArgument, [row, _]: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, vector.address + u64::from(row) * u64::from(T::FORMAT.bytes()))
    }
}

impl<T: Element> Supplied for ColumnVector<T> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        ColumnArgument { address: from.vector(T::FORMAT, shape.m), len: shape.m }
    }
}
