//! A function of two numbers with one operand.

#[allow(unused_imports)]
use collective::{Pointwise, Real};
#[allow(unused_imports)]
use collective::tree::*;
use collective::{Cooperative, DirectStore, KMajor, Operands, Plan, Tile, TmaWgmma, TreeEpilogue};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, OneTile};
#[allow(unused_imports)]
use typenum::{U1, U32, U64, U8};

/// A function of two numbers.
struct Both;
impl Pointwise<2> for Both {
    type Arguments = ();
    fn name() -> String {
        "both".into()
    }
    fn apply<R: Real>((): (), [x, y]: [R; 2]) -> R {
        x + y
    }
}

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U32, U64>, Cooperative<U1>>;
    type Epilogue = TreeEpilogue<bf16, DirectStore, Compute<Both, (Accumulator,)>>;
    type Scheduler = OneTile<AlongM>;
}
const _: Plan = Gemm::<Mine>::PLAN;

fn main() {}
