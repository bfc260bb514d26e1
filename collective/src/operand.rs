//! Operand types: the element type and the contiguous direction of A and B.

use core::marker::PhantomData;

use cute_rs::atom::Major;
use cute_rs::{ComposedLayout, StaticComposed};
use typenum::{NonZero, Unsigned};

use crate::Batch;
use crate::element::{Code, Coded, Element, MultipliesWith};
use crate::plan::{Atom, CachePolicy, OperandSpec, TileLayout, WeightsSpec};

/// An operand that is contiguous along K: a row-major A `(M, K)`, or a B stored `(N, K)` row by row.
///
/// `L` is the layout atom of its tile in shared memory: 8 rows of one swizzle width, as a type of `cute_rs`.
/// Default: [`Widest`].
///
/// ```
/// use collective::{Cooperative, KMajor, Mainloop, Operands, RowMajor, Sw, Swizzled, Tile, TileLayout, TmaWgmma};
/// use cute_rs::atom::SwizzleMode;
/// use half::bf16;
/// use typenum::{U2, U3, U8, U32, U64, U128};
///
/// /// Rows of 32 elements (64 bytes) whose 16-byte chunks are permuted by 2 bits.
/// type Atom = Swizzled<Sw<U2, U3, U3>, RowMajor<(U8, U32)>>;
/// type M = TmaWgmma<Operands<KMajor<bf16, Atom>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>;
/// assert_eq!(M::SPEC.operands[0].layout, TileLayout::Slabs(SwizzleMode::B64));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KMajor<T, L = Widest>(PhantomData<(T, L)>);

/// An operand that is contiguous along M (or N): a column-major A `(M, K)`, or a B stored `(K, N)` row by
/// row.
///
/// `L` is the layout atom of its tile in shared memory: one swizzle width by 8 columns. Default: [`Widest`].
#[derive(Clone, Copy, Debug)]
pub struct MnMajor<T, L = Widest>(PhantomData<(T, L)>);

/// The layout atom with the widest swizzle that divides the tile's contiguous extent.
#[derive(Clone, Copy, Debug)]
pub struct Widest;

/// The layout atom of a tile in shared memory: [`Widest`], or a swizzled layout of `cute_rs`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no layout atom of a tile in shared memory",
    note = "write `Swizzled<Sw<B, M, S>, RowMajor<(U8, W)>>` (K-major) or `Swizzled<Sw<B, M, S>, ColumnMajor<(W, U8)>>` \
            (MN-major), or leave it out: `Widest`"
)]
pub trait TileAtom: 'static {
    /// The atom; `None` for the widest.
    const ATOM: Option<ComposedLayout>;
}

impl TileAtom for Widest {
    const ATOM: Option<ComposedLayout> = None;
}

impl<L: StaticComposed + 'static> TileAtom for L {
    const ATOM: Option<ComposedLayout> = Some(L::COMPOSED);
}

/// Matrix `X` with the L2 policy "evict first": for data that is used once.
#[derive(Clone, Copy, Debug)]
pub struct EvictFirst<X>(PhantomData<X>);

/// Matrix `X` with the L2 policy "evict last": for data that many CTAs use at different times.
#[derive(Clone, Copy, Debug)]
pub struct EvictLast<X>(PhantomData<X>);

/// Matrix `X` of 8-bit floats with block scales: one scale per block of `N` rows (columns of B) by 128 of K.
/// `N` is 1 or 128.
///
/// A and B must both have scales; DeepSeek's recipe is 1 x 128 for activations and 128 x 128 for weights.
/// After every 128 of K, the accumulators are multiplied by the scales of both operands and added to `f32`
/// sums. These take as many registers again, and lose no more than [`Promoted<U4>`](crate::Promoted) does,
/// for any scales. Tensor copies load the scales with the tiles. Threads read them from the stage, so each
/// warp must release a stage separately ([`EachWarp`](crate::EachWarp)). A call gives their addresses:
/// [`BlockScales`](crate::BlockScales).
///
/// ```
/// use collective::{AsManyAsFit, BlockScaled, Cluster, Cooperative, EachWarp, F8E4M3, KMajor, Mainloop, Operands, Tile, TmaWgmma};
/// use typenum::{U1, U2, U128};
///
/// type X = KMajor<F8E4M3>;
/// type AB = Operands<BlockScaled<X, U1>, BlockScaled<X, U128>>;
/// type M = TmaWgmma<AB, Tile<U128, U128, U128>, Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>>;
/// assert_eq!(M::SPEC.operands.map(|operand| operand.scaled), [1, 128]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BlockScaled<X, N>(PhantomData<(X, N)>);

