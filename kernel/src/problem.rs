//! What a caller asks for, and whether it is legal.

use collective::{Batch, LinearArguments, Matrix, Output, Plan};
use cute_rs::atom::Major;
use ptx::abi::{Argument, Grid};

use crate::engine::Buffer;
use crate::error::LaunchError;

/// Extents of `D (M, N) = alpha * A (M, K) * B (K, N) + beta * C (M, N)`, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmProblem {
    /// Rows of A, C and D.
    pub m: u32,
    /// Columns of B, C and D.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
}

impl GemmProblem {
    /// Whether extents are so small that tiles can be numbered and bytes counted.
    pub(crate) fn limited(&self) -> Result<(), LaunchError> {
        let Self { m, n, k } = *self;
        let large = [("M", m), ("N", n), ("K", k)].into_iter().find(|&(_, extent)| extent >= EXTENT_LIMIT);
        match large {
            Some((name, extent)) => {
                Err(LaunchError::Extent { name, extent: extent.into(), limit: EXTENT_LIMIT })
            }
            None => Ok(()),
        }
    }

    /// The transposed problem: M and N exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { m: self.n, n: self.m, k: self.k }
    }

    /// Floating-point operations: `2 * M * N * K`.
    pub fn operations(&self) -> f64 {
        2.0 * f64::from(self.m) * f64::from(self.n) * f64::from(self.k)
    }
}

/// One operand: where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixRef {
    /// Device address of the first element.
    pub address: u64,
    /// Leading dimension: elements from one contiguous row or column to the next.
    pub pitch: u64,
}

/// Device memory that a kernel exchanges sums or counts drawn tiles in, the caller's: as much as
/// [`Gemm::workspace`](crate::Gemm::workspace) says, zero before the first launch. Launches leave it ready for the next, of
/// other problems and of other kernels with the same way of adding up; those that run at the same time need one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceRef {
    /// Device address, a multiple of 128.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

impl WorkspaceRef {
    /// The memory as an engine knows it.
    pub fn buffer(&self) -> Buffer {
        Buffer { address: self.address, bytes: usize::try_from(self.bytes).unwrap_or(usize::MAX) }
    }
}

/// One GEMM call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// Extents.
    pub problem: GemmProblem,
    /// A, in the kernel's major direction.
    pub a: MatrixRef,
    /// B, in the kernel's major direction.
    pub b: MatrixRef,
    /// C, row-major; may be `None` where `beta` is zero.
    pub c: Option<MatrixRef>,
    /// D, row-major. It may be C itself.
    pub d: MatrixRef,
    /// Factor of the product. Zero leaves A and B unread, as in BLAS.
    pub alpha: f32,
    /// Factor of C. Zero leaves C unread, as in BLAS.
    pub beta: f32,
    /// Where sums are exchanged and tiles are counted; may be `None` for kernels and problems that need nothing.
    pub workspace: Option<WorkspaceRef>,
}

/// A legal call's grid and arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// How many CTAs.
    pub grid: Grid,
    /// Values of the kernel's parameters.
    pub arguments: Vec<Argument>,
}

/// The matrices that every kernel has, whatever its epilogue: `D (M, N)` comes of `A (M, K) * B (K, N)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Extents of the product. Where the epilogue joins pairs of columns, D has half of N.
    pub problem: GemmProblem,
    /// A, in the kernel's major direction.
    pub a: MatrixRef,
    /// B, in the kernel's major direction.
    pub b: MatrixRef,
    /// D, row-major.
    pub d: MatrixRef,
    /// Where sums are exchanged; may be `None` for kernels and problems that need nothing.
    pub workspace: Option<WorkspaceRef>,
}

/// What a kernel asks of D.
pub(crate) struct OutputRule {
    /// Bits of an element.
    pub(crate) bits: u32,
    /// What D's address, row length and row pitch must be a multiple of, in bytes.
    pub(crate) alignment: u64,
    /// D has `N >> halvings` columns.
    pub(crate) halvings: u32,
}

/// What [`Matrices::check`] found.
pub(crate) struct Checked {
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) d: Output,
}

/// Extents are below this, so that tile indices and byte offsets stay in range.
pub(crate) const EXTENT_LIMIT: u32 = 1 << 31;

/// Bytes that a workspace is aligned to.
pub(crate) const WORKSPACE_ALIGNMENT: u64 = 128;

impl Matrices {
    /// The workspace's address, if it has `needed` bytes.
    pub(crate) fn workspace(&self, needed: u64) -> Result<u64, LaunchError> {
        let given = self.workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
        if needed == 0 {
            return Ok(0);
        }
        if given.bytes < needed || given.address == 0 {
            return Err(LaunchError::Workspace { bytes: given.bytes, needed });
        }
        if !given.address.is_multiple_of(WORKSPACE_ALIGNMENT) {
            let (name, alignment) = ("the workspace", WORKSPACE_ALIGNMENT);
            return Err(LaunchError::Address { name, address: given.address, alignment });
        }
        Ok(given.address)
    }

