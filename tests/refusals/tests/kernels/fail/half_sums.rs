//! The products of bf16 are not summed in f16.

#[allow(unused_imports)]
use collective::{AsManyAsFit, Cluster, Cooperative, InHalf, KMajor, LinearCombination, Operands, Plan, Tile, TmaWgmma};
#[allow(unused_imports)]
use half::{bf16, f16};
use kernel::{Gemm, GemmConfig};
#[allow(unused_imports)]
use scheduler::{AlongM, Grouped, OneTile, Persistent};
use typenum::*;

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>, InHalf>, Tile<U128, U128, U64>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16>;
    type Scheduler = Persistent<Grouped<AlongM, U8>>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
