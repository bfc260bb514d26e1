//! An epilogue that supports one GEMM, in kernels of several.

#[allow(unused_imports)]
use collective::*;
use half::bf16;
#[allow(unused_imports)]
use kernel::{Batched, Composed, Gemm, PointerArray, GroupedContiguous};
use collective::operands::Visit;
use ptx::{Builder, Value};
#[allow(unused_imports)]
use scheduler::{AlongM, Persistent};
use std::sync::Arc;
use typenum::{U1, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;
type Linear = LinearCombination<bf16>;

/// Leaves out which output a unit is of.
#[derive(Debug)]
struct Mine;
struct Device<'f>(Box<dyn DeviceEpilogue<'f> + 'f>);
impl Epilogue for Mine {
    type Arguments = LinearArguments;
    const SPEC: EpilogueSpec = <Linear as Epilogue>::SPEC;
    fn emitter() -> Arc<dyn EpilogueEmitter> {
        Arc::new(Self)
    }
    fn visit(arguments: &mut LinearArguments, of: &EpilogueSite<'_>, site: &mut tree::Site<'_>) {
        Linear::visit(arguments, of, site)
    }
}
impl EpilogueEmitter for Mine {
    fn name(&self) -> String {
        "mine".to_owned()
    }
    fn state(&self, of: &EpilogueSite<'_>, visit: &mut dyn Visit) {
        Linear::emitter().state(of, visit);
    }
    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceEpilogue<'f> + 'f> {
        Box::new(Device(Linear::emitter().device(f, plan)))
    }
}
impl<'f> DeviceEpilogue<'f> for Device<'f> {
    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>) {
        self.0.store(f, plan, Extent { group: None, ..extent }, fragment);
    }
    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>) {
        self.0.finish(f, plan, thread);
    }
}

const _: Plan = Gemm::<Batched<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;
const _: Plan = Gemm::<GroupedContiguous<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;
const _: Plan = Gemm::<PointerArray<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;

fn main() {}
