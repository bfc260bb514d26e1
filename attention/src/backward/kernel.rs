//! The three programs of a spec, and their launches.

use std::sync::Arc;

use collective::OperandTile;
use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{Kernel, Launch, LaunchError, Program, WorkspaceRef};
use ptx::abi::{Argument, Grid};
use ptx::{Entry, Function, VerifyError};

use super::call::BackwardCall;
use super::emit;
use super::plan::{BackwardError, BackwardPlan, LINE};
use super::spec::BackwardSpec;
use crate::kernel::{check_problem, check_tensor};
use crate::maps::map;
use crate::masks::of_mask;
use crate::plan::AttentionPlan;
use crate::problem::{AttentionProblem, HeadsRef};
use crate::scores::{AnyScores, Scores, any};

/// One of the programs of the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Row sums and exponents of queries; zeros for the sums of dQ.
    Prepare,
    /// dK, dV and the sums of dQ.
    Main,
    /// dQ from its sums.
    Finish,
}

/// The backward pass of attention: three programs, which run one after the other.
///
/// ```
/// use attention::backward::{AttentionBackward, BackwardCall, BackwardSpec};
/// use attention::{AttentionProblem, HeadsRef};
/// use kernel::{Emulator, Engine, Kernel};
///
/// let backward = AttentionBackward::new("d=64 tile=64x64".parse()?)?;
/// let mut engine = Emulator::new();
/// // One head, one query and one key: P is 1, so dV is dO, and nothing else has a gradient.
/// let ones = [0x80, 0x3f].repeat(64);
/// let ones = HeadsRef::heads_first(engine.upload(&ones)?.address, [1, 1, 64]);
/// let results = engine.allocate(3 * 128)?;
/// let result = |i: u64| HeadsRef::heads_first(results.address + 128 * i, [1, 1, 64]);
/// let problem = AttentionProblem { scale: 1.0, ..AttentionProblem::new(1, 1, [1, 1], 64) };
/// let sums = engine.upload(&64f32.to_le_bytes())?;
/// let workspace = engine.workspace(backward.workspace(&problem))?;
/// backward.run(
///     &mut engine,
///     &BackwardCall {
///         problem,
///         q: ones,
///         k: ones,
///         v: ones,
///         o: ones,
///         d_o: ones,
///         log_sum_exp: sums.address,
///         d_q: result(0),
///         d_k: result(1),
///         d_v: result(2),
///         workspace,
///         counts: vec![],
///         reals: vec![],
///     },
/// )?;
/// let bytes = engine.read(results)?;
/// assert!(bytes[..256].iter().all(|&byte| byte == 0) && bytes[256..] == [0x80, 0x3f].repeat(64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AttentionBackward {
    plan: BackwardPlan,
    scores: Arc<dyn AnyScores>,
}

/// One program of a backward pass, a kernel of its own.
#[derive(Clone, Debug)]
pub struct BackwardStep {
    of: AttentionBackward,
    step: Step,
}

/// Where the parts of the workspace are, and the extents that place them.
struct Passed {
    /// Addresses of the exponents, the row sums, the sums of dQ, and the counts of adds.
    addresses: [u64; 4],
    /// Tiles of queries.
    across: u32,
    /// Bytes of all parts.
    bytes: u64,
}

impl AttentionBackward {
    /// The kernel of a spec.
    ///
    /// # Errors
    /// Those of [`BackwardPlan::new`].
    pub fn new(spec: BackwardSpec) -> Result<Self, BackwardError> {
        Ok(Self { plan: BackwardPlan::new(spec)?, scores: of_mask(spec.mask) })
    }

    /// The kernel of a spec with a mask of your own in place of the spec's.
    ///
    /// # Errors
    /// Those of [`BackwardPlan::new`]; [`BackwardError::Scores`] if the type changes scores.
    pub fn with<S: Scores>(spec: BackwardSpec) -> Result<Self, BackwardError> {
        if S::CHANGES {
            return Err(BackwardError::Scores { scores: S::name() });
        }
        Ok(Self { plan: BackwardPlan::new(spec)?, scores: any::<S>() })
    }

    /// Every number of the kernel.
    pub const fn plan(&self) -> &BackwardPlan {
        &self.plan
    }

    /// The programs in the order in which they run.
    pub fn steps(&self) -> [BackwardStep; 3] {
        [Step::Prepare, Step::Main, Step::Finish].map(|step| self.step(step))
    }

    fn step(&self, step: Step) -> BackwardStep {
        BackwardStep { of: self.clone(), step }
    }

