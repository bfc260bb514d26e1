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

use kernel::{AnyGemm, Call, Engine, GemmProblem, LinearArguments, Program};

use super::matrix::Fill;
use super::product::{GemmCase, RunError, formats, orders};
use super::session::{Session, Upload};
use super::several::{GAP, Placed, SeveralOutcome};
use super::{Format, HostMatrix, Order};

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
        let session = &mut Session::new(engine);
        let [.., format] = formats(entry);
        let products = self.products(formats(entry), orders(entry));
        // The D matrices are consecutive in memory, each followed by a guard. They may begin at any element.
        let (mut begin, mut placed, mut records) = (0, Vec::new(), Vec::new());
        for case in products {
            let GemmProblem { m, n, k } = case.problem();
            let c = session.matrices([case.c.as_ref().unwrap_or(&case.a)])?;
            let [a, b] = [session.matrices([&case.a])?, session.matrices([&case.b])?];
            let (addresses, lds) =
                ([a.address, b.address, c.address, 0], [a.ld, b.ld, c.ld, case.d_ld.into()]);
            records.push(collective::Record { m, n, k, addresses, lds });
            let ld = case.d_ld as usize;
            placed.push(Placed { case, begin, ld });
            begin += m as usize * ld + GAP;
        }
        let d = session.output(format, vec![format.poison(); begin])?;
        for (record, placed) in records.iter_mut().zip(&placed) {
            record.addresses[3] = d.buffer.address + u64::from(format.bytes()) * placed.begin as u64;
        }
        let bytes: Vec<u8> = records.iter().flat_map(collective::Record::to_bytes).collect();
        let [alpha, beta] = self.factors;
        let linear = LinearArguments { alpha, beta, c: None };
        let call = Call::grouped(records.len() as u32, session.upload(&bytes)?).with(linear);
        let ran = session.launch((entry, program), call)?;
        SeveralOutcome::of(session, (entry, &ran), &d, placed, runs)
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
