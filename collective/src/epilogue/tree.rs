//! An epilogue that is a tree.

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value, Var};

use super::store::{Access, Combine, Output, Store};
use super::{Epilogue, Extent};
use crate::element::Element;
use crate::mainloop::{Fragment, FragmentRow};
use crate::plan::{EpilogueSpec, Plan, TileNeeds};
use crate::tree::{Columns, Declare, Node, NodeError, Parameters, Part, PartRow, Path, Shape, Visit};

/// D is the value of the tree `X`, rounded to `T` and stored as `S` does it: see [`tree`](crate::tree).
///
/// ```
/// use collective::functions::{Add, Multiply};
/// use collective::tree::{Accumulator, Compute, RowVector, Scalar};
/// use collective::{Epilogue, TmaStore, TreeEpilogue};
/// use half::bf16;
///
/// /// D = alpha * acc + bias, where bias has an element for each column.
/// type Biased = Compute<Add, (Compute<Multiply, (Scalar, Accumulator)>, RowVector<bf16>)>;
/// type E = TreeEpilogue<bf16, TmaStore, Biased>;
/// assert_eq!(E::name(), "add_mul_s_acc_rbf16_tma");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TreeEpilogue<T, S, X>(PhantomData<(T, S, X)>);

/// An epilogue that is a tree: one that the host can evaluate.
pub trait HasTree: Epilogue {
    /// The tree.
    type Tree: Node<Arguments = Self::Arguments>;
}

impl<T: Element, S: Store<T>, X: Node> HasTree for TreeEpilogue<T, S, X> {
    type Tree = X;
}

/// Parameters of [`TreeEpilogue`] on the device.
#[derive(Clone, Copy, Debug)]
pub struct TreeDevice<'f, X, D> {
    tree: X,
    /// All accesses of pairs can be one.
    pairs: Value<'f, u32>,
    d: D,
}

/// Pairs of a row that are computed at a time, where the store does not say.
const PAIRS: usize = 8;

/// Registers that a thread needs for a part, beside accumulators and row vectors of all the tile.
const SPARE: u32 = 72;

impl<T: Element, S: Store<T>, X: Node> TreeEpilogue<T, S, X> {
    const HALVINGS: u32 = {
        assert!(
            X::FACTS.free == 0,
            "a Bound stands outside of the Let that it names: enclose it in Let<X, ..>"
        );
        match X::FACTS.halvings {
            Some(halvings) => halvings,
            None => 0,
        }
    };

    /// Of the groups of 8 columns of a tile, in the order in which gates and ups are taken, which one the `index`-th is.
    const fn group(index: usize) -> usize {
        let groups = X::FACTS.gate_block as usize / 8;
        if groups < 2 {
            // Alternating, or 8 and 8: as they lie.
            return index;
        }
        let (pair, up) = (index / 2, index % 2);
        pair / groups * 2 * groups + up * groups + pair % groups
    }

    /// The column of a pair that stands where column `place` was.
    const fn column(place: u32) -> u32 {
        Self::group(place as usize / 8) as u32 * 8
    }