/// Matrix `X` of 16-bit elements that is stored as 4-bit or 8-bit codes `Q`: quantised weights. Groups of `G`
/// along K have one scale each. `G` is 32, 64 or 128, or 0 without scales.
///
/// Consumers load codes from the stage, convert them in registers to the format that is multiplied, and scale
/// them there. Only operand A can come from registers: if the weights are the caller's B, use swap-AB with an
/// epilogue that stores the transpose. A call gives the addresses of the scales:
/// [`GroupScales`](crate::GroupScales). [`WeightsSpec`] describes the layout of the codes;
/// [`weights`](crate::weights) packs them.
///
/// ```
/// use collective::{AsManyAsFit, Cluster, Cooperative, EachWarp, Int4, KMajor, Mainloop, Operands, Quantized, Tile, TmaWgmma};
/// use half::bf16;
/// use typenum::{U1, U2, U64, U128};
///
/// type Weights = Quantized<KMajor<bf16>, Int4, U128>;
/// type M = TmaWgmma<Operands<Weights, KMajor<bf16>>, Tile<U128, U64, U128>, Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>>;
/// assert_eq!(M::SPEC.operands[0].bits(), 4);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quantized<X, Q, G>(PhantomData<(X, Q, G)>);

/// Matrix `X` that is 2:4 sparse: of four neighbours along K two are stored (of two of `tf32`, one), and
/// metadata says which.
///
/// An instruction multiplies twice the K of a dense one in the same time. Only operand A can be sparse: if
/// the caller's B is, use swap-AB with an epilogue that stores the transpose. A call gives the address of the
/// metadata; [`sparse`](crate::sparse) computes stored values and metadata from a matrix.
///
/// ```
/// use collective::{AsManyAsFit, Cluster, Cooperative, EachWarp, KMajor, Mainloop, Operands, Sparse, Tile, TmaWgmma};
/// use half::bf16;
/// use typenum::{U1, U2, U128};
///
/// type AB = Operands<Sparse<KMajor<bf16>>, KMajor<bf16>>;
/// type M = TmaWgmma<AB, Tile<U128, U128, U128>, Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>>;
/// assert_eq!(M::SPEC.atom.k(), 32);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sparse<X>(PhantomData<X>);

/// Integer codes `Q` from which the zero point of their group is subtracted.
#[derive(Clone, Copy, Debug)]
pub struct ZeroPoints<Q>(PhantomData<Q>);

impl<Q: Coded> Coded for ZeroPoints<Q> {
    const CODE: Code = Q::CODE;
    const ZEROS: bool = true;
}

/// One operand of a matrix multiply.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operand",
    note = "write `KMajor<T>` or `MnMajor<T>` with an element type `T`"
)]
pub trait Operand: 'static {
    /// Its element type.
    type Element: Element;
    /// What it states to the plan.
    const SPEC: OperandSpec;
}

impl<O: Operand> Operand for EvictFirst<O> {
    type Element = O::Element;
    const SPEC: OperandSpec = OperandSpec { cache: CachePolicy::EvictFirst, ..O::SPEC };
}

impl<O: Operand> Operand for EvictLast<O> {
    type Element = O::Element;
    const SPEC: OperandSpec = OperandSpec { cache: CachePolicy::EvictLast, ..O::SPEC };
}

impl<O: Operand, N: Unsigned + 'static> Operand for BlockScaled<O, N> {
    type Element = O::Element;
    const SPEC: OperandSpec = OperandSpec { scaled: N::U32, ..O::SPEC };
}

impl<O: Operand, Q: Coded, G: Unsigned + 'static> Operand for Quantized<O, Q, G> {
    type Element = O::Element;
    const SPEC: OperandSpec = {
        let weights = Some(WeightsSpec { code: Q::CODE, group: G::U32, zeros: Q::ZEROS });
        OperandSpec { weights, ..O::SPEC }
    };
}

