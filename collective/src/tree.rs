//! Epilogue visitor trees: types that say how an accumulator becomes an element of D.
//!
//! A [`Node`] gives one value per element of a matrix. Leaves read something: the [`Accumulator`], a number,
//! a vector along the rows or the columns, a matrix. [`Compute`] applies a function to the values of other
//! nodes. Some nodes pass their value on and have a side effect: [`AuxStore`] writes it to memory, the
//! reductions reduce it.
//!
//! | node, and what calls it in a [formula](crate::Formula) | value at (row, column) |
//! |---|---|
//! | [`Accumulator`] | the accumulator: the element of A * B |
//! | [`Constant<N, D>`](Constant) | N / D |
//! | [`Scalar`], [`ScalarPointer<T>`](ScalarPointer) | one number, from the host or from device memory |
//! | [`RowVector<T>`](RowVector), [`ColumnVector<T>`](ColumnVector) | `v[column]`, `v[row]` |
//! | [`Load<T>`](Load), [`Residual<T>`](Residual) | an element of a matrix, or a multiple of it |
//! | [`Cyclic<T, P>`](Cyclic) | an element of a matrix of P columns that is repeated along N |
//! | [`Compute<F, (X, Y, ..)>`](Compute) | `F(X, Y, ..)` |
//! | [`Gated<F, X, Order>`](Gated) | `F(gate, up)` of two columns of X, which alternate, are in [`Blocks`] or are [`Split`]: half of the columns |
//! | [`Dropout<X>`](Dropout), `dropout(mask, x)` | X scaled, or zero, by a mask computed from seed, row and column |
//! | [`Rotate<X, Angles>`](Rotate), `rotate(x, angles)` | pairs of neighbouring columns rotated, as in rotary embeddings |
//! | [`TopKSoftmax<K, X>`](TopKSoftmax), `top2_softmax(x)` | the softmax of the K largest values of each row, zero elsewhere |
//! | [`Quantize<T, X>`](Quantize), `quantize_e4m3(scales, x)` | X divided by a scale per 128 columns of a row; the scales are written, too |
//! | [`AuxStore<T, X>`](AuxStore) | X, written to a matrix |
//! | [`ReduceRow<Op, X>`](ReduceRow), [`ReduceColumn`], [`ReduceScalar`] | X, reduced to a row, a column, a number |
//! | [`OrderedRow<Op, X>`](OrderedRow), [`OrderedColumn`], [`OrderedScalar`] | the same in a fixed order: the same bits in every run |
//! | [`Each<X>`](Each) | X, with its own vectors and matrices for each GEMM of a launch |
//! | [`Named<L, X>`](Named) | X, with a name of its own in error messages |
//! | [`Let<X, Body>`](Let), [`Bound`] | Body, where each `Bound` is the one value of X |
//!
//! # One tree, two evaluations
//!
//! A tree emits itself for the device ([`NodeState`]). It also evaluates itself on the
//! host ([`Node::evaluate`]), from the same arguments, in f64 with bounds for the rounding on the device. So
//! a tree is its own oracle.
//!
//! ```
//! use collective::functions::{Add, Gelu};
//! use collective::tree::{Accumulator, AuxStore, Compute, Node, RowVector};
//! use half::bf16;
//!
//! /// D = gelu(x). x = A * B + bias is written, too.
//! type Layer = Compute<Gelu, (AuxStore<bf16, Compute<Add, (Accumulator, RowVector<bf16>)>>,)>;
//! fn is_a_tree<T: Node>() {}
//! is_a_tree::<Layer>();
//! ```

mod compute;
mod dropout;
mod each;
mod early;
mod gated;
mod given;
mod host;
mod leaf;
mod matrix;
mod named;
mod ordered;
mod quantize;
mod reduce;
mod rotate;
mod share;
mod spell;
mod supply;
mod top_k;
mod value;
mod vector;
mod visit;
mod word;

use crate::element::Format;
pub use crate::operands::{NodeError, NodeProblem, Path, Shape, Site};
pub use crate::real::{Arithmetic, Bounded, Number};
pub use compute::Compute;
pub use dropout::{Dropout, DropoutArgument};
pub use each::{Distance, Each};
pub(crate) use early::EarlyRow;
pub(crate) use gated::gated;
pub use gated::{Alternating, Blocks, GateOrder, Gated, Glu, Split};
pub use given::Given;
pub use host::{Host, HostMemory, Written};
pub use leaf::{Accumulator, Constant, Scalar, ScalarPointer};
pub use matrix::{AuxStore, Cyclic, Load, Residual, ResidualArgument};
pub use named::{Label, Named};
pub use ordered::{OrderedColumn, OrderedDestination, OrderedRow, OrderedScalar, Scratch};
pub use quantize::Quantize;
pub use reduce::{Amax, Destination, Max, Reduce, ReduceColumn, ReduceRow, ReduceScalar, Reduced, Sum};
pub use rotate::Rotate;
pub(crate) use share::shared;
pub use share::{Bound, Let};
pub use spell::Spell;
pub use supply::{Supplied, Supply};
pub use top_k::TopKSoftmax;
pub use value::{AnyNode, AnyNodeArguments, Item};
pub(crate) use value::{Argument, Literal, NodeValue, combined};
pub(crate) use value::{CHILD, NUMBER};
pub use vector::{ColumnArgument, ColumnVector, RowArgument, RowVector};
pub use visit::{Columns, NodeTile, Pair, Part, PartRow};
pub(crate) use word::{NAME, NodeWord, Takes};

