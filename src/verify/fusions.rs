//! Kernels whose epilogue is a formula: runs them, and compares them with their trees.
//!
//! ```
//! use falchion::verify::{Format, fusions::any_columns};
//!
//! let fused = any_columns("gelu(alpha*acc + bias[n])".parse()?, Format::Bf16)?;
//! assert!(fused.stores(129) && fused.kind() == "128x128-direct");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use collective::Formula;
use collective::tree::{Scratch, Shape};
use cute_rs::atom::Major;
use kernel::{
    AnyGemm, Call, EpilogueKind, GemmProblem, KernelSpec, Launch, Machine, Program, Request, WorkspaceRef,
};

use super::product::of_kernels;
use super::tree::Checked;
use super::{Bench, Format, TreeError};

/// A kernel whose epilogue is a formula.
#[derive(Clone, Debug)]
pub struct FusedGemm {
    /// The kernel.
    pub gemm: AnyGemm,
    /// Its fused epilogue.
    pub fusion: Formula,
}

impl FusedGemm {
    /// The kernel, if its epilogue is a formula; else `None`.
    pub fn of(gemm: AnyGemm) -> Option<Self> {
        let fusion = gemm.spec()?.fusion()?;
        Some(Self { gemm, fusion })
    }

    /// `<kind>-<fusion>-<element>-<A's direction><B's direction>`, or the text of a spec.
    pub fn name(&self) -> &str {
        self.gemm.name()
    }

    /// The kind, as in catalogue names; the spec for a kernel without a name.
    pub fn kind(&self) -> &str {
        let between = format!("-{}-{}-", self.fusion.name(), self.gemm.element());
        self.name().split_once(&between).map_or(self.name(), |(kind, _)| kind)
    }

    /// The catalogue's name of the same kernel without the fusion, or its spec if the catalogue has no name
    /// for it.
    pub fn plain_name(&self) -> String {
        if let Some(mut spec) = self.gemm.spec().filter(|spec| spec.to_string() == self.name()) {
            spec.epilogue = EpilogueKind::Linear;
            spec.store.format = spec.mainloop.operands[0].format.output();
            return spec.to_string();
        }
        // If two kinds differ only in the epilogue's staging, the catalogue has one of them.
        let kind = if self.kind() == "128x128-pingpong-2buffers" { "128x128-pingpong" } else { self.kind() };
        format!("{kind}-{}-kk", self.gemm.element())
    }

    /// Runs the kernel on random matrices, and compares everything that it writes with its tree.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check(&self, bench: &mut Bench<'_>, problem: GemmProblem) -> Result<Checked, TreeError> {
        let arguments = bench.sample(self.fusion, self.operand(), self.shape(problem))?;
        bench.check_formula(&self.gemm, problem, &arguments)
    }

    /// The format of A and B.
    fn operand(&self) -> collective::Format {
        self.gemm.plan().mainloop.operands[0].format
    }

    /// The shape of D.
    fn shape(&self, GemmProblem { m, n, .. }: GemmProblem) -> Shape {
        Shape { m, n: n >> self.fusion.halvings() }
    }

    /// Whether the kernel can store D for a GEMM of `n` columns: tensor copies need rows of a multiple of 16
    /// bytes.
    pub fn stores(&self, n: u32) -> bool {
        let epilogue = self.gemm.plan().epilogue;
        let columns = u64::from(n >> epilogue.halvings);
        (columns * u64::from(epilogue.staged_bits)).is_multiple_of(128)
    }

    /// Prepares launches of the kernel and of the same kernel without the fusion. Each set of addresses is of
    /// a packed A (M x K), B (N x K) and D. The bench draws the epilogue's arguments.
    ///
    /// # Errors
    /// The kernels refuse the problem, or the engine fails.
    pub fn prepare(
        &self,
        bench: &mut Bench<'_>,
        problem: GemmProblem,
        sets: &[[u64; 3]],
    ) -> Result<Fused, TreeError> {
        let gemm = kernel::find(&self.plain_name())?;
        let program = gemm.program()?;
        let slots = bench.engine().slots(&program)?;
        let workspace = workspace(bench, gemm.workspace(&Call::of(problem), slots))?;
        let launch = |set: &[u64; 3]| {
            let call = Call { workspace, ..packed(problem, *set, problem.n) };
            gemm.launch(&call, slots)?.ok_or(TreeError::Empty)
        };
        let launches = sets.iter().map(launch).collect::<Result<_, TreeError>>()?;
        let plain = Ready { program, launches, slots };
        let fused = self.ready(bench, problem, sets)?;
        Ok(Fused { kind: self.kind().to_owned(), plain, fused })
    }

    fn ready(
        &self,
        bench: &mut Bench<'_>,
        problem: GemmProblem,
        sets: &[[u64; 3]],
    ) -> Result<Ready, TreeError> {
        let program = self.gemm.program()?;
        let slots = bench.engine().slots(&program)?;
        let workspace = workspace(bench, self.gemm.workspace(&Call::of(problem), slots))?;
        let shape = self.shape(problem);
        let mut launches = Vec::new();
        for &set in sets {
            let arguments = bench.sample(self.fusion, self.operand(), shape)?;
            let call = Call { workspace, ..packed(problem, set, shape.n) }.with(arguments);
            let launch = self.gemm.launch(&call, slots)?;
            launches.push(launch.ok_or(TreeError::Empty)?);
        }
        Ok(Ready { program, launches, slots })
    }
}

