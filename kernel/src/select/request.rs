//! What to select a kernel for: a call, its types and directions, and its measurements.

use collective::{Form, Format, Formula, MatrixRef, Plan, Producer};
use cute_rs::atom::Major;

use super::known::Known;
use super::space::Space;
use crate::arguments::UnknownArguments;
use crate::call::Call;
use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::operands::Layouts;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::summation::Summation;
use crate::types::Types;

/// What to select a kernel for: a call, the types and directions of its matrices, and its epilogue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// Formats of the matrices, and how A and B are stored. A fused epilogue determines D's format.
    pub types: Types,
    /// Contiguous directions of A and B.
    pub majors: [Major; 2],
    /// The call. Its epilogue arguments are ignored if `fusion` is set.
    pub call: Call,
    /// The fused epilogue; `None` for `alpha * A * B + beta * C`.
    pub fusion: Option<Formula>,
    /// The GEMMs of a launch whose extents are in device memory, as far as the host knows them: one shape per group or
    /// record. If empty, groups count as equally large.
    pub shapes: &'a [GemmProblem],
    /// Measurements that the selection may use.
    pub known: Known<'a>,
    /// Whether the bits of D must depend on nothing but A, B and the epilogue: see [`reproducible`](Self::reproducible).
    pub reproducible: bool,
}

impl<'a> Request<'a> {
    /// `D = A * B` with packed matrices that begin at aligned addresses.
    pub fn packed(types: impl Into<Types>, majors: [Major; 2], problem: GemmProblem) -> Self {
        let types = types.into();
        let call = Layouts::new(types, majors).packed(problem, 1);
        Self { types, majors, call, fusion: None, shapes: &[], known: Known::Shipped, reproducible: false }
    }

    /// The same request with other measurements.
    #[must_use]
    pub fn known(self, known: Known<'a>) -> Self {
        Self { known, ..self }
    }

    /// The same request, for kernels that sum every element of D in the same order whatever M, N, the batch, the groups and the
    /// number of SMs are. So a row of D does not depend on the rows around it, nor on the kernel that was chosen for them. K is
    /// never split; that costs time where D has few tiles.
    ///
    /// ```
    /// use collective::Format;
    /// use cute_rs::atom::Major;
    /// use kernel::{GemmProblem, Machine, Request, select};
    ///
    /// let summations = [1, 5000].map(|m| {
    ///     let request = Request::packed(Format::Bf16, [Major::K; 2], GemmProblem { m, n: 4096, k: 7168 });
    ///     let selection = select(&request.reproducible(), &Machine::h200());
    ///     selection.ranked.first().and_then(|ranked| ranked.gemm.summation())
    /// });
    /// assert!(summations[0].is_some());
    /// assert_eq!(summations[0], summations[1]);
    /// ```
    #[must_use]
    pub fn reproducible(self) -> Self {
        Self { reproducible: true, ..self }
    }

    /// The order in which every kernel for a [reproducible](Self::reproducible) request adds up products; `None` if the request is not
    /// reproducible, or if no kernel has its types.
    pub fn summation(&self) -> Option<Summation> {
        if self.reproducible { self.space().entries().first()?.summation() } else { None }
    }

    /// The same GEMM with a fused epilogue. A packed D stays packed if the epilogue joins columns.
    ///
    /// ```
    /// use collective::{Format, Formula};
    /// use cute_rs::atom::Major;
    /// use kernel::{GemmProblem, Request};
    ///
    /// let request = Request::packed(Format::Bf16, [Major::K; 2], GemmProblem { m: 3, n: 64, k: 64 });
    /// let d = request.fused(Formula::named("swiglu").expect("a name")).batched(2).call.d;
    /// assert_eq!((d.ld, d.stride), (32, 96));
    /// ```
    #[must_use]
    pub fn fused(self, fusion: Formula) -> Self {
        let GemmProblem { m, n, .. } = self.call.problem;
        let [rows, before, after] = [m, n, n >> fusion.halvings()].map(u64::from);
        let mut d = self.call.d;
        if d.ld == before {
            d.ld = after;
            d.stride = if d.stride == rows * before { rows * after } else { d.stride };
        }
        Self { fusion: Some(fusion), call: Call { d, ..self.call }, ..self }
    }

    /// The same GEMM as a batch of `count`, in one launch. The matrices of the batch are packed.
    #[must_use]
    pub fn batched(self, count: u32) -> Self {
        self.several(GroupedProblem::Batched { count })
    }

    /// One group of rows per shape (MoE grouped GEMM). All shapes have the same N and K.
    #[must_use]
    pub fn ragged(self, shapes: &'a [GemmProblem]) -> Self {
        Self {
            shapes,
            ..self.several(GroupedProblem::GroupedContiguous { count: number(shapes), offsets: 1 << 20 })
        }
    }