    /// Whether its mask is one that specs can name, and not one of the user's own.
    #[cfg(feature = "records")]
    pub(super) fn has_mask_of_spec(&self) -> bool {
        of_mask(self.plan.spec.mask).name() == self.scores.name()
    }

    /// The name of the main program.
    pub fn name(&self) -> String {
        let BackwardSpec { format, head, tile: [rows, keys], deterministic, .. } = self.plan.spec;
        let order = if deterministic { "_ordered" } else { "" };
        format!("attention_backward_{format}_{head}_{rows}x{keys}_{}{order}", self.scores.name())
    }

    /// Whether query `row` sees key `key`, on the host.
    pub fn sees(&self, of: &crate::Scope<'_, i64>, row: i64, key: i64) -> bool {
        self.scores.host_sees(of, row, key)
    }

    /// Bytes of workspace that a problem needs.
    pub fn workspace(&self, problem: &AttentionProblem) -> u64 {
        self.passed(problem, 0).bytes
    }

    fn passed(&self, problem: &AttentionProblem, first: u64) -> Passed {
        let AttentionProblem { batch, heads: [heads, _], queries, .. } = *problem;
        let (plan, across) = (&self.plan, queries.div_ceil(self.plan.spec.tile[0]));
        let tiles = u64::from(batch).saturating_mul(heads.into()).saturating_mul(across.into());
        let lines = tiles.saturating_mul((plan.spec.tile[0] * LINE).into());
        let counts = if plan.spec.deterministic { tiles.saturating_mul(4) } else { 0 };
        let mut at = first;
        let addresses = [lines, lines, tiles.saturating_mul(plan.sum_bytes().into()), counts].map(|bytes| {
            let address = at;
            at = at.saturating_add(bytes);
            address
        });
        Passed { addresses, across, bytes: at - first }
    }

    /// How blocks of keys are numbered: for each group of heads of keys that CTAs work on at the same time, all blocks.
    fn section(&self, problem: &AttentionProblem) -> u32 {
        let AttentionProblem { batch, heads: [heads, shared], queries, .. } = *problem;
        // Q and dO in 16 bits, and the sums of dQ, of all heads that share one of keys.
        let bytes =
            u64::from(queries).max(1) * u64::from(self.plan.wide) * 8 * u64::from(heads / shared.max(1));
        let together = ((u64::from(self.plan.spec.l2) << 20) / bytes.max(1)).max(1);
        let all = u64::from(batch) * u64::from(shared);
        let sections = all.div_ceil(together).max(1);
        u32::try_from(all.div_ceil(sections)).unwrap_or(u32::MAX).max(1)
    }
}

/// Extents, and heads `(batch, heads, rows, d)` of tensors with rows of queries and of keys.
fn extents(problem: &AttentionProblem, d: u32) -> [[u32; 4]; 2] {
    let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = *problem;
    [[batch, heads, queries, d], [batch, shared, keys, d]]
}

impl BackwardStep {
    /// Which one.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Checks a call, and places what the programs pass on.
    fn check(&self, call: &BackwardCall) -> Result<Passed, LaunchError> {
        let BackwardCall { problem, workspace, ref counts, ref reals, .. } = *call;
        let (scores, format) = (&self.of.scores, self.of.plan.spec.format);
        check_problem(&problem)?;
        let given = [counts.len(), reals.len()];
        let needed = [scores.counts().len(), scores.reals().len()];
        if given != needed {
            let [[counts, reals], [needed_counts, needed_reals]] = [given, needed];
            let reason = format!(
                "{} takes {needed_counts} whole and {needed_reals} real arguments, {counts} and {reals} were given",
                scores.name()
            );
            return Err(LaunchError::Problem { reason });
        }
        let [of_queries, of_keys] = extents(&problem, self.of.plan.spec.head);
        for (name, of, extents) in [
            ("Q", call.q, of_queries),
            ("K", call.k, of_keys),
            ("V", call.v, of_keys),
            ("O", call.o, of_queries),
            ("dO", call.d_o, of_queries),
            ("dQ", call.d_q, of_queries),
            ("dK", call.d_k, of_keys),
            ("dV", call.d_v, of_keys),
        ] {
            if !extents.contains(&0) {
                check_tensor((name, of), extents, (format, 16))?;
            }
        }
        if !call.log_sum_exp.is_multiple_of(4) || call.log_sum_exp == 0 && !of_queries.contains(&0) {
            let (name, address, alignment) = ("the log-sum-exp", call.log_sum_exp, 4);
            return Err(LaunchError::Address { name, address, alignment });
        }
        let need = self.of.workspace(&problem);
        let WorkspaceRef { address, bytes } = workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
        if bytes < need {
            return Err(LaunchError::Workspace { bytes, needed: need });
        }
        if !address.is_multiple_of(128) {
            return Err(LaunchError::Address { name: "the workspace", address, alignment: 128 });
        }
        Ok(self.of.passed(&problem, address))
    }

