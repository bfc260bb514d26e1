//! A mainloop that supports one GEMM, in kernels of several.

#[allow(unused_imports)]
use collective::*;
use half::bf16;
#[allow(unused_imports)]
use kernel::{Batched, Composed, Gemm, PointerArray, GroupedContiguous};
use collective::operands::Visit;
use ptx::Builder;
#[allow(unused_imports)]
use scheduler::{AlongM, Persistent};
use std::sync::Arc;
use typenum::{U1, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// Leaves out which product a unit is of.
#[derive(Debug)]
struct First;
struct Device<'f>(Box<dyn DeviceMainloop<'f> + 'f>);
impl Mainloop for First {
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();
    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(Self)
    }
}
impl MainloopEmitter for First {
    fn name(&self, _: &MainloopSpec) -> String {
        "first".to_owned()
    }
    fn state(&self, of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        Ours::emitter().state(of, visit);
    }
    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        Box::new(Device(Ours::emitter().device(f, plan)))
    }
}
impl<'f> DeviceMainloop<'f> for Device<'f> {
    fn load(&self, pass: Pass<'_, 'f>, cluster: pipeline::ClusterPosition<'f>) {
        self.0.load(Pass { unit: WorkUnit { group: None, ..pass.unit }, ..pass }, cluster);
    }
}

type Mine = Composed<First, LinearCombination<bf16>, Persistent<AlongM>>;
const _: Plan = Gemm::<Mine>::PLAN; // one product is legal
const _: Plan = Gemm::<Batched<Mine>>::PLAN;
const _: Plan = Gemm::<GroupedContiguous<Mine>>::PLAN;
const _: Plan = Gemm::<PointerArray<Mine>>::PLAN;

fn main() {}
