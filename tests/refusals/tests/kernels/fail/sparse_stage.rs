//! Threads read the metadata of a sparse operand, so each warp gives a stage back.

use collective::{Cooperative, KMajor, LinearCombination, Operands, Plan, Sparse, Tile, TmaWgmma};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, Grouped, Persistent};
use typenum::*;

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<Sparse<KMajor<bf16>>, KMajor<bf16>>, Tile<U128, U128, U128>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16>;
    type Scheduler = Persistent<Grouped<AlongM, U8>>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