impl<O: Operand> Operand for Sparse<O> {
    type Element = O::Element;
    const SPEC: OperandSpec = OperandSpec { sparse: true, ..O::SPEC };
}

/// An operand with this contiguous direction and this layout atom.
const fn plain<T: Element, L: TileAtom>(major: Major) -> OperandSpec {
    let layout = TileLayout::checked(L::ATOM, major, T::FORMAT.bits());
    OperandSpec { major, layout, ..OperandSpec::k_major(T::FORMAT) }
}

impl<T: Element, L: TileAtom> Operand for KMajor<T, L> {
    type Element = T;
    const SPEC: OperandSpec = plain::<T, L>(Major::K);
}

impl<T: Element, L: TileAtom> Operand for MnMajor<T, L> {
    type Element = T;
    const SPEC: OperandSpec = plain::<T, L>(Major::Mn);
}

/// Operands A and B that one instruction can multiply, and how it accumulates: [`Unpromoted`], [`Promoted`]
/// or [`InHalf`].
#[derive(Clone, Copy, Debug)]
pub struct Operands<A, B, S = Unpromoted>(PhantomData<(A, B, S)>);

/// The instruction's accumulators are used from the first k-tile to the last.
///
/// For 8-bit floats, `wgmma` aligns the products and the accumulator to the largest of them, and truncates
/// them 13 binary digits after its leading one. The loss grows with K.
#[derive(Clone, Copy, Debug)]
pub struct Unpromoted;

/// After every `N` instructions along K (32 elements each for 8-bit floats), the accumulators are added to
/// separate `f32` sums and start again from zero.
///
/// This takes as many registers again, and the warpgroup waits for its instructions each time; with two
/// consumers, one computes while the other waits. `N` is at most 64. `N` must divide the number of
/// instructions per k-tile, or be a multiple of it. If fewer than `N` instructions remain at the end of K,
/// their k-tiles are added one by one.
///
/// ```
/// use collective::{Cooperative, F8E4M3, KMajor, Mainloop, Operands, Promoted, Tile, TmaWgmma};
/// use typenum::{U2, U4, U128};
///
/// type M = TmaWgmma<Operands<KMajor<F8E4M3>, KMajor<F8E4M3>, Promoted<U4>>, Tile<U128, U128, U128>, Cooperative<U2>>;
/// assert_eq!(M::SPEC.atom.promote, 4); // every k-tile, whose K is four times 32
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Promoted<N>(PhantomData<N>);

/// The instruction accumulates in `f16`, two per register. For operands in `f16` and for 8-bit floats. `S` is
/// [`Unpromoted`] or [`Promoted`], whose sums are `f32`.
///
/// An accumulator loses up to 2^-11 of its value per instruction, and is infinite from 65520 on. `wgmma` is
/// not faster with it. It saves half of the accumulator registers until all is multiplied.
///
/// ```
/// use collective::{Cooperative, InHalf, KMajor, Mainloop, Operands, Promoted, Tile, TmaWgmma};
/// use half::f16;
/// use typenum::{U2, U4, U64, U128, U256};
///
/// type AB<S> = Operands<KMajor<f16>, KMajor<f16>, S>;
/// type M = TmaWgmma<AB<InHalf<Promoted<U4>>>, Tile<U128, U256, U64>, Cooperative<U2>>;
/// assert_eq!(M::SPEC.product().accumulators(), 64); // next to 128 sums in single precision
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InHalf<S = Unpromoted>(PhantomData<S>);

/// A consumer's tile is multiplied in `W` parts, one after the other, into one set of accumulators. Each part
/// is added to its sums before the next is multiplied; meanwhile another consumer multiplies. `S` is
/// [`Promoted`], or [`Unpromoted`] for [`BlockScaled`] operands, whose products are always added to sums.
///
/// The parts are blocks of 64 rows or, if there are more parts than blocks, ranges of a block's columns. So
/// tiles fit that are too large for two sets of registers.
///
/// ```
/// use collective::{BlockScaled, Cluster, Cooperative, EachWarp, F8E4M3, InWaves, KMajor, Mainloop, Operands};
/// use collective::{AsManyAsFit, Tile, TmaWgmma};
/// use typenum::{U1, U2, U128, U256};
///
/// type A = BlockScaled<KMajor<F8E4M3>, U1>;
/// type B = BlockScaled<KMajor<F8E4M3>, U128>;
/// type Roles = Cooperative<U2, Cluster<U2, U1>, EachWarp<AsManyAsFit>>;
/// type M = TmaWgmma<Operands<A, B, InWaves<U2>>, Tile<U256, U128, U128>, Roles>;
/// assert_eq!(M::SPEC.product().accumulators(), 64); // next to 128 sums
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InWaves<W, S = Unpromoted>(PhantomData<(W, S)>);

