//! Weights in few bits come from registers, which are operand A's.

use collective::{AsManyAsFit, Cluster, Cooperative, EachWarp, Int4, KMajor, LinearCombination, Operands, Plan, Quantized, Tile, TmaWgmma};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, Grouped, Persistent};
use typenum::*;

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<
        Operands<KMajor<bf16>, Quantized<KMajor<bf16>, Int4, U128>>,
        Tile<U128, U128, U64>,
        Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>,
    >;
    type Epilogue = LinearCombination<bf16>;
    type Scheduler = Persistent<Grouped<AlongM, U8>>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
