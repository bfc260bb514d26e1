//! An epilogue that supports one GEMM, in kernels of several.

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
type Linear = LinearCombination<bf16>;

/// Leaves out which output a unit is of.
struct Mine;
impl Epilogue for Mine {
    type Arguments = LinearArguments;
    const SPEC: EpilogueSpec = <Linear as Epilogue>::SPEC;
    fn name() -> String {
        "mine".to_owned()
    }
    fn visit(arguments: &mut LinearArguments, of: &EpilogueSite<'_>, site: &mut tree::Site<'_>) {
        Linear::visit(arguments, of, site)
    }
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
        Linear::device(f, plan).with_change(|_, extent, fragment| (Extent { group: None, ..extent }, fragment))
    }
    fn evaluate(host: &mut tree::Host<'_>, arguments: &LinearArguments, at: [u32; 2]) -> Bounded {
        Linear::evaluate(host, arguments, at)
    }
}

const _: Plan = Gemm::<Batched<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;
const _: Plan = Gemm::<GroupedContiguous<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;
const _: Plan = Gemm::<PointerArray<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;

fn main() {}
