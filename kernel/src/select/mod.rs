//! Which kernel of the catalogue is best for a call.
//!
//! ```
//! use cute_rs::atom::Major;
//! use kernel::{GemmProblem, Machine, Request, select};
//!
//! let problem = GemmProblem { m: 4096, n: 4096, k: 4096 };
//! let selection = select(&Request::packed("bf16", [Major::K, Major::K], problem), &Machine::h200());
//! for ranked in &selection.ranked {
//!     println!("{:8.1} us  {}: {}", ranked.prediction.microseconds, ranked.gemm.name(), ranked.reason);
//! }
//! # assert!(selection.ranked.len() > 1);
//! ```

mod machine;
mod model;
mod places;
mod reason;

use core::fmt;

use collective::{Form, Fusion, MatrixRef};
use cute_rs::atom::Major;

pub use machine::Machine;
pub use model::Prediction;

use crate::arguments::Whatever;
use crate::catalogue::{catalogue, fused, several};
use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::problem::{Call, GemmProblem, WorkspaceRef};
use crate::products::Products;

/// A call, what its matrices are, and what becomes of the sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// The element type's name: `bf16` or `f16`.
    pub element: &'a str,
    /// Contiguous directions of A and B.
    pub majors: [Major; 2],
    /// The call. Of a fused epilogue's arguments nothing has to be known: those of the call are not looked at then.
    pub call: Call,
    /// The fused epilogue; `None` for `alpha * A * B + beta * C`.
    pub fusion: Option<Fusion>,
    /// The products, as far as the host knows them, where device memory has their extents: the rows of each group, or each
    /// described product. Where it does not know, groups count as equally large.
    pub shapes: &'a [GemmProblem],
}

impl<'a> Request<'a> {
    /// `D = A * B` with packed matrices that begin at aligned addresses.
    pub fn packed(element: &'a str, majors: [Major; 2], problem: GemmProblem) -> Self {
        // Nothing is read: the addresses only have to be legal.
        let pitch = |major, mn: u32| u64::from(if major == Major::K { problem.k } else { mn });
        let [a, b] = [pitch(majors[0], problem.m), pitch(majors[1], problem.n)];
        let call = Call::of(problem).a(1 << 20, a).b(1 << 20, b).d(1 << 20, problem.n.into());
        // Nothing is allocated either.
        let workspace = Some(WorkspaceRef { address: 1 << 20, bytes: u64::MAX });
        let call = Call { workspace, ..call };
        Self { element, majors, call, fusion: None, shapes: &[] }
    }

    /// The same product with a fused epilogue.
    #[must_use]
    pub fn fused(self, fusion: Fusion) -> Self {
        Self { fusion: Some(fusion), ..self }
    }

    /// So many packed products of this shape in one launch.
    #[must_use]
    pub fn batched(self, count: u32) -> Self {
        Self { call: self.call.batched(count), ..self }
    }

    /// Groups of rows, one for each shape, which have one N and K.
    #[must_use]
    pub fn ragged(self, shapes: &'a [GemmProblem]) -> Self {
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        Self { call: self.call.ragged(count, 1 << 20), shapes, ..self }
    }

    /// Products of these shapes, described in device memory.
    #[must_use]
    pub fn grouped(self, shapes: &'a [GemmProblem]) -> Self {
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        let products = Products::Grouped { count, records: 1 << 20 };
        Self { call: Call { products, ..self.call }, shapes, ..self }
    }

    /// Floating-point operations of all products.
    pub fn operations(&self) -> f64 {
        match self.groups() {
            Some(groups) => groups.iter().map(GemmProblem::operations).sum(),
            None => self.call.problem.operations() * f64::from(self.call.products.count()),
        }
    }

    /// The products one by one; `None` where all are of the call's shape.
    pub(crate) fn groups(&self) -> Option<Vec<GemmProblem>> {
        let (one, count) = (self.call.problem, self.call.products.count());
        match self.call.products {
            Products::One | Products::Batched { .. } => None,
            Products::Ragged { .. } | Products::Grouped { .. } if !self.shapes.is_empty() => {
                Some(self.shapes.to_vec())
            }
            Products::Ragged { .. } => {
                let rows = |group| (one.m / count) + u32::from(group < one.m % count);
                Some(
                    (0..count.min(Form::MOST_GROUPS))
                        .map(|group| GemmProblem { m: rows(group), ..one })
                        .collect(),
                )
            }
            Products::Grouped { .. } => Some(vec![one; count.min(Form::MOST_GROUPS) as usize]),
        }
    }

