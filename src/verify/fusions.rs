//! Kernels whose epilogue is a formula: runs them, and compares them with their trees.
//!
//! ```
//! use falchion::verify::{Format, fusions::any_columns};
//!
//! let fused = any_columns("gelu(alpha*acc + bias[n])".parse()?, Format::Bf16)?;
//! assert!(fused.stores(129) && fused.kind() == "128x128-direct");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use collective::tree::Shape;
use collective::{Formula, FormulaArguments};
use cute_rs::atom::Major;
use kernel::{
    AnyGemm, Call, EngineError, EpilogueKind, GemmProblem, KernelSpec, Machine, MatrixRef, Request,
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

    /// A call of some packed matrices with random arguments of the epilogue, which the bench draws.
    ///
    /// # Errors
    /// The engine fails.
    pub fn call(&self, bench: &mut Bench<'_>, set: &Call<()>) -> Result<Call<FormulaArguments>, EngineError> {
        let shape = self.shape(set.problem);
        let arguments = bench.sample(self.fusion, self.operand(), shape)?;
        let d = MatrixRef { ld: shape.n.into(), ..set.d };
        Ok(Call { d, ..set.with(arguments) })
    }
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
    // Sums, expected values and places, in maps by address.
    const EACH: u64 = 320;
    EACH.saturating_mul(super::tree::at_most(Shape { m, n }, fusion.reduces_all()))
}

/// Every fusion's kernels, in bf16 and f16.
pub fn fused_catalogue() -> Vec<FusedGemm> {
    kernel::fused().into_iter().filter_map(FusedGemm::of).collect()
}
