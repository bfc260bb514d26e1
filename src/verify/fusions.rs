//! The usual fusions by name, for the command line.

use collective::tree::{
    Amax, Cyclic, Dropout, GeGlu, LinearBias, LinearBiasGelu, LinearBiasRelu, LinearBiasScaled,
    LinearBiasSilu, LinearResidual, OrderedRow, ReduceRow, Rotate, RowScaled, Scaled, Shape, Sum, SwiGlu,
    SwiGluBlocks, SwiGluSplit,
};
use collective::{
    Cooperative, DirectStore, Element, Epilogue, F8E4M3, HasTree, KMajor, LinearCombination, Mainloop,
    MultipliesWith, Operands, Pingpong, Plan, Tile, TmaStore, TmaWgmma, TreeEpilogue,
};
use half::{bf16, f16};
use kernel::{
    Call, Composed, Gemm, GemmConfig, GemmProblem, Launch, LaunchError, Matrices, MatrixRef, Program,
};
use ptx::VerifyError;
use scheduler::{AlongM, Grouped, Persistent, TileScheduler};
use typenum::{U2, U4, U8, U12, U64, U128, U192, U256};

use super::tree::Checked;
use super::{Bench, Format, Sample, TreeError};

/// A kernel with a fused epilogue, on random matrices.
type Run = fn(&mut Bench<'_>, GemmProblem) -> Result<Checked, TreeError>;

/// Its kernels, each with its plain one.
type Prepare = fn(&mut Bench<'_>, GemmProblem, [u64; 3]) -> Result<Vec<Fused>, TreeError>;

/// The kernels of a fusion.
type Kernels = fn(&'static str) -> Vec<FusedGemm>;

/// A kernel with a fused epilogue whose type has been forgotten.
#[derive(Clone, Copy, Debug)]
pub struct FusedGemm {
    /// The kind, as in the catalogue's names.
    pub kind: &'static str,
    /// The fusion's name.
    pub fusion: &'static str,
    /// Name of the element type of A and B.
    pub element: &'static str,
    /// Every number of the kernel.
    pub plan: Plan,
    /// How tiles are dealt out, in words.
    pub schedule: fn() -> String,
    program: fn() -> Result<Program, VerifyError>,
    check: Run,
}

impl FusedGemm {
    /// `<kind>-<fusion>-<element>-<A's direction><B's direction>`.
    pub fn name(&self) -> String {
        format!("{}-{}-{}-kk", self.kind, self.fusion, self.element)
    }

    /// Builds, verifies and prints the kernel.
    ///
    /// # Errors
    /// What the verifier finds.
    pub fn program(&self) -> Result<Program, VerifyError> {
        (self.program)()
    }

    /// Runs it on random matrices and compares everything that it writes with its tree.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, bench: &mut Bench<'_>, problem: GemmProblem) -> Result<Checked, TreeError> {
        (self.check)(bench, problem)
    }
}

/// A fused epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Fusion {
    /// Its name.
    pub name: &'static str,
    /// What D is.
    pub formula: &'static str,
    bf16: (Run, Prepare, Kernels),
    f16: (Run, Prepare, Kernels),
}

/// A kernel and what it is launched with.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The kernel.
    pub program: Program,
    /// Grid and arguments.
    pub launch: Launch,
    /// Its clusters that run at once.
    pub slots: u32,
}

/// A kernel with a fused epilogue beside the same kernel without it.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The kind, as in the catalogue's names.
    pub kind: &'static str,
    /// `D = A * B`.
    pub plain: Ready,
    /// The fusion.
    pub fused: Ready,
}

impl Fusion {
    fn of(&self, format: Format) -> (Run, Prepare, Kernels) {
        match format {
            Format::Bf16 => self.bf16,
            Format::F16 => self.f16,
        }
    }

    /// Runs it on random matrices and compares everything that it writes with its tree.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(
        &self,
        bench: &mut Bench<'_>,
        format: Format,
        problem: GemmProblem,
    ) -> Result<Checked, TreeError> {
        self.of(format).0(bench, problem)
    }

    /// Its kernels in every tile that fusions are for.
    pub fn kernels(&self, format: Format) -> Vec<FusedGemm> {
        self.of(format).2(self.name)
    }

    /// The same on packed A (M x K), B (N x K) and D at these addresses, with
    /// arguments that the bench draws.
    ///
    /// # Errors
    /// A problem that the kernels refuse, or what the engine reports.
    pub fn prepare(
        &self,
        bench: &mut Bench<'_>,
        format: Format,
        problem: GemmProblem,
        addresses: [u64; 3],
    ) -> Result<Vec<Fused>, TreeError> {
        self.of(format).1(bench, problem, addresses)
    }
}

