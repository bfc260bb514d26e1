//! What a caller passes to a kernel: the problem, the matrices, the workspace.

use collective::{BlockScales, Form, GroupScales, LinearArguments, MatrixRef};
use cute_rs::atom::Major;
use scheduler::TileScheduler;

use crate::arguments::{OfMainloop, OfScheduler, WithMainloop, WithRole, WithScheduler};
use crate::buffer::Buffer;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;

/// One call of a kernel: the GEMMs of a launch, and the arguments of the kernel's epilogue.
///
/// ```
/// use kernel::{Call, GemmProblem, LinearArguments, GroupedProblem};
///
/// let problem = GemmProblem { m: 128, n: 256, k: 64 };
/// let [a, b, d] = [0x1000, 0x8000, 0x20000]; // device addresses
/// // D = A * B, packed.
/// let one = Call::of(problem).a(a, 64).b(b, 64).d(d, 256);
/// // D = 2 * A * B, for a batch of 12 packed matrices, with one B that all of them share.
/// let twelve = one.batched(12).with(LinearArguments::scaled(2.0));
/// let twelve = Call { b: one.b, ..twelve };
/// assert_eq!(twelve.products, GroupedProblem::Batched { count: 12 });
/// assert_eq!([twelve.a, twelve.b, twelve.d].map(|matrix| matrix.stride), [128 * 64, 0, 128 * 256]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<E = LinearArguments> {
    /// Extents of the GEMM, or of each GEMM of a batch. For [`GroupedProblem::GroupedContiguous`] and [`GroupedProblem::GroupedMasked`], M
    /// is the number of all rows; N and K are those of each group. For [`GroupedProblem::KGrouped`], K is that of all
    /// groups; M and N are those of each. [`GroupedProblem::PointerArray`] ignores them: its
    /// extents are in device memory. If the epilogue combines pairs of columns, D has half of N columns.
    pub problem: GemmProblem,
    /// The number of GEMMs, and how they are given.
    pub products: GroupedProblem,
    /// A, with the major direction that the kernel's type says.
    pub a: MatrixRef,
    /// B, with the major direction that the kernel's type says.
    pub b: MatrixRef,
    /// Block scales of A and of B, for kernels with [`BlockScaled`](collective::BlockScaled) operands; `None`
    /// for all other kernels.
    pub scales: Option<BlockScales>,
    /// Scales and zero points of weights, for kernels with a [`Quantized`](collective::Quantized) operand
    /// whose groups have scales; `None` for all other kernels.
    pub group_scales: Option<GroupScales>,
    /// Metadata of the sparse operand, in 32-bit words, for kernels with a [`Sparse`](collective::Sparse)
    /// operand; `None` for all other kernels. Its leading dimension is the distance between blocks of 64
    /// rows.
    pub metadata: Option<MatrixRef>,
    /// D, row-major.
    pub d: MatrixRef,
    /// Arguments of the kernel's epilogue.
    pub epilogue: E,
    /// Where partial sums are exchanged, tiles are counted and tensor maps are kept: the number of bytes that
    /// [`AnyGemm::workspace`](crate::AnyGemm::workspace) returns, and may be `None` if that is 0. It must be zero
    /// before the first launch. Each launch leaves it ready for the next one, also for other problems and for
    /// other kernels with the same kind of reduction. Launches that run at the same time need a workspace each.
    pub workspace: Option<Buffer>,
}

