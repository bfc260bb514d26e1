//! Merging the parts of keys: [`Merge`].

use collective::{Accuracy, Elementary, Fast, Format, Real};
use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{Kernel, Launch, LaunchError, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Builder, Entry, Function, Special, Value, VerifyError};

use crate::kernel::check_tensor;
use crate::plan::AttentionPlan;
use crate::problem::HeadsRef;

/// Rows of a CTA, one per warp.
const ROWS: u32 = 4;

/// Merges what a kernel with `parts=on` has computed: O and the log-sum-exp of each part of the keys become those of all
/// keys, always in the order of the parts.
///
/// With `s_p` the log-sum-exp of part `p`, and `s` that of all, `O = sum exp(s_p - s) * O_p`.
///
/// ```
/// use attention::{Attention, AttentionCall, AttentionProblem, HeadsRef, Merge, MergeCall, Parts};
/// use collective::Format;
/// use kernel::{Emulator, Engine, Kernel};
///
/// // 2 queries, 300 keys in 3 parts; everything is 1.0.
/// let attention = Attention::new("d=64 tile=64x64 parts=on store=direct output=f32".parse()?)?;
/// let mut engine = Emulator::new();
/// let ones = |rows: usize| [0x80, 0x3f].repeat(rows * 64);
/// let (q, kv) = (engine.upload(&ones(2))?, engine.upload(&ones(300))?);
/// let (o, each, sums) = (engine.allocate(2 * 128)?, engine.allocate(3 * 2 * 256)?, engine.allocate(3 * 2 * 4)?);
/// let at = |address, length| HeadsRef::heads_first(address, [1, length, 64]);
/// let problem = AttentionProblem::new(1, 1, [2, 300], 64);
/// let tensors = [at(q.address, 2), at(kv.address, 300), at(kv.address, 300)];
/// let parts = Parts { count: 3, stride: 2 * 64 };
/// let call = AttentionCall { parts, log_sum_exp: sums.address, ..AttentionCall::new(problem, tensors, at(each.address, 2)) };
/// attention.run(&mut engine, &call)?;
/// Merge::new(Format::Bf16, 64)?.run(&mut engine, &MergeCall::of(&call, at(o.address, 2), 0))?;
/// assert_eq!(engine.read(o)?, ones(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    output: Format,
    head: u32,
}

/// A call of [`Merge`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MergeCall {
    /// Sequences, heads and queries. Sequences of different lengths are one of all queries.
    pub extents: [u32; 3],
    /// The parts.
    pub parts: Parts,
    /// O of the first part, `f32`.
    pub each: HeadsRef,
    /// Device address of the log-sum-exp of the first part; those of the next part follow it.
    pub each_log_sum_exp: u64,
    /// O.
    pub o: HeadsRef,
    /// Device address of the log-sum-exp of all keys; 0 if it is not needed.
    pub log_sum_exp: u64,
}

/// Into how many parts the keys of a tile are divided, and where the results of a part are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Number of parts, of about the same number of blocks of keys. Some may have none.
    pub count: u32,
    /// Elements from O of one part to O of the next one.
    pub stride: u64,
}

impl MergeCall {
    /// The merge that follows a call with parts.
    pub fn of(call: &crate::AttentionCall, o: HeadsRef, log_sum_exp: u64) -> Self {
        let crate::AttentionProblem { batch, heads: [heads, _], queries, .. } = call.problem;
        let differ = call.packed != crate::Packed::default();
        let extents =
            if differ { [batch.min(1), heads, call.packed.rows[0]] } else { [batch, heads, queries] };
        Self { extents, parts: call.parts, each: call.o, each_log_sum_exp: call.log_sum_exp, o, log_sum_exp }
    }
}

