//! The kernel for a described GEMM.
#![allow(unsafe_code, reason = "launches on the caller's memory")]

use core::ffi::c_void;
use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use falchion::collective::Format;
use falchion::collective::tree::Shape;
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::{Chosen, Context, Loaded, Tuning};
use falchion::kernel::{
    AnyGemm, Call, EngineError, GemmProblem, KernelSpec, Machine, Program, Ranked, Request, SpecError, Types,
    fastest, rank,
};

use crate::described::{Described, Epilogue};
use crate::host::Run;
use crate::kept::Kept;
use crate::slots::Slot;

/// Why there is no kernel for a description.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// An argument is invalid: its name, the value found and what was needed.
    Invalid(String),
    /// No kernel supports the GEMM, with the reason.
    NoKernel(String),
    /// The driver is missing, or returned an error.
    Driver(String),
    /// A mistake of this library.
    Internal(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Invalid(words) | Self::NoKernel(words) | Self::Driver(words) | Self::Internal(words)) =
            self;
        f.write_str(words)
    }
}

impl core::error::Error for Refusal {}

/// An address for a description: a multiple of `bytes`, a power of two up to 256, and of no more.
pub const fn aligned(bytes: u32) -> u64 {
    (1 << 20) | bytes as u64
}

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
            None => fastest(request, machine).map_err(|refused| {
                let Types { a, b, d, .. } = request.types;
                let none = || match request.types.has_weights() {
                    true => format!(
                        "no kernel multiplies such weights in {a} and stores {d}; e2m1 is multiplied in bf16"
                    ),
                    false => format!("no kernel multiplies {a} by {b} in these directions and stores {d}"),
                };
                let reason = refused.map_or_else(none, |error| error.to_string());
                let GemmProblem { m, n, k } = request.call.problem;
                let fused = request.fusion.map_or_else(String::new, |of| format!(" with {}", of.text()));
                Refusal::NoKernel(format!("{m} x {n} x {k} {}{fused}: {reason}", request.types))
            })?,
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
        let program = gemm.program().map_err(|error| Refusal::Internal(error.to_string()))?;
        let kernel = Described::new(gemm, request.fusion);
        let slots = kernel.slots(shape_of(request)).into();
        let text = kernel.gemm().entry_name();
        Ok(Self { kept: Kept::new(kernel, program, text), slots, reason, microseconds })
    }

    /// The kernel as a value.
    pub fn gemm(&self) -> &AnyGemm {
        self.kept.kernel().gemm()
    }

    /// The kernel with the arguments of its epilogue by name, to run on any engine.
    pub fn kernel(&self) -> &Described {
        self.kept.kernel()
    }

    /// The kernel's program.
    pub fn program(&self) -> &Program {
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

    /// Compiles the kernel for a card, in its primary context, unless that was done before.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(&self, ordinal: usize) -> Result<(), EngineError> {
        self.kept.on(ordinal).map(|_| ())
    }

    /// The card for which the kernel was loaded last; `None` if it was not loaded.
    pub fn card(&self) -> Option<usize> {
        self.kept.card()
    }

    /// Bytes of workspace that a call needs on that card; `None` if the kernel was not loaded.
    pub fn workspace(&self, call: &Call<Epilogue>) -> Option<u64> {
        self.kept.workspace(call)
    }

    /// Enqueues a call on a stream of the card's primary context. A call of a shape that was launched before
    /// allocates nothing.
    ///
    /// # Errors
    /// The first illegal argument, or a driver error.
    ///
    /// # Safety
    /// As [`Loaded::launch_raw`].
    pub unsafe fn launch(
        &self,
        ordinal: usize,
        stream: *mut c_void,
        call: &Call<Epilogue>,
    ) -> Result<(), EngineError> {
        // SAFETY: the caller guarantees it.
        unsafe { self.kept.launch(ordinal, stream, call) }
    }

    /// Runs a call on the host's memory, in the emulator. `None` if there was nothing to compute.
    ///
    /// # Errors
    /// The first illegal argument, or the fault that the emulator found.
    ///
    /// # Safety
    /// Every piece of memory that the call names can be read as far as its extents reach; what the kernel
    /// writes can be written, and nobody else uses it meanwhile.
    pub unsafe fn emulate(&self, call: &Call<Epilogue>, how: Run) -> Result<Option<Duration>, EngineError> {
        // SAFETY: the caller guarantees it.
        unsafe { self.kept.emulate(call, how) }
    }
}

/// The extents of D.
fn shape_of(request: &Request<'_>) -> Shape {
    let GemmProblem { m, n, .. } = request.call.problem;
    Shape { m, n: n >> request.fusion.map_or(0, |formula| formula.halvings()) }
}

pub(crate) fn of_driver(error: EngineError) -> Refusal {
    match error {
        EngineError::NoKernel { .. } => Refusal::NoKernel(error.to_string()),
        _ => Refusal::Driver(error.to_string()),
    }
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
    let epilogue = request.fusion.map_or("", |formula| formula.text());
    let mut whole = text.to_owned();
    for (key, value, from) in [
        ("form", form.as_str(), "the number of GEMMs"),
        ("dtype", a, "types"),
        ("dtype-b", b, "types"),
        ("out", d, "types"),
        ("layout", layout.as_str(), "layout"),
        ("epilogue", epilogue, "epilogue"),
    ] {
        let words = text.split([' ', ',', '\t', '\n']).filter_map(|word| word.split_once('='));
        match words.into_iter().find(|(known, _)| *known == key) {
            None if value.is_empty() => {}
            None => whole = format!("{key}={value} {whole}"),
            // The request's check compares epilogues.
            Some((_, given)) if given == value || key == "epilogue" => {}
            Some((_, given)) => {
                let words = format!("spec: {key} is `{given}`, `{value}` was needed, as {from} says");
                return Err(Refusal::Invalid(words));
            }
        }
    }
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
