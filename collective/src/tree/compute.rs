//! Functions of the values of other nodes.

use core::marker::PhantomData;

use ptx::Value;

use super::{Begin, Bounded, Declare, Host, Node, NodeState, NodeTraits, Pair, Part, Shape, Site, State};
use crate::functions::{Pointwise, Scalars, evaluate_bounded};

/// `F(X, Y, ..)`: a function of the values of other nodes, element by element. `Xs` is a tuple of one to four nodes,
/// one per input of the function.
///
/// Its arguments are those of the function, then those of the operands.
#[derive(Clone, Copy, Debug)]
pub struct Compute<F, Xs>(PhantomData<(F, Xs)>);

/// The arguments of a function on the device.
pub(super) type OnDevice<'f, A> = <A as Scalars>::Of<Value<'f, f32>>;

impl Site<'_> {
    /// Visits the arguments of a function.
    pub(super) fn function<A: Scalars>(&mut self, arguments: &mut A) {
        let mut values = arguments.values();
        values.iter_mut().for_each(|value| self.visit.factor(value));
        let mut values = values.into_iter();
        // There are as many as `gather` asks for.
        *arguments = A::of(A::gather(&mut || values.next().unwrap_or(f32::NAN)));
    }
}

impl<'f> Declare<'f> {
    /// Declares the arguments of a function.
    pub(super) fn function<A: Scalars>(&mut self) -> OnDevice<'f, A> {
        A::gather(&mut || self.param())
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

            fn visit((arguments, operands): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
                site.function(arguments);
                let function = F::name();
                $($node::visit(&mut operands.$index, shape, &mut site.then(&function).then($digit));)+
            }

            fn declare<'f>(declare: &mut Declare<'f>) -> Begin<'f> {
                let arguments = declare.function::<F::Arguments>();
                let operands = [$($node::declare(declare)),+];
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
                evaluate_bounded::<F, $n>(*arguments, operands)
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
