//! An epilogue that is a tree.

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value};

use super::parts::{Order, Parts};
use super::store::{Access, Combine, Output, Store};
use super::{Epilogue, Extent};
use crate::element::Element;
use crate::form::Form;
use crate::form::Forms;
use crate::mainloop::{Consumer, Fragment, FragmentRow, Piece, begin, output_elements};
use crate::plan::{EpilogueSpec, Plan, TileNeeds};
use crate::tree::{Declare, EarlyRow, Facts, Node, NodeError, Parameters, Path, Shape};

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
    /// What is loaded before a tile is multiplied.
    early: Option<EarlyRow<'f>>,
    /// All accesses of pairs can be one.
    pairs: Value<'f, u32>,
    d: D,
}

/// Pairs of a row that are computed at a time, where the store does not say.
const PAIRS: usize = 8;

/// Registers that a thread needs for a part, beside accumulators and row vectors of all the tile, where functions need no more
/// than [`USUAL`].
const SPARE: u32 = 72;

/// Registers that most functions do with.
const USUAL: u32 = 16;

/// Registers more, where row vectors are loaded before the tile is multiplied: measured with ptxas, which spilled a fast GELU.
const MULTIPLYING: u32 = 8;

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

    /// Whether registers are left for the row vectors of all the tile, and for so many others.
    fn ahead(plan: &Plan, others: u32) -> bool {
        let registers = plan.registers;
        // Beside 128 accumulators there is room for row vectors of all the tile, beside more hardly for a part's.
        let vectors = X::FACTS.row_vectors * plan.output_tile_n() / 8;
        let spare = SPARE + X::FACTS.registers.saturating_sub(USUAL);
        !S::TRANSPOSED && registers.accumulators + vectors + spare + others <= registers.consumer
    }

    /// Pairs that a thread loads of the tree's one row vector before a tile is multiplied; 0 where it loads them behind it.
    fn early(plan: &Plan) -> usize {
        let one = X::FACTS.row_vectors == 1 && Self::HALVINGS == 0 && matches!(plan.form, Form::Single);
        let pairs = if one && plan.mainloop.step == 0 && Self::ahead(plan, MULTIPLYING) {
            plan.output_tile_n() / 8
        } else {
            0
        };
        pairs as usize
    }
}

impl<T: Element, S: Store<T>, X: Node> Epilogue for TreeEpilogue<T, S, X> {
    type Accumulator = f32;
    type Output = T;
    type Arguments = X::Arguments;
    type Device<'f> = TreeDevice<'f, X::Device<'f>, S::Device<'f>>;
    const FORMS: Forms = Forms::ALL;
    const SPEC: EpilogueSpec = EpilogueSpec {
        staged_bits: S::STAGED_BITS,
        buffers: S::BUFFERS,
        registers: 32,
        halvings: Self::HALVINGS,
        split: X::FACTS.gate_block == Facts::SPLIT,
        needs: TileNeeds {
            columns: match X::FACTS.gate_block {
                0 | 1 => 1,
                Facts::SPLIT => 16,
                block => block * 2,
            },
            whole: X::FACTS.whole_tiles || X::FACTS.gate_block > 8,
            single: X::FACTS.whole_tiles,
            rows: X::FACTS.surveys,
        },
        transposed: {
            assert!(
                !(S::TRANSPOSED && Self::HALVINGS > 0),
                "rows of a transposed tile are D's columns, and gates join columns of a tile: leave Transposed out"
            );
            assert!(
                !(S::TRANSPOSED && X::FACTS.whole_tiles),
                "ordered reductions and TopKSoftmax look along the rows of a tile, which are D's columns where the store \
                 is Transposed: reduce with ReduceRow, ReduceColumn or ReduceScalar, or leave Transposed out"
            );
            S::TRANSPOSED
        },
        sourced: false,
    };
    const OUTPUT_ALIGNMENT: u64 = S::ALIGNMENT;

    fn name() -> String {
        format!("{}{}", X::name(), S::suffix())
    }

