//! Kernels with fused epilogues: trees with a row vector, with a matrix, with pairs of columns, with an atomic maximum and with
//! sums in a fixed order.
//!
//! The proof calls every kernel as a plain product. What a tree reads lies where C does, and what it writes besides D behind
//! the kernel's own workspace, which is compared as D is.

use std::marker::PhantomData;

use collective::tree::{
    LinearBias, LinearBiasArguments, LinearBiasGelu, LinearBiasScaled, LinearBiasScaledArguments,
    LinearResidual, LinearResidualArguments, MatrixArgument, OrderedRow, ResidualArgument, RowArgument,
    ScaledArguments, Scratch, Shape, Sum, SwiGlu,
};
use collective::{
    Cooperative, DirectStore, Epilogue, Form, KMajor, Operands, Pingpong, Plan, Tile, TmaStore, TmaWgmma,
    TreeEpilogue,
};
use half::bf16;
use kernel::{
    AnyGemm, BatchedCall, Call, Composed, Gemm, GemmConfig, GemmProblem, GroupedCall, Launch, LaunchError,
    Matrices, Program, RaggedCall,
};
use scheduler::{AlongM, OneTile, Persistent, ReductionKind, StreamK, TileScheduler, Tiles, Work};
use typenum::{U2, U4, U64, U128};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
/// Two consumer warpgroups, some tiles each.
type Persists<X> = Composed<
    TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, X>,
    Persistent<AlongM>,
>;
/// One tile a CTA.
type Once<X> = Composed<
    TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, X>,
    OneTile<AlongM>,
>;
/// Two consumer warpgroups that take turns.
type Turns<X> = Composed<
    TmaWgmma<Kk, Tile<U64, U64, U64>, Pingpong>,
    TreeEpilogue<bf16, TmaStore<U4>, X>,
    Persistent<AlongM>,
>;
/// Tiles of which the last are divided along K.
type Divides<X> = Composed<
    TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, X>,
    StreamK<AlongM>,
>;

/// As [`Persists`], and threads store D, of any number of columns.
type Direct<X> = Composed<
    TmaWgmma<Kk, Tile<U128, U64, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, DirectStore, X>,
    Persistent<AlongM>,
>;

type Ordered = OrderedRow<Sum, LinearBias<bf16>>;

const _: Plan = Gemm::<Persists<LinearBiasGelu<bf16>>>::PLAN;
const _: Plan = Gemm::<Divides<LinearBiasGelu<bf16>>>::PLAN;
const _: Plan = Gemm::<Turns<LinearResidual<bf16>>>::PLAN;
const _: Plan = Gemm::<Direct<SwiGlu>>::PLAN;
const _: Plan = Gemm::<Persists<LinearBiasScaled<bf16>>>::PLAN;
const _: Plan = Gemm::<Once<Ordered>>::PLAN;

