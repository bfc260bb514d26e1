//! The kernel for a described GEMM.

use core::fmt;
use std::sync::Arc;

use falchion::collective::Format;
use falchion::collective::tree::Shape;
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::{Chosen, Context, Loaded, Tuning};
use falchion::kernel::{
    AnyGemm, Call, EngineError, GemmProblem, Kernel, KernelSpec, Machine, Program, Ranked, Request,
    Selection, SpecError, Types, rank, search,
};

use crate::described::{Described, Epilogue};
use crate::kept::{Kept, Plain};
use crate::refusal::{Refusal, of_driver};
use crate::slots::Slot;
use crate::words::completed;

/// The kernel for a described GEMM.
pub struct Gemm {
    kept: Kept<Described>,
    slots: Arc<[Slot]>,
    reason: String,
    microseconds: f64,
}

impl fmt::Debug for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gemm").field("kernel", &self.gemm().name()).finish_non_exhaustive()
    }
}

impl Gemm {
    /// Chooses the kernel for a request, or takes the one that a spec describes.
    ///
    /// # Errors
    /// A spec that describes no kernel, or another one than the request asks for; no kernel supports the
    /// request.
    pub fn new(request: &Request<'_>, spec: Option<&str>, machine: &Machine) -> Result<Self, Refusal> {
        let ranked = match spec {
            Some(spec) => served(of_text(spec, request)?, request, machine)?,
            None => {
                let none = || Refusal::Internal("no kernel is the fastest of some".to_owned());
                ranked(request, machine, 1)?.pop().ok_or_else(none)?
            }
        };
        let Ranked { gemm, prediction, reason, .. } = ranked;
        Self::of(gemm, request, prediction.microseconds, reason)
    }

    /// The kernel that was measured to be the fastest for a request on a card, by [`tuned`](Self::tuned), now or earlier.
    ///
    /// # Errors
    /// The driver's.
    pub fn recorded(request: &Request<'_>, ordinal: usize) -> Result<Option<Self>, Refusal> {
        let context = Context::primary(ordinal).map_err(of_driver)?;
        let found = falchion::kernel::driver::recorded::<AnyGemm>(&context, request).map_err(of_driver)?;
        let reason = || "the fastest of those that were measured on this card".to_owned();
        found.map(|of| Self::of(of.kernel, request, of.microseconds, reason())).transpose()
    }

    /// Measures up to `budget` kernels for a request on a card, keeps the times on disk, and returns the fastest. If the
    /// request was measured earlier, nothing is measured. It takes seconds, and memory for another copy of the call's matrices.
    ///
    /// # Errors
    /// No kernel supports the request; the driver's.
    pub fn tuned(request: &Request<'_>, ordinal: usize, budget: u32) -> Result<Self, Refusal> {
        let context = Context::primary(ordinal).map_err(of_driver)?;
        let tuning = Tuning::Measured { budget };
        let tuned = match request.fusion {
            None => Loaded::tuned(&context, request, tuning),
            Some(formula) => {
                let (operand, shape) = (request.types.a, shape_of(request));
                let slots = crate::slots::slots(formula, operand, shape);
                let given: Vec<_> = slots.iter().map(|slot| (slot.name, slot.placeholder())).collect();
                let bound = formula.bind(operand, shape, &given);
                let arguments = bound.map_err(|error| Refusal::Internal(error.to_string()))?;
                Loaded::tuned_with(&context, request, &arguments, tuning)
            }
        };
        let tuned = tuned.map_err(of_driver)?;
        let (microseconds, reason) = match tuned.chosen {
            Chosen::Measured { microseconds, kernels } => {
                (microseconds, format!("the fastest of {kernels} kernels that were measured"))
            }
            Chosen::Recorded { microseconds } => {
                (microseconds, "the fastest of those that were measured on this card".to_owned())
            }
            Chosen::Predicted { microseconds } => {
                (microseconds, "predicted: nothing was measured".to_owned())
            }
            other => (f64::NAN, format!("{other:?}")),
        };
        let warnings: Vec<_> = tuned.warnings.iter().map(ToString::to_string).collect();
        let reason = [vec![reason], warnings].concat().join("; ");
        Self::of(tuned.loaded.kernel().clone(), request, microseconds, reason)
    }

    fn of(gemm: AnyGemm, request: &Request<'_>, microseconds: f64, reason: String) -> Result<Self, Refusal> {
        let kernel = Described::new(gemm, request.fusion);
        let slots = kernel.slots(shape_of(request)).into();
        let text = kernel.gemm().entry_name();
        let kept = Kept::new(kernel, text, Kernel::programs);
        kept.program().map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(Self { kept, slots, reason, microseconds })
    }

    /// The kernel as a value.
    pub fn gemm(&self) -> &AnyGemm {
        self.kept.kernel().gemm()
    }