/// The nodes that formulas call by a name.
static WORDS: [&[NodeWord]; 4] = [&dropout::WORDS, &quantize::WORDS, &rotate::WORDS, &top_k::WORDS];

/// Every node that formulas call by a name.
pub(crate) fn words() -> impl Iterator<Item = &'static NodeWord> {
    WORDS.into_iter().flatten()
}

/// NodeTraits about a tree that follow from its type alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTraits {
    /// How many times the columns of its value have been halved since the accumulators; `None` if it reads no
    /// accumulator.
    pub halvings: Option<u32>,
    /// How many enclosing `Let` bindings it needs.
    pub free: u32,
    /// Number of row vectors it reads, counted once per occurrence.
    pub row_vectors: u32,
    /// Number of consecutive gates in gated columns; 0 if no columns are gated, [`NodeTraits::SPLIT`] if all gates
    /// come before all ups.
    pub gate_block: u32,
    /// Most registers that one of its functions needs: see
    /// [`Pointwise::REGISTERS`](crate::Pointwise::REGISTERS).
    pub registers: u32,
    /// Whether it writes something, so that it must be computed exactly once.
    pub effects: bool,
    /// Whether it looks at rows before it has values: see [`NodeState::survey`].
    pub surveys: bool,
    /// Whether it looks at rows in blocks of this many columns, each within one tile; 0 if it looks at whole
    /// rows, or at none.
    pub block: u32,
    /// Whether it takes only whole tiles of the plan, finished by one CTA.
    pub whole_tiles: bool,
    /// The bits of every [`Arithmetic`] in which it can be computed.
    pub arithmetics: u8,
    /// Whether it stores a matrix in addition to D.
    pub stores: bool,
}

impl NodeTraits {
    /// All gates come before all ups.
    pub const SPLIT: u32 = u32::MAX;

    /// A leaf that does not read the accumulator.
    pub const LEAF: Self = Self {
        halvings: None,
        free: 0,
        row_vectors: 0,
        gate_block: 0,
        registers: 0,
        effects: false,
        surveys: false,
        block: 0,
        whole_tiles: false,
        arithmetics: u8::MAX,
        stores: false,
    };

    /// A leaf with elements of this format, which does not read the accumulator.
    pub(crate) const fn reading(format: Format) -> Self {
        Self { arithmetics: Arithmetic::reading(format), ..Self::LEAF }
    }

    /// The same traits of a node that computes in `f32` alone.
    #[must_use]
    pub const fn in_single(self) -> Self {
        Self { arithmetics: self.arithmetics & Arithmetic::F32.bit(), ..self }
    }

    /// The same traits of a node that also writes elements of this format.
    pub(crate) const fn writing(self, format: Format) -> Self {
        let arithmetics = self.arithmetics & Arithmetic::writing(format);
        Self { effects: true, stores: true, arithmetics, ..self }
    }

    /// Whether it can be computed in this arithmetic.
    pub(crate) const fn computes_in(self, arithmetic: Arithmetic) -> bool {
        self.arithmetics & arithmetic.bit() != 0
    }

    /// How many times the columns have been halved since the accumulators.
    pub(crate) const fn halved(self) -> u32 {
        match self.halvings {
            Some(halvings) => halvings,
            None => 0,
        }
    }

    /// The same traits with a function that needs this many registers.
    #[must_use]
    pub const fn of_function(self, registers: u32) -> Self {
        Self { registers: if self.registers > registers { self.registers } else { registers }, ..self }
    }

    /// The traits of a legal node.
    ///
    /// # Panics
    /// At compile time, if the node is illegal.
    #[must_use]
    pub const fn legal(traits: Result<Self, &'static str>) -> Self {
        match traits {
            Ok(traits) => traits,
            Err(words) => panic!("{}", words),
        }
    }

