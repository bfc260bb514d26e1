//! An epilogue of one output alone, for many.

#[allow(unused_imports)]
use collective::*;
use half::bf16;
#[allow(unused_imports)]
use kernel::{Batched, Composed, Gemm, PointerArray, Ragged};
use ptx::abi::Argument;
#[allow(unused_imports)]
use ptx::{Builder, Value};
#[allow(unused_imports)]
use scheduler::{AlongM, Draw, Persistent, TileScheduler, Tiles, Work};
use typenum::{U1, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;
type Linear = LinearCombination<bf16>;

/// Leaves out which output a piece is of.
struct Mine;
impl Epilogue for Mine {
    type Accumulator = f32;
    type Output = bf16;
    type Arguments = LinearArguments;
    type Device<'f> = <Linear as Epilogue>::Device<'f>;
    const SPEC: EpilogueSpec = <Linear as Epilogue>::SPEC;
    const OUTPUT_ALIGNMENT: u64 = 2;
    fn name() -> String {
        "mine".to_owned()
    }
    fn declare<'f>(f: &'f Builder, plan: &Plan) -> Self::Device<'f> {
        Linear::declare(f, plan)
    }
    fn check(arguments: &LinearArguments, product: tree::Shape) -> Result<(), tree::NodeError> {
        Linear::check(arguments, product)
    }
    fn parameters(plan: &Plan, arguments: &LinearArguments, d: Output) -> Vec<Argument> {
        Linear::parameters(plan, arguments, d)
    }
    fn store<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        extent: Extent<'f>,
        fragment: Fragment<'f, f32>,
    ) {
        Linear::store(f, plan, device, Extent { group: None, ..extent }, fragment);
    }
    fn finish(f: &Builder, plan: &Plan, thread: Value<'_, u32>) {
        Linear::finish(f, plan, thread);
    }
}

const _: Plan = Gemm::<Batched<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;
const _: Plan = Gemm::<Ragged<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;
const _: Plan = Gemm::<PointerArray<Composed<Ours, Mine, Persistent<AlongM>>>>::PLAN;

fn main() {}
