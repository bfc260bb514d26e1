//! Functions of nodes.

use core::marker::PhantomData;

use super::{Declare, Facts, Host, Node, NodeError, Pair, Parameters, Part, Path, Shape, Span, Visit};
use ptx::Value;

/// A function of `N` numbers. (Replaced by the generic one.)
pub trait Function<const N: usize>: 'static {
    /// Its name.
    fn name() -> String;
    /// On the device.
    fn device<'f>(x: [Value<'f, f32>; N]) -> Value<'f, f32>;
    /// On the host.
    fn host(x: [Span; N]) -> Span;
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident, $n:literal, [$($x:ident),+] => $result:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl Function<$n> for $name {
            fn name() -> String { stringify!($name).to_lowercase() }
            fn device<'f>([$($x),+]: [Value<'f, f32>; $n]) -> Value<'f, f32> { $result }
            fn host([$($x),+]: [Span; $n]) -> Span { $result }
        }
    )*};
}

functions! {
    /// The sum of two.
    Add, 2, [x, y] => x + y;
    /// The product of two.
    Mul, 2, [x, y] => x * y;
    /// `x * y + z`.
    MulAdd, 3, [x, y, z] => x.mul_add(y, z);
}

/// `F(X, Y, ..)`: a function of the values of other nodes, element by element. `Xs` is a tuple of as many nodes as the
/// function takes numbers.
#[derive(Clone, Copy, Debug)]
pub struct Compute<F, Xs>(PhantomData<(F, Xs)>);

/// The operands of a [`Compute`]: a tuple of one to four nodes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are no operands of a function",
    note = "write a tuple of one to four nodes: `Compute<Gelu, (X,)>`, `Compute<Add, (X, Y)>`"
)]
pub trait Inputs<const N: usize>: 'static {
    /// Theirs, one after the other.
    type Arguments;
    /// Theirs.
    type Device<'f>: Copy;
    /// Theirs.
    type State<'f>;
    /// What is known of all of them.
    const FACTS: Facts;

    /// Their names.
    fn name() -> String;

    /// As [`Node::check`]; the path to an operand ends in its number.
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

    /// As [`Node::load`].
    fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>);

    /// As [`Node::compute`].
    fn compute<'f>(part: &Part<'f>, state: &mut Self::State<'f>, row: usize, pair: usize) -> [Pair<'f>; N];

    /// As [`Node::end`].
    fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>);

    /// As [`Node::evaluate`].
    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> [Span; N];
}

macro_rules! inputs {
    ($($n:literal: $($node:ident $index:tt $digit:literal),+;)*) => {$(
        impl<$($node: Node),+> Inputs<$n> for ($($node,)+) {
            type Arguments = ($($node::Arguments,)+);
            type Device<'f> = ($($node::Device<'f>,)+);
            type State<'f> = ($($node::State<'f>,)+);
            const FACTS: Facts = Facts::LEAF$(.beside($node::FACTS))+;

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

            fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> [Span; $n] {
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

macro_rules! compute {
    ($($n:literal: $($node:ident),+;)*) => {$(
        impl<F: Function<$n>, $($node: Node),+> Node for Compute<F, ($($node,)+)> {
            type Arguments = <($($node,)+) as Inputs<$n>>::Arguments;
            type Device<'f> = <($($node,)+) as Inputs<$n>>::Device<'f>;
            type State<'f> = <($($node,)+) as Inputs<$n>>::State<'f>;
            const FACTS: Facts = <($($node,)+) as Inputs<$n>>::FACTS;

            fn name() -> String {
                format!("{}_{}", F::name(), <($($node,)+)>::name())
            }

            fn check(arguments: &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
                <($($node,)+)>::check(arguments, shape, &path.then(&F::name()))
            }

            fn pairs(arguments: &Self::Arguments) -> bool {
                <($($node,)+)>::pairs(arguments)
            }

            fn parameters(arguments: &Self::Arguments, out: &mut Parameters) {
                <($($node,)+)>::parameters(arguments, out);
            }

            fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
                <($($node,)+)>::declare(declare)
            }

            fn begin<'f>(tile: &Visit<'f>, device: &Self::Device<'f>) -> Self::State<'f> {
                <($($node,)+)>::begin(tile, device)
            }

            fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
                <($($node,)+)>::load(part, state);
            }

            fn compute<'f>(
                part: &Part<'f>,
                state: &mut Self::State<'f>,
                row: usize,
                pair: usize,
            ) -> Pair<'f> {
                let inputs = <($($node,)+)>::compute(part, state, row, pair);
                [0, 1].map(|side| F::device(inputs.map(|input| input[side])))
            }

            fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>) {
                <($($node,)+)>::end(tile, state);
            }

            fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Span {
                F::host(<($($node,)+)>::evaluate(host, arguments, at))
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
