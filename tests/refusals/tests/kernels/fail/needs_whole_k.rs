//! A mainloop that does not say that parts of K may be added up: its end may not be linear, as in `silu(A * G) * (A * B)`.

use collective::*;
use half::bf16;
use kernel::{Composed, Gemm};
use ptx::Builder;
use scheduler::*;
use typenum::{U1, U2, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// Its code does not matter here.
#[derive(Debug)]
struct Dual;
impl Mainloop for Dual {
    const NAME: &'static str = "dual";
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        Ours::device(f, plan)
    }
}

type With<S> = Composed<Dual, LinearCombination<bf16>, S>;
const _: Plan = Gemm::<With<Persistent<AlongM>>>::PLAN; // whole tiles are legal
const _: Plan = Gemm::<With<StreamK<AlongM>>>::PLAN;
const _: Plan = Gemm::<With<StreamK<AlongM, Ordered, EveryTile<U2>>>>::PLAN; // split-K
const _: Plan = Gemm::<With<DividedTail<AlongM>>>::PLAN;
const _: Plan = Gemm::<With<ClusterK<AlongM, U2>>>::PLAN;

fn main() {}
