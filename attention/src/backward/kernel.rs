//! The three programs of a spec, and their launches.

use std::sync::Arc;

use collective::OperandTile;
use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{Buffer, Kernel, Launch, LaunchError, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Entry, Function, VerifyError};

use super::call::BackwardCall;
use super::emit;
use super::plan::{BackwardError, BackwardPlan, LINE};
use super::spec::BackwardSpec;
use crate::checks::{check_begin, check_packed, check_problem, check_tensor};
use crate::kernel::{blocks_seen, of_section};
use crate::maps::{Rows, map_of};
use crate::masks::of_mask;
use crate::plan::AttentionPlan;
use crate::problem::{AttentionProblem, HeadsRef, Packed};
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
/// use attention::{AttentionProblem, HeadsRef, Packed};
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
/// let mut call = BackwardCall {
///     problem,
///     q: ones,
///     k: ones,
///     v: ones,
///     o: ones,
///     d_o: ones,
///     log_sum_exp: sums.address,
///     packed: Packed::default(),
///     d_q: result(0),
///     d_k: result(1),
///     d_v: result(2),
///     workspace: None,
///     counts: vec![],
///     reals: vec![],
/// };
/// call.workspace = engine.workspace(backward.workspace(&problem, &call.packed))?;
/// backward.run(&mut engine, &call)?;
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
    /// Tiles of queries, and blocks of keys, of a head.
    across: u32,
    blocks: u32,
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
    pub fn steps(&self) -> Vec<BackwardStep> {
        [Step::Prepare, Step::Main, Step::Finish].map(|step| self.step(step)).into()
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
        let packed = if self.plan.is_packed() { "_packed" } else { "" };
        let order = if deterministic { "_ordered" } else { "" };
        let [d, dv] = head;
        let heads = if d == dv { d.to_string() } else { format!("{d}x{dv}") };
        format!("attention_backward_{format}_{heads}_{rows}x{keys}_{}{packed}{order}", self.scores.name())
    }

    /// Whether query `row` sees key `key`, on the host.
    pub fn sees(&self, of: &crate::Scope<'_, i64>, row: i64, key: i64) -> bool {
        self.scores.host_sees(of, row, key)
    }

    /// Bytes of workspace that a problem needs; `packed` counts if lengths differ.
    pub fn workspace(&self, problem: &AttentionProblem, packed: &Packed) -> u64 {
        self.passed(problem, packed, 0).bytes
    }

    fn passed(&self, problem: &AttentionProblem, packed: &Packed, first: u64) -> Passed {
        let plan = &self.plan;
        let [[sequences, heads, queries], [_, _, keys]] = self.extents(problem, packed);
        // If lengths differ, each sequence may have a partial tile.
        let more = if plan.is_packed() { problem.batch } else { 0 };
        let count = |rows: u32, height: u32| {
            if plan.is_packed() { (rows / height).saturating_add(more) } else { rows.div_ceil(height) }
        };
        let [across, blocks] = [count(queries, plan.spec.tile[0]), count(keys, plan.spec.tile[1])];
        let tiles = u64::from(sequences).saturating_mul(heads.into()).saturating_mul(across.into());
        let lines = tiles.saturating_mul((plan.spec.tile[0] * LINE).into());
        let counts = if plan.spec.deterministic { tiles.saturating_mul(4) } else { 0 };
        let mut at = first;
        let addresses = [lines, lines, tiles.saturating_mul(plan.sum_bytes().into()), counts].map(|bytes| {
            let address = at;
            at = at.saturating_add(bytes);
            address
        });
        Passed { addresses, across, blocks, bytes: at - first }
    }

    /// Extents `(batch, heads, rows)` of tensors with rows of queries and of keys. Packed sequences are one.
    fn extents(&self, problem: &AttentionProblem, packed: &Packed) -> [[u32; 3]; 2] {
        let Packed { rows, .. } = *packed;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = *problem;
        if self.plan.is_packed() {
            let sequences = batch.min(1);
            return [[sequences, heads, rows[0]], [sequences, shared, rows[1]]];
        }
        [[batch, heads, queries], [batch, shared, keys]]
    }

    /// How blocks of keys are numbered: for each group of heads of keys that CTAs work on at the same time, all blocks.
    fn section(&self, call: &BackwardCall) -> u32 {
        let AttentionProblem { heads: [heads, shared], queries, .. } = call.problem;
        let [[batch, ..], _] = self.extents(&call.problem, &call.packed);
        let [wide, wide_v] = self.plan.wide.map(u64::from);
        // Q and dO in 16 bits, and the sums of dQ, of all heads that share one of keys.
        let bytes = u64::from(queries).max(1) * (6 * wide + 2 * wide_v) * u64::from(heads / shared.max(1));
        of_section(u64::from(batch) * u64::from(shared), u64::from(self.plan.spec.l2) << 20, bytes)
    }
}

