//! Tile shapes and warp roles as types.

use core::marker::PhantomData;

use typenum::{U1, U2, Unsigned};

use crate::element::Element;
use crate::operand::{Operand, OperandPair};
use crate::plan::{Arrivals, Atom, MainloopSpec, OperandSpec, Producer, Roles, Room};

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
    /// In which steps the tile is narrowed along N where the output ends inside of it; 0 where it never is.
    const STEP: u32 = 0;
}

/// The tile `T` as wide as what there is to compute: where the output, or a group of it, ends inside of a tile, that one
/// loads and multiplies a multiple of `Step` columns only, with narrower instructions.
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

/// Warp roles: one producer warpgroup, and `Consumers` warpgroups that split a tile's rows among them, in each CTA
/// of a cluster.
///
/// `Shape` is a [`Cluster`]; `Stages` is a typenum number, or [`AsManyAsFit`].
#[derive(Clone, Copy, Debug)]
pub struct Cooperative<Consumers, Shape = Cluster<U1, U1>, Stages = AsManyAsFit>(
    PhantomData<(Consumers, Shape, Stages)>,
);

/// Warp roles: one producer warpgroup, and `Consumers` warpgroups that take turns, a whole tile each: while one stores
/// its tile, another multiplies the next.
///
/// For short reductions, where the epilogue is a large part of a tile's time. The tile is one warpgroup's: 64 x 256 or
/// 128 x 128 fill its registers.
#[derive(Clone, Copy, Debug)]
pub struct Pingpong<Consumers = U2, Shape = Cluster<U1, U1>, Stages = AsManyAsFit>(
    PhantomData<(Consumers, Shape, Stages)>,
);

/// No warp roles: `Warpgroups` warpgroups split a tile's rows among them, and one of their threads starts the copies
/// between two multiplications. The simplest kernel there is; with one stage, nothing overlaps.
#[derive(Clone, Copy, Debug)]
pub struct Unspecialised<Warpgroups, Stages = AsManyAsFit>(PhantomData<(Warpgroups, Stages)>);

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

/// A ring of `Stages` whose consumers give a stage back warp by warp, and not with one arrival a warpgroup.
#[derive(Clone, Copy, Debug)]
pub struct EachWarp<Stages>(PhantomData<Stages>);

/// A ring of `Stages` whose consumers give a stage back thread by thread.
#[derive(Clone, Copy, Debug)]
pub struct EachThread<Stages>(PhantomData<Stages>);

/// The ring between producer and consumers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage count",
    note = "write a typenum number such as `U4`, or `AsManyAsFit`"
)]
pub trait StageCount: 'static {
    /// The count, or `None` for as many as fit.
    const STAGES: Option<u32>;
    /// Who gives a stage back.
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

/// Who works in a CTA, and with which other CTAs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an arrangement of warp roles",
    note = "write `Cooperative<U2>` for two consumer warpgroups beside the producer"
)]
pub trait WarpRoles: 'static {
    /// How warpgroups divide the work.
    const ROLES: Roles;
    /// Warpgroups that multiply.
    const CONSUMERS: u32;
    /// CTAs of a cluster along M and N.
    const CLUSTER: [u32; 2];
    /// Pipeline stages, or `None` for as many as fit.
    const STAGES: Option<u32>;
    /// Who gives a stage back.
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

impl OperandSpec {
    pub(crate) const fn of<O: Operand>() -> Self {
        let (format, scaled) = (O::Element::FORMAT, O::SCALED);
        Self {
            format,
            major: O::MAJOR,
            layout: O::LAYOUT,
            cache: O::CACHE,
            staged: true,
            scaled,
            weights: O::WEIGHTS,
            sparse: O::SPARSE,
        }
    }
}

impl MainloopSpec {
    /// The spec that types say.
    pub(crate) const fn of<O: OperandPair, T: TileShape, R: WarpRoles>(producer: Producer) -> Self {
        let operands = [OperandSpec::of::<O::A>(), OperandSpec::of::<O::B>()];
        let atom = Atom::shared(O::TYPES).taking(operands[0]).promoted(O::PROMOTE);
        Self::by::<T, R>(operands, atom, producer)
    }

    /// The same with any atom.
    pub(crate) const fn by<T: TileShape, R: WarpRoles>(
        operands: [OperandSpec; 2],
        atom: Atom,
        producer: Producer,
    ) -> Self {
        Self {
            operands,
            more: [Room::NONE; Self::MORE],
            atom,
            own_bytes: 0,
            registers: 0,
            tile: [T::M, T::N, T::K],
            step: T::STEP,
            roles: R::ROLES,
            producer,
            consumers: R::CONSUMERS,
            arrivals: R::ARRIVALS,
            cluster: R::CLUSTER,
            stages: R::STAGES,
        }
    }
}
