//! The three programs of a spec, and their launches.

use std::sync::Arc;

use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{Buffer, Kernel, Launch, LaunchError, Program};
use ptx::abi::Grid;
use ptx::{Entry, VerifyError};

use super::call::BackwardCall;
use super::emit;
use super::plan::{BackwardPlan, LINE};
use super::spec::BackwardSpec;
use crate::checks::{check_begin, check_packed, check_tensor};
use crate::emit::Lengths;
use crate::error::AttentionError;
use crate::kernel::{blocks_seen, of_section};
use crate::maps::{Rows, map_of};
use crate::masks::of_mask;
use crate::plan::AttentionPlan;
use crate::problem::{AttentionProblem, HeadsRef, Packed};
use crate::scores::{AnyScores, Scores, any, state_values};

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
/// let problem = AttentionProblem::new(1, 1, [1, 1], 64);
/// let sums = engine.upload(&8f32.to_le_bytes())?;
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
    /// Bytes before the exponents, the row sums, the sums of dQ, and the counts of adds.
    offsets: [u64; 4],
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
    pub fn new(spec: BackwardSpec) -> Result<Self, AttentionError> {
        Ok(Self { plan: BackwardPlan::new(spec)?, scores: of_mask(spec.mask) })
    }

    /// The kernel of a spec with a mask of your own in place of the spec's.
    ///
    /// # Errors
    /// Those of [`BackwardPlan::new`]; [`AttentionError::Scores`] if the type changes scores.
    pub fn with<S: Scores>(spec: BackwardSpec) -> Result<Self, AttentionError> {
        if S::CHANGES {
            return Err(AttentionError::Scores { scores: S::name() });
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
        self.passed(problem, packed).bytes
    }

    fn passed(&self, problem: &AttentionProblem, packed: &Packed) -> Passed {
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
        let mut at = 0u64;
        let offsets = [lines, lines, tiles.saturating_mul(plan.sum_bytes().into()), counts].map(|bytes| {
            let offset = at;
            at = at.saturating_add(bytes);
            offset
        });
        Passed { offsets, across, blocks, bytes: at }
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

    /// Checks a call.
    fn check(&self, call: &BackwardCall) -> Result<(), LaunchError> {
        let BackwardCall { problem, workspace, ref counts, ref reals, .. } = *call;
        let (scores, format) = (&self.of.scores, self.of.plan.spec.format);
        problem.check()?;
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
        Buffer::workspace_address(workspace, need).map(drop)
    }

    /// The grid of a call: a CTA per tile of queries, or per block of keys.
    fn grid(&self, call: &BackwardCall, passed: &Passed) -> Result<Option<Grid>, LaunchError> {
        let [of_queries, of_keys] = self.of.extents(&call.problem, &call.packed);
        let ([sequences, heads, rows], tiles) = match self.step {
            Step::Main => (of_keys, passed.blocks),
            Step::Prepare | Step::Finish => (of_queries, passed.across),
        };
        grid([if rows == 0 { 0 } else { tiles }, sequences, heads])
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
            Step::Finish => {
                small(name + "_finish", plan.dq.spec().warpgroups * 128, emit::finish_bytes(plan))
            }
        };
        Program::of(self, entry, |f| match self.step {
            Step::Prepare => emit::prepare(f, plan),
            Step::Main => emit::main(f, plan, scores),
            Step::Finish => emit::finish(f, plan),
        })
    }

    fn total_work(&self, call: &BackwardCall) -> u128 {
        let AttentionProblem { heads: [heads, shared], queries, keys, .. } = call.problem;
        let Passed { across, blocks, .. } = self.of.passed(&call.problem, &call.packed);
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
        self.check(call)?;
        let launch = |grid| Launch::new(grid, |visit| self.interface(&mut call.clone(), true, visit));
        self.grid(call, &self.of.passed(&call.problem, &call.packed))?.map(launch).transpose()
    }

    fn visit(&self, call: &mut BackwardCall, visit: &mut dyn Visit) {
        self.interface(call, false, visit);
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
        let entries = if self.plan.is_packed() { u64::from(problem.batch) + 1 } else { 0 };
        problem.visit(visit);
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

impl BackwardStep {
    /// The parts of a call, and the program's parameters. Tensor maps have values if they `fill` a launch.
    fn interface(&self, call: &mut BackwardCall, fill: bool, visit: &mut dyn Visit) {
        self.of.visit_parts(Some(self.step), call, visit);
        Buffer::visit_workspace(&mut call.workspace, true, visit);
        let passed = self.of.passed(&call.problem, &call.packed);
        let AttentionProblem { heads: [heads, shared], queries, keys, .. } = call.problem;
        let [exponents, row_sums, dq_sums, added] = passed.offsets;
        let placed = |visit: &mut dyn Visit, name, offset| visit.address_in(name, "the workspace", offset);
        match self.step {
            Step::Prepare => {
                self.tensor(("o", "O"), ["o_row", "o_head", "o_batch"], call.o, visit);
                self.tensor(("do", "dO"), ["do_row", "do_head", "do_batch"], call.d_o, visit);
                visit.address("log_sum_exp", "the log-sum-exp");
                placed(visit, "exponents", exponents);
                placed(visit, "row_sums", row_sums);
                placed(visit, "dq_sums", dq_sums);
            }
            Step::Main => {
                self.maps(call, fill, visit);
                placed(visit, "exponents", exponents);
                placed(visit, "row_sums", row_sums);
                placed(visit, "dq_sums", dq_sums);
            }
            Step::Finish => {
                self.tensor(("dq", "dQ"), ["dq_row", "dq_head", "dq_batch"], call.d_q, visit);
                placed(visit, "dq_sums", dq_sums);
                call.problem.state_scale(visit);
            }
        }
        if self.of.plan.spec.deterministic {
            placed(visit, "added", added);
        }
        if self.step != Step::Main {
            visit.number("queries", Some(queries));
            visit.number("heads", Some(heads));
            visit.number("across", Some(passed.across));
            if self.of.plan.is_packed() {
                Lengths::state(&call.packed, call.problem.batch, false, visit);
            }
            return;
        }
        if self.of.plan.is_packed() {
            Lengths::state(&call.packed, call.problem.batch, true, visit);
        }
        let [_, [sequences, ..]] = self.of.extents(&call.problem, &call.packed);
        visit.number("queries", Some(queries));
        visit.number("keys", Some(keys));
        visit.number("heads", Some(shared));
        visit.number("share", Some(heads / shared.max(1)));
        visit.number("all_heads", Some(shared.saturating_mul(sequences)));
        visit.number("across", Some(passed.across));
        visit.number("blocks", Some(passed.blocks));
        visit.number("section", Some(self.of.section(call)));
        call.problem.state_scale(visit);
        visit.number("to_log2", Some(call.problem.exponents(false)[0]));
        state_values(&*self.of.scores, &call.counts, &call.reals, visit);
    }

    /// The parameters of a tensor that is not copied by tensor maps: its address and its strides in bytes.
    fn tensor(
        &self,
        (name, within): (&'static str, &'static str),
        strides: [&'static str; 3],
        of: HeadsRef,
        visit: &mut dyn Visit,
    ) {
        let bytes = u64::from(self.of.plan.spec.format.bytes());
        visit.address(name, within);
        for (name, stride) in strides.into_iter().zip([of.row, of.head, of.batch]) {
            // One that is too long is that of the only head or sequence, and not used.
            visit.number(name, Some(stride.wrapping_mul(bytes)));
        }
    }

    /// The tensor maps of the main program.
    fn maps(&self, call: &BackwardCall, fill: bool, visit: &mut dyn Visit) {
        let (plan, AttentionProblem { queries, keys, .. }) = (&self.of.plan, call.problem);
        let [of_queries, of_keys] = self.of.extents(&call.problem, &call.packed);
        let head = plan.spec.head;
        for (name, within, tile, of, extents, (most, d)) in [
            ("q_map", "Q", &plan.queries[0], call.q, of_queries, (queries, head[0])),
            ("k_map", "K", &plan.keys[0], call.k, of_keys, (keys, head[0])),
            ("v_map", "V", &plan.keys[1], call.v, of_keys, (keys, head[1])),
            ("do_map", "dO", &plan.queries[1], call.d_o, of_queries, (queries, head[1])),
            ("dk_map", "dK", &plan.outputs[0], call.d_k, of_keys, (keys, head[0])),
            ("dv_map", "dV", &plan.outputs[1], call.d_v, of_keys, (keys, head[1])),
        ] {
            let [batch, heads, rows] = extents;
            let row = u64::from(plan.wide[0]);
            // If nothing is read, the tensor map must still be legal, and begin in memory.
            let nothing = HeadsRef { address: call.k.address, row, head: row, batch: row };
            let empty = extents.contains(&0);
            let (within, of, most) = if empty { ("K", nothing, 1) } else { (within, of, most) };
            let all = plan.is_packed().then_some(rows);
            let map = || map_of(tile, of, [batch, heads, d], Rows { most, all }, [1, 1]);
            visit.tensor_map(name, within, fill.then(map));
        }
    }
}
