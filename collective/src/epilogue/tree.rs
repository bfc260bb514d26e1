//! The tree epilogue: an epilogue visitor tree with a store.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use ptx::{Builder, Value};

use super::direct;
use super::parts::{Held, Order, Parts};
use super::store::{Access, Combine, Store, StoreDevice, StoreSpec, Stored};
use super::{AnyEpilogue, DeviceEpilogue, Emitter, Epilogue, EpilogueSite, OnDevice, Pass};
use crate::element::Element;
use crate::extent::Extent;
use crate::form::{Form, Forms};
use crate::formula::{Formula, Lowered};
use crate::mainloop::{Consumer, Fragment, FragmentRow, begin};
use crate::operands::Visit;
use crate::plan::{EpilogueSpec, Plan, TileNeeds};
use crate::tree::{
    AnyNode, Arithmetic, Begin, Bounded, EarlyRow, Given, Host, Node, NodeState, NodeTraits, Site,
};

/// An epilogue whose D is the value of the tree `X`, rounded to `T` and stored by `S`. For the nodes see
/// [`tree`](crate::tree).
///
/// ```
/// use collective::functions::{Add, Multiply};
/// use collective::tree::{Accumulator, Compute, RowVector, Scalar};
/// use collective::{Epilogue, TmaStore, TreeEpilogue};
/// use half::bf16;
///
/// /// D = alpha * acc + bias, where bias has one element per column.
/// type Biased = Compute<Add, (Compute<Multiply, (Scalar, Accumulator)>, RowVector<bf16>)>;
/// type E = TreeEpilogue<bf16, TmaStore, Biased>;
/// assert_eq!(E::name(), "add_mul_s_acc_rbf16_tma");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TreeEpilogue<T, S, X>(PhantomData<(T, S, X)>);

/// Pairs of a row that are computed at a time, unless the store sets the number.
const PAIRS: usize = 8;

/// Registers a thread needs per part, in addition to accumulators and row vectors of the whole tile, if no
/// function needs more than [`USUAL`].
const SPARE: u32 = 72;

/// Registers that suffice for most functions.
const USUAL: u32 = 16;

/// Additional registers if row vectors are loaded before the tile is multiplied. Measured with ptxas, which
/// spilled a fast GELU.
const MULTIPLYING: u32 = 8;

impl<T: Element, S: Store, X: Node> TreeEpilogue<T, S, X> {
    const STORE: StoreSpec = StoreSpec::of::<S>(T::FORMAT);
}

impl<T: Element, S: Store, X: Node> Epilogue for TreeEpilogue<T, S, X> {
    type Arguments = X::Arguments;
    const SPEC: EpilogueSpec = match spec(X::TRAITS, Self::STORE) {
        Ok(spec) => spec,
        Err(sentence) => panic!("{}", sentence),
    };
    const FORMS: Forms = Forms::ALL;

    fn name() -> String {
        Treed::<X>::new(Self::STORE).name()
    }

    fn visit(arguments: &mut X::Arguments, of: &EpilogueSite<'_>, site: &mut Site<'_>) {
        Treed::<X>::new(Self::STORE).visit(arguments, of, site);
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
        Treed::<X>::new(Self::STORE).device(f, plan)
    }

    fn evaluate(host: &mut Host<'_>, arguments: &X::Arguments, at: [u32; 2]) -> Bounded {
        X::evaluate(host, arguments, at)
    }

    fn value() -> AnyEpilogue {
        Treed::<X>::new(Self::STORE).into()
    }
}