/// A kernel, ready to launch.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The kernel.
    pub program: Program,
    /// Grid and arguments, one per set of matrices.
    pub launches: Vec<Launch>,
    /// Number of its clusters that run at the same time.
    pub slots: u32,
}

/// A kernel with a fused epilogue, and the same kernel without it.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The kind, as in the catalogue's names.
    pub kind: String,
    /// `D = A * B`.
    pub plain: Ready,
    /// The fusion.
    pub fused: Ready,
}

/// Runs a fusion on random matrices, and compares everything that it writes with its tree. The kernel is the
/// first of [`ranked`]; if there is none, one that stores any number of columns.
///
/// # Errors
/// The first mismatch, or why the kernel could not be run.
pub fn check(
    fusion: Formula,
    bench: &mut Bench<'_>,
    format: Format,
    problem: GemmProblem,
) -> Result<Checked, TreeError> {
    match ranked(fusion, format, problem).first() {
        Some(kernel) => kernel.check(bench, problem),
        None => any_columns(fusion, format)?.check(bench, problem),
    }
}

/// A kernel of a fusion that stores any number of columns.
///
/// # Errors
/// The kernel is illegal. That happens for no fusion of this library.
pub fn any_columns(fusion: Formula, format: Format) -> Result<FusedGemm, TreeError> {
    let (name, dtype) = (fusion.name(), format.name());
    let spec = KernelSpec::parse(&format!("tile=128x128x64 store=direct dtype={dtype} epilogue={name}"));
    let spec = spec.map_err(|error| TreeError::Unknown(error.into()))?;
    let gemm = spec.named(format!("128x128-direct-{name}-{dtype}-kk"));
    Ok(FusedGemm { gemm: gemm.map_err(|error| TreeError::Unknown(error.into()))?, fusion })
}

/// The kernels of the catalogue with a fusion.
pub fn kernels(fusion: Formula, format: Format) -> Vec<FusedGemm> {
    let fits = |kernel: &FusedGemm| kernel.fusion == fusion && kernel.gemm.element() == format.name();
    fused_catalogue().into_iter().filter(fits).collect()
}

/// The kernels with a fusion that accept a problem, in the order of [`kernel::select`].
pub fn ranked(fusion: Formula, format: Format, problem: GemmProblem) -> Vec<FusedGemm> {
    let request = Request::packed(of_kernels(format), [Major::K; 2], problem).fused(fusion);
    let selection = kernel::select(&request, &Machine::h200());
    selection.ranked.into_iter().filter_map(|ranked| FusedGemm::of(ranked.gemm)).collect()
}

/// The most memory in bytes that [`check`] needs to evaluate a fusion, in addition to the matrices.
pub fn evaluated_bytes(fusion: Formula, GemmProblem { m, n, .. }: GemmProblem) -> u64 {
    let whole = fusion.reduces_all();
    super::tree::evaluated_bytes(Shape { m, n }, whole)
}

/// A call on packed operands, and a D of `columns` columns.
fn packed(problem: GemmProblem, [a, b, d]: [u64; 3], columns: u32) -> Call {
    let k = problem.k.into();
    Call::of(problem).a(a, k).b(b, k).d(d, columns.into())
}

/// A workspace in the bench's memory, for a kernel that splits tiles.
fn workspace(bench: &mut Bench<'_>, bytes: u64) -> Result<Option<WorkspaceRef>, TreeError> {
    if bytes == 0 {
        return Ok(None);
    }
    let Scratch { address, bytes } = bench.scratch(bytes)?;
    Ok(Some(WorkspaceRef { address, bytes }))
}

/// Every fusion's kernels, in bf16 and f16.
pub fn fused_catalogue() -> Vec<FusedGemm> {
    kernel::fused().into_iter().filter_map(FusedGemm::of).collect()
}
