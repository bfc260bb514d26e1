//! Matrices in addition to D: read, read only if a factor is not zero, or written.

use core::marker::PhantomData;
use std::collections::{BTreeMap, BTreeSet};

use ptx::Value;
use typenum::Unsigned;

use super::{
    Begin, Bounded, Given, Host, Node, NodeState, NodeTile, NodeTraits, Number, Pair, Part, Shape, Site,
    Spell, State, Supplied, Supply,
};
use crate::element::{Element, Format, Narrow};
use crate::functions::Multiply;
use crate::operand::MatrixRef;
use crate::real::NumberVar;

impl MatrixRef {
    /// Visits a matrix of this shape. One that is not read at all does not decide how others are accessed.
    fn visit(&mut self, format: Format, shape: Shape, site: &mut Site<'_>, writes: bool) {
        site.matrix(format, self, shape, writes);
        let pairs = self.address.is_multiple_of(u64::from(format.bits() / 4)) && self.ld.is_multiple_of(2);
        site.visit.in_pairs(pairs || shape.m == 0);
    }

    fn element(self, format: Format, [row, column]: [u32; 2]) -> u64 {
        self.address + (u64::from(row) * self.ld + u64::from(column)) * u64::from(format.bytes())
    }
}

/// A matrix on the device: address, and leading dimension in elements.
#[derive(Clone, Copy)]
struct Matrix<'f> {
    format: Format,
    address: Value<'f, u64>,
    ld: Value<'f, u64>,
}

impl<'f> Matrix<'f> {
    fn device(given: &mut Given<'f>, format: Format) -> Self {
        Self { format, address: given.parameter(), ld: given.parameter() }
    }

    /// The matrix of the tile's group.
    fn of(self, tile: &NodeTile<'f>) -> Self {
        Self { address: tile.place(self.address), ..self }
    }

