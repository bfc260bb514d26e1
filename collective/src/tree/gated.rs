//! Pairs of columns that become one: gated linear units.

use core::marker::PhantomData;

use ptx::Value;
use typenum::{U8, Unsigned};

use super::{Bounded, Declare, Facts, Host, Node, NodeError, Pair, Parameters, Part, Path, Shape, Visit};
use crate::functions::{Pointwise, Scalars, evaluate_bounded};
use crate::real::Real;

/// `F(gate) * up` of two numbers: `Glu<Silu>` is SwiGLU, `Glu<Gelu>` is GEGLU.
#[derive(Clone, Copy, Debug)]
pub struct Glu<F>(PhantomData<F>);

impl<F: Pointwise> Pointwise<2> for Glu<F> {
    type Arguments = F::Arguments;
    const ARGUMENTS: &'static [&'static str] = F::ARGUMENTS;
    const REGISTERS: u32 = F::REGISTERS + 1;

    fn name() -> String {
        format!("glu_{}", F::name())
    }

    fn apply<R: Real>(arguments: <F::Arguments as Scalars>::Of<R>, [gate, up]: [R; 2]) -> R {
        F::apply(arguments, [gate]) * up
    }
}

/// The order in which the columns of gates and of ups lie: [`Alternating`] or [`Blocks`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no order of gates and ups",
    note = "write `Alternating` (gate, up, gate, up) or `Blocks<U8>` (8 gates, then their 8 ups)"
)]
pub trait GateOrder: 'static {
    /// Gates that stand beside each other: so many gates, then their ups, then the next gates.
    const BLOCK: u32;
}

/// Gate, up, gate, up: two neighbouring columns are a pair. Costs two shuffles an element.
#[derive(Clone, Copy, Debug)]
pub struct Alternating;

/// `G` gates, then their `G` ups, then the next `G` gates: a thread has both of a pair, and nothing is shuffled. `G` is a
/// multiple of 8, tile N of `2 G`, and N of `2 G`.
///
/// With `G` 8 the order of B's columns fits every tile; with `G` half of tile N a tile has its gates in its left half.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<G = U8>(PhantomData<G>);

impl GateOrder for Alternating {
    const BLOCK: u32 = 1;
}

impl<G: Unsigned + 'static> GateOrder for Blocks<G> {
    const BLOCK: u32 = {
        assert!(
            G::U32 > 0 && G::U32.is_multiple_of(8),
            "a block of gates is a multiple of 8 columns, as a thread holds them: use Blocks<U8>"
        );
        G::U32
    };
}

/// Two columns become one: column j is `F(gate, up)` of two of X's columns, so D has N / 2 columns.
///
/// Where gate and up of column j stand among B's columns is `Order`'s; [`Gated::columns`] says it. Nodes inside see all N
/// columns, nodes around it see N / 2. N is even, and tile N is a multiple of 16.
///
/// ```
/// use collective::functions::Silu;
/// use collective::tree::{Accumulator, Blocks, Gated, Glu};
///
/// type Alternates = Gated<Glu<Silu>, Accumulator>;
/// assert_eq!(Alternates::columns(9), [18, 19]);
/// /// Eight gates, eight ups.
/// type InEights = Gated<Glu<Silu>, Accumulator, Blocks>;
/// assert_eq!(InEights::columns(9), [17, 25]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gated<F, X, Order = Alternating>(PhantomData<(F, X, Order)>);

impl<F, X, Order: GateOrder> Gated<F, X, Order> {
    /// The columns of gate and up that become column `j`.
    pub const fn columns(j: u32) -> [u32; 2] {
        let block = Order::BLOCK;
        let gate = j / block * 2 * block + j % block;
        [gate, gate + block]
    }
}

