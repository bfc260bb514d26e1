//! The kernel that is picked for a request of any family, by one rule for every adapter.
#![allow(unsafe_code, reason = "launches on the caller's memory")]

use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

use falchion::kernel::driver::{Chosen, Context, RECORDED, Tuned, Tuning, chosen, tuned};
use falchion::kernel::{Buffer, EngineError, Family, Kernel, Machine, Predicted, asked};

use crate::choices::{context, machine};
use crate::host::{self, Hosted, Run};
use crate::kept::Kept;
use crate::refusal::{Refusal, of_driver};

/// A family whose kernels adapters offer.
pub trait Offered: Family<Spec: Sync> {
    /// What runs: the kernel, with whatever a request adds to it.
    type Runs: Hosted<Self::Arguments> + Clone + Send + Sync + 'static;

    /// A call of it, with the addresses of its tensors.
    type Arguments: Clone;

    /// Whether only a card says how many bytes of workspace a call needs.
    const BY_CARD: bool = false;

    /// What runs for a request.
    fn runs(self, request: &Self::Request<'_>) -> Self::Runs;

    /// All that the programs depend on: by default the family's name, and the text of the spec.
    fn text(&self) -> String {
        self.spec().map_or_else(|| Self::NAME.to_owned(), |spec| format!("{} {spec}", Self::NAME))
    }

    /// What the places in a call's workspace depend on in addition to its bytes.
    fn places(_call: &Self::Arguments) -> [u64; 3] {
        [0; 3]
    }

    /// Measures kernels of a request.
    ///
    /// # Errors
    /// As [`tuned`].
    fn measure(
        context: &Arc<Context>,
        request: &Self::Request<'_>,
        tuning: Tuning,
    ) -> Result<Tuned<Self>, EngineError> {
        tuned(context, request, tuning)
    }
}

/// The kernel for a request, and what [runs](Kept): it is loaded at its first launch, and runs at plain addresses.
pub struct Picked<K: Offered> {
    kept: Kept<K::Runs>,
    spec: Option<K::Spec>,
    name: String,
    reason: String,
    microseconds: f64,
}

impl<K: Offered> fmt::Debug for Picked<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picked").field("family", &K::NAME).field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K: Offered> Deref for Picked<K> {
    type Target = Kept<K::Runs>;

    fn deref(&self) -> &Kept<K::Runs> {
        &self.kept
    }
}

impl<K: Offered> Picked<K> {
    /// The kernel of a spec, in which what the request says may be left out but not be otherwise. Without a spec, the one that was
    /// measured to be the fastest on a card of this machine, by [`tuned`](Self::tuned), now or earlier; or else the one that the model takes
    /// for the fastest.
    ///
    /// # Errors
    /// A number of the request that is out of its range; a spec that describes no kernel, or another one than the request asks for; no
    /// kernel supports the request; the driver's.
    pub fn new(
        request: &K::Request<'_>,
        spec: Option<&str>,
        machine: &Machine,
        card: Option<usize>,
    ) -> Result<Self, Refusal> {
        Self::of(choose(request, spec, machine, card)?, request)
    }

