//! The cross entropy of logits whose columns are divided among ranks.

use collective::{Accuracy, Elementary, Fast, Format};
use half::{bf16, f16};
use kernel::operands::{Contents, Extents, Visit};
use kernel::{Kernel, Launch, LaunchError, MatrixRef, Program};
use ptx::{Builder, Scalar, Special, Value, VerifyError};

use crate::common::{
    THREADS, VECTOR, each_row, each_vector, launch, load, matrix, program, steps, store, visit_matrix,
};

/// A rank's logits, and the columns that are right.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logits {
    /// Rows.
    pub rows: u32,
    /// Columns of the rank, a multiple of 8.
    pub columns: u32,
    /// The logits, in `bf16` or `f16`.
    pub logits: MatrixRef,
    /// The number of the rank's first column among all ranks'.
    pub first: u32,
    /// Columns of all ranks: targets are below it. The loss of any other target is infinite.
    pub limit: u32,
    /// A column of all ranks' per row, `u32`.
    pub targets: u64,
}

impl Logits {
    fn visit(&mut self, format: Format, visit: &mut dyn Visit) {
        let Self { rows, columns, logits, first, limit, targets } = self;
        let all = Extents { lines: *rows, ..Extents::line(16, u64::from(*columns)) };
        visit_matrix(
            visit,
            ["logits", "logits_ld"],
            ("the logits", Contents::Source(format), false),
            logits,
            all,
        );
        let line = Extents::line(32, u64::from(*rows));
        visit.input("targets", ("the targets", targets), line, Contents::Indices(*limit));
        visit.counted("first", first);
    }

    fn visit_extents(&mut self, visit: &mut dyn Visit) {
        visit.counted("rows", &mut self.rows);
        visit.counted("columns", &mut self.columns);
    }
}

/// Per row of a rank: the largest logit, the sum of `e^(logit - largest)`, and the target's logit, or minus infinity if
/// it is another rank's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowPeak(pub Format);

/// Whose statistics are computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaked {
    /// The logits.
    pub of: Logits,
    /// The address of four `f32` per row: the three numbers, and 0.
    pub to: u64,
}

/// The program of a kernel of logits in a format.
fn of_format<C: Default>(
    kernel: &impl Kernel<C>,
    (name, format): (&str, Format),
    shared: u32,
    emit: [fn(&Builder); 2],
) -> Result<Program, VerifyError> {
    let emit = emit[usize::from(format == Format::F16)];
    program(kernel, format!("{name}_{}", format.name()), shared, emit)
}

impl Kernel<Peaked> for RowPeak {
    fn program(&self) -> Result<Program, VerifyError> {
        let name = ("cross_entropy_statistics", self.0);
        of_format(self, name, THREADS / 8, [statistics::<bf16>, statistics::<f16>])
    }

    fn launch(&self, call: &Peaked, resident: u32) -> Result<Option<Launch>, LaunchError> {
        launch(self, call, (call.of.columns, VECTOR), [call.of.rows, resident])
    }

    fn total_work(&self, call: &Peaked) -> u128 {
        2 * steps(call.of.rows, call.of.columns)
    }

