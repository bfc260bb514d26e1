//! One GEMM with its matrices on the host: [`Checks`] run it on an engine, and compare D with the reference.
//!
//! ```
//! use falchion::kernel::{Emulator, KernelSpec};
//! use falchion::verify::matrix::Distribution;
//! use falchion::verify::product::GemmCase;
//! use falchion::verify::{Format, HostMatrix, Order};
//!
//! let gemm = "tile=64x32x64 consumers=1".parse::<KernelSpec>()?.kernel()?;
//! let mut random = fastrand::Rng::new();
//! let mut fill = |extents, order| HostMatrix::random(Format::Bf16, extents, order, 1, Distribution::Normal, &mut random);
//! let product = GemmCase::new(fill([70, 64], Order::RowMajor), fill([64, 40], Order::ColumnMajor));
//! let outcome = product.run(&gemm, &mut Emulator::new())?;
//! assert_eq!((outcome.mismatch, outcome.compared), (None, 70 * 40));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use std::time::Duration;

use collective::operands::Visit;
use collective::{FormulaArguments, Input, SCALES};
use kernel::operands::Layouts;
use kernel::{
    AnyGemm, Call, Engine, EngineError, Family, Filled, GemmArguments, GemmProblem, Known, LaunchError,
    LinearArguments, MatrixRef, Request, Types,
};

use super::family::{Agreed, Checks, FamilyError, Fills};
use super::transposed::{transposed, turned};
use super::tree::nowhere;
use super::{Format, HostMatrix, Order, Scales, Weights, storage};

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

/// The first error in D, or in another result.
#[derive(Debug)]
pub struct Mismatch(FamilyError);

impl Mismatch {
    /// What is wrong.
    pub const fn error(&self) -> &FamilyError {
        &self.0
    }
}

/// The same error in words.
impl PartialEq for Mismatch {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
#[derive(Debug)]
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
    /// Whether these are all: of a large product they are a sample of its rows.
    pub complete: bool,
    /// The first error; `None` if the result is right.
    pub mismatch: Option<Mismatch>,
    /// The first integer that does not fit; `None` if all do.
    pub wrapped: Option<Wrapped>,
    /// The elements of D after the run, row by row.
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
    /// An operand was not transposed as it should be.
    #[error("the transpose has other bits than its matrix at ({row}, {column})")]
    Transposed {
        /// A row of the matrix.
        row: u32,
        /// A column of the matrix.
        column: u32,
    },
    /// What was computed is not known.
    #[error(transparent)]
    Check(FamilyError),
}

impl From<FamilyError> for RunError {
    fn from(error: FamilyError) -> Self {
        match error {
            FamilyError::Call(error) => Self::Launch(error),
            FamilyError::Engine(error) => Self::Engine(error),
            FamilyError::Program(error) => Self::Program(error),
            wrong @ (FamilyError::Other(_)
            | FamilyError::Element { .. }
            | FamilyError::Outside { .. }
            | FamilyError::Changed { .. }
            | FamilyError::Extents { .. }
            | FamilyError::Question(_)
            | FamilyError::Unexpected(_)
            | FamilyError::NotWritten { .. }
            | FamilyError::LeftOut { .. }
            | FamilyError::Nothing
            | FamilyError::Bound { .. }
            | FamilyError::Unwritten { .. }
            | FamilyError::Unbroken { .. }) => Self::Check(wrong),
        }
    }
}