    /// Address of the thread's first element of a row.
    fn row(&self, part: &Part<'f>, row: usize) -> Value<'f, u64> {
        let element = part.rows[row].row.cast::<u64>().mul_add(self.ld, part.column.cast::<u64>());
        self.address + element * u64::from(self.format.bytes())
    }

    /// Starts the loads of all pairs of all rows of a part.
    fn load(&self, part: &Part<'f>) -> Vec<Vec<Loaded<'f>>> {
        let load_row = |row: usize| {
            let base = self.row(part, row);
            let inside = |column, load: &dyn Fn()| part.if_inside(row, column, load);
            part.pairs.iter().map(|&column| Loaded::new(self.format, part, base, column, &inside)).collect()
        };
        (0..part.rows.len()).map(load_row).collect()
    }
}

/// A pair of elements: in the memory format, or widened.
#[derive(Clone, Copy)]
pub(super) enum Loaded<'f> {
    Narrow([Narrow<'f>; 2]),
    Wide(Pair<'f>),
    Guarded([NumberVar<'f>; 2]),
}

impl<'f> Loaded<'f> {
    /// Starts the load of two neighbours. `column` is relative to the element at `base`; `inside` emits the load of a
    /// column for threads that have it.
    pub(super) fn new(
        format: Format,
        part: &Part<'f>,
        base: Value<'f, u64>,
        column: u32,
        inside: &dyn Fn(u32, &dyn Fn()),
    ) -> Self {
        let (f, offset) = (part.tile.f, |column: u32| (column * format.bytes()).cast_signed());
        if part.tile.whole {
            return Self::Narrow(format.load_pair(f, base, offset(column)));
        }
        let arithmetic = part.tile.arithmetic;
        let values = [arithmetic.variable(f), arithmetic.variable(f)];
        for (column, value) in (column..).zip(values) {
            inside(column, &|| value.set(arithmetic.widen(format, format.load(f, base, offset(column)))));
        }
        Self::Guarded(values)
    }

    pub(super) fn widen(self, part: &Part<'f>, format: Format) -> Pair<'f> {
        match self {
            Self::Narrow(values) => values.map(|value| part.tile.arithmetic.widen(format, value)),
            Self::Guarded(values) => values.map(NumberVar::get),
            Self::Wide(values) => values,
        }
    }
}

/// The state of a matrix for a part. `load` starts the loads of all pairs of all rows.
struct LoadState<'f, L> {
    matrix: Matrix<'f>,
    /// By row and pair.
    loaded: Vec<Vec<Loaded<'f>>>,
    load: L,
}

impl<'f, L: Fn(&Matrix<'f>, &Part<'f>) -> Vec<Vec<Loaded<'f>>>> NodeState<'f> for LoadState<'f, L> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut []
    }

    fn load(&mut self, part: &Part<'f>) {
        self.loaded = (self.load)(&self.matrix, part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        self.loaded[row][pair].widen(part, self.matrix.format)
    }
}

/// A matrix of D's shape that is read: a residual, a mask, the other operand of a derivative.
///
/// It may be D itself: each element is read before the element of D in its place is written.
#[derive(Clone, Copy, Debug)]
pub struct Load<T>(PhantomData<T>);

impl<T: Element> Node for Load<T> {
    type Arguments = MatrixRef;
    const TRAITS: NodeTraits = NodeTraits::reading(T::FORMAT);

    fn name() -> String {
        format!("m{}", T::FORMAT.name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit(matrix: &mut MatrixRef, shape: Shape, site: &mut Site<'_>) {
        matrix.visit(T::FORMAT, shape, site, false);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let matrix = Matrix::device(given, T::FORMAT);
        Box::new(move |tile| {
            Box::new(LoadState { matrix: matrix.of(tile), loaded: Vec::new(), load: Matrix::load })
        })
    }

    fn evaluate(host: &mut Host<'_>, matrix: &MatrixRef, at: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, matrix.element(T::FORMAT, at))
    }
}

impl<T: Element> Supplied for Load<T> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        from.matrix(T::FORMAT, shape)
    }
}

/// A matrix of `P` columns that is repeated along N: column j is its column `j mod P`. For example, a table
/// with one row per row of D and the columns of one head. `P` is a power of two, at least 8.
#[derive(Clone, Copy, Debug)]
pub struct Cyclic<T, P>(PhantomData<(T, P)>);

/// Starts the loads of a part of a matrix that is repeated every `period` columns.
fn load_repeated<'f>(matrix: &Matrix<'f>, part: &Part<'f>, period: u32) -> Vec<Vec<Loaded<'f>>> {
    let (f, format, bytes) = (part.tile.f, matrix.format, matrix.format.bytes());
    // Columns of a part that are a whole period apart share a pair.
    let offsets: BTreeMap<u32, Value<'f, u64>> = part
        .pairs
        .iter()
        .map(|&column| column % period)
        .collect::<BTreeSet<u32>>()
        .into_iter()
        .map(|column| (column, ((part.column + column) & (period - 1)).mul_wide(bytes)))
        .collect();
    let load_row = |row: usize| {
        let base = matrix.address + part.rows[row].row.cast::<u64>() * matrix.ld * u64::from(bytes);
        let load = |&offset: &Value<'f, u64>| {
            if part.tile.whole {
                return Loaded::Narrow(format.load_pair(f, base + offset, 0));
            }
            // Every column of the table exists, even beyond D's edge; only rows can be outside.
            let arithmetic = part.tile.arithmetic;
            let values = [arithmetic.variable(f), arithmetic.variable(f)];
            part.if_inside(row, 0, || {
                for (place, value) in [0, bytes.cast_signed()].into_iter().zip(values) {
                    value.set(arithmetic.widen(format, format.load(f, base + offset, place)));
                }
            });
            Loaded::Guarded(values)
        };
        let loaded: BTreeMap<u32, Loaded<'f>> =
            offsets.iter().map(|(&column, offset)| (column, load(offset))).collect();
        part.pairs.iter().map(|column| loaded[&(column % period)]).collect()
    };
    (0..part.rows.len()).map(load_row).collect()
}

impl<T: Element, P: Unsigned + 'static> Node for Cyclic<T, P> {
    type Arguments = MatrixRef;
    const TRAITS: NodeTraits = {
        assert!(
            P::U32.is_power_of_two() && P::U32 >= 8,
            "the columns of a Cyclic matrix are a power of two, at least 8: write Cyclic<bf16, U64>, say"
        );
        NodeTraits::reading(T::FORMAT)
    };

    fn name() -> String {
        format!("m{}mod{}", T::FORMAT.name(), P::U32)
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit(matrix: &mut MatrixRef, shape: Shape, site: &mut Site<'_>) {
        matrix.visit(T::FORMAT, Shape { n: P::U32, ..shape }, site, false);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let matrix = Matrix::device(given, T::FORMAT);
        let load = |matrix: &Matrix<'f>, part: &Part<'f>| load_repeated(matrix, part, P::U32);
        Box::new(move |_| Box::new(LoadState { matrix, loaded: Vec::new(), load }))
    }

    fn evaluate(host: &mut Host<'_>, matrix: &MatrixRef, [row, column]: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, matrix.element(T::FORMAT, [row, column % P::U32]))
    }
}

impl<T: Element, P: Unsigned + 'static> Supplied for Cyclic<T, P> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        from.matrix(T::FORMAT, Shape { n: P::U32, ..shape })
    }
}

/// `beta * C`, where C is read only if beta is not zero, as in BLAS.
#[derive(Clone, Copy, Debug)]
pub struct Residual<T>(PhantomData<T>);

/// Arguments of [`Residual`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResidualArgument {
    /// Factor of C.
    pub beta: f64,
    /// C. May be `None` if beta is zero.
    pub c: Option<MatrixRef>,
}

/// The state of a [`Residual`] for a part.
struct ResidualState<'f> {
    beta: Number<'f>,
    matrix: Matrix<'f>,
    /// By row and pair; zero if C is not read.
    loaded: Vec<Vec<[NumberVar<'f>; 2]>>,
}

impl<'f> NodeState<'f> for ResidualState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut []
    }

    fn load(&mut self, part: &Part<'f>) {
        let (f, Self { beta, matrix, .. }) = (part.tile.f, &*self);
        let variable = || part.tile.arithmetic.variable(f);
        let row = |_| part.pairs.iter().map(|_| [variable(), variable()]).collect();
        let variables: Vec<Vec<[NumberVar<'f>; 2]>> = (0..part.rows.len()).map(row).collect();
        f.if_(beta.is_not_zero(), || {
            for (variables, loaded) in variables.iter().flatten().zip(matrix.load(part).into_iter().flatten())
            {
                for (variable, value) in variables.iter().zip(loaded.widen(part, matrix.format)) {
                    variable.set(value);
                }
            }
        });
        self.loaded = variables;
    }

    fn compute(&mut self, _part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        self.loaded[row][pair].map(|value| value.get() * self.beta)
    }
}