    fn visit(&self, Peaked { of, to }: &mut Peaked, visit: &mut dyn Visit) {
        of.visit(self.0, visit);
        let extents = Extents::line(32, 4 * u64::from(of.rows));
        visit.output("statistics", ("the statistics", to), extents, Format::F32);
        of.visit_extents(visit);
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
    let logits = matrix(f, ["logits", "logits_ld"]);
    let [targets, to] = ["targets", "statistics"].map(|name| f.parameter::<u64>(name));
    let [first, rows, columns] = ["first", "rows", "columns"].map(|name| f.parameter::<u32>(name));
    each_row(f, rows, |row| {
        let (at, row) = (logits(row), row.cast::<u64>());
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
pub struct RowMerge;

/// What is merged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Merged {
    /// Rows.
    pub rows: u32,
    /// Ranks.
    pub ranks: u32,
    /// The ranks' statistics, one rank after the other.
    pub from: u64,
    /// The loss of each row, `f32`.
    pub loss: u64,
    /// The logarithm of the sum of `e^logit` of each row, `f32`.
    pub log_sum_exp: u64,
}

impl Kernel<Merged> for RowMerge {
    fn program(&self) -> Result<Program, VerifyError> {
        program(self, "cross_entropy_merge".to_owned(), 0, merge)
    }

    fn launch(&self, call: &Merged, resident: u32) -> Result<Option<Launch>, LaunchError> {
        launch(self, call, (0, VECTOR), [call.rows.div_ceil(THREADS), resident])
    }

    fn total_work(&self, call: &Merged) -> u128 {
        2 * u128::from(call.rows.div_ceil(THREADS)) * u128::from(call.ranks)
    }

    fn visit(&self, call: &mut Merged, visit: &mut dyn Visit) {
        let Merged { rows, ranks, from, loss, log_sum_exp } = call;
        let line = Extents::line(32, u64::from(*rows));
        let all = Extents::line(32, 4 * line.length * u64::from(*ranks));
        // Sums of exponentials are not negative, and random inputs shall not be either.
        visit.input("statistics", ("the statistics", from), all, Contents::Scales);
        visit.output("loss", ("the loss", loss), line, Format::F32);
        visit.output("log_sum_exp", ("the log-sum-exp", log_sum_exp), line, Format::F32);
        visit.counted("rows", rows);
        visit.counted("ranks", ranks);
    }
}

fn merge<'f>(f: &'f Builder) {
    let [from, loss, log_sum_exp] =
        ["statistics", "loss", "log_sum_exp"].map(|name| f.parameter::<u64>(name));
    let [rows, ranks] = ["rows", "ranks"].map(|name| f.parameter::<u32>(name));
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
pub struct RowGradient(pub Format);

/// What is differentiated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Differentiated {
    /// The logits.
    pub of: Logits,
    /// The logarithm of the sum of `e^logit` of each row, over all ranks, `f32`.
    pub log_sum_exp: u64,
    /// The factor.
    pub factor: f32,
    /// The gradient, in the logits' format.
    pub to: MatrixRef,
}

impl Kernel<Differentiated> for RowGradient {
    fn program(&self) -> Result<Program, VerifyError> {
        of_format(self, ("cross_entropy_gradient", self.0), 0, [slope::<bf16>, slope::<f16>])
    }

    fn launch(&self, call: &Differentiated, resident: u32) -> Result<Option<Launch>, LaunchError> {
        launch(self, call, (call.of.columns, VECTOR), [call.of.rows, resident])
    }

    fn total_work(&self, call: &Differentiated) -> u128 {
        steps(call.of.rows, call.of.columns)
    }

    fn visit(&self, call: &mut Differentiated, visit: &mut dyn Visit) {
        let Differentiated { of, log_sum_exp, factor, to } = call;
        of.visit(self.0, visit);
        let (line, contents) = (Extents::line(32, u64::from(of.rows)), Contents::Source(Format::F32));
        visit.input("log_sum_exp", ("the log-sum-exp", log_sum_exp), line, contents);
        visit.single(factor);
        visit.number("factor", Some(*factor));
        let all = Extents { lines: of.rows, ..Extents::line(16, u64::from(of.columns)) };
        let contents = ("the gradient", Contents::Output(self.0), true);
        visit_matrix(visit, ["gradient", "gradient_ld"], contents, to, all);
        of.visit_extents(visit);
    }
}

fn slope<T: Scalar>(f: &Builder) {
    let [logits, to] = [["logits", "logits_ld"], ["gradient", "gradient_ld"]].map(|names| matrix(f, names));
    let [targets, log_sum_exp] = ["targets", "log_sum_exp"].map(|name| f.parameter::<u64>(name));
    let [first, rows, columns] = ["first", "rows", "columns"].map(|name| f.parameter::<u32>(name));
    let factor = f.parameter::<f32>("factor");
    each_row(f, rows, |row| {
        let word = row.mul_wide(4);
        let own = f.load_global::<u32>(targets + word, 0) - first;
        let all = f.load_global::<f32>(log_sum_exp + word, 0);
        let [from, to] = [logits(row), to(row)];
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
