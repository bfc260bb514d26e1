//! Rotation of pairs of neighbouring columns by an angle each: rotary position embeddings.

use core::marker::PhantomData;

use super::{
    AnyNode, Begin, Bounded, Given, Host, Node, NodeState, NodeTraits, NodeValue, NodeWord, Pair, Part,
    Shape, Site, Spell, State, Supplied, Supply, Takes,
};
use crate::real::Real;

/// Rotates neighbouring columns (2j, 2j + 1) of X as points of the plane. With `x0, x1` of X, and `c, s` of
/// `Angles` in the same two columns, the result is `x0 c - x1 s` and `x0 s + x1 c`.
///
/// `Angles` is any node with the cosine in even columns and the sine in odd ones: a matrix
/// ([`Load`](super::Load)) if each row has its own angles, a [`RowVector`](super::RowVector) if all rows
/// share them, [`Cyclic`](super::Cyclic) for a table that repeats from head to head. N must be even.
#[derive(Clone, Copy, Debug)]
pub struct Rotate<X, Angles>(PhantomData<(X, Angles)>);

/// The traits of a [`Rotate`] of a value by angles.
///
/// # Errors
/// They cannot be combined.
const fn rotated(x: NodeTraits, angles: NodeTraits) -> Result<NodeTraits, &'static str> {
    if x.free > 0 || angles.free > 0 {
        return Err(
            "a Bound inside of Rotate names a Let around it, which has one column's value where two are needed",
        );
    }
    match x.beside(angles) {
        Ok(traits) => Ok(traits.in_single()),
        Err(words) => Err(words),
    }
}

/// Rotates a point.
fn turn<R: Real>([x, y]: [R; 2], [cos, sin]: [R; 2]) -> [R; 2] {
    [x.mul_add(cos, -(y * sin)), x.mul_add(sin, y * cos)]
}

/// The states of a [`Rotate`]'s value and of its angles.
struct RotateState<'f>([State<'f>; 2]);

impl<'f> NodeState<'f> for RotateState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.0
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let [point, angle] = self.0.each_mut().map(|child| child.compute(part, row, pair));
        turn(point, angle)
    }
}

impl<X: Node, A: Node> Node for Rotate<X, A> {
    type Arguments = (X::Arguments, A::Arguments);
    const TRAITS: NodeTraits = NodeTraits::legal(rotated(X::TRAITS, A::TRAITS));

    fn name() -> String {
        format!("rot_{}_{}", X::name(), A::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name(), A::name()]);
        X::spell(out);
        A::spell(out);
    }

    fn visit((x, angles): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        let mut here = site.then("rotate");
        if !shape.n.is_multiple_of(2) {
            here.refuse(format!("the value has {} columns, an even number was needed", shape.n));
        }
        X::visit(x, shape, &mut here.then("0"));
        A::visit(angles, shape, &mut here.then("1"));
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let children = [X::device(given), A::device(given)];
        Box::new(move |tile| Box::new(RotateState(children.each_ref().map(|child| child(tile)))))
    }

    fn evaluate(host: &mut Host<'_>, (x, angles): &Self::Arguments, [row, column]: [u32; 2]) -> Bounded {
        let columns = [column & !1, column | 1];
        let point = columns.map(|column| X::evaluate(host, x, [row, column]));
        let angle = columns.map(|column| A::evaluate(host, angles, [row, column]));
        turn(point, angle)[(column & 1) as usize]
    }
}

impl<X: Supplied, A: Supplied> Supplied for Rotate<X, A> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (X::supply(from, shape), A::supply(from, shape))
    }
}

/// How formulas call it.
pub(super) static WORDS: [NodeWord; 1] = [NodeWord::new(
    "rotate",
    &[Takes::Value("x"), Takes::Value("angles")],
    NodeValue::of::<Rotate<AnyNode, AnyNode>>("Rotate<AnyNode, AnyNode>", |x| match x {
        [x, angles] => rotated(*x, *angles),
        _ => Ok(NodeTraits::LEAF),
    }),
)];
