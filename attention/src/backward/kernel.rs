//! The three programs of a spec, and their launches.

use std::sync::Arc;

use collective::heads::{HeadRows, HeadTensor, Packed, Pages, Reached};
use collective::operands::WORKSPACE;
use collective::{Bounded, Format, QueuePlan};
use kernel::operands::{Contents, Extents, Visit};
use kernel::{Buffer, Kernel, Launch, LaunchError, Program, check_heads, check_packed};
use ptx::{Entry, VerifyError};

use super::ahead::Ahead;
use super::call::BackwardCall;
use super::emit;
use super::plan::{ARRIVED, BackwardPlan, LINE};
use super::spec::BackwardSpec;
use crate::arrays;
use crate::call::AttentionCall;
use crate::error::AttentionError;
use crate::formula::HostArrays;
use crate::order::blocks_seen;
use crate::plan::AttentionPlan;
use crate::problem::{AttentionProblem, refused};
use crate::scores::{AnyScores, Scores, any};
use kernel::words::{Both, Worded as _};

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

/// The backward pass of attention: three programs, which run one after the other; or [one of them](Self::step).
///
/// ```
/// use attention::backward::{AttentionBackward, BackwardCall, BackwardSpec};
/// use attention::{AttentionCall, AttentionProblem, HeadsRef, Packed};
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
/// let forward = AttentionCall::new(problem, [ones; 3], ones);
/// let forward = AttentionCall { log_sum_exp: sums.address, ..forward };
/// let mut call = BackwardCall::of(forward, ones, [0, 1, 2].map(result));
/// call.workspace = engine.workspace(backward.workspace(&problem, &Packed::default()))?;
/// backward.run(&mut engine, &call)?;
/// let bytes = engine.read(results)?;
/// assert!(bytes[..256].iter().all(|&byte| byte == 0) && bytes[256..] == [0x80, 0x3f].repeat(64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AttentionBackward {
    plan: BackwardPlan,
    pub(super) scores: Arc<dyn AnyScores>,
    step: Option<Step>,
}

/// Where the parts of the workspace are, and the extents that place them.
struct Passed {
    /// Bytes before the exponents, the row sums, the sums of dQ, those of dK and dV, the counter of blocks that are drawn, the counts of CTAs that
    /// add to dK and dV, those of tiles of each head whose sums are zero, and the counts of adds to dQ.
    offsets: [u64; 8],
    /// Tiles of queries, and blocks of keys, of a head.
    across: u32,
    blocks: u32,
    /// Which zeros the main program stores.
    ahead: Ahead,
    /// Bytes of all parts.
    bytes: u64,
}

impl Passed {
    /// Words of all counts that are zero at first, which follow each other.
    fn words_of_counts(&self) -> u64 {
        let [.., drawn, _, _, added] = self.offsets;
        (added - drawn) / u64::from(emit::COUNT)
    }
}

impl AttentionBackward {
    /// The kernel of a spec.
    ///
    /// # Errors
    /// Those of [`BackwardPlan::new`].
    pub fn new(spec: BackwardSpec) -> Result<Self, AttentionError> {
        Ok(Self { plan: BackwardPlan::new(spec)?, scores: spec.scores(), step: None })
    }

    /// The kernel of a spec with a mask or scores of your own in place of the spec's.
    ///
    /// # Errors
    /// Those of [`BackwardPlan::new`].
    pub fn with<S: Scores>(spec: BackwardSpec) -> Result<Self, AttentionError> {
        Ok(Self { plan: BackwardPlan::of(spec, S::CHANGES)?, scores: any::<S>(), step: None })
    }

    /// Every number of the kernel.
    pub const fn plan(&self) -> &BackwardPlan {
        &self.plan
    }

    /// One of the programs, as a kernel of its own.
    #[must_use]
    pub fn step(&self, step: Step) -> Self {
        Self { step: Some(step), ..self.clone() }
    }

    /// Whether it is all programs.
    #[cfg(feature = "records")]
    pub(super) fn is_whole(&self) -> bool {
        self.step.is_none()
    }