impl BackwardStep {
    /// Which one.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Every number of the kernels.
    pub const fn plan(&self) -> &BackwardPlan {
        &self.of.plan
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
        let packed = self.of.plan.is_packed();
        if packed && problem.batch > 0 {
            check_packed(&call.packed, 2)?;
        }
        let [of_queries, of_keys] = self.of.extents(&call.problem, &call.packed);
        let [d, dv] = self.of.plan.spec.head;
        for (name, of, extents, d) in [
            ("Q", call.q, of_queries, d),
            ("K", call.k, of_keys, d),
            ("V", call.v, of_keys, dv),
            ("O", call.o, of_queries, dv),
            ("dO", call.d_o, of_queries, dv),
            ("dQ", call.d_q, of_queries, d),
            ("dK", call.d_k, of_keys, d),
            ("dV", call.d_v, of_keys, dv),
        ] {
            let [batch, heads, rows] = extents;
            if !extents.contains(&0) {
                check_tensor((name, of), [batch, heads, rows, d], (format, 16))?;
                let most = if matches!(name, "Q" | "dO") { problem.queries } else { problem.keys };
                // Only tensor maps begin before.
                if packed && !matches!(name, "O" | "dQ") {
                    check_begin((name, of), most, format.bytes())?;
                }
            }
        }
        if !call.log_sum_exp.is_multiple_of(4) || call.log_sum_exp == 0 && !of_queries.contains(&0) {
            let (name, address, alignment) = ("the log-sum-exp", call.log_sum_exp, 4);
            return Err(LaunchError::Address { name, address, alignment });
        }
        let need = self.of.workspace(&call.problem, &call.packed);
        let address = Buffer::workspace_address(workspace, need)?;
        Ok(self.of.passed(&call.problem, &call.packed, address))
    }

    /// The grid and the arguments of the programs for tiles of queries.
    fn over_queries(&self, call: &BackwardCall, passed: &Passed) -> Result<Option<Launch>, LaunchError> {
        let AttentionProblem { queries, scale, .. } = call.problem;
        let [exponents, sums, dq_sums, counts] = passed.addresses;
        let [[sequences, heads, rows], _] = self.of.extents(&call.problem, &call.packed);
        let across = if rows == 0 { 0 } else { passed.across };
        let Some(grid) = grid([across, sequences, heads])? else { return Ok(None) };
        let bytes = u64::from(self.of.plan.spec.format.bytes());
        let tensor = |of: HeadsRef| {
            // One that is too long is that of the only head or sequence, and not used.
            let strides = [of.row, of.head, of.batch].map(|of| Argument::from(of.wrapping_mul(bytes)));
            [Argument::from(of.address)].into_iter().chain(strides)
        };
        let mut arguments: Vec<Argument> = Vec::new();
        match self.step {
            Step::Prepare => {
                arguments.extend(tensor(call.o).chain(tensor(call.d_o)));
                arguments.extend([call.log_sum_exp, exponents, sums, dq_sums].map(Argument::from));
            }
            Step::Main | Step::Finish => {
                arguments.extend(tensor(call.d_q).chain([dq_sums.into(), scale.into()]));
            }
        }
        arguments.extend(self.of.plan.spec.deterministic.then_some(Argument::from(counts)));
        arguments.extend([queries, heads, passed.across].map(Argument::from));
        arguments.extend(self.tables(call, 1));
        Ok(Some(Launch { grid, arguments }))
    }

