//! Tile shapes and warp roles as types.

use core::marker::PhantomData;

use typenum::{U1, Unsigned};

/// What one CTA computes at a time: `M x N` of the output, `K` of the reduction a stage.
#[derive(Clone, Copy, Debug)]
pub struct Tile<M, N, K>(PhantomData<(M, N, K)>);

/// The numbers of a [`Tile`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile shape",
    note = "write `Tile<U128, U256, U64>`"
)]
pub trait TileShape: 'static {
    /// Elements along M.
    const M: u32;
    /// Elements along N.
    const N: u32;
    /// Elements along K, of one pipeline stage.
    const K: u32;
}

impl<M: Unsigned + 'static, N: Unsigned + 'static, K: Unsigned + 'static> TileShape for Tile<M, N, K> {
    const M: u32 = M::U32;
    const N: u32 = N::U32;
    const K: u32 = K::U32;
}

/// Warp roles: one producer warpgroup, and `Consumers` warpgroups that split a tile's rows among them, in each CTA
/// of a cluster.
///
/// `Shape` is a [`Cluster`]; `Stages` is a typenum number, or [`AsManyAsFit`].
#[derive(Clone, Copy, Debug)]
pub struct Cooperative<Consumers, Shape = Cluster<U1, U1>, Stages = AsManyAsFit>(
    PhantomData<(Consumers, Shape, Stages)>,
);

/// CTAs that work side by side on `M x N` neighbouring tiles and share their operands: each brings a part of a tile
/// and multicasts it to the CTAs of its row (A) or column (B).
#[derive(Clone, Copy, Debug)]
pub struct Cluster<M, N>(PhantomData<(M, N)>);

/// The numbers of a [`Cluster`].
#[diagnostic::on_unimplemented(message = "`{Self}` is not a cluster shape", note = "write `Cluster<U2, U1>`")]
pub trait ClusterShape: 'static {
    /// CTAs along M.
    const M: u32;
    /// CTAs along N.
    const N: u32;
}

impl<M: Unsigned + 'static, N: Unsigned + 'static> ClusterShape for Cluster<M, N> {
    const M: u32 = M::U32;
    const N: u32 = N::U32;
}

/// As many pipeline stages as shared memory has room for.
#[derive(Clone, Copy, Debug)]
pub struct AsManyAsFit;

/// A stage count.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage count",
    note = "write a typenum number such as `U4`, or `AsManyAsFit`"
)]
pub trait StageCount: 'static {
    /// The count, or `None` for as many as fit.
    const STAGES: Option<u32>;
}

impl StageCount for AsManyAsFit {
    const STAGES: Option<u32> = None;
}

impl<U: Unsigned + 'static, B: typenum::Bit + 'static> StageCount for typenum::UInt<U, B> {
    const STAGES: Option<u32> = Some(<Self as Unsigned>::U32);
}

impl StageCount for typenum::UTerm {
    const STAGES: Option<u32> = Some(0);
}

/// Who works in a CTA, and with which other CTAs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an arrangement of warp roles",
    note = "write `Cooperative<U2>` for two consumer warpgroups beside the producer"
)]
pub trait WarpRoles: 'static {
    /// Consumer warpgroups.
    const CONSUMERS: u32;
    /// CTAs of a cluster along M and N.
    const CLUSTER: [u32; 2];
    /// Pipeline stages, or `None` for as many as fit.
    const STAGES: Option<u32>;
}

impl<C: Unsigned + 'static, K: ClusterShape, S: StageCount> WarpRoles for Cooperative<C, K, S> {
    const CONSUMERS: u32 = C::U32;
    const CLUSTER: [u32; 2] = [K::M, K::N];
    const STAGES: Option<u32> = S::STAGES;
}
