//! Matrices in addition to D: read, read only if a factor is not zero, or written.

use core::marker::PhantomData;
use std::collections::{BTreeMap, BTreeSet};

use ptx::{Value, Var};
use typenum::Unsigned;

use super::{
    Bounded, Declare, Host, Node, NodeError, NodeTraits, Pair, Parameters, Part, Path, Shape, Visit,
};
use crate::element::{Element, Format, Narrow};
use crate::operand::MatrixRef;

/// A row-major matrix of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixArgument {
    /// Device address of its first element.
    pub address: u64,
    /// Leading dimension: elements from one row to the next.
    pub ld: u64,
}

impl MatrixArgument {
    fn check<T: Element>(&self, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        path.reads_matrix(T::FORMAT, MatrixRef::new(self.address, self.ld), shape)
    }

    fn pairs<T: Element>(&self) -> bool {
        self.address.is_multiple_of(u64::from(T::FORMAT.bits() / 4)) && self.ld.is_multiple_of(2)
    }

    fn element<T: Element>(&self, [row, column]: [u32; 2]) -> u64 {
        self.address + (u64::from(row) * self.ld + u64::from(column)) * u64::from(T::FORMAT.bytes())
    }
}

/// A matrix on the device: address, and leading dimension in elements.
#[derive(Clone, Copy, Debug)]
pub struct MatrixDevice<'f> {
    address: Value<'f, u64>,
    ld: Value<'f, u64>,
}

impl<'f> MatrixDevice<'f> {
    fn declare(declare: &mut Declare<'f>) -> Self {
        Self { address: declare.param(), ld: declare.number() }
    }

    /// The matrix of the tile's group.
    fn of(self, tile: &Visit<'f>) -> Self {
        Self { address: tile.place(self.address), ..self }
    }

