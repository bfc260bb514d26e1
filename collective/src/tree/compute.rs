//! Functions of the values of other nodes.

use core::marker::PhantomData;

use super::supply::arguments;
use super::{
    Begin, Bounded, Given, Host, Node, NodeState, NodeTraits, Number, Pair, Part, Shape, Site, Spell, State,
    Supplied, Supply,
};
use crate::functions::{Pointwise, Scalars};
use crate::real::Needs;

/// `F(X, Y, ..)`: a function of the values of other nodes, element by element. `Xs` is a tuple of one to four nodes,
/// one per input of the function.
///
/// Its arguments are those of the function, then those of the operands.
#[derive(Clone, Copy, Debug)]
pub struct Compute<F, Xs>(PhantomData<(F, Xs)>);

/// The arguments of a function on the device.
pub(super) type OnDevice<'f, A> = <A as Scalars>::Of<Number<'f>>;

impl Site<'_> {
    /// Visits the arguments of a function.
    pub(super) fn function<A: Scalars>(&mut self, arguments: &mut A) {
        let mut values = arguments.values();
        values.iter_mut().for_each(|value| self.factor(value));
        let mut values = values.into_iter();
        // There are as many as `gather` asks for.
        *arguments = A::of(A::gather(&mut || values.next().unwrap_or(f64::NAN)));
    }
}

impl<'f> Given<'f> {
    /// The arguments of a function. What the tree does not compute in makes the program illegal.
    pub(super) fn function<F: Pointwise<N>, const N: usize>(&mut self) -> OnDevice<'f, F::Arguments> {
        if let Err(reason) = self.arithmetic().has(Needs::of::<F, N>()) {
            self.builder().refuse(reason);
        }
        F::Arguments::gather(&mut || self.factor())
    }
}

/// The state of a [`Compute`].
struct ComputeState<'f, F: Pointwise<N>, const N: usize> {
    arguments: OnDevice<'f, F::Arguments>,
    operands: [State<'f>; N],
}

impl<'f, F: Pointwise<N>, const N: usize> NodeState<'f> for ComputeState<'f, F, N> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.operands
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let operands = self.operands.each_mut().map(|operand| operand.compute(part, row, pair));
        [0, 1].map(|side| F::apply(self.arguments, operands.map(|operand| operand[side])))
    }
}

macro_rules! compute {
    ($($n:literal: $($node:ident $index:tt $digit:literal),+;)*) => {$(
        impl<F: Pointwise<$n>, $($node: Node),+> Node for Compute<F, ($($node,)+)> {
            type Arguments = (F::Arguments, ($($node::Arguments,)+));
            const TRAITS: NodeTraits = {
                let traits = NodeTraits::LEAF;
                $(let traits = NodeTraits::legal(traits.beside($node::TRAITS));)+
                traits.of_function(F::REGISTERS)
            };

            fn name() -> String {
                [F::name(), $($node::name()),+].join("_")
            }

            fn spell(out: &mut Spell) {
                out.node::<Self>(&[$($node::name()),+]);
                $($node::spell(out);)+
            }

            fn visit((arguments, operands): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
                let function = F::name();
                site.then(&function).function(arguments);
                $($node::visit(&mut operands.$index, shape, &mut site.then(&function).then($digit));)+
            }

            fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
                let arguments = given.function::<F, $n>();
                let operands = [$($node::device(given)),+];
                Box::new(move |tile| {
                    let operands = operands.each_ref().map(|operand| operand(tile));
                    Box::new(ComputeState::<F, $n> { arguments, operands })
                })
            }

            fn evaluate(
                host: &mut Host<'_>,
                (arguments, operands): &Self::Arguments,
                at: [u32; 2],
            ) -> Bounded {
                let operands = [$($node::evaluate(host, &operands.$index, at)),+];
                host.apply::<F, $n>(*arguments, operands)
            }
        }
    )*};
}

compute! {
    1: A 0 "0";
    2: A 0 "0", B 1 "1";
    3: A 0 "0", B 1 "1", C 2 "2";
    4: A 0 "0", B 1 "1", C 2 "2", D 3 "3";
}

impl<F: Pointwise<1>, A: Supplied> Supplied for Compute<F, (A,)> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (arguments::<F, 1>(from), (A::supply(from, shape),))
    }
}

impl<F: Pointwise<2>, A: Supplied, B: Supplied> Supplied for Compute<F, (A, B)> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (arguments::<F, 2>(from), (A::supply(from, shape), B::supply(from, shape)))
    }
}

impl<F: Pointwise<3>, A: Supplied, B: Supplied, C: Supplied> Supplied for Compute<F, (A, B, C)> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        let own = arguments::<F, 3>(from);
        (own, (A::supply(from, shape), B::supply(from, shape), C::supply(from, shape)))
    }
}

impl<F: Pointwise<4>, A: Supplied, B: Supplied, C: Supplied, D: Supplied> Supplied
    for Compute<F, (A, B, C, D)>
{
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        let own = arguments::<F, 4>(from);
        let first = (A::supply(from, shape), B::supply(from, shape));
        (own, (first.0, first.1, C::supply(from, shape), D::supply(from, shape)))
    }
}