    /// The traits of a node that combines the values of two others, element by element.
    ///
    /// # Errors
    /// One has half the columns of the other.
    pub const fn beside(self, other: Self) -> Result<Self, &'static str> {
        let halvings = match (self.halvings, other.halvings) {
            (Some(a), Some(b)) if a != b => {
                return Err(
                    "a gated pair is combined with values that are not gated: they have twice its columns",
                );
            }
            (Some(a), _) => Some(a),
            (None, b) => b,
        };
        let free = if self.free > other.free { self.free } else { other.free };
        if self.gate_block > 0 && other.gate_block > 0 && self.gate_block != other.gate_block {
            return Err(
                "two gated pairs with different orders of columns are combined: a tree has one order",
            );
        }
        let gate_block = if self.gate_block > other.gate_block { self.gate_block } else { other.gate_block };
        Ok(Self {
            halvings,
            free,
            row_vectors: self.row_vectors + other.row_vectors,
            gate_block,
            registers: if self.registers > other.registers { self.registers } else { other.registers },
            effects: self.effects || other.effects,
            surveys: self.surveys || other.surveys,
            block: if self.block > other.block { self.block } else { other.block },
            whole_tiles: self.whole_tiles || other.whole_tiles,
            arithmetics: self.arithmetics & other.arithmetics,
            stores: self.stores || other.stores,
        })
    }
}

/// A node of an epilogue visitor tree: one value per element of a matrix.
///
/// The type states what is known without a kernel, and evaluates on the host. On the device it takes its kernel
/// parameters, and gives the [`NodeState`] that emits the code of a tile.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no node of an epilogue's tree",
    note = "write a leaf such as `Accumulator`, or `Compute<F, (X, Y)>` for a function of other nodes"
)]
pub trait Node: 'static {
    /// The caller's arguments. With the default ones a kernel's program is made, which has the same parameters for all.
    type Arguments: Clone + PartialEq + Default;
    /// NodeTraits that follow from the type alone.
    const TRAITS: NodeTraits;

    /// An identifier for kernel names.
    fn name() -> String;

    /// Writes the tree down for a formula: [`Spell::node`] for itself, then its children in order. By default no formula
    /// has such a node.
    fn spell(out: &mut Spell) {
        out.unknown();
    }

    /// Visits the arguments for a value of this shape: each address, with what is read or written there, and each
    /// number. What is visited as memory, length, count or factor is a kernel parameter of the node, in this order.
    /// It also says what is illegal ([`Site::refuse`]), and whether accesses can be in pairs ([`Visit::in_pairs`]).
    ///
    /// [`Visit::in_pairs`]: crate::operands::Visit::in_pairs
    fn visit(arguments: &mut Self::Arguments, shape: Shape, site: &mut Site<'_>);

    /// The node on the device. It takes the parameters that [`Node::visit`] states, in their order ([`Given::parameter`]).
    fn device<'f>(given: &mut Given<'f>) -> Begin<'f>;

    /// The value at (row, column) on the host.
    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Bounded;
}

/// Emitted before the first part of a tile: gives the node's state for the tile.
pub type Begin<'f> = Box<dyn Fn(&NodeTile<'f>) -> State<'f> + 'f>;

/// Any node's state.
pub type State<'f> = Box<dyn NodeState<'f> + 'f>;

/// A node while the code of a tile is emitted: values loaded ahead, partial results.
///
/// Code is emitted per tile, in this order: what [`Node::device`] returned; for some trees
/// [`survey`](NodeState::survey); for each [`Part`] of the tile, [`load`](NodeState::load) and then
/// [`compute`](NodeState::compute) for each pair of neighbouring columns, row by row within a pair; finally
/// [`end`](NodeState::end). All of a tile is straight-line code. What a node does not do itself it passes on to
/// its children.
pub trait NodeState<'f> {
    /// The states of its children.
    fn children(&mut self) -> &mut [State<'f>];

    /// Emitted if [`NodeTraits::surveys`], before the first [`load`](NodeState::load) of each 64-row block, for all
    /// parts of the block from left to right. For nodes that must know a row before they have values.
    fn survey(&mut self, part: &Part<'f>) {
        self.children().iter_mut().for_each(|child| child.survey(part));
    }

    /// Emitted before the first value of a part: starts all loads of the part.
    fn load(&mut self, part: &Part<'f>) {
        self.children().iter_mut().for_each(|child| child.load(part));
    }

    /// Emitted for two neighbouring columns of a row.
    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f>;

    /// Emitted after the last part of a tile.
    fn end(&mut self, tile: &NodeTile<'f>) {
        self.children().iter_mut().for_each(|child| child.end(tile));
    }
}

/// The state of a node without children whose values need no state: `compute`.
fn leaf<'f>(compute: impl Fn(&Part<'f>, usize, usize) -> Pair<'f> + 'f) -> State<'f> {
    struct Leaf<C>(C);
    impl<'f, C: Fn(&Part<'f>, usize, usize) -> Pair<'f>> NodeState<'f> for Leaf<C> {
        fn children(&mut self) -> &mut [State<'f>] {
            &mut []
        }

        fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
            (self.0)(part, row, pair)
        }
    }
    Box::new(Leaf(compute))
}
