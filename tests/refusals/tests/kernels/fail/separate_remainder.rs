use collective::{Cooperative, KMajor, LinearCombination, Operands, Plan, Tile, TmaWgmma};
use half::bf16;
use kernel::{Gemm, GemmConfig};
use scheduler::{AlongM, Remainder, Separate, StreamK};
use typenum::{U1, U64};

struct MyGemm;

impl GemmConfig for MyGemm {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;
    type Epilogue = LinearCombination<bf16>;
    type Scheduler = StreamK<AlongM, Separate, Remainder>;
}

const _: Plan = Gemm::<MyGemm>::PLAN;

fn main() {}
