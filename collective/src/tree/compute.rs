//! Functions of the values of other nodes.

use core::marker::PhantomData;

use super::{
    Bounded, Declare, Host, Node, NodeError, NodeTraits, Pair, Parameters, Part, Path, Shape, Visit,
};
use ptx::Value;

use crate::functions::{Pointwise, Scalars, evaluate_bounded};

/// `F(X, Y, ..)`: a function of the values of other nodes, element by element. `Xs` is a tuple of nodes, one
/// per input of the function.
///
/// Its arguments are those of the function, then those of the operands.
#[derive(Clone, Copy, Debug)]
pub struct Compute<F, Xs>(PhantomData<(F, Xs)>);

/// The operands of a [`Compute`]: a tuple of one to four nodes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are no operands of a function",
    note = "write a tuple of one to four nodes: `Compute<Gelu, (X,)>`, `Compute<Add, (X, Y)>`"
)]
pub trait Inputs<const N: usize>: 'static {
    /// The arguments of the operands, in order.
    type Arguments;
    /// The device parameters of the operands, in order.
    type Device<'f>: 'f;
    /// The states of the operands, in order.
    type State<'f>: 'f;
    /// The combined traits of the operands.
    const TRAITS: NodeTraits;

    /// The combined names of the operands.
    fn name() -> String;

    /// As [`Node::check`]. The path to an operand ends in its index.
    ///
    /// # Errors
    /// The first illegal argument.
    fn check(arguments: &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError>;

    /// As [`Node::pairs`].
    fn pairs(arguments: &Self::Arguments) -> bool;

    /// As [`Node::parameters`].
    fn parameters(arguments: &Self::Arguments, out: &mut Parameters);

    /// As [`Node::declare`].
    fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f>;

    /// As [`Node::begin`].
    fn begin<'f>(tile: &Visit<'f>, device: &Self::Device<'f>) -> Self::State<'f>;

    /// As [`Node::survey`].
    fn survey<'f>(part: &Part<'f>, state: &mut Self::State<'f>);

    /// As [`Node::load`].
    fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>);

    /// As [`Node::compute`].
    fn compute<'f>(part: &Part<'f>, state: &mut Self::State<'f>, row: usize, pair: usize) -> [Pair<'f>; N];

    /// As [`Node::end`].
    fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>);

    /// As [`Node::evaluate`].
    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> [Bounded; N];
}

macro_rules! inputs {
    ($($n:literal: $($node:ident $index:tt $digit:literal),+;)*) => {$(
        impl<$($node: Node),+> Inputs<$n> for ($($node,)+) {
            type Arguments = ($($node::Arguments,)+);
            type Device<'f> = ($($node::Device<'f>,)+);
            type State<'f> = ($($node::State<'f>,)+);
            const TRAITS: NodeTraits = {
                let traits = NodeTraits::LEAF;
                $(let traits = NodeTraits::legal(traits.beside($node::TRAITS));)+
                traits
            };

            fn name() -> String {
                [$($node::name()),+].join("_")
            }

            fn check(arguments: &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
                $($node::check(&arguments.$index, shape, &path.then($digit))?;)+
                Ok(())
            }

            fn pairs(arguments: &Self::Arguments) -> bool {
                $($node::pairs(&arguments.$index))&&+
            }

            fn parameters(arguments: &Self::Arguments, out: &mut Parameters) {
                $($node::parameters(&arguments.$index, out);)+
            }

            fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
                ($($node::declare(declare),)+)
            }

            fn begin<'f>(tile: &Visit<'f>, device: &Self::Device<'f>) -> Self::State<'f> {
                ($($node::begin(tile, &device.$index),)+)
            }

            fn survey<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
                $($node::survey(part, &mut state.$index);)+
            }

            fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
                $($node::load(part, &mut state.$index);)+
            }

            fn compute<'f>(
                part: &Part<'f>,
                state: &mut Self::State<'f>,
                row: usize,
                pair: usize,
            ) -> [Pair<'f>; $n] {
                [$($node::compute(part, &mut state.$index, row, pair)),+]
            }

            fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>) {
                $($node::end(tile, &mut state.$index);)+
            }

            fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> [Bounded; $n] {
                [$($node::evaluate(host, &arguments.$index, at)),+]
            }
        }
    )*};
}

inputs! {
    1: A 0 "0";
    2: A 0 "0", B 1 "1";
    3: A 0 "0", B 1 "1", C 2 "2";
    4: A 0 "0", B 1 "1", C 2 "2", D 3 "3";
}

/// A function's arguments on the device, and the states of its operands.
#[derive(Debug)]
pub struct ComputeState<A, X> {
    arguments: A,
    operands: X,
}

macro_rules! compute {
    ($($n:literal: $($node:ident),+;)*) => {$(
        impl<F: Pointwise<$n>, $($node: Node),+> Node for Compute<F, ($($node,)+)> {
            type Arguments = (F::Arguments, <($($node,)+) as Inputs<$n>>::Arguments);
            type Device<'f> = (
                <F::Arguments as Scalars>::Of<Value<'f, f32>>,
                <($($node,)+) as Inputs<$n>>::Device<'f>,
            );
            type State<'f> = ComputeState<
                <F::Arguments as Scalars>::Of<Value<'f, f32>>,
                <($($node,)+) as Inputs<$n>>::State<'f>,
            >;
            const TRAITS: NodeTraits = <($($node,)+) as Inputs<$n>>::TRAITS.of_function(F::REGISTERS);

            fn name() -> String {
                format!("{}_{}", F::name(), <($($node,)+)>::name())
            }

            fn check((_, operands): &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
                <($($node,)+)>::check(operands, shape, &path.then(&F::name()))
            }

            fn pairs((_, operands): &Self::Arguments) -> bool {
                <($($node,)+)>::pairs(operands)
            }

            fn parameters((arguments, operands): &Self::Arguments, out: &mut Parameters) {
                for value in arguments.values() {
                    out.push(value);
                }
                <($($node,)+)>::parameters(operands, out);
            }

            fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
                (F::Arguments::gather(&mut || declare.param()), <($($node,)+)>::declare(declare))
            }

            fn begin<'f>(tile: &Visit<'f>, (arguments, operands): &Self::Device<'f>) -> Self::State<'f> {
                ComputeState { arguments: *arguments, operands: <($($node,)+)>::begin(tile, operands) }
            }

            fn survey<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
                <($($node,)+)>::survey(part, &mut state.operands);
            }

            fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
                <($($node,)+)>::load(part, &mut state.operands);
            }

            fn compute<'f>(
                part: &Part<'f>,
                state: &mut Self::State<'f>,
                row: usize,
                pair: usize,
            ) -> Pair<'f> {
                let operands = <($($node,)+)>::compute(part, &mut state.operands, row, pair);
                [0, 1].map(|side| F::apply(state.arguments, operands.map(|operand| operand[side])))
            }

            fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>) {
                <($($node,)+)>::end(tile, &mut state.operands);
            }

            fn evaluate(
                host: &mut Host<'_>,
                (arguments, operands): &Self::Arguments,
                at: [u32; 2],
            ) -> Bounded {
                let operands = <($($node,)+)>::evaluate(host, operands, at);
                evaluate_bounded::<F, $n>(*arguments, operands)
            }
        }
    )*};
}

compute! {
    1: A;
    2: A, B;
    3: A, B, C;
    4: A, B, C, D;
}
