//! A mainloop that looks at one product alone, for many.

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

/// Leaves out which product a piece is of.
struct First;
impl Mainloop for First {
    type Accumulator = f32;
    type A = bf16;
    type B = bf16;
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();
    type Device<'f> = <Ours as Mainloop>::Device<'f>;
    fn name() -> String {
        "first".to_owned()
    }
    fn declare<'f>(f: &'f Builder, plan: &Plan) -> Self::Device<'f> {
        Ours::declare(f, plan)
    }
    fn arguments(plan: &Plan, a: Matrix, b: Matrix, own: &()) -> Vec<Argument> {
        Ours::arguments(plan, a, b, own)
    }
    fn load<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        cluster: pipeline::ClusterPosition<'f>,
        ring: pipeline::Position<'f>,
        piece: Piece<'f>,
    ) {
        Ours::load(f, plan, device, cluster, ring, Piece { group: None, ..piece });
    }
    fn multiply<'f>(
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: pipeline::Position<'f>,
        piece: Piece<'f>,
        finish: Finish<'_, 'f, f32>,
    ) {
        Ours::multiply(f, plan, consumer, ring, piece, finish);
    }
}

type Mine = Composed<First, LinearCombination<bf16>, Persistent<AlongM>>;
const _: Plan = Gemm::<Mine>::PLAN; // one product is legal
const _: Plan = Gemm::<Batched<Mine>>::PLAN;
const _: Plan = Gemm::<Ragged<Mine>>::PLAN;
const _: Plan = Gemm::<PointerArray<Mine>>::PLAN;

fn main() {}
