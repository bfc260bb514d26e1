//! The usual fusions by name, for the command line.

use collective::tree::{
    Amax, Cyclic, Dropout, GeGlu, LinearBias, LinearBiasGelu, LinearBiasRelu, LinearBiasScaled,
    LinearBiasSilu, LinearResidual, OrderedRow, ReduceRow, Rotate, RowScaled, Scaled, Scratch, Shape, Sum,
    SwiGlu, SwiGluBlocks, SwiGluSplit,
};
use collective::{
    Cluster, Cooperative, DirectStore, Element, Epilogue, EvictFirst, F8E4M3, HasTree, KMajor, Mainloop,
    MultipliesWith, Operands, Pingpong, Plan, Tile, TmaStore, TmaWgmma, TreeEpilogue,
};
use cute_rs::atom::Major;
use half::{bf16, f16};
use kernel::{
    Call, Composed, Gemm, GemmConfig, GemmProblem, Launch, Machine, Matrices, MatrixRef, Program, Request,
    WorkspaceRef,
};
use ptx::VerifyError;
use scheduler::{AlongM, Grouped, OneTile, Persistent, StreamK, TileScheduler};
use typenum::{U1, U2, U4, U8, U12, U16, U64, U128, U192, U256, U320};

use super::tree::Checked;
use super::{Bench, Format, Sample, TreeError};