/// What a [`Gated`] remembers of a tile.
#[derive(Debug)]
pub struct GatedState<'f, A, X> {
    arguments: A,
    /// Of the lanes that share a row, which two have the columns that this lane will hold.
    from: [Value<'f, u32>; 2],
    /// Whether they come from the first of two groups of eight columns.
    first: Value<'f, bool>,
    x: X,
}

impl<F: Pointwise<2>, X: Node, Order: GateOrder> Node for Gated<F, X, Order> {
    type Arguments = (F::Arguments, X::Arguments);
    type Device<'f> = (<F::Arguments as Scalars>::Of<Value<'f, f32>>, X::Device<'f>);
    type State<'f> = GatedState<'f, <F::Arguments as Scalars>::Of<Value<'f, f32>>, X::State<'f>>;
    const FACTS: Facts = {
        assert!(
            X::FACTS.free == 0,
            "a Bound inside of Gated names a Let around it, whose value has half the columns"
        );
        let halvings = match X::FACTS.halvings {
            Some(halvings) => halvings + 1,
            None => 1,
        };
        assert!(halvings == 1, "a Gated stands inside of another: columns are halved once");
        Facts { halvings: Some(halvings), gate_block: Order::BLOCK, ..X::FACTS }
    };

    fn name() -> String {
        let block = if Order::BLOCK == 1 { String::new() } else { Order::BLOCK.to_string() };
        format!("gated{block}_{}_{}", F::name(), X::name())
    }

    fn check((_, x): &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        X::check(x, Shape { n: shape.n * 2, ..shape }, &path.then(&F::name()))
    }

    fn pairs((_, x): &Self::Arguments) -> bool {
        X::pairs(x)
    }

    fn parameters((arguments, x): &Self::Arguments, out: &mut Parameters) {
        for value in arguments.values() {
            out.push(value);
        }
        X::parameters(x, out);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
        (F::Arguments::gather(&mut || declare.param()), X::declare(declare))
    }

    fn begin<'f>(tile: &Visit<'f>, (arguments, x): &Self::Device<'f>) -> Self::State<'f> {
        let lane = tile.thread % 32;
        let low = (lane & 28) + (lane & 1) * 2;
        let first = (lane & 2).equals(0);
        let x = X::begin(&Visit { columns: tile.doubled, ..*tile }, x);
        GatedState { arguments: *arguments, from: [low, low + 1], first, x }
    }

    fn survey<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
        if let Some(doubled) = &part.doubled {
            X::survey(doubled, &mut state.x);
        }
    }

    fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
        if let Some(doubled) = &part.doubled {
            X::load(doubled, &mut state.x);
        }
    }

    fn compute<'f>(part: &Part<'f>, state: &mut Self::State<'f>, row: usize, pair: usize) -> Pair<'f> {
        let f = part.tile.f;
        let Some(doubled) = &part.doubled else { return [f.constant(f32::NAN); 2] };
        let of_x = [pair * 2, pair * 2 + 1].map(|pair| X::compute(doubled, &mut state.x, row, pair));
        if Order::BLOCK > 1 {
            let [gates, ups] = of_x;
            return [0, 1].map(|side| F::apply(state.arguments, [gates[side], ups[side]]));
        }
        // Lane t of four has columns 2t, 2t + 1 of eight, so one of the result's; twice that makes eight again.
        let halves = of_x.map(|pair| F::apply(state.arguments, pair));
        state.from.map(|lane| {
            let [first, second] = halves.map(|half| f.shuffle(half, lane));
            first.where_or(state.first, second)
        })
    }

    fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>) {
        X::end(&Visit { columns: tile.doubled, ..*tile }, &mut state.x);
    }

    fn evaluate(host: &mut Host<'_>, (arguments, x): &Self::Arguments, [row, column]: [u32; 2]) -> Bounded {
        let n = host.shape.n;
        host.shape.n = n * 2;
        let pair = Self::columns(column).map(|column| X::evaluate(host, x, [row, column]));
        host.shape.n = n;
        evaluate_bounded::<F, 2>(*arguments, pair)
    }
}