/// The words of tables and records, from what they describe.
pub(super) type Tables<'a> = &'a dyn Fn(&mut dyn Visit) -> Vec<u32>;

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

    /// Runs a kernel on an engine, and compares D with the reference.
    ///
    /// # Errors
    /// The kernel refuses the call, or the engine fails.
    pub fn run(&self, entry: &AnyGemm, engine: &mut dyn Engine) -> Result<Outcome, RunError> {
        self.run_times(entry, engine, 1)
    }

    /// As [`run`](Self::run), but the kernel runs `runs` times. Each later run must give the bits of the
    /// first. Of more than 2^33 multiplications, some rows of D are compared.
    ///
    /// # Errors
    /// The kernel refuses the call, or the engine fails.
    pub fn run_times(
        &self,
        entry: &AnyGemm,
        engine: &mut dyn Engine,
        runs: u32,
    ) -> Result<Outcome, RunError> {
        let (mut own, mut time) = (self.clone(), None);
        let of_operands = [&mut own.a, &mut own.b].into_iter();
        for (matrix, turned) in of_operands.zip(turned(entry, [&self.a, &self.b])) {
            if turned {
                let (there, own) = transposed(engine, matrix)?;
                *matrix = there;
                *time.get_or_insert_default() += own;
            }
        }
        let call = own.call(entry);
        let request = request(entry, call);
        let arguments = match (&own.vectors, request.fusion) {
            (Some(_), Some(formula)) => GemmArguments::Formula(scaled_by(formula, own.problem())?),
            _ => call.epilogue.into(),
        };
        let stored = storage::Stored::of(entry, &own)?;
        let fill = |call: &mut Call<GemmArguments>, pieces: &mut [Filled]| own.fill(&stored, call, pieces);
        let sample = (1, rows_compared(call.problem));
        let given = (call.with(arguments), &fill as &Fills<'_, _>);
        let outcome = Outcome::of((entry, &request), engine, (given, &|_| Vec::new()), sample, runs)?;
        Ok(Outcome { transposed: time, ..outcome })
    }

    /// The call, with memory at no addresses.
    fn call(&self, entry: &AnyGemm) -> Call {
        let layouts = Layouts::of(entry);
        let mut call = Call { workspace: None, ..layouts.packed(self.problem(), 16) };
        nowhere(&layouts, &mut call);
        let at = |of: &HostMatrix, offset: u32| {
            MatrixRef::new(u64::from(offset) * u64::from(of.format.bytes()), of.ld.into())
        };
        // What is stored in another form is packed.
        let stored = entry.plan().call_operands().map(|of| of.weights.is_some() || of.sparse);
        if !stored[0] {
            call.a = at(&self.a, self.operand_offset);
        }
        if !stored[1] {
            call.b = at(&self.b, self.operand_offset);
        }
        let [.., of_d] = formats(entry);
        call.d = MatrixRef::new(u64::from(self.d_offset) * u64::from(of_d.bytes()), self.d_ld.into());
        // Before a run, C in the place of D becomes D.
        let c = self.c.as_ref().map(|c| if self.in_place { call.d } else { at(c, 0) });
        call.with(LinearArguments::of([self.alpha, self.beta], c))
    }

    /// Puts its matrices into memory.
    fn fill(&self, stored: &storage::Stored, call: &mut Call<GemmArguments>, pieces: &mut [Filled]) {
        let scales = self.scales.as_ref().map(|scales| scales.each_ref().map(|of| &of.values));
        let vectors = self.vectors.as_ref();
        for of in pieces.iter_mut() {
            let name = of.piece.name;
            let matrix = match name {
                _ if stored.put(name, of) => None,
                "A" => Some(&self.a),
                "B" => Some(&self.b),
                "C" => self.c.as_ref(),
                "D" => self.c.as_ref().filter(|_| self.in_place),
                _ if name == SCALES[0] => scales.map(|[a, _]| a),
                _ if name == SCALES[1] => scales.map(|[_, b]| b),
                _ => None,
            };
            matrix.into_iter().for_each(|matrix| of.put(lines(matrix)));
            let vector = vectors.and_then(|[rows, columns]| match name {
                "rows" => Some(rows),
                "columns" => Some(columns),
                _ => None,
            });
            vector.into_iter().for_each(|of_name| of.put(of_name.iter().map(|of| of.to_bits().into())));
        }
        if let (true, Some(_), GemmArguments::Linear(linear)) = (self.in_place, &self.c, &mut call.epilogue) {
            linear.c = Some(call.d);
        }
    }
}