    /// The kernel with the arguments of its epilogue by name, to run on any engine.
    pub fn kernel(&self) -> &Described {
        self.kept.kernel()
    }

    /// The kernel's program, which is emitted again if those of other kernels were needed since.
    ///
    /// # Errors
    /// A mistake of this library: it is not a program.
    pub fn program(&self) -> Result<Arc<Program>, EngineError> {
        self.kept.program()
    }

    /// The text of the kernel's spec.
    pub fn name(&self) -> String {
        self.gemm().spec().map_or_else(|| self.gemm().entry_name(), |spec| spec.to_string())
    }

    /// What the epilogue's text takes; nothing without a text.
    pub fn slots(&self) -> &Arc<[Slot]> {
        &self.slots
    }

    /// One sentence that says what limits the kernel's time.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The predicted time in microseconds.
    pub fn microseconds(&self) -> f64 {
        self.microseconds
    }

    /// Bytes of workspace that a call needs on that card; `None` if the kernel was not loaded.
    pub fn workspace(&self, call: &Call<Epilogue>) -> Option<u64> {
        Some(Kernel::workspace(self.kernel(), call, self.kept.resident()?))
    }
}

impl Plain for Gemm {
    type Kernel = Described;
    type Call = Call<Epilogue>;

    fn kept(&self) -> &Kept<Described> {
        &self.kept
    }

    fn layout(&self, call: &Call<Epilogue>) -> [u64; 4] {
        [self.workspace(call).unwrap_or(0), 0, 0, 0]
    }
}

/// The kernels for a request, the one with the shortest predicted time first: at most `most`, and one at least.
///
/// # Errors
/// No kernel supports the request, with the rule that it breaks.
pub fn ranked(request: &Request<'_>, machine: &Machine, most: usize) -> Result<Vec<Ranked>, Refusal> {
    let Selection { ranked, refused } = search(request, machine, most.max(1));
    if !ranked.is_empty() {
        return Ok(ranked);
    }
    let Types { a, b, d, .. } = request.types;
    let GemmProblem { m, n, k } = request.call.problem;
    let fused = request.fusion.map_or_else(String::new, |of| format!(" with {}", of.text()));
    let reason = refused.into_iter().next().map(|refused| refused.error.to_string());
    let reason = reason.or_else(|| request.impossible());
    let reason = reason.unwrap_or_else(|| format!("no kernel multiplies {a} by {b} and stores {d}"));
    Err(Refusal::NoKernel(format!("{m} x {n} x {k} {}{fused}: {reason}", request.types)))
}

/// The extents of D.
fn shape_of(request: &Request<'_>) -> Shape {
    let GemmProblem { m, n, .. } = request.call.problem;
    Shape { m, n: n >> request.fusion.map_or(0, |formula| formula.halvings()) }
}

/// The spec of a text, in which what the request says may be left out but not be otherwise.
fn of_text(text: &str, request: &Request<'_>) -> Result<AnyGemm, Refusal> {
    let [a, b, d] = [request.types.a, request.types.b, request.types.d].map(Format::name);
    let form = match request.call.products.form().suffix().trim_start_matches('_') {
        "" => "single".to_owned(),
        suffix => suffix.replace('_', "-"),
    };
    let direction = |major, letters: [char; 2]| letters[usize::from(major == Major::Mn)];
    let layout: String =
        [direction(request.majors[0], ['k', 'm']), direction(request.majors[1], ['k', 'n'])].iter().collect();
    let epilogue = request.fusion.map_or(String::new(), |formula| formula.text().to_owned());
    let said = [
        ("form", form, "the number of GEMMs says"),
        ("dtype", a.to_owned(), "types says"),
        ("dtype-b", b.to_owned(), "types says"),
        ("out", d.to_owned(), "types says"),
        ("layout", layout, "layout says"),
        ("epilogue", epilogue, "epilogue says"),
    ];
    // The request's check compares epilogues.
    let whole = completed(text, said, |key, _| key == "epilogue")?;
    let failed = |error: String| Refusal::Invalid(format!("spec: {error}"));
    let spec: KernelSpec = whole.parse().map_err(|error: SpecError| failed(error.to_string()))?;
    spec.kernel().map_err(|error| failed(error.to_string()))
}

/// The kernel of a spec, if it serves a request.
fn served(gemm: AnyGemm, request: &Request<'_>, machine: &Machine) -> Result<Ranked, Refusal> {
    let mut selection = rank(vec![gemm], request, machine);
    match (selection.ranked.pop(), selection.refused.pop()) {
        (Some(ranked), _) => Ok(ranked),
        (None, Some(refused)) => Err(Refusal::Invalid(format!("spec: {}", refused.error))),
        (None, None) => {
            let needed = request.fusion.map_or("`epilogue=linear` or `epilogue=sourced`".to_owned(), |of| {
                format!("`epilogue={of}`")
            });
            Err(Refusal::Invalid(format!("spec: {needed} was needed")))
        }
    }
}