    /// The kernels that are made for such calls.
    fn kernels(&self) -> Vec<AnyGemm> {
        let form = self.call.products.form();
        match (form, self.fusion) {
            (Form::Single, None) => catalogue(),
            (Form::Single, Some(_)) => fused(),
            (_, None) => several(),
            (_, Some(_)) => Vec::new(),
        }
    }

    /// Whether a kernel is one of the element type, the directions, the form and the epilogue that are asked for.
    fn fits(&self, gemm: &AnyGemm) -> bool {
        let plan = gemm.plan();
        let epilogue = match self.fusion {
            None => gemm.epilogue.linear().is_some(),
            Some(fusion) => gemm.spec().is_some_and(|spec| spec.fusion() == Some(fusion)),
        };
        gemm.element() == self.element
            && plan.majors() == self.majors
            && self.call.products.for_form(plan.form).is_ok()
            && epilogue
    }

    /// Whether a kernel can do it.
    fn admitted(&self, gemm: &AnyGemm, slots: u32) -> Result<(), LaunchError> {
        match self.fusion {
            None => gemm.launch(&self.call, slots).map(|_| ()),
            Some(_) => {
                // Rows of D are as long as the epilogue leaves them.
                let columns = self.call.problem.n >> gemm.plan.epilogue.halvings;
                let d = MatrixRef { pitch: self.call.d.pitch.max(columns.into()), ..self.call.d };
                gemm.launch(&Call { d, ..self.call }.with(Whatever), slots).map(|_| ())
            }
        }
    }
}

/// A kernel that can do a call, and how long it will take.
pub struct Ranked {
    /// The kernel.
    pub gemm: AnyGemm,
    /// The model's times.
    pub prediction: Prediction,
    /// One sentence about what decides.
    pub reason: String,
}

/// A kernel of the right type and directions that cannot do a call.
#[derive(Debug)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: LaunchError,
}

/// The catalogue, ordered for one call.
#[derive(Debug)]
pub struct Selection {
    /// Kernels that can do it, the one that is predicted to be fastest first.
    pub ranked: Vec<Ranked>,
    /// Kernels that cannot.
    pub refused: Vec<Refused>,
}

impl fmt::Debug for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gemm, prediction, reason } = self;
        let mut debug = f.debug_struct("Ranked");
        debug.field("gemm", &gemm.name()).field("prediction", prediction).field("reason", reason).finish()
    }
}

/// Ranks the kernels that are made for such a call: those of the catalogue, of several products, or with the fused epilogue.
pub fn select(request: &Request<'_>, machine: &Machine) -> Selection {
    rank(request.kernels(), request, machine)
}