/// What a tree with these traits asks of the plan.
///
/// # Errors
/// A sentence, if the tree cannot be stored in this way.
pub(crate) const fn spec(traits: NodeTraits, store: StoreSpec) -> Result<EpilogueSpec, &'static str> {
    if traits.free > 0 {
        return Err("a Bound stands outside of the Let that it names: enclose it in Let<X, ..>");
    }
    if !traits.computes_in(Arithmetic::of(store.format)) {
        return Err(
            "D is s32 or f64, and the tree is computed in that: gates, reductions, masks, rotations, quantisers and softmax \
             compute in f32 alone, s32 reads and writes integers alone, and f64 writes f64 and f32",
        );
    }
    if store.transposed && traits.halved() > 0 {
        return Err(
            "rows of a transposed tile are D's columns, and gates join columns of a tile: leave Transposed out",
        );
    }
    if store.transposed && (traits.whole_tiles || traits.surveys) {
        return Err(
            "ordered reductions, TopKSoftmax and Quantize look along the rows of a tile, which are D's columns where the store \
             is Transposed: reduce with ReduceRow, ReduceColumn or ReduceScalar, or leave Transposed out",
        );
    }
    Ok(EpilogueSpec {
        registers: 32,
        halvings: traits.halved(),
        split: traits.gate_block == NodeTraits::SPLIT,
        needs: TileNeeds {
            columns: match traits.gate_block {
                0 | 1 => 1,
                NodeTraits::SPLIT => 16,
                block => block * 2,
            },
            whole: traits.whole_tiles || traits.gate_block > 8 || traits.block > 0,
            single: traits.whole_tiles,
            rows: traits.surveys && traits.block == 0,
            block: traits.block,
            stores: traits.stores,
        },
        ..EpilogueSpec::of(store)
    })
}

/// [`TreeEpilogue`] with its store as a value. The tree is a type, or a [`Formula`]'s.
pub struct Treed<X: Node> {
    /// How D is stored.
    pub store: StoreSpec,
    traits: NodeTraits,
    /// The tree, if it is a value.
    value: Option<Lowered>,
    /// Its arguments, with addresses of 0.
    none: fn(Option<Lowered>) -> X::Arguments,
}

impl Treed<AnyNode> {
    /// The tree of a formula with a store.
    pub fn lowered(tree: Lowered, store: StoreSpec) -> Self {
        let none = |tree: Option<Lowered>| tree.map_or_else(Default::default, Lowered::none);
        Self { store, traits: tree.traits(), value: Some(tree), none }
    }
}

impl<X: Node> Treed<X> {
    /// The tree with a store.
    pub const fn new(store: StoreSpec) -> Self {
        Self { store, traits: X::TRAITS, value: None, none: |_| X::Arguments::default() }
    }

    /// What it computes in.
    fn arithmetic(&self) -> Arithmetic {
        self.value.map_or(Arithmetic::of(self.store.format), Lowered::arithmetic)
    }

    /// As [`Epilogue::visit`].
    pub fn visit(&self, arguments: &mut X::Arguments, of: &EpilogueSite<'_>, site: &mut Site<'_>) {
        let (traits, shape) = (self.traits, of.shape());
        let n = of.n.unwrap_or(shape.n << traits.halved());
        let block = if traits.gate_block == NodeTraits::SPLIT { 0 } else { traits.gate_block * 2 };
        if !n.is_multiple_of(1 << traits.halved()) {
            site.refuse(format!("N is {n}, a multiple of 2 was needed: the columns are gated in pairs"));
        } else if block > 2 && !n.is_multiple_of(block) {
            let gates = traits.gate_block;
            site.refuse(format!(
                "N is {n}, a multiple of {block} was needed: the columns are gated in blocks of {gates}"
            ));
        }
        let arithmetic = self.arithmetic();
        let Some(plan) = of.plan else {
            return X::visit(arguments, shape, &mut site.computing_in(arithmetic));
        };
        let pairs = site.stating(arithmetic, |site| X::visit(arguments, shape, site));
        let whole = of.output.map(|d| {
            let pair_bytes = u64::from(self.store.format.bits() / 4);
            d.n.is_multiple_of(2) && d.address.is_multiple_of(pair_bytes) && d.ld.is_multiple_of(2)
        });
        site.visit.number(IN_PAIRS, whole.map(|whole| u32::from(whole && pairs)));
        self.store.state(plan, of.output, site.visit);
    }

    /// The epilogue's name.
    pub fn name(&self) -> String {
        format!("{}{}", self.tree_name(), self.store.suffix())
    }

