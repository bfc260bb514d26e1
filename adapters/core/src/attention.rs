//! The kernel for described attention.

use core::fmt;
use std::sync::Arc;

use falchion::attention::{
    Attention, AttentionCall, AttentionProblem, AttentionRequest, AttentionSpec, HeadsRef, Lengths, Mask,
    OutputStore, Packed, Pages, Shortlist,
};
use falchion::kernel::driver::{Chosen, Context, Tuning, tuned};
use falchion::kernel::{EngineError, Family, Kernel, LaunchError, Machine, Predicted, Program};

use crate::choices::Choices;
use crate::host::Hosted;
use crate::kept::{Kept, Plain};
use crate::refusal::{Refusal, of_driver};
use crate::words::completed;

impl Hosted<AttentionCall> for Attention {
    fn check_tables(
        &self,
        call: &AttentionCall,
        read: &dyn Fn(u64, u64) -> Vec<u32>,
    ) -> Result<(), LaunchError> {
        let AttentionProblem { batch, keys, .. } = call.problem;
        let AttentionSpec { lengths, pages, .. } = self.plan().spec;
        if lengths == Lengths::Packed {
            let sides = if pages.is_some() { 1 } else { 2 };
            check_packed(&call.packed, &call.problem, sides, read)?;
        }
        let Some(page) = pages.filter(|_| keys > 0) else { return Ok(()) };
        let Pages { lengths, table, each, .. } = call.pages;
        let of_keys: Vec<u32> = read(lengths, batch.into()).into_iter().map(|of| of.min(keys)).collect();
        call.pages.check(page, &of_keys, &read(table, u64::from(batch) * u64::from(each)))
    }
}

/// Checks where the sequences of a packed call begin, of queries, and of keys if there are two sides.
pub(crate) fn check_packed(
    packed: &Packed,
    problem: &AttentionProblem,
    sides: usize,
    read: &dyn Fn(u64, u64) -> Vec<u32>,
) -> Result<(), LaunchError> {
    // Keys in pages begin nowhere.
    let begins = packed.begins.iter().take(sides);
    let begins: Vec<_> = begins.map(|&begins| read(begins, u64::from(problem.batch) + 1)).collect();
    packed.check(problem, &begins.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// By the card's facts, and the request for which a list was made.
static SHORTLISTS: Choices<String, Shortlist> = Choices::new(64);

/// The kernel for described attention.
pub struct Attend {
    kept: Kept<Attention>,
    microseconds: f64,
}

impl fmt::Debug for Attend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attend").field("kernel", &self.name()).finish_non_exhaustive()
    }
}

impl Attend {
    /// Chooses the kernel for a request, or takes the one that a spec describes. `aligned` says whether O begins, and its
    /// strides are, at multiples of 16 bytes: others are stored from registers.
    ///
    /// A spec's format, heads and mask may be left out; where it names them, they must be the request's.
    ///
    /// # Errors
    /// A spec that describes no kernel, or another one than the request asks for; no kernel supports the
    /// request.
    pub fn new(
        request: &AttentionRequest,
        spec: Option<&str>,
        aligned: bool,
        machine: &Machine,
    ) -> Result<Self, Refusal> {
        request.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        let none = |reason: String| Refusal::NoKernel(format!("{}: {reason}", Attention::problem(request)));
        let Predicted { kernel, microseconds } = match spec {
            Some(text) => {
                let kernel = of_text(text, request)?;
                let predicted = Attention::ranked(request, machine, usize::MAX).ok().into_iter().flatten();
                let mut known = predicted.filter(|of| of.kernel.plan().spec == kernel.plan().spec);
                let microseconds = known.next().map_or(f64::NAN, |of| of.microseconds);
                Predicted { kernel, microseconds }
            }
            None => {
                let like = Shortlist::like(request);
                let list = SHORTLISTS
                    .get(format!("{:?} {like:?}", machine.card), |_| Shortlist::new(&like, machine))
                    .map_err(none)?;
                list.best(request, machine).map_err(none)?
            }
        };
        Self::of(kernel, microseconds, aligned)
    }

    /// The kernel that was measured to be the fastest for a request on a card, by [`tuned`](Self::tuned), now or earlier.
    ///
    /// # Errors
    /// The driver's.
    pub fn recorded(
        request: &AttentionRequest,
        aligned: bool,
        ordinal: usize,
    ) -> Result<Option<Self>, Refusal> {
        request.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        let context = Context::primary(ordinal).map_err(of_driver)?;
        let found = falchion::kernel::driver::recorded::<Attention>(&context, request).map_err(of_driver)?;
        found.map(|of| Self::of(of.kernel, of.microseconds, aligned)).transpose()
    }

    /// Measures up to `budget` kernels for a request on a card, keeps the times on disk, and returns the fastest: as
    /// [`Gemm::tuned`](crate::Gemm::tuned).
    ///
    /// # Errors
    /// No kernel supports the request; the driver's.
    pub fn tuned(request: &AttentionRequest, ordinal: usize, budget: u32) -> Result<Self, Refusal> {
        request.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        let context = Context::primary(ordinal).map_err(of_driver)?;
        let tuned = tuned::<Attention>(&context, request, Tuning::Measured { budget }).map_err(of_driver)?;
        let microseconds = match tuned.chosen {
            Chosen::Measured { microseconds, .. }
            | Chosen::Recorded { microseconds }
            | Chosen::Predicted { microseconds } => microseconds,
            _ => f64::NAN,
        };
        Self::of(tuned.loaded.kernel().clone(), microseconds, true)
    }

