//! GEMMs of a pointer array, whose records are in device memory: runs them in one launch, and compares them
//! one by one.
//!
//! ```
//! use falchion::kernel::{self, Emulator};
//! use falchion::verify::RecordProducts;
//!
//! let gemm = "form=grouped tile=64x64x64 consumers=1".parse::<kernel::KernelSpec>()?.kernel()?;
//! let products = RecordProducts {
//!     shapes: vec![[70, 40, 64], [0, 40, 64], [64, 8, 200]],
//!     factors: [1.0, 0.0],
//!     operand_bytes: 16,
//!     d_padding: 0,
//!     seed: 1,
//! };
//! let outcome = products.run(&gemm, &gemm.program()?, &mut Emulator::new())?;
//! assert!(outcome.mismatch.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use kernel::{AnyGemm, Buffer, Call, Engine, LinearArguments, Program};

use super::matrix::Fill;
use super::product::{GemmCase, RunError, accumulators, formats, freeing, orders};
use super::repeat::{Again, chunks};
use super::several::{GAP, SeveralOutcome};
use super::{Format, HostMatrix, Order, Sums};

/// GEMMs of any shapes with random matrices at separate addresses, in the formats of the kernel that runs
/// them.
#[derive(Clone, Debug)]
pub struct RecordProducts {
    /// M, N and K of each GEMM.
    pub shapes: Vec<[u32; 3]>,
    /// Alpha and beta.
    pub factors: [f32; 2],
    /// The leading dimensions of A and B are multiples of this, in bytes.
    pub operand_bytes: u32,
    /// Number of elements added to each row of D.
    pub d_padding: u32,
    /// Seed of the random matrices.
    pub seed: u64,
}

impl RecordProducts {
    /// Runs a kernel on an engine, and compares every D with the reference.
    ///
    /// # Errors
    /// The kernel refuses the call, or the engine fails.
    pub fn run(
        &self,
        entry: &AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
    ) -> Result<SeveralOutcome, RunError> {
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
        let [.., format] = formats(entry);
        let products = self.products(formats(entry), orders(entry));
        let mut upload = |engine: &mut dyn Engine, bytes: &[u8]| -> Result<Buffer, RunError> {
            let buffer = engine.upload(bytes)?;
            buffers.push(buffer);
            Ok(buffer)
        };
        // The D matrices are consecutive in memory, each followed by a guard. They may begin at any element.
        let mut begin = 0;
        let mut regions = Vec::new();
        let mut records = Vec::new();
        for product in &products {
            let rows = product.a.rows as usize;
            regions.push(begin..begin + rows * product.d_ld as usize + GAP);
            begin += regions[regions.len() - 1].len();
            let mut record = collective::Record {
                m: product.a.rows,
                n: product.b.columns,
                k: product.a.columns,
                ..Default::default()
            };
            let c = product.c.as_ref().unwrap_or(&product.a);
            for (i, matrix) in [&product.a, &product.b, c].into_iter().enumerate() {
                record.addresses[i] = upload(engine, &matrix.bytes())?.address;
                record.lds[i] = matrix.ld.into();
            }
            record.lds[3] = product.d_ld.into();
            records.push(record);
        }
        let before = vec![format.poison(); chunks(format, begin)];
        let d = upload(engine, &format.memory(&before))?;
        for (record, region) in records.iter_mut().zip(&regions) {
            record.addresses[3] = d.address + u64::from(format.bytes()) * region.start as u64;
        }
        let bytes: Vec<u8> = records.iter().flat_map(collective::Record::to_bytes).collect();
        let records = upload(engine, &bytes)?.address;
        let slots = engine.slots(program)?;
        let [alpha, beta] = self.factors;
        let linear = LinearArguments { alpha, beta, c: None };
        let call = Call::grouped(products.len() as u32, records).with(linear);
        let workspace = engine.workspace(entry.workspace(&call, slots))?;
        buffers.extend(workspace.map(|workspace| workspace.buffer()));
        let launch = entry.launch(&Call { workspace, ..call }, slots)?;
        let time = match &launch {
            Some(launch) => Some(engine.launch(program, launch.grid, &launch.arguments)?),
            None => None,
        };
        let after = format.elements(&engine.read(d)?);
        let mut outcome = SeveralOutcome::new(time, after.clone());
        for (i, (product, region)) in products.iter().zip(regions).enumerate() {
            let sums = Sums::in_accumulators(accumulators(entry), &product.a, &product.b, &|_| ());
            let (was, is) = (&before[region.clone()], &after[region]);
            let checked = product.compare(format, &sums, None, was, is);
            outcome.add(i, checked);
        }
        if let Some(launch) = &launch {
            let again = Again { program, launch, d, format, before: &before, first: &after };
            outcome.repeat(&again, engine, runs, buffers)?;
        }
        Ok(outcome)
    }

    fn products(&self, [a, b, d]: [Format; 3], [a_order, b_order]: [Order; 2]) -> Vec<GemmCase> {
        let Self { factors: [alpha, beta], operand_bytes, d_padding, .. } = *self;
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut fill = |extents, order, (format, multiple): (Format, u32)| {
            HostMatrix::random(format, extents, order, multiple, Fill::Normal, &mut random)
        };
        let product = |&[m, n, k]: &[u32; 3]| GemmCase {
            a: fill([m, k], a_order, (a, operand_bytes / a.bytes())),
            b: fill([k, n], b_order, (b, operand_bytes / b.bytes())),
            scales: None,
            weights: None,
            vectors: None,
            operand_offset: 0,
            c: Some(fill([m, n], Order::RowMajor, (d, 1))),
            alpha,
            beta,
            d_ld: n + d_padding,
            d_offset: 0,
            in_place: false,
        };
        self.shapes.iter().map(product).collect()
    }
}
