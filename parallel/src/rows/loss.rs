//! The cross entropy of logits whose columns are divided among ranks.

use falchion::collective::{Accuracy, Elementary, Fast, Format};
use falchion::kernel::operands::{Contents, Extents, Memory, Visit};
use falchion::kernel::{Kernel, Launch, LaunchError, MatrixRef, Program};
use falchion::ptx::{Builder, Scalar, Special, Value, VerifyError};
use half::{bf16, f16};

use super::{THREADS, check, each_row, each_vector, function, grid, load, store};

/// A rank's logits, and the columns that are right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logits {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) logits: MatrixRef,
    /// The number of the rank's first column among all ranks'.
    pub(crate) first: u32,
    /// A column of all ranks' per row, `u32`.
    pub(crate) targets: u64,
}

impl Logits {
    fn visit(&mut self, format: Format, visit: &mut dyn Visit) {
        let Self { rows, columns, logits, first, targets } = self;
        let all = Extents { lines: *rows, ..Extents::line(16, u64::from(*columns)) };
        visit.matrix("the logits", (Contents::Source(format), false), logits, all);
        vector("the targets", targets, Extents::line(32, u64::from(*rows)), Contents::Table, visit);
        [rows, columns, first].into_iter().for_each(|number| visit.count(number));
    }
}

fn vector(
    name: &'static str,
    address: &mut u64,
    extents: Extents,
    contents: Contents,
    visit: &mut dyn Visit,
) {
    let writes = matches!(contents, Contents::Output(_));
    visit.memory(Memory { name, address, extents, contents, writes });
}

/// Per row of a rank: the largest logit, the sum of `e^(logit - largest)`, and the target's logit, or minus infinity if
/// it is another rank's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Statistics(pub(crate) Format);

/// The address of four `f32` per row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peak {
    pub(crate) of: Logits,
    pub(crate) to: u64,
}

/// The logits' name and type in a kernel.
fn of_format(
    format: Format,
    name: &str,
    shared: u32,
    emit: [fn(&Builder); 2],
) -> Result<Program, VerifyError> {
    let emit = emit[usize::from(format == Format::F16)];
    Program::new(function(format!("{name}_{}", format.name()), shared, emit))
}

impl Kernel<Peak> for Statistics {
    fn program(&self) -> Result<Program, VerifyError> {
        of_format(self.0, "cross_entropy_statistics", THREADS / 8, [statistics::<bf16>, statistics::<f16>])
    }

    fn launch(&self, call: &Peak, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Peak { of, to } = *call;
        if of.rows == 0 {
            return Ok(None);
        }
        check(self, call, of.columns)?;
        let mut arguments = vec![of.logits.address.into(), (2 * of.logits.ld).into(), of.targets.into()];
        arguments.extend([of.first.into(), to.into(), of.rows.into(), of.columns.into()]);
        Ok(Some(Launch { grid: grid(of.rows, resident), arguments }))
    }

    fn visit(&self, Peak { of, to }: &mut Peak, visit: &mut dyn Visit) {
        let extents = Extents::line(32, 4 * u64::from(of.rows));
        vector("the statistics", to, extents, Contents::Output(Format::F32), visit);
        of.visit(self.0, visit);
    }
}

/// One number of all threads.
fn across<'f>(
    f: &'f Builder,
    own: Value<'f, f32>,
    join: impl Fn(Value<'f, f32>, Value<'f, f32>) -> Value<'f, f32>,
) -> Value<'f, f32> {
    let of_warp = [1, 2, 4, 8, 16].iter().fold(own, |all, &mask| join(all, f.shuffle_xor(all, mask)));
    let thread = f.special(Special::ThreadX);
    // The last numbers have been read.
    f.barrier_sync(0, THREADS);
    f.if_((thread % 32).equals(0), || f.store_shared(f.shared_base() + thread / 8, 0, [of_warp]));
    f.barrier_sync(0, THREADS);
    let of = |warp: u32| f.load_shared_vector::<f32, 1>(f.shared_base(), 4 * warp.cast_signed())[0];
    (1..THREADS / 32).fold(of(0), |all, warp| join(all, of(warp)))
}

