//! One GEMM on the emulator, and matrices with known elements.

use collective::{Epilogue, Format, LinearArguments, Matrix, MatrixRef};
use emulator::Schedule;
use kernel::{Call, Emulator, Engine, Gemm, GemmConfig, GemmProblem, Gpu};

/// Values in -1..1, rounded to a format; the same for the same seed.
pub(crate) struct Elements {
    pub(crate) values: Vec<f64>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ld: u32,
}

impl Elements {
    /// `rows` rows of `length` contiguous elements.
    pub(crate) fn random(format: Format, [rows, length]: [u32; 2], mut seed: u32) -> Self {
        let values = (0..rows * length).map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format.decode(format.encode(f64::from(seed >> 8) / 8_388_608.0 - 1.0))
        });
        let values: Vec<f64> = values.collect();
        let bytes = values.iter().flat_map(|&value| {
            let bits = format.encode(value).to_le_bytes();
            bits.into_iter().take(format.bytes() as usize)
        });
        Self { bytes: bytes.collect(), values, ld: length }
    }

    pub(crate) fn at(&self, row: u32, column: u32) -> f64 {
        self.values[(row * self.ld + column) as usize]
    }

    /// Changes an element.
    pub(crate) fn set(&mut self, format: Format, [row, column]: [u32; 2], value: f64) {
        let (index, bytes) = ((row * self.ld + column) as usize, format.bytes() as usize);
        self.values[index] = value;
        self.bytes[index * bytes..][..bytes].copy_from_slice(&format.encode(value).to_le_bytes()[..bytes]);
    }

    /// Copies the matrix to an engine.
    pub(crate) fn upload(&self, engine: &mut dyn Engine) -> MatrixRef {
        let address = engine.upload(&self.bytes).expect("memory").address;
        MatrixRef::new(address, self.ld.into())
    }

    /// The same as an operand of a mainloop of your own.
    pub(crate) fn operand(&self, engine: &mut dyn Engine, k: u32) -> Matrix {
        let MatrixRef { address, ld, .. } = self.upload(engine);
        let mn = self.values.len() as u32 / self.ld;
        Matrix { address, mn, k, ld, batch: collective::Batch::ONE }
    }
}

/// Runs something on the emulator, under two schedules and in long runs under one more, and on the GPU if there is one.
pub(crate) fn on_every_engine(run: &dyn Fn(&mut dyn Engine)) {
    let schedules = [(Schedule::Latest, 0), (Schedule::Random, 1), (Schedule::Default, 0)];
    let count = if std::env::var_os("FALCHION_LONG").is_some() { 3 } else { 2 };
    for (schedule, seed) in schedules.into_iter().take(count) {
        run(&mut Emulator::new().with_multiprocessors(2).with_schedule(schedule, seed));
    }
    if let Ok(mut gpu) = Gpu::new(0) {
        run(&mut gpu);
    }
}

/// `sum over k of a(k) * b(k)`, and the sum of their magnitudes.
pub(crate) fn sum(k: u32, term: impl Fn(u32) -> f64) -> [f64; 2] {
    (0..k).map(term).fold([0.0; 2], |[sum, all], term| [sum + term, all + term.abs()])
}

/// D of a kernel with `f32` results.
pub(crate) fn run<C: GemmConfig>(
    engine: &mut dyn Engine,
    problem: GemmProblem,
    [a, b]: [MatrixRef; 2],
    own: &<C::Mainloop as collective::Mainloop>::Arguments,
) -> Vec<f64>
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    let GemmProblem { m, n, .. } = problem;
    let nothing = f32::NAN.to_le_bytes().repeat((m * n) as usize);
    let d = engine.upload(&nothing).expect("memory");
    let program = Gemm::<C>::program().unwrap_or_else(|error| panic!("{error}"));
    let resident = engine.resident_clusters(&program).expect("a program that loads");
    let call = Call::of(problem).a(a.address, a.ld).b(b.address, b.ld).d(d.address, n.into());
    let workspace = engine.workspace(Gemm::<C>::workspace(&call, resident)).expect("memory");
    let call = Call { workspace, ..call }.with_mainloop(own.clone());
    let launch = Gemm::<C>::kernel().launch(&call, resident);
    let launch = launch.expect("legal").expect("not empty");
    engine.launch(&program, launch.grid, &launch.arguments).unwrap_or_else(|error| panic!("{error}"));
    let bytes = engine.read(d).expect("no fault");
    bytes
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]).into())
        .collect()
}

/// Compares every element with `want(m, n)`: a value, and the largest difference from it.
pub(crate) fn compare(what: &str, [m, n]: [u32; 2], got: &[f64], want: impl Fn(u32, u32) -> [f64; 2]) {
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let ([want, bound], got) = (want(i, j), got[(i * n + j) as usize]);
        assert!((got - want).abs() <= bound, "{what}: D({i},{j}) is {got}, not {want} within {bound}");
    }
}
