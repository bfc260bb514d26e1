//! Reductions of a tree's values along rows, along columns, or over all elements, by atomic operations.
//!
//! Results are `f32` in device memory. The values already there take part, so callers fill them with
//! [`Reduce::IDENTITY`] first. The hardware determines the order of additions, so the last bits of sums
//! differ from run to run; those of maxima do not. For the same bits in every run, see
//! [`OrderedRow`](super::OrderedRow).

use core::marker::PhantomData;
use std::collections::BTreeMap;

use ptx::inst::{AtomicOp, AtomicSem, Scope};
use ptx::{Builder, Location, Value};

use super::{
    Begin, Bounded, ColumnArgument, Given, Host, Node, NodeState, NodeTile, NodeTraits, Number, Pair, Part,
    RowArgument, Shape, Site, Spell, State, Supplied, Supply,
};
use crate::real::Real;

/// A reduction of many numbers to one.
#[diagnostic::on_unimplemented(message = "`{Self}` is no reduction", note = "write `Sum`, `Max` or `Amax`")]
pub trait Reduce: 'static {
    /// The neutral element: combined with it, every number's [`element`](Self::element) stays as it is.
    const IDENTITY: f32;

    /// An identifier for kernel names.
    fn name() -> &'static str;

    /// Maps a number to the element that is reduced.
    fn element<R: Real>(x: R) -> R;

    /// Combines two elements.
    fn combine<R: Real>(a: R, b: R) -> R;

    /// Emits an atomic combination with a number in global memory.
    fn store<'f>(f: &'f Builder, address: Value<'f, u64>, value: Value<'f, f32>);

    /// The oracle of a whole reduction: the final value in memory if it was `before` at first, with a bound
    /// on the error a kernel may have.
    ///
    /// `elements` are the results of [`element`](Self::element) for all values, each with its own error, in
    /// no particular order. A kernel combines them in any order and grouping, by [`combine`](Self::combine)
    /// in `f32` and [`store`](Self::store) in memory. So the bound must hold for all orders: it must include
    /// every element's own error and every rounding of [`combine`](Self::combine). Without elements, the
    /// result is `before`.
    fn combine_all(before: f64, elements: &[Bounded]) -> Bounded;
}

impl Host<'_> {
    /// Records an element whose value is reduced to the `f32` at an address.
    pub fn reduce<O: Reduce>(&mut self, address: u64, at: [u32; 2], value: Bounded) {
        self.note_reduced(O::combine_all, address, at, O::element(value));
    }
}

/// The sum.
#[derive(Clone, Copy, Debug)]
pub struct Sum;

/// The largest value; NaN if any value is NaN.
#[derive(Clone, Copy, Debug)]
pub struct Max;

/// The largest magnitude, as needed to scale 8-bit outputs; NaN if any value is NaN.
#[derive(Clone, Copy, Debug)]
pub struct Amax;

const ORDER: (AtomicSem, Scope) = (AtomicSem::Relaxed, Scope::Gpu);

impl Reduce for Sum {
    const IDENTITY: f32 = 0.0;

    fn name() -> &'static str {
        "sum"
    }

    fn element<R: Real>(x: R) -> R {
        x
    }

    fn combine<R: Real>(a: R, b: R) -> R {
        a + b
    }

    fn store<'f>(f: &'f Builder, address: Value<'f, u64>, value: Value<'f, f32>) {
        f.reduce(AtomicOp::Add, Location::global(address, 0), [value], ORDER);
    }

    /// Each addition rounds once, in any order: at most 2^-24 of the sum of all magnitudes.
    fn combine_all(before: f64, elements: &[Bounded]) -> Bounded {
        let sum = before + elements.iter().map(|x| x.value).sum::<f64>();
        let errors: f64 = elements.iter().map(|x| x.error).sum();
        let magnitudes = before.abs() + elements.iter().map(|x| x.value.abs() + x.error).sum::<f64>();
        let additions = elements.len() as f64 + 1.0;
        let error = errors + additions * magnitudes / 16_777_216.0 + additions * f64::from(f32::MIN_POSITIVE);
        Bounded::new(sum, error)
    }
}

/// The largest value. Each element's error may shift it.
fn largest(before: f64, elements: impl Iterator<Item = Bounded>) -> Bounded {
    elements.fold(Bounded::exact(before), |all, x| {
        let value = Real::max_nan(all.value, x.value);
        Bounded { value, error: Real::max(all.error, x.error) }
    })
}

impl Reduce for Max {
    const IDENTITY: f32 = f32::NEG_INFINITY;

