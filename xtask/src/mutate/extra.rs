//! Kernels that the catalogue does not hold, for what none of its kernels does: clusters of other shapes, and no warp roles;
//! or only such do that are tried for hours: drawn tiles of which the last are divided.

use collective::{
    Cluster, Cooperative, KMajor, LinearCombination, MnMajor, Operands, Plan, Tile, TmaStore, TmaWgmma,
    Unspecialised,
};
use half::bf16;
use kernel::{AnyGemm, Composed, Gemm, KernelSpec};
use scheduler::{AlongM, DividedTail, OneTile, Persistent};
use typenum::{U1, U2, U3, U64, U128};

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

/// One warpgroup, one stage, one tile: copy, wait, multiply, wait.
type Alone = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Unspecialised<U1, U1>>,
    LinearCombination<bf16>,
    OneTile<AlongM>,
>;

/// Two warpgroups whose first thread fills three stages between multiplications.
type Ring = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Unspecialised<U2, U3>>,
    LinearCombination<bf16>,
    Persistent<AlongM>,
>;

/// As [`Ring`], and D goes through shared memory.
type StagedRing = Composed<
    TmaWgmma<Operands<MnMajor<bf16>, MnMajor<bf16>>, Tile<U128, U64, U64>, Unspecialised<U2, U2>>,
    LinearCombination<bf16, TmaStore>,
    Persistent<AlongM>,
>;

/// Pairs of CTAs draw their tiles, the last ones in three parts of K.
type Tail = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1, Cluster<U2, U1>>>,
    LinearCombination<bf16>,
    DividedTail<AlongM, U3, U2>,
>;

const _: Plan = Gemm::<Pair>::PLAN;
const _: Plan = Gemm::<Square>::PLAN;
const _: Plan = Gemm::<Single>::PLAN;
const _: Plan = Gemm::<Alone>::PLAN;
const _: Plan = Gemm::<Ring>::PLAN;
const _: Plan = Gemm::<StagedRing>::PLAN;
const _: Plan = Gemm::<Tail>::PLAN;

/// Kernels by their specs: sums that are promoted, blocks with scales, groups in buffers of one size, weights in few bits, a
/// sparse operand.
const SPECS: [(&str, &str); 10] = [
    ("promoted", "dtype=e4m3 tile=128x64x128 promote=2"),
    ("scaled", "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=128x64x128"),
    (
        "scaled-2x1-pingpong",
        "dtype=e4m3 scale-a=1x128 scale-b=1x128 tile=64x32x128 roles=pingpong cluster=2x1",
    ),
    ("scaled-ragged", "form=ragged dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=64x64x128 consumers=1"),
    ("masked", "form=masked tile=64x64x64 consumers=1"),
    ("sparse", "sparse=a tile=128x32x128"),
    ("cluster-k", "tile=128x64x64 store=direct scheduler=cluster-k raster=m parts=2"),
    ("sparse-2x1-pingpong", "dtype=e4m3 sparse=b swap=yes tile=64x32x128 roles=pingpong cluster=2x1"),
    ("few-bits", "weights-b=u4 group=64 zeros=yes swap=yes tile=128x32x128"),
    ("few-bits-1x2-pingpong", "weights-b=u8 group=128 swap=yes tile=128x16x64 roles=pingpong cluster=1x2"),
];

/// The kernels.
pub(super) fn kernels() -> Vec<AnyGemm> {
    let by_type = by_type();
    let by_spec = SPECS.map(|(name, spec)| {
        let spec: KernelSpec = spec.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        spec.named(name).unwrap_or_else(|error| panic!("{name}: {error}"))
    });
    by_type.into_iter().chain(by_spec).collect()
}

fn by_type() -> Vec<AnyGemm> {
    vec![
        AnyGemm::of::<Pair>("cluster-2x1-staged"),
        AnyGemm::of::<Square>("cluster-2x2"),
        AnyGemm::of::<Single>("cluster-1x2-one-tile"),
        AnyGemm::of::<Alone>("plain-one-stage"),
        AnyGemm::of::<Ring>("plain-ring"),
        AnyGemm::of::<StagedRing>("plain-staged"),
        AnyGemm::of::<Tail>("tail-2x1"),
    ]
}
