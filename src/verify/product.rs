//! One GEMM: its matrices on the host, a run on an engine, and the comparison with the reference.
//!
//! ```
//! use falchion::kernel::{Emulator, KernelSpec};
//! use falchion::verify::matrix::Distribution;
//! use falchion::verify::product::{GemmCase, accumulators};
//! use falchion::verify::{Format, HostMatrix, Order};
//!
//! let gemm = "tile=64x32x64 consumers=1".parse::<KernelSpec>()?.kernel()?;
//! let mut random = fastrand::Rng::new();
//! let mut fill = |extents, order| HostMatrix::random(Format::Bf16, extents, order, 1, Distribution::Normal, &mut random);
//! let product = GemmCase::new(fill([70, 64], Order::RowMajor), fill([64, 40], Order::ColumnMajor));
//! let sums = product.sums(accumulators(&gemm), &|_| ());
//! let outcome = product.run(&gemm, &gemm.program()?, &mut Emulator::new(), &sums)?;
//! assert_eq!((outcome.mismatch, outcome.compared), (None, 70 * 40));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use std::borrow::Cow;
use std::time::Duration;

use collective::functions::Multiply;
use collective::tree::{Accumulator, ColumnArgument, ColumnVector, Compute, RowArgument, RowVector};
use collective::{AccumulatorType, Form};
use kernel::{
    AnyGemm, Call, Engine, EngineError, GemmProblem, LaunchError, LinearArguments, MatrixRef, Program, Tree,
};

use super::bound::Expected;
use super::repeat::Change;
use super::session::{Output, Ran, Session, Upload};
use super::transposed::{transpose, turned};
use super::{AccumulatorPrecision, Format, HostMatrix, Order, Scales, Sums, Weights, storage};
use reference::DotProduct;

/// `acc * rows * columns`.
type RowColumnScaled =
    Compute<Multiply, (Compute<Multiply, (Accumulator, ColumnVector<f32>)>, RowVector<f32>)>;

/// A GEMM call with its matrices on the host, in the formats of the kernel that will run ([`formats`]).
#[derive(Clone, Debug)]
pub struct GemmCase {
    /// A, `(M, K)`: row-major for a kernel with a K-major A, column-major for one with an M-major A
    /// ([`orders`]). In any other order, [`kernel::Transpose`] transposes it on the engine first.
    pub a: HostMatrix,
    /// B, `(K, N)`: column-major for a kernel with a K-major B, row-major for an N-major B. In any other
    /// order it is transposed first.
    pub b: HostMatrix,
    /// The block scales of A and B, for a kernel whose operands have them ([`scaled`]).
    pub scales: Option<[Scales; 2]>,
    /// The codes, scales and zero points of weights in few bits, for a kernel with such an operand
    /// ([`storage`]). A or B above is then the matrix that they represent.
    pub weights: Option<Weights>,
    /// One factor per row and one per column, in place of alpha and beta: for a kernel whose epilogue is
    /// `row-column-scaled` ([`Formula::NAMED`](collective::Formula::NAMED)).
    pub vectors: Option<[Vec<f32>; 2]>,
    /// Offset of A, and of B, from an aligned address, in elements.
    pub operand_offset: u32,
    /// C, `(M, N)`, row-major.
    pub c: Option<HostMatrix>,
    /// Factor of A * B.
    pub alpha: f64,
    /// Factor of C.
    pub beta: f64,
    /// D's leading dimension in elements.
    pub d_ld: u32,
    /// Offset of D from an aligned address, in elements.
    pub d_offset: u32,
    /// Whether D overwrites C.
    pub in_place: bool,
}

