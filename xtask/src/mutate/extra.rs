//! Kernels that are not in the catalogue, for synchronisation that none of its kernels has (clusters of other
//! shapes, mainloops without warp roles), or that only kernels with a proof of hours have (`DividedTail`).

use collective::{
    Cluster, Cooperative, KMajor, LinearCombination, MnMajor, Operands, Plan, Tile, TmaStore, TmaWgmma,
    Unspecialised,
};
use half::bf16;
use kernel::{AnyGemm, Composed, Gemm, KernelSpec};
use scheduler::{AlongM, DividedTail, OneTile, Persistent};
use typenum::{U1, U2, U3, U64, U128};

/// Two CTAs along M share B by multicast; D is stored through shared memory.
type Pair = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Cooperative<U2, Cluster<U2, U1>>>,
    LinearCombination<bf16, TmaStore>,
    Persistent<AlongM>,
>;

/// Four CTAs, two by two, share A and B by multicast.
type Square = Composed<
    TmaWgmma<Operands<MnMajor<bf16>, MnMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1, Cluster<U2, U2>>>,
    LinearCombination<bf16>,
    Persistent<AlongM>,
>;

/// Two CTAs along N share A by multicast; one tile per CTA.
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

/// Two warpgroups without roles; the first thread fills a ring of three stages between multiplies.
type Ring = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Unspecialised<U2, U3>>,
    LinearCombination<bf16>,
    Persistent<AlongM>,
>;

/// As [`Ring`] with two stages; D is stored through shared memory.
type StagedRing = Composed<
    TmaWgmma<Operands<MnMajor<bf16>, MnMajor<bf16>>, Tile<U128, U64, U64>, Unspecialised<U2, U2>>,
    LinearCombination<bf16, TmaStore>,
    Persistent<AlongM>,
>;

/// Clusters of two CTAs draw their tiles; the last tiles are split into three work units.
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

/// Kernels by their specs: promoted accumulators, block scales, masked groups and groups along K, low-bit
/// weights, a sparse operand, split-K in a cluster, tiles of the last wave in slices, staged rows without a
/// swizzle.
const SPECS: &[(&str, &str)] = &[
    ("promoted", "dtype=e4m3 tile=128x64x128 promote=2"),
    ("promoted-waves", "dtype=e4m3 tile=128x64x128 promote=2 waves=2"),
    ("scaled-waves-1x2", "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=256x32x128 waves=2 cluster=1x2"),
    ("scaled", "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=128x64x128"),
    (
        "scaled-2x1-pingpong",
        "dtype=e4m3 scale-a=1x128 scale-b=1x128 tile=64x32x128 roles=pingpong cluster=2x1 stages=3",
    ),
    ("scaled-ragged", "form=ragged dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=64x64x128 consumers=1"),
    (
        "scaled-stream-k",
        "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=128x64x128 scheduler=stream-k raster=m",
    ),
    (
        "scaled-k-grouped",
        "form=k-grouped dtype=e4m3 scale-a=1x128 scale-b=1x128 tile=64x64x128 consumers=1 stages=3",
    ),
    (
        "scaled-masked",
        "form=masked dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=64x64x128 consumers=1 stages=3",
    ),
    ("k-grouped", "form=k-grouped tile=64x64x64 consumers=1"),
    ("masked", "form=masked tile=64x64x64 consumers=1"),
    ("sparse", "sparse=a tile=128x32x128"),
    ("cluster-k", "tile=128x64x64 store=direct scheduler=cluster-k raster=m splits=2"),
    ("sparse-stream-k", "sparse=a tile=128x32x128 scheduler=stream-k raster=m"),
    ("sparse-2x1-pingpong", "dtype=e4m3 sparse=b swap=yes tile=64x32x128 roles=pingpong cluster=2x1"),
    ("few-bits", "weights-b=u4 group=64 zeros=yes swap=yes tile=128x32x128"),
    ("few-bits-1x2-pingpong", "weights-b=u8 group=128 swap=yes tile=128x16x64 roles=pingpong cluster=1x2"),
    (
        "few-bits-stream-k",
        "weights-b=u4 group=64 zeros=yes swap=yes tile=128x32x128 scheduler=stream-k raster=m",
    ),
    ("narrow-tail", "tile=128x128x64 scheduler=narrow-tail raster=m splits=2"),
    ("unswizzled-rows", "tile=64x40x64"),
    ("unswizzled-rows-swap", "tile=64x24x64 swap=yes"),
];

/// The kernels.
pub(super) fn kernels() -> Vec<AnyGemm> {
    let by_type = by_type();
    let by_spec = SPECS.iter().map(|(name, spec)| {
        let spec: KernelSpec = spec.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        spec.named(*name).unwrap_or_else(|error| panic!("{name}: {error}"))
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
