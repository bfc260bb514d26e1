//! A GEMM kernel as a value: [`AnyGemm`], which a kernel type lowers to and a spec describes.

use core::fmt;
use std::sync::{Arc, OnceLock};

use collective::{
    AnyEpilogue, AnyMainloop, CtaPlan, FixUp, Form, Format, MainloopSpec, Plan, QueuePlan, StoreSpec,
};
use ptx::{Entry, Function};
use scheduler::{Divided, ReductionKind, Schedule, SchedulerTraits, Tiles, Work};

use crate::problem::GemmProblem;
use crate::program::Program;
use crate::types::Types;

/// A GEMM kernel as a value: the plan with every number, and a trait object per role.
///
/// Use it where kernels are chosen at run time. It is made from a type ([`AnyGemm::of`]) or from a spec
/// ([`KernelSpec::kernel`](crate::KernelSpec::kernel)). It is cheap to clone.
#[derive(Clone)]
pub struct AnyGemm {
    pub(crate) name: String,
    pub(crate) rust_type: String,
    pub(crate) overlaps: bool,
    pub(crate) plan: Plan,
    pub(crate) mainloop: AnyMainloop,
    pub(crate) epilogue: AnyEpilogue,
    pub(crate) scheduler: Arc<dyn Schedule>,
    pub(crate) traits: SchedulerTraits,
    pub(crate) built: Built,
}

/// A kernel's program, once it was asked for. Clones begin without: one may become another kernel.
#[derive(Default)]
pub(crate) struct Built(OnceLock<Program>);

impl Clone for Built {
    fn clone(&self) -> Self {
        Self::default()
    }
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
    /// The kernel's name: the catalogue's, or the one given when it was made.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the program's entry, made of the names of its form, mainloop, epilogue and scheduler.
    pub fn entry_name(&self) -> String {
        let (form, mainloop) = (self.plan.form.suffix(), self.mainloop.name(&self.plan.mainloop));
        // Programs are told apart by this name.
        let table = match self.plan.table.groups {
            most if most == Form::TABLES[0] => String::new(),
            most => format!("_of_{most}"),
        };
        let (epilogue, scheduler) = (self.epilogue.name(), self.scheduler.name());
        let overlaps = if self.overlaps { "" } else { "_no_pdl" };
        format!("gemm{form}{table}_{mainloop}_{epilogue}{}_{scheduler}{overlaps}", self.unusual_d())
    }

    /// D's format where the epilogue's name leaves it out, and it is not the one that such operands have: an epilogue names no format of
    /// 16 bits.
    fn unusual_d(&self) -> String {
        let [a, b] = self.plan.mainloop.operands.map(|operand| operand.format);
        let usual = if a.bits() == 16 { a } else { b }.output();
        match self.epilogue.store() {
            Some(StoreSpec { format, .. }) if format.bits() == 16 && format != usual => format!("_{format}"),
            _ => String::new(),
        }
    }