    /// Whether it has a program.
    fn has(&self, step: Step) -> bool {
        self.step.is_none_or(|own| own == step)
    }

    /// The name of the main program.
    pub fn name(&self) -> String {
        let BackwardSpec { format, head, tile: [rows, keys], deterministic, split, apart, whole, .. } =
            self.plan.spec;
        let packed = if self.plan.is_packed() { "_packed" } else { "" };
        let order = if deterministic { "_ordered" } else { "" };
        let split = if split > 1 { format!("_split{split}") } else { String::new() };
        let apart = match (apart, whole) {
            (0, _) => String::new(),
            (apart, 0) => format!("_apart{apart}"),
            (apart, _) => format!("_apart{apart}_whole"),
        };
        let heads = Both(head).text().unwrap_or_default();
        format!(
            "attention_backward_{format}_{heads}_{rows}x{keys}_{}{packed}{order}{split}{apart}",
            self.scores.name()
        )
    }

    /// Whether query `row` sees key `key`, on the host.
    pub fn sees(&self, of: &crate::Scope<'_, i64>, arrays: HostArrays<'_>, row: i64, key: i64) -> bool {
        self.scores.host_sees(of, arrays, row, key)
    }

    /// The score of a query and a key, on the host: as [`Attention::score`](crate::Attention::score).
    pub fn score(
        &self,
        of: &crate::Scope<'_, i64>,
        arrays: HostArrays<'_>,
        place: [i64; 2],
        x: Bounded,
    ) -> Bounded {
        self.scores.host_score(of, arrays, place, x)
    }

    /// The same, and its derivative by `x`.
    pub fn slope(
        &self,
        of: &crate::Scope<'_, i64>,
        arrays: HostArrays<'_>,
        place: [i64; 2],
        x: Bounded,
    ) -> [Bounded; 2] {
        self.scores.host_slope(of, arrays, place, x)
    }

    /// Bytes of workspace that a problem needs; `packed` counts if lengths differ.
    pub fn workspace(&self, problem: &AttentionProblem, packed: &Packed) -> u64 {
        self.passed(problem, packed).bytes
    }

    fn passed(&self, problem: &AttentionProblem, packed: &Packed) -> Passed {
        let plan = &self.plan;
        let [[sequences, heads, queries], [_, shared, keys]] = self.extents(problem, packed);
        // If lengths differ, each sequence may have a partial tile.
        let more = if plan.is_packed() { problem.batch } else { 0 };
        let count = |rows: u32, height: u32| {
            if plan.is_packed() { (rows / height).saturating_add(more) } else { rows.div_ceil(height) }
        };
        let [across, blocks] = [count(queries, plan.spec.tile[0]), count(keys, plan.spec.tile[1])];
        let tiles = u64::from(sequences).saturating_mul(heads.into()).saturating_mul(across.into());
        let lines = tiles.saturating_mul((plan.spec.tile[0] * LINE).into());
        let counts = if plan.spec.deterministic { tiles.saturating_mul(4) } else { 0 };
        let [_, apart] = self.heads_of_keys(sequences.saturating_mul(shared));
        let counted = u64::from(apart).saturating_mul(blocks.into());
        let mut at = 0u64;
        let sums = tiles.saturating_mul(plan.sum_bytes().into());
        let key_sums = counted.saturating_mul(plan.block_sum_bytes().into());
        let arrived = counted.saturating_mul(ARRIVED.into());
        let zeroed = if plan.zeros_ahead() {
            u64::from(sequences.saturating_mul(heads)) * u64::from(emit::COUNT)
        } else {
            0
        };
        let counted = arrived.saturating_add(zeroed).checked_next_multiple_of(16).unwrap_or(u64::MAX);
        let zeroed = counted - arrived;
        let draws = plan.walks() && sequences > 0 && blocks > 0;
        let drawn = if draws { QueuePlan::WORKSPACE_BYTES } else { 0 };
        let offsets = [lines, lines, sums, key_sums, drawn, arrived, zeroed, counts].map(|bytes| {
            let offset = at;
            at = at.saturating_add(bytes);
            offset
        });
        let share = heads.checked_div(shared).unwrap_or(1);
        let ahead = self.ahead(sequences.saturating_mul(shared), share, [across, blocks]);
        Passed { offsets, across, blocks, ahead, bytes: at }
    }

