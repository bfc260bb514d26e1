//! Functions of the values of other nodes.

use core::marker::PhantomData;

use ptx::Value;

use super::{
    Begin, Bounded, Declare, Host, Node, NodeError, NodeState, NodeTraits, Pair, Parameters, Part, Path,
    Shape, State,
};
use crate::functions::{Pointwise, Scalars, evaluate_bounded};

/// `F(X, Y, ..)`: a function of the values of other nodes, element by element. `Xs` is a tuple of one to four nodes,
/// one per input of the function.
///
/// Its arguments are those of the function, then those of the operands.
#[derive(Clone, Copy, Debug)]
pub struct Compute<F, Xs>(PhantomData<(F, Xs)>);

/// The arguments of a function on the device.
pub(super) type OnDevice<'f, A> = <A as Scalars>::Of<Value<'f, f32>>;

impl Parameters {
    /// Appends the arguments of a function.
    pub(super) fn function(&mut self, arguments: impl Scalars) {
        arguments.values().into_iter().for_each(|value| self.push(value));
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

            fn check((_, operands): &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
                let function = F::name();
                $($node::check(&operands.$index, shape, &path.then(&function).then($digit))?;)+
                Ok(())
            }

            fn parameters((arguments, operands): &Self::Arguments, out: &mut Parameters) {
                out.function(*arguments);
                $($node::parameters(&operands.$index, out);)+
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
