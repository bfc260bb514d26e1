//! Derivatives, taken from the functions themselves.

use core::marker::PhantomData;

use super::{Pointwise, Scalars};
use crate::real::{Dual, Real};

/// `gradient * F'(x)` of the inputs `[gradient, x]`: what an activation's backward pass computes, for any `F` of one number,
/// yours included. It takes the arguments of `F`.
///
/// `Gradient<Relu>` is zero at zero.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<F>(PhantomData<F>);

impl<F: Pointwise> Pointwise<2> for Gradient<F> {
    type Arguments = F::Arguments;
    const ARGUMENTS: &'static [&'static str] = F::ARGUMENTS;
    const REGISTERS: u32 = F::REGISTERS + 4;

    fn name() -> String {
        format!("d_{}", F::name())
    }

    fn apply<R: Real>(arguments: <F::Arguments as Scalars>::Of<R>, [gradient, x]: [R; 2]) -> R {
        let arguments = F::Arguments::fix::<R>(arguments);
        gradient * F::apply(arguments, [Dual::variable(x)]).derivative()
    }
}