    /// The arguments of sequences whose lengths differ, for `sides` of queries and keys.
    fn tables(&self, call: &BackwardCall, sides: usize) -> Vec<Argument> {
        let Packed { begins, rows } = call.packed;
        let tables = begins.into_iter().take(sides).map(Argument::from);
        let numbers = rows.into_iter().take(sides).chain([call.problem.batch]).map(Argument::from);
        if self.of.plan.is_packed() { tables.chain(numbers).collect() } else { Vec::new() }
    }

    fn over_keys(&self, call: &BackwardCall, passed: &Passed) -> Result<Option<Launch>, LaunchError> {
        let AttentionProblem { heads: [heads, shared], queries, keys: most_keys, scale, .. } = call.problem;
        let (plan, [exponents, sums, dq_sums, counts]) = (&self.of.plan, passed.addresses);
        let [of_queries, of_keys] = self.of.extents(&call.problem, &call.packed);
        let blocks = if of_keys[2] == 0 { 0 } else { passed.blocks };
        let Some(grid) = grid([blocks, of_keys[0], shared])? else { return Ok(None) };
        let map = |tile: &OperandTile, of: HeadsRef, extents: [u32; 3], (most, d): (u32, u32)| -> Argument {
            let [batch, heads, rows] = extents;
            let row = u64::from(plan.wide[0]);
            // If nothing is read, the tensor map must still be legal, and begin in memory.
            let nothing = HeadsRef { address: call.k.address, row, head: row, batch: row };
            let (of, most) = if extents.contains(&0) { (nothing, 1) } else { (of, most) };
            let all = plan.is_packed().then_some(rows);
            map_of(tile, of, [batch, heads, d], Rows { most, all }, [1, 1]).into()
        };
        let head = plan.spec.head;
        let of_queries = |i: usize, of| map(&plan.queries[i], of, of_queries, (queries, head[i]));
        let of_keys =
            |tiles: &[OperandTile; 2], i: usize, of| map(&tiles[i], of, of_keys, (most_keys, head[i]));
        let [k, v] = [of_keys(&plan.keys, 0, call.k), of_keys(&plan.keys, 1, call.v)];
        let [d_k, d_v] = [of_keys(&plan.outputs, 0, call.d_k), of_keys(&plan.outputs, 1, call.d_v)];
        let mut arguments = vec![of_queries(0, call.q), k, v, of_queries(1, call.d_o), d_k, d_v];
        arguments.extend([exponents, sums, dq_sums].map(Argument::from));
        arguments.extend(plan.spec.deterministic.then_some(Argument::from(counts)));
        arguments.extend(self.tables(call, 2));
        let (section, sequences) =
            (self.of.section(call), self.of.extents(&call.problem, &call.packed)[1][0]);
        let numbers =
            [queries, most_keys, shared, heads / shared, shared * sequences, passed.across, blocks, section];
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
            Step::Finish => small(name + "_finish", plan.dq.consumers * 128, emit::finish_bytes(plan)),
        };
        Program::new(Function::build(entry, |f| match self.step {
            Step::Prepare => emit::prepare(f, plan),
            Step::Main => emit::main(f, plan, scores),
            Step::Finish => emit::finish(f, plan),
        }))
    }

    fn total_work(&self, call: &BackwardCall) -> u128 {
        let AttentionProblem { heads: [heads, shared], queries, keys, .. } = call.problem;
        let Passed { across, blocks, .. } = self.of.passed(&call.problem, &call.packed, 0);
        let [[sequences, ..], _] = self.of.extents(&call.problem, &call.packed);
        let BackwardSpec { tile: [rows, block], mask, .. } = self.of.plan.spec;
        let [sequences, heads, shared, across, blocks] =
            [sequences, heads, shared, across, blocks].map(u128::from);
        match self.step {
            Step::Prepare | Step::Finish => sequences * heads * across,
            Step::Main => {
                // Tiles of queries that see a block of keys.
                let seen = blocks_seen(mask, &call.counts, [keys, queries], [block, rows]).min(across);
                sequences * blocks * (heads * seen + shared)
            }
        }
    }

    fn launch(&self, call: &BackwardCall, _slots: u32) -> Result<Option<Launch>, LaunchError> {
        let passed = self.check(call)?;
        match self.step {
            Step::Main => self.over_keys(call, &passed),
            Step::Prepare | Step::Finish => self.over_queries(call, &passed),
        }
    }

    fn visit(&self, call: &mut BackwardCall, visit: &mut dyn Visit) {
        self.of.visit_parts(Some(self.step), call, visit);
        Buffer::visit_workspace(&mut call.workspace, true, visit);
    }
}

