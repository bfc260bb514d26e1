//! A table of a number of groups that there is no table for.

use collective::*;
use half::bf16;
use kernel::{Composed, Gemm, GroupedContiguous};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U384, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;
type Mine = Composed<Ours, LinearCombination<bf16>, Persistent<AlongM>>;

const _: Plan = Gemm::<GroupedContiguous<Mine, U384>>::PLAN;

fn main() {}