/// The kernels.
pub(super) fn kernels() -> Vec<Box<dyn AnyGemm>> {
    vec![
        fused::<Persists<LinearBiasGelu<bf16>>>("fused-bias-gelu", |_| 0, |call, _| biased(call)),
        fused::<Divides<LinearBiasGelu<bf16>>>("fused-bias-gelu-divided", |_| 0, |call, _| biased(call)),
        fused::<Turns<LinearResidual<bf16>>>(
            "fused-residual",
            |_| 0,
            |call, _| {
                let LinearBiasArguments { alpha, bias } = biased(call);
                let c = call.c.map(|c| MatrixArgument { address: c.address, pitch: c.pitch });
                LinearResidualArguments { alpha, bias, residual: ResidualArgument { beta: call.beta, c } }
            },
        ),
        fused::<Direct<SwiGlu>>("fused-swiglu", |_| 0, |call, _| ScaledArguments { alpha: call.alpha }),
        // The maximum is zero at first; the factor is what the bias begins with, read as an f32.
        fused::<Persists<LinearBiasScaled<bf16>>>(
            "fused-amax",
            |_| 16,
            |call, more| {
                let LinearBiasArguments { alpha, bias } = biased(call);
                LinearBiasScaledArguments { alpha, bias, amax: more, scale: bias.address }
            },
        ),
        fused::<Once<Ordered>>(
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

/// Bytes of a row of sums in `f32`.
fn row_bytes(shape: Shape) -> u64 {
    (u64::from(shape.n) * 4).next_multiple_of(256)
}

/// The bias is what C begins with.
fn biased(call: &Call) -> LinearBiasArguments {
    let bias = RowArgument { address: call.c.map_or(0, |c| c.address), len: call.problem.n };
    LinearBiasArguments { alpha: call.alpha, bias }
}

/// A tree's arguments, from a call and the address of the memory that it asked for.
type Arguments<C> = fn(&Call, u64) -> <<C as GemmConfig>::Epilogue as Epilogue>::Arguments;

struct Fused<C: GemmConfig> {
    name: &'static str,
    /// Bytes of memory that the tree writes besides D, zeros at first.
    more: fn(Shape) -> u64,
    arguments: Arguments<C>,
    config: PhantomData<fn() -> C>,
}

fn fused<C: GemmConfig>(
    name: &'static str,
    more: fn(Shape) -> u64,
    arguments: Arguments<C>,
) -> Box<dyn AnyGemm> {
    Box::new(Fused::<C> { name, more, arguments, config: PhantomData })
}

/// Bytes of the kernel's own workspace, up to where the tree's memory begins.
fn own<C: GemmConfig>(problem: GemmProblem, slots: u32) -> u64 {
    Gemm::<C>::workspace(problem, slots).next_multiple_of(256)
}

impl<C: GemmConfig> AnyGemm for Fused<C> {
    fn name(&self) -> &str {
        self.name
    }

    fn element(&self) -> &'static str {
        "bf16"
    }

    fn schedule(&self) -> String {
        C::Scheduler::describe()
    }

    fn plan(&self) -> Plan {
        Gemm::<C>::PLAN
    }

    fn program(&self) -> Result<Program, ptx::VerifyError> {
        Gemm::<C>::program()
    }

    fn launch(&self, call: &Call, slots: u32) -> Result<Option<Launch>, LaunchError> {
        let Call { problem, a, b, d, workspace, .. } = *call;
        let begin = workspace.map_or(0, |workspace| workspace.address);
        let arguments = (self.arguments)(call, begin + own::<C>(problem, slots));
        Gemm::<C>::launch_with(&Matrices { problem, a, b, d, workspace }, &arguments, slots)
    }

    fn form(&self) -> Form {
        Form::Single
    }

    // One product each: there is nothing to launch in the other forms.
    fn launch_batched(&self, _: &BatchedCall, _: u32) -> Result<Option<Launch>, LaunchError> {
        Ok(None)
    }

    fn launch_ragged(&self, _: &RaggedCall, _: u32) -> Result<Option<Launch>, LaunchError> {
        Ok(None)
    }

    fn launch_grouped(&self, _: &GroupedCall, _: u32) -> Result<Option<Launch>, LaunchError> {
        Ok(None)
    }

    fn workspace_grouped(&self, _: u32) -> u64 {
        0
    }

    fn workspace_batched(&self, problem: GemmProblem, _: u32, slots: u32) -> u64 {
        self.workspace(problem, slots)
    }

    fn rust_type(&self) -> String {
        self.name.to_owned()
    }

    fn tiles(&self, problem: GemmProblem) -> Tiles<u32> {
        Gemm::<C>::tiles(problem)
    }

    fn tiles_of(&self, products: &[GemmProblem]) -> Tiles<u32> {
        Gemm::<C>::tiles_of(products)
    }

    fn widths_of(&self, products: &[GemmProblem], workers: u32) -> Option<Vec<u32>> {
        Gemm::<C>::widths_of(products, workers)
    }

    fn draws(&self) -> bool {
        C::Scheduler::DRAWS
    }

    fn workspace(&self, problem: GemmProblem, slots: u32) -> u64 {
        own::<C>(problem, slots) + (self.more)(shape(problem))
    }

    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        C::Scheduler::workers(tiles, slots)
    }

    fn reduction(&self) -> Option<ReductionKind> {
        C::Scheduler::REDUCTION
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        C::Scheduler::work(tiles, worker, workers)
    }
}
