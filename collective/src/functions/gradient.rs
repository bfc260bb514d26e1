//! Derivatives, computed from the functions themselves.

use core::marker::PhantomData;

use super::{Pointwise, Scalars};
use crate::real::{Dual, Real};

/// `gradient * F'(x)` for the inputs `[gradient, x]`: what the backward pass of an activation computes. `F`
/// is any function of one number, including your own. The arguments are those of `F`.
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
