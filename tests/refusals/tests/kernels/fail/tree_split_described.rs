//! Gates and ups in two halves of a B that device memory describes.

use collective::functions::*;
use collective::tree::*;
use collective::{Cooperative, DirectStore, KMajor, Operands, Plan, Tile, TmaWgmma, TreeEpilogue};
use half::bf16;
use kernel::{Composed, Gemm, PointerArray};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U64};

type Mine = PointerArray<
    Composed<
        TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
        TreeEpilogue<bf16, DirectStore, Gated<Glu<Silu>, Accumulator, Split>>,
        Persistent<AlongM>,
    >,
>;
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