    /// The tree's name.
    pub fn tree_name(&self) -> String {
        self.value.map_or_else(X::name, |tree| tree.name().to_owned())
    }

    /// Number of pairs of the tree's one row vector that a thread loads before a tile is multiplied; 0 if it
    /// loads them afterwards.
    fn early(&self, plan: &Plan) -> usize {
        let one =
            self.traits.row_vectors == 1 && self.traits.halved() == 0 && matches!(plan.form, Form::Single);
        let early = one
            && plan.mainloop.step == 0
            && ahead(self.traits, self.store, plan, MULTIPLYING + plan.mainloop.registers);
        let pairs = if early { plan.output_tile_n() / 8 } else { 0 };
        pairs as usize
    }
}

/// Whether there are registers for the row vectors of the whole tile, and for `others` more.
fn ahead(traits: NodeTraits, store: StoreSpec, plan: &Plan, others: u32) -> bool {
    let registers = plan.registers;
    // In addition to 128 accumulators there are registers for row vectors of the whole tile; in addition to
    // more, barely for those of a part.
    let vectors = traits.row_vectors * plan.output_tile_n() / 8;
    let spare = SPARE + traits.registers.saturating_sub(USUAL);
    !store.transposed && registers.accumulators + vectors + spare + others <= registers.consumer
}

impl<X: Node> fmt::Debug for Treed<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Treed").field("tree", &self.tree_name()).field("store", &self.store).finish()
    }
}

impl<X: Node> From<Treed<X>> for AnyEpilogue {
    fn from(tree: Treed<X>) -> Self {
        Self(Arc::new(tree))
    }
}

impl<X: Node> Emitter for Treed<X> {
    fn store(&self) -> Option<StoreSpec> {
        Some(self.store)
    }

    fn formula(&self) -> Option<Formula> {
        match self.value {
            Some(tree) => Some(tree.formula()),
            None => Formula::of_tree::<X>(),
        }
    }

    fn name(&self) -> String {
        Self::name(self)
    }

    fn state(&self, of: &EpilogueSite<'_>, visit: &mut dyn Visit) {
        self.visit(&mut (self.none)(self.value), of, &mut Site::root(1, visit));
    }

    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
        let items = self.value.map_or(&[][..], Lowered::items);
        let mut given = Given::new(f, self.arithmetic(), self.early(plan), items);
        let tree = X::device(&mut given);
        DeviceEpilogue::of(TreeDevice {
            arithmetic: self.arithmetic(),
            tree,
            early: given.early(),
            pairs: f.parameter(IN_PAIRS),
            d: self.store.device(f, plan),
            store: self.store,
            traits: self.traits,
        })
    }
}

/// The name of the kernel parameter that says whether every access to a pair can be one access.
const IN_PAIRS: &str = "pairs";

/// Parameters of [`Treed`] on the device.
struct TreeDevice<'f> {
    arithmetic: Arithmetic,
    store: StoreSpec,
    traits: NodeTraits,
    tree: Begin<'f>,
    /// The row vector that is loaded before a tile is multiplied.
    early: Option<EarlyRow<'f>>,
    /// Nonzero if every access to a pair can be one access.
    pairs: Value<'f, u32>,
    d: StoreDevice<'f>,
}

