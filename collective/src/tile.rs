//! Tile shapes and warp roles, as types.

use core::marker::PhantomData;

use typenum::{U1, U2, Unsigned};

use crate::operand::OperandPair;
use crate::plan::{Arrivals, Atom, MainloopSpec, OperandSpec, Producer, Roles, StageSlot};

/// The tile one CTA computes at a time: `M x N` of the output, and `K` of the reduction per stage.
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
    /// Elements along K, per pipeline stage.
    const K: u32;
    /// Step in columns by which the tile is narrowed along N if the output ends inside it; 0 if it never is.
    const STEP: u32 = 0;
}

/// The tile `T`, narrowed to what there is to compute. If the output, or a group of it, ends inside a tile,
/// the kernel loads and multiplies only a multiple of `Step` columns of that tile, with narrower
/// instructions.
///
/// ```
/// use collective::{Cooperative, Fitted, KMajor, LinearCombination, Operands, Tile, TmaWgmma, Transposed};
/// use collective::{Epilogue, Mainloop, Plan, TmaStore};
/// use half::bf16;
/// use typenum::{U2, U32, U64, U128, U256};
///
/// /// 128 columns of weights, and up to 256 tokens.
/// type M = TmaWgmma<
///     Operands<KMajor<bf16>, KMajor<bf16>>,
///     Fitted<Tile<U128, U256, U64>, U32>,
///     Cooperative<U2>,
/// >;
/// type E = LinearCombination<bf16, Transposed<TmaStore>>;
/// const PLAN: Plan = Plan::checked(M::SPEC, E::SPEC);
/// assert_eq!(PLAN.mainloop.step, 32);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fitted<T, Step>(PhantomData<(T, Step)>);

impl<T: TileShape, Step: Unsigned + 'static> TileShape for Fitted<T, Step> {
    const M: u32 = T::M;
    const N: u32 = T::N;
    const K: u32 = T::K;
    const STEP: u32 = {
        assert!(Step::U32 > 0, "a tile is narrowed in steps of at least 8 columns: use Fitted<_, U32>");
        Step::U32
    };
}

impl<M: Unsigned + 'static, N: Unsigned + 'static, K: Unsigned + 'static> TileShape for Tile<M, N, K> {
    const M: u32 = M::U32;
    const N: u32 = N::U32;
    const K: u32 = K::U32;
}

/// Cooperative warp roles: per CTA one producer warpgroup, and `Consumers` warpgroups (1 to 3) that divide a
/// tile's rows among them.
///
/// `Shape` is a [`Cluster`], by default one CTA. `Stages` is a typenum number, or [`AsManyAsFit`], the
/// default.
#[derive(Clone, Copy, Debug)]
pub struct Cooperative<Consumers, Shape = Cluster<U1, U1>, Stages = AsManyAsFit>(
    PhantomData<(Consumers, Shape, Stages)>,
);

/// Pingpong warp roles: one producer warpgroup, and `Consumers` warpgroups that alternate, with a whole tile
/// each. While one stores its tile, another multiplies the next.
///
/// Use it for a short K, where the epilogue is a large part of a tile's time. The tile belongs to one
/// warpgroup: 64 x 256 or 128 x 128 fill its registers. Parameters and defaults are those of [`Cooperative`];
/// `Consumers` is 2 by default.
#[derive(Clone, Copy, Debug)]
pub struct Pingpong<Consumers = U2, Shape = Cluster<U1, U1>, Stages = AsManyAsFit>(
    PhantomData<(Consumers, Shape, Stages)>,
);

/// No warp roles: `Warpgroups` warpgroups divide a tile's rows among them, and one thread starts the copies
/// between two multiplications. This is the simplest kernel. With one stage, nothing overlaps.
#[derive(Clone, Copy, Debug)]
pub struct Unspecialised<Warpgroups, Stages = AsManyAsFit>(PhantomData<(Warpgroups, Stages)>);

/// A cluster of `M x N` CTAs that compute neighbouring tiles and share their operands. Each CTA loads a slice
/// of a tile, or the whole one in turn, and multicasts it to the CTAs of its row (A) or column (B).
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

