//! In the manual's own idiom, a type that is no part of a kernel is named in the sentence of its role.

use collective::{Cooperative, KMajor, LinearCombination, Operands, Plan, Tile, TmaWgmma};
use half::{bf16, f16};
use kernel::{Composed, Gemm};
use scheduler::{AlongM, Persistent};
use typenum::{U2, U64, U128};

type Mixed = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<f16>>, Tile<U128, U64, U64>, Cooperative<U2>>,
    LinearCombination<bf16>,
    Persistent<AlongM>,
>;
const _: Plan = Gemm::<Mixed>::PLAN;

type Turned = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Cooperative<U2>>,
    Persistent<AlongM>,
    LinearCombination<bf16>,
>;
const _: Plan = Gemm::<Turned>::PLAN;

fn main() {}
