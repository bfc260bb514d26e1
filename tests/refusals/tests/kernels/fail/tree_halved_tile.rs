//! Half of 8 columns are no columns that are stored.

#[allow(unused_imports)]
use collective::functions::*;
#[allow(unused_imports)]
use collective::tree::*;
use collective::{Cooperative, DirectStore, KMajor, Operands, Plan, Tile, TmaWgmma, TreeEpilogue};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, OneTile};
#[allow(unused_imports)]
use typenum::{U1, U32, U64, U8};

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U8, U64>, Cooperative<U1>>;
    type Epilogue = TreeEpilogue<bf16, DirectStore, Gated<Glu<Silu>, Accumulator>>;
    type Scheduler = OneTile<AlongM>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