    /// Which zeros CTAs store, if all heads are computed in the same way: `heads` of keys of all sequences, each shared by `share` of queries.
    pub(super) fn ahead(&self, heads: u32, share: u32, [across, blocks]: [u32; 2]) -> Ahead {
        let BackwardSpec { split, apart, .. } = self.plan.spec;
        // Heads that follow each other, and CTAs of a block of each.
        let [heads, ctas] = if apart > 0 { [heads.saturating_mul(share), apart] } else { [heads, split] };
        let share = if apart > 0 { 1 } else { share };
        let [_, last] = self.sections([heads, blocks]);
        let of_head = [share.saturating_mul(across), blocks.saturating_mul(ctas)];
        Ahead::of([heads, heads - last], of_head, self.plan.sum_bytes())
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

    /// Of so many heads of keys of all sequences, those whose blocks are computed whole, and the others, of which heads of queries are apart.
    pub(super) fn heads_of_keys(&self, all: u32) -> [u32; 2] {
        let BackwardSpec { apart, whole, .. } = self.plan.spec;
        let whole = if apart > 0 { whole.min(all) } else { all };
        [whole, all - whole]
    }

    /// How `blocks` blocks of keys of each of `heads` heads are numbered: all blocks of so many heads, one such section after the other, and the
    /// first head of the last section, which may have more.
    pub(super) fn sections(&self, [heads, blocks]: [u32; 2]) -> [u32; 2] {
        let blocks = blocks.max(1);
        let section = (self.plan.spec.mixed.saturating_add(blocks / 2) / blocks).clamp(1, heads.max(1));
        [section, (heads / section).saturating_sub(1) * section]
    }

    /// Checks a call.
    fn check(&self, call: &BackwardCall) -> Result<(), LaunchError> {
        let AttentionCall { problem, packed, log_sum_exp: address, .. } = &call.forward;
        problem.check()?;
        call.forward.check_arguments(&*self.scores)?;
        if call.forward.pages != Pages::default() || call.forward.factors.addresses != [0; 3] {
            return refused("the forward call has pages or factors, none were needed: gradients are of whole tensors in 16 bits".to_owned());
        }
        if self.plan.is_packed() && problem.batch > 0 {
            check_packed(packed, 2)?;
        }
        self.tensors(None, &mut call.clone()).iter().try_for_each(check_heads)?;
        let [of_queries, _] = self.extents(problem, packed);
        if !address.is_multiple_of(4) || *address == 0 && !of_queries.contains(&0) {
            let (address, alignment) = (*address, 4);
            return Err(LaunchError::Address { name: SUMS, address, alignment });
        }
        for (i, name) in self.scores.heads().into_iter().enumerate() {
            let address = call.forward.head_numbers.addresses.get(i).copied().unwrap_or(0);
            if !address.is_multiple_of(4) || address == 0 && !of_queries.contains(&0) {
                return Err(LaunchError::Address { name, address, alignment: 4 });
            }
        }
        Buffer::workspace_address(call.workspace, self.workspace(problem, packed)).map(drop)
    }

    /// CTAs of a call, if each has one block of keys: one per tile of queries; a cluster per block of keys, or some for each head that shares it.
    fn ctas(&self, step: Step, BackwardCall { forward, .. }: &BackwardCall) -> u64 {
        let [of_queries, of_keys] = self.extents(&forward.problem, &forward.packed);
        let passed = self.passed(&forward.problem, &forward.packed);
        let Passed { across, blocks, .. } = passed;
        let ([sequences, heads, rows], tiles) = match step {
            Step::Main => (of_keys, blocks),
            Step::Prepare | Step::Finish => (of_queries, across),
        };
        let of_head = if rows == 0 { 0 } else { u64::from(tiles) };
        let all = sequences.saturating_mul(heads);
        let [whole, apart] = match step {
            Step::Main => self.heads_of_keys(all).map(u64::from),
            Step::Prepare | Step::Finish => [all.into(), 0],
        };
        let share = forward.problem.heads[0].checked_div(forward.problem.heads[1]).unwrap_or(1);
        let ctas = u64::from(if step == Step::Main { self.plan.cta.cluster } else { 1 });
        let of_apart = u64::from(share).saturating_mul(self.plan.spec.apart.into());
        // Counts are prepared without any queries, too.
        let least = if step == Step::Prepare { passed.words_of_counts().min(1) } else { 0 };
        let of_head =
            of_head.saturating_mul(whole.saturating_mul(ctas).saturating_add(apart.saturating_mul(of_apart)));
        of_head.max(least)
    }
}

impl Kernel<BackwardCall> for AttentionBackward {
    fn program(&self) -> Result<Program, VerifyError> {
        let Some(step) = self.step else { return self.step(Step::Main).program() };
        let (plan, name) = (&self.plan, self.name());
        let small = |name, threads, shared_bytes| Entry {
            name,
            target: AttentionPlan::TARGET,
            threads,
            shared_bytes,
            cluster: [1, 1, 1],
        };
        let entry = match step {
            Step::Main => plan.cta.entry(name),
            Step::Prepare => small(name + "_prepare", emit::PREPARE_THREADS, 0),
            Step::Finish => {
                small(name + "_finish", plan.products.dq.spec().warpgroups * 128, emit::finish_bytes(plan))
            }
        };
        Program::of(self, entry, |f| match step {
            Step::Prepare => emit::prepare(f, plan),
            Step::Main => emit::main(f, plan, &*self.scores),
            Step::Finish => emit::finish(f, plan),
        })
    }

