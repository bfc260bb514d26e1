//! A mainloop that does not say that it loads for a cluster, or fewer columns than a tile has.

use core::marker::PhantomData;
use std::sync::Arc;

use collective::*;
use half::bf16;
use kernel::{Composed, Gemm};
use ptx::Builder;
use collective::operands::Visit;
use scheduler::{AlongM, NarrowTail, Persistent};
use typenum::{U1, U2, U32, U64, U128};

type Ours<T, R> = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, T, R>;

/// Its code does not matter here.
struct Own<T, R>(PhantomData<(T, R)>);
#[derive(Debug)]
struct Emitter;
impl<T: TileShape, R: WarpRoles> Mainloop for Own<T, R> {
    const SPEC: MainloopSpec = <Ours<T, R> as Mainloop>::SPEC;
    type Arguments = ();
    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(Emitter)
    }
}
impl MainloopEmitter for Emitter {
    fn name(&self, _: &MainloopSpec) -> String {
        "own".to_owned()
    }
    fn state(&self, of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        TensorCopies.state(of, visit);
    }
    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        TensorCopies.device(f, plan)
    }
}

type Square = Tile<U64, U128, U64>;
type With<T, R, S = Persistent<AlongM>> = Composed<Own<T, R>, LinearCombination<bf16>, S>;
const _: Plan = Gemm::<With<Square, Cooperative<U1>>>::PLAN; // legal
const _: Plan = Gemm::<With<Square, Cooperative<U1, Cluster<U2, U1>>>>::PLAN;
const _: Plan = Gemm::<With<Square, Pingpong<U2, Cluster<U1, U2>>>>::PLAN;
const _: Plan = Gemm::<With<Fitted<Square, U32>, Cooperative<U1>>>::PLAN;
const _: Plan = Gemm::<With<Square, Cooperative<U1>, NarrowTail<AlongM>>>::PLAN;

fn main() {}
