//! Kernels that are not in the catalogue, for synchronisation that none of its kernels has (clusters of other
//! shapes, mainloops without warp roles), or that only kernels with a proof of hours have (`DividedTail`).

use kernel::{AnyGemm, KernelSpec};

/// Kernels by their specs: clusters that share operands by multicast, a warpgroup that does everything alone, warpgroups
/// without roles whose first thread fills a ring between multiplies, clusters that draw tiles and split the last ones,
/// promoted accumulators, block scales, masked groups and groups along K, low-bit
/// weights, a sparse operand, split-K in a cluster, tiles of the last wave in slices, staged rows without a
/// swizzle.
const SPECS: &[(&str, &str)] = &[
    ("cluster-2x1-staged", "tile=128x64x64 cluster=2x1 raster=m"),
    ("cluster-2x2", "layout=mn tile=64x64x64 cluster=2x2 store=direct raster=m"),
    ("cluster-1x2-one-tile", "tile=64x64x64 cluster=1x2 store=direct scheduler=one-tile raster=m"),
    (
        "plain-one-stage",
        "tile=64x64x64 roles=unspecialised stages=1 store=direct scheduler=one-tile raster=m",
    ),
    ("plain-ring", "tile=128x64x64 roles=unspecialised stages=3 store=direct raster=m"),
    ("plain-staged", "layout=mn tile=128x64x64 roles=unspecialised stages=2 raster=m"),
    (
        "tail-2x1",
        "tile=64x64x64 cluster=2x1 store=direct scheduler=dynamic-tail raster=m splits=3 min-k-tiles=2",
    ),
    ("promoted", "dtype=e4m3 tile=128x64x128 promote=2"),
    ("promoted-waves", "dtype=e4m3 tile=128x64x128 promote=2 waves=2"),
    ("sparse-promoted-waves", "dtype=e4m3 sparse=a tile=128x64x128 promote=1 waves=2"),
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
    let kernel = |(name, spec): &(&str, &str)| {
        let spec: KernelSpec = spec.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        spec.named(*name).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    SPECS.iter().map(kernel).collect()
}