/// The first error in D.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// One of several GEMMs is wrong.
    Product {
        /// The number of the GEMM.
        product: usize,
        /// Its first error.
        mismatch: Box<Self>,
    },
    /// An element differs from the reference by more than its bound.
    Value {
        /// Its row.
        row: u32,
        /// Its column.
        column: u32,
        /// Its value.
        got: f64,
        /// The reference's value, with its bound.
        expected: Expected,
    },
    /// An element still has the poison of before the run.
    Unwritten {
        /// Its row.
        row: u32,
        /// Its column.
        column: u32,
    },
    /// Memory outside D's rows and columns was written.
    Beside {
        /// Distance in memory from D's first element, in elements.
        place: i64,
        /// The value found there.
        got: f64,
    },
    /// A later run gave other bits than the first run.
    Changed {
        /// Number of the run; the first is 1.
        run: u32,
        /// Distance in memory from D's first element, in elements.
        place: i64,
        /// The bits of the first run, and those of this one.
        bits: [u64; 2],
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product { product, mismatch } => write!(f, "product {product}: {mismatch}"),
            Self::Value { row, column, got, expected: Expected { value, bound, .. } } => {
                write!(f, "D({row}, {column}) is {got}, {value} within {bound:e} was expected")
            }
            Self::Unwritten { row, column } => write!(f, "D({row}, {column}) was not written"),
            Self::Beside { place, got } => {
                write!(
                    f,
                    "the element {place} places from D's first is outside D and was overwritten with {got}"
                )
            }
            Self::Changed { run, place, bits: [first, now] } => {
                write!(
                    f,
                    "run {run} left {now:#06x} {place} places from D's first element, where the first run left {first:#06x}"
                )
            }
        }
    }
}

/// An integer that the accumulator, or D in `s32`, does not hold: the kernel computes it modulo 2^32, as it
/// should, but it is not that of A and B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrapped {
    /// Its row.
    pub row: u32,
    /// Its column.
    pub column: u32,
    /// What it is.
    pub exact: f64,
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, column, exact } = self;
        write!(
            f,
            "D({row}, {column}) is {exact}, and integers are summed in s32, modulo 2^32: a sum from {} to {} was needed, of smaller \
             values or a smaller K",
            i32::MIN,
            i32::MAX
        )
    }
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Device time; `None` if there was nothing to launch.
    pub time: Option<Duration>,
    /// Device time of the transposes before the kernel; `None` if no operand was transposed.
    pub transposed: Option<Duration>,
    /// The largest error as a fraction of its bound.
    pub ratio: f64,
    /// The error there.
    pub error: f64,
    /// The bound there.
    pub bound: f64,
    /// Number of elements compared.
    pub compared: usize,
    /// The first error; `None` if the result is right.
    pub mismatch: Option<Mismatch>,
    /// The first integer that does not fit; `None` if all do.
    pub wrapped: Option<Wrapped>,
    /// All of D's memory after the run, one word per element.
    pub d: Vec<u64>,
}

/// Why a GEMM could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel refuses the call.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The engine could not run it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The program of a transpose is not legal.
    #[error(transparent)]
    Program(#[from] ptx::VerifyError),
    /// An operand is in a direction that the kernel does not read, and its format cannot be transposed.
    #[error(
        "an operand of {format} lies in another direction than the kernel reads, and is not transposed: 8, 16, 32 or 64 bits were needed"
    )]
    Direction {
        /// Its format.
        format: collective::Format,
    },
}

/// Number of elements after D that must not change.
const GUARD: usize = 256;

impl GemmCase {
    /// `D = A * B`, with a packed D.
    pub fn new(a: HostMatrix, b: HostMatrix) -> Self {
        Self {
            d_ld: b.columns,
            a,
            b,
            scales: None,
            weights: None,
            vectors: None,
            operand_offset: 0,
            c: None,
            alpha: 1.0,
            beta: 0.0,
            d_offset: 0,
            in_place: false,
        }
    }

    /// The extents.
    pub fn problem(&self) -> GemmProblem {
        GemmProblem { m: self.a.rows, n: self.b.columns, k: self.a.columns }
    }

