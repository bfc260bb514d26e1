//! What a caller asks for, and whether it is legal.

use collective::{BlockScales, GroupScales, LinearArguments, MatrixRef, Plan};
use ptx::abi::{Argument, Grid};

use crate::buffer::Buffer;
use crate::error::LaunchError;
use crate::products::Products;

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

/// One call of a kernel: the products of a launch, and the arguments of the kernel's epilogue.
///
/// ```
/// use kernel::{Call, GemmProblem, LinearArguments, Products};
///
/// let problem = GemmProblem { m: 128, n: 256, k: 64 };
/// let [a, b, d] = [0x1000, 0x8000, 0x20000]; // device addresses
/// // D = A * B, packed.
/// let one = Call::of(problem).a(a, 64).b(b, 64).d(d, 256);
/// // D = 2 * A * B, for 12 products whose matrices lie behind each other, but for one B that all share.
/// let twelve = one.batched(12).with(LinearArguments::scaled(2.0));
/// let twelve = Call { b: one.b, ..twelve };
/// assert_eq!(twelve.products, Products::Batched { count: 12 });
/// assert_eq!([twelve.a, twelve.b, twelve.d].map(|matrix| matrix.stride), [128 * 64, 0, 128 * 256]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<E = LinearArguments> {
    /// Extents of the product: of one, of each of a batch, or of all rows with one B ([`Products::Ragged`]). Where the epilogue joins
    /// pairs of columns, D has half of N. Products of [`Products::Grouped`] have extents of their own, in memory.
    pub problem: GemmProblem,
    /// How many products there are.
    pub products: Products,
    /// A, in the kernel's major direction.
    pub a: MatrixRef,
    /// B, in the kernel's major direction.
    pub b: MatrixRef,
    /// The scales of A's blocks and of B's, for kernels whose operands are [`BlockScaled`](collective::BlockScaled); `None` for
    /// all others.
    pub scales: Option<BlockScales>,
    /// The scales and zero points of weights, for kernels of which an operand is [`Quantized`](collective::Quantized) in groups that have
    /// some; `None` for all others.
    pub group_scales: Option<GroupScales>,
    /// The metadata of a sparse operand, for kernels of which one is [`Sparse`](collective::Sparse), in words; `None` for all others. The leading
    /// dimension goes from one block of 64 rows to the next.
    pub metadata: Option<MatrixRef>,
    /// D, row-major.
    pub d: MatrixRef,
    /// Arguments of the kernel's epilogue.
    pub epilogue: E,
    /// Where sums are exchanged, tiles are counted and tensor maps are kept; may be `None` for kernels and problems that need
    /// nothing.
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

/// Extents are below this, so that tile indices and byte offsets stay in range.
pub(crate) const EXTENT_LIMIT: u32 = 1 << 31;

impl Call {
    /// `D = A * B`, whose matrices are packed K-major ones without an address.
    pub fn of(problem: GemmProblem) -> Self {
        let GemmProblem { n, k, .. } = problem;
        let matrix = |pitch: u32| MatrixRef::new(0, pitch.into());
        let (a, b, d) = (matrix(k), matrix(k), matrix(n));
        let epilogue = LinearArguments::default();
        let products = Products::One;
        Self {
            problem,
            products,
            a,
            b,
            scales: None,
            group_scales: None,
            metadata: None,
            d,
            epilogue,
            workspace: None,
        }
    }

    /// The products that so many [`Record`](collective::Record)s at an address describe.
    pub fn grouped(count: u32, records: u64) -> Self {
        let [a, b, d] = [MatrixRef::NONE; 3];
        let problem = GemmProblem { m: 0, n: 0, k: 0 };
        let (products, epilogue) = (Products::Grouped { count, records }, LinearArguments::default());
        Self {
            problem,
            products,
            a,
            b,
            scales: None,
            group_scales: None,
            metadata: None,
            d,
            epilogue,
            workspace: None,
        }
    }