fn statistics<T: Scalar>(f: &Builder) {
    let (logits, ld) = (f.param::<u64>("logits"), f.number::<u64>("logits_ld"));
    let (targets, first) = (f.param::<u64>("targets"), f.param::<u32>("first"));
    let to = f.param::<u64>("statistics");
    let [rows, columns] = ["rows", "columns"].map(|name| f.param::<u32>(name));
    each_row(f, rows, |row| {
        let (at, row) = (logits + row.cast::<u64>() * ld, row.cast::<u64>());
        let (most, sum) = (f.variable(f32::NEG_INFINITY), f.variable(0.0f32));
        each_vector(f, columns, |vector| {
            load::<T>(f, at + vector.mul_wide(16)).into_iter().for_each(|x| most.set(most.get().max(x)));
        });
        let most = across(f, most.get(), Value::max);
        each_vector(f, columns, |vector| {
            let exp = |x| Fast::of(Elementary::Exp, x - most);
            load::<T>(f, at + vector.mul_wide(16)).into_iter().for_each(|x| sum.set(sum.get() + exp(x)));
        });
        let sum = across(f, sum.get(), |a, b| a + b);
        f.if_(f.special(Special::ThreadX).equals(0), || {
            let own = f.load_global::<u32>(targets + row * 4, 0) - first;
            let right = f.variable(f32::NEG_INFINITY);
            f.if_(own.less_than(columns), || {
                right.set(f.load_global::<T>(at + own.mul_wide(2), 0).cast::<f32>());
            });
            f.store_global(to + row * 16, 0, [most, sum, right.get(), f.constant(0.0)]);
        });
    });
}

/// The cross entropy of each row, and the logarithm of the sum of `e^logit`, from all ranks' statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Merge;

/// What is merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merged {
    pub(crate) rows: u32,
    pub(crate) ranks: u32,
    /// The ranks' statistics, one rank after the other.
    pub(crate) from: u64,
    pub(crate) loss: u64,
    pub(crate) log_sum_exp: u64,
}

impl Kernel<Merged> for Merge {
    fn program(&self) -> Result<Program, VerifyError> {
        Program::new(function("cross_entropy_merge".to_owned(), 0, merge))
    }

    fn launch(&self, call: &Merged, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Merged { rows, ranks, from, loss, log_sum_exp } = *call;
        check(self, call, 0)?;
        let arguments = vec![from.into(), loss.into(), log_sum_exp.into(), rows.into(), ranks.into()];
        Ok((rows > 0).then(|| Launch { grid: grid(rows.div_ceil(THREADS), resident), arguments }))
    }

    fn visit(&self, call: &mut Merged, visit: &mut dyn Visit) {
        let Merged { rows, ranks, from, loss, log_sum_exp } = call;
        let line = Extents::line(32, u64::from(*rows));
        let all = Extents::line(32, 4 * line.length * u64::from(*ranks));
        vector("the statistics", from, all, Contents::Source(Format::F32), visit);
        vector("the loss", loss, line, Contents::Output(Format::F32), visit);
        vector("the log-sum-exp", log_sum_exp, line, Contents::Output(Format::F32), visit);
        visit.count(rows);
        visit.count(ranks);
    }
}