    /// The reference's sums, for a kernel with these accumulators. `step` is called after each row with the
    /// number of rows.
    pub fn sums(&self, accumulators: AccumulatorPrecision, step: &(dyn Fn(u64) + Sync)) -> Sums {
        let sums = match &self.scales {
            None => Sums::in_accumulators(accumulators, &self.a, &self.b, step),
            Some(scales) => Sums::in_blocks(&self.a, &self.b, scales.each_ref(), step),
        };
        match &self.vectors {
            None => sums,
            Some([rows, columns]) => sums.times(rows, columns),
        }
    }

    /// Runs a kernel on an engine, and compares D with the reference's sums.
    ///
    /// # Errors
    /// The kernel refuses the call, or the engine fails.
    pub fn run(
        &self,
        entry: &AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
        sums: &Sums,
    ) -> Result<Outcome, RunError> {
        self.run_times(entry, program, engine, sums, 1)
    }

    /// As [`run`](Self::run), but the kernel runs `runs` times. Each later run must give the bits of the
    /// first.
    ///
    /// # Errors
    /// The kernel refuses the call, or the engine fails.
    pub fn run_times(
        &self,
        entry: &AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
        sums: &Sums,
        runs: u32,
    ) -> Result<Outcome, RunError> {
        let session = &mut Session::new(engine);
        let [.., format] = formats(entry);
        let (mut a, mut b) = (self.operand(session, &self.a)?, self.operand(session, &self.b)?);
        let mut transposed = None;
        let of_operands = [(&self.a, &mut a), (&self.b, &mut b)].into_iter();
        for ((matrix, place), turned) in of_operands.zip(turned(entry, [&self.a, &self.b])) {
            if turned {
                let (there, time) = transpose(session, matrix, *place)?;
                *place = there;
                *transposed.get_or_insert_default() += time;
            }
        }
        let d = session.output(format, self.d_before(format))?;
        let d_offset = u64::from(self.d_offset) * u64::from(format.bytes());
        let d_ref = MatrixRef::new(d.buffer.address + d_offset, self.d_ld.into());
        let c = match &self.c {
            Some(_) if self.in_place => Some(d_ref),
            Some(c) => Some(session.matrices([c])?),
            None => None,
        };
        let scales = self.scales.as_ref().map(|scales| scales.each_ref().map(core::slice::from_ref));
        let scales = scales.map(|scales| session.scales(scales)).transpose()?;
        let mut call = Call { a, b, scales, d: d_ref, ..Call::of(self.problem()) };
        let operands = [&self.a, &self.b].map(core::slice::from_ref);
        storage::bring(entry, &mut call, operands, self.weights.as_slice(), session)?;
        let call = call.with(LinearArguments::of([self.alpha, self.beta], c));
        let ran = match &self.vectors {
            None => session.launch((entry, program), call)?,
            Some([rows, columns]) => {
                let mut place = |values: &[f32]| {
                    let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
                    Ok::<_, EngineError>((session.words(&bits)?, values.len() as u32))
                };
                let ((row, m), (column, n)) = (place(rows)?, place(columns)?);
                let scaled = ((), ((), ColumnArgument { address: row, len: m }));
                let vectors = ((), (scaled, RowArgument { address: column, len: n }));
                session.launch((entry, program), call.with(Tree::<RowColumnScaled>(vectors)))?
            }
        };
        let (begin, ld) = (self.d_offset as usize, self.d_ld as usize);
        let placed = Placed { case: Cow::Borrowed(self), sums: Some(sums), begin, ld };
        Ok(Outcome { transposed, ..Outcome::of(session, (entry, &ran), &d, [placed], runs)? })
    }

    /// Copies an operand, some elements after an aligned address.
    fn operand(&self, session: &mut Session<'_>, matrix: &HostMatrix) -> Result<MatrixRef, EngineError> {
        let before = matrix.format.memory(&vec![matrix.format.poison(); self.operand_offset as usize]);
        let address = session.upload(&[&before[..], &matrix.bytes()].concat())?;
        Ok(MatrixRef::new(address + before.len() as u64, matrix.ld.into()))
    }

