//! Leaves with one value for all elements, and the accumulator.

use core::marker::PhantomData;

use typenum::{U1, Unsigned};

use super::{
    Begin, Bounded, Given, Host, Node, NodeTraits, Number, Shape, Site, Spell, State, Supplied, Supply, leaf,
};
use crate::element::Element;

/// The state of a node with one value for all elements.
pub(super) fn uniform(value: Number<'_>) -> State<'_> {
    leaf(move |_, _, _| [value; 2])
}

/// The accumulator: the element of A * B.
#[derive(Clone, Copy, Debug)]
pub struct Accumulator;

impl Node for Accumulator {
    type Arguments = ();
    const TRAITS: NodeTraits = NodeTraits { halvings: Some(0), ..NodeTraits::LEAF };

    fn name() -> String {
        "acc".to_owned()
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit((): &mut (), _shape: Shape, _site: &mut Site<'_>) {}

    fn device<'f>(_given: &mut Given<'f>) -> Begin<'f> {
        Box::new(|_| leaf(|part, row, pair| part.rows[row].accumulators[pair]))
    }

    fn evaluate(host: &mut Host<'_>, (): &(), at: [u32; 2]) -> Bounded {
        host.accumulator(at)
    }
}

impl Supplied for Accumulator {
    fn supply(_from: &mut dyn Supply, _shape: Shape) {}
}

/// The number `N / D`, a constant of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Constant<N, D = U1>(PhantomData<(N, D)>);

impl<N: Unsigned + 'static, D: Unsigned + 'static> Constant<N, D> {
    fn value() -> f64 {
        const { assert!(D::U32 > 0, "a Constant's denominator is 0: use Constant<U1, U2> for one half") }
        f64::from(N::U32) / f64::from(D::U32)
    }
}

impl<N: Unsigned + 'static, D: Unsigned + 'static> Node for Constant<N, D> {
    type Arguments = ();
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        format!("{}d{}", N::U32, D::U32)
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit((): &mut (), _shape: Shape, _site: &mut Site<'_>) {}

    fn device<'f>(_given: &mut Given<'f>) -> Begin<'f> {
        Box::new(|tile| uniform(tile.arithmetic.constant(tile.f, Self::value())))
    }

    fn evaluate(host: &mut Host<'_>, (): &(), _at: [u32; 2]) -> Bounded {
        host.number(Self::value())
    }
}

impl<N: Unsigned + 'static, D: Unsigned + 'static> Supplied for Constant<N, D> {
    fn supply(_from: &mut dyn Supply, _shape: Shape) {}
}

/// A number passed by the host, the same for all elements.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Node for Scalar {
    type Arguments = f64;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        "s".to_owned()
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit(value: &mut f64, _shape: Shape, site: &mut Site<'_>) {
        site.factor(value);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let value = given.factor();
        Box::new(move |_| uniform(value))
    }

    fn evaluate(host: &mut Host<'_>, value: &f64, _at: [u32; 2]) -> Bounded {
        host.number(*value)
    }
}

impl Supplied for Scalar {
    fn supply(from: &mut dyn Supply, _shape: Shape) -> Self::Arguments {
        let mut value = [0.0];
        from.scalars(&[], &mut value);
        value[0]
    }
}

/// A number in device memory, the same for all elements: for example, the result of an earlier kernel. Its
/// argument is the address.
#[derive(Clone, Copy, Debug)]
pub struct ScalarPointer<T>(PhantomData<T>);

impl<T: Element> Node for ScalarPointer<T> {
    type Arguments = u64;
    const TRAITS: NodeTraits = NodeTraits::reading(T::FORMAT);

    fn name() -> String {
        format!("p{}", T::FORMAT.name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit(address: &mut u64, _shape: Shape, site: &mut Site<'_>) {
        site.reads(T::FORMAT, address, 1);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let address = given.parameter();
        Box::new(move |tile| {
            let element = T::FORMAT.load(tile.f, tile.place(address), 0);
            uniform(tile.arithmetic.widen(T::FORMAT, element))
        })
    }

    fn evaluate(host: &mut Host<'_>, address: &u64, _at: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, *address)
    }
}

impl<T: Element> Supplied for ScalarPointer<T> {
    fn supply(from: &mut dyn Supply, _shape: Shape) -> Self::Arguments {
        from.vector(T::FORMAT, 1)
    }
}
