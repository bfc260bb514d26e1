//! Kernels with fused epilogues: trees with a row vector, a matrix, pairs of columns, an atomic maximum, and
//! a reduction in a fixed order.
//!
//! The proof calls each kernel as a plain GEMM. A tree reads its inputs from C's memory. It writes its other
//! outputs after the kernel's own workspace, which is compared as D is.

use collective::functions::{Add, Multiply, MultiplyAdd, MultiplyAddGelu, Silu};
use collective::tree::{
    Accumulator, Amax, Compute, Gated, Glu, Node, OrderedRow, ReduceScalar, Residual, ResidualArgument,
    RowArgument, RowVector, Scalar, ScalarPointer, Scratch, Shape, Sum,
};
use collective::{
    Cooperative, DirectStore, Fast, Fastest, KMajor, MatrixRef, Operands, Pingpong, Plan, Tile, TmaStore,
    TmaWgmma, TreeEpilogue,
};
use half::bf16;
use kernel::{AnyGemm, Call, Composed, Gemm, GemmConfig, GemmProblem};
use scheduler::{AlongM, OneTile, Persistent, StreamK};
use typenum::{U2, U4, U64, U128};

use super::subject::{self, Tree};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
/// Cooperative, with two consumer warpgroups.
type Two<E, S> = Composed<TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2>>, E, S>;
/// Several tiles per CTA.
type Persists<X> = Two<TreeEpilogue<bf16, TmaStore, X>, Persistent<AlongM>>;
/// One tile per CTA.
type Once<X> = Two<TreeEpilogue<bf16, TmaStore, X>, OneTile<AlongM>>;
/// Stream-K.
type Divides<X> = Two<TreeEpilogue<bf16, TmaStore, X>, StreamK<AlongM>>;
/// As [`Persists`], but threads store D directly, with any number of columns.
type Direct<X> = Two<TreeEpilogue<bf16, DirectStore, X>, Persistent<AlongM>>;
/// Pingpong, with two consumer warpgroups.
type Turns<X> = Composed<
    TmaWgmma<Kk, Tile<U64, U64, U64>, Pingpong>,
    TreeEpilogue<bf16, TmaStore<U4>, X>,
    Persistent<AlongM>,
>;

/// `alpha * acc + bias`, and gelu of it.
type Biased = Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<bf16>)>;
type BiasedGelu = Compute<MultiplyAddGelu<Fastest>, (Accumulator, Scalar, RowVector<bf16>)>;
type Added = Compute<Add, (Biased, Residual<bf16>)>;
type SwiGlu = Gated<Glu<Silu<Fast>>, Compute<Multiply, (Accumulator, Scalar)>>;
type Largest = Compute<Multiply, (ReduceScalar<Amax, Biased>, ScalarPointer<f32>)>;
type Ordered = OrderedRow<Sum, Biased>;

const _: Plan = Gemm::<Persists<BiasedGelu>>::PLAN;
const _: Plan = Gemm::<Divides<BiasedGelu>>::PLAN;
const _: Plan = Gemm::<Turns<Added>>::PLAN;
const _: Plan = Gemm::<Direct<SwiGlu>>::PLAN;
const _: Plan = Gemm::<Persists<Largest>>::PLAN;
const _: Plan = Gemm::<Once<Ordered>>::PLAN;

/// The kernels.
pub(super) fn kernels() -> Vec<subject::Gemm> {
    vec![
        fused::<Persists<BiasedGelu>, BiasedGelu>("fused-bias-gelu", |_| 0, |call, _| biased(call)),
        fused::<Divides<BiasedGelu>, BiasedGelu>("fused-bias-gelu-divided", |_| 0, |call, _| biased(call)),
        fused::<Turns<Added>, Added>(
            "fused-residual",
            |_| 0,
            |call, _| {
                let c = call.epilogue.c.map(|c| MatrixRef::new(c.address, c.ld));
                ((), (biased(call), ResidualArgument { beta: call.epilogue.beta, c }))
            },
        ),
        fused::<Direct<SwiGlu>, SwiGlu>(
            "fused-swiglu",
            |_| 0,
            |call, _| ((), ((), ((), call.epilogue.factors()[0]))),
        ),
        // The maximum is zero at first. The factor is the begin of the bias, read as an f32.
        fused::<Persists<Largest>, Largest>(
            "fused-amax",
            |_| 16,
            |call, more| {
                let biased = biased(call);
                let ((), ((), _, bias)) = biased;
                ((), ((more, biased), bias.address))
            },
        ),
        fused::<Once<Ordered>, Ordered>(
            "fused-ordered-sums",
            |shape| row_bytes(shape) + Ordered::scratch_bytes(shape),
            |call, more| {
                let shape = shape(call.problem);
                let row = RowArgument { address: more, len: shape.n };
                let address = more + row_bytes(shape);
                ((row, Scratch { address, bytes: Ordered::scratch_bytes(shape) }), biased(call))
            },
        ),
    ]
}

fn shape(problem: GemmProblem) -> Shape {
    Shape { m: problem.m, n: problem.n }
}

/// Bytes of a row of `f32`, rounded up to a multiple of 256.
fn row_bytes(shape: Shape) -> u64 {
    (u64::from(shape.n) * 4).next_multiple_of(256)
}

/// The bias is in the memory of C.
fn biased(call: &Call) -> <Biased as Node>::Arguments {
    let bias = RowArgument { address: call.epilogue.c.map_or(0, |c| c.address), len: call.problem.n };
    ((), ((), call.epilogue.factors()[0], bias))
}

/// A kernel of type `C`. Its tree `X` writes `more` bytes in addition to D. `arguments` makes the tree's
/// arguments from a call and the address of those bytes.
fn fused<C: GemmConfig, X: Node>(
    name: &str,
    more: fn(Shape) -> u64,
    arguments: fn(&Call, u64) -> X::Arguments,
) -> subject::Gemm
where
    X::Arguments: 'static,
{
    let launch = move |gemm: &AnyGemm, call: &Call, more: u64, resident: u32| {
        gemm.launch(&call.with(kernel::Tree::<X>(arguments(call, more))), resident)
    };
    let more = move |problem: GemmProblem| more(shape(problem));
    subject::Gemm::fused(AnyGemm::of::<C>(name), Tree { more: Box::new(more), launch: Box::new(launch) })
}
