//! The kernel of a spec.

use std::sync::Arc;

use collective::{Bounded, QueuePlan};

use crate::call::AttentionCall;
use crate::error::AttentionError;
use crate::formula::HostArrays;
use crate::masks::of_spec;
use crate::plan::AttentionPlan;
use crate::scores::{AnyScores, Scope, Scores, any};
use crate::spec::{AttentionSpec, Lengths, Order, Parts};
use kernel::words::Both;
use kernel::words::Worded as _;

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

    /// The kernel's name.
    pub fn name(&self) -> String {
        let AttentionSpec { format, cache, head, tile: [rows, keys], .. } = self.plan.spec;
        let cache = cache.map_or_else(String::new, |cache| format!("_{cache}"));
        let heads = Both(head).text().unwrap_or_default();
        let AttentionSpec { sinks, lengths, pages, pack, parts, ctas, order, .. } = self.plan.spec;
        let sinks = if sinks { "_sinks" } else { "" };
        let packed = if lengths == Lengths::Packed { "_packed" } else { "" };
        let pages = pages.map_or_else(String::new, |page| format!("_pages{page}"));
        let order = if order == Order::Drawn { "_drawn" } else { "" };
        let ctas = if ctas > 1 { format!("_ctas{ctas}") } else { String::new() };
        let pack = if pack > 1 { format!("_pack{pack}") } else { String::new() };
        let parts = match parts {
            Parts::One => String::new(),
            Parts::Count(_) => if parts.are_many() { "_manyparts" } else { "_parts" }.to_owned(),
            Parts::Keys(keys) => format!("_part{keys}"),
            Parts::Cluster(count) => format!("_cluster{count}"),
        };
        format!(
            "attention_{format}{cache}_{heads}_{rows}x{keys}_{}{sinks}{packed}{pages}{pack}{parts}{ctas}{order}",
            self.scores.name()
        )
    }

    /// Whether query `row` sees key `key`, on the host, where `arrays` has the elements of a formula's arrays.
    pub fn sees(&self, of: &Scope<'_, i64>, arrays: HostArrays<'_>, row: i64, key: i64) -> bool {
        self.scores.host_sees(of, arrays, row, key)
    }

    /// The score of a query and a key, on the host. `x` is their product times the scale; its error, and the
    /// result's, bound those of the device.
    pub fn score(&self, of: &Scope<'_, i64>, arrays: HostArrays<'_>, place: [i64; 2], x: Bounded) -> Bounded {
        self.scores.host_score(of, arrays, place, x)
    }

    /// Bytes of workspace that a call needs; 0 if keys are not divided and tiles are not drawn.
    pub fn workspace(&self, call: &AttentionCall) -> u64 {
        self.divided(call).map_or(0, |divided| divided.bytes).saturating_add(self.of_counter())
    }

    /// Bytes at the beginning of the workspace for the counter of tiles, if they are drawn.
    pub(crate) const fn of_counter(&self) -> u64 {
        if matches!(self.plan.spec.order, Order::Drawn) { QueuePlan::WORKSPACE_BYTES } else { 0 }
    }
}
