//! Several products of one launch: run, and compared one by one.

use std::time::Duration;

use kernel::{AnyGemm, Buffer, Call, Engine, GemmProblem, LinearArguments, MatrixRef, Program};

use super::matrix::Fill;
use super::product::{POISON, Product, RunError, freeing, orders};
use super::repeat::{Again, CHUNK};
use super::{Format, HostMatrix, Order, Sums};

/// Which products there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Products {
    /// Some of one shape.
    Batch {
        /// How many.
        count: u32,
        /// Rows of each.
        m: u32,
        /// Whether all have the same A, B, C.
        shared: [bool; 3],
        /// Whether the rows of all D lie side by side, not one D behind the other.
        interleaved: bool,
    },
    /// Groups of rows, each with a B of its own.
    Rows {
        /// What memory says of where groups begin and where the last one ends.
        offsets: Vec<u32>,
        /// Rows of A, C and D.
        all: u32,
    },
}

impl Products {
    /// Groups of so many rows, and `spare` rows behind them.
    pub fn of_rows(rows: &[u32], spare: u32) -> Self {
        let mut offsets = vec![0];
        offsets.extend(rows.iter().scan(0, |end, rows| {
            *end += rows;
            Some(*end)
        }));
        let all = offsets[rows.len()] + spare;
        Self::Rows { offsets, all }
    }

    /// First row and rows of each product, among those of all.
    fn rows(&self) -> Vec<[u32; 2]> {
        match self {
            Self::Batch { count, m, .. } => (0..*count).map(|i| [i * m, *m]).collect(),
            Self::Rows { offsets, all } => {
                // As documented: no offset counts as less than one before it, or as more than there are rows.
                let most = |count: usize| offsets[..count].iter().copied().max().unwrap_or(0).min(*all);
                (1..offsets.len()).map(|i| [most(i), most(i + 1) - most(i)]).collect()
            }
        }
    }
}

/// Products of one launch with random matrices.
#[derive(Clone, Debug)]
pub struct SeveralProducts {
    /// Element type.
    pub format: Format,
    /// Which there are.
    pub products: Products,
    /// Columns of each.
    pub n: u32,
    /// Length of each sum.
    pub k: u32,
    /// Factors of the products and of C.
    pub factors: [f32; 2],
    /// What the leading dimensions of A and B are rounded up to, in elements.
    pub operand_multiple: u32,
    /// Elements added to each row of D.
    pub d_padding: u32,
    /// Of the matrices.
    pub seed: u64,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct SeveralOutcome {
    /// Device time; `None` where there was nothing to launch.
    pub time: Option<Duration>,
    /// The largest error as a part of its bound.
    pub ratio: f64,
    /// Elements compared.
    pub compared: usize,
    /// What is wrong first.
    pub mismatch: Option<String>,
    /// All of D's memory.
    pub d: Vec<u16>,
}

/// Elements between two D, and behind the last.
pub(super) const GAP: usize = 64;

impl SeveralProducts {
    /// Floating-point operations of all of them.
    pub fn operations(&self) -> f64 {
        let operations = |m| GemmProblem { m, n: self.n, k: self.k }.operations();
        self.products.rows().iter().map(|&[_, m]| operations(m)).sum()
    }

    /// Where each D begins in memory, in elements, and elements from one row to the next.
    fn places(&self) -> (Vec<usize>, usize) {
        let rows = self.products.rows();
        let padded = (self.n + self.d_padding) as usize;
        match self.products {
            Products::Batch { count, interleaved: true, .. } => {
                ((0..rows.len()).map(|i| i * padded).collect(), padded * (count as usize).max(1))
            }
            Products::Batch { m, .. } => {
                ((0..rows.len()).map(|i| i * (m as usize * padded + GAP)).collect(), padded)
            }
            Products::Rows { .. } => {
                (rows.iter().map(|&[first, _]| first as usize * padded).collect(), padded)
            }
        }
    }

