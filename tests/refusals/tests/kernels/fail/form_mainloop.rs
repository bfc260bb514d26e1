//! A mainloop that supports one GEMM, in kernels of several.

#[allow(unused_imports)]
use collective::*;
use half::bf16;
#[allow(unused_imports)]
use kernel::{Batched, Composed, Gemm, PointerArray, GroupedContiguous};
use ptx::Builder;
#[allow(unused_imports)]
use scheduler::{AlongM, Persistent};
use typenum::{U1, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// Leaves out which product a unit is of.
#[derive(Debug)]
struct First;
impl Mainloop for First {
    const NAME: &'static str = "first";
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let ours = Ours::device(f, plan);
        ours.clone().with_load(move |pass, cluster| {
            ours.load(Pass { unit: WorkUnit { group: None, ..pass.unit }, ..pass }, cluster);
        })
    }
}

type Mine = Composed<First, LinearCombination<bf16>, Persistent<AlongM>>;
const _: Plan = Gemm::<Mine>::PLAN; // one product is legal
const _: Plan = Gemm::<Batched<Mine>>::PLAN;
const _: Plan = Gemm::<GroupedContiguous<Mine>>::PLAN;
const _: Plan = Gemm::<PointerArray<Mine>>::PLAN;

fn main() {}
