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

use std::borrow::Cow;

use collective::Record;
use kernel::{
    AnyGemm, Call, Engine, EngineError, GemmProblem, GroupedProblem, LinearArguments, MatrixRef, Program,
};

use super::matrix::Distribution;
use super::product::{GemmCase, Outcome, Placed, RunError, formats, orders, scaled};
use super::session::{Output, Session, Upload};
use super::{Format, HostMatrix, Order, Scales, Weights, storage};

/// A call, D's memory, and the GEMMs in it.
type Laid<'a> = (Call, Output, Box<dyn Iterator<Item = Placed<'static>> + 'a>);

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

    /// The offset of each D in memory, and the leading dimension, in elements.
    fn places(&self) -> (Vec<usize>, usize) {
        let rows = self.rows();
        let padded = (self.problem.n + self.d_padding) as usize;
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
    pub fn run(
        &self,
        entry: &AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
    ) -> Result<Outcome, RunError> {
        self.run_times(entry, program, engine, 1)
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
        runs: u32,
    ) -> Result<Outcome, RunError> {
        let session = &mut Session::new(engine);
        let described = matches!(self.products, GroupedProblem::PointerArray { .. });
        let (call, d, placed) =
            if described { self.described(session, entry)? } else { self.packed(session, entry)? };
        let ran = session.launch((entry, program), call)?;
        Outcome::of(session, (entry, &ran), &d, placed, runs)
    }

    /// The call, and memory for the D of each GEMM.
    fn packed(&self, session: &mut Session<'_>, entry: &AnyGemm) -> Result<Laid<'_>, RunError> {
        let (problem, matrices) = (self.problem, self.matrices(entry));
        let mut call = self.call(session, &matrices)?;
        let operands = [&matrices.a[..], &matrices.b];
        storage::bring(entry, &mut call, operands, &matrices.weights, session)?;
        let (places, d_ld) = self.places();
        let (rows, ranges) = (self.rows(), self.ranges(entry.plan().mainloop.tile[2]));
        let last = if self.ragged() { Some(0) } else { places.last().copied() };
        let inner = last.map_or(0, |last| last + problem.m as usize * d_ld);
        let [.., format] = formats(entry);
        let d = session.output(format, vec![format.poison(); inner + GAP])?;
        let d_stride = places.get(1).map_or(0, |&second| second as u64);
        call.d = MatrixRef::new(d.buffer.address, d_ld as u64).every(d_stride);
        let c = session.matrices(&matrices.c)?;
        let linear = LinearArguments::of(self.factors, (self.factors[1] != 0.0).then_some(c));
        let placed = places.into_iter().zip(rows).zip(ranges).enumerate();
        let placed = placed.map(move |(i, ((begin, rows), range))| {
            let case = Cow::Owned(matrices.product(self, i, (rows, range)));
            Placed { case, sums: None, begin, ld: d_ld }
        });
        Ok((call.with(linear), d, Box::new(placed)))
    }

    /// The same for a pointer array. The D matrices are consecutive in memory, each followed by a guard. They may
    /// begin at any element.
    fn described(&self, session: &mut Session<'_>, entry: &AnyGemm) -> Result<Laid<'_>, RunError> {
        let ([of_a, of_b, format], [a_order, b_order]) = (formats(entry), orders(entry));
        let [alpha, beta] = self.factors;
        let mut random = fastrand::Rng::with_seed(self.seed);
        let (mut end, mut placed, mut records) = (0, Vec::new(), Vec::new());
        for &GemmProblem { m, n, k } in &self.shapes {
            let mut fill = |extents, order, format: Format, bytes: u32| {
                let multiple = (bytes / format.bytes()).max(1);
                HostMatrix::random(format, extents, order, multiple, Distribution::Normal, &mut random)
            };
            let a = fill([m, k], a_order, of_a, self.operand_bytes);
            let b = fill([k, n], b_order, of_b, self.operand_bytes);
            let c = fill([m, n], Order::RowMajor, format, 0);
            let [c_ref, a_ref, b_ref] =
                [session.matrices([&c])?, session.matrices([&a])?, session.matrices([&b])?];
            let (begin, ld) = (end, (n + self.d_padding) as usize);
            let addresses = [a_ref.address, b_ref.address, c_ref.address, begin as u64];
            let lds = [a_ref.ld, b_ref.ld, c_ref.ld, ld as u64];
            records.push(Record { m, n, k, addresses, lds });
            let case = Cow::Owned(GemmCase { c: Some(c), alpha, beta, ..GemmCase::new(a, b) });
            placed.push(Placed { case, sums: None, begin, ld });
            end += m as usize * ld + GAP;
        }
        let d = session.output(format, vec![format.poison(); end])?;
        for record in &mut records {
            record.addresses[3] = d.buffer.address + u64::from(format.bytes()) * record.addresses[3];
        }
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        let linear = LinearArguments::of(self.factors, None);
        let call = Call::grouped(records.len() as u32, session.upload(&bytes)?).with(linear);
        Ok((call, d, Box::new(placed.into_iter())))
    }

    /// A call of the matrices, without D, and without operands in another form than they are multiplied.
    fn call(&self, to: &mut impl Upload, matrices: &Matrices) -> Result<Call<()>, EngineError> {
        let (a, b) = (to.matrices(&matrices.a)?, to.matrices(&matrices.b)?);
        let scales = matrices.scales.as_ref().map(|[a, b]| to.scales([a, b])).transpose()?;
        let products = self.products.at(to.words(&self.offsets)?);
        Ok(Call { products, a, b, scales, ..Call::of(self.problem) }.with(()))
    }

    fn matrices(&self, entry: &AnyGemm) -> Matrices {
        let ([a, b, d], [a_order, b_order], scaled) = (formats(entry), orders(entry), scaled(entry));
        let Self { problem: GemmProblem { m, n, k }, operand_bytes, seed, .. } = *self;
        let formats = [(a, operand_bytes / a.bytes()), (b, operand_bytes / b.bytes()), (d, 1)];
        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(n) << 20 ^ u64::from(k));
        let mut fill = |extents, order, (format, multiple)| {
            HostMatrix::random(format, extents, order, multiple, Distribution::Normal, &mut random)
        };
        let count = self.rows().len();
        let several = |shared: bool| if shared { count.min(1) } else { count };
        let [a, b, c] = match self.products {
            _ if self.ragged() => [1, count, 1],
            GroupedProblem::KGrouped { .. } => [true, true, self.shared[2]].map(several),
            GroupedProblem::One
            | GroupedProblem::Batched { .. }
            | GroupedProblem::GroupedContiguous { .. }
            | GroupedProblem::GroupedMasked { .. }
            | GroupedProblem::PointerArray { .. } => self.shared.map(several),
        };
        let mut of_a: Vec<_> = (0..a).map(|_| fill([m, k], a_order, formats[0])).collect();
        let mut of_b: Vec<_> = (0..b).map(|_| fill([k, n], b_order, formats[1])).collect();
        let of_c = (0..c).map(|_| fill([m, n], Order::RowMajor, formats[2])).collect();
        let operand = if storage::is_b(entry) { &mut of_b } else { &mut of_a };
        let fit = |matrix: &mut HostMatrix| storage::fit(entry, self.problem, matrix, &mut random);
        let weights = operand.iter_mut().filter_map(fit).collect();
        Matrices {
            a: of_a,
            b: of_b,
            c: of_c,
            weights,
            scales: scaled.map(|[a_rows, b_rows]| {
                let mut scales = |extents, rows, count| {
                    (0..count).map(|_| Scales::random(extents, rows, &mut random)).collect()
                };
                [scales([m, k], a_rows, a), scales([n, k], b_rows, b)]
            }),
        }
    }
}

/// The matrices of a launch. Each operand is one matrix that all GEMMs share, one matrix whose rows the
/// groups divide, or one matrix per GEMM.
struct Matrices {
    a: Vec<HostMatrix>,
    b: Vec<HostMatrix>,
    c: Vec<HostMatrix>,
    scales: Option<[Vec<Scales>; 2]>,
    /// The codes of the weights in few bits, if an operand has such.
    weights: Vec<Weights>,
}

impl Matrices {
    /// The `i`-th GEMM alone: first row and number of rows, and first and last K.
    fn product(
        &self,
        of: &SeveralProducts,
        i: usize,
        ([first, m], [begin, end]): ([u32; 2], [u32; 2]),
    ) -> GemmCase {
        let part = |all: &[HostMatrix], [first_row, rows]: [u32; 2], [first_column, columns]: [u32; 2]| {
            let matrix = &all[i.min(all.len() - 1)];
            if [rows, columns] == [matrix.rows, matrix.columns] {
                return matrix.clone();
            }
            let HostMatrix { format, order, .. } = *matrix;
            let ld = if order == Order::RowMajor { columns } else { rows };
            HostMatrix::from_fn(format, [rows, columns], order, ld, |row, column| {
                matrix.get(first_row + row, first_column + column)
            })
        };
        let (rows, columns) = (if of.ragged() { [first, m] } else { [0, of.problem.m] }, [0, of.problem.n]);
        let (range, [alpha, beta]) = ([begin, end - begin], of.factors);
        GemmCase {
            scales: self.scales.as_ref().map(|[a, b]| {
                let [a, b] = [a, b].map(|all| all[i.min(all.len() - 1)].along_k(range));
                [if of.ragged() { a.part(first, m) } else { a }, b]
            }),
            c: Some(part(&self.c, rows, columns)),
            alpha,
            beta,
            ..GemmCase::new(part(&self.a, rows, range), part(&self.b, range, columns))
        }
    }
}
