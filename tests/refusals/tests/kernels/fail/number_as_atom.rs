//! A number names no layout.

#[allow(unused_imports)]
use collective::{
    Cooperative, KMajor, LinearCombination, MnMajor, Operands, Plan, RowMajor, Sw, Swizzled, Tile, TmaStore, TmaWgmma,
};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, Persistent};
use typenum::*;


struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16, U64>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16, TmaStore>;
    type Scheduler = Persistent<AlongM>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