    /// The grid and the arguments of the programs for tiles of queries.
    fn over_queries(&self, call: &BackwardCall, passed: &Passed) -> Result<Option<Launch>, LaunchError> {
        let AttentionProblem { batch, heads: [heads, _], queries, scale, .. } = call.problem;
        let [exponents, sums, dq_sums, counts] = passed.addresses;
        let Some(grid) = grid([passed.across, batch, heads])? else { return Ok(None) };
        let bytes = u64::from(self.of.plan.spec.format.bytes());
        let tensor = |of: HeadsRef| {
            let strides = [of.row, of.head, of.batch].map(|stride| Argument::from(stride * bytes));
            [Argument::from(of.address)].into_iter().chain(strides)
        };
        let mut arguments: Vec<Argument> = Vec::new();
        match self.step {
            Step::Prepare => {
                arguments.extend(tensor(call.o).chain(tensor(call.d_o)));
                arguments.extend([call.log_sum_exp, exponents, sums, dq_sums].map(Argument::from));
                arguments.extend(self.of.plan.spec.deterministic.then_some(Argument::from(counts)));
            }
            Step::Main | Step::Finish => {
                arguments.extend(tensor(call.d_q).chain([dq_sums.into(), scale.into()]));
            }
        }
        arguments.extend([queries, heads, passed.across].map(Argument::from));
        Ok(Some(Launch { grid, arguments }))
    }

    fn over_keys(&self, call: &BackwardCall, passed: &Passed) -> Result<Option<Launch>, LaunchError> {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = call.problem;
        let (plan, [exponents, sums, dq_sums, counts]) = (&self.of.plan, passed.addresses);
        let blocks = keys.div_ceil(plan.spec.tile[1]);
        let Some(grid) = grid([blocks, batch, shared])? else { return Ok(None) };
        let [of_queries, of_keys] = extents(&call.problem, plan.spec.head);
        let map = |tile: &OperandTile, of: HeadsRef, extents: [u32; 4]| -> Argument {
            if extents.contains(&0) {
                // Nothing is read. The tensor map must still be legal.
                let row = u64::from(plan.wide);
                return map(tile, HeadsRef { row, head: row, batch: row, ..HeadsRef::default() }, extents)
                    .into();
            }
            map(tile, of, extents).into()
        };
        let mut arguments = vec![
            map(&plan.queries, call.q, of_queries),
            map(&plan.keys, call.k, of_keys),
            map(&plan.keys, call.v, of_keys),
            map(&plan.queries, call.d_o, of_queries),
            map(&plan.output, call.d_k, of_keys),
            map(&plan.output, call.d_v, of_keys),
        ];
        arguments.extend([exponents, sums, dq_sums].map(Argument::from));
        arguments.extend(plan.spec.deterministic.then_some(Argument::from(counts)));
        let section = self.of.section(&call.problem);
        let numbers = [queries, keys, shared, heads / shared, shared * batch, passed.across, blocks, section];
        arguments.extend(numbers.map(Argument::from));
        arguments.extend([scale, scale * core::f32::consts::LOG2_E].map(Argument::from));
        arguments.extend(call.counts.iter().map(|count| Argument::from(count.cast_unsigned())));
        arguments.extend(call.reals.iter().copied().map(Argument::from));
        Ok(Some(Launch { grid, arguments }))
    }
}

/// A grid with a CTA per tile.
fn grid([tiles, batch, heads]: [u32; 3]) -> Result<Option<Grid>, LaunchError> {
    let most = i32::MAX as u32;
    let (m, n) = (u128::from(tiles), u128::from(batch) * u128::from(heads));
    match u32::try_from(m * n) {
        Ok(0) => Ok(None),
        Ok(ctas) if ctas <= most => Ok(Some(Grid { ctas: [ctas, 1, 1] })),
        _ => Err(LaunchError::TooManyTiles { m, n, most }),
    }
}

