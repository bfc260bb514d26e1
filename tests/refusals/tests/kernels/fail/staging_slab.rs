//! Buffers of 64 columns do not divide rows of 96.

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
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U96, U64>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16, TmaStore<U2, Atom>>;
    type Scheduler = Persistent<AlongM>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