/// How an instruction accumulates.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how products are summed",
    note = "write `Unpromoted`, `Promoted<N>` with a number of `typenum` from 1 on, or `InHalf<S>` or `InWaves<W, S>` of one of them"
)]
pub trait Summing: 'static {
    /// Number of instructions along K after which accumulators are promoted; 0 for never.
    const PROMOTE: u32;
    /// Whether the instruction accumulates in `f16`.
    const HALF: bool = false;
    /// Number of parts of a consumer's tile that are multiplied one after the other.
    const WAVES: u32 = 1;
}

impl Summing for Unpromoted {
    const PROMOTE: u32 = 0;
}

impl<N: Unsigned + NonZero + 'static> Summing for Promoted<N> {
    const PROMOTE: u32 = N::U32;
}

impl<S: Summing> Summing for InHalf<S> {
    const PROMOTE: u32 = S::PROMOTE;
    const HALF: bool = true;
    const WAVES: u32 = S::WAVES;
}

impl<W: Unsigned + NonZero + 'static, S: Summing> Summing for InWaves<W, S> {
    const PROMOTE: u32 = S::PROMOTE;
    const HALF: bool = S::HALF;
    const WAVES: u32 = W::U32;
}

/// The facts of a pair of operands: see [`Operands`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pair of operands that `wgmma` multiplies",
    note = "write `Operands<A, B>` with A and B of element types of which one `MultipliesWith` the other"
)]
pub trait OperandPair: 'static {
    /// A and B.
    const OPERANDS: [OperandSpec; 2];
    /// The instruction that multiplies them.
    const ATOM: Atom;
    /// Number of parts of a consumer's tile that are multiplied one after the other.
    const WAVES: u32;
}

impl<A: Operand, B: Operand, S: Summing> OperandPair for Operands<A, B, S>
where
    A::Element: MultipliesWith<B::Element>,
{
    const OPERANDS: [OperandSpec; 2] = [A::SPEC, B::SPEC];
    const ATOM: Atom = {
        let types = <A::Element as MultipliesWith<B::Element>>::TYPES;
        let types = match types.in_half() {
            Some(half) if S::HALF => half,
            None if S::HALF => panic!(
                "`wgmma` has f16 accumulators only for operands of f16, F8E4M3 and F8E5M2: leave out `InHalf`, or use one of these formats"
            ),
            Some(_) | None => types,
        };
        Atom::shared(types).taking(A::SPEC).promoted(S::PROMOTE)
    };
    const WAVES: u32 = S::WAVES;
}

/// A matrix in device memory, as callers describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MatrixRef {
    /// Device address of the first element.
    pub address: u64,
    /// Leading dimension: elements from one contiguous row or column to the next.
    pub ld: u64,
    /// Batch stride: elements from the matrix of one GEMM to that of the next in a batched launch; 0 if all
    /// share one matrix.
    pub stride: u64,
}

impl MatrixRef {
    /// No matrix.
    pub const NONE: Self = Self::new(0, 0);

    /// One matrix, or one that all GEMMs of a launch share.
    pub const fn new(address: u64, ld: u64) -> Self {
        Self { address, ld, stride: 0 }
    }

    /// The first matrix of a batch, with `stride` elements from each to the next.
    #[must_use]
    pub const fn every(self, stride: u64) -> Self {
        Self { stride, ..self }
    }
}

/// A matrix in device memory, as an operand: `mn` rows of M (or N) by `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Device address of element (0, 0).
    pub address: u64,
    /// Extent along M or N, in elements.
    pub mn: u32,
    /// Extent along K, in elements.
    pub k: u32,
    /// Leading dimension: elements from one row (K-major) or column (MN-major) to the next.
    pub ld: u64,
    /// The batch of which it is the first matrix.
    pub batch: Batch,
}