    fn name() -> &'static str {
        "max"
    }

    fn element<R: Real>(x: R) -> R {
        x
    }

    fn combine<R: Real>(a: R, b: R) -> R {
        a.max_nan(b)
    }

    /// The bits of positive floats are ordered as signed integers; those of negative floats in reverse order.
    fn store<'f>(f: &'f Builder, address: Value<'f, u64>, value: Value<'f, f32>) {
        let (bits, place) = (value.bits_as::<i32>(), Location::global(address, 0));
        f.if_else(
            bits.at_least(0),
            || f.reduce(AtomicOp::Max, place, [bits], ORDER),
            || f.reduce(AtomicOp::Min, place, [bits.bits_as::<u32>()], ORDER),
        );
    }

    fn combine_all(before: f64, elements: &[Bounded]) -> Bounded {
        largest(before, elements.iter().copied())
    }
}

impl Reduce for Amax {
    const IDENTITY: f32 = 0.0;

    fn name() -> &'static str {
        "absmax"
    }

    fn element<R: Real>(x: R) -> R {
        x.abs()
    }

    fn combine<R: Real>(a: R, b: R) -> R {
        a.max_nan(b)
    }

    /// Floats that are not negative are ordered as their bits.
    fn store<'f>(f: &'f Builder, address: Value<'f, u64>, value: Value<'f, f32>) {
        f.reduce(AtomicOp::Max, Location::global(address, 0), [value.bits_as::<u32>()], ORDER);
    }

    fn combine_all(before: f64, elements: &[Bounded]) -> Bounded {
        largest(before, elements.iter().copied())
    }
}

/// Combines the values of the lanes whose indices differ in the bits of `masks`.
pub(super) fn across<'f, O: Reduce>(f: &'f Builder, value: Value<'f, f32>, masks: &[u32]) -> Value<'f, f32> {
    masks.iter().fold(value, |value, &mask| O::combine(value, f.shuffle_xor(value, mask)))
}

/// Combines a value with a partial result, if there is one.
fn join<'f, O: Reduce>(partial: &mut Option<Value<'f, f32>>, value: Value<'f, f32>) {
    *partial = Some(match *partial {
        Some(partial) => O::combine(partial, value),
        None => value,
    });
}

/// Two neighbouring values, with the identity in place of values outside. Passing these on instead of the
/// original values keeps only one of the two alive in registers; values outside are never used.
fn inside<'f, O: Reduce>(
    part: &Part<'f>,
    row: usize,
    pair: usize,
    [low, high]: Pair<'f>,
) -> [Value<'f, f32>; 2] {
    let column = part.pairs[pair];
    [(column, low), (column + 1, high)].map(|(column, value)| part.inside_or(row, column, value, O::IDENTITY))
}

/// Combines two neighbouring values with the partial results of their columns. Values outside change nothing.
/// Returns the values, with the identity in place of those outside.
pub(super) fn join_pair<'f, O: Reduce>(
    part: &Part<'f>,
    row: usize,
    pair: usize,
    values: Pair<'f>,
    partial: &mut [Option<Value<'f, f32>>; 2],
) -> Pair<'f> {
    let values = inside::<O>(part, row, pair, values);
    for (value, partial) in values.into_iter().zip(partial) {
        join::<O>(partial, O::element(value));
    }
    values.map(Number::from)
}

/// The rows of a tile that a thread holds: the index and the partial result of each.
#[derive(Debug, Default)]
pub(super) struct RowPartials<'f>(BTreeMap<usize, (Value<'f, u32>, Option<Value<'f, f32>>)>);

impl<'f> RowPartials<'f> {
    /// Adds the rows of a part.
    pub(super) fn enter(&mut self, part: &Part<'f>) {
        for row in &part.rows {
            self.0.entry(row.index).or_insert((row.row, None));
        }
    }

    /// Combines two neighbouring values of a row with its partial result. Returns the values, with the
    /// identity in place of those outside.
    pub(super) fn join<O: Reduce>(
        &mut self,
        part: &Part<'f>,
        row: usize,
        pair: usize,
        values: Pair<'f>,
    ) -> Pair<'f> {
        let values = inside::<O>(part, row, pair, values);
        if let Some((_, partial)) = self.0.get_mut(&part.rows[row].index) {
            for value in values {
                join::<O>(partial, O::element(value));
            }
        }
        values.map(Number::from)
    }

    /// The rows, each with the combined partial results of the four lanes that share it.
    pub(super) fn across<O: Reduce>(&self, f: &'f Builder) -> Vec<(Value<'f, u32>, Value<'f, f32>)> {
        self.0
            .values()
            .filter_map(|(row, partial)| Some((*row, across::<O>(f, (*partial)?, &[1, 2]))))
            .collect()
    }
}