    /// The accumulators in that order. Their columns remain those of the places that they come from.
    fn in_order<'f>(fragment: &Fragment<'f, f32>) -> Vec<Vec<Var<'f, f32>>> {
        let block = |values: &Vec<Var<'f, f32>>| {
            let groups: Vec<_> = values.chunks(4).collect();
            (0..groups.len()).filter_map(|i| groups.get(Self::group(i))).copied().flatten().copied().collect()
        };
        fragment.blocks.iter().map(block).collect()
    }

    /// The part of a tile that these rows are.
    fn part<'f>(
        tile: Visit<'f>,
        fragment: &Fragment<'f, f32>,
        block: u32,
        rows: &[FragmentRow<'f, f32>],
    ) -> Part<'f> {
        let column = rows.first().map_or_else(|| tile.f.constant(0), |row| row.column);
        let columns_of: Vec<u32> =
            rows.first().map_or_else(Vec::new, |row| row.pairs.iter().map(|pair| pair.column).collect());
        let inside =
            |column: Value<'f, u32>, n: Value<'f, u32>| (n - column).where_or(column.less_than(n), 0);
        let mut part = Part {
            tile,
            rows: (0..)
                .zip(rows)
                .map(|(index, row)| PartRow {
                    index: block as usize * rows.len() + index,
                    row: row.row,
                    columns: row.columns_inside(tile.extent),
                    accumulators: row.pairs.iter().map(|pair| pair.values).collect(),
                })
                .collect(),
            column,
            columns: inside(column, tile.extent.n),
            pairs: columns_of.iter().map(|&column| Self::column(column)).collect(),
            doubled: None,
            bound: RefCell::default(),
        };
        for _ in 0..Self::HALVINGS {
            // Of 16 neighbouring columns come 8, of which a thread holds the pair in the same place.
            let first = fragment.first[1];
            let column = (first >> 1) + (column - first);
            let n = tile.extent.n >> 1;
            let columns = inside(column, n);
            let rows = part
                .rows
                .iter()
                .map(|row| PartRow {
                    columns: columns.where_or(row.row.less_than(tile.extent.m), 0),
                    accumulators: Vec::new(),
                    ..row.clone()
                })
                .collect();
            let pairs = columns_of.iter().step_by(2).map(|column| column / 2).collect();
            part = Part {
                tile,
                rows,
                column,
                columns,
                pairs,
                doubled: Some(Box::new(part)),
                bound: RefCell::default(),
            };
        }
        part
    }
}

impl<T: Element, S: Store<T>, X: Node> Epilogue for TreeEpilogue<T, S, X> {
    type Accumulator = f32;
    type Output = T;
    type Arguments = X::Arguments;
    type Device<'f> = TreeDevice<'f, X::Device<'f>, S::Device<'f>>;
    const SPEC: EpilogueSpec = EpilogueSpec {
        staged_bits: S::STAGED_BITS,
        buffers: S::BUFFERS,
        registers: 32,
        halvings: Self::HALVINGS,
        needs: TileNeeds {
            columns: if X::FACTS.gate_block > 1 { X::FACTS.gate_block * 2 } else { 1 },
            whole: X::FACTS.whole_tiles || X::FACTS.gate_block > 8,
            rows: X::FACTS.surveys,
        },
        transposed: {
            assert!(
                !S::TRANSPOSED,
                "a tree does not know transposed tiles: store them with LinearCombination"
            );
            false
        },
        sourced: false,
    };
    const OUTPUT_ALIGNMENT: u64 = S::ALIGNMENT;

    fn name() -> String {
        format!("{}{}", X::name(), S::suffix())
    }

