//! Epilogues: a tree with a function that has an argument of its own, and a whole one around one of the library's.

use core::marker::PhantomData;

use falchion::collective::tree::{Accumulator, Compute, Host, Site};
use falchion::collective::{
    Bounded, DeviceEpilogue, Epilogue, EpilogueSite, EpilogueSpec, Forms, LinearArguments, Pointwise, Real,
    Store,
};
use falchion::prelude::*;
use falchion::ptx::Builder;

/// `x^2 / (x^2 + c)` with the sign of x.
pub struct Hill;
impl Pointwise for Hill {
    type Arguments = f64;
    const ARGUMENTS: &'static [&'static str] = &["c"];
    fn name() -> String {
        "hill".into()
    }
    fn apply<R: Real>(c: R, [x]: [R; 1]) -> R {
        (x * x / (x * x + c)).copysign(x)
    }
}

/// D is this function of each accumulator.
pub type HillOfSums<S> = TreeEpilogue<bf16, S, Compute<Hill, (Accumulator,)>>;

/// D is the square of each accumulator.
pub struct Squared<S>(PhantomData<S>);

/// What stores it.
type Stored<S> = LinearCombination<bf16, S>;

impl<S: Store> Epilogue for Squared<S> {
    type Arguments = ();
    const SPEC: EpilogueSpec = Stored::<S>::SPEC;
    const FORMS: Forms = Stored::<S>::FORMS;

    fn name() -> String {
        format!("squared_{}", Stored::<S>::name())
    }

    fn visit(_: &mut (), of: &EpilogueSite<'_>, site: &mut Site<'_>) {
        Stored::<S>::visit(&mut LinearArguments::default(), of, site);
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
        Stored::<S>::device(f, plan).with_change(|_, extent, fragment| {
            fragment.blocks.iter().flatten().for_each(|sum| sum.set(sum.get() * sum.get()));
            (extent, fragment)
        })
    }

    fn evaluate(host: &mut Host<'_>, _: &(), at: [u32; 2]) -> Bounded {
        let sum = host.accumulator(at);
        sum * sum
    }
}
