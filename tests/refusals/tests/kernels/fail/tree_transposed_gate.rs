//! Gates across the rows of a transposed tile.

#[allow(unused_imports)]
use collective::functions::*;
#[allow(unused_imports)]
use collective::tree::*;
#[allow(unused_imports)]
use collective::{
    Cluster, Cooperative, DirectStore, KMajor, Operands, Plan, Tile, TmaStore, TmaWgmma, Transposed, TreeEpilogue,
};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, OneTile};
#[allow(unused_imports)]
use typenum::{U1, U3, U64, U96};

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;
    type Epilogue = TreeEpilogue<bf16, Transposed<DirectStore>, Gated<Glu<Silu>, Accumulator>>;
    type Scheduler = OneTile<AlongM>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