    fn total_work(&self, call: &BackwardCall) -> u128 {
        let AttentionCall { problem, packed, counts, .. } = &call.forward;
        let AttentionProblem { heads: [heads, shared], queries, keys, .. } = *problem;
        let Passed { across, blocks, .. } = self.passed(problem, packed);
        let [[sequences, ..], _] = self.extents(problem, packed);
        let BackwardSpec { tile: [rows, block], mask, .. } = self.plan.spec;
        let [sequences, heads, shared, across, blocks] =
            [sequences, heads, shared, across, blocks].map(u128::from);
        match self.step {
            Some(Step::Prepare | Step::Finish) => sequences * heads * across,
            Some(Step::Main) | None => {
                // Tiles of queries that see a block of keys.
                let seen = blocks_seen(mask, counts, [keys, queries], [block, rows]).min(across);
                sequences * blocks * (heads * seen + shared)
            }
        }
    }

    fn steps(&self) -> Vec<Box<dyn Kernel<BackwardCall> + '_>> {
        let all = [Step::Prepare, Step::Main, Step::Finish].into_iter();
        all.filter(|_| self.step.is_none()).map(|step| Box::new(self.step(step)) as _).collect()
    }

    fn workspace(&self, call: &BackwardCall, _slots: u32) -> u64 {
        if self.step.is_some() {
            0
        } else {
            Self::workspace(self, &call.forward.problem, &call.forward.packed)
        }
    }

    fn lend_workspace(&self, call: &mut BackwardCall, workspace: Option<Buffer>) {
        // A program alone has the caller's.
        if self.step.is_none() {
            call.workspace = workspace;
        }
    }

    fn launch(&self, call: &BackwardCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Some(step) = self.step else { return self.step(Step::Main).launch(call, resident) };
        self.check(call)?;
        // Who walks over blocks counts them in 32 bits: what is too many for a grid is refused, though fewer CTAs are launched.
        let (all, walks) = (self.ctas(step, call), step == Step::Main && self.plan.walks());
        let fit = walks && i32::try_from(all).is_ok();
        let ctas = if fit { all.min(resident.max(1).into()) } else { all };
        Launch::of(self, call, |of| u64::from(of.bits / 8), ctas)
    }