    /// Address of the thread's first element of a row.
    fn row<T: Element>(&self, part: &Part<'f>, row: usize) -> Value<'f, u64> {
        let element = part.rows[row].row.cast::<u64>().mul_add(self.ld, part.column.cast::<u64>());
        self.address + element * u64::from(T::FORMAT.bytes())
    }

    /// Starts the loads of all pairs of all rows of a part.
    fn load<T: Element>(&self, part: &Part<'f>) -> Vec<Vec<Loaded<'f>>> {
        let f = part.tile.f;
        let offset = |column: u32| (column * T::FORMAT.bytes()).cast_signed();
        let load_row = |row: usize| {
            let base = self.row::<T>(part, row);
            let load = |&column: &u32| {
                if part.tile.whole {
                    return Loaded::Narrow(T::FORMAT.load_pair(f, base, offset(column)));
                }
                let values = [f.variable(0.0), f.variable(0.0)];
                for (column, value) in (column..).zip(values) {
                    part.if_inside(row, column, || {
                        value.set(T::FORMAT.widen(T::FORMAT.load(f, base, offset(column))));
                    });
                }
                Loaded::Wide(values)
            };
            part.pairs.iter().map(load).collect()
        };
        (0..part.rows.len()).map(load_row).collect()
    }
}

/// A pair of elements of a matrix: in the memory format, or widened.
#[derive(Clone, Copy, Debug)]
enum Loaded<'f> {
    Narrow([Narrow<'f>; 2]),
    Wide([Var<'f, f32>; 2]),
}

impl<'f> Loaded<'f> {
    fn widen(self, format: Format) -> Pair<'f> {
        match self {
            Self::Narrow(values) => values.map(|value| format.widen(value)),
            Self::Wide(values) => values.map(Var::get),
        }
    }
}

/// The state of a matrix for a part.
#[derive(Debug)]
pub struct LoadState<'f> {
    matrix: MatrixDevice<'f>,
    /// By row and pair.
    loaded: Vec<Vec<Loaded<'f>>>,
}

/// A matrix of D's shape that is read: a residual, a mask, the other operand of a derivative.
///
/// It may be D itself: each element is read before the element of D in its place is written.
#[derive(Clone, Copy, Debug)]
pub struct Load<T>(PhantomData<T>);

impl<T: Element> Node for Load<T> {
    type Arguments = MatrixArgument;
    type Device<'f> = MatrixDevice<'f>;
    type State<'f> = LoadState<'f>;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        format!("m{}", T::FORMAT.name())
    }

    fn check(matrix: &MatrixArgument, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        matrix.check::<T>(shape, path)
    }

    fn pairs(matrix: &MatrixArgument) -> bool {
        matrix.pairs::<T>()
    }

    fn parameters(matrix: &MatrixArgument, out: &mut Parameters) {
        out.push(matrix.address);
        out.push(matrix.ld);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> MatrixDevice<'f> {
        MatrixDevice::declare(declare)
    }

    fn begin<'f>(tile: &Visit<'f>, device: &MatrixDevice<'f>) -> LoadState<'f> {
        LoadState { matrix: device.of(tile), loaded: Vec::new() }
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(part: &Part<'f>, state: &mut LoadState<'f>) {
        state.loaded = state.matrix.load::<T>(part);
    }

    fn compute<'f>(_part: &Part<'f>, state: &mut LoadState<'f>, row: usize, pair: usize) -> Pair<'f> {
        state.loaded[row][pair].widen(T::FORMAT)
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut LoadState<'f>) {}

    fn evaluate(host: &mut Host<'_>, matrix: &MatrixArgument, at: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, matrix.element::<T>(at))
    }
}

/// A matrix of `P` columns that is repeated along N: column j is its column `j mod P`. For example, a table
/// with one row per row of D and the columns of one head. `P` is a power of two, at least 8.
#[derive(Clone, Copy, Debug)]
pub struct Cyclic<T, P>(PhantomData<(T, P)>);

impl<T: Element, P: Unsigned + 'static> Node for Cyclic<T, P> {
    type Arguments = MatrixArgument;
    type Device<'f> = MatrixDevice<'f>;
    type State<'f> = LoadState<'f>;
    const TRAITS: NodeTraits = {
        assert!(
            P::U32.is_power_of_two() && P::U32 >= 8,
            "the columns of a Cyclic matrix are a power of two, at least 8: write Cyclic<bf16, U64>, say"
        );
        NodeTraits::LEAF
    };

    fn name() -> String {
        format!("m{}mod{}", T::FORMAT.name(), P::U32)
    }

    fn check(matrix: &MatrixArgument, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        matrix.check::<T>(Shape { n: P::U32, ..shape }, path)
    }

    fn pairs(matrix: &MatrixArgument) -> bool {
        matrix.pairs::<T>()
    }

    fn parameters(matrix: &MatrixArgument, out: &mut Parameters) {
        out.push(matrix.address);
        out.push(matrix.ld);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> MatrixDevice<'f> {
        MatrixDevice::declare(declare)
    }

    fn begin<'f>(_tile: &Visit<'f>, device: &MatrixDevice<'f>) -> LoadState<'f> {
        LoadState { matrix: *device, loaded: Vec::new() }
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(part: &Part<'f>, state: &mut LoadState<'f>) {
        let (f, bytes, matrix) = (part.tile.f, T::FORMAT.bytes(), state.matrix);
        // Columns of a part that are a whole period apart share a pair.
        let offsets: BTreeMap<u32, Value<'f, u64>> = part
            .pairs
            .iter()
            .map(|&column| column % P::U32)
            .collect::<BTreeSet<u32>>()
            .into_iter()
            .map(|column| (column, ((part.column + column) & (P::U32 - 1)).mul_wide(bytes)))
            .collect();
        let load_row = |row: usize| {
            let base = matrix.address + part.rows[row].row.cast::<u64>() * matrix.ld * u64::from(bytes);
            let load = |&offset: &Value<'f, u64>| {
                if part.tile.whole {
                    return Loaded::Narrow(T::FORMAT.load_pair(f, base + offset, 0));
                }
                // Every column of the table exists, even beyond D's edge; only rows can be outside.
                let values = [f.variable(0.0), f.variable(0.0)];
                part.if_inside(row, 0, || {
                    for (place, value) in [0, bytes.cast_signed()].into_iter().zip(values) {
                        value.set(T::FORMAT.widen(T::FORMAT.load(f, base + offset, place)));
                    }
                });
                Loaded::Wide(values)
            };
            let loaded: BTreeMap<u32, Loaded<'f>> =
                offsets.iter().map(|(&column, offset)| (column, load(offset))).collect();
            part.pairs.iter().map(|column| loaded[&(column % P::U32)]).collect()
        };
        state.loaded = (0..part.rows.len()).map(load_row).collect();
    }

    fn compute<'f>(_part: &Part<'f>, state: &mut LoadState<'f>, row: usize, pair: usize) -> Pair<'f> {
        state.loaded[row][pair].widen(T::FORMAT)
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut LoadState<'f>) {}

    fn evaluate(host: &mut Host<'_>, matrix: &MatrixArgument, [row, column]: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, matrix.element::<T>([row, column % P::U32]))
    }
}

/// `beta * C`, where C is read only if beta is not zero, as in BLAS.
#[derive(Clone, Copy, Debug)]
pub struct Residual<T>(PhantomData<T>);

/// Arguments of [`Residual`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResidualArgument {
    /// Factor of C.
    pub beta: f32,
    /// C. May be `None` if beta is zero.
    pub c: Option<MatrixArgument>,
}

/// The state of a [`Residual`] for a part.
#[derive(Debug)]
pub struct ResidualState<'f> {
    device: (Value<'f, f32>, MatrixDevice<'f>),
    /// By row and pair; zero if C is not read.
    loaded: Vec<Vec<[Var<'f, f32>; 2]>>,
}

impl<T: Element> Node for Residual<T> {
    type Arguments = ResidualArgument;
    type Device<'f> = (Value<'f, f32>, MatrixDevice<'f>);
    type State<'f> = ResidualState<'f>;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        format!("b{}", T::FORMAT.name())
    }

    fn check(residual: &ResidualArgument, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        match residual.c {
            _ if residual.beta == 0.0 => Ok(()),
            Some(c) => c.check::<T>(shape, path),
            None => {
                Err(path.refuse(format!("beta is {} but there is no C: pass C, or beta = 0", residual.beta)))
            }
        }
    }

    fn pairs(residual: &ResidualArgument) -> bool {
        residual.beta == 0.0 || residual.c.is_none_or(|c| c.pairs::<T>())
    }

    fn parameters(residual: &ResidualArgument, out: &mut Parameters) {
        let c = residual.c.filter(|_| residual.beta != 0.0);
        out.push(residual.beta);
        out.push(c.map_or(0, |c| c.address));
        out.push(c.map_or(0, |c| c.ld));
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
        (declare.param(), MatrixDevice::declare(declare))
    }

    fn begin<'f>(tile: &Visit<'f>, (beta, matrix): &Self::Device<'f>) -> ResidualState<'f> {
        ResidualState { device: (*beta, matrix.of(tile)), loaded: Vec::new() }
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(part: &Part<'f>, state: &mut ResidualState<'f>) {
        let f = part.tile.f;
        let (beta, matrix) = state.device;
        let row = |_| part.pairs.iter().map(|_| [f.variable(0.0), f.variable(0.0)]).collect();
        let variables: Vec<Vec<[Var<'f, f32>; 2]>> = (0..part.rows.len()).map(row).collect();
        f.if_(beta.differs_from(0.0), || {
            let loaded = matrix.load::<T>(part);
            for (variables, loaded) in variables.iter().flatten().zip(loaded.into_iter().flatten()) {
                for (variable, value) in variables.iter().zip(loaded.widen(T::FORMAT)) {
                    variable.set(value);
                }
            }
        });
        state.loaded = variables;
    }

    fn compute<'f>(_part: &Part<'f>, state: &mut ResidualState<'f>, row: usize, pair: usize) -> Pair<'f> {
        state.loaded[row][pair].map(|value| value.get() * state.device.0)
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut ResidualState<'f>) {}

    fn evaluate(host: &mut Host<'_>, residual: &ResidualArgument, at: [u32; 2]) -> Bounded {
        match residual.c.filter(|_| residual.beta != 0.0) {
            Some(c) => host.read(T::FORMAT, c.element::<T>(at)) * Bounded::exact(residual.beta.into()),
            None => Bounded::exact(0.0),
        }
    }
}

/// X, also written to a matrix of elements `T`: an intermediate result that another kernel needs.
#[derive(Clone, Copy, Debug)]
pub struct AuxStore<T, X>(PhantomData<(T, X)>);

impl<T: Element, X: Node> Node for AuxStore<T, X> {
    type Arguments = (MatrixArgument, X::Arguments);
    type Device<'f> = (MatrixDevice<'f>, X::Device<'f>);
    type State<'f> = (MatrixDevice<'f>, Vec<Value<'f, u64>>, X::State<'f>);
    const TRAITS: NodeTraits = NodeTraits { effects: true, ..X::TRAITS };

    fn name() -> String {
        format!("aux{}_{}", T::FORMAT.name(), X::name())
    }

    fn check((matrix, x): &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        let written = MatrixRef::new(matrix.address, matrix.ld);
        path.then("aux").writes_matrix(T::FORMAT, written, shape)?;
        X::check(x, shape, path)
    }

    fn pairs((matrix, x): &Self::Arguments) -> bool {
        matrix.pairs::<T>() && X::pairs(x)
    }

    fn parameters((matrix, x): &Self::Arguments, out: &mut Parameters) {
        out.push(matrix.address);
        out.push(matrix.ld);
        X::parameters(x, out);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
        (MatrixDevice::declare(declare), X::declare(declare))
    }

    fn begin<'f>(tile: &Visit<'f>, (matrix, x): &Self::Device<'f>) -> Self::State<'f> {
        (matrix.of(tile), Vec::new(), X::begin(tile, x))
    }

    fn survey<'f>(part: &Part<'f>, (_, _, x): &mut Self::State<'f>) {
        X::survey(part, x);
    }

    fn load<'f>(part: &Part<'f>, (matrix, rows, x): &mut Self::State<'f>) {
        *rows = (0..part.rows.len()).map(|row| matrix.row::<T>(part, row)).collect();
        X::load(part, x);
    }

    fn compute<'f>(part: &Part<'f>, (_, rows, x): &mut Self::State<'f>, row: usize, pair: usize) -> Pair<'f> {
        let f = part.tile.f;
        let values = X::compute(part, x, row, pair);
        let packed = T::FORMAT.pack(f, values);
        let offset = |column: u32| (column * T::FORMAT.bytes()).cast_signed();
        let column = part.pairs[pair];
        if part.tile.whole {
            packed.store_global(rows[row], offset(column));
        } else {
            for (column, element) in (column..).zip(T::FORMAT.unpack(f, packed)) {
                part.if_inside(row, column, || element.store_global(rows[row], offset(column)));
            }
        }
        values
    }

    fn end<'f>(tile: &Visit<'f>, (_, _, x): &mut Self::State<'f>) {
        X::end(tile, x);
    }

    fn evaluate(host: &mut Host<'_>, (matrix, x): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        host.write(T::FORMAT, matrix.element::<T>(at), value);
        value
    }
}
