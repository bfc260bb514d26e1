//! 24 is not a multiple of the instruction's K.

#[allow(unused_imports)]
use collective::{AsManyAsFit, Cluster, Cooperative, KMajor, LinearCombination, Operands, Plan, Tile, TmaWgmma};
#[allow(unused_imports)]
use half::{bf16, f16};
use kernel::{Gemm, GemmConfig};
#[allow(unused_imports)]
use scheduler::{AlongM, Grouped, OneTile, Persistent};
use typenum::*;

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U128, U24>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16>;
    type Scheduler = Persistent<Grouped<AlongM, U8>>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