    fn declare<'f>(f: &'f Builder, plan: &Plan) -> Self::Device<'f> {
        let tree = X::declare(&mut Declare::new(f));
        TreeDevice { tree, pairs: f.param("pairs"), d: S::declare(f, plan) }
    }

    fn check(arguments: &X::Arguments, product: Shape) -> Result<(), NodeError> {
        if !product.n.is_multiple_of(1 << Self::HALVINGS) {
            let reason =
                format!("N is {}, a multiple of 2 was needed: the columns are gated in pairs", product.n);
            return Err(Path::ROOT.refuse(reason));
        }
        let block = X::FACTS.gate_block * 2;
        if block > 2 && !product.n.is_multiple_of(block) {
            let reason = format!(
                "N is {}, a multiple of {block} was needed: the columns are gated in blocks of {}",
                product.n,
                X::FACTS.gate_block
            );
            return Err(Path::ROOT.refuse(reason));
        }
        X::check(arguments, Shape { n: product.n >> Self::HALVINGS, ..product }, &Path::ROOT)
    }

    fn parameters(plan: &Plan, arguments: &X::Arguments, d: Output) -> Vec<Argument> {
        let mut parameters = Parameters::default();
        X::parameters(arguments, &mut parameters);
        let pair_bytes = u64::from(T::BITS / 4);
        let pairs = d.n.is_multiple_of(2)
            && d.address.is_multiple_of(pair_bytes)
            && d.pitch.is_multiple_of(2)
            && X::pairs(arguments);
        parameters.push(u32::from(pairs));
        parameters.values.extend(S::parameters(plan, d));
        parameters.values
    }

    fn store<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        extent: Extent<'f>,
        fragment: Fragment<'f, f32>,
    ) {
        let fragment = Fragment { blocks: Self::in_order(&fragment), ..fragment };
        let registers = plan.registers;
        // Beside 128 accumulators there is room for row vectors of all the tile, beside more hardly for a part's.
        let vectors = X::FACTS.row_vectors * plan.output_tile_n() / 8;
        let ahead = registers.accumulators + vectors + SPARE <= registers.consumer;
        let pairs_at_once = if registers.accumulators > 128 { PAIRS / 2 } else { PAIRS };
        let first = fragment.start()[1];
        let emit = |whole: bool| {
            let doubled = Columns { first, pairs: plan.mainloop.tile[1] / 8, n: extent.n };
            let columns = match Self::HALVINGS {
                0 => doubled,
                _ => {
                    let first = (fragment.first[1] >> 1) + (first - fragment.first[1]);
                    Columns { first, pairs: doubled.pairs / 2, n: extent.n >> 1 }
                }
            };
            let ([tile_m, tile_n, _], [cluster_m, cluster_n]) = (plan.mainloop.tile, plan.mainloop.cluster);
            let tile = Visit {
                f,
                whole,
                extent,
                displacement: None,
                thread: fragment.thread,
                ahead,
                columns,
                doubled,
                first_row: fragment.first[0],
                blocks: plan.blocks(),
                cluster_tile: [tile_m * cluster_m, tile_n * cluster_n],
                barrier: fragment.barrier(),
            };
            let state = RefCell::new(X::begin(&tile, &device.tree));
            let surveyed = Cell::new(0);
            let survey = |block: u32, state: &mut X::State<'f>| {
                let rows = fragment.rows(fragment.start(), block);
                let (pairs, step) =
                    (rows.first().map_or(0, |row| row.pairs.len()), pairs_at_once << Self::HALVINGS);
                for first in (0..pairs).step_by(step) {
                    let rows: Vec<_> = rows.iter().map(|row| row.part(first, step)).collect();
                    X::survey(&Self::part(tile, &fragment, block, &rows), state);
                }
            };
            let values = |block: u32, rows: &[FragmentRow<'f, f32>]| {
                let state = &mut *state.borrow_mut();
                if X::FACTS.surveys && surveyed.get() == block {
                    survey(block, state);
                    surveyed.set(block + 1);
                }
                let pairs = rows.first().map_or(0, |row| row.pairs.len());
                let mut values = vec![Vec::new(); rows.len()];
                let step = pairs_at_once << Self::HALVINGS;
                for first in (0..pairs).step_by(step) {
                    let rows: Vec<_> = rows.iter().map(|row| row.part(first, step)).collect();
                    let part = Self::part(tile, &fragment, block, &rows);
                    X::load(&part, state);
                    for pair in 0..part.pairs.len() {
                        for (row, values) in values.iter_mut().enumerate() {
                            values.push(X::compute(&part, state, row, pair));
                        }
                    }
                }
                values
            };
            let combine = Combine { pairs_at_once: Some(PAIRS), values: &values };
            let access = Access { pairs: whole, whole, copies: whole || !plan.form.shares_rows() };
            S::store(f, plan, device.d, extent, &fragment, access, combine);
            X::end(&tile, &mut state.borrow_mut());
        };
        let [m, n] = fragment.first;
        let (rows, columns) = (plan.blocks() * 64, plan.mainloop.tile[1]);
        let whole = (m + rows).at_most(extent.m) & (n + columns).at_most(extent.n);
        f.if_else(whole & device.pairs.differs_from(0), || emit(true), || emit(false));
    }

    fn finish(f: &Builder, plan: &Plan, thread: Value<'_, u32>) {
        S::finish(f, plan, thread);
    }
}
