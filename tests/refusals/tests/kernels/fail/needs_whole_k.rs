//! A mainloop that does not say that parts of K may be added up: its end may not be linear, as in `silu(A * G) * (A * B)`.

use std::sync::Arc;

use collective::*;
use half::bf16;
use kernel::{Composed, Gemm};
use ptx::Builder;
use collective::operands::Visit;
use scheduler::*;
use typenum::{U1, U2, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// Its code does not matter here.
#[derive(Debug)]
struct Dual;
impl Mainloop for Dual {
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();
    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(Self)
    }
}
impl MainloopEmitter for Dual {
    fn name(&self, _: &MainloopSpec) -> String {
        "dual".to_owned()
    }
    fn state(&self, of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        Ours::emitter().state(of, visit);
    }
    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        Ours::emitter().device(f, plan)
    }
}

type With<S> = Composed<Dual, LinearCombination<bf16>, S>;
const _: Plan = Gemm::<With<Persistent<AlongM>>>::PLAN; // whole tiles are legal
const _: Plan = Gemm::<With<StreamK<AlongM>>>::PLAN;
const _: Plan = Gemm::<With<StreamK<AlongM, Ordered, EveryTile<U2>>>>::PLAN; // split-K
const _: Plan = Gemm::<With<DividedTail<AlongM>>>::PLAN;
const _: Plan = Gemm::<With<ClusterK<AlongM, U2>>>::PLAN;

fn main() {}