    /// Checks everything that does not depend on the tile.
    pub(crate) fn check(&self, plan: &Plan, output: &OutputRule) -> Result<Checked, LaunchError> {
        let spec = &plan.mainloop;
        let [a_major, b_major] = plan.majors();
        let GemmProblem { m, n, k } = self.problem;
        self.problem.limited()?;
        let empty = m == 0 || n == 0 || k == 0;
        let bytes = u64::from(spec.types.element_bits() / 8);
        let operand = |name, matrix: MatrixRef, mn, major: Major| {
            let (contiguous, lines) = match major {
                Major::K => (k, mn),
                Major::Mn => (mn, k),
            };
            if !empty {
                let alignment = spec.producer.alignment(spec.types.element_bits()).into();
                let rule = Rule { name, contiguous, lines, bytes, alignment };
                rule.check(matrix)?;
            }
            // Nothing is read where nothing is multiplied; the tensor map must be legal all the same.
            let pitch = if empty { 16 / bytes } else { matrix.pitch };
            let address = if empty { 0 } else { matrix.address };
            Ok::<_, LaunchError>(Matrix { address, mn, k, pitch, batch: Batch::ONE })
        };
        let a = operand("A", self.a, m, a_major)?;
        let b = operand("B", self.b, n, b_major)?;
        let OutputRule { bits, alignment, halvings } = *output;
        let (columns, bytes) = (n >> halvings, u64::from(bits / 8));
        if m > 0 && n > 0 {
            Rule { name: "D", contiguous: columns, lines: m, bytes, alignment }.check(self.d)?;
        }
        let row_bytes = u64::from(columns) * bytes;
        if m > 0 && !row_bytes.is_multiple_of(alignment) {
            return Err(LaunchError::Row { name: "D", bytes: row_bytes, alignment });
        }
        let d = Output { address: self.d.address, m, n: columns, pitch: self.d.pitch, batch: Batch::ONE };
        Ok(Checked { a, b, d })
    }
}

impl Call {
    /// `D = A * B`, whose matrices are packed K-major ones without an address.
    pub fn of(problem: GemmProblem) -> Self {
        let GemmProblem { n, k, .. } = problem;
        let matrix = |pitch: u32| MatrixRef { address: 0, pitch: pitch.into() };
        let (a, b, d) = (matrix(k), matrix(k), matrix(n));
        Self { problem, a, b, c: None, d, alpha: 1.0, beta: 0.0, workspace: None }
    }

    /// The call as a kernel sees it that computes the transpose of D: operands and extents exchanged, C and D as they lie.
    pub(crate) fn seen_by(&self, plan: &Plan) -> Self {
        if plan.swapped() {
            Self { problem: self.problem.transposed(), a: self.b, b: self.a, ..*self }
        } else {
            *self
        }
    }

    /// The product whose K is zero where `alpha` is: then A and B are not read.
    pub fn matrices(&self) -> Matrices {
        let k = if self.alpha == 0.0 { 0 } else { self.problem.k };
        Matrices {
            problem: GemmProblem { k, ..self.problem },
            a: self.a,
            b: self.b,
            d: self.d,
            workspace: self.workspace,
        }
    }

    /// The factors and C, which must be there unless `beta` is zero.
    pub(crate) fn linear(&self, c_bits: u32) -> Result<LinearArguments, LaunchError> {
        let GemmProblem { m, n, .. } = self.problem;
        let c = match self.c {
            Some(c) if self.beta != 0.0 => {
                if m > 0 && n > 0 {
                    let bytes = u64::from(c_bits / 8);
                    Rule { name: "C", contiguous: n, lines: m, bytes, alignment: bytes }.check(c)?;
                }
                c
            }
            None if self.beta != 0.0 => return Err(LaunchError::MissingC { beta: self.beta }),
            Some(_) | None => MatrixRef { address: 0, pitch: 0 },
        };
        Ok(LinearArguments { alpha: self.alpha, beta: self.beta, c: c.address, c_pitch: c.pitch, c_batch: 0 })
    }
}

/// What a matrix must satisfy.
struct Rule {
    name: &'static str,
    /// Elements that lie contiguously.
    contiguous: u32,
    /// How many rows or columns of them there are.
    lines: u32,
    bytes: u64,
    alignment: u64,
}

impl Rule {
    fn check(&self, matrix: MatrixRef) -> Result<(), LaunchError> {
        let Self { name, contiguous, lines, bytes, alignment } = *self;
        if matrix.address == 0 {
            return Err(LaunchError::Null { name });
        }
        if !matrix.address.is_multiple_of(alignment) {
            return Err(LaunchError::Address { name, address: matrix.address, alignment });
        }
        if matrix.pitch < u64::from(contiguous) {
            return Err(LaunchError::ShortPitch { name, pitch: matrix.pitch, needed: contiguous });
        }
        let pitch_bytes = u128::from(matrix.pitch) * u128::from(bytes);
        if !pitch_bytes.is_multiple_of(alignment.into()) || pitch_bytes >= 1 << 40 {
            return Err(LaunchError::Pitch { name, bytes: pitch_bytes, alignment });
        }
        let last = u128::from(lines.saturating_sub(1)) * pitch_bytes;
        within(name, matrix.address, last + u128::from(contiguous) * u128::from(bytes))
    }
}

/// Whether so many bytes from an address on have addresses.
pub(crate) fn within(name: &'static str, address: u64, bytes: u128) -> Result<(), LaunchError> {
    if u128::from(address) + bytes > 1 << 64 {
        return Err(LaunchError::End { name, address, bytes });
    }
    Ok(())
}