fn merge<'f>(f: &'f Builder) {
    let [from, loss, log_sum_exp] = ["statistics", "loss", "log_sum_exp"].map(|name| f.param::<u64>(name));
    let [rows, ranks] = ["rows", "ranks"].map(|name| f.param::<u32>(name));
    let row = f.variable(f.special(Special::CtaX) * THREADS + f.special(Special::ThreadX));
    f.while_(
        || row.get().less_than(rows),
        || {
            let of = |rank: Value<'f, u32>| {
                from + (rank.cast::<u64>() * rows.cast::<u64>() + row.get().cast::<u64>()) * 16
            };
            let (most, right) = (f.variable(f32::NEG_INFINITY), f.variable(f32::NEG_INFINITY));
            f.repeat(ranks, |rank| {
                let [peak, _, own, _] = f.load_global_vector::<f32, 4>(of(rank), 0);
                most.set(most.get().max(peak));
                right.set(right.get().max(own));
            });
            let sum = f.variable(0.0f32);
            f.repeat(ranks, |rank| {
                let [peak, own, ..] = f.load_global_vector::<f32, 4>(of(rank), 0);
                sum.set(own.mul_add(Fast::of(Elementary::Exp, peak - most.get()), sum.get()));
            });
            let all = most.get() + Fast::of(Elementary::Ln, sum.get());
            let at = row.get().mul_wide(4);
            f.store_global(log_sum_exp + at, 0, [all]);
            f.store_global(loss + at, 0, [all - right.get()]);
            row.set(row.get() + f.special(Special::GridX) * THREADS);
        },
    );
}

/// The gradient of the losses' sum times `factor`, by a rank's logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope(pub(crate) Format);

/// What is differentiated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gradient {
    pub(crate) of: Logits,
    pub(crate) log_sum_exp: u64,
    pub(crate) factor: f32,
    pub(crate) to: MatrixRef,
}

impl Kernel<Gradient> for Slope {
    fn program(&self) -> Result<Program, VerifyError> {
        of_format(self.0, "cross_entropy_gradient", 0, [slope::<bf16>, slope::<f16>])
    }

    fn launch(&self, call: &Gradient, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Gradient { of, log_sum_exp, factor, to } = *call;
        if of.rows == 0 {
            return Ok(None);
        }
        check(self, call, of.columns)?;
        let mut arguments = vec![of.logits.address.into(), (2 * of.logits.ld).into(), of.targets.into()];
        arguments.extend([of.first.into(), log_sum_exp.into(), factor.into()]);
        arguments.extend([to.address.into(), (2 * to.ld).into(), of.rows.into(), of.columns.into()]);
        Ok(Some(Launch { grid: grid(of.rows, resident), arguments }))
    }

    fn visit(&self, call: &mut Gradient, visit: &mut dyn Visit) {
        let Gradient { of, log_sum_exp, factor, to } = call;
        let line = Extents::line(32, u64::from(of.rows));
        vector("the log-sum-exp", log_sum_exp, line, Contents::Source(Format::F32), visit);
        let all = Extents { lines: of.rows, ..Extents::line(16, u64::from(of.columns)) };
        visit.matrix("the gradient", (Contents::Output(self.0), true), to, all);
        visit.single(factor);
        of.visit(self.0, visit);
    }
}

fn slope<T: Scalar>(f: &Builder) {
    let (logits, ld) = (f.param::<u64>("logits"), f.number::<u64>("logits_ld"));
    let (targets, first) = (f.param::<u64>("targets"), f.param::<u32>("first"));
    let (log_sum_exp, factor) = (f.param::<u64>("log_sum_exp"), f.param::<f32>("factor"));
    let (to, to_ld) = (f.param::<u64>("gradient"), f.number::<u64>("gradient_ld"));
    let [rows, columns] = ["rows", "columns"].map(|name| f.param::<u32>(name));
    each_row(f, rows, |row| {
        let word = row.mul_wide(4);
        let own = f.load_global::<u32>(targets + word, 0) - first;
        let all = f.load_global::<f32>(log_sum_exp + word, 0);
        let [from, to] = [(logits, ld), (to, to_ld)].map(|(at, ld)| at + row.cast::<u64>() * ld);
        each_vector(f, columns, |vector| {
            let at = vector.mul_wide(16);
            let numbers = (0..).zip(load::<T>(f, from + at)).map(|(i, x)| {
                let right = (vector * 8 + i).equals(own);
                let share = Fast::of(Elementary::Exp, x - all);
                (share - 1.0).where_or(right, share) * factor
            });
            store::<T>(f, to + at, &numbers.collect::<Vec<_>>());
        });
    });
}
