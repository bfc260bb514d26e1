//! Pairs of neighbouring columns that become one: gated linear units.

use core::marker::PhantomData;

use ptx::Value;

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

/// Two neighbouring columns become one: column j is `F(X(2j), X(2j + 1))`, so D has N / 2 columns.
///
/// For gated linear units the columns of B alternate: gate, up, gate, up. Nodes inside see all N columns, nodes around it
/// see N / 2. N is even, and tile N is a multiple of 16.
#[derive(Clone, Copy, Debug)]
pub struct Gated<F, X>(PhantomData<(F, X)>);

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

impl<F: Pointwise<2>, X: Node> Node for Gated<F, X> {
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
        Facts { halvings: Some(halvings), ..X::FACTS }
    };

    fn name() -> String {
        format!("gated_{}_{}", F::name(), X::name())
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

    fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
        if let Some(doubled) = &part.doubled {
            X::load(doubled, &mut state.x);
        }
    }

    fn compute<'f>(part: &Part<'f>, state: &mut Self::State<'f>, row: usize, pair: usize) -> Pair<'f> {
        let f = part.tile.f;
        let Some(doubled) = &part.doubled else { return [f.constant(f32::NAN); 2] };
        // Lane t of four has columns 2t, 2t + 1 of eight, so one of the result's; twice that makes eight again.
        let halves = [pair * 2, pair * 2 + 1]
            .map(|pair| F::apply(state.arguments, X::compute(doubled, &mut state.x, row, pair)));
        state.from.map(|lane| {
            let [first, second] = halves.map(|half| f.shuffle(half, lane));
            first.where_or(state.first, second)
        })
    }

    fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>) {
        X::end(tile, &mut state.x);
    }

    fn evaluate(host: &mut Host<'_>, (arguments, x): &Self::Arguments, [row, column]: [u32; 2]) -> Bounded {
        let pair = [0, 1].map(|side| X::evaluate(host, x, [row, 2 * column + side]));
        evaluate_bounded::<F, 2>(*arguments, pair)
    }
}
