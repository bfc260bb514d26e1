//! Several GEMMs of one launch (batched, groups of rows or along K, or a pointer array): runs them, and compares them
//! one by one.
//!
//! ```
//! use falchion::kernel::GemmProblem;
//! use falchion::verify::several::SeveralProducts;
//!
//! let batch = SeveralProducts::batch(GemmProblem { m: 64, n: 32, k: 16 }, 3);
//! assert_eq!(batch.operations(), 3.0 * 2.0 * 64.0 * 32.0 * 16.0);
//! ```

mod fused;
#[cfg(test)]
mod tests;

use collective::BlockScales;
use kernel::operands::{Layouts, Visit};
use kernel::{
    AnyGemm, Call, Engine, Family, GemmArguments, GemmProblem, GroupedProblem, LinearArguments, MatrixRef,
    Request,
};

use super::family::Fills;
use super::product::{self, Outcome, RunError};
use super::tree::nowhere;

/// The GEMMs of one launch with random matrices, in the formats of the kernel that runs them: a batch,
/// groups of rows, each with its own B, groups along K, each with its own D, or GEMMs of any shapes at
/// separate addresses, which records in device memory describe.
#[derive(Clone, Debug)]
pub struct SeveralProducts {
    /// The form of the launch. A run writes the offsets of the groups to its own memory, whatever address
    /// this gives.
    pub products: GroupedProblem,
    /// Extents of each GEMM of a batch. For groups of rows, M is the number of rows of A, C and D; for groups
    /// along K, K is that of A and B.
    pub problem: GemmProblem,
    /// The device-memory table of the groups: where they begin and where the last one ends, or how many rows
    /// each uses. Empty for a batch.
    pub offsets: Vec<u32>,
    /// The shape of each GEMM of a pointer array; empty for other forms.
    pub shapes: Vec<GemmProblem>,
    /// For a batch: whether all GEMMs have the same A, B, C. Groups along K always have the same A and B.
    pub shared: [bool; 3],
    /// For a batch, or groups along K: whether the rows of all D are side by side in memory; otherwise one D follows the other.
    pub interleaved: bool,
    /// Alpha and beta.
    pub factors: [f64; 2],
    /// The leading dimensions of A and B are multiples of this, in bytes.
    pub operand_bytes: u32,
    /// Number of elements added to each row of D.
    pub d_padding: u32,
    /// Seed of the random matrices.
    pub seed: u64,
}

/// Where groups of these sizes begin, and where the last one ends.
fn offsets(sizes: &[u32]) -> Vec<u32> {
    let mut offsets = vec![0];
    offsets.extend(sizes.iter().scan(0, |end, size| {
        *end += size;
        Some(*end)
    }));
    offsets
}

/// Number of elements between two D matrices, and after the last.
pub(super) const GAP: usize = 64;

impl SeveralProducts {
    /// A batch of GEMMs of packed matrices: D = AB.
    pub fn batch(problem: GemmProblem, count: u32) -> Self {
        Self {
            products: GroupedProblem::Batched { count },
            problem,
            offsets: Vec::new(),
            shapes: Vec::new(),
            shared: [false; 3],
            interleaved: false,
            factors: [1.0, 0.0],
            operand_bytes: 16,
            d_padding: 0,
            seed: 0,
        }
    }

    /// Groups that begin at `offsets`, in M rows.
    pub fn groups(problem: GemmProblem, offsets: Vec<u32>) -> Self {
        let count = offsets.len().saturating_sub(1) as u32;
        Self {
            products: GroupedProblem::GroupedContiguous { count, offsets: 0 },
            offsets,
            ..Self::batch(problem, 0)
        }
    }

    /// Groups of these numbers of rows, and `spare` rows after them.
    pub fn of_rows(rows: &[u32], spare: u32, [n, k]: [u32; 2]) -> Self {
        let offsets = offsets(rows);
        Self::groups(GemmProblem { m: offsets[rows.len()] + spare, n, k }, offsets)
    }

    /// Groups in buffers of `room` rows each, which use these numbers of rows.
    pub fn masked(rows: &[u32], room: u32, [n, k]: [u32; 2]) -> Self {
        let count = rows.len() as u32;
        let problem = GemmProblem { m: count.saturating_mul(room), n, k };
        let products = GroupedProblem::GroupedMasked { count, rows: 0, room };
        Self { products, offsets: rows.to_vec(), ..Self::batch(problem, 0) }
    }

    /// Groups along K that begin at `offsets`.
    pub fn along_k(problem: GemmProblem, offsets: Vec<u32>) -> Self {
        let count = offsets.len().saturating_sub(1) as u32;
        Self { products: GroupedProblem::KGrouped { count, offsets: 0 }, offsets, ..Self::batch(problem, 0) }
    }

    /// Groups of these lengths along K, one after the other, of `m` rows and `n` columns.
    pub fn of_lengths(lengths: &[u32], [m, n]: [u32; 2]) -> Self {
        let offsets = offsets(lengths);
        Self::along_k(GemmProblem { m, n, k: offsets[lengths.len()] }, offsets)
    }

    /// GEMMs of these shapes, as a pointer array.
    pub fn array(shapes: Vec<GemmProblem>) -> Self {
        let products = GroupedProblem::PointerArray { count: shapes.len() as u32, records: 0 };
        Self { products, shapes, ..Self::batch(GemmProblem { m: 0, n: 0, k: 0 }, 0) }
    }

