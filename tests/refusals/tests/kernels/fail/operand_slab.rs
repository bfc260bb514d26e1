//! Rows of 64 elements do not divide a tile of 32.

#[allow(unused_imports)]
use collective::{
    Cooperative, KMajor, LinearCombination, MnMajor, Operands, Plan, RowMajor, Sw, Swizzled, Tile, TmaStore, TmaWgmma,
};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, Persistent};
use typenum::*;

type Atom = Swizzled<Sw<U3, U3, U3>, RowMajor<(U8, U64)>>;

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16, Atom>, KMajor<bf16>>, Tile<U128, U128, U32>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16, TmaStore>;
    type Scheduler = Persistent<AlongM>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
