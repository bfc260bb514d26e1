//! A family of kernels that is no GEMM: `D = X * w / sqrt(mean(X^2) + eps)`, row by row. One CTA computes a row after the other.

use falchion::collective::{Accuracy, Elementary, Fast};
use falchion::prelude::bf16;
use falchion::prelude::family::*;

/// What is added to the mean.
const EPS: f32 = 1e-6;
/// Elements that a thread loads at a time.
const VECTOR: u32 = 8;

/// A kernel with so many warps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    warps: u32,
}

/// Rows and columns; X, a row of weights, and D, packed, in `bf16`.
type Norm = Addressed<Sizes<2>, 3>;

impl Kernel<Norm> for RmsNorm {
    fn program(&self) -> Result<Program, VerifyError> {
        let Self { warps } = *self;
        let (name, target) = (format!("rms_norm_{warps}"), Target::Sm90a);
        let entry = Entry { name, target, threads: 32 * warps, shared_bytes: 4 * warps, cluster: [1; 3] };
        Program::of(self, entry, |f| emit(f, warps))
    }

    fn launch(&self, call: &Norm, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Sizes([rows, columns]) = call.problem;
        LaunchError::unless(columns % VECTOR == 0, ("columns", columns), format!("a multiple of {VECTOR}"))?;
        Launch::of(self, call, |_| 16, if columns > 0 { rows.min(resident.max(1)) } else { 0 })
    }

    fn visit(&self, call: &mut Norm, visit: &mut dyn Visit) {
        let Addressed { problem: Sizes([rows, columns]), at: [x, weights, d] } = call;
        let (line, read) = (Extents::line(16, u64::from(*columns)), Contents::Source(Format::Bf16));
        let all = Extents { lines: *rows, ..line };
        visit.input("x", ("X", x), all, read);
        visit.input("weights", ("the weights", weights), line, read);
        visit.output("d", ("D", d), all, Format::Bf16);
        visit.counted("rows", rows);
        visit.counted("columns", columns);
    }
}

/// The elements of a vector.
fn load<'f>(f: &'f Builder, at: Value<'f, u64>) -> impl Iterator<Item = Value<'f, f32>> {
    let words = f.load_global_vector::<u32, 4>(at, 0);
    words.into_iter().flat_map(|word| f.unpack::<bf16>(word)).map(|element| element.cast())
}

fn emit<'f>(f: &'f Builder, warps: u32) {
    let [x, weights, d] = ["x", "weights", "d"].map(|name| f.parameter::<u64>(name));
    let [rows, columns] = ["rows", "columns"].map(|name| f.parameter::<u32>(name));
    let (thread, threads) = (f.special(Special::ThreadX), 32 * warps);
    let parts = columns / VECTOR;
    let each = |body: &dyn Fn(Value<'f, u64>)| {
        let part = f.variable(thread);
        f.while_(
            || part.get().less_than(parts),
            || {
                body(part.get().mul_wide(2 * VECTOR));
                part.set(part.get() + threads);
            },
        );
    };
    let row = f.variable(f.special(Special::CtaX));
    f.while_(
        || row.get().less_than(rows),
        || {
            let [from, to] = [x, d].map(|at| at + row.get().mul_wide(columns * 2));
            let sum = f.variable(0.0f32);
            each(&|at| load(f, from + at).for_each(|x| sum.set(x.mul_add(x, sum.get()))));
            let of_warp =
                [1, 2, 4, 8, 16].iter().fold(sum.get(), |sum, &mask| sum + f.shuffle_xor(sum, mask));
            // The last row's sums have been read.
            f.barrier_sync(0, threads);
            f.if_((thread % 32).equals(0), || f.store_shared(f.shared_base() + thread / 8, 0, [of_warp]));
            f.barrier_sync(0, threads);
            let sums =
                (0..warps).map(|warp| f.load_shared_vector::<f32, 1>(f.shared_base(), 4 * warp as i32)[0]);
            let all = sums.fold(f.constant(0.0), |a, b| a + b);
            let mean = Fast::divide(all, columns.cast::<f32>());
            let factor = Fast::of(Elementary::Rsqrt, mean + EPS);
            each(&|at| {
                let pairs = load(f, from + at).zip(load(f, weights + at));
                let scaled: Vec<_> = pairs.map(|(x, weight)| x * factor * weight).collect();
                let word = |i: usize| f.pack::<bf16>(scaled[2 * i], scaled[2 * i + 1]);
                f.store_global(to + at, 0, [word(0), word(1), word(2), word(3)]);
            });
            row.set(row.get() + f.special(Special::GridX));
        },
    );
}

impl Family for RmsNorm {
    const NAME: &'static str = "rms-norm";
    type Request<'r> = Sizes<2>;
    type Problem = Sizes<2>;
    type Spec = Numbers;
    type Call = Norm;

    fn of_spec(spec: &Numbers) -> Result<Self, String> {
        spec.within([("warps", 1..=32)]).map(|[warps]| Self { warps })
    }

    fn spec(&self) -> Option<Numbers> {
        Some(Numbers::new([("warps", self.warps)]))
    }

    fn call(problem: &Sizes<2>) -> Norm {
        Norm::of(*problem)
    }

    fn ranked(of: &Sizes<2>, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        let Sizes([rows, columns]) = *of;
        let space = [1, 2, 4, 8, 16, 32].map(|warps| Numbers::new([("warps", warps)]));
        cheapest(space, most, |&Self { warps }: &Self| {
            // Steps of a row, and what its two barriers take.
            let steps = f64::from(columns.div_ceil(32 * VECTOR * warps)) + 1.0;
            let at_once = machine.multiprocessors * (64 / warps).min(32);
            (f64::from(rows) / f64::from(at_once)).ceil() * steps
        })
    }

    fn operations(Sizes([rows, columns]): &Sizes<2>) -> f64 {
        4.0 * f64::from(*rows) * f64::from(*columns)
    }

    fn expect(
        &self,
        &Sizes([rows, columns]): &Sizes<2>,
        _: &Norm,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        let columns = columns as usize;
        let weights = inputs.elements("the weights", 0, columns);
        let row = |row: usize| -> (usize, Vec<(f64, f64)>) {
            let x = inputs.elements("X", row * columns, columns);
            let mean = x.iter().map(|x| x * x).sum::<f64>() / columns as f64;
            let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
            // The sum's relative error, that of the two fast functions, and the rounding of the result.
            let bound = columns as f64 * 2f64.powi(-24) + 2f64.powi(-20) + 2f64.powi(-8);
            let products = x.iter().zip(&weights).map(|(x, w)| x * factor * w);
            (row * columns, products.map(|d| (d, d.abs() * bound)).collect())
        };
        Ok(vec![Expected::near("D", inputs.rows(rows as usize, row))])
    }
}
