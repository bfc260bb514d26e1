//! The kernel: from a spec to a program, and from a call to a launch.

use std::sync::Arc;

use collective::{Bounded, QueuePlan};
use kernel::operands::Visit;
use kernel::{Buffer, Kernel, Launch, LaunchError, Program};
use ptx::VerifyError;

use crate::emit;
use crate::error::AttentionError;
use crate::masks::of_spec;
use crate::plan::AttentionPlan;
use crate::problem::{AttentionCall, AttentionProblem};
use crate::scores::{AnyScores, Scope, Scores, any};
use crate::spec::{AttentionSpec, Lengths, Mask, Order, Parts};

/// An attention kernel: `O = softmax(scale * Q * K^T) * V`, per head, with a mask and scores as its [`Scores`]
/// say.
///
/// A query that sees no key has zeros in O, and minus infinity as its log-sum-exp.
///
/// ```
/// use attention::{Attention, AttentionCall, AttentionProblem, AttentionSpec, HeadsRef};
/// use kernel::{Emulator, Engine, Kernel};
///
/// let attention = Attention::new(AttentionSpec { head: [64, 64], ..AttentionSpec::DEFAULT })?;
/// let mut engine = Emulator::new();
/// // One head, 3 queries, 5 keys; everything is 1.0.
/// let ones = |rows: usize| [0x80, 0x3f].repeat(rows * 64);
/// let (q, kv) = (engine.upload(&ones(3))?, engine.upload(&ones(5))?);
/// let o = engine.allocate(3 * 64 * 2)?;
/// let at = |address, length| HeadsRef::heads_first(address, [1, length, 64]);
/// let problem = AttentionProblem::new(1, 1, [3, 5], 64);
/// let tensors = [at(q.address, 3), at(kv.address, 5), at(kv.address, 5)];
/// attention.run(&mut engine, &AttentionCall::new(problem, tensors, at(o.address, 3)))?;
/// assert_eq!(engine.read(o)?, ones(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Attention {
    pub(crate) plan: AttentionPlan,
    pub(crate) scores: Arc<dyn AnyScores>,
}

impl Attention {
    /// The kernel of a spec.
    ///
    /// # Errors
    /// Those of [`AttentionPlan::new`].
    pub fn new(spec: AttentionSpec) -> Result<Self, AttentionError> {
        Ok(Self { plan: AttentionPlan::new(spec)?, scores: of_spec(&spec) })
    }

    /// The kernel of a spec with a mask or a score function of your own in place of the spec's.
    ///
    /// # Errors
    /// Those of [`AttentionPlan::new`].
    pub fn with<S: Scores>(spec: AttentionSpec) -> Result<Self, AttentionError> {
        Ok(Self { plan: AttentionPlan::new(spec)?, scores: any::<S>() })
    }

    /// Every number of the kernel.
    pub const fn plan(&self) -> &AttentionPlan {
        &self.plan
    }

    /// Whether its mask is one that specs can name, and not one of the user's own.
    #[cfg(feature = "records")]
    pub(crate) fn has_masks_of_specs(&self) -> bool {
        let of_spec = Self::new(self.plan.spec).map(|of_spec| of_spec.scores.name());
        of_spec.is_ok_and(|name| name == self.scores.name())
    }

    /// The kernel's name.
    pub fn name(&self) -> String {
        let AttentionSpec { format, cache, head: [d, dv], tile: [rows, keys], .. } = self.plan.spec;
        let cache = cache.map_or_else(String::new, |cache| format!("_{cache}"));
        let heads = if d == dv { d.to_string() } else { format!("{d}x{dv}") };
        let AttentionSpec { sinks, lengths, pages, pack, parts, order, .. } = self.plan.spec;
        let sinks = if sinks { "_sinks" } else { "" };
        let packed = if lengths == Lengths::Packed { "_packed" } else { "" };
        let pages = pages.map_or_else(String::new, |page| format!("_pages{page}"));
        let order = if order == Order::Drawn { "_drawn" } else { "" };
        let pack = if pack > 1 { format!("_pack{pack}") } else { String::new() };
        let parts = match parts {
            Parts::One => String::new(),
            Parts::Count(_) => "_parts".to_owned(),
            Parts::Keys(keys) => format!("_part{keys}"),
        };
        format!(
            "attention_{format}{cache}_{heads}_{rows}x{keys}_{}{sinks}{packed}{pages}{pack}{parts}{order}",
            self.scores.name()
        )
    }