    fn visit(&self, call: &mut BackwardCall, visit: &mut dyn Visit) {
        self.visit_parts(call, visit);
        if let Some(step) = self.step {
            Buffer::visit_workspace(&mut call.workspace, true, visit);
            self.state(step, call, visit);
        }
    }
}

impl AttentionBackward {
    /// The tensors of a call that one program accesses, or all do.
    fn tensors<'c>(&self, step: Option<Step>, call: &'c mut BackwardCall) -> Vec<HeadTensor<'c>> {
        use Step::{Finish, Main, Prepare};
        let BackwardCall { forward, d_o, d_q, d_k, d_v, .. } = call;
        let [of_queries, of_keys] = self.extents(&forward.problem, &forward.packed);
        let AttentionProblem { queries, keys, .. } = forward.problem;
        let BackwardSpec { format, head: [d, dv], .. } = self.plan.spec;
        let rows = |most| if self.plan.is_packed() { HeadRows::Packed(most) } else { HeadRows::Equal };
        let (of_queries, of_keys) = ((of_queries, rows(queries)), (of_keys, rows(keys)));
        let [[k_tile, v_tile], [q_tile, do_tile]] = [self.plan.tiles.keys, self.plan.tiles.queries];
        let [dk_tile, dv_tile] = self.plan.tiles.outputs;
        let map = |name, tile| (Main, Reached::Map(name, tile, [1; 2]));
        let strides = |step, names| (step, Reached::Strides(names, 16));
        [
            ("Q", &mut forward.q, (of_queries, d), Some(0), [Some(map("q_map", q_tile)), None]),
            ("K", &mut forward.k, (of_keys, d), Some(1), [Some(map("k_map", k_tile)), None]),
            ("V", &mut forward.v, (of_keys, dv), Some(1), [Some(map("v_map", v_tile)), None]),
            ("O", &mut forward.o, (of_queries, dv), Some(0), [Some(strides(Prepare, crate::emit::O)), None]),
            (
                "dO",
                d_o,
                (of_queries, dv),
                Some(0),
                [Some(map("do_map", do_tile)), Some(strides(Prepare, emit::DO))],
            ),
            ("dQ", d_q, (of_queries, d), None, [Some(strides(Finish, emit::DQ)), None]),
            ("dK", d_k, (of_keys, d), None, [Some(map("dk_map", dk_tile)), None]),
            ("dV", d_v, (of_keys, dv), None, [Some(map("dv_map", dv_tile)), None]),
        ]
        .into_iter()
        .filter_map(|(name, at, (([batch, heads, lines], rows), d), operand, reached)| {
            let mut reached = reached.into_iter().flatten();
            let (_, reached) = reached.find(|(of, _)| step.is_none_or(|step| step == *of))?;
            Some(HeadTensor {
                name,
                at,
                shape: [batch, heads, lines, d],
                rows,
                format,
                used: operand.into(),
                reached,
            })
        })
        .collect()
    }

    /// Visits the parts of a call that one program accesses, or all do, apart from the workspace; and states the parameters of tensors.
    fn visit_parts(&self, call: &mut BackwardCall, visit: &mut dyn Visit) {
        call.forward.problem.visit(visit);
        HeadTensor::state_all(self.tensors(self.step, call), visit);
        let AttentionCall { problem, log_sum_exp, packed, .. } = &mut call.forward;
        if self.has(Step::Prepare) {
            let [of_queries, _] = self.extents(problem, packed);
            let rows = of_queries.iter().fold(1, |all: u64, &of| all.saturating_mul(of.into()));
            let (extents, contents) = (Extents::line(32, rows), Contents::Source(Format::F32));
            visit.input("log_sum_exp", (SUMS, log_sum_exp), extents, contents);
        }
        let entries = if self.plan.is_packed() { u64::from(problem.batch) + 1 } else { 0 };
        let reads_keys = self.has(Step::Main);
        packed.visit([entries, if reads_keys { entries } else { 0 }], visit);
        call.forward.visit_arguments(visit);
        let AttentionCall { problem, packed, .. } = &call.forward;
        let [of_queries, of_keys] = self.extents(problem, packed);
        let is_read = !of_queries.contains(&0) && !of_keys.contains(&0);
        let of_heads = [problem.batch, problem.heads[0]];
        if reads_keys {
            call.forward.head_numbers.visit(&*self.scores, of_heads, is_read, visit);
            arrays::visit(&mut call.forward.arrays, &*self.scores, is_read, visit);
        }
    }
}

