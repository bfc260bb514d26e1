//! The kernel: from a spec to a program, and from a call to a launch.

use std::sync::Arc;

use collective::{Batch, Bounded, Format, Matrix, MatrixRef, OperandTile};
use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{Kernel, Launch, LaunchError, MatrixRule, Program, StrideRule};
use ptx::abi::{Argument, Grid, TensorMap};
use ptx::{Function, VerifyError};

use crate::emit;
use crate::plan::{AttentionError, AttentionPlan};
use crate::problem::{AttentionCall, AttentionProblem, HeadsRef};
use crate::scores::{AnyScores, Causal, Full, Scope, Scores, any};
use crate::spec::{AttentionSpec, Mask};

/// Extents are below this.
const LIMIT: u32 = 1 << 31;

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
    plan: AttentionPlan,
    scores: Arc<dyn AnyScores>,
}

impl Attention {
    /// The kernel of a spec.
    ///
    /// # Errors
    /// Those of [`AttentionPlan::new`].
    pub fn new(spec: AttentionSpec) -> Result<Self, AttentionError> {
        let scores = match spec.mask {
            Mask::Full => any::<Full>(),
            Mask::Causal => any::<Causal>(),
        };
        Ok(Self { plan: AttentionPlan::new(spec)?, scores })
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
        let AttentionSpec { format, head: [d, dv], tile: [rows, keys], .. } = self.plan.spec;
        let heads = if d == dv { d.to_string() } else { format!("{d}x{dv}") };
        format!("attention_{format}_{heads}_{rows}x{keys}_{}", self.scores.name())
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

    /// How tiles are numbered: for each group of heads that CTAs work on at the same time, all tiles of queries.
    fn section(&self, problem: &AttentionProblem) -> u32 {
        let AttentionProblem { batch, heads: [heads, shared], keys, .. } = *problem;
        let [d, dv] = self.plan.spec.head;
        let bytes = u64::from(keys).max(1) * u64::from(d + dv) * u64::from(self.plan.spec.format.bytes());
        let together =
            ((u64::from(self.plan.spec.l2) << 20) / bytes).max(1) * u64::from(heads / shared.max(1));
        let all = u64::from(batch) * u64::from(heads);
        // Sections of about the same number of heads.
        let sections = all.div_ceil(together).max(1);
        u32::try_from(all.div_ceil(sections)).unwrap_or(u32::MAX).max(1)
    }
}

/// Checks a problem.
pub(crate) fn check_problem(problem: &AttentionProblem) -> Result<(), LaunchError> {
    let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = *problem;
    for (name, extent) in [
        ("the number of sequences", batch),
        ("the number of heads", heads),
        ("the number of queries", queries),
        ("the number of keys", keys),
    ] {
        if extent >= LIMIT {
            return Err(LaunchError::Extent { name, extent: extent.into(), limit: LIMIT });
        }
    }
    let refused = |reason| Err(LaunchError::Problem { reason });
    if shared == 0 && heads > 0 || shared > 0 && !heads.is_multiple_of(shared) {
        return refused(format!(
            "there are {heads} heads of queries and {shared} of keys, a multiple of the latter was needed"
        ));
    }
    if !(scale > 0.0 && scale.is_finite()) {
        return refused(format!("the scale is {scale}, a finite number above zero was needed"));
    }
    Ok(())
}

/// Checks a tensor with `rows` rows of `d` elements.
pub(crate) fn check_tensor(
    (name, of): (&'static str, HeadsRef),
    [batch, heads, rows, d]: [u32; 4],
    (format, alignment): (Format, u64),
) -> Result<(), LaunchError> {
    let HeadsRef { address, row, head, batch: sequence } = of;
    let bytes = format.bytes().into();
    let rule = MatrixRule { name, contiguous: d, lines: rows, bytes, alignment };
    rule.check(MatrixRef::new(address, row))?;
    let rule = StrideRule { name, bits: format.bits().into(), alignment };
    rule.check(heads, head, address)?;
    rule.check(batch, sequence, address)?;
    Ok(())
}

/// The tensor map of the heads of a tensor, for copies of a tile.
pub(crate) fn map(tile: &OperandTile, of: HeadsRef, [batch, heads, rows, d]: [u32; 4]) -> TensorMap {
    let [mn, k] = match tile.major() {
        cute_rs::atom::Major::K => [rows, d],
        cute_rs::atom::Major::Mn => [d, rows],
    };
    let mut map = tile.tensor_map(Matrix { address: of.address, mn, k, ld: of.row, batch: Batch::ONE });
    let bytes = u64::from(tile.format().bytes());
    for (count, stride) in [(heads, of.head), (batch, of.batch)] {
        // After the only one nothing follows, so any legal distance will do.
        let stride = if count > 1 { stride } else { of.row };
        map.dims.push(u64::from(count).max(1));
        map.strides.push(stride * bytes);
        map.box_dims.push(1);
    }
    map
}

impl Kernel<AttentionCall> for Attention {
    fn program(&self) -> Result<Program, VerifyError> {
        let plan = &self.plan;
        Program::new(Function::build(plan.cta.entry(self.name()), |f| emit::emit(f, plan, &*self.scores)))
    }

    fn launch(&self, call: &AttentionCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        let AttentionCall { problem, q, k, v, o, log_sum_exp, ref counts, ref reals } = *call;
        check_problem(&problem)?;
        let given = [counts.len(), reals.len()];
        let needed = [self.scores.counts().len(), self.scores.reals().len()];
        if given != needed {
            let [[counts, reals], [needed_counts, needed_reals]] = [given, needed];
            let reason = format!(
                "{} takes {needed_counts} whole and {needed_reals} real arguments, {counts} and {reals} were given",
                self.scores.name()
            );
            return Err(LaunchError::Problem { reason });
        }
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = problem;
        if batch == 0 || heads == 0 || queries == 0 {
            return Ok(None);
        }
        let plan = &self.plan;
        let AttentionSpec { format, output, head: [d, dv], tile: [rows, _], .. } = plan.spec;
        check_tensor(("Q", q), [batch, heads, queries, d], (format, 16))?;
        let [k, v] = if keys > 0 {
            check_tensor(("K", k), [batch, shared, keys, d], (format, 16))?;
            check_tensor(("V", v), [batch, shared, keys, dv], (format, 16))?;
            [k, v]
        } else {
            // Nothing is read. The tensor maps must still be legal.
            [HeadsRef { row: dv.max(d).into(), head: 8, batch: 8, ..HeadsRef::default() }; 2]
        };
        let alignment = if plan.output.is_some() { 16 } else { output.bytes().into() };
        check_tensor(("O", o), [batch, heads, queries, dv], (output, alignment))?;
        if !log_sum_exp.is_multiple_of(4) {
            let (name, address, alignment) = ("the log-sum-exp", log_sum_exp, 4);
            return Err(LaunchError::Address { name, address, alignment });
        }
        let across = queries.div_ceil(rows);
        let tiles = u128::from(across) * u128::from(heads) * u128::from(batch);
        let Some(tiles) = u32::try_from(tiles).ok().filter(|&tiles| tiles < LIMIT) else {
            let (m, n) = (across.into(), u128::from(heads) * u128::from(batch));
            return Err(LaunchError::TooManyTiles { m, n, most: LIMIT - 1 });
        };
        let factor = if self.scores.changes() { 1.0 } else { scale };
        let mut arguments: Vec<Argument> = vec![
            map(&plan.tiles[0], q, [batch, heads, queries, d]).into(),
            map(&plan.tiles[1], k, [batch, shared, keys, d]).into(),
            map(&plan.tiles[2], v, [batch, shared, keys, dv]).into(),
        ];
        match &plan.output {
            Some(tile) => arguments.push(map(tile, o, [batch, heads, queries, dv]).into()),
            None => {
                let bytes = u64::from(output.bytes());
                let strides = [o.row, o.head, o.batch].map(|stride| stride * bytes);
                // Neighbours are stored together if they all begin at a multiple of their size.
                let pairs = [o.address, strides[0], strides[1], strides[2]];
                let pairs = pairs.iter().all(|of| of.is_multiple_of(2 * bytes));
                arguments.push(o.address.into());
                arguments.extend(strides.map(Argument::from));
                arguments.push(u32::from(pairs).into());
            }
        }
        arguments.push(log_sum_exp.into());
        let numbers = [queries, keys, heads, heads / shared, tiles, across, self.section(&problem)];
        arguments.extend(numbers.map(Argument::from));
        arguments.extend([scale, factor * core::f32::consts::LOG2_E, factor].map(Argument::from));
        arguments.extend(counts.iter().map(|count| Argument::from(count.cast_unsigned())));
        arguments.extend(reals.iter().copied().map(Argument::from));
        Ok(Some(Launch { grid: Grid { ctas: [slots.min(tiles).max(1), 1, 1] }, arguments }))
    }

    fn visit(&self, call: &mut AttentionCall, visit: &mut dyn Visit) {
        let AttentionSpec { format, output, head: [d, dv], .. } = self.plan.spec;
        let AttentionCall { problem, q, k, v, o, log_sum_exp, counts, reals } = call;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = problem;
        let extents = [*batch, *heads, *queries];
        let read = [*batch, *shared, if extents.contains(&0) { 0 } else { *keys }];
        for count in [batch, heads, shared, queries, keys] {
            visit.count(count);
        }
        visit.factor(scale);
        let with = |[batch, heads, rows]: [u32; 3], d| [batch, heads, rows, d];
        for (name, of, extents, contents) in [
            ("Q", q, with(extents, d), Contents::Multiplied(0, format)),
            ("K", k, with(read, d), Contents::Multiplied(1, format)),
            ("V", v, with(read, dv), Contents::Multiplied(1, format)),
            ("O", o, with(extents, dv), Contents::Output(output)),
        ] {
            let (writes, format) = (name == "O", if name == "O" { output } else { format });
            let extents = Extents::line(format.bits(), of.reach(extents));
            visit.memory(Memory { name, address: &mut of.address, extents, contents, writes });
            [&mut of.row, &mut of.head, &mut of.batch].into_iter().for_each(|length| visit.length(length));
        }
        let given = *log_sum_exp != 0;
        visit.form(given.into());
        let rows = extents.map(u64::from).into_iter().product();
        let extents = Extents::line(32, if given { rows } else { 0 });
        let (name, contents) = ("the log-sum-exp", Contents::Output(Format::F32));
        visit.memory(Memory { name, address: log_sum_exp, extents, contents, writes: true });
        for count in counts {
            let mut bits = count.cast_unsigned();
            visit.count(&mut bits);
            *count = bits.cast_signed();
        }
        reals.iter_mut().for_each(|real| visit.factor(real));
    }
}