    /// First and last K of each GEMM, for a kernel whose tile K is `tile`.
    fn ranges(&self, tile: u32) -> Vec<[u32; 2]> {
        let k = self.problem.k;
        if !matches!(self.products, GroupedProblem::KGrouped { .. }) {
            return vec![[0, k]; self.products.count() as usize];
        }
        // As documented: an offset counts as the next multiple of tile K, and as at most K.
        let counted = |offset: u32| offset.min(k).next_multiple_of(tile).min(k);
        let range = |of: &[u32]| [counted(of[0]), counted(of[1]).max(counted(of[0]))];
        self.offsets.windows(2).map(range).collect()
    }

    /// Whether the GEMMs are groups of rows.
    fn ragged(&self) -> bool {
        self.products.form().shares_rows()
    }

    /// First row and number of rows of each GEMM, among the rows of all.
    fn rows(&self) -> Vec<[u32; 2]> {
        let (offsets, m) = (&self.offsets, self.problem.m);
        if !self.ragged() {
            return (0..self.products.count()).map(|i| [i * m, m]).collect();
        }
        if let GroupedProblem::GroupedMasked { room, .. } = self.products {
            return (0..)
                .zip(offsets)
                .map(|(i, &rows): (u32, _)| [i.saturating_mul(room), rows.min(room)])
                .collect();
        }
        // As documented: an offset counts as at least the one before it, and as at most the number of rows.
        let most = |count: usize| offsets[..count].iter().copied().max().unwrap_or(0).min(m);
        (1..offsets.len()).map(|i| [most(i), most(i + 1) - most(i)]).collect()
    }

    /// Floating-point operations of all GEMMs.
    pub fn operations(&self) -> f64 {
        if !self.shapes.is_empty() {
            return self.shapes.iter().map(GemmProblem::operations).sum();
        }
        let operations = |(&[_, m], [begin, end]): (&[u32; 2], [u32; 2])| {
            GemmProblem { m, k: end - begin, ..self.problem }.operations()
        };
        self.rows().iter().zip(self.ranges(1)).map(operations).sum()
    }

    /// The offset of each D of so many columns in memory, and the leading dimension, in elements.
    fn places(&self, columns: u32) -> (Vec<usize>, usize) {
        let rows = self.rows();
        let padded = (columns + self.d_padding) as usize;
        let distance = self.problem.m as usize * padded + GAP;
        match (self.ragged(), self.interleaved) {
            (true, _) => (rows.iter().map(|&[first, _]| first as usize * padded).collect(), padded),
            (_, true) => ((0..rows.len()).map(|i| i * padded).collect(), padded * rows.len().max(1)),
            (_, false) => ((0..rows.len()).map(|i| i * distance).collect(), padded),
        }
    }

    /// Runs a kernel on an engine, and compares every D with the reference.
    ///
    /// # Errors
    /// The kernel refuses the call, or the engine fails.
    pub fn run(&self, entry: &AnyGemm, engine: &mut dyn Engine) -> Result<Outcome, RunError> {
        self.run_times(entry, engine, 1)
    }

    /// As [`run`](Self::run), but the kernel runs `runs` times. Each later run must give the bits of the
    /// first.
    ///
    /// # Errors
    /// The kernel refuses the call, or the engine fails.
    pub fn run_times(
        &self,
        entry: &AnyGemm,
        engine: &mut dyn Engine,
        runs: u32,
    ) -> Result<Outcome, RunError> {
        let call = self.call(entry);
        let request = Request { shapes: &self.shapes, ..product::request(entry, call) };
        let tables = |visit: &mut dyn Visit| {
            let records = AnyGemm::describe(&request, visit);
            if records.is_empty() { self.offsets.clone() } else { records }
        };
        let fill: &Fills<'_, Call<GemmArguments>> = &|_, _| ();
        let call = call.with(call.epilogue.into());
        Outcome::of((entry, &request), engine, ((call, fill), &tables), (self.seed, usize::MAX), runs)
    }

    /// The call, with memory at no addresses.
    fn call(&self, entry: &AnyGemm) -> Call {
        let layouts = Layouts::of(entry);
        let (problem, products) = (self.problem, self.products.at(0));
        let mut call = Call { workspace: None, products, ..layouts.packed(problem, self.operand_bytes) };
        let columns = problem.n >> layouts.halvings;
        let linear = LinearArguments::of(self.factors, Some(MatrixRef::new(0, columns.into())));
        // Of matrices that are not shared, one follows the other.
        call = layouts.apart(Call { epilogue: linear, ..call });
        let (places, ld) = self.places(columns);
        call.d = MatrixRef::new(0, ld as u64).every(places.get(1).map_or(0, |&second| second as u64));
        let [a, b, c] = self.shared;
        let alone = |shared: bool, of: &mut MatrixRef| of.stride = if shared { 0 } else { of.stride };
        alone(a, &mut call.a);
        alone(b, &mut call.b);
        if let Some(BlockScales { a: of_a, b: of_b }) = &mut call.scales {
            alone(a, of_a);
            alone(b, of_b);
        }
        if let Some(of_c) = &mut call.epilogue.c {
            alone(c, of_c);
        }
        nowhere(&layouts, &mut call);
        call
    }
}
