//! One product: its matrices on the host, run on an engine, and compared.

use std::time::Duration;

use kernel::{AnyGemm, Buffer, Call, Engine, EngineError, GemmProblem, LaunchError, MatrixRef, Program};

use super::bound::Expected;
use super::{HostMatrix, Order, Sums};

/// A GEMM call with its matrices on the host.
#[derive(Clone, Debug)]
pub struct Product {
    /// A, `(M, K)`: row-major for a kernel that wants it K-major, column-major for one that wants it M-major.
    pub a: HostMatrix,
    /// B, `(K, N)`: column-major for K-major, row-major for N-major.
    pub b: HostMatrix,
    /// C, `(M, N)`, row-major.
    pub c: Option<HostMatrix>,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// Elements from one row of D to the next.
    pub d_pitch: u32,
    /// Elements between an aligned address and D.
    pub d_offset: u32,
    /// D overwrites C.
    pub in_place: bool,
}

/// The first element that is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mismatch {
    /// Its row.
    pub row: u32,
    /// Its column; beyond N where memory beside D was written.
    pub column: u32,
    /// What is there.
    pub got: f64,
    /// What should be there.
    pub expected: Expected,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Device time; `None` where there was nothing to launch.
    pub time: Option<Duration>,
    /// The largest error as a part of its bound.
    pub ratio: f64,
    /// The error there.
    pub error: f64,
    /// The bound there.
    pub bound: f64,
    /// Elements compared.
    pub compared: usize,
    /// The first wrong element.
    pub mismatch: Option<Mismatch>,
    /// D as it came back, `M` rows of `d_pitch` elements.
    pub d: Vec<u16>,
}

/// Why a product could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel refuses the call.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The engine could not run it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A NaN that no kernel computes.
const POISON: u16 = 0x7fa5;

/// Elements behind D that must stay as they are.
const GUARD: usize = 256;

impl Product {
    /// The extents.
    pub fn problem(&self) -> GemmProblem {
        GemmProblem { m: self.a.rows, n: self.b.columns, k: self.a.columns }
    }

    /// Runs a kernel on an engine and compares D with the oracle's sums.
    ///
    /// # Errors
    /// A call that the kernel refuses, or what the engine reports.
    pub fn run(
        &self,
        entry: &dyn AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
        sums: &Sums,
    ) -> Result<Outcome, RunError> {
        let mut buffers = Vec::new();
        let result = self.run_with(entry, program, engine, sums, &mut buffers);
        for buffer in buffers {
            // After a fault the device is lost and so is its memory; the fault is what is reported.
            let _ = engine.free(buffer);
        }
        result
    }

    fn run_with(
        &self,
        entry: &dyn AnyGemm,
        program: &Program,
        engine: &mut dyn Engine,
        sums: &Sums,
        buffers: &mut Vec<Buffer>,
    ) -> Result<Outcome, RunError> {
        let mut upload = |engine: &mut dyn Engine, bytes: &[u8]| -> Result<Buffer, EngineError> {
            let buffer = engine.upload(bytes)?;
            buffers.push(buffer);
            Ok(buffer)
        };
        let a = upload(engine, &self.a.bytes())?;
        let b = upload(engine, &self.b.bytes())?;
        let before = self.d_before();
        let d = upload(engine, &before.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<u8>>())?;
        let d_ref = MatrixRef { address: d.address + u64::from(self.d_offset) * 2, pitch: self.d_pitch.into() };
        let c = match &self.c {
            Some(_) if self.in_place => Some(d_ref),
            Some(c) => {
                Some(MatrixRef { address: upload(engine, &c.bytes())?.address, pitch: c.pitch.into() })
            }
            None => None,
        };
        let at = |buffer: Buffer, matrix: &HostMatrix| MatrixRef {
            address: buffer.address,
            pitch: matrix.pitch.into(),
        };
        let (alpha, beta) = (self.alpha, self.beta);
        let call =
            Call { problem: self.problem(), a: at(a, &self.a), b: at(b, &self.b), c, d: d_ref, alpha, beta };
        let slots = engine.slots(program)?;
        let time = match entry.launch(&call, slots)? {
            Some(launch) => Some(engine.launch(program, launch.grid, &launch.arguments)?),
            None => None,
        };
        let bytes = engine.read(d)?;
        let after: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        Ok(self.compare(sums, time, &before, &after))
    }

    /// D's memory before the run: poison, or C where D overwrites it.
    fn d_before(&self) -> Vec<u16> {
        let (m, pitch, offset) = (self.a.rows as usize, self.d_pitch as usize, self.d_offset as usize);
        let mut before = vec![POISON; offset + m * pitch + GUARD];
        if let Some(c) = self.c.as_ref().filter(|_| self.in_place) {
            for row in 0..c.rows {
                for column in 0..c.columns {
                    before[offset + row as usize * pitch + column as usize] = c.bits[c.index(row, column)];
                }
            }
        }
        before
    }

    fn compare(&self, sums: &Sums, time: Option<Duration>, before: &[u16], after: &[u16]) -> Outcome {
        let GemmProblem { m, n, k } = self.problem();
        let (pitch, offset) = (self.d_pitch as usize, self.d_offset as usize);
        let format = self.a.format;
        let d = after.get(offset..offset + m as usize * pitch).unwrap_or_default().to_vec();
        let mut outcome =
            Outcome { time, ratio: 0.0, error: 0.0, bound: 0.0, compared: 0, mismatch: None, d };
        let pairs = sums.rows.iter().flat_map(|&row| sums.columns.iter().map(move |&column| (row, column)));
        for ((row, column), &sum) in pairs.zip(&sums.sums) {
            let c = self.c.as_ref().map(|c| c.get(row, column));
            let expected = Expected::new(format, k, [self.alpha, self.beta], sum, c);
            let got = format.widen(outcome.d[row as usize * pitch + column as usize]);
            outcome.compared += 1;
            if !expected.admits(format, got) && outcome.mismatch.is_none() {
                outcome.mismatch = Some(Mismatch { row, column, got, expected });
            }
            let ratio = expected.ratio(got);
            if ratio >= outcome.ratio {
                outcome.ratio = ratio;
                (outcome.error, outcome.bound) = ((got - expected.value).abs(), expected.bound);
            }
        }
        let inside = |i: usize| {
            i >= offset && (i - offset) / pitch.max(1) < m as usize && (i - offset) % pitch.max(1) < n as usize
        };
        let beside = (0..after.len()).find(|&i| !inside(i) && before[i] != after[i]);
        if let (Some(i), None) = (beside, outcome.mismatch) {
            let place = i.saturating_sub(offset);
            outcome.mismatch = Some(Mismatch {
                row: (place / pitch.max(1)) as u32,
                column: (place % pitch.max(1)) as u32,
                got: format.widen(after[i]),
                expected: Expected { value: format.widen(before[i]), bound: 0.0 },
            });
        }
        outcome
    }
}

/// The order in which an operand must lie for a kernel: A and B's `k` is A row-major and B column-major.
pub fn orders(entry: &dyn AnyGemm) -> [Order; 2] {
    use cute_rs::atom::Major;
    let spec = entry.plan().mainloop;
    let a = if spec.a_major == Major::K { Order::RowMajor } else { Order::ColumnMajor };
    let b = if spec.b_major == Major::K { Order::ColumnMajor } else { Order::RowMajor };
    [a, b]
}
