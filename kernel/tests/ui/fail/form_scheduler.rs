//! A scheduler of one output alone, for many.

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

/// One worker has all tiles, from the first to the last.
struct Mine;
impl TileScheduler for Mine {
    type Device<'f> = ();
    fn name() -> String {
        "mine".to_owned()
    }
    fn describe() -> String {
        "one worker".to_owned()
    }
    fn workers(_: Tiles<u32>, _: u32) -> u32 {
        1
    }
    fn declare(_: &Builder) {}
    fn parameters(_: Tiles<u32>, _: u32) -> Vec<Argument> {
        Vec::new()
    }
    fn work(_: Tiles<u32>, _: u32, _: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        Box::new(core::iter::empty())
    }
    fn emit<'f>(
        _: &'f Builder,
        (): (),
        _: Tiles<Value<'f, u32>>,
        _: Value<'f, u32>,
        _: Value<'f, u32>,
        _: Option<&dyn Draw<'f>>,
        _: impl FnOnce(Work<Value<'f, u32>>),
    ) {
    }
}

const _: Plan = Gemm::<Batched<Composed<Ours, LinearCombination<bf16>, Mine>>>::PLAN;
const _: Plan = Gemm::<Ragged<Composed<Ours, LinearCombination<bf16>, Mine>>>::PLAN;
const _: Plan = Gemm::<PointerArray<Composed<Ours, LinearCombination<bf16>, Mine>>>::PLAN;

fn main() {}