    /// Whether query `row` sees key `key`, on the host.
    pub fn sees(&self, of: &Scope<'_, i64>, row: i64, key: i64) -> bool {
        self.scores.host_sees(of, row, key)
    }

    /// The score of a query and a key, on the host. `x` is their product times the scale; its error, and the
    /// result's, bound those of the device.
    pub fn score(&self, of: &Scope<'_, i64>, place: [i64; 2], x: Bounded) -> Bounded {
        self.scores.host_score(of, place, x)
    }

    /// Bytes of workspace that a call needs; 0 if keys are not divided and tiles are not drawn.
    pub fn workspace(&self, call: &AttentionCall) -> u64 {
        self.divided(call).map_or(0, |divided| divided.bytes).saturating_add(self.of_counter())
    }

    /// Bytes at the beginning of the workspace for the counter of tiles, if they are drawn.
    pub(crate) const fn of_counter(&self) -> u64 {
        if matches!(self.plan.spec.order, Order::Drawn) { QueuePlan::WORKSPACE_BYTES } else { 0 }
    }

    /// How the keys of a call are divided.
    pub(crate) fn divided(&self, call: &AttentionCall) -> Option<Divided> {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = call.problem;
        let AttentionSpec { parts, head: [_, dv], tile: [rows, _], lengths, pack, .. } = self.plan.spec;
        let count = match parts {
            Parts::One => return None,
            Parts::Count(count) => count,
            Parts::Keys(part) => keys.div_ceil(part).max(1),
        };
        let per_tile = rows / pack;
        let (all, across) = match lengths {
            Lengths::Equal => (
                u64::from(batch) * u64::from(queries),
                u64::from(batch) * u64::from(queries.div_ceil(per_tile)),
            ),
            Lengths::Packed => {
                (call.packed.rows[0].into(), u64::from(call.packed.rows[0] / per_tile) + u64::from(batch))
            }
        };
        let rows = u64::from(heads).saturating_mul(all);
        let of_query = self.plan.spec.rows_of_query(heads.checked_div(shared).unwrap_or(1)).max(1);
        // One per tile.
        let counters = across.saturating_mul(u64::from(heads / of_query));
        let aligned = |bytes: u64| bytes.checked_next_multiple_of(256).unwrap_or(u64::MAX);
        let sums = aligned(counters.saturating_mul(4));
        let outputs = aligned(rows.saturating_mul(u64::from(count) * 4)).saturating_add(sums);
        let bytes = rows.saturating_mul(u64::from(count) * u64::from(dv) * 4).saturating_add(outputs);
        let offsets = [0, sums, outputs].map(|offset| offset.saturating_add(self.of_counter()));
        Some(Divided { count, rows, offsets, bytes })
    }

    /// Heads of tiles that are mixed. If later queries see more keys, these are the fewest whose tiles fill their rounds, or, if tiles of
    /// equal lengths are drawn, those whose K and V L2 keeps; otherwise those that share K and V. `bytes` are those of a head's K and V, of `keys` keys.
    pub(crate) fn section(
        &self,
        [batch, heads, share]: [u32; 3],
        [across, ctas]: [u32; 2],
        (keys, bytes): (u32, u64),
    ) -> u32 {
        if !self.scores.grows() {
            return share;
        }
        let all = batch.saturating_mul(heads).max(1);
        let AttentionSpec { order, lengths, .. } = self.plan.spec;
        if order == Order::Drawn && lengths == Lengths::Equal {
            let most = if keys > SHORT.0 { LONG } else { SHORT.1 };
            return of_section(all.into(), most, bytes);
        }
        self.rounds(all, [across, ctas])
    }