/// Ranks kernels for a call; those of another element type, direction, form or epilogue are left out.
pub fn rank(kernels: Vec<AnyGemm>, request: &Request<'_>, machine: &Machine) -> Selection {
    let mut selection = Selection { ranked: Vec::new(), refused: Vec::new() };
    for gemm in kernels.into_iter().filter(|gemm| request.fits(gemm)) {
        if let Err(error) = request.admitted(&gemm, machine.slots(&gemm.plan)) {
            selection.refused.push(Refused { name: gemm.name().to_owned(), error });
            continue;
        }
        let prediction = machine.predict(&gemm, request);
        let reason = reason::sentence(&gemm, machine, &prediction);
        selection.ranked.push(Ranked { gemm, prediction, reason });
    }
    selection.ranked.sort_by(|a, b| a.prediction.microseconds.total_cmp(&b.prediction.microseconds));
    selection
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Machine = Machine::h200();

    fn names(selection: &Selection) -> Vec<&str> {
        selection.ranked.iter().map(|ranked| ranked.gemm.name()).collect()
    }

    fn cube(extent: u32) -> GemmProblem {
        GemmProblem { m: extent, n: extent, k: extent }
    }

    #[test]
    fn only_kernels_that_fit_are_ranked() {
        for (element, majors, end) in [
            ("bf16", [Major::K, Major::K], "-bf16-kk"),
            ("f16", [Major::K, Major::Mn], "-f16-kn"),
            ("bf16", [Major::Mn, Major::K], "-bf16-mk"),
        ] {
            let selection = select(&Request::packed(element, majors, cube(1024)), &H200);
            let names = names(&selection);
            assert!(names.iter().all(|name| name.ends_with(end)), "{names:?}");
            let all = catalogue().iter().filter(|gemm| gemm.name().ends_with(end)).count();
            assert_eq!((names.len(), selection.refused.len()), (all, 0), "{end}");
        }
        let none = select(&Request::packed("f8", [Major::K, Major::K], cube(1024)), &H200);
        assert!(none.ranked.is_empty() && none.refused.is_empty());
    }

    /// Rows of D of 2046 B: no tensor store can end there.
    #[test]
    fn kernels_that_cannot_do_a_call_say_why() {
        let problem = GemmProblem { m: 1024, n: 1023, k: 1024 };
        let selection = select(&Request::packed("bf16", [Major::K, Major::K], problem), &H200);
        assert!(!selection.ranked.is_empty());
        let staged = selection.refused.iter().find(|refused| refused.name == "staged-bf16-kk");
        let error = &staged.expect("a kernel with tensor stores").error;
        assert!(matches!(error, LaunchError::Pitch { name: "D", .. }), "{error}");
        // Rows of A of 2 * 1023 B: no tensor copy can load them.
        let problem = GemmProblem { m: 1024, n: 1024, k: 1023 };
        let selection = select(&Request::packed("bf16", [Major::K, Major::K], problem), &H200);
        let copying = |name: &str| name.starts_with("unaligned");
        assert!(!selection.ranked.is_empty() && names(&selection).into_iter().all(copying));
        assert!(!selection.refused.iter().any(|refused| copying(&refused.name)));
        assert!(selection.refused.iter().all(|refused| {
            let words = refused.error.to_string();
            words.contains("2046 B") && words.contains("take a kernel that copies elements")
        }));
    }

    /// Operands that tensor copies can bring are brought by them.
    #[test]
    fn elements_are_copied_only_where_they_must_be() {
        for (m, n, k) in [(1, 8, 8), (64, 64, 64), (128, 4096, 4096), (1000, 1000, 1000), (8192, 8192, 8192)]
        {
            for majors in [[Major::K, Major::K], [Major::K, Major::Mn], [Major::Mn, Major::Mn]] {
                let m = if majors[0] == Major::Mn { m.max(8) } else { m };
                let selection = select(&Request::packed("bf16", majors, GemmProblem { m, n, k }), &H200);
                let first = names(&selection)[0];
                assert!(!first.starts_with("unaligned"), "{m} x {n} x {k}, {majors:?}: {first}");
            }
        }
    }

    /// Few rows fill a narrow tile and not 64 rows of an instruction.
    #[test]
    fn operands_are_exchanged_for_few_rows() {
        for (m, n, k) in [(1, 8192, 8192), (16, 28672, 8192), (16, 4096, 14336)] {
            for majors in [[Major::K, Major::K], [Major::K, Major::Mn]] {
                let selection = select(&Request::packed("bf16", majors, GemmProblem { m, n, k }), &H200);
                let first = names(&selection)[0];
                assert!(first.starts_with("swap"), "{m} x {n} x {k}, {majors:?}: {first}");
            }
        }
    }

    /// Times that the model must be near, of kernels that one resource decides; the rest is measured in
    /// `tests/selection.rs` of the workspace.
    #[test]
    fn what_decides_is_named() {
        let first = |problem| {
            let selection = select(&Request::packed("bf16", [Major::K, Major::K], problem), &H200);
            selection.ranked.into_iter().next().map(|ranked| ranked.reason).unwrap_or_default()
        };
        for (problem, words) in [
            (cube(256), "launching"),
            (cube(8192), "the tensor cores decide"),
            (GemmProblem { m: 8, n: 32768, k: 32768 }, "memory decides"),
        ] {
            let reason = first(problem);
            assert!(reason.contains(words), "{problem:?}: {reason}");
        }
    }

    /// Twice the rows are twice the waves and about twice the time; no extents are too large to be looked at.
    #[test]
    fn times_grow_with_the_problem() {
        for gemm in catalogue().iter().filter(|gemm| gemm.name().ends_with("bf16-kk")) {
            let time = |m| {
                let problem = GemmProblem { m, n: 16384, k: 4096 };
                let request = Request::packed("bf16", [Major::K, Major::K], problem);
                H200.predict(gemm, &request)
            };
            let (once, twice) = (time(16384), time(32768));
            let (waves, times) = (twice.waves / once.waves, twice.microseconds / once.microseconds);
            assert!((waves - 2.0).abs() < 1e-9, "{}: {waves}", gemm.name());
            assert!((1.9..2.1).contains(&times), "{}: {times}", gemm.name());
        }
        let huge = GemmProblem { m: 1 << 21, n: 1 << 21, k: 1 << 20 };
        let selection = select(&Request::packed("bf16", [Major::K, Major::K], huge), &H200);
        assert!(selection.ranked.iter().all(|ranked| ranked.prediction.microseconds.is_finite()));
    }
}