impl Call {
    /// `D = A * B` with packed K-major operands. Addresses are 0 until [`a`](Self::a), [`b`](Self::b) and
    /// [`d`](Self::d) set them.
    pub fn of(problem: GemmProblem) -> Self {
        let GemmProblem { n, k, .. } = problem;
        let matrix = |ld: u32| MatrixRef::new(0, ld.into());
        let (a, b, d) = (matrix(k), matrix(k), matrix(n));
        let epilogue = LinearArguments::default();
        let products = GroupedProblem::One;
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

    /// The same with operands that are contiguous in these directions.
    pub fn packed(majors: [Major; 2], problem: GemmProblem) -> Self {
        let (of, [a, b]) = (Self::of(problem), majors);
        let packed = |matrix: MatrixRef, major, mn: u32| match major {
            Major::K => matrix,
            Major::Mn => MatrixRef::new(0, mn.into()),
        };
        Self { a: packed(of.a, a, problem.m), b: packed(of.b, b, problem.n), ..of }
    }

    /// The `count` GEMMs that [`Record`](collective::Record)s describe ([`GroupedProblem::PointerArray`]). `records` is
    /// their device address.
    pub fn grouped(count: u32, records: u64) -> Self {
        let [a, b, d] = [MatrixRef::NONE; 3];
        let products = GroupedProblem::PointerArray { count, records };
        Self { products, a, b, d, ..Self::of(GemmProblem { m: 0, n: 0, k: 0 }) }
    }

    /// A batch of `count` GEMMs of this shape ([`GroupedProblem::Batched`]). The matrices of the batch are packed,
    /// one after the other.
    #[must_use]
    pub fn batched(self, count: u32) -> Self {
        self.several(GroupedProblem::Batched { count })
    }

    /// `count` groups of rows ([`GroupedProblem::GroupedContiguous`]). `offsets` is the device address of where each group
    /// begins. The B matrices of the groups are packed, one after the other.
    #[must_use]
    pub fn ragged(self, count: u32, offsets: u64) -> Self {
        self.several(GroupedProblem::GroupedContiguous { count, offsets })
    }

    /// `count` groups of rows in buffers of `room` rows each ([`GroupedProblem::GroupedMasked`]). `rows` is the device
    /// address of the number of rows that each group uses. The B matrices of the groups are packed, one after
    /// the other.
    #[must_use]
    pub fn masked(self, count: u32, room: u32, rows: u64) -> Self {
        self.several(GroupedProblem::GroupedMasked { count, rows, room })
    }

    /// `count` groups along K ([`GroupedProblem::KGrouped`]). `offsets` is the device address of where each group
    /// begins. The D matrices of the groups are packed, one after the other, and so are the C matrices.
    #[must_use]
    pub fn k_grouped(self, count: u32, offsets: u64) -> Self {
        self.several(GroupedProblem::KGrouped { count, offsets })
    }

    /// Several GEMMs. Of matrices that each has one of, they are packed, one after the other.
    fn several(self, products: GroupedProblem) -> Self {
        let [m, n, k] = [self.problem.m, self.problem.n, self.problem.k].map(u64::from);
        let [a, b, d] = match products.form() {
            Form::Single | Form::PointerArray => [false; 3],
            Form::Batched => [true; 3],
            Form::GroupedContiguous | Form::GroupedMasked => [false, true, false],
            Form::KGrouped => [false, false, true],
        };
        let every = |own, matrix: MatrixRef, stride| if own { matrix.every(stride) } else { matrix };
        let c = self.epilogue.c.map(|c| every(d, c, m * n));
        let (epilogue, d) = (LinearArguments { c, ..self.epilogue }, every(d, self.d, m * n));
        Self { products, a: every(a, self.a, m * k), b: every(b, self.b, k * n), d, epilogue, ..self }
    }

    /// Adds `beta * C`. `address` is C's device address, `ld` its leading dimension in elements.
    #[must_use]
    pub fn plus(self, beta: f64, address: u64, ld: u64) -> Self {
        let c = Some(MatrixRef::new(address, ld));
        Self { epilogue: LinearArguments { beta, c, ..self.epilogue }, ..self }
    }
}

impl<E> Call<E> {
    /// Sets A: its device address, and its leading dimension `ld` in elements.
    #[must_use]
    pub fn a(self, address: u64, ld: u64) -> Self {
        Self { a: MatrixRef { address, ld, ..self.a }, ..self }
    }

    /// Sets B: its device address, and its leading dimension `ld` in elements.
    #[must_use]
    pub fn b(self, address: u64, ld: u64) -> Self {
        Self { b: MatrixRef { address, ld, ..self.b }, ..self }
    }

    /// Sets D: its device address, and its leading dimension `ld` in elements.
    #[must_use]
    pub fn d(self, address: u64, ld: u64) -> Self {
        Self { d: MatrixRef { address, ld, ..self.d }, ..self }
    }

    /// Adds block scales, for a kernel with scaled operands.
    #[must_use]
    pub fn scaled(self, scales: BlockScales) -> Self {
        Self { scales: Some(scales), ..self }
    }

    /// Adds scales of groups, for a kernel with quantized weights.
    #[must_use]
    pub fn group_scaled(self, scales: GroupScales) -> Self {
        Self { group_scales: Some(scales), ..self }
    }

    /// Adds the metadata of a sparse operand.
    #[must_use]
    pub fn sparse(self, metadata: MatrixRef) -> Self {
        Self { metadata: Some(metadata), ..self }
    }

    /// The same call with other epilogue arguments: [`LinearArguments`], [`Tree`](crate::Tree) or
    /// [`EpilogueArgs`](crate::EpilogueArgs).
    pub fn with<F>(self, epilogue: F) -> Call<F> {
        let Self { problem, products, a, b, scales, group_scales, metadata, d, workspace, .. } = self;
        Call { problem, products, a, b, scales, group_scales, metadata, d, epilogue, workspace }
    }

    /// Adds arguments of a mainloop of your own. A call without them has the mainloop's default ones.
    ///
    /// They are part of what [`Loaded`](crate::driver::Loaded) compares: two calls that differ in them are
    /// two launches.
    pub fn with_mainloop<A: Clone + 'static>(self, mainloop: A) -> Call<WithMainloop<A, E>> {
        self.lend().with(WithRole { role: OfMainloop(mainloop), epilogue: self.epilogue })
    }

    /// Gives a scheduler of your own what it gets from a call: the kernel's scheduler, with its addresses and numbers.
    pub fn with_scheduler<S: TileScheduler>(self, scheduler: S) -> Call<WithScheduler<S, E>> {
        self.lend().with(WithRole { role: OfScheduler(scheduler), epilogue: self.epilogue })
    }

    /// The same call without epilogue arguments.
    pub(crate) fn lend(&self) -> Call<()> {
        let Self { problem, products, a, b, scales, group_scales, metadata, d, workspace, .. } = *self;
        Call { problem, products, a, b, scales, group_scales, metadata, d, epilogue: (), workspace }
    }
}