    /// D's memory before the run: poison, or C if D overwrites C.
    fn d_before(&self, format: Format) -> Vec<u64> {
        let (m, ld, offset) = (self.a.rows as usize, self.d_ld as usize, self.d_offset as usize);
        let mut before = vec![format.poison(); offset + m * ld + GUARD];
        if let Some(c) = self.c.as_ref().filter(|_| self.in_place) {
            for row in 0..c.rows {
                for column in 0..c.columns {
                    before[offset + row as usize * ld + column as usize] = c.bits[c.index(row, column)];
                }
            }
        }
        before
    }

    /// For integers, the sum of products, or where more is computed in integers, the element of D.
    fn exact(&self, format: Format, sum: DotProduct, c: Option<f64>) -> Option<f64> {
        let [alpha, beta] = [self.alpha, self.beta];
        let [a, b] = [&self.a, &self.b].map(|matrix| matrix.format.is_integer());
        let source = c.filter(|_| beta != 0.0).map_or(0.0, |c| beta * c);
        let whole = if format == Format::S32 { alpha * sum.exact + source } else { sum.exact };
        (a && b).then_some(whole)
    }

    /// Compares D, packed, with the reference's sums. Returns the first error.
    fn compare(&self, format: Format, sums: &Sums, d: &[u64], outcome: &mut Outcome) -> Option<Mismatch> {
        let GemmProblem { n, k, .. } = self.problem();
        let mut wrong = None;
        let pairs = sums.rows.iter().flat_map(|&row| sums.columns.iter().map(move |&column| (row, column)));
        for ((row, column), &sum) in pairs.zip(&sums.sums) {
            let c = self.c.as_ref().map(|c| c.get(row, column));
            let expected = Expected::new(format, k, [self.alpha, self.beta], sum, c);
            let got = format.decode(d[row as usize * n as usize + column as usize]);
            if outcome.wrapped.is_none() {
                let exact = self.exact(format, sum, c).filter(|exact| f64::from(*exact as i32) != *exact);
                outcome.wrapped = exact.map(|exact| Wrapped { row, column, exact });
            }
            outcome.compared += 1;
            if !expected.admits(format, got) && wrong.is_none() {
                wrong = Some(Mismatch::Value { row, column, got, expected });
            }
            let ratio = expected.ratio(format, got);
            if ratio >= outcome.ratio && expected.bound.is_finite() {
                outcome.ratio = ratio;
                (outcome.error, outcome.bound) = (expected.distance(format, got), expected.bound);
            }
        }
        // The poison of floats is a NaN. It would count as a result where the reference expects a NaN or was
        // not computed.
        // Of 8-bit integers it is a number like any other.
        let poisoned = |&bits: &u64| bits == format.poison() && !(format.is_integer() && format.bytes() == 1);
        let unwritten = d.iter().position(poisoned).map(|at| {
            let [row, column] = [at / n as usize, at % n as usize].map(|at| at as u32);
            Mismatch::Unwritten { row, column }
        });
        unwritten.or(wrong)
    }
}

/// A GEMM of a launch, and where its D is in the memory of all.
pub(super) struct Placed<'c> {
    pub(super) case: Cow<'c, GemmCase>,
    /// The reference's sums, if they are known.
    pub(super) sums: Option<&'c Sums>,
    pub(super) begin: usize,
    pub(super) ld: usize,
}