/// The name of the memory of the log-sum-exp.
const SUMS: &str = "the log-sum-exp";

impl AttentionBackward {
    /// States the parameters after those of tensors.
    fn state(&self, step: Step, call: &BackwardCall, visit: &mut dyn Visit) {
        let AttentionCall { problem, packed, .. } = &call.forward;
        let passed = self.passed(problem, packed);
        let words_of_counts = passed.words_of_counts();
        let Passed {
            offsets: [exponents, row_sums, dq_sums, key_sums, drawn, arrived, zeroed, added],
            across,
            blocks,
            ahead,
            ..
        } = passed;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = *problem;
        let is_main = step == Step::Main;
        let [_, [sequences, ..]] = self.extents(problem, packed);
        let [whole, apart] = self.heads_of_keys(shared.saturating_mul(sequences));
        let mut passed = vec![("exponents", exponents), ("row_sums", row_sums)];
        passed.retain(|_| step != Step::Finish);
        passed.push(("dq_sums", dq_sums));
        for (name, offset) in passed {
            visit.address_in(name, WORKSPACE, offset);
        }
        if step == Step::Finish {
            problem.state_scale(visit);
        }
        if self.plan.spec.deterministic {
            visit.address_in("added", WORKSPACE, added);
        }
        if self.plan.zeros_ahead() && step != Step::Finish {
            ahead.state(visit);
        }
        if self.plan.zeros_ahead() && is_main {
            visit.address_in("zeroed", WORKSPACE, zeroed);
        }
        if self.plan.counts() && step == Step::Prepare {
            visit.address_in("counters", WORKSPACE, drawn);
            visit.number("words_of_counters", u32::try_from(words_of_counts).ok());
        }
        if self.plan.walks() && is_main {
            visit.address_in("drawn", WORKSPACE, drawn);
        }
        if self.plan.spec.apart > 0 && is_main {
            visit.address_in("arrived", WORKSPACE, arrived);
            visit.address_in("key_sums", WORKSPACE, key_sums);
        }
        if self.plan.is_packed() && is_main {
            packed.state(batch, true, visit);
        }
        visit.number("queries", Some(queries));
        if !is_main {
            visit.number("heads", Some(heads));
            visit.number("across", Some(across));
            if self.plan.is_packed() {
                packed.state(batch, false, visit);
            }
            return;
        }
        visit.number("keys", Some(keys));
        visit.number("heads", Some(shared));
        let share = heads / shared.max(1);
        let apart = apart.saturating_mul(share);
        visit.number("share", Some(share));
        let all_heads = if self.plan.spec.apart > 0 { apart } else { whole };
        visit.number("all_heads", Some(all_heads));
        visit.number("across", Some(across));
        visit.number("blocks", Some(blocks));
        let [section, last] = self.sections([all_heads, blocks]);
        visit.number("section", Some(section));
        visit.number("last", Some(last));
        if self.plan.spec.whole > 0 {
            let [section, last] = self.sections([whole, blocks]);
            visit.number("whole", Some(whole));
            visit.number("section_of_whole", Some(section));
            visit.number("last_of_whole", Some(last));
        }
        problem.state_scale(visit);
        visit.number("to_log2", Some(problem.exponents(self.scores.changes())[0]));
        call.forward.state_arguments(&*self.scores, visit);
    }
}
