//! Case tables in TOML. Each row is a family of GEMM calls, with the reason why it is tested.
//!
//! ```
//! use falchion::verify::tables::tables;
//!
//! assert!(tables()?.len() > 10);
//! # Ok::<(), falchion::verify::tables::TableError>(())
//! ```

use kernel::{AnyGemm, Engine, GemmProblem};
use serde::Deserialize;

use super::matrix::{Distribution, HostMatrix};
use super::product::{GemmCase, Outcome, RunError, formats, orders};
use super::{Format, Order, SeveralProducts, fnv, fnv_from};

/// One row of a table. It stands for all combinations of its lists: kinds, element types, shapes, pairs of
/// factors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// A short name.
    pub name: String,
    /// Why the case is tested.
    pub why: String,
    /// Its suite: `quick` runs by default, `full` on request.
    pub suite: String,
    /// Kinds of catalogue kernels.
    pub kinds: Vec<String>,
    /// Element types.
    #[serde(default = "all_elements")]
    pub elements: Vec<String>,
    /// Contiguous directions of A and B.
    #[serde(default = "all_directions")]
    pub directions: Vec<String>,
    /// Numbers of GEMMs per launch, for batched kernels.
    #[serde(default)]
    pub batch: Vec<u32>,
    /// Whether all GEMMs of a batch have the same A, B, C.
    #[serde(default)]
    pub shared: [bool; 3],
    /// Whether the rows of all D of a batch are side by side in memory.
    #[serde(default)]
    pub interleaved: bool,
    /// Rows of each group, for kernels of groups of rows.
    #[serde(default)]
    pub rows: Vec<Vec<u32>>,
    /// M, N and K of each GEMM of a launch, for pointer-array kernels (`grouped…`).
    #[serde(default)]
    pub records: Vec<Vec<[u32; 3]>>,
    /// Extents.
    #[serde(default)]
    pub m: Vec<u32>,
    /// Extents.
    #[serde(default)]
    pub n: Vec<u32>,
    /// Extents.
    #[serde(default)]
    pub k: Vec<u32>,
    /// Pairs of alpha and beta.
    #[serde(default = "all_factors")]
    pub factors: Vec<[f64; 2]>,
    /// Contents of A.
    #[serde(default = "normal")]
    pub a: Distribution,
    /// Contents of B.
    #[serde(default = "normal")]
    pub b: Distribution,
    /// Contents of C.
    #[serde(default = "normal")]
    pub c: Distribution,
    /// The leading dimensions of A and B are multiples of this number of elements.
    #[serde(default = "tensor_copies")]
    pub operand_multiple: u32,
    /// Offset of A, and of B, from an aligned address, in elements.
    #[serde(default)]
    pub operand_offset: u32,
    /// Whether D overwrites C.
    #[serde(default)]
    pub in_place: bool,
    /// Number of elements added to each row of D.
    #[serde(default)]
    pub d_padding: u32,
    /// Offset of D from an aligned address, in elements.
    #[serde(default)]
    pub d_offset: u32,
}

fn all_elements() -> Vec<String> {
    ["bf16", "f16"].map(str::to_owned).to_vec()
}

fn all_directions() -> Vec<String> {
    ["kk", "kn", "mk", "mn"].map(str::to_owned).to_vec()
}

fn all_factors() -> Vec<[f64; 2]> {
    vec![[1.0, 0.0], [0.5, 2.0], [0.0, 1.0]]
}

/// The number of 16-bit elements in 16 bytes.
fn tensor_copies() -> u32 {
    8
}

fn normal() -> Distribution {
    Distribution::Normal
}

#[derive(Deserialize)]
struct Table {
    case: Vec<Case>,
}

/// The embedded tables: name and text.
const TABLES: [(&str, &str); 4] = [
    ("shapes", include_str!("../../tests/cases/shapes.toml")),
    ("several", include_str!("../../tests/cases/several.toml")),
    ("threads", include_str!("../../tests/cases/threads.toml")),
    ("values", include_str!("../../tests/cases/values.toml")),
];

/// A table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table `{table}`: {reason}")]
pub struct TableError {
    /// The table's name.
    pub table: String,
    /// The position and the reason.
    pub reason: String,
}

/// All embedded cases.
///
/// # Errors
/// A table that cannot be parsed as a list of [`Case`]s.
pub fn tables() -> Result<Vec<Case>, TableError> {
    let mut cases = Vec::new();
    for (name, text) in TABLES {
        let table: Table = toml::from_str(text)
            .map_err(|error| TableError { table: name.to_owned(), reason: error.to_string() })?;
        cases.extend(table.case);
    }
    Ok(cases)
}

/// One kernel of a case.
#[derive(Clone, Debug)]
pub struct KernelCase<'c> {
    /// The case.
    pub case: &'c Case,
    /// The kernel's catalogue name.
    pub kernel: String,
    format: Format,
}

/// The seed of the matrices, and the number of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Seed of the random matrices.
    pub seed: u64,
    /// Number of runs of each call.
    pub runs: u32,
}

/// The outcome of a case for one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseVerdict {
    /// Number of calls that were run; a launch of several GEMMs counts as one.
    pub products: usize,
    /// The largest error as a fraction of its bound.
    pub ratio: f64,
    /// FNV-1a hash of every D. Equal bits give equal hashes.
    pub digest: u64,
    /// The first failure; `None` if all results are right.
    pub failure: Option<String>,
}

impl Default for CaseVerdict {
    fn default() -> Self {
        Self { products: 0, ratio: 0.0, digest: fnv(&[]), failure: None }
    }
}