impl Outcome {
    /// Compares the GEMMs of a launch one by one, and the memory around their D. Then the kernel runs until there
    /// were `runs` runs, unless something is wrong.
    pub(super) fn of<'c>(
        session: &mut Session<'_>,
        (entry, ran): (&AnyGemm, &Ran<'_>),
        d: &Output,
        placed: impl IntoIterator<Item = Placed<'c>>,
        runs: u32,
    ) -> Result<Self, RunError> {
        let (format, after) = (d.format, session.read(d)?);
        let mut outcome = Self {
            time: ran.time,
            transposed: None,
            ratio: 0.0,
            error: 0.0,
            bound: 0.0,
            compared: 0,
            mismatch: None,
            wrapped: None,
            d: Vec::new(),
        };
        let (mut inside, mut first) = (vec![false; after.len()], None);
        for (product, Placed { case, sums, begin, ld }) in placed.into_iter().enumerate() {
            first.get_or_insert(begin);
            let GemmProblem { m, n, .. } = case.problem();
            let mut dense = Vec::new();
            for row in (0..m as usize).map(|row| begin + row * ld..begin + row * ld + n as usize) {
                dense.extend_from_slice(&after[row.clone()]);
                inside[row].fill(true);
            }
            let sums = match sums {
                Some(sums) => Cow::Borrowed(sums),
                None => Cow::Owned(case.sums(accumulators(entry), &|_| ())),
            };
            let found = case.compare(format, &sums, &dense, &mut outcome);
            let of_many = |mismatch| Mismatch::Product { product, mismatch: Box::new(mismatch) };
            let found = if entry.form() == Form::Single { found } else { found.map(of_many) };
            outcome.mismatch = outcome.mismatch.or(found);
        }
        let place = |at: usize| at as i64 - first.unwrap_or(0) as i64;
        let beside = (0..after.len()).find(|&at| !inside[at] && after[at] != d.before[at]);
        let beside = beside.map(|at| Mismatch::Beside { place: place(at), got: format.decode(after[at]) });
        outcome.mismatch = outcome.mismatch.or(beside);
        if outcome.mismatch.is_none() {
            let change = session.repeat(ran, (d, &after), runs)?;
            outcome.mismatch = change.map(|Change { run, place: at, bits }| Mismatch::Changed {
                run,
                place: place(at),
                bits,
            });
        }
        Ok(Self { d: after, ..outcome })
    }
}

/// The orders of A and B that a kernel reads. K-major means row-major for A and column-major for B.
pub fn orders(entry: &AnyGemm) -> [Order; 2] {
    use cute_rs::atom::Major;
    let [a_major, b_major] = entry.plan().majors();
    let a = if a_major == Major::K { Order::RowMajor } else { Order::ColumnMajor };
    let b = if b_major == Major::K { Order::ColumnMajor } else { Order::RowMajor };
    [a, b]
}

/// The kind of accumulators that a kernel has.
pub fn accumulators(entry: &AnyGemm) -> AccumulatorPrecision {
    match entry.plan().mainloop.atom.sums() {
        AccumulatorType::F16 => AccumulatorPrecision::Half,
        AccumulatorType::F32 | AccumulatorType::S32 | AccumulatorType::F64 => AccumulatorPrecision::Single,
    }
}

/// Numbers of rows of the caller's A, and of columns of B, that share a scale for each 128 elements along K;
/// `None` without block scales.
pub fn scaled(entry: &AnyGemm) -> Option<[u32; 2]> {
    let plan = entry.plan();
    plan.mainloop.is_scaled().then_some(plan.call_operands().map(|operand| operand.scaled))
}

/// Random block scales, for a kernel whose operands have them.
pub fn random_scales(
    entry: &AnyGemm,
    GemmProblem { m, n, k }: GemmProblem,
    random: &mut fastrand::Rng,
) -> Option<[Scales; 2]> {
    let [a, b] = scaled(entry)?;
    Some([Scales::random([m, k], a, random), Scales::random([n, k], b, random)])
}

/// The kernels' format for a format of the reference.
///
/// # Panics
/// Never: a test checks that both have the same formats.
pub fn of_kernels(format: Format) -> collective::Format {
    collective::Format::named(format.name()).expect("kernels have every format of the oracle's")
}

/// The formats of a kernel's A and B, and of C and D.
///
/// # Panics
/// If the reference lacks a format that kernels have.
pub fn formats(entry: &AnyGemm) -> [Format; 3] {
    entry.formats().map(|format| Format::named(format.name()).expect("the oracle has every format"))
}

#[cfg(test)]
mod tests;
