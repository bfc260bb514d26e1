//! The kernels for the gradient of described attention.
#![allow(unsafe_code, reason = "launches on the caller's memory")]

use core::fmt;

use falchion::attention::backward::{AttentionBackward, BackwardCall, BackwardSpec, BackwardStep, Step};
use falchion::attention::{AttentionProblem, Lengths, Packed};
use falchion::kernel::{Buffer, Demand, Emulator, Engine, EngineError, Kernel, LaunchError};

use crate::attention::check_packed;
use crate::host::{self, Hosted, NOWHERE, Run};
use crate::kept::{Kept, Plain};
use crate::refusal::Refusal;

impl Hosted<BackwardCall> for BackwardStep {
    fn check_tables(
        &self,
        call: &BackwardCall,
        read: &dyn Fn(u64, u64) -> Vec<u32>,
    ) -> Result<(), LaunchError> {
        // The first step checks for all.
        match (self.plan().spec.lengths, self.step()) {
            (Lengths::Packed, Step::Prepare) => check_packed(&call.packed, &call.problem, 2, read),
            _ => Ok(()),
        }
    }
}

/// The kernels for the gradient of attention: three programs that run one after the other.
pub struct Backward {
    of: AttentionBackward,
    steps: Vec<Kept<BackwardStep>>,
}

impl fmt::Debug for Backward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backward").field("kernel", &self.of.name()).finish_non_exhaustive()
    }
}

impl Backward {
    /// The kernels of a spec. Its tile is chosen here: the first that is one for its heads, the fastest first.
    ///
    /// # Errors
    /// No kernel supports it.
    pub fn new(spec: BackwardSpec) -> Result<Self, Refusal> {
        let none = |error| Refusal::NoKernel(format!("the gradient of attention: {error}"));
        let of_tile = |tile| AttentionBackward::new(BackwardSpec { tile, ..spec });
        let others = [[128, 128], [64, 64]];
        let first = of_tile([64, 128]);
        let of = first.or_else(|error| others.into_iter().find_map(|tile| of_tile(tile).ok()).ok_or(error));
        let of = of.map_err(none)?;
        let kept = |step: BackwardStep| {
            let emit = |step: &BackwardStep| Kernel::<BackwardCall>::program(step);
            let program = emit(&step).map_err(|error| Refusal::Internal(error.to_string()))?;
            let text = format!("{} {}", program.name(), of.plan().spec);
            Ok(Kept::new(step, text, emit))
        };
        let steps = of.steps().into_iter().map(kept).collect::<Result<_, Refusal>>()?;
        Ok(Self { of, steps })
    }

    /// Whether sequences have lengths of their own.
    pub fn is_packed(&self) -> bool {
        self.of.plan().spec.lengths == Lengths::Packed
    }

    /// Bytes of workspace that a call needs; `packed` counts where lengths differ.
    pub fn workspace(&self, problem: &AttentionProblem, packed: &Packed) -> u64 {
        self.of.workspace(problem, packed)
    }
}

impl Plain for Backward {
    type Kernel = BackwardStep;
    type Call = BackwardCall;

    fn kept(&self) -> &[Kept<BackwardStep>] {
        &self.steps
    }

    fn layout(&self, call: &BackwardCall) -> [u64; 4] {
        [self.workspace(&call.problem, &call.packed), 0, 0, 0]
    }

    fn lend(&self, call: &mut BackwardCall, workspace: Option<Buffer>) {
        call.workspace = workspace;
    }

    unsafe fn emulate(&self, call: &BackwardCall, how: Run<'_>) -> Result<(), EngineError> {
        let (engine, bytes) = (Emulator::new(), self.workspace(&call.problem, &call.packed));
        let (resident, refused) =
            (engine.multiprocessors(), |source| EngineError::Call { kernel: self.of.name(), source });
        let nowhere = Some(Buffer::new(NOWHERE, bytes));
        let checked = BackwardCall { workspace: nowhere, ..call.clone() };
        let check = |step: &Kept<BackwardStep>| step.kernel().launch(&checked, resident).map(drop);
        self.steps.iter().try_for_each(check).map_err(refused)?;
        // Nothing is allocated before it is known to fit.
        engine.admit(&Demand::of(&self.of, call, resident).map_err(refused)?, 1)?;
        let mut room = vec![0u8; usize::try_from(bytes).unwrap_or(0) + 256];
        let address = room.as_mut_ptr().expose_provenance() as u64;
        let workspace = Some(Buffer::new(address.next_multiple_of(256), bytes));
        let call = BackwardCall { workspace, ..call.clone() };
        self.steps.iter().enumerate().try_for_each(|(i, step)| {
            let how = how.part([i, self.steps.len()]);
            // SAFETY: the caller guarantees it; the workspace is alive and large enough.
            unsafe { host::run(step.kernel(), &*step.program()?, &call, how) }
        })
    }
}