/// Where the results of a reduction go, as the caller says it: [`RowArgument`], [`ColumnArgument`], or the address of
/// one number; with [`Scratch`](super::Scratch) beside it, in a fixed order.
pub trait Destination: Default + Clone + PartialEq + 'static {
    /// Its part of a node's name.
    const NAME: &'static str;
    /// Whether values are combined in a fixed order, tile by whole tile.
    const IN_ORDER: bool = false;

    /// Visits it for a value of this shape.
    fn visit(&mut self, shape: Shape, site: &mut Site<'_>);

    /// The results for a value of this shape, which hold this identity at first.
    fn supply(from: &mut dyn Supply, identity: f32, shape: Shape) -> Self;

    /// Device address of the result to which element (row, column) goes.
    fn at(&self, at: [u32; 2]) -> u64;

    /// As [`Node::device`], for X reduced to what [`visit`](Self::visit) names.
    fn device<'f, O: Reduce, X: Node>(given: &mut Given<'f>) -> Begin<'f>;
}

/// X, also reduced by `Op` to a [`Destination`].
#[derive(Clone, Copy, Debug)]
pub struct Reduced<Op, To, X>(PhantomData<(Op, To, X)>);

/// X, also reduced over all rows to a row vector: its column j is `Op` of X's column j. For example, the
/// gradient of a bias.
///
/// The name refers to the result: a *row* of N elements. What is reduced is each *column* of X, along M. For
/// one number per row of X, use [`ReduceColumn`].
pub type ReduceRow<Op, X> = Reduced<Op, RowArgument, X>;

/// X, also reduced over all columns to a column vector: its row i is `Op` of X's row i.
pub type ReduceColumn<Op, X> = Reduced<Op, ColumnArgument, X>;

/// X, also reduced over all elements to one number. Its argument is the number's address.
pub type ReduceScalar<Op, X> = Reduced<Op, u64, X>;

impl<O: Reduce, D: Destination, X: Node> Node for Reduced<O, D, X> {
    type Arguments = (D, X::Arguments);
    const TRAITS: NodeTraits = {
        let x = X::TRAITS.in_single();
        NodeTraits { effects: true, whole_tiles: x.whole_tiles || D::IN_ORDER, ..x }
    };

    fn name() -> String {
        let order = if D::IN_ORDER { "o" } else { "" };
        format!("{order}{}{}_{}", D::NAME, O::name(), X::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name()]);
        X::spell(out);
    }

    fn visit((to, x): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        to.visit(shape, &mut site.then(O::name()));
        X::visit(x, shape, site);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        D::device::<O, X>(given)
    }

    fn evaluate(host: &mut Host<'_>, (to, x): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        host.reduce::<O>(to.at(at), at, value);
        value
    }
}

impl<O: Reduce, D: Destination, X: Supplied> Supplied for Reduced<O, D, X> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (D::supply(from, O::IDENTITY, shape), X::supply(from, shape))
    }
}

impl Destination for RowArgument {
    const NAME: &'static str = "row";

    fn visit(&mut self, shape: Shape, site: &mut Site<'_>) {
        site.len(self.len, shape.n);
        site.reduces(&mut self.address, self.len.into());
    }

    fn supply(from: &mut dyn Supply, identity: f32, shape: Shape) -> Self {
        Self { address: from.reduced(identity, shape.n), len: shape.n }
    }

    fn at(&self, [_, column]: [u32; 2]) -> u64 {
        self.address + 4 * u64::from(column)
    }

    fn device<'f, O: Reduce, X: Node>(given: &mut Given<'f>) -> Begin<'f> {
        let (result, x) = (given.parameter(), X::device(given));
        Box::new(move |tile| {
            let (base, op) = (tile.place(result), PhantomData::<O>);
            Box::new(ToRow { base, first: None, partial: Vec::new(), x: [x(tile)], op })
        })
    }
}

/// The state of a [`ReduceRow`].
struct ToRow<'f, O> {
    base: Value<'f, u64>,
    /// Address of the thread's first column.
    first: Option<Value<'f, u64>>,
    /// By pair of a part.
    partial: Vec<[Option<Value<'f, f32>>; 2]>,
    x: [State<'f>; 1],
    op: PhantomData<O>,
}

impl<'f, O: Reduce> NodeState<'f> for ToRow<'f, O> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn load(&mut self, part: &Part<'f>) {
        self.partial = vec![[None; 2]; part.pairs.len()];
        self.first.get_or_insert_with(|| self.base + part.column.mul_wide(4));
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let f = part.tile.f;
        let values = self.x[0].compute(part, row, pair);
        let values = join_pair::<O>(part, row, pair, values, &mut self.partial[pair]);
        if let Some(first) = self.first.filter(|_| row + 1 == part.rows.len()) {
            let partial =
                self.partial[pair].map(|partial| partial.map(|partial| across::<O>(f, partial, &[4, 8, 16])));
            f.if_((part.tile.thread % 32).less_than(4), || {
                for (column, partial) in (part.pairs[pair]..).zip(partial) {
                    let Some(partial) = partial else { continue };
                    part.if_column_inside(column, || O::store(f, first + u64::from(column * 4), partial));
                }
            });
        }
        values
    }
}

