//! The atom of a K-major operand for one that is MN-major.

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
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, MnMajor<bf16, Atom>>, Tile<U128, U128, U64>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16, TmaStore>;
    type Scheduler = Persistent<AlongM>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
