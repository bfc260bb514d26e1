//! A GEMM kernel as a value: what its type lowers to, and what a spec describes.

use core::fmt;
use std::sync::Arc;

use collective::{EpilogueEmitter, FixUp, Form, Format, MainloopEmitter, MainloopSpec, Plan, QueuePlan};
use ptx::{Entry, Function};
use scheduler::{Divided, Facts, ReductionKind, Schedule, Tiles, Work};

use crate::problem::GemmProblem;
use crate::program::Program;

/// A GEMM kernel whose type has been forgotten: the plan with every number, and a value for each role.
///
/// Cheap to clone. One emitter writes the program of every kernel from this value.
#[derive(Clone)]
pub struct AnyGemm {
    pub(crate) name: String,
    pub(crate) rust_type: String,
    pub(crate) overlaps: bool,
    pub(crate) plan: Plan,
    pub(crate) mainloop: Arc<dyn MainloopEmitter>,
    pub(crate) epilogue: Arc<dyn EpilogueEmitter>,
    pub(crate) scheduler: Arc<dyn Schedule>,
    pub(crate) facts: Facts,
}

impl fmt::Debug for AnyGemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, mainloop, epilogue, scheduler, .. } = self;
        let mut debug = f.debug_struct("AnyGemm");
        debug.field("name", name).field("mainloop", mainloop).field("epilogue", epilogue);
        debug.field("scheduler", scheduler).finish_non_exhaustive()
    }
}

impl AnyGemm {
    /// The catalogue's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's entry: the form, mainloop, epilogue and scheduler.
    pub fn entry_name(&self) -> String {
        let (form, mainloop) = (self.plan.form.suffix(), self.mainloop.name(&self.plan.mainloop));
        format!("gemm{form}_{mainloop}_{}_{}", self.epilogue.name(), self.scheduler.name())
    }

    /// Name of the element type of the caller's A: `bf16` say. [`formats`](Self::formats) has those of B and D, too.
    pub fn element(&self) -> &'static str {
        self.formats()[0].name()
    }

    /// The formats of the caller's A and B, and of C and D.
    pub fn formats(&self) -> [Format; 3] {
        let [a, b] = self.plan.mainloop.operands.map(|operand| operand.format);
        let d = self.plan.epilogue.output;
        if self.plan.swapped() { [b, a, d] } else { [a, b, d] }
    }

    /// How tiles are dealt out, in words.
    pub fn schedule(&self) -> String {
        self.scheduler.describe()
    }

    /// Every number of the kernel.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The kernel's type as Rust, with the names that `collective`, `scheduler`, `half` and `typenum` export.
    pub fn rust_type(&self) -> String {
        self.rust_type.clone()
    }

    /// How many products a launch computes.
    pub fn form(&self) -> Form {
        self.plan.form
    }

    /// Builds, verifies and prints the kernel.
    ///
    /// # Errors
    /// What the verifier finds; a mainloop, epilogue or scheduler of your own may emit an illegal program.
    pub fn program(&self) -> Result<Program, ptx::VerifyError> {
        let entry = Entry {
            name: self.entry_name(),
            target: Plan::TARGET,
            threads: self.plan.threads,
            shared_bytes: self.plan.shared_bytes,
            cluster: [self.cluster_size(), 1, 1],
        };
        let program = Program::new(Function::build(entry, |f| self.emit(f)))?;
        Ok(program.of_kernel(self.scheduler.name(), self.plan.form.described()))
    }

    /// A problem in the kernel's eyes: transposed where its epilogue transposes back.
    pub(crate) fn seen(&self, problem: GemmProblem) -> GemmProblem {
        if self.plan.swapped() { problem.transposed() } else { problem }
    }

    /// The output tiles of a problem, one a cluster, and its reduction tiles, as the scheduler numbers them: where
    /// [`Plan::swapped`], along M those of the problem's N.
    pub fn tiles(&self, problem: GemmProblem) -> Tiles<u32> {
        let problem = self.seen(problem);
        let MainloopSpec { tile: [m, n, k], cluster, .. } = self.plan.mainloop;
        let [m, n] = [m * cluster[0], n * cluster[1]];
        Tiles { m: problem.m.div_ceil(m), n: problem.n.div_ceil(n), k: problem.k.div_ceil(k) }
    }

    /// How the sums of divided tiles are added up; `None` where no tile is divided.
    pub fn reduction(&self) -> Option<ReductionKind> {
        self.facts.reduction
    }

    /// Whether workers draw their tiles while the kernel runs.
    pub fn draws(&self) -> bool {
        self.facts.draws
    }

    /// How many workers are launched where `slots` run at once.
    pub fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        self.scheduler.workers(tiles, slots)
    }

    /// What one worker computes, in order.
    pub fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        self.scheduler.work(tiles, worker, workers)
    }

    /// CTAs of a cluster as it is launched: the mainloop's, or those that share a tile's K.
    pub fn cluster_size(&self) -> u32 {
        self.plan.cluster_size() * self.facts.parts
    }

    /// How sums of divided tiles are added up in the workspace, if they are.
    pub(crate) fn fix_up(&self) -> Option<FixUp> {
        match self.facts.reduction? {
            ReductionKind::Ordered => Some(FixUp::Ordered),
            ReductionKind::Atomic => Some(FixUp::Atomic),
            ReductionKind::Separate => Some(FixUp::Separate),
            ReductionKind::Clustered => None,
        }
    }

    /// Whether the kernel needs memory of the caller's beside its matrices.
    pub(crate) fn works_in_memory(&self) -> bool {
        self.facts.draws || self.fix_up().is_some()
    }

    /// Bytes at the start of the workspace in front of what sums are exchanged in: the counter that tiles are drawn from.
    pub(crate) fn counter_bytes(&self) -> u64 {
        if self.facts.draws { QueuePlan::WORKSPACE_BYTES } else { 0 }
    }

    pub(crate) fn workspace_bytes(&self, tiles: Tiles<u32>, workers: u32) -> u64 {
        let Divided { units, tiles } = self.scheduler.divided(tiles, workers);
        let sums = self.fix_up().map_or(0, |fix_up| fix_up.workspace_bytes(&self.plan, units, tiles));
        self.counter_bytes() + sums
    }
}
