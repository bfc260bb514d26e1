//! A mainloop that does not say that it loads for a cluster, or fewer columns than a tile has.

use core::marker::PhantomData;

use collective::*;
use half::bf16;
use kernel::{Composed, Gemm};
use ptx::Builder;
use scheduler::{AlongM, NarrowTail, Persistent};
use typenum::{U1, U2, U32, U64, U128};

type Ours<T, R> = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, T, R>;

/// Its code does not matter here.
struct Own<T, R>(PhantomData<(T, R)>);
impl<T: TileShape, R: WarpRoles> Mainloop for Own<T, R> {
    const NAME: &'static str = "own";
    const SPEC: MainloopSpec = <Ours<T, R> as Mainloop>::SPEC;
    type Arguments = ();
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        Ours::<T, R>::device(f, plan)
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