    /// Name of the element type of the caller's A, for example `bf16`. See [`formats`](Self::formats) for B
    /// and D.
    pub fn element(&self) -> &'static str {
        self.formats()[0].name()
    }

    /// Formats of the caller's A, of the caller's B, and of C and D.
    pub fn formats(&self) -> [Format; 3] {
        let Types { a, b, d, .. } = Types::of_plan(&self.plan);
        [a, b, d]
    }

    /// A sentence that says how output tiles are assigned to CTAs.
    pub fn schedule(&self) -> String {
        self.scheduler.describe()
    }

    /// Every number of the kernel: tile, stages, shared memory, registers, threads.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The kernel's type as Rust source, with the names that `collective`, `scheduler`, `half` and `typenum`
    /// export.
    pub fn rust_type(&self) -> String {
        self.rust_type.clone()
    }

    /// Whether a launch computes one GEMM, a batch, groups of rows or an array of problems.
    pub fn form(&self) -> Form {
        self.plan.form
    }

    /// Builds, verifies and prints the kernel's program, and keeps it for the next call.
    ///
    /// # Errors
    /// The faults that the verifier found. Only a mainloop, epilogue or scheduler of your own can emit an
    /// illegal program.
    pub fn program(&self) -> Result<Program, ptx::VerifyError> {
        if let Some(program) = self.built.0.get() {
            return Ok(program.clone());
        }
        let program = Program::new(Function::build(self.entry(), |f| self.emit(f)))?;
        let program = program.of_kernel(self.scheduler.name(), self.plan.form.described());
        Ok(self.built.0.get_or_init(|| program).clone())
    }

    fn entry(&self) -> Entry {
        self.cta().entry(self.entry_name())
    }

    pub(crate) fn cta(&self) -> CtaPlan {
        self.plan.cta(self.traits.parts, self.overlaps)
    }

    /// The problem as the kernel sees it: M and N are swapped for a swap-AB kernel.
    pub(crate) fn seen(&self, problem: GemmProblem) -> GemmProblem {
        let [m, n] = self.plan.oriented([problem.m, problem.n]);
        GemmProblem { m, n, ..problem }
    }

    /// Numbers of output tiles (one per cluster) and of K-tiles of a problem, as the scheduler counts them.
    /// For a swap-AB kernel ([`Plan::swapped`]), `m` counts tiles along the problem's N.
    pub fn tiles(&self, problem: GemmProblem) -> Tiles<u32> {
        let problem = self.seen(problem);
        let MainloopSpec { tile: [m, n, k], cluster, .. } = self.plan.mainloop;
        let [m, n] = [m * cluster[0], n * cluster[1]];
        Tiles { m: problem.m.div_ceil(m), n: problem.n.div_ceil(n), k: problem.k.div_ceil(k) }
    }

    /// How the partial sums of split tiles are reduced; `None` if the scheduler splits no tile.
    pub fn reduction(&self) -> Option<ReductionKind> {
        self.traits.reduction
    }

    /// Whether workers take their tiles from a counter in global memory while the kernel runs (dynamic
    /// scheduling).
    pub fn draws(&self) -> bool {
        self.traits.draws
    }

    /// Number of workers (clusters) that are launched if the GPU holds `resident` of them at once.
    pub fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        self.scheduler.workers(tiles, resident)
    }

    /// The work of one worker, in order.
    pub fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        self.scheduler.work(tiles, worker, workers)
    }

    /// CTAs per cluster as launched: the mainloop's cluster, times the CTAs that share one tile's K.
    pub fn cluster_size(&self) -> u32 {
        self.plan.cluster_size() * self.traits.parts
    }

    /// How partial sums of split tiles are reduced through the workspace; `None` if they are not.
    pub(crate) fn fix_up(&self) -> Option<FixUp> {
        match self.traits.reduction? {
            ReductionKind::Ordered => Some(FixUp::Ordered),
            ReductionKind::Atomic => Some(FixUp::Atomic),
            ReductionKind::Separate => Some(FixUp::Separate),
            ReductionKind::Clustered => None,
        }
    }

    /// Whether the kernel needs a workspace.
    pub(crate) fn works_in_memory(&self) -> bool {
        self.traits.draws || self.fix_up().is_some()
    }

    /// Bytes at the start of the workspace for the counter that workers take tiles from. The partial sums
    /// follow it.
    pub(crate) fn counter_bytes(&self) -> u64 {
        if self.traits.draws { QueuePlan::WORKSPACE_BYTES } else { 0 }
    }

    pub(crate) fn workspace_bytes(&self, tiles: Tiles<u32>, workers: u32) -> u64 {
        let Divided { units, tiles } = self.scheduler.divided(tiles, workers);
        let sums = self.fix_up().map_or(0, |fix_up| fix_up.workspace_bytes(&self.plan, units, tiles));
        self.counter_bytes() + sums
    }
}