    fn of(kernel: Attention, microseconds: f64, aligned: bool) -> Result<Self, Refusal> {
        let kernel = match kernel.plan().spec {
            spec if aligned || spec.store == OutputStore::Direct => kernel,
            spec => Attention::new(AttentionSpec { store: OutputStore::Direct, ..spec })
                .map_err(|error| Refusal::NoKernel(error.to_string()))?,
        };
        // A kernel's name does not say all; its spec does, and the text of the default one is empty.
        let text = format!("{} {}", kernel.name(), kernel.plan().spec);
        let kept = Kept::new(kernel, text, Kernel::programs);
        kept.program().map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(Self { kept, microseconds })
    }

    /// The kernel as a value.
    pub fn attention(&self) -> &Attention {
        self.kept.kernel()
    }

    /// The kernel's program, which is emitted again if those of other kernels were needed since.
    ///
    /// # Errors
    /// A mistake of this library: it is not a program.
    pub fn program(&self) -> Result<Arc<Program>, EngineError> {
        self.kept.program()
    }

    /// The text of the kernel's spec; that of the default one is empty.
    pub fn name(&self) -> String {
        self.attention().plan().spec.to_string()
    }

    /// The predicted time in microseconds; not a number if the model does not rank the kernel.
    pub fn microseconds(&self) -> f64 {
        self.microseconds
    }

    /// Bytes of workspace that a call needs: zero at first, and lent to one launch at a time.
    pub fn workspace(&self, call: &AttentionCall) -> u64 {
        self.attention().workspace(call)
    }
}

impl Plain for Attend {
    type Kernel = Attention;
    type Call = AttentionCall;

    fn kept(&self) -> &Kept<Attention> {
        &self.kept
    }

    fn layout(&self, call: &AttentionCall) -> [u64; 4] {
        let AttentionProblem { batch, queries, .. } = call.problem;
        [self.workspace(call), batch.into(), queries.into(), call.packed.rows[0].into()]
    }
}

/// The kernel of a spec's text, in which what the request says may be left out but not be otherwise.
fn of_text(text: &str, request: &AttentionRequest) -> Result<Attention, Refusal> {
    let AttentionRequest { format, output, head: [d, dv], mask, lengths, pages, .. } = *request;
    let tensors = "the tensors say";
    let said = [
        ("format", format.name().to_owned(), tensors),
        ("output", output.name().to_owned(), tensors),
        ("d", format!("{d}x{dv}"), tensors),
        ("mask", mask.name().to_owned(), tensors),
    ];
    let packed = (lengths == Lengths::Packed).then(|| ("lengths", "packed".to_owned(), tensors));
    let of_pages = pages.map(|page| ("pages", page.to_string(), tensors));
    let said = said.into_iter().chain(packed).chain(of_pages);
    let mut whole = completed(text, said, |key, given| key == "d" && d == dv && given == d.to_string())?;
    // O in another format is stored from registers, unless the spec says how.
    if output != format && !text.contains("store=") {
        whole += " store=direct";
    }
    let spec = whole.parse::<AttentionSpec>();
    spec.and_then(Attention::new).map_err(|error| Refusal::Invalid(format!("spec: {error}")))
}

/// The mask of adapters' arguments, and its numbers: a window has the most keys before a query's own, and after it; a negative number
/// is no limit.
///
/// # Errors
/// Numbers beyond 2^30.
pub fn masked(causal: bool, window: Option<[i32; 2]>) -> Result<(Mask, [i32; 2]), Refusal> {
    const MOST: i32 = 1 << 30;
    let Some([left, right]) = window.filter(|window| window.iter().any(|&keys| keys >= 0)) else {
        return Ok((if causal { Mask::Causal } else { Mask::Full }, [0; 2]));
    };
    if left > MOST || right > MOST {
        return Err(Refusal::Invalid(format!("window is ({left}, {right}), at most {MOST} was needed")));
    }
    let limited = |keys: i32| if keys < 0 { MOST } else { keys };
    let numbers = [limited(left), if causal { 0 } else { limited(right) }];
    let causal = numbers == [MOST, 0];
    Ok(if causal { (Mask::Causal, [0; 2]) } else { (Mask::Window, numbers) })
}

/// A call without log-sum-exp, sequences of different lengths, or pages, with the numbers of the request's mask. In latent attention V is a
/// part of K, and nothing here.
///
/// # Errors
/// V is another tensor in latent attention.
pub fn call_of(
    request: &AttentionRequest,
    problem: AttentionProblem,
    [q, k, v]: [HeadsRef; 3],
    o: HeadsRef,
) -> Result<AttentionCall, Refusal> {
    let call = match request.is_latent() {
        true if v == HeadsRef::default() => AttentionCall::latent(problem, [q, k], o),
        true => {
            let [d, dv] = request.head;
            return Err(Refusal::Invalid(format!(
                "v is a tensor of its own, the first {dv} of the {d} elements of each head of k were needed: a view of them, or none"
            )));
        }
        false => AttentionCall::new(problem, [q, k, v], o),
    };
    Ok(AttentionCall { counts: request.counts().to_vec(), ..call })
}
