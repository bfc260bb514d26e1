//! Measures the error of sums of 8-bit floats: with fast accumulation, promoted every few instructions, and
//! with block scales.
//!
//! The emulator computes bit by bit like the hardware. `cargo run --release --example promotion` prints the
//! table of docs/numerics.md, with cuBLASLt's rows if there is a GPU. An optional first argument is another
//! K.

use emulator::Numerics;
use falchion::collective::{BlockScales, F8E4M3, Format};
use falchion::kernel::{
    Buffer, Call, Emulator, Engine, EngineError, GemmProblem, Gpu, KernelSpec, MatrixRef, Types,
};
use falchion::peers::Matmul;
use falchion::peers::cublaslt::CublasLt;

/// M and N.
const TILE: usize = 64;
/// Number of rows that share a scale, of A and of B.
const SCALED: [u32; 2] = [1, 128];

/// Operands, their scales, and the exact results without and with the scales.
struct Case {
    problem: GemmProblem,
    /// A and B along K, then the scales of A and of B.
    bytes: [Vec<u8>; 4],
    exact: [Vec<f64>; 2],
}

impl Case {
    /// Normal numbers rounded to `e4m3`, and scales between 1/2 and 3/2.
    fn new(k: u32) -> Self {
        let mut random = fastrand::Rng::with_seed(u64::from(k));
        let problem = GemmProblem { m: TILE as u32, n: TILE as u32, k };
        let length = k as usize;
        let mut normal = |_| {
            let (radius, angle) =
                ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), random.f64() * core::f64::consts::TAU);
            F8E4M3::from_f64(radius * angle.cos())
        };
        let [a, b] = [(); 2].map(|()| (0..TILE * length).map(&mut normal).collect::<Vec<F8E4M3>>());
        let extents = BlockScales::packed_extents([problem.m, problem.n, k], SCALED);
        let scales =
            extents.map(|[rows, ld]| (0..rows * ld).map(|_| 0.5 + random.f32()).collect::<Vec<f32>>());
        // A's scales are contiguous along M, those of B along K.
        let scale = |i: usize, block: usize| {
            f64::from(scales[0][block * extents[0][1] as usize + i]) * f64::from(scales[1][block])
        };
        let term = |i: usize, j: usize, k: usize| a[i * length + k].to_f64() * b[j * length + k].to_f64();
        let places = || (0..TILE * TILE).map(|place| (place / TILE, place % TILE));
        let dot = |(i, j)| (0..length).map(|k| term(i, j, k)).sum::<f64>();
        let scaled = |(i, j)| (0..length).map(|k| term(i, j, k) * scale(i, k / 128)).sum::<f64>();
        let exact = [places().map(dot).collect(), places().map(scaled).collect()];
        let [a, b] = [a, b].map(|matrix| matrix.iter().map(|x| x.to_bits()).collect());
        let [of_a, of_b] = scales.map(|scales| scales.iter().flat_map(|x| x.to_le_bytes()).collect());
        Self { problem, bytes: [a, b, of_a, of_b], exact }
    }

    /// Addresses of A, B and the scales of both, and of D.
    fn upload(&self, engine: &mut impl Engine) -> Result<([u64; 4], Buffer), EngineError> {
        let mut addresses = [0; 4];
        for (address, bytes) in addresses.iter_mut().zip(&self.bytes) {
            *address = engine.upload(bytes)?.address;
        }
        Ok((addresses, engine.allocate(TILE * TILE * 4)?))
    }

    /// The errors of D.
    fn errors(&self, name: String, scaled: bool, d: &[u8]) -> Errors {
        let exact = &self.exact[usize::from(scaled)];
        let size = (exact.iter().map(|d| d * d).sum::<f64>() / exact.len() as f64).sqrt();
        let found = d.as_chunks::<4>().0.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes)));
        let errors: Vec<f64> = found.zip(exact).map(|(d, exact)| (d - exact).abs() / size).collect();
        let mean = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
        let most = errors.iter().fold(0.0, |most: f64, &error| most.max(error));
        Errors { name, mean, most }
    }
}

/// The errors of one way to accumulate, as fractions of the results' root mean square.
#[derive(Debug)]
pub(crate) struct Errors {
    /// The way to accumulate.
    pub(crate) name: String,
    /// The root mean square of the errors.
    pub(crate) mean: f64,
    /// The largest error.
    pub(crate) most: f64,
}

