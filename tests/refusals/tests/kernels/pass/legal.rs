//! A legal configuration, with a stage count of its own.

use collective::{Cluster, Cooperative, LinearCombination, MnMajor, Operands, Plan, Tile, TmaWgmma};
use half::f16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongN, OneTile};
use typenum::{U1, U3, U64, U192};

struct Mine;
impl GemmConfig for Mine {
    type Mainloop = TmaWgmma<Operands<MnMajor<f16>, MnMajor<f16>>, Tile<U192, U64, U64>, Cooperative<U3, Cluster<U1, U1>, U3>>;
    type Epilogue = LinearCombination<f16>;
    type Scheduler = OneTile<AlongN>;
}
const PLAN: Plan = Gemm::<Mine>::PLAN;

fn main() {
    assert_eq!(PLAN.ring.stages, 3);
    assert_eq!(PLAN.threads, 512);
}