impl Merge {
    /// The kernel for heads of V of `head` elements.
    ///
    /// # Errors
    /// The number of elements is no multiple of 32 up to 256, or the format is not `bf16`, `f16` or `f32`.
    pub fn new(output: Format, head: u32) -> Result<Self, crate::AttentionError> {
        if head == 0 || head > 256 || !head.is_multiple_of(32) {
            let (field, needed) = ("d of O", "a multiple of 32 up to 256");
            return Err(crate::AttentionError::Number { field, value: head, needed });
        }
        if !matches!(output, Format::Bf16 | Format::F16 | Format::F32) {
            let (field, needed) = ("output", "bf16, f16 or f32");
            return Err(crate::AttentionError::Format { field, format: output, needed });
        }
        Ok(Self { output, head })
    }

    fn emit<'f>(&self, f: &'f Builder) {
        let [each, sums, o, log_sum_exp] =
            ["each", "each_log_sum_exp", "o", "log_sum_exp"].map(|name| f.param::<u64>(name));
        let numbers = ["each_row", "each_head", "each_batch", "each_part", "o_row", "o_head", "o_batch"];
        let [each_row, each_head, each_batch, each_part, o_row, o_head, o_batch] =
            numbers.map(|name| f.number(name));
        let [parts, queries, heads, rows] =
            ["parts", "queries", "heads", "rows"].map(|name| f.param::<u32>(name));
        let (lane, warp) = (f.special(Special::ThreadX) % 32, f.warp_index());
        let index = f.special(Special::CtaX) * ROWS + warp;
        f.if_(index.less_than(rows), || {
            let place = [index % queries, index / queries % heads, index / queries / heads];
            let place = place.map(Value::cast::<u64>);
            let at = |strides: [Value<'f, u64>; 3]| {
                place.iter().zip(strides).map(|(&at, stride)| at * stride).reduce(|a, b| a + b)
            };
            let (Some(from), Some(to)) =
                (at([each_row, each_head, each_batch]), at([o_row, o_head, o_batch]))
            else {
                return;
            };
            let sum_of = |part: Value<'f, u32>| {
                f.load_global::<f32>(sums + (part.mul_wide(rows) + index.cast::<u64>()) * 4, 0)
            };
            let most = f.variable(f32::NEG_INFINITY);
            f.repeat(parts, |part| most.set(Real::max(most.get(), sum_of(part))));
            let base = f.constant(0.0).where_or(most.get().equals(f32::NEG_INFINITY), most.get());
            let columns = (self.head / 32) as usize;
            let (total, values) =
                (f.variable(0.0f32), (0..columns).map(|_| f.variable(0.0f32)).collect::<Vec<_>>());
            let source = each + from + lane.mul_wide(4u32);
            f.repeat(parts, |part| {
                let weight = Fast::of(Elementary::Exp2, (sum_of(part) - base) * core::f32::consts::LOG2_E);
                total.set(total.get() + weight);
                let first = source + part.cast::<u64>() * each_part;
                // A part without keys has a weight of zero, and elements of zero.
                for (value, column) in values.iter().zip((0..).step_by(128)) {
                    value.set(f.load_global::<f32>(first, column).mul_add(weight, value.get()));
                }
            });
            let (none, total) = (total.get().equals(0.0), total.get());
            let factor = f.constant(0.0).where_or(none, Fast::divide(f.constant(1.0), total));
            let bytes = self.output.bytes();
            let target = o + to + lane.mul_wide(bytes);
            for (value, column) in values.iter().zip((0..).step_by(32 * bytes as usize)) {
                let value = value.get() * factor;
                let [element, _] = self.output.unpack(f, self.output.pack(f, [value, value]));
                element.store_global(target, column);
            }
            f.if_(lane.equals(0) & log_sum_exp.differs_from(0), || {
                let value = Fast::ln(total) + base;
                let value = f.constant(f32::NEG_INFINITY).where_or(none, value);
                f.store_global(log_sum_exp + index.mul_wide(4u32), 0, [value]);
            });
        });
    }
}

impl Kernel<MergeCall> for Merge {
    fn program(&self) -> Result<Program, VerifyError> {
        let name = format!("attention_merge_{}_{}", self.output, self.head);
        let (target, threads) = (AttentionPlan::TARGET, 32 * ROWS);
        let entry = Entry { name, target, threads, shared_bytes: 0, cluster: [1, 1, 1] };
        Program::new(Function::build(entry, |f| self.emit(f)))
    }