    /// The same on a card of this machine, or by the facts of [`machine`](crate::machine) for none.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(request: &K::Request<'_>, spec: Option<&str>, card: Option<usize>) -> Result<Self, Refusal> {
        Self::new(request, spec, &machine(card)?, card)
    }

    /// Measures up to `budget` kernels for a request on a card, keeps the times on disk, and returns the fastest. If the
    /// request was measured earlier, nothing is measured. It takes seconds, and memory for another copy of the call's matrices.
    ///
    /// # Errors
    /// A number of the request that is out of its range; no kernel supports the request; the driver's.
    pub fn tuned(request: &K::Request<'_>, ordinal: usize, budget: u32) -> Result<Self, Refusal> {
        let tuned =
            K::measure(&context(ordinal)?, request, Tuning::Measured { budget }).map_err(of_driver)?;
        let (microseconds, reason) = match tuned.chosen {
            Chosen::Measured { microseconds, kernels } => {
                (microseconds, format!("the fastest of {kernels} kernels that were measured"))
            }
            Chosen::Recorded { microseconds } => (microseconds, RECORDED.to_owned()),
            Chosen::Predicted { microseconds } => {
                (microseconds, "predicted: nothing was measured".to_owned())
            }
            other => (f64::NAN, format!("{other:?}")),
        };
        let warnings: Vec<_> = tuned.warnings.iter().map(ToString::to_string).collect();
        let reason = [vec![reason], warnings].concat().join("; ");
        Self::of(Predicted { kernel: tuned.loaded.kernel().clone(), microseconds, reason }, request)
    }

    pub(crate) fn of(of: Predicted<K>, request: &K::Request<'_>) -> Result<Self, Refusal> {
        let Predicted { kernel, microseconds, reason } = of;
        let (text, spec) = (kernel.text(), kernel.spec());
        let name = spec.as_ref().map_or_else(|| text.clone(), ToString::to_string);
        let kept = Kept::new(kernel.runs(request), text, Kernel::programs);
        kept.programs().map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(Self { kept, spec, name, reason, microseconds })
    }

    /// The kernel's spec.
    pub(crate) fn spec(&self) -> Option<K::Spec> {
        self.spec.clone()
    }

    /// The text of the kernel's spec. That of a family's default may be empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One sentence that says what limits the kernel's time, or where it is from; empty where nothing does.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The measured or predicted time in microseconds; not a number if the model does not rank the kernel.
    pub fn microseconds(&self) -> f64 {
        self.microseconds
    }

    /// Bytes of workspace that a call needs: zero at first, and lent to one launch at a time. `None` if the card says it, and the
    /// kernel was not loaded.
    pub fn workspace(&self, call: &K::Arguments) -> Option<u64> {
        let resident = match self.kept.resident() {
            None if K::BY_CARD => return None,
            resident => resident.unwrap_or(0),
        };
        Some(self.kernel().workspace(call, resident))
    }

    /// What the places in a call's workspace depend on, its bytes first: it is zero at first, lent to one launch at a time, and must be
    /// zeroed again for a call with another layout. Of a GEMM, on the card for which it was loaded.
    pub fn layout(&self, call: &K::Arguments) -> [u64; 4] {
        let [a, b, c] = K::places(call);
        [self.workspace(call).unwrap_or(0), a, b, c]
    }

    /// Gives a call a workspace.
    pub fn lend(&self, call: &mut K::Arguments, workspace: Option<Buffer>) {
        self.kernel().lend_workspace(call, workspace);
    }

    /// Runs a call on the host's memory, in the emulator. The call's workspace is not used.
    ///
    /// # Errors
    /// The first illegal argument, or the fault that the emulator found.
    ///
    /// # Safety
    /// Every piece of memory that the call names can be read as far as its extents reach; what the kernel
    /// writes can be written, and nobody else uses it meanwhile.
    pub unsafe fn emulate(&self, call: &K::Arguments, how: Run<'_>) -> Result<(), EngineError> {
        // SAFETY: the caller guarantees it.
        unsafe { host::run_all(self.kernel(), &self.kept.programs()?, call, how) }
    }
}

/// The kernel that every door takes for a request: that of a spec, or what was measured on the card, or else the model's first. As
/// [`Picked::new`], without its programs.
///
/// # Errors
/// Those of [`Picked::new`].
pub fn choose<K: Family>(
    request: &K::Request<'_>,
    spec: Option<&str>,
    machine: &Machine,
    card: Option<usize>,
) -> Result<Predicted<K>, Refusal> {
    let none = |reason: String| none::<K>(request, &reason);
    match (spec, card) {
        (Some(text), _) => {
            let kernel = asked::<K>(text, request).and_then(|kernel| kernel.predicted(request, machine));
            kernel.map_err(|reason| Refusal::Invalid(format!("spec: {reason}")))
        }
        (None, Some(ordinal)) => {
            chosen(&*context(ordinal)?, request, machine).map_err(of_driver)?.map_err(none)
        }
        (None, None) => K::first(request, machine).map_err(none),
    }
}

/// Why there is no kernel for a request.
fn none<K: Family>(request: &K::Request<'_>, reason: &str) -> Refusal {
    Refusal::NoKernel(format!("{} {}: {reason}", K::NAME, K::problem(request)))
}

/// The kernels for a request, the one with the shortest predicted time first: at most `most`, and one at least.
///
/// # Errors
/// No kernel supports the request, with the rule that it breaks.
pub fn ranked<K: Family>(
    request: &K::Request<'_>,
    machine: &Machine,
    most: usize,
) -> Result<Vec<Predicted<K>>, Refusal> {
    K::ranked(request, machine, most.max(1)).map_err(|reason| none::<K>(request, &reason))
}
