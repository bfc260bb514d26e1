//! Gated linear units: pairs of columns that become one.

use core::marker::PhantomData;

use ptx::Value;
use typenum::{U8, Unsigned};

use super::compute::OnDevice;
use super::supply::arguments;
use super::{
    Begin, Bounded, Columns, Given, Host, Node, NodeState, NodeTile, NodeTraits, Pair, Part, Shape, Site,
    Spell, State, Supplied, Supply,
};
use crate::functions::{Pointwise, Scalars};
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

/// The order of the columns of gates and ups: [`Alternating`], [`Blocks`] or [`Split`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no order of gates and ups",
    note = "write `Alternating` (gate, up, gate, up), `Blocks<U8>` (8 gates, then their 8 ups) or `Split` (all gates, \
            then all ups)"
)]
pub trait GateOrder: 'static {
    /// Number of consecutive gates, which are followed by the same number of ups, then the next gates.
    /// [`NodeTraits::SPLIT`] if all gates come before all ups.
    const BLOCK: u32;
}

/// Gate, up, gate, up: two neighbouring columns form a pair. Costs two shuffles per element.
#[derive(Clone, Copy, Debug)]
pub struct Alternating;

/// `G` gates, then their `G` ups, then the next `G` gates. A thread holds both columns of a pair, so nothing
/// is shuffled. `G` must be a multiple of 8; tile N and N must be multiples of `2 G`.
///
/// With `G` = 8, the default, the order of B's columns fits every tile. With `G` half of tile N, the gates of
/// a tile are its left half.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<G = U8>(PhantomData<G>);

/// All gates, then all ups, as in the concatenation of two weight matrices. The gate of column j is B's
/// column j, its up is B's column `N / 2 + j`. The mainloop loads half of each tile's columns from each half
/// of B. So a thread holds both columns of a pair, and nothing is shuffled or rearranged.
///
/// N must be a multiple of 4; of 16, if B is N-major and loaded by tensor copies. Tile N must be a multiple
/// of 16. Nodes inside that look at whole rows, or that reduce in a fixed order, are refused.
#[derive(Clone, Copy, Debug)]
pub struct Split;

impl GateOrder for Split {
    const BLOCK: u32 = NodeTraits::SPLIT;
}

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
/// `Order` says which columns of B are the gate and the up of column j; [`Gated::columns`] computes them.
/// Nodes inside see all N columns, nodes around it see N / 2. N must be even, and tile N a multiple of 16.
///
/// ```
/// use collective::functions::Silu;
/// use collective::tree::{Accumulator, Blocks, Gated, Glu, Split};
///
/// type Alternates = Gated<Glu<Silu>, Accumulator>;
/// assert_eq!(Alternates::columns(9, 96), [18, 19]);
/// /// Eight gates, eight ups.
/// type InEights = Gated<Glu<Silu>, Accumulator, Blocks>;
/// assert_eq!(InEights::columns(9, 96), [17, 25]);
/// /// 48 gates, 48 ups.
/// type InHalves = Gated<Glu<Silu>, Accumulator, Split>;
/// assert_eq!(InHalves::columns(9, 96), [9, 57]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gated<F, X, Order = Alternating>(PhantomData<(F, X, Order)>);

impl<F, X, Order: GateOrder> Gated<F, X, Order> {
    const SPLIT: bool = Order::BLOCK == NodeTraits::SPLIT;

    /// The columns of gate and up, of `n` columns, that become column `j`.
    pub const fn columns(j: u32, n: u32) -> [u32; 2] {
        if Self::SPLIT {
            return [j, n / 2 + j];
        }
        let block = Order::BLOCK;
        let gate = j / block * 2 * block + j % block;
        [gate, gate + block]
    }
}

/// The tile as nodes inside see it: all columns, or, if they are split, those of the gates and then those of the ups.
fn inside<'f>(tile: &NodeTile<'f>, split: bool) -> Vec<NodeTile<'f>> {
    if !split {
        return vec![NodeTile { columns: tile.doubled, ..*tile }];
    }
    let Columns { first, pairs, n } = tile.columns;
    let ups = Columns { first: first + n, pairs, n: tile.doubled.n };
    vec![*tile, NodeTile { columns: ups, ..*tile }]
}