    /// One group of rows per shape, each in a buffer of `room` rows. A shape's M is the number of rows that its group uses.
    #[must_use]
    pub fn masked(self, room: u32, shapes: &'a [GemmProblem]) -> Self {
        let count = number(shapes);
        let problem = GemmProblem { m: count.saturating_mul(room), ..self.call.problem };
        let scales = self.layouts().packed(problem, 1).scales;
        let call = Call { problem, scales, ..self.call };
        Self { call, shapes, ..self }.several(GroupedProblem::GroupedMasked { count, rows: 1 << 20, room })
    }

    /// One group along K per shape. All shapes have the same M and N, and the request's K is the sum of theirs. Every
    /// group begins at a multiple of [`GroupedProblem::K_STEP`].
    #[must_use]
    pub fn k_grouped(self, shapes: &'a [GemmProblem]) -> Self {
        Self { shapes, ..self.several(GroupedProblem::KGrouped { count: number(shapes), offsets: 1 << 20 }) }
    }

    /// The same request for these GEMMs. Several matrices of a kind follow each other.
    pub(crate) fn several(self, products: GroupedProblem) -> Self {
        Self { call: self.layouts().apart(Call { products, ..self.call }), ..self }
    }

    /// How the matrices are stored.
    pub(crate) fn layouts(&self) -> Layouts {
        let halvings = self.fusion.map_or(0, Formula::halvings);
        Layouts { halvings, ..Layouts::new(self.stored(), self.majors) }
    }

    /// GEMMs of these shapes, as a pointer array: records in device memory describe them.
    #[must_use]
    pub fn grouped(self, shapes: &'a [GemmProblem]) -> Self {
        let products = GroupedProblem::PointerArray { count: number(shapes), records: 1 << 20 };
        Self { call: Call { products, ..self.call }, shapes, ..self }
    }

    /// Floating-point operations of all GEMMs.
    pub fn operations(&self) -> f64 {
        match self.groups() {
            Some(groups) => groups.iter().map(GemmProblem::operations).sum(),
            None => self.call.problem.operations() * f64::from(self.call.products.count()),
        }
    }

    /// The different problems among the GEMMs, and how often each occurs; `None` if all have the call's shape.
    pub(super) fn counted_groups(&self) -> Option<Vec<(GemmProblem, u32)>> {
        let mut groups = self.groups()?;
        groups.sort_unstable_by_key(|&GemmProblem { m, n, k }| [m, n, k]);
        let chunks = groups.chunk_by(|a, b| a == b);
        Some(chunks.map(|equal| (equal[0], u32::try_from(equal.len()).unwrap_or(u32::MAX))).collect())
    }

    /// The problem of each GEMM; `None` if all have the call's shape.
    pub(crate) fn groups(&self) -> Option<Vec<GemmProblem>> {
        let (one, count) = (self.call.problem, self.call.products.count());
        match self.call.products {
            GroupedProblem::One | GroupedProblem::Batched { .. } => None,
            GroupedProblem::GroupedContiguous { .. }
            | GroupedProblem::GroupedMasked { .. }
            | GroupedProblem::KGrouped { .. }
            | GroupedProblem::PointerArray { .. }
                if !self.shapes.is_empty() =>
            {
                Some(self.shapes.to_vec())
            }
            GroupedProblem::GroupedMasked { room, .. } => {
                Some(vec![GemmProblem { m: room, ..one }; count.min(Form::MOST_GROUPS) as usize])
            }
            GroupedProblem::GroupedContiguous { .. } => {
                let rows = |group| (one.m / count) + u32::from(group < one.m % count);
                Some(
                    (0..count.min(Form::MOST_GROUPS))
                        .map(|group| GemmProblem { m: rows(group), ..one })
                        .collect(),
                )
            }
            GroupedProblem::KGrouped { .. } => {
                let count = count.min(Form::MOST_GROUPS);
                let steps = one.k.div_ceil(GroupedProblem::K_STEP);
                // Of the first groups together.
                let k = |groups| match count {
                    0 => 0,
                    _ => (steps / count * groups + (steps % count).min(groups))
                        .saturating_mul(GroupedProblem::K_STEP)
                        .min(one.k),
                };
                let group = |group| GemmProblem { k: k(group + 1) - k(group), ..one };
                Some((0..count).map(group).collect())
            }
            GroupedProblem::PointerArray { .. } => Some(vec![one; count.min(Form::MOST_GROUPS) as usize]),
        }
    }

    /// Fails if an extent is one that no kernel takes: the model counts with those of real ones.
    pub(super) fn limited(&self) -> Result<(), LaunchError> {
        self.call.problem.limited()?;
        self.groups().unwrap_or_default().iter().try_for_each(GemmProblem::limited)
    }

    /// Why no kernel has its types, directions, form and epilogue, whatever its matrices are; `None` if some do.
    ///
    /// ```
    /// use collective::Format;
    /// use cute_rs::atom::Major;
    /// use kernel::{GemmProblem, Request};
    ///
    /// let problem = GemmProblem { m: 64, n: 64, k: 64 };
    /// let request = |majors| Request::packed(Format::E4m3, majors, problem);
    /// assert_eq!(request([Major::K, Major::K]).impossible(), None);
    /// assert!(request([Major::K, Major::Mn]).impossible().is_some());
    /// ```
    pub fn impossible(&self) -> Option<String> {
        self.space().impossible()
    }

