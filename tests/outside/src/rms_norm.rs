//! A family of kernels that is no GEMM: `D = X * w / sqrt(mean(X^2) + eps)`, row by row. One CTA computes a row after the other.

use std::fmt;
use std::str::FromStr;

use falchion::collective::{Accuracy, Elementary, Fast, Format};
use falchion::kernel::operands::{Contents, Extents, Memory, Visit};
use falchion::kernel::words::Worded;
use falchion::kernel::{
    Expected, Family, Inputs, Kernel, Launch, LaunchError, Machine, MatrixRef, Predicted, Program, cheapest,
    check_accessed, declare,
};
use falchion::prelude::bf16;
use falchion::ptx::abi::Grid;
use falchion::ptx::{Builder, Entry, Function, Special, Target, Value, VerifyError};

/// What is added to the mean.
const EPS: f32 = 1e-6;
/// Elements that a thread loads at a time.
const VECTOR: u32 = 8;

/// A kernel with so many warps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    warps: u32,
}

/// Rows, and columns of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rows {
    pub rows: u32,
    pub columns: u32,
}

/// Matrices of `bf16` with these extents, and a row of weights.
#[derive(Clone, Copy, Debug, Default)]
pub struct Norm {
    pub extents: Rows,
    pub x: MatrixRef,
    pub weights: u64,
    pub d: MatrixRef,
}

impl fmt::Display for RmsNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warps={}", self.warps)
    }
}

impl FromStr for RmsNorm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let warps = text.strip_prefix("warps=").and_then(u32::read);
        Ok(Self { warps: warps.ok_or_else(|| format!("`{text}` was found, warps=COUNT was needed"))? })
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)
    }
}

impl FromStr for Rows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let extents = <[u32; 2]>::read(text).map(|[rows, columns]| Self { rows, columns });
        extents.ok_or_else(|| format!("`{text}` was found, ROWSxCOLUMNS was needed"))
    }
}

impl Kernel<Norm> for RmsNorm {
    fn program(&self) -> Result<Program, VerifyError> {
        let Self { warps } = *self;
        let entry = Entry {
            name: format!("rms_norm_{warps}"),
            target: Target::Sm90a,
            threads: 32 * warps,
            shared_bytes: 4 * warps,
            cluster: [1; 3],
        };
        Program::new(Function::build(entry, |f| {
            declare(self, f);
            emit(f, warps);
        }))
    }

    fn launch(&self, call: &Norm, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Norm { extents: Rows { rows, columns }, x, d, .. } = *call;
        let refused = |reason: String| Err(LaunchError::Problem { reason });
        for (name, value) in [("columns", columns.into()), ("X's leading dimension", x.ld), ("D's", d.ld)] {
            if value % u64::from(VECTOR) != 0 || value < columns.into() {
                return refused(format!(
                    "{name} is {value}, a multiple of {VECTOR} from {columns} on was needed"
                ));
            }
        }
        check_accessed(self, call, |_| 16)?;
        let grid = Grid { ctas: [rows.min(resident.max(1)), 1, 1] };
        let some = rows > 0 && columns > 0;
        some.then(|| Launch::new(grid, |visit| self.visit(&mut call.clone(), visit))).transpose()
    }

    fn visit(&self, call: &mut Norm, visit: &mut dyn Visit) {
        let Norm { extents: Rows { rows, columns }, x, weights, d } = call;
        let line = Extents::line(16, u64::from(*columns));
        let all = Extents { lines: *rows, ..line };
        visit.matrix("X", (Contents::Source(Format::Bf16), false), x, all);
        let contents = Contents::Source(Format::Bf16);
        visit.memory(Memory {
            name: "the weights",
            address: weights,
            extents: line,
            contents,
            writes: false,
        });
        visit.matrix("D", (Contents::Output(Format::Bf16), true), d, all);
        visit.address("x", "X");
        visit.address("weights", "the weights");
        visit.address("d", "D");
        visit.number("x_ld", Some(2 * x.ld));
        visit.number("d_ld", Some(2 * d.ld));
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
    let [x_ld, d_ld] = ["x_ld", "d_ld"].map(|name| f.parameter::<u64>(name));
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
            let [from, to] = [(x, x_ld), (d, d_ld)].map(|(at, ld)| at + row.get().cast::<u64>() * ld);
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
            let all = sums.reduce(|a, b| a + b).expect("a warp");
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
    type Request<'r> = Rows;
    type Problem = Rows;
    type Spec = Self;
    type Call = Norm;

    fn of_spec(spec: &Self) -> Result<Self, String> {
        match spec.warps {
            1..=32 => Ok(*spec),
            warps => Err(format!("warps is {warps}, 1 to 32 was needed")),
        }
    }

    fn spec(&self) -> Option<Self> {
        Some(*self)
    }

    fn request(text: &str) -> Result<Rows, String> {
        text.parse()
    }

    fn problem(request: &Rows) -> Rows {
        *request
    }

    fn call(&extents: &Rows) -> Norm {
        let matrix = MatrixRef::new(0, extents.columns.into());
        Norm { extents, x: matrix, weights: 0, d: matrix }
    }

    fn ranked(request: &Rows, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        let Rows { rows, columns } = *request;
        let space = [1, 2, 4, 8, 16, 32].map(|warps| Self { warps });
        cheapest(space, most, |kernel: &Self| {
            // Steps of a row, and what its two barriers take.
            let steps = f64::from(columns.div_ceil(32 * VECTOR * kernel.warps)) + 1.0;
            let rows_each =
                f64::from(rows) / f64::from(machine.multiprocessors * (2048 / (32 * kernel.warps)).min(32));
            rows_each.ceil() * steps
        })
    }

    fn operations(request: &Rows) -> f64 {
        4.0 * f64::from(request.rows) * f64::from(request.columns)
    }

    fn expect(
        &self,
        &Rows { rows, columns }: &Rows,
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
        Ok(vec![Expected { name: "D", elements: inputs.rows(rows as usize, row) }])
    }
}