    fn launch(&self, call: &MergeCall, _slots: u32) -> Result<Option<Launch>, LaunchError> {
        let MergeCall { extents: [batch, heads, queries], parts, each, each_log_sum_exp, o, log_sum_exp } =
            *call;
        let rows = u128::from(batch) * u128::from(heads) * u128::from(queries);
        let Some(rows) = u32::try_from(rows).ok().filter(|&rows| rows < 1 << 31) else {
            return Err(LaunchError::TooManyTiles { m: rows, n: 1, most: (1 << 31) - 1 });
        };
        if rows == 0 {
            return Ok(None);
        }
        check_parts(&parts)?;
        let extents = [batch, heads, queries, self.head];
        check_tensor(("O of a part", each), extents, (Format::F32, 4))?;
        check_tensor(("O", o), extents, (self.output, self.output.bytes().into()))?;
        if each_log_sum_exp == 0 {
            return Err(LaunchError::Null { name: "the log-sum-exp of a part" });
        }
        for (name, address) in
            [("the log-sum-exp of a part", each_log_sum_exp), ("the log-sum-exp", log_sum_exp)]
        {
            if !address.is_multiple_of(4) {
                return Err(LaunchError::Address { name, address, alignment: 4 });
            }
        }
        let mut arguments: Vec<Argument> =
            [each.address, each_log_sum_exp, o.address, log_sum_exp].map(Argument::from).into();
        arguments
            .extend([each.row, each.head, each.batch, parts.stride].map(|stride| Argument::from(stride * 4)));
        let bytes = u64::from(self.output.bytes());
        arguments.extend([o.row, o.head, o.batch].map(|stride| Argument::from(stride * bytes)));
        arguments.extend([parts.count, queries, heads, rows].map(Argument::from));
        Ok(Some(Launch { grid: Grid { ctas: [rows.div_ceil(ROWS), 1, 1] }, arguments }))
    }

    fn visit(&self, call: &mut MergeCall, visit: &mut dyn Visit) {
        let MergeCall { extents, parts, each, each_log_sum_exp, o, log_sum_exp } = call;
        let rows = extents.iter().map(|&extent| u64::from(extent)).product::<u64>();
        let [batch, heads, queries] = *extents;
        extents.iter_mut().for_each(|count| visit.count(count));
        let tensor = [batch, heads, queries, self.head];
        let of_parts = each.reach(tensor) + u64::from(parts.count.saturating_sub(1)) * parts.stride;
        visit.count(&mut parts.count);
        visit.length(&mut parts.stride);
        let given = *log_sum_exp != 0;
        visit.form(given.into());
        let f32s = Contents::Source(Format::F32);
        let of_parts = if rows == 0 { 0 } else { of_parts };
        let reach = o.reach(tensor);
        for (name, address, extents, contents, writes) in [
            ("O of a part", &mut each.address, Extents::line(32, of_parts), f32s, false),
            (
                "the log-sum-exp of a part",
                each_log_sum_exp,
                Extents::line(32, rows * u64::from(parts.count)),
                f32s,
                false,
            ),
            (
                "O",
                &mut o.address,
                Extents::line(self.output.bits(), reach),
                Contents::Output(self.output),
                true,
            ),
            (
                "the log-sum-exp",
                log_sum_exp,
                Extents::line(32, if given { rows } else { 0 }),
                Contents::Output(Format::F32),
                true,
            ),
        ] {
            visit.memory(Memory { name, address, extents, contents, writes });
        }
        for of in [each, o] {
            [&mut of.row, &mut of.head, &mut of.batch].into_iter().for_each(|length| visit.length(length));
        }
    }
}

/// Checks the parts of a call.
pub(crate) fn check_parts(parts: &Parts) -> Result<(), LaunchError> {
    if parts.count == 0 || parts.count > 1 << 16 {
        let reason = format!("there are {} parts of keys, 1 to 65536 were needed", parts.count);
        return Err(LaunchError::Problem { reason });
    }
    Ok(())
}