    /// The fewest heads of `all` whose tiles fill their rounds.
    pub(crate) fn rounds(&self, all: u32, [across, ctas]: [u32; 2]) -> u32 {
        let idle = |heads: u32| {
            let tiles = u64::from(heads) * u64::from(across);
            // Per thousand tiles; up to 40 is as good as none.
            let rounded = tiles.next_multiple_of(ctas.into());
            ((rounded - tiles) * 1000 / tiles.max(1)).max(40)
        };
        let most = all.min((4 * ctas).div_ceil(across).max(4));
        (1..=most).min_by_key(|&heads| idle(heads)).unwrap_or(1)
    }
}

/// Up to how many keys reading K and V decides, and bytes of K and V of the heads that are mixed then, and otherwise. With a causal mask and
/// 512 keys, 12 MiB are 6 % slower than 8; from 2048 on, 40 are as fast, and the last long tile begins earlier.
const SHORT: (u32, u64) = (1024, 8 << 20);
const LONG: u64 = 32 << 20;

/// Heads of a section, if `all` are divided into equal ones of at most `most` bytes, and at least a head.
pub(crate) fn of_section(all: u64, most: u64, bytes: u64) -> u32 {
    let together = (most / bytes.max(1)).max(1);
    let sections = all.div_ceil(together).max(1);
    u32::try_from(all.div_ceil(sections)).unwrap_or(u32::MAX).max(1)
}

/// Blocks of `block` keys that `rows` queries see at most; in the mean, if a causal mask grows.
pub(crate) fn blocks_seen(
    mask: Mask,
    counts: &[i32],
    [queries, keys]: [u32; 2],
    [rows, block]: [u32; 2],
) -> u128 {
    let all = u128::from(keys.div_ceil(block));
    let around = |keys: u64| (u128::from(keys + u64::from(rows)).div_ceil(block.into()) + 1).min(all);
    let sum = || counts.iter().map(|&count| u64::from(count.max(0).cast_unsigned())).sum();
    match mask {
        Mask::Causal if keys >= queries => around(u64::from(keys - queries / 2)),
        Mask::Window | Mask::Chunked => around(sum()),
        Mask::Full | Mask::Causal => all,
    }
}

/// How the keys of a call are divided.
pub(crate) struct Divided {
    /// Most parts of a tile.
    pub(crate) count: u32,
    /// Rows of O.
    pub(crate) rows: u64,
    /// Bytes of the workspace before the counters, the log-sum-exps of parts, and their O.
    pub(crate) offsets: [u64; 3],
    /// Bytes of the workspace.
    bytes: u64,
}

impl Kernel<AttentionCall> for Attention {
    fn program(&self) -> Result<Program, VerifyError> {
        let plan = &self.plan;
        Program::of(self, plan.cta.entry(self.name()), |f| {
            emit::emit(f, plan, &*self.scores);
        })
    }

    fn launch(&self, call: &AttentionCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        self.launched(call, resident)
    }

    fn workspace(&self, call: &AttentionCall, _slots: u32) -> u64 {
        Self::workspace(self, call)
    }

    fn total_work(&self, call: &AttentionCall) -> u128 {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = call.problem;
        let AttentionSpec { tile: [rows, block], mask, lengths, pack, .. } = self.plan.spec;
        let per_tile = rows / pack;
        let tiles = match lengths {
            Lengths::Equal => u128::from(batch) * u128::from(queries.div_ceil(per_tile)),
            Lengths::Packed => u128::from(call.packed.rows[0] / per_tile) + u128::from(batch),
        };
        let groups = heads / self.plan.spec.rows_of_query(heads.checked_div(shared).unwrap_or(1)).max(1);
        // A part of a tile stores as a tile does.
        let parts = self.divided(call).map_or(1, |divided| divided.count);
        let seen = blocks_seen(mask, &call.counts, [queries, keys], [per_tile, block]);
        tiles * u128::from(groups) * (seen + u128::from(parts))
    }

    fn lend_workspace(&self, call: &mut AttentionCall, workspace: Option<Buffer>) {
        call.workspace = workspace;
    }

    fn visit(&self, call: &mut AttentionCall, visit: &mut dyn Visit) {
        self.interface(call, None, visit);
    }
}