type Kk<T> = Operands<KMajor<T>, KMajor<T>>;
type Bands<G> = Persistent<Grouped<AlongM, G>>;
/// A 128 x 128 tile, two consumer warpgroups, persistent, with a tree.
type Medium<T, E> = Composed<TmaWgmma<Kk<T>, Tile<U128, U128, U64>, Cooperative<U2>>, E, Bands<U8>>;
/// For outputs of many tiles.
type Staged<T, E> = Composed<TmaWgmma<Kk<T>, Tile<U128, U256, U64>, Cooperative<U2>>, E, Bands<U12>>;
/// The least traffic for a multiplication.
type Wide<T, E> = Composed<TmaWgmma<Kk<T>, Tile<U256, U192, U64>, Cooperative<U2>>, E, Bands<U8>>;
/// One warpgroup's epilogue hides behind the other's products.
type Turns<T, E> = Composed<TmaWgmma<Kk<T>, Tile<U128, U128, U64>, Pingpong>, E, Bands<U8>>;

/// Runs the kinds of kernels that fusions are for through a macro: their names, their types, and the buffers that D leaves from.
/// Where warpgroups take turns, an epilogue that waits for no buffer is more likely to end before the other's products.
macro_rules! kinds {
    ($each:ident) => {
        $each!("staged" Staged U2, "wide" Wide U2, "pingpong" Turns U4)
    };
}

fn kernels<T: MultipliesWith<T>, D: Element, X: Sample>(fusion: &'static str) -> Vec<FusedGemm> {
    macro_rules! each {
        ($($name:literal $kind:ident $buffers:ty),*) => {
            vec![$(of_kind::<$kind<T, TreeEpilogue<D, TmaStore<$buffers>, X>>, X>($name, fusion)),*]
        };
    }
    kinds!(each)
}

fn of_kind<C, X: Sample>(kind: &'static str, fusion: &'static str) -> FusedGemm
where
    C: GemmConfig<Epilogue: HasTree<Tree = X> + Epilogue<Arguments = X::Arguments>>,
{
    FusedGemm {
        kind,
        fusion,
        element: <C::Mainloop as Mainloop>::A::NAME,
        plan: Gemm::<C>::PLAN,
        schedule: <C::Scheduler as TileScheduler>::describe,
        program: Gemm::<C>::program,
        check: |bench, problem| {
            let n = problem.n >> X::FACTS.halvings.unwrap_or(0);
            let arguments = X::sample(bench, Shape { m: problem.m, n })?;
            bench.check::<C>(problem, &arguments)
        },
    }
}

fn run<T: MultipliesWith<T>, D: Element, X: Sample>(
    bench: &mut Bench<'_>,
    problem: GemmProblem,
) -> Result<Checked, TreeError> {
    let n = problem.n >> X::FACTS.halvings.unwrap_or(0);
    let arguments = X::sample(bench, Shape { m: problem.m, n })?;
    // Tensor stores need rows of whole 16 bytes.
    if n.is_multiple_of(128 / D::BITS) {
        bench.check::<Turns<T, TreeEpilogue<D, TmaStore<U4>, X>>>(problem, &arguments)
    } else {
        bench.check::<Medium<T, TreeEpilogue<D, DirectStore, X>>>(problem, &arguments)
    }
}

fn ready<C: GemmConfig>(
    bench: &mut Bench<'_>,
    launch: impl FnOnce(u32) -> Result<Option<Launch>, LaunchError>,
) -> Result<Ready, TreeError> {
    let program = Gemm::<C>::program()?;
    let slots = bench.engine().slots(&program)?;
    let launch = launch(slots)?.ok_or(TreeError::Empty)?;
    Ok(Ready { program, launch, slots })
}