/// The errors of all ways to accumulate a GEMM of 64 x 64 x `k`, with the hardware's numerics.
pub(crate) fn errors(k: u32) -> Result<Vec<Errors>, Box<dyn std::error::Error>> {
    let case = Case::new(k);
    let mut ways = vec![("fast".to_owned(), "promote=0".to_owned(), false)];
    ways.extend(
        [8, 4, 2, 1].map(|promote| {
            (format!("promoted every {promote} x 32 of K"), format!("promote={promote}"), false)
        }),
    );
    ways.push((
        "blocks of 1 x 128 by 128 x 128".to_owned(),
        "scale-a=1x128 scale-b=128x128".to_owned(),
        true,
    ));
    // The same additions in the same order, with accumulators for half of the tile.
    ways.push(("promoted every 4 x 32 of K, in two waves".to_owned(), "promote=4 waves=2".to_owned(), false));
    ways.push((
        "blocks of 1 x 128 by 128 x 128, in two waves".to_owned(),
        "scale-a=1x128 scale-b=128x128 waves=2".to_owned(),
        true,
    ));
    let mut all = Vec::new();
    for (name, words, scaled) in ways {
        let spec: KernelSpec = format!("dtype=e4m3 out=f32 tile=64x64x128 {words}").parse()?;
        let gemm = spec.kernel()?;
        let program = gemm.program()?;
        let mut engine = Emulator::new().with_numerics(Numerics::Exact);
        let ([a, b, of_a, of_b], d) = case.upload(&mut engine)?;
        let GemmProblem { m, n, .. } = case.problem;
        let at = |address, ld: u32| MatrixRef::new(address, ld.into());
        let call = Call { a: at(a, k), b: at(b, k), d: at(d.address, n), ..Call::of(case.problem) };
        let scales = BlockScales::packed([of_a, of_b], BlockScales::packed_extents([m, n, k], SCALED));
        let call = if scaled { call.scaled(scales) } else { call };
        let launch = gemm.launch(&call, engine.resident_clusters(&program)?)?.ok_or("nothing to do")?;
        engine.launch(&program, launch.grid, &launch.arguments)?;
        all.push(case.errors(name, scaled, &engine.read(d)?));
    }
    Ok(all)
}

/// The errors of cuBLASLt's ways to accumulate.
#[allow(dead_code, reason = "tests/promotion.rs asks no GPU")]
fn of_cublaslt(k: u32) -> Result<Vec<Errors>, EngineError> {
    let (case, mut gpu) = (Case::new(k), Gpu::new(0)?);
    let library = CublasLt::new(&gpu)?;
    let ([a, b, of_a, of_b], d) = case.upload(&mut gpu)?;
    let types = Types::of(Format::E4m3).stored(Format::F32);
    let mut all = Vec::new();
    for (name, types, fast) in [
        ("fast", types, true),
        ("not fast", types, false),
        ("blocks of 1 x 128 by 128 x 128", types.scaled(SCALED), false),
    ] {
        let product = Matmul { scales: [of_a, of_b], fast, ..Matmul::new(types, case.problem) };
        let run = library.plan(&product)?;
        gpu.time_many(&[&run.with(0, a, b, d.address)?], 1)?;
        all.push(case.errors(
            format!("cuBLASLt {}, {name}", library.version()),
            types.is_scaled(),
            &gpu.read(d)?,
        ));
    }
    Ok(all)
}

#[allow(dead_code, reason = "tests/promotion.rs takes the numbers alone")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let k: u32 = std::env::args().nth(1).map_or(Ok(16384), |text| text.parse())?;
    println!("64 x 64 x {k}, e4m3, normal numbers: errors in parts of the results' root mean square\n");
    println!("| sums | root mean square | largest |\n|---|--:|--:|");
    let all = errors(k)?;
    let peer = of_cublaslt(k);
    for Errors { name, mean, most } in all.iter().chain(peer.iter().flatten()) {
        println!("| {name} | {mean:.2e} | {most:.2e} |");
    }
    if let Err(error) = peer {
        println!("\nwithout cuBLASLt: {error}");
    }
    Ok(())
}