impl Kernel<BackwardCall> for AttentionBackward {
    fn program(&self) -> Result<Program, VerifyError> {
        self.step(Step::Main).program()
    }

    fn workspace(&self, call: &BackwardCall, _slots: u32) -> u64 {
        Self::workspace(self, &call.problem, &call.packed)
    }

    fn lend_workspace(&self, call: &mut BackwardCall, workspace: Option<Buffer>) {
        call.workspace = workspace;
    }

    fn launch(&self, call: &BackwardCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        self.step(Step::Main).launch(call, resident)
    }

    fn steps(&self) -> Vec<Box<dyn Kernel<BackwardCall> + '_>> {
        let boxed = |step| Box::new(step) as Box<dyn Kernel<BackwardCall>>;
        Self::steps(self).into_iter().map(boxed).collect()
    }

    fn visit(&self, call: &mut BackwardCall, visit: &mut dyn Visit) {
        self.visit_parts(None, call, visit);
    }
}

impl AttentionBackward {
    /// Visits the parts of a call that one program accesses, or all do, apart from the workspace.
    fn visit_parts(&self, step: Option<Step>, call: &mut BackwardCall, visit: &mut dyn Visit) {
        let format = self.plan.spec.format;
        let [of_queries, of_keys] = self.extents(&call.problem, &call.packed);
        let BackwardCall { problem, q, k, v, o, d_o, log_sum_exp, d_q, d_k, d_v, counts, reals, .. } = call;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = problem;
        let entries = if self.plan.is_packed() { u64::from(*batch) + 1 } else { 0 };
        for count in [batch, heads, shared, queries, keys] {
            visit.count(count);
        }
        visit.single(scale);
        let (read, written) = (|i| Contents::Multiplied(i, format), Contents::Output(format));
        let touches = |steps: &[Step]| step.is_none_or(|step| steps.contains(&step));
        use Step::{Finish, Main, Prepare};
        let [d, dv] = self.plan.spec.head;
        for (name, of, extents, contents, steps) in [
            ("Q", q, (of_queries, d), read(0), &[Main][..]),
            ("K", k, (of_keys, d), read(1), &[Main]),
            ("V", v, (of_keys, dv), read(1), &[Main]),
            ("O", o, (of_queries, dv), read(0), &[Prepare]),
            ("dO", d_o, (of_queries, dv), read(0), &[Prepare, Main]),
            ("dQ", d_q, (of_queries, d), written, &[Finish]),
            ("dK", d_k, (of_keys, d), written, &[Main]),
            ("dV", d_v, (of_keys, dv), written, &[Main]),
        ] {
            let ([batch, heads, rows], d) = extents;
            let shape = [batch, heads, rows, d];
            if !touches(steps) {
                continue;
            }
            let writes = contents == written;
            let extents = Extents::line(format.bits(), of.reach(shape));
            visit.memory(Memory { name, address: &mut of.address, extents, contents, writes });
            visit.lines(d.into(), of.repeats(shape));
            [&mut of.row, &mut of.head, &mut of.batch].into_iter().for_each(|length| visit.length(length));
        }
        if touches(&[Prepare]) {
            let rows = of_queries.iter().fold(1, |all: u64, &of| all.saturating_mul(of.into()));
            let (extents, contents) = (Extents::line(32, rows), Contents::Source(collective::Format::F32));
            let name = "the log-sum-exp";
            visit.memory(Memory { name, address: log_sum_exp, extents, contents, writes: false });
        }
        let names = ["the beginnings of queries", "the beginnings of keys"];
        let sides = if touches(&[Main]) { 2 } else { 1 };
        let Packed { begins, rows } = &mut call.packed;
        for ((name, address), rows) in names.into_iter().zip(begins).zip(rows).take(sides) {
            let extents = Extents::line(32, entries);
            visit.memory(Memory { name, address, extents, contents: Contents::Table, writes: false });
            visit.count(rows);
        }
        for count in counts {
            let mut bits = count.cast_unsigned();
            visit.count(&mut bits);
            *count = bits.cast_signed();
        }
        reals.iter_mut().for_each(|real| visit.single(real));
    }
}
