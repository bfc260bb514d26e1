//! Where the arguments of a tree come from. A caller names them, or they are drawn at random: both use one
//! walk over the nodes.

use typenum::Unsigned;

use super::quantize::BLOCK;
use super::value::Item;
use super::{
    Accumulator, AuxStore, Bound, ColumnArgument, ColumnVector, Compute, Constant, Cyclic, Destination,
    Dropout, DropoutArgument, Each, EachArgument, GateOrder, Gated, Label, Let, Load, Named, Node, Quantize,
    Reduce, Reduced, Residual, ResidualArgument, Rotate, RowArgument, RowVector, Scalar, ScalarPointer,
    Scratch, Shape, TopKSoftmax,
};
use crate::element::{Element, Format};
use crate::functions::{Pointwise, Scalars};
use crate::operand::MatrixRef;
use crate::real::Accuracy;

/// A source of arguments. A node asks for its own arguments first, then for those of its children in order.
///
/// Whoever implements it keeps its own errors: a walk goes on to the end.
pub trait Supply {
    /// Numbers of the host, for a function that names them so; none for a number of the tree.
    fn scalars(&mut self, names: &[&str], values: &mut [f64]);

    /// The address of `len` packed elements that are read.
    fn vector(&mut self, format: Format, len: u32) -> u64;

    /// A matrix that is read.
    fn matrix(&mut self, format: Format, shape: Shape) -> MatrixRef;

    /// A factor and a matrix, which is read if the factor is not zero.
    fn residual(&mut self, format: Format, shape: Shape) -> ResidualArgument;

    /// A matrix that is written.
    fn output(&mut self, format: Format, shape: Shape) -> MatrixRef;

    /// The address of `len` numbers of `f32` with which values are combined, by a function with this
    /// identity.
    fn reduced(&mut self, identity: f32, len: u32) -> u64;

    /// Memory for partial results.
    fn scratch(&mut self, bytes: u64) -> Scratch;

    /// The arguments of a mask.
    fn dropout(&mut self) -> DropoutArgument;

    /// Bytes from the data of one GEMM of a launch to that of the next, for what is asked next; 0 if all
    /// share it.
    fn stride(&mut self) -> u64;

    /// A number of the tree.
    fn literal(&mut self) -> f64 {
        f64::NAN
    }

    /// The next node of a tree that is a value.
    fn item(&mut self) -> Option<&'static Item> {
        None
    }
}

/// A tree whose arguments can be supplied.
pub trait Supplied: Node {
    /// The arguments for a value of this shape.
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments;
}

/// Arguments of a function.
fn arguments<F: Pointwise<N>, const N: usize>(from: &mut dyn Supply) -> F::Arguments {
    let mut values = vec![0.0; F::Arguments::COUNT];
    if !values.is_empty() {
        from.scalars(F::ARGUMENTS, &mut values);
    }
    let mut values = values.into_iter();
    // `gather` requests exactly `COUNT` scalars.
    F::Arguments::of(F::Arguments::gather(&mut || values.next().unwrap_or(f64::NAN)))
}

macro_rules! supplied {
    ($([$($generics:tt)*] $node:ty, |$from:pat_param, $shape:pat_param| $arguments:expr;)*) => {$(
        impl<$($generics)*> Supplied for $node {
            fn supply($from: &mut dyn Supply, $shape: Shape) -> Self::Arguments {
                $arguments
            }
        }
    )*};
}

supplied! {
    [] Accumulator, |_, _| ();
    [N: Unsigned + 'static, D: Unsigned + 'static] Constant<N, D>, |_, _| ();
    [D: Unsigned + 'static] Bound<D>, |_, _| ();
    [] Scalar, |from, _| {
        let mut value = [0.0];
        from.scalars(&[], &mut value);
        value[0]
    };
    [T: Element] ScalarPointer<T>, |from, _| from.vector(T::FORMAT, 1);
    [T: Element] RowVector<T>, |from, shape| {
        RowArgument { address: from.vector(T::FORMAT, shape.n), len: shape.n }
    };
    [T: Element] ColumnVector<T>, |from, shape| {
        ColumnArgument { address: from.vector(T::FORMAT, shape.m), len: shape.m }
    };
    [T: Element] Load<T>, |from, shape| from.matrix(T::FORMAT, shape);
    [T: Element, P: Unsigned + 'static] Cyclic<T, P>, |from, shape| {
        from.matrix(T::FORMAT, Shape { n: P::U32, ..shape })
    };
    [T: Element] Residual<T>, |from, shape| from.residual(T::FORMAT, shape);
    [T: Element, X: Supplied] AuxStore<T, X>, |from, shape| {
        (from.output(T::FORMAT, shape), X::supply(from, shape))
    };
    [O: Reduce, D: Destination, X: Supplied] Reduced<O, D, X>, |from, shape| {
        (D::supply(from, O::IDENTITY, shape), X::supply(from, shape))
    };
    [T: Element, X: Supplied] Quantize<T, X>, |from, shape| {
        let of_blocks = Shape { m: shape.n.div_ceil(BLOCK), n: shape.m };
        (from.output(Format::F32, of_blocks), X::supply(from, shape))
    };
    [L: Label, X: Supplied] Named<L, X>, |from, shape| X::supply(from, shape);
    [X: Supplied, Body: Supplied] Let<X, Body>, |from, shape| {
        (X::supply(from, shape), Body::supply(from, shape))
    };
    [X: Supplied] Dropout<X>, |from, shape| (from.dropout(), X::supply(from, shape));
    [X: Supplied] Each<X>, |from, shape| {
        EachArgument { stride: super::Distance(from.stride()), first: X::supply(from, shape) }
    };
    [X: Supplied, A: Supplied] Rotate<X, A>, |from, shape| {
        (X::supply(from, shape), A::supply(from, shape))
    };
    [K: Unsigned + 'static, X: Supplied, A: Accuracy] TopKSoftmax<K, X, A>, |from, shape| {
        X::supply(from, shape)
    };
    [F: Pointwise<2>, X: Supplied, Order: GateOrder] Gated<F, X, Order>, |from, shape| {
        (arguments::<F, 2>(from), X::supply(from, Shape { n: shape.n * 2, ..shape }))
    };
    [F: Pointwise<1>, A: Supplied] Compute<F, (A,)>, |from, shape| {
        (arguments::<F, 1>(from), (A::supply(from, shape),))
    };
    [F: Pointwise<2>, A: Supplied, B: Supplied] Compute<F, (A, B)>, |from, shape| {
        (arguments::<F, 2>(from), (A::supply(from, shape), B::supply(from, shape)))
    };
    [F: Pointwise<3>, A: Supplied, B: Supplied, C: Supplied] Compute<F, (A, B, C)>, |from, shape| {
        let own = arguments::<F, 3>(from);
        (own, (A::supply(from, shape), B::supply(from, shape), C::supply(from, shape)))
    };
    [F: Pointwise<4>, A: Supplied, B: Supplied, C: Supplied, D: Supplied] Compute<F, (A, B, C, D)>,
    |from, shape| {
        let own = arguments::<F, 4>(from);
        let first = (A::supply(from, shape), B::supply(from, shape));
        (own, (first.0, first.1, C::supply(from, shape), D::supply(from, shape)))
    };
}