impl Destination for ColumnArgument {
    const NAME: &'static str = "col";

    fn visit(&mut self, shape: Shape, site: &mut Site<'_>) {
        site.len(self.len, shape.m);
        site.reduces(&mut self.address, self.len.into());
    }

    fn supply(from: &mut dyn Supply, identity: f32, shape: Shape) -> Self {
        Self { address: from.reduced(identity, shape.m), len: shape.m }
    }

    fn at(&self, [row, _]: [u32; 2]) -> u64 {
        self.address + 4 * u64::from(row)
    }

    fn device<'f, O: Reduce, X: Node>(given: &mut Given<'f>) -> Begin<'f> {
        let (result, x) = (given.parameter(), X::device(given));
        Box::new(move |tile| {
            let base = tile.place(result);
            to_column::<O>(x(tile), move |tile, rows| {
                let f = tile.f;
                for (row, partial) in rows.across::<O>(f) {
                    let leads = (tile.thread % 4).equals(0) & row.less_than(tile.extent.m);
                    f.if_(leads, || O::store(f, base + row.mul_wide(4), partial));
                }
            })
        })
    }
}

/// The state of a node that reduces to a column: `end` is emitted after the last part of a tile, with the partial
/// results of its rows.
pub(super) fn to_column<'f, O: Reduce>(
    x: State<'f>,
    end: impl Fn(&NodeTile<'f>, &RowPartials<'f>) + 'f,
) -> State<'f> {
    Box::new(ToColumn { rows: RowPartials::default(), x: [x], end, op: PhantomData::<O> })
}

struct ToColumn<'f, O, E> {
    rows: RowPartials<'f>,
    x: [State<'f>; 1],
    end: E,
    op: PhantomData<O>,
}

impl<'f, O: Reduce, E: Fn(&NodeTile<'f>, &RowPartials<'f>)> NodeState<'f> for ToColumn<'f, O, E> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn load(&mut self, part: &Part<'f>) {
        self.rows.enter(part);
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let values = self.x[0].compute(part, row, pair);
        self.rows.join::<O>(part, row, pair, values)
    }

    fn end(&mut self, tile: &NodeTile<'f>) {
        (self.end)(tile, &self.rows);
        self.x[0].end(tile);
    }
}

impl Destination for u64 {
    const NAME: &'static str = "";

    fn visit(&mut self, _shape: Shape, site: &mut Site<'_>) {
        site.reduces(self, 1);
    }

    fn supply(from: &mut dyn Supply, identity: f32, _shape: Shape) -> Self {
        from.reduced(identity, 1)
    }

    fn at(&self, _at: [u32; 2]) -> u64 {
        *self
    }

    fn device<'f, O: Reduce, X: Node>(given: &mut Given<'f>) -> Begin<'f> {
        let (result, x) = (given.parameter(), X::device(given));
        Box::new(move |tile| {
            let address = tile.place(result);
            to_number::<O>(x(tile), move |tile, all| {
                tile.f.if_((tile.thread % 32).equals(0), || O::store(tile.f, address, all));
            })
        })
    }
}

/// The state of a node that reduces to a number: `end` is emitted after the last part of a tile, with the result of a
/// warp.
pub(super) fn to_number<'f, O: Reduce>(
    x: State<'f>,
    end: impl Fn(&NodeTile<'f>, Value<'f, f32>) + 'f,
) -> State<'f> {
    Box::new(ToNumber { partial: [None; 2], x: [x], end, op: PhantomData::<O> })
}

struct ToNumber<'f, O, E> {
    /// For even and for odd columns.
    partial: [Option<Value<'f, f32>>; 2],
    x: [State<'f>; 1],
    end: E,
    op: PhantomData<O>,
}

impl<'f, O: Reduce, E: Fn(&NodeTile<'f>, Value<'f, f32>)> NodeState<'f> for ToNumber<'f, O, E> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let values = self.x[0].compute(part, row, pair);
        join_pair::<O>(part, row, pair, values, &mut self.partial)
    }

    fn end(&mut self, tile: &NodeTile<'f>) {
        if let [Some(even), Some(odd)] = self.partial {
            (self.end)(tile, across::<O>(tile.f, O::combine(even, odd), &[1, 2, 4, 8, 16]));
        }
        self.x[0].end(tile);
    }
}