/// Number of rows of a sample.
pub(super) const ROWS: usize = 16;

/// Number of rows of D that are compared at most.
pub(crate) fn rows_compared(GemmProblem { m, n, k }: GemmProblem) -> usize {
    let all = [m, n, k].map(u128::from).iter().product::<u128>() <= reference::oracle::COMPLETE.into();
    if all { usize::MAX } else { ROWS }
}

/// The elements of a matrix, line by line without padding.
pub(super) fn lines(matrix: &HostMatrix) -> impl Iterator<Item = u64> + '_ {
    let [lines, length] = match matrix.order {
        Order::RowMajor => [matrix.rows, matrix.columns],
        Order::ColumnMajor => [matrix.columns, matrix.rows],
    };
    let line = move |at: u32| &matrix.bits[at as usize * matrix.ld as usize..][..length as usize];
    (0..lines).flat_map(move |at| line(at).iter().copied())
}

/// The arguments of factors for rows and columns, at no addresses. A kernel with other arguments refuses them.
fn scaled_by(
    formula: collective::Formula,
    GemmProblem { m, n, .. }: GemmProblem,
) -> Result<FormulaArguments, LaunchError> {
    let given = [("rows", Input::Address(0)), ("columns", Input::Address(0))];
    let shape = collective::tree::Shape { m, n };
    Ok(formula.bind(collective::Format::E4m3, shape, &given)?)
}

/// The request of a call for a kernel's types and epilogue.
pub(super) fn request(entry: &AnyGemm, call: Call) -> Request<'static> {
    let plan = entry.plan();
    Request {
        types: Types::of_plan(&plan),
        majors: plan.majors(),
        call,
        fusion: entry.spec().and_then(|spec| spec.fusion()),
        shapes: &[],
        known: Known::Shipped,
        reproducible: false,
    }
}

impl Outcome {
    /// Checks a kernel on the memory of a call.
    pub(super) fn of(
        (entry, request): (&AnyGemm, &Request<'_>),
        engine: &mut dyn Engine,
        (given, tables): ((Call<GemmArguments>, &Fills<'_, Call<GemmArguments>>), Tables<'_>),
        sample: (u64, usize),
        runs: u32,
    ) -> Result<Self, RunError> {
        let checks = Checks::of(engine, entry, given, tables, sample)?;
        let agreed =
            checks.check_by(engine, entry, [1, runs], &|call, inputs| entry.expect(request, call, inputs));
        let ([.., format], mut d) = (formats(entry), Vec::new());
        for (of, now) in checks.memory(engine)?.iter().filter(|(of, _)| of.piece.name == "D") {
            of.spans(0, of.count()).for_each(|span| d.extend(format.elements(&now[span])));
        }
        checks.free(engine)?;
        let columns = (request.call.problem.n >> entry.plan().epilogue.halvings).max(1) as usize;
        let wrapped = |(at, exact): (usize, f64)| Wrapped {
            row: (at / columns) as u32,
            column: (at % columns) as u32,
            exact,
        };
        let (agreed, mismatch) = match agreed {
            Ok(agreed) => (agreed, None),
            Err(error) => match RunError::from(error) {
                RunError::Check(error) => (Agreed::NONE, Some(Mismatch(error))),
                error @ (RunError::Launch(_)
                | RunError::Engine(_)
                | RunError::Program(_)
                | RunError::Direction { .. }
                | RunError::Transposed { .. }) => return Err(error),
            },
        };
        let Agreed { compared, total, ratio, error, bound, wraps, time, .. } = agreed;
        let (complete, wrapped) = (compared == total, wraps.map(wrapped));
        Ok(Self { time, transposed: None, ratio, error, bound, compared, complete, mismatch, wrapped, d })
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