    /// So many products of this shape, whose matrices lie packed behind each other.
    #[must_use]
    pub fn batched(self, count: u32) -> Self {
        let [m, n, k] = [self.problem.m, self.problem.n, self.problem.k].map(u64::from);
        let c = self.epilogue.c.map(|c| c.every(m * n));
        Self {
            products: Products::Batched { count },
            a: self.a.every(m * k),
            b: self.b.every(k * n),
            d: self.d.every(m * n),
            epilogue: LinearArguments { c, ..self.epilogue },
            ..self
        }
    }

    /// So many groups of rows that begin where memory says ([`Products::Ragged`]), whose B's lie packed behind each other.
    #[must_use]
    pub fn ragged(self, count: u32, offsets: u64) -> Self {
        let stride = u64::from(self.problem.k) * u64::from(self.problem.n);
        Self { products: Products::Ragged { count, offsets }, b: self.b.every(stride), ..self }
    }

    /// So many groups in buffers of `room` rows each ([`Products::Masked`]). `rows` is the address of how many rows each uses. Their B's lie
    /// packed behind each other.
    #[must_use]
    pub fn masked(self, count: u32, room: u32, rows: u64) -> Self {
        let stride = u64::from(self.problem.k) * u64::from(self.problem.n);
        Self { products: Products::Masked { count, rows, room }, b: self.b.every(stride), ..self }
    }

    /// The same plus `beta * C`, with C at an address, so many elements from row to row.
    #[must_use]
    pub fn plus(self, beta: f32, address: u64, pitch: u64) -> Self {
        let c = Some(MatrixRef::new(address, pitch));
        Self { epilogue: LinearArguments { beta, c, ..self.epilogue }, ..self }
    }
}

impl<E> Call<E> {
    /// A at an address, so many elements from row (or column) to the next.
    #[must_use]
    pub fn a(self, address: u64, pitch: u64) -> Self {
        Self { a: MatrixRef { address, pitch, ..self.a }, ..self }
    }

    /// B at an address, so many elements from row (or column) to the next.
    #[must_use]
    pub fn b(self, address: u64, pitch: u64) -> Self {
        Self { b: MatrixRef { address, pitch, ..self.b }, ..self }
    }

    /// D at an address, so many elements from row to row.
    #[must_use]
    pub fn d(self, address: u64, pitch: u64) -> Self {
        Self { d: MatrixRef { address, pitch, ..self.d }, ..self }
    }

    /// The same for operands in blocks that have scales.
    #[must_use]
    pub fn scaled(self, scales: BlockScales) -> Self {
        Self { scales: Some(scales), ..self }
    }

    /// The same for weights in groups that have scales.
    #[must_use]
    pub fn group_scaled(self, scales: GroupScales) -> Self {
        Self { group_scales: Some(scales), ..self }
    }

    /// The same for a sparse operand, whose metadata lies there.
    #[must_use]
    pub fn sparse(self, metadata: MatrixRef) -> Self {
        Self { metadata: Some(metadata), ..self }
    }

    /// The same products with other arguments of an epilogue: [`LinearArguments`], [`Tree`](crate::Tree) or [`Own`](crate::Own).
    pub fn with<F>(self, epilogue: F) -> Call<F> {
        let Self { problem, products, a, b, scales, group_scales, metadata, d, workspace, .. } = self;
        Call { problem, products, a, b, scales, group_scales, metadata, d, epilogue, workspace }
    }

    /// The same products and nothing of an epilogue.
    pub(crate) fn lend(&self) -> Call<()> {
        let Self { problem, products, a, b, scales, group_scales, metadata, d, workspace, .. } = *self;
        Call { problem, products, a, b, scales, group_scales, metadata, d, epilogue: (), workspace }
    }

    /// The call as a kernel sees it that computes the transpose of D: operands and extents exchanged, D as it lies.
    pub(crate) fn seen_by(self, plan: &Plan) -> Self {
        if plan.swapped() {
            Self { problem: self.problem.transposed(), a: self.b, b: self.a, ..self }
        } else {
            self
        }
    }
}