    /// The space to search for this request.
    pub(super) fn space(&self) -> Space {
        let form = self.call.products.form();
        let sourced = self.fusion.is_none() && self.call.epilogue.beta != 0.0;
        let (unaligned, copied) = (self.unaligned(), self.copied());
        let (types, majors, fusion) = (self.stored(), self.majors, self.fusion);
        let reproducible = self.reproducible;
        let most_groups = form.table_for(self.call.products.count());
        Space { form, most_groups, types, majors, fusion, sourced, unaligned, copied, reproducible }
    }

    /// Whether rows of D begin or end where tensor copies cannot store.
    fn unaligned(&self) -> bool {
        let (d, output) = (self.call.d, self.output());
        let bytes = u64::from(output.bits() / 8);
        let halvings = self.fusion.map_or(0, Formula::halvings);
        let row = u64::from(self.call.problem.n >> halvings);
        [d.address, d.ld.wrapping_mul(bytes), d.stride.wrapping_mul(bytes), row.wrapping_mul(bytes)]
            .into_iter()
            .any(|bytes| !bytes.is_multiple_of(16))
    }

    /// Whether A or B is where tensor copies cannot load. Where records describe the products, nothing is known of
    /// their matrices.
    pub(super) fn copied(&self) -> bool {
        let Call { problem: GemmProblem { m, n, k }, products, a, b, .. } = self.call;
        let (counts, described) = (products.matrices(), products.form().described());
        let formats = [self.types.a, self.types.b];
        let out_of_reach = |i: usize, matrix: MatrixRef| {
            let alignment = Producer::Thread.alignment(formats[i].bits()).into();
            let bytes = |elements: u64| elements.wrapping_mul(u64::from(formats[i].bits() / 8));
            let stride = if counts[i] > 1 { bytes(matrix.stride) } else { 0 };
            self.types.weights[i].is_none()
                && ![matrix.address, bytes(matrix.ld), stride].iter().all(|of| of.is_multiple_of(alignment))
        };
        !described && m > 0 && n > 0 && k > 0 && (out_of_reach(0, a) || out_of_reach(1, b))
    }

    /// Elements of D.
    fn output(&self) -> Format {
        self.fusion.map_or(self.types.d, |fusion| fusion.output(self.types.a))
    }

    /// The types, with D's as the epilogue stores it.
    pub(crate) fn stored(&self) -> Types {
        self.types.stored(self.output())
    }

    /// Whether a kernel has the types, directions, form, epilogue and order of sums of the request.
    pub(super) fn fits(&self, gemm: &AnyGemm) -> bool {
        let plan = gemm.plan();
        let epilogue = match self.fusion {
            None => gemm.epilogue.linear().is_some(),
            Some(fusion) => gemm.spec().is_some_and(|spec| spec.fusion() == Some(fusion)),
        };
        Types::of_plan(&gemm.plan) == self.stored()
            && plan.majors() == self.majors
            && self.call.products.for_form(plan.form).is_ok()
            && (!plan.form.divides_k() || GroupedProblem::K_STEP.is_multiple_of(plan.mainloop.tile[2]))
            && epilogue
            && (!self.reproducible || gemm.summation().is_some_and(|order| Some(order) == self.summation()))
    }

    /// Fails if a kernel cannot compute the call.
    pub(super) fn admitted(&self, gemm: &AnyGemm, resident: u32) -> Result<(), LaunchError> {
        let call = self.call_for(&gemm.plan);
        match self.fusion {
            None => gemm.made(&call, resident).map(|_| ()),
            Some(_) => gemm.made(&call.with(UnknownArguments), resident).map(|_| ()),
        }
    }

    /// The call, with rows of D as long as a plan's epilogue leaves them.
    fn call_for(&self, plan: &Plan) -> Call {
        let ld = match self.fusion {
            None => self.call.d.ld,
            Some(_) => self.call.d.ld.max(u64::from(self.call.problem.n >> plan.epilogue.halvings)),
        };
        Call { d: MatrixRef { ld, ..self.call.d }, ..self.call }
    }

    /// Whether kernels of a plan's [class](super::space::Class) can access the matrices. This is a part of
    /// [`admitted`](Self::admitted) which does not depend on the tile.
    pub(super) fn reached(&self, plan: &Plan) -> Result<(), LaunchError> {
        let products = self.call.products.for_form(plan.form)?;
        if products.form().described() {
            return Ok(());
        }
        let call = self.call_for(plan);
        call.check(plan, self.fusion.is_some() || call.epilogue.multiplied()).map(|_| ())
    }
}

fn number(shapes: &[GemmProblem]) -> u32 {
    u32::try_from(shapes.len()).unwrap_or(u32::MAX)
}