    /// Runs a kernel on an engine and compares every D with the oracle's.
    ///
    /// # Errors
    /// A call that the kernel refuses, or what the engine reports.
    pub fn run(
        &self,
        entry: &AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
    ) -> Result<SeveralOutcome, RunError> {
        self.run_times(entry, program, engine, 1)
    }

    /// As [`run`](Self::run), then again until the kernel has run `runs` times: each time D must have the bits of the first.
    ///
    /// # Errors
    /// A call that the kernel refuses, or what the engine reports.
    pub fn run_times(
        &self,
        entry: &AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
        runs: u32,
    ) -> Result<SeveralOutcome, RunError> {
        freeing(engine, |engine, buffers| self.run_with(entry, program, engine, runs, buffers))
    }

    fn run_with(
        &self,
        entry: &AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
        runs: u32,
        buffers: &mut Vec<Buffer>,
    ) -> Result<SeveralOutcome, RunError> {
        let Self { format, n, k, factors: [alpha, beta], .. } = *self;
        let matrices = self.matrices(orders(entry));
        let mut upload = |engine: &mut dyn Engine, bytes: &[u8]| -> Result<Buffer, RunError> {
            let buffer = engine.upload(bytes)?;
            buffers.push(buffer);
            Ok(buffer)
        };
        let stride = |all: &[HostMatrix]| match all {
            [first, _, ..] => first.bits.len() as u64,
            _ => 0,
        };
        let all_bytes = |all: &[HostMatrix]| all.iter().flat_map(HostMatrix::bytes).collect::<Vec<u8>>();
        let mut place = |engine: &mut dyn Engine, all: &[HostMatrix]| -> Result<MatrixRef, RunError> {
            let pitch = all.first().map_or(8, |matrix| matrix.pitch).into();
            Ok(MatrixRef::new(upload(engine, &all_bytes(all))?.address, pitch).every(stride(all)))
        };
        let [a, b, c] = [&matrices.a, &matrices.b, &matrices.c];
        let (a_ref, b_ref, c_ref) = (place(engine, a)?, place(engine, b)?, place(engine, c)?);
        let (places, d_pitch) = self.places();
        let rows = self.products.rows();
        let inner = match self.products {
            Products::Rows { all, .. } => all as usize * d_pitch,
            Products::Batch { m, .. } => places.last().map_or(0, |last| last + m as usize * d_pitch),
        };
        let before = vec![POISON; (inner + GAP).next_multiple_of(CHUNK)];
        let bytes: Vec<u8> = before.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let d = upload(engine, &bytes)?;
        let slots = engine.slots(program)?;
        let m = match self.products {
            Products::Batch { m, .. } => m,
            Products::Rows { all, .. } => all,
        };
        let problem = GemmProblem { m, n, k };
        let products = match &self.products {
            Products::Batch { count, .. } => kernel::Products::Batched { count: *count },
            Products::Rows { offsets, .. } => {
                let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
                let count = offsets.len() as u32 - 1;
                kernel::Products::Ragged { count, offsets: upload(engine, &bytes)?.address }
            }
        };
        let d_stride = places.get(1).map_or(0, |&second| second as u64);
        let d_ref = MatrixRef::new(d.address, d_pitch as u64).every(d_stride);
        let linear = LinearArguments { alpha, beta, c: (beta != 0.0).then_some(c_ref) };
        let call = Call { products, a: a_ref, b: b_ref, d: d_ref, ..Call::of(problem) }.with(linear);
        let workspace = engine.workspace(entry.workspace(&call, slots))?;
        buffers.extend(workspace.map(|workspace| workspace.buffer()));
        let launch = entry.launch(&Call { workspace, ..call }, slots)?;
        let time = match &launch {
            Some(launch) => Some(engine.launch(program, launch.grid, &launch.arguments)?),
            None => None,
        };
        let bytes = engine.read(d)?;
        let after: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();

        let mut outcome = SeveralOutcome { time, ratio: 0.0, compared: 0, mismatch: None, d: after.clone() };
        let mut inside = vec![false; after.len()];
        for (i, (&place, &[first, m])) in places.iter().zip(&rows).enumerate() {
            let element = |row: u32, column: u32| place + row as usize * d_pitch + column as usize;
            let mut dense = Vec::new();
            for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                dense.push(after[element(row, column)]);
                inside[element(row, column)] = true;
            }
            let product = matrices.product(self, i, [first, m]);
            let sums = Sums::of(&product.a, &product.b, &|_| ());
            let checked = product.compare(&sums, None, &vec![POISON; dense.len()], &dense);
            outcome.ratio = outcome.ratio.max(checked.ratio);
            outcome.compared += checked.compared;
            if let Some(mismatch) = checked.mismatch.filter(|_| outcome.mismatch.is_none()) {
                outcome.mismatch = Some(format!("product {i}: {mismatch}"));
            }
        }
        let touched = (0..after.len()).find(|&at| !inside[at] && after[at] != before[at]);
        if let Some(at) = touched.filter(|_| outcome.mismatch.is_none()) {
            let got = format.widen(after[at]);
            outcome.mismatch =
                Some(format!("element {at} of D's memory is of no product and was overwritten with {got}"));
        }
        if let Some(launch) = launch.filter(|_| outcome.mismatch.is_none()) {
            let again = Again { program, launch: &launch, d, before: &before, first: &after };
            let change = again.run(engine, runs, buffers)?;
            outcome.mismatch = change.map(|change| change.to_string());
        }
        Ok(outcome)
    }