/// The traits of a [`Gated`] around a value. `block` is [`GateOrder::BLOCK`], and `registers` are those that the
/// function needs.
///
/// # Errors
/// The value cannot be gated.
pub(crate) const fn gated(x: NodeTraits, block: u32, registers: u32) -> Result<NodeTraits, &'static str> {
    if x.free > 0 {
        return Err("a Bound inside of Gated names a Let around it, whose value has half the columns");
    }
    if matches!(x.halvings, Some(1..)) {
        return Err("a Gated stands inside of another: columns are halved once");
    }
    if block == NodeTraits::SPLIT && (x.whole_tiles || x.surveys) {
        return Err(
            "inside of a split Gated a tile has columns of both halves, which no ordered reduction and no TopKSoftmax \
             looks through: put it around the Gated",
        );
    }
    Ok(NodeTraits { halvings: Some(1), gate_block: block, ..x.of_function(registers).in_single() })
}

/// The state of a [`Gated`] for a tile.
struct GatedState<'f, F: Pointwise<2>> {
    arguments: OnDevice<'f, F::Arguments>,
    /// [`GateOrder::BLOCK`].
    block: u32,
    /// Of the lanes that share a row, the two that hold the columns that this lane will hold.
    from: [Value<'f, u32>; 2],
    /// Whether these columns come from the first of two groups of eight.
    first: Value<'f, bool>,
    /// One state; or two, for gates and ups, if they are split.
    x: Vec<State<'f>>,
}

impl<'f, F: Pointwise<2>> NodeState<'f> for GatedState<'f, F> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn survey(&mut self, part: &Part<'f>) {
        for (doubled, x) in part.doubled.iter().zip(&mut self.x) {
            x.survey(doubled);
        }
    }

    fn load(&mut self, part: &Part<'f>) {
        for (doubled, x) in part.doubled.iter().zip(&mut self.x) {
            x.load(doubled);
        }
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let f = part.tile.f;
        let of_x = match (&part.doubled[..], &mut self.x[..]) {
            ([both], [x]) => [pair * 2, pair * 2 + 1].map(|pair| x.compute(both, row, pair)),
            ([gates, ups], [of_gates, of_ups]) => {
                [of_gates.compute(gates, row, pair), of_ups.compute(ups, row, pair)]
            }
            _ => return [f.constant(f32::NAN).into(); 2],
        };
        if self.block > 1 {
            let [gates, ups] = of_x;
            return [0, 1].map(|side| F::apply(self.arguments, [gates[side], ups[side]]));
        }
        // Lane t of four has columns 2t, 2t + 1 of eight, so one of the result's. Two such groups make eight
        // columns again.
        let halves = of_x.map(|pair| F::apply(self.arguments, pair));
        self.from.map(|lane| {
            let [first, second] = halves.map(|half| f.shuffle(half.single(), lane));
            first.where_or(self.first, second).into()
        })
    }

    fn end(&mut self, tile: &NodeTile<'f>) {
        for (tile, x) in inside(tile, self.block == NodeTraits::SPLIT).iter().zip(&mut self.x) {
            x.end(tile);
        }
    }
}

impl<F: Pointwise<2>, X: Node, Order: GateOrder> Node for Gated<F, X, Order> {
    type Arguments = (F::Arguments, X::Arguments);
    const TRAITS: NodeTraits = NodeTraits::legal(gated(X::TRAITS, Order::BLOCK, F::REGISTERS));

    fn name() -> String {
        let block = match Order::BLOCK {
            1 => String::new(),
            NodeTraits::SPLIT => "split".to_owned(),
            block => block.to_string(),
        };
        format!("gated{block}_{}_{}", F::name(), X::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name()]);
        X::spell(out);
    }

    fn visit((arguments, x): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        site.function(arguments);
        let function = F::name();
        X::visit(x, Shape { n: shape.n * 2, ..shape }, &mut site.then(&function));
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let (arguments, x) = (given.function::<F, 2>(), X::device(given));
        Box::new(move |tile| {
            let lane = tile.thread % 32;
            let low = (lane & 28) + (lane & 1) * 2;
            let first = (lane & 2).equals(0);
            let x = inside(tile, Self::SPLIT).iter().map(&x).collect();
            Box::new(GatedState::<F> { arguments, block: Order::BLOCK, from: [low, low + 1], first, x })
        })
    }

    fn evaluate(host: &mut Host<'_>, (arguments, x): &Self::Arguments, [row, column]: [u32; 2]) -> Bounded {
        let n = host.shape.n;
        host.shape.n = n * 2;
        let pair = Self::columns(column, n * 2).map(|column| X::evaluate(host, x, [row, column]));
        host.shape.n = n;
        host.apply::<F, 2>(*arguments, pair)
    }
}

impl<F: Pointwise<2>, X: Supplied, Order: GateOrder> Supplied for Gated<F, X, Order> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (arguments::<F, 2>(from), X::supply(from, Shape { n: shape.n * 2, ..shape }))
    }
}
