//! The kernel for the gradient of described attention.

use core::fmt;

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{AttentionProblem, AttentionRequest, Lengths, Packed};
use falchion::kernel::driver::{Context, recorded};
use falchion::kernel::{Family, Kernel, LaunchError, Machine};

use crate::attention::check_packed;
use crate::host::Hosted;
use crate::kept::{Kept, Plain};
use crate::refusal::{Refusal, of_driver};

impl Hosted<BackwardCall> for AttentionBackward {
    fn check_tables(
        &self,
        call: &BackwardCall,
        read: &dyn Fn(u64, u64) -> Vec<u32>,
    ) -> Result<(), LaunchError> {
        match self.plan().spec.lengths {
            Lengths::Packed => check_packed(&call.packed, &call.problem, 2, read),
            Lengths::Equal => Ok(()),
        }
    }
}

/// The kernel for the gradient of attention: three programs that run one after the other.
pub struct Backward {
    kept: Kept<AttentionBackward>,
}

impl fmt::Debug for Backward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backward").field("kernel", &self.backward().name()).finish_non_exhaustive()
    }
}

impl Backward {
    /// Chooses the kernel for the gradient of a request: the fastest of those that add in a fixed order, if that is asked, and else of the
    /// others. (The model takes the order for faster at some sequences of some thousand keys, where it takes 1 to 4 % more on an H200.)
    ///
    /// # Errors
    /// The request's numbers are out of their ranges; no kernel supports it.
    pub fn new(request: &AttentionRequest, deterministic: bool, machine: &Machine) -> Result<Self, Refusal> {
        request.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        let none = |reason| Refusal::NoKernel(format!("the gradient of attention: {reason}"));
        let ranked = AttentionBackward::ranked(request, machine, usize::MAX).map_err(none)?;
        let in_order = |of: &AttentionBackward| of.plan().spec.deterministic;
        let kernel = ranked.into_iter().map(|of| of.kernel).find(|of| in_order(of) == deterministic);
        Self::of(kernel.ok_or_else(|| none("no kernel of the space fits".to_owned()))?)
    }

    /// The kernel that was measured to be the fastest for the gradient of a request on a card, if one was, and it adds in a fixed
    /// order where that is asked.
    ///
    /// # Errors
    /// The driver's.
    pub fn recorded(
        request: &AttentionRequest,
        deterministic: bool,
        ordinal: usize,
    ) -> Result<Option<Self>, Refusal> {
        request.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        let context = Context::primary(ordinal).map_err(of_driver)?;
        let found = recorded::<AttentionBackward>(&context, request).map_err(of_driver)?;
        let found = found.map(|of| of.kernel);
        found.filter(|of| !deterministic || of.plan().spec.deterministic).map(Self::of).transpose()
    }

    fn of(kernel: AttentionBackward) -> Result<Self, Refusal> {
        let text = format!("{} {}", kernel.name(), kernel.plan().spec);
        let kept = Kept::new(kernel, text, Kernel::programs);
        kept.programs().map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(Self { kept })
    }

    /// The kernel as a value.
    pub fn backward(&self) -> &AttentionBackward {
        self.kept.kernel()
    }

    /// Whether sequences have lengths of their own.
    pub fn is_packed(&self) -> bool {
        self.backward().plan().spec.lengths == Lengths::Packed
    }

    /// Bytes of workspace that a call needs; `packed` counts where lengths differ.
    pub fn workspace(&self, problem: &AttentionProblem, packed: &Packed) -> u64 {
        self.backward().workspace(problem, packed)
    }
}

impl Plain for Backward {
    type Kernel = AttentionBackward;
    type Call = BackwardCall;

    fn kept(&self) -> &Kept<AttentionBackward> {
        &self.kept
    }

    fn layout(&self, call: &BackwardCall) -> [u64; 4] {
        [self.workspace(&call.problem, &call.packed), 0, 0, 0]
    }
}