    fn declare<'f>(f: &'f Builder, plan: &Plan) -> Self::Device<'f> {
        let mut declare = Declare::ahead(f, Self::early(plan));
        let tree = X::declare(&mut declare);
        TreeDevice { tree, early: declare.early(), pairs: f.param("pairs"), d: S::declare(f, plan) }
    }

    fn check(arguments: &X::Arguments, product: Shape) -> Result<(), NodeError> {
        if !product.n.is_multiple_of(1 << Self::HALVINGS) {
            let reason =
                format!("N is {}, a multiple of 2 was needed: the columns are gated in pairs", product.n);
            return Err(Path::ROOT.refuse(reason));
        }
        let block = if X::FACTS.gate_block == Facts::SPLIT { 0 } else { X::FACTS.gate_block * 2 };
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

    fn begin<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        extent: Extent<'f>,
        consumer: Consumer<'f>,
        piece: Piece<'f>,
    ) {
        let Some(early) = device.early else { return };
        let elements = output_elements(plan).expect("a plan admits only tiles that wgmma multiplies");
        let places = [Some(consumer.thread), Some(consumer.part)];
        let [_, column] = begin(&elements, [piece.m, piece.n], places);
        let whole = (piece.n + plan.mainloop.tile[1]).at_most(extent.n) & device.pairs.differs_from(0);
        early.load(f, column, whole);
    }

    fn store<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        extent: Extent<'f>,
        fragment: Fragment<'f, f32>,
    ) {
        let order = Order { gate_block: X::FACTS.gate_block, groups: plan.mainloop.tile[1] / 8 };
        let fragment = Fragment { blocks: order.of(&fragment), ..fragment };
        let ahead = Self::ahead(plan, 0);
        let pairs_at_once = if plan.registers.accumulators > 128 { PAIRS / 2 } else { PAIRS };
        let step = pairs_at_once << Self::HALVINGS;
        let emit = |whole: bool| {
            let parts = Parts::new(f, plan, extent, &fragment, order, [whole, ahead]);
            let tile = parts.tile;
            let state = RefCell::new(X::begin(&tile, &device.tree));
            let surveyed = Cell::new(0);
            let survey = |block: u32, state: &mut X::State<'f>| {
                let rows = fragment.rows(fragment.start(), block);
                let pairs = rows.first().map_or(0, |row| row.pairs.len());
                for first in (0..pairs).step_by(step) {
                    let rows: Vec<_> = rows.iter().map(|row| row.part(first, step)).collect();
                    X::survey(&parts.of(block, &rows), state);
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
                for first in (0..pairs).step_by(step) {
                    let rows: Vec<_> = rows.iter().map(|row| row.part(first, step)).collect();
                    let part = parts.of(block, &rows);
                    X::load(&part, state);
                    parts.collect(&part, &mut values, &mut |row, pair| X::compute(&part, state, row, pair));
                }
                values
            };
            let combine = Combine { pairs_at_once: Some(PAIRS), values: &values };
            let access = Access {
                pairs: whole,
                whole,
                copies: !plan.form.described() && (whole || !plan.form.shares_rows()),
            };
            S::store(f, plan, device.d, extent, &fragment, access, combine);
            X::end(&tile, &mut state.borrow_mut());
        };
        let [m, n] = fragment.first;
        let (rows, columns) = (plan.blocks() * 64, plan.mainloop.tile[1]);
        let whole = (m + rows).at_most(extent.m) & (n + columns).at_most(extent.n);
        let mut pairs = device.pairs.differs_from(0);
        if let Some(record) = extent.record {
            // Transposed rows are columns of the caller's.
            let columns = if S::TRANSPOSED { extent.m } else { extent.n };
            pairs = pairs & record.d(f).pairs::<T>(columns >> Self::HALVINGS);
        }
        f.if_else(whole & pairs, || emit(true), || emit(false));
    }

    fn finish(f: &Builder, plan: &Plan, thread: Value<'_, u32>) {
        S::finish(f, plan, thread);
    }
}