impl Kernel<BackwardCall> for BackwardStep {
    fn program(&self) -> Result<Program, VerifyError> {
        let (plan, scores) = (&self.of.plan, &*self.of.scores);
        let name = self.of.name();
        let small = |name, threads, shared_bytes| Entry {
            name,
            target: AttentionPlan::TARGET,
            threads,
            shared_bytes,
            cluster: [1, 1, 1],
        };
        let entry = match self.step {
            Step::Main => plan.cta.entry(name),
            Step::Prepare => small(name + "_prepare", emit::PREPARE_THREADS, 0),
            Step::Finish => small(name + "_finish", plan.cta.consumers * 128, emit::finish_bytes(plan)),
        };
        Program::new(Function::build(entry, |f| match self.step {
            Step::Prepare => emit::prepare(f, plan),
            Step::Main => emit::main(f, plan, scores),
            Step::Finish => emit::finish(f, plan),
        }))
    }

    fn launch(&self, call: &BackwardCall, _slots: u32) -> Result<Option<Launch>, LaunchError> {
        let passed = self.check(call)?;
        match self.step {
            Step::Main => self.over_keys(call, &passed),
            Step::Prepare | Step::Finish => self.over_queries(call, &passed),
        }
    }

    fn visit(&self, call: &mut BackwardCall, visit: &mut dyn Visit) {
        let bytes = self.of.workspace(&call.problem);
        self.of.visit_parts(Some(self.step), call, visit);
        let memory = call.workspace.get_or_insert(WorkspaceRef { address: 0, bytes });
        let (extents, contents) = (Extents::line(8, bytes), Contents::Workspace);
        let name = "the workspace";
        visit.memory(Memory { name, address: &mut memory.address, extents, contents, writes: true });
        visit.length(&mut memory.bytes);
    }
}

impl Kernel<BackwardCall> for AttentionBackward {
    fn program(&self) -> Result<Program, VerifyError> {
        self.step(Step::Main).program()
    }

    fn workspace(&self, call: &BackwardCall, _slots: u32) -> u64 {
        Self::workspace(self, &call.problem)
    }

    fn lend_workspace(&self, call: &mut BackwardCall, workspace: Option<WorkspaceRef>) {
        call.workspace = workspace;
    }

    fn launch(&self, call: &BackwardCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        self.step(Step::Main).launch(call, slots)
    }

    fn steps(&self) -> Vec<Box<dyn Kernel<BackwardCall> + '_>> {
        Self::steps(self).map(|step| Box::new(step) as Box<dyn Kernel<BackwardCall>>).into()
    }

    fn visit(&self, call: &mut BackwardCall, visit: &mut dyn Visit) {
        self.visit_parts(None, call, visit);
    }
}

impl AttentionBackward {
    /// Visits the parts of a call that one program accesses, or all do, apart from the workspace.
    fn visit_parts(&self, step: Option<Step>, call: &mut BackwardCall, visit: &mut dyn Visit) {
        let BackwardSpec { format, head, .. } = self.plan.spec;
        let BackwardCall { problem, q, k, v, o, d_o, log_sum_exp, d_q, d_k, d_v, counts, reals, .. } = call;
        let [of_queries, of_keys] = extents(problem, head);
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = problem;
        for count in [batch, heads, shared, queries, keys] {
            visit.count(count);
        }
        visit.factor(scale);
        let (read, written) = (|i| Contents::Multiplied(i, format), Contents::Output(format));
        let touches = |steps: &[Step]| step.is_none_or(|step| steps.contains(&step));
        use Step::{Finish, Main, Prepare};
        for (name, of, extents, contents, steps) in [
            ("Q", q, of_queries, read(0), &[Main][..]),
            ("K", k, of_keys, read(1), &[Main]),
            ("V", v, of_keys, read(1), &[Main]),
            ("O", o, of_queries, read(0), &[Prepare]),
            ("dO", d_o, of_queries, read(0), &[Prepare, Main]),
            ("dQ", d_q, of_queries, written, &[Finish]),
            ("dK", d_k, of_keys, written, &[Main]),
            ("dV", d_v, of_keys, written, &[Main]),
        ] {
            if !touches(steps) {
                continue;
            }
            let writes = contents == written;
            let extents = Extents::line(format.bits(), of.reach(extents));
            visit.memory(Memory { name, address: &mut of.address, extents, contents, writes });
            [&mut of.row, &mut of.head, &mut of.batch].into_iter().for_each(|length| visit.length(length));
        }
        if touches(&[Prepare]) {
            let rows = of_queries[..3].iter().map(|&extent| u64::from(extent)).product();
            let (extents, contents) = (Extents::line(32, rows), Contents::Source(collective::Format::F32));
            let name = "the log-sum-exp";
            visit.memory(Memory { name, address: log_sum_exp, extents, contents, writes: false });
        }
        for count in counts {
            let mut bits = count.cast_unsigned();
            visit.count(&mut bits);
            *count = bits.cast_signed();
        }
        reals.iter_mut().for_each(|real| visit.factor(real));
    }
}
