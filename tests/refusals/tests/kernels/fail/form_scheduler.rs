//! A scheduler that supports one GEMM, in kernels of several.

#[allow(unused_imports)]
use collective::*;
use half::bf16;
#[allow(unused_imports)]
use kernel::{Batched, Composed, Gemm, PointerArray, GroupedContiguous};
use ptx::Builder;
#[allow(unused_imports)]
use scheduler::{SchedulerTraits, TileScheduler, Tiles, Work, WorkLoop};
use typenum::{U1, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// One worker has all tiles, from the first to the last.
#[derive(Clone, Debug, Default)]
struct Mine;
impl TileScheduler for Mine {
    const TRAITS: SchedulerTraits = SchedulerTraits::WHOLE;
    fn name(&self) -> String {
        "mine".to_owned()
    }
    fn describe(&self) -> String {
        "one worker".to_owned()
    }
    fn workers(&self, _: Tiles<u32>, _: u32) -> u32 {
        1
    }
    fn work(&self, _: Tiles<u32>, _: u32, _: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        Box::new(core::iter::empty())
    }
    fn emit<'f>(&self, _: &'f Builder, _: &mut WorkLoop<'_, 'f>) {}
}

const _: Plan = Gemm::<Batched<Composed<Ours, LinearCombination<bf16>, Mine>>>::PLAN;
const _: Plan = Gemm::<GroupedContiguous<Composed<Ours, LinearCombination<bf16>, Mine>>>::PLAN;
const _: Plan = Gemm::<PointerArray<Composed<Ours, LinearCombination<bf16>, Mine>>>::PLAN;

fn main() {}