impl CaseVerdict {
    /// Adds the outcome of one launch, or says what is wrong with it.
    fn add(&mut self, place: &str, outcome: Result<Outcome, RunError>) -> Result<(), String> {
        let outcome = outcome.map_err(|error| match error {
            RunError::Launch(error) => format!("{place}: refused: {error}"),
            RunError::Engine(_)
            | RunError::Program(_)
            | RunError::Direction { .. }
            | RunError::Transposed { .. }
            | RunError::Check(_) => format!("{place}: {error}"),
        })?;
        self.products += 1;
        self.ratio = self.ratio.max(outcome.ratio);
        let bytes: Vec<u8> = outcome.d.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        self.digest = fnv_from(self.digest, &bytes);
        outcome.mismatch.map_or(Ok(()), |wrong| Err(format!("{place}: {wrong}")))
    }
}

impl Case {
    /// The GEMMs of each launch, for batched and grouped kernels.
    fn launches(&self) -> Vec<SeveralProducts> {
        let columns = || self.n.iter().flat_map(|&n| self.k.iter().map(move |&k| [n, k]));
        let batches = columns().flat_map(|[n, k]| {
            let problems = self.m.iter().map(move |&m| GemmProblem { m, n, k });
            problems.flat_map(|problem| self.batch.iter().map(move |&count| (problem, count)))
        });
        let batches = batches.map(|(problem, count)| SeveralProducts::batch(problem, count));
        let rows = columns()
            .flat_map(|columns| self.rows.iter().map(move |rows| SeveralProducts::of_rows(rows, 3, columns)));
        let problem = |&[m, n, k]: &[u32; 3]| GemmProblem { m, n, k };
        let arrays = self.records.iter().map(|shapes| shapes.iter().map(problem).collect());
        let (shared, interleaved) = (self.shared, self.interleaved);
        let all = batches.chain(rows).chain(arrays.map(SeveralProducts::array));
        all.map(|products| SeveralProducts { shared, interleaved, ..products }).collect()
    }

    /// The case for each of its kernels.
    pub fn kernel_cases(&self) -> Vec<KernelCase<'_>> {
        let mut kernel_cases = Vec::new();
        for kind in &self.kinds {
            for element in &self.elements {
                for directions in &self.directions {
                    let kernel = format!("{kind}-{element}-{directions}");
                    let format = Format::named(element).unwrap_or(Format::Bf16);
                    kernel_cases.push(KernelCase { case: self, kernel, format });
                }
            }
        }
        kernel_cases
    }
}

impl KernelCase<'_> {
    /// Runs every call of the case on an engine.
    pub fn run(&self, engine: &mut dyn Engine, seed: u64) -> CaseVerdict {
        self.run_times(engine, Repeated { seed, runs: 1 })
    }

    /// As [`run`](Self::run), but each call runs a number of times. Each later run must give the bits of the
    /// first.
    pub fn run_times(&self, engine: &mut dyn Engine, repeated: Repeated) -> CaseVerdict {
        let mut verdict = CaseVerdict::default();
        verdict.failure = self.run_all(engine, repeated, &mut verdict).err();
        verdict
    }

    /// Runs the calls until one is wrong.
    fn run_all(
        &self,
        engine: &mut dyn Engine,
        Repeated { seed, runs }: Repeated,
        verdict: &mut CaseVerdict,
    ) -> Result<(), String> {
        let (case, entry) = (self.case, kernel::find(&self.kernel).map_err(|error| error.to_string())?);
        let launches = case.launches();
        for (products, &factors) in launches.iter().flat_map(|of| case.factors.iter().map(move |by| (of, by)))
        {
            let (operand_bytes, d_padding) = (2 * case.operand_multiple, case.d_padding);
            let several = SeveralProducts { factors, operand_bytes, d_padding, seed, ..products.clone() };
            let outcome = several.run_times(&entry, engine, runs);
            verdict.add(&format!("{several:?}"), outcome)?;
        }
        if !launches.is_empty() {
            return Ok(());
        }
        for &m in &case.m {
            for &n in &case.n {
                for &k in &case.k {
                    self.shape(&entry, engine, [m, n, k], Repeated { seed, runs }, verdict)?;
                }
            }
        }
        Ok(())
    }

    fn shape(
        &self,
        entry: &AnyGemm,
        engine: &mut dyn Engine,
        [m, n, k]: [u32; 3],
        Repeated { seed, runs }: Repeated,
        verdict: &mut CaseVerdict,
    ) -> Result<(), String> {
        let case = self.case;
        let mut random =
            fastrand::Rng::with_seed(seed ^ u64::from(m) << 40 ^ u64::from(n) << 20 ^ u64::from(k));
        let [a_order, b_order] = orders(entry);
        let a = HostMatrix::random(self.format, [m, k], a_order, case.operand_multiple, case.a, &mut random);
        let b = HostMatrix::random(self.format, [k, n], b_order, case.operand_multiple, case.b, &mut random);
        let [_, _, of_d] = formats(entry);
        let c = HostMatrix::random(of_d, [m, n], Order::RowMajor, 1, case.c, &mut random);
        let (d_ld, d_offset) = (n + case.d_padding, case.d_offset);
        let mut product = GemmCase {
            operand_offset: case.operand_offset,
            c: Some(c),
            d_ld,
            d_offset,
            in_place: case.in_place,
            ..GemmCase::new(a, b)
        };
        for &[alpha, beta] in &case.factors {
            (product.alpha, product.beta) = (alpha, beta);
            let place = format!("{m} x {n} x {k}, alpha {alpha}, beta {beta}");
            verdict.add(&place, product.run_times(entry, engine, runs))?;
        }
        Ok(())
    }
}