impl<'f> TreeDevice<'f> {
    /// Emits the tree for a fragment of a tile. `store` stores it.
    fn emit<T: Held<'f>>(
        &self,
        f: &'f Builder,
        plan: &Plan,
        extent: Extent<'f>,
        fragment: Fragment<'f, T>,
        store: &dyn Fn(&Stored<'_, 'f, T>, Combine<'_, 'f, T>),
    ) {
        let halvings = plan.epilogue.halvings;
        let order = Order { gate_block: self.traits.gate_block, groups: plan.mainloop.tile[1] / 8 };
        let fragment = Fragment { blocks: order.of(&fragment), ..fragment };
        let ahead = ahead(self.traits, self.store, plan, 0);
        let pairs_at_once = if plan.registers.accumulators > 128 { PAIRS / 2 } else { PAIRS };
        let step = pairs_at_once << halvings;
        let emit = |whole: bool| {
            let parts = Parts::new((f, self.arithmetic), plan, extent, &fragment, order, [whole, ahead]);
            let tile = parts.tile;
            let state = RefCell::new((self.tree)(&tile));
            let surveyed = Cell::new(0);
            let survey = |block: u32, state: &mut dyn NodeState<'f>| {
                let rows = fragment.rows(fragment.start(), block);
                let pairs = rows.first().map_or(0, |row| row.pairs.len());
                for first in (0..pairs).step_by(step) {
                    let rows: Vec<_> = rows.iter().map(|row| row.part(first, step)).collect();
                    state.survey(&parts.of(block, &rows));
                }
            };
            let values = |block: u32, rows: &[FragmentRow<'f, T>]| {
                let state = &mut **state.borrow_mut();
                if self.traits.surveys && surveyed.get() == block {
                    survey(block, state);
                    surveyed.set(block + 1);
                }
                let pairs = rows.first().map_or(0, |row| row.pairs.len());
                let mut values = vec![Vec::new(); rows.len()];
                for first in (0..pairs).step_by(step) {
                    let rows: Vec<_> = rows.iter().map(|row| row.part(first, step)).collect();
                    let part = parts.of(block, &rows);
                    state.load(&part);
                    parts.collect(&part, &mut values, &mut |row, pair| state.compute(&part, row, pair));
                }
                values
            };
            let combine = Combine {
                pairs_at_once: Some(PAIRS),
                reads: true,
                turns: self.store.transposed,
                values: &values,
            };
            let access = Access {
                pairs: whole,
                whole,
                copies: !plan.form.described() && (whole || !plan.form.shares_rows()),
            };
            store(&Stored { extent, fragment: &fragment, access }, combine);
            state.borrow_mut().end(&tile);
        };
        let [m, n] = fragment.first;
        let (rows, columns) = (plan.blocks() * plan.block_rows(), plan.mainloop.tile[1]);
        let whole = (m + rows).at_most(extent.m) & (n + columns).at_most(extent.n);
        let mut pairs = self.pairs.differs_from(0);
        if let Some(record) = extent.record {
            // Rows of a transposed tile are columns of the caller's D.
            let columns = if self.store.transposed { extent.m } else { extent.n };
            pairs = pairs & record.d(f).pairs(self.store.format, columns >> halvings);
        }
        f.if_else(whole & pairs, || emit(true), || emit(false));
    }
}

impl<'f> OnDevice<'f> for TreeDevice<'f> {
    fn begin(&self, Pass { f, plan, unit, .. }: Pass<'_, 'f>, extent: Extent<'f>, consumer: Consumer<'f>) {
        let Some(early) = self.early else { return };
        let elements = plan.mainloop.product().elements();
        let places = [Some(consumer.thread), Some(consumer.part)];
        let [_, column] = begin(&elements, [unit.m, unit.n], places);
        let whole = (unit.n + plan.mainloop.tile[1]).at_most(extent.n) & self.pairs.differs_from(0);
        early.load(f, column, whole);
    }

    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>) {
        let store = self.store.moved();
        self.emit(f, plan, extent, fragment, &|tile, combine| store.store(f, plan, self.d, tile, combine));
    }

    fn store_integers(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, i32>) {
        let whole = self.arithmetic == Arithmetic::S32;
        self.store(f, plan, extent, if whole { fragment.bits(f) } else { fragment.to_f32(f) });
    }

    fn store_doubles(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f64>) {
        let (StoreDevice::Direct(device), Arithmetic::F64) = (self.d, self.arithmetic) else {
            f.refuse("f64 accumulators are stored as f64, straight from registers: use DirectStore, and a D of f64");
            return;
        };
        self.emit(f, plan, extent, fragment, &|tile, combine| {
            direct::store(self.store.format, f, plan, device, tile, combine);
        });
    }

    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>) {
        self.store.finish(f, plan, thread);
    }
}
