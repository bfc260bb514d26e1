//! Kernels that the catalogue does not hold, for instructions that none of its kernels uses: clusters.

use collective::{
    Cluster, Cooperative, KMajor, LinearCombination, MnMajor, Operands, Plan, Tile, TmaStore, TmaWgmma,
};
use half::bf16;
use kernel::{AnyGemm, Composed, Gemm};
use scheduler::{AlongM, OneTile, Persistent};
use typenum::{U1, U2, U64, U128};

/// Two CTAs along M share B; D goes through shared memory.
type Pair = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Cooperative<U2, Cluster<U2, U1>>>,
    LinearCombination<bf16, TmaStore>,
    Persistent<AlongM>,
>;

/// Four CTAs, two by two, share A and B.
type Square = Composed<
    TmaWgmma<Operands<MnMajor<bf16>, MnMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1, Cluster<U2, U2>>>,
    LinearCombination<bf16>,
    Persistent<AlongM>,
>;

/// Two CTAs along N share A, and compute one tile each.
type Single = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1, Cluster<U1, U2>>>,
    LinearCombination<bf16>,
    OneTile<AlongM>,
>;

const _: Plan = Gemm::<Pair>::PLAN;
const _: Plan = Gemm::<Square>::PLAN;
const _: Plan = Gemm::<Single>::PLAN;

/// The kernels.
pub(super) fn kernels() -> [Box<dyn AnyGemm>; 3] {
    [
        kernel::erased::<Pair>("cluster-2x1-staged"),
        kernel::erased::<Square>("cluster-2x2"),
        kernel::erased::<Single>("cluster-1x2-one-tile"),
    ]
}
