//! Where the arguments of a tree come from. A caller names them, or they are drawn at random: both use one
//! walk over the nodes.

use super::value::Item;
use super::{Distance, DropoutArgument, Node, ResidualArgument, Scratch, Shape};
use crate::element::Format;
use crate::functions::{Pointwise, Scalars};
use crate::operand::MatrixRef;

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

    /// The distance from the data of one GEMM of a launch to that of the next, for what is asked next.
    fn distance(&mut self) -> Distance;

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
pub(super) fn arguments<F: Pointwise<N>, const N: usize>(from: &mut dyn Supply) -> F::Arguments {
    let mut values = vec![0.0; F::Arguments::COUNT];
    if !values.is_empty() {
        from.scalars(F::ARGUMENTS, &mut values);
    }
    let mut values = values.into_iter();
    // `gather` requests exactly `COUNT` scalars.
    F::Arguments::of(F::Arguments::gather(&mut || values.next().unwrap_or(f64::NAN)))
}