/// A kernel with a fused epilogue, on random matrices.
type Run = fn(&mut Bench<'_>, GemmProblem) -> Result<Checked, TreeError>;

/// Its launches, one for the matrices at each of these addresses.
type Prepare = fn(&mut Bench<'_>, GemmProblem, &[[u64; 3]]) -> Result<Ready, TreeError>;

/// The kernels of a fusion.
type Kernels = fn(&'static str) -> Vec<FusedGemm>;

/// A kernel with a fused epilogue whose type has been forgotten.
#[derive(Clone, Copy, Debug)]
pub struct FusedGemm {
    /// The kind.
    pub kind: &'static str,
    /// The kind of the same without the fusion, as in the catalogue's names.
    pub plain: &'static str,
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
    prepare: Prepare,
}

impl FusedGemm {
    /// `<kind>-<fusion>-<element>-<A's direction><B's direction>`.
    pub fn name(&self) -> String {
        format!("{}-{}-{}-kk", self.kind, self.fusion, self.element)
    }

    /// The catalogue's name of the same kernel without the fusion.
    pub fn plain_name(&self) -> String {
        format!("{}-{}-kk", self.plain, self.element)
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

    /// Whether it stores rows of the output of a product of `n` columns: tensor copies store whole 16 bytes.
    pub fn stores(&self, n: u32) -> bool {
        let columns = u64::from(n >> self.plan.epilogue.halvings);
        (columns * u64::from(self.plan.epilogue.staged_bits)).is_multiple_of(128)
    }

    /// The kernel, and the same without the fusion, on packed A (M x K), B (N x K) and D at each of these addresses, with
    /// arguments that the bench draws.
    ///
    /// # Errors
    /// A problem that the kernels refuse, or what the engine reports.
    pub fn prepare(
        &self,
        bench: &mut Bench<'_>,
        problem: GemmProblem,
        sets: &[[u64; 3]],
    ) -> Result<Fused, TreeError> {
        let gemm = kernel::find(&self.plain_name())?;
        let program = gemm.program()?;
        let slots = bench.engine().slots(&program)?;
        let workspace = workspace(bench, gemm.workspace(problem, slots))?;
        let launch = |set: &[u64; 3]| {
            let Matrices { a, b, d, .. } = matrices(problem, *set, problem.n, None);
            let call = Call { problem, a, b, c: None, d, alpha: 1.0, beta: 0.0, workspace };
            gemm.launch(&call, slots)?.ok_or(TreeError::Empty)
        };
        let launches = sets.iter().map(launch).collect::<Result<_, TreeError>>()?;
        let plain = Ready { program, launches, slots };
        Ok(Fused { kind: self.kind, plain, fused: (self.prepare)(bench, problem, sets)? })
    }
}

/// A fused epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Fusion {
    /// Its name.
    pub name: &'static str,
    /// What D is.
    pub formula: &'static str,
    bf16: (Run, Kernels),
    f16: (Run, Kernels),
}

/// A kernel and what it is launched with.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The kernel.
    pub program: Program,
    /// Grid and arguments, for one set of matrices after the other.
    pub launches: Vec<Launch>,
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
    fn of(&self, format: Format) -> (Run, Kernels) {
        match format {
            Format::Bf16 => self.bf16,
            Format::F16 => self.f16,
        }
    }

    /// Runs it on random matrices, in the first of the kernels that [`ranked`](Self::ranked) has, and compares everything
    /// that it writes with its tree. Where there is none, in a kernel that stores any number of columns.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(
        &self,
        bench: &mut Bench<'_>,
        format: Format,
        problem: GemmProblem,
    ) -> Result<Checked, TreeError> {
        match self.ranked(format, problem).first() {
            Some(kernel) => kernel.check(bench, problem),
            None => self.of(format).0(bench, problem),
        }
    }

    /// Its kernels in every tile that it is for.
    pub fn kernels(&self, format: Format) -> Vec<FusedGemm> {
        self.of(format).1(self.name)
    }

    /// Those that take a problem, in the order in which [`kernel::select`] ranks the same without the fusion.
    pub fn ranked(&self, format: Format, problem: GemmProblem) -> Vec<FusedGemm> {
        let kernels = self.kernels(format);
        let request = Request::packed(format.name(), [Major::K; 2], problem);
        let of_name = |name: &str| -> Vec<FusedGemm> {
            let of_name = kernels.iter().filter(|kernel| kernel.plain_name() == name);
            of_name.filter(|kernel| kernel.stores(problem.n)).copied().collect()
        };
        let selection = kernel::select(&request, &Machine::h200());
        selection.ranked.iter().flat_map(|ranked| of_name(ranked.gemm.name())).collect()
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
/// Nearly the traffic of [`Wide`], in lower tiles.
type Broad<T, E> = Composed<TmaWgmma<Kk<T>, Tile<U128, U320, U64>, Cooperative<U2>>, E, Bands<U16>>;
/// Clusters of two that share A.
type Duo<T, E> =
    Composed<TmaWgmma<Kk<T>, Tile<U256, U128, U64>, Cooperative<U2, Cluster<U1, U2>>>, E, Bands<U8>>;
/// Clusters of 2 x 2.
type Quad<T, E> =
    Composed<TmaWgmma<Kk<T>, Tile<U128, U256, U64>, Cooperative<U2, Cluster<U2, U2>>>, E, Bands<U8>>;
/// As [`Wide`], with the last waves divided along K.
type Stream<T, E> =
    Composed<TmaWgmma<Kk<T>, Tile<U256, U192, U64>, Cooperative<U2>>, E, StreamK<Grouped<AlongM, U8>>>;
/// For outputs of about a hundred tiles.
type Slim<T, E> = Composed<TmaWgmma<Kk<T>, Tile<U128, U64, U64>, Cooperative<U2>>, E, OneTile<AlongM>>;
/// For few rows: L2 gives B up first.
type Pair<T, E> = Composed<
    TmaWgmma<
        Operands<KMajor<T>, EvictFirst<KMajor<T>>>,
        Tile<U64, U128, U64>,
        Cooperative<U1, Cluster<U2, U1>>,
    >,
    E,
    OneTile<AlongM>,
>;

/// For small outputs.
type Small<T, E> = Composed<TmaWgmma<Kk<T>, Tile<U64, U64, U64>, Cooperative<U1>>, E, OneTile<AlongM>>;

/// Kernels of some kinds: their names, their types, and how D is stored.
/// Where warpgroups take turns, an epilogue that waits for no buffer is more likely to end before the other's products; with
/// two buffers (`pingpong6`) there is room for six stages in place of five.
macro_rules! kernels {
    ($function:ident: $($name:literal $(/ $plain:literal)? $kind:ident $store:ty),*) => {
        fn $function<T: MultipliesWith<T>, D: Element, X: Sample>(fusion: &'static str) -> Vec<FusedGemm> {
            vec![$({
                let [_, .., plain] = ["", $name $(, $plain)?];
                of_kind::<$kind<T, TreeEpilogue<D, $store, X>>, X>([$name, plain], fusion)
            }),*]
        }
    };
}

kernels!(usual: "staged" Staged TmaStore, "wide" Wide TmaStore, "pingpong" Turns TmaStore<U4>, "duo" Duo TmaStore);
kernels!(
    further: "pingpong6" / "pingpong" Turns TmaStore, "broad" Broad TmaStore, "quad" Quad TmaStore, "slim" Slim TmaStore, "pair128" Pair TmaStore, "small" Small DirectStore
);
kernels!(divided: "stream" Stream TmaStore);

/// All kinds of kernels that the plain product has at the usual shapes, but for those that divide tiles.
fn whole<T: MultipliesWith<T>, D: Element, X: Sample>(fusion: &'static str) -> Vec<FusedGemm> {
    [usual::<T, D, X>(fusion), further::<T, D, X>(fusion)].concat()
}

/// Those that divide tiles too: for epilogues that leave registers for it beside 192 accumulators.
fn every<T: MultipliesWith<T>, D: Element, X: Sample>(fusion: &'static str) -> Vec<FusedGemm> {
    [whole::<T, D, X>(fusion), divided::<T, D, X>(fusion)].concat()
}

fn of_kind<C, X: Sample>([kind, plain]: [&'static str; 2], fusion: &'static str) -> FusedGemm
where
    C: GemmConfig<Epilogue: HasTree<Tree = X> + Epilogue<Arguments = X::Arguments>>,
{
    FusedGemm {
        kind,
        plain,
        fusion,
        element: <C::Mainloop as Mainloop>::SPEC.formats[0].name(),
        plan: Gemm::<C>::PLAN,
        schedule: || <C::Scheduler as TileScheduler>::schedule().describe(),
        program: Gemm::<C>::program,
        check: check::<C, X>,
        prepare: prepare::<C, X>,
    }
}

/// The shape of a fusion's output.
fn shape<X: Sample>(problem: GemmProblem) -> Shape {
    Shape { m: problem.m, n: problem.n >> X::FACTS.halvings.unwrap_or(0) }
}

fn check<C, X: Sample>(bench: &mut Bench<'_>, problem: GemmProblem) -> Result<Checked, TreeError>
where
    C: GemmConfig<Epilogue: HasTree<Tree = X> + Epilogue<Arguments = X::Arguments>>,
{
    let arguments = X::sample(bench, shape::<X>(problem))?;
    bench.check::<C>(problem, &arguments)
}

/// Packed operands, and an output of so many columns.
fn matrices(
    problem: GemmProblem,
    [a, b, d]: [u64; 3],
    columns: u32,
    workspace: Option<WorkspaceRef>,
) -> Matrices {
    let matrix = |address, pitch: u32| MatrixRef { address, pitch: pitch.into() };
    Matrices { problem, a: matrix(a, problem.k), b: matrix(b, problem.k), d: matrix(d, columns), workspace }
}

/// Memory of the bench's for a kernel's divided tiles.
fn workspace(bench: &mut Bench<'_>, bytes: u64) -> Result<Option<WorkspaceRef>, TreeError> {
    if bytes == 0 {
        return Ok(None);
    }
    let Scratch { address, bytes } = bench.scratch(bytes)?;
    Ok(Some(WorkspaceRef { address, bytes }))
}

fn prepare<C, X: Sample>(
    bench: &mut Bench<'_>,
    problem: GemmProblem,
    sets: &[[u64; 3]],
) -> Result<Ready, TreeError>
where
    C: GemmConfig<Epilogue: HasTree<Tree = X> + Epilogue<Arguments = X::Arguments>>,
{
    let program = Gemm::<C>::program()?;
    let slots = bench.engine().slots(&program)?;
    let workspace = workspace(bench, Gemm::<C>::workspace(problem, slots))?;
    let shape = shape::<X>(problem);
    let mut launches = Vec::new();
    for &set in sets {
        let arguments = X::sample(bench, shape)?;
        let matrices = matrices(problem, set, shape.n, workspace);
        let launch = Gemm::<C>::launch_with(&matrices, &arguments, slots)?;
        launches.push(launch.ok_or(TreeError::Empty)?);
    }
    Ok(Ready { program, launches, slots })
}

/// Every fusion's kernels, in bf16 and f16.
pub fn fused_catalogue() -> Vec<FusedGemm> {
    let formats = [Format::Bf16, Format::F16];
    formats
        .into_iter()
        .flat_map(|format| fusions().into_iter().flat_map(move |f| f.kernels(format)))
        .collect()
}

/// Every fusion. Of `f16` there are the usual kinds alone.
pub fn fusions() -> Vec<Fusion> {
    macro_rules! fusions {
        ($($name:literal, $formula:literal, $kinds:ident, |$t:ident| $d:ty, $tree:ty;)*) => {
            vec![$(Fusion {
                name: $name,
                formula: $formula,
                bf16: {
                    type $t = bf16;
                    (check::<Medium<$t, TreeEpilogue<$d, DirectStore, $tree>>, $tree>, $kinds::<$t, $d, $tree>)
                },
                f16: {
                    type $t = f16;
                    (check::<Medium<$t, TreeEpilogue<$d, DirectStore, $tree>>, $tree>, usual::<$t, $d, $tree>)
                },
            }),*]
        };
    }
    fusions! {
        "scaled", "alpha * A * B", usual, |T| T, Scaled;
        "bias", "alpha * A * B + bias", every, |T| T, LinearBias<T>;
        "bias-relu", "relu(alpha * A * B + bias)", every, |T| T, LinearBiasRelu<T>;
        "bias-gelu", "gelu(alpha * A * B + bias)", every, |T| T, LinearBiasGelu<T>;
        "bias-silu", "silu(alpha * A * B + bias)", usual, |T| T, LinearBiasSilu<T>;
        "residual", "alpha * A * B + bias + beta * C", whole, |T| T, LinearResidual<T>;
        "row-scaled", "scale * A * B + bias, a scale for each row", usual, |T| T, RowScaled<T>;
        "swiglu", "silu(gate) * up of alternating columns of alpha * A * B", usual, |T| T, SwiGlu;
        "swiglu-blocks", "silu(gate) * up of alpha * A * B, whose columns are 8 gates, 8 ups, and so on",
            usual, |T| T, SwiGluBlocks;
        "swiglu-split", "silu(gate) * up of alpha * A * B, whose columns are all gates, then all ups",
            usual, |T| T, SwiGluSplit;
        "bias-dropout", "dropout(alpha * A * B + bias), scaled", usual, |T| T, Dropout<LinearBias<T>>;
        "rope", "pairs of columns of alpha * A * B turned, by a table of 128 columns, cosine and sine",
            usual, |T| T, Rotate<Scaled, Cyclic<T, U128>>;
        "bias-sums-ordered", "alpha * A * B + bias, and the sums of its columns, the same bits in every run",
            usual, |T| T, OrderedRow<Sum, LinearBias<T>>;
        "geglu", "gelu(gate) * up of alternating columns of alpha * A * B", usual, |T| T, GeGlu;
        "bias-amax", "alpha * A * B + bias, and its largest magnitude", usual, |T| T, Amax<LinearBias<T>>;
        "bias-sums", "alpha * A * B + bias, and the sums of its columns", usual, |T| T, ReduceRow<Sum, LinearBias<T>>;
        "bias-fp8", "e4m3(scale * (alpha * A * B + bias)), and the largest magnitude before the scale",
            usual, |T| F8E4M3, LinearBiasScaled<T>;
    }
}