fn prepare<T: MultipliesWith<T>, D: Element, X: Sample>(
    bench: &mut Bench<'_>,
    problem: GemmProblem,
    [a, b, d]: [u64; 3],
) -> Result<Vec<Fused>, TreeError> {
    let matrix = |address, pitch: u32| MatrixRef { address, pitch: pitch.into() };
    let columns = problem.n >> X::FACTS.halvings.unwrap_or(0);
    let arguments = X::sample(bench, Shape { m: problem.m, n: columns })?;
    let call = Call {
        problem,
        a: matrix(a, problem.k),
        b: matrix(b, problem.k),
        c: None,
        d: matrix(d, problem.n),
        alpha: 1.0,
        beta: 0.0,
        workspace: None,
    };
    let matrices = Matrices { problem, a: call.a, b: call.b, d: matrix(d, columns), workspace: None };
    let mut all = Vec::new();
    macro_rules! each {
        ($($name:literal $kind:ident $buffers:ty),*) => {$({
            type Plain<T> = $kind<T, LinearCombination<T, TmaStore>>;
            type Tree<T, D, X> = $kind<T, TreeEpilogue<D, TmaStore<$buffers>, X>>;
            all.push(Fused {
                kind: $name,
                plain: ready::<Plain<T>>(bench, |slots| Gemm::<Plain<T>>::launch(&call, slots))?,
                fused: ready::<Tree<T, D, X>>(bench, |slots| {
                    Gemm::<Tree<T, D, X>>::launch_with(&matrices, &arguments, slots)
                })?,
            });
        })*};
    }
    kinds!(each);
    Ok(all)
}

/// Every fusion's kernels, in bf16 and f16.
pub fn fused_catalogue() -> Vec<FusedGemm> {
    let formats = [Format::Bf16, Format::F16];
    formats
        .into_iter()
        .flat_map(|format| fusions().into_iter().flat_map(move |f| f.kernels(format)))
        .collect()
}

/// Every fusion.
pub fn fusions() -> Vec<Fusion> {
    macro_rules! fusions {
        ($($name:literal, $formula:literal, |$t:ident| $d:ty, $tree:ty;)*) => {
            vec![$(Fusion {
                name: $name,
                formula: $formula,
                bf16: { type $t = bf16; (run::<$t, $d, $tree>, prepare::<$t, $d, $tree>, kernels::<$t, $d, $tree>) },
                f16: { type $t = f16; (run::<$t, $d, $tree>, prepare::<$t, $d, $tree>, kernels::<$t, $d, $tree>) },
            }),*]
        };
    }
    fusions! {
        "scaled", "alpha * A * B", |T| T, Scaled;
        "bias", "alpha * A * B + bias", |T| T, LinearBias<T>;
        "bias-relu", "relu(alpha * A * B + bias)", |T| T, LinearBiasRelu<T>;
        "bias-gelu", "gelu(alpha * A * B + bias)", |T| T, LinearBiasGelu<T>;
        "bias-silu", "silu(alpha * A * B + bias)", |T| T, LinearBiasSilu<T>;
        "residual", "alpha * A * B + bias + beta * C", |T| T, LinearResidual<T>;
        "row-scaled", "scale * A * B + bias, a scale for each row", |T| T, RowScaled<T>;
        "swiglu", "silu(gate) * up of alternating columns of alpha * A * B", |T| T, SwiGlu;
        "swiglu-blocks", "silu(gate) * up of alpha * A * B, whose columns are 8 gates, 8 ups, and so on",
            |T| T, SwiGluBlocks;
        "swiglu-split", "silu(gate) * up of alpha * A * B, whose columns are all gates, then all ups",
            |T| T, SwiGluSplit;
        "bias-dropout", "dropout(alpha * A * B + bias), scaled", |T| T, Dropout<LinearBias<T>>;
        "rope", "pairs of columns of alpha * A * B turned, by a table of 128 columns, cosine and sine",
            |T| T, Rotate<Scaled, Cyclic<T, U128>>;
        "bias-sums-ordered", "alpha * A * B + bias, and the sums of its columns, the same bits in every run",
            |T| T, OrderedRow<Sum, LinearBias<T>>;
        "geglu", "gelu(gate) * up of alternating columns of alpha * A * B", |T| T, GeGlu;
        "bias-amax", "alpha * A * B + bias, and its largest magnitude", |T| T, Amax<LinearBias<T>>;
        "bias-sums", "alpha * A * B + bias, and the sums of its columns", |T| T, ReduceRow<Sum, LinearBias<T>>;
        "bias-fp8", "e4m3(scale * (alpha * A * B + bias)), and the largest magnitude before the scale",
            |T| F8E4M3, LinearBiasScaled<T>;
    }
}