impl<T: Element> Node for Residual<T> {
    type Arguments = ResidualArgument;
    const TRAITS: NodeTraits = NodeTraits::reading(T::FORMAT);

    fn name() -> String {
        format!("b{}", T::FORMAT.name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit(ResidualArgument { beta, c }: &mut ResidualArgument, shape: Shape, site: &mut Site<'_>) {
        site.factor(beta);
        site.visit.form(c.is_some().into());
        if *beta != 0.0 && c.is_none() {
            site.refuse(format!("beta is {beta} but there is no C: pass C, or beta = 0"));
        }
        let m = if *beta == 0.0 { 0 } else { shape.m };
        let mut none = MatrixRef::NONE;
        c.as_mut().unwrap_or(&mut none).visit(T::FORMAT, Shape { m, ..shape }, site, false);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let (beta, matrix) = (given.factor(), Matrix::device(given, T::FORMAT));
        Box::new(move |tile| Box::new(ResidualState { beta, matrix: matrix.of(tile), loaded: Vec::new() }))
    }

    fn evaluate(host: &mut Host<'_>, residual: &ResidualArgument, at: [u32; 2]) -> Bounded {
        match residual.c.filter(|_| residual.beta != 0.0) {
            Some(c) => {
                let c = host.read(T::FORMAT, c.element(T::FORMAT, at));
                host.apply::<Multiply, 2>((), [c, host.number(residual.beta)])
            }
            None => Bounded::exact(0.0),
        }
    }
}

impl<T: Element> Supplied for Residual<T> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        from.residual(T::FORMAT, shape)
    }
}

/// X, also written to a matrix of elements `T`: an intermediate result that another kernel needs.
#[derive(Clone, Copy, Debug)]
pub struct AuxStore<T, X>(PhantomData<(T, X)>);

/// The state of an [`AuxStore`].
struct AuxState<'f> {
    matrix: Matrix<'f>,
    /// Addresses of the thread's first element of each row of a part.
    rows: Vec<Value<'f, u64>>,
    x: [State<'f>; 1],
}

impl<'f> NodeState<'f> for AuxState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn load(&mut self, part: &Part<'f>) {
        self.rows = (0..part.rows.len()).map(|row| self.matrix.row(part, row)).collect();
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let (f, format) = (part.tile.f, self.matrix.format);
        let values = self.x[0].compute(part, row, pair);
        let packed = Number::pack(format, f, values);
        let offset = |column: u32| (column * format.bytes()).cast_signed();
        let column = part.pairs[pair];
        if part.tile.whole {
            packed.store_global(self.rows[row], offset(column));
        } else {
            for (column, element) in (column..).zip(format.unpack(f, packed)) {
                part.if_inside(row, column, || element.store_global(self.rows[row], offset(column)));
            }
        }
        values
    }
}

impl<T: Element, X: Node> Node for AuxStore<T, X> {
    type Arguments = (MatrixRef, X::Arguments);
    const TRAITS: NodeTraits = X::TRAITS.writing(T::FORMAT);

    fn name() -> String {
        format!("aux{}_{}", T::FORMAT.name(), X::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name()]);
        X::spell(out);
    }

    fn visit((matrix, x): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        matrix.visit(T::FORMAT, shape, &mut site.then("aux"), true);
        X::visit(x, shape, site);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let (matrix, x) = (Matrix::device(given, T::FORMAT), X::device(given));
        Box::new(move |tile| {
            let matrix = matrix.of(tile);
            Box::new(AuxState { matrix, rows: Vec::new(), x: [x(tile)] })
        })
    }

    fn evaluate(host: &mut Host<'_>, (matrix, x): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        host.write(T::FORMAT, matrix.element(T::FORMAT, at), value);
        value
    }
}

impl<T: Element, X: Supplied> Supplied for AuxStore<T, X> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (from.output(T::FORMAT, shape), X::supply(from, shape))
    }
}