    fn matrices(&self, [a_order, b_order]: [Order; 2]) -> Matrices {
        let Self { format, n, k, operand_multiple, seed, .. } = *self;
        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(n) << 20 ^ u64::from(k));
        let mut fill = |extents, order, multiple| {
            HostMatrix::random(format, extents, order, multiple, Fill::Normal, &mut random)
        };
        let count = self.products.rows().len();
        let several = |shared: bool| if shared { count.min(1) } else { count };
        let (m, [a, b, c]) = match self.products {
            Products::Batch { m, shared, .. } => (m, shared.map(several)),
            Products::Rows { all, .. } => (all, [1, count, 1]),
        };
        Matrices {
            a: (0..a).map(|_| fill([m, k], a_order, operand_multiple)).collect(),
            b: (0..b).map(|_| fill([k, n], b_order, operand_multiple)).collect(),
            c: (0..c).map(|_| fill([m, n], Order::RowMajor, 1)).collect(),
        }
    }
}

/// One or several of each; one that all products share, or of whose rows each has some.
struct Matrices {
    a: Vec<HostMatrix>,
    b: Vec<HostMatrix>,
    c: Vec<HostMatrix>,
}

impl Matrices {
    /// The `i`-th product by itself.
    fn product(&self, of: &SeveralProducts, i: usize, [first, m]: [u32; 2]) -> Product {
        let own = |all: &[HostMatrix]| all[i.min(all.len() - 1)].clone();
        let part = |matrix: HostMatrix| match of.products {
            Products::Batch { .. } => matrix,
            Products::Rows { .. } => {
                let HostMatrix { format, columns, order, .. } = matrix;
                let pitch = if order == Order::RowMajor { columns } else { m };
                HostMatrix::from_fn(format, [m, columns], order, pitch, |row, column| {
                    matrix.get(first + row, column)
                })
            }
        };
        let [alpha, beta] = of.factors;
        Product {
            a: part(own(&self.a)),
            b: own(&self.b),
            operand_offset: 0,
            c: Some(part(own(&self.c))),
            alpha,
            beta,
            d_pitch: of.n,
            d_offset: 0,
            in_place: false,
        }
    }
}
