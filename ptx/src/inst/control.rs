//! Special registers.

/// A read-only `.u32` register of the machine, as in PTX ISA 10 "Special Registers".
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
}

impl Special {
    /// PTX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ThreadX => "%tid.x",
            Self::CtaX => "%ctaid.x",
            Self::CtaY => "%ctaid.y",
            Self::CtaZ => "%ctaid.z",
            Self::GridX => "%nctaid.x",
            Self::GridY => "%nctaid.y",
            Self::GridZ => "%nctaid.z",
            Self::Lane => "%laneid",
            Self::ClusterRank => "%cluster_ctarank",
            Self::ClusterSize => "%cluster_nctarank",
            Self::ClusterX => "%clusterid.x",
        }
    }
}
