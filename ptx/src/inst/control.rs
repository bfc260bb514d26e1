//! Special registers.
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::Special;
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let out = f.param::<u64>("out");
//!     let cta = f.special(Special::CtaX);
//!     f.store_global(out + cta.mul_wide(4), 0, [f.special(Special::GridX)]);
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("%ctaid.x"));
//! assert!(text.contains("%nctaid.x"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use crate::types::Type;

/// A special register, as in PTX ISA 10 "Special Registers". The type is `.u32` unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// `%tid.x`.
    ThreadX,
    /// `%ctaid.x`.
    CtaX,
    /// `%ctaid.y`.
    CtaY,
    /// `%ctaid.z`.
    CtaZ,
    /// `%nctaid.x`.
    GridX,
    /// `%nctaid.y`.
    GridY,
    /// `%nctaid.z`.
    GridZ,
    /// `%laneid`.
    Lane,
    /// `%cluster_ctarank`.
    ClusterRank,
    /// `%cluster_nctarank`.
    ClusterSize,
    /// `%clusterid.x`.
    ClusterX,
    /// `%nclusterid.x`.
    ClustersX,
    /// `%cluster_ctaid.x`.
    ClusterCtaX,
    /// `%cluster_ctaid.y`.
    ClusterCtaY,
    /// `%cluster_ctaid.z`.
    ClusterCtaZ,
    /// `%ntid.x`.
    ThreadsX,
    /// `%warpid`: the warp's slot on the SM, which may change during execution. For the index of a warp in
    /// its CTA use [`Builder::warp_index`](crate::Builder::warp_index).
    WarpSlot,
    /// `%smid`: the number of the SM.
    Multiprocessor,
    /// `%nsmid`: one more than the largest possible `%smid`.
    Multiprocessors,
    /// `%lanemask_eq`: a mask with the bit of this lane.
    LaneMaskEq,
    /// `%lanemask_lt`: a mask of the lanes below this lane.
    LaneMaskLt,
    /// `%lanemask_le`: a mask of this lane and the lanes below.
    LaneMaskLe,
    /// `%lanemask_gt`: a mask of the lanes above this lane.
    LaneMaskGt,
    /// `%lanemask_ge`: a mask of this lane and the lanes above.
    LaneMaskGe,
    /// `%dynamic_smem_size`: bytes of dynamic shared memory.
    DynamicSharedBytes,
    /// `%clock`: the low 32 bits of the SM's cycle counter.
    Clock,
    /// `%clock64`, `.u64`: the SM's cycle counter.
    Clock64,
    /// `%globaltimer`, `.u64`: the global timer in nanoseconds.
    GlobalTimer,
    /// `%tid.y`.
    ThreadY,
    /// `%tid.z`.
    ThreadZ,
    /// `%ntid.y`.
    ThreadsY,
    /// `%ntid.z`.
    ThreadsZ,
    /// `%clusterid.y`.
    ClusterY,
    /// `%clusterid.z`.
    ClusterZ,
    /// `%nclusterid.y`.
    ClustersY,
    /// `%nclusterid.z`.
    ClustersZ,
    /// `%cluster_nctaid.x`.
    ClusterCtasX,
    /// `%cluster_nctaid.y`.
    ClusterCtasY,
    /// `%cluster_nctaid.z`.
    ClusterCtasZ,
    /// `%total_smem_size`: bytes of shared memory of the CTA, static and dynamic.
    SharedBytes,
}

impl Special {
    /// Each register with PTX's name, in the order of the variants.
    const NAMES: [(Self, &'static str); 40] = [
        (Self::ThreadX, "%tid.x"),
        (Self::CtaX, "%ctaid.x"),
        (Self::CtaY, "%ctaid.y"),
        (Self::CtaZ, "%ctaid.z"),
        (Self::GridX, "%nctaid.x"),
        (Self::GridY, "%nctaid.y"),
        (Self::GridZ, "%nctaid.z"),
        (Self::Lane, "%laneid"),
        (Self::ClusterRank, "%cluster_ctarank"),
        (Self::ClusterSize, "%cluster_nctarank"),
        (Self::ClusterX, "%clusterid.x"),
        (Self::ClustersX, "%nclusterid.x"),
        (Self::ClusterCtaX, "%cluster_ctaid.x"),
        (Self::ClusterCtaY, "%cluster_ctaid.y"),
        (Self::ClusterCtaZ, "%cluster_ctaid.z"),
        (Self::ThreadsX, "%ntid.x"),
        (Self::WarpSlot, "%warpid"),
        (Self::Multiprocessor, "%smid"),
        (Self::Multiprocessors, "%nsmid"),
        (Self::LaneMaskEq, "%lanemask_eq"),
        (Self::LaneMaskLt, "%lanemask_lt"),
        (Self::LaneMaskLe, "%lanemask_le"),
        (Self::LaneMaskGt, "%lanemask_gt"),
        (Self::LaneMaskGe, "%lanemask_ge"),
        (Self::DynamicSharedBytes, "%dynamic_smem_size"),
        (Self::Clock, "%clock"),
        (Self::Clock64, "%clock64"),
        (Self::GlobalTimer, "%globaltimer"),
        (Self::ThreadY, "%tid.y"),
        (Self::ThreadZ, "%tid.z"),
        (Self::ThreadsY, "%ntid.y"),
        (Self::ThreadsZ, "%ntid.z"),
        (Self::ClusterY, "%clusterid.y"),
        (Self::ClusterZ, "%clusterid.z"),
        (Self::ClustersY, "%nclusterid.y"),
        (Self::ClustersZ, "%nclusterid.z"),
        (Self::ClusterCtasX, "%cluster_nctaid.x"),
        (Self::ClusterCtasY, "%cluster_nctaid.y"),
        (Self::ClusterCtasZ, "%cluster_nctaid.z"),
        (Self::SharedBytes, "%total_smem_size"),
    ];

    /// All special registers.
    pub const ALL: [Self; 40] = {
        let mut all = [Self::ThreadX; 40];
        let mut i = 0;
        while i < all.len() {
            all[i] = Self::NAMES[i].0;
            assert!(all[i] as usize == i);
            i += 1;
        }
        all
    };

    /// The register's type.
    pub const fn ty(self) -> Type {
        if matches!(self, Self::Clock64 | Self::GlobalTimer) { Type::U64 } else { Type::U32 }
    }

    /// PTX's name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}