/// As many pipeline stages as fit into shared memory.
#[derive(Clone, Copy, Debug)]
pub struct AsManyAsFit;

/// A ring of `Stages` stages that consumers release with one arrival per warp instead of one per warpgroup.
#[derive(Clone, Copy, Debug)]
pub struct EachWarp<Stages>(PhantomData<Stages>);

/// A ring of `Stages` stages that consumers release with one arrival per thread.
#[derive(Clone, Copy, Debug)]
pub struct EachThread<Stages>(PhantomData<Stages>);

/// The number of stages of the ring, and how consumers release them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage count",
    note = "write a typenum number such as `U4`, or `AsManyAsFit`"
)]
pub trait StageCount: 'static {
    /// The number of stages; `None` for as many as fit.
    const STAGES: Option<u32>;
    /// Which threads release a stage.
    const ARRIVALS: Arrivals = Arrivals::Warpgroup;
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

impl<S: StageCount> StageCount for EachWarp<S> {
    const STAGES: Option<u32> = S::STAGES;
    const ARRIVALS: Arrivals = Arrivals::Warp;
}

impl<S: StageCount> StageCount for EachThread<S> {
    const STAGES: Option<u32> = S::STAGES;
    const ARRIVALS: Arrivals = Arrivals::Thread;
}

/// The warp roles of a CTA, and its cluster.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an arrangement of warp roles",
    note = "write `Cooperative<U2>` for a producer and two consumer warpgroups"
)]
pub trait WarpRoles: 'static {
    /// How warpgroups divide the work.
    const ROLES: Roles;
    /// Number of warpgroups that multiply.
    const CONSUMERS: u32;
    /// CTAs per cluster, along M and N.
    const CLUSTER: [u32; 2];
    /// Number of pipeline stages; `None` for as many as fit.
    const STAGES: Option<u32>;
    /// Which threads release a stage.
    const ARRIVALS: Arrivals;
}

impl<C: Unsigned + 'static, K: ClusterShape, S: StageCount> WarpRoles for Cooperative<C, K, S> {
    const ROLES: Roles = Roles::Cooperative;
    const CONSUMERS: u32 = C::U32;
    const CLUSTER: [u32; 2] = [K::M, K::N];
    const STAGES: Option<u32> = S::STAGES;
    const ARRIVALS: Arrivals = S::ARRIVALS;
}

impl<C: Unsigned + 'static, K: ClusterShape, S: StageCount> WarpRoles for Pingpong<C, K, S> {
    const ROLES: Roles = Roles::Pingpong;
    const CONSUMERS: u32 = C::U32;
    const CLUSTER: [u32; 2] = [K::M, K::N];
    const STAGES: Option<u32> = S::STAGES;
    const ARRIVALS: Arrivals = S::ARRIVALS;
}

impl<C: Unsigned + 'static, S: StageCount> WarpRoles for Unspecialised<C, S> {
    const ROLES: Roles = Roles::Unspecialised;
    const CONSUMERS: u32 = C::U32;
    const CLUSTER: [u32; 2] = [1, 1];
    const STAGES: Option<u32> = S::STAGES;
    const ARRIVALS: Arrivals = S::ARRIVALS;
}

impl MainloopSpec {
    /// The spec that the types describe.
    pub(crate) const fn of<O: OperandPair, T: TileShape, R: WarpRoles>(producer: Producer) -> Self {
        Self { waves: O::WAVES, ..Self::by::<T, R>(O::OPERANDS, O::ATOM, producer) }
    }

    /// The spec with any atom.
    pub(crate) const fn by<T: TileShape, R: WarpRoles>(
        operands: [OperandSpec; 2],
        atom: Atom,
        producer: Producer,
    ) -> Self {
        Self {
            operands,
            more: [StageSlot::NONE; Self::MORE],
            atom,
            own_bytes: 0,
            own_stage: StageSlot::NONE,
            registers: 0,
            tile: [T::M, T::N, T::K],
            step: T::STEP,
            roles: R::ROLES,
            producer,
            consumers: R::CONSUMERS,
            arrivals: R::ARRIVALS,
            cluster: R::CLUSTER,
            stages: R::STAGES,
            waves: 1,
        }
    }
}
