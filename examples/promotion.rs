//! How many digits sums of 8-bit floats have: fast, and promoted every so many instructions.
//!
//! The emulator computes as the hardware does, bit by bit; `cargo run --release --example promotion` prints the table of
//! docs/numerics.md. A first argument is another K.

use emulator::Numerics;
use falchion::collective::F8E4M3;
use falchion::kernel::{Call, Emulator, Engine, GemmProblem, KernelSpec, MatrixRef};

/// Normal numbers rounded to `e4m3`.
fn matrix(random: &mut fastrand::Rng, elements: usize) -> Vec<F8E4M3> {
    let normal = |random: &mut fastrand::Rng| {
        let (radius, angle) =
            ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), random.f64() * core::f64::consts::TAU);
        F8E4M3::from_f64(radius * angle.cos())
    };
    (0..elements).map(|_| normal(random)).collect()
}

/// The errors of one way to sum, in parts of the results' root mean square.
#[derive(Debug)]
pub(crate) struct Errors {
    /// After how many instructions sums are promoted; 0 for never.
    pub(crate) promote: u32,
    /// Their root mean square.
    pub(crate) mean: f64,
    /// The largest.
    pub(crate) most: f64,
}

/// The errors of all ways to sum the products of 64 x 64 x `k`, as the hardware does.
pub(crate) fn errors(k: u32) -> Result<Vec<Errors>, Box<dyn std::error::Error>> {
    let problem = GemmProblem { m: 64, n: 64, k };
    let mut random = fastrand::Rng::with_seed(u64::from(k));
    let (length, tile) = (k as usize, 64);
    let [a, b] = [(); 2].map(|()| matrix(&mut random, tile * length));
    let numbers = [&a, &b].map(|matrix| matrix.iter().map(|x| x.to_f64()).collect::<Vec<f64>>());
    let rows = |matrix: usize, row: usize| &numbers[matrix][row * length..][..length];
    let dot = |i: usize, j: usize| rows(0, i).iter().zip(rows(1, j)).map(|(x, y)| x * y).sum::<f64>();
    let exact: Vec<f64> = (0..tile * tile).map(|place| dot(place / tile, place % tile)).collect();
    let size = (exact.iter().map(|d| d * d).sum::<f64>() / exact.len() as f64).sqrt();

    let mut all = Vec::new();
    for promote in [0, 8, 4, 2, 1] {
        let spec: KernelSpec = format!("dtype=e4m3 out=f32 tile=64x64x128 promote={promote}").parse()?;
        let gemm = spec.kernel()?;
        let program = gemm.program()?;
        let mut engine = Emulator::new().with_numerics(Numerics::Exact);
        let bytes = |matrix: &[F8E4M3]| matrix.iter().map(|x| x.to_bits()).collect::<Vec<u8>>();
        let [a, b] = [engine.upload(&bytes(&a))?, engine.upload(&bytes(&b))?];
        let d = engine.allocate(tile * tile * 4)?;
        let at = |address, pitch: u32| MatrixRef::new(address, pitch.into());
        let call =
            Call { a: at(a.address, k), b: at(b.address, k), d: at(d.address, 64), ..Call::of(problem) };
        let launch = gemm.launch(&call, engine.slots(&program)?)?.ok_or("nothing to do")?;
        engine.launch(&program, launch.grid, &launch.arguments)?;
        let found = engine.read(d)?;
        let found =
            found.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let errors: Vec<f64> =
            found.zip(&exact).map(|(d, exact)| (f64::from(d) - exact).abs() / size).collect();
        let mean = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
        let most = errors.iter().fold(0.0, |most: f64, &error| most.max(error));
        all.push(Errors { promote, mean, most });
    }
    Ok(all)
}

#[allow(dead_code, reason = "tests/promotion.rs takes the numbers alone")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let k: u32 = std::env::args().nth(1).map_or(Ok(16384), |text| text.parse())?;
    println!("64 x 64 x {k}, e4m3, normal numbers: errors in parts of the results' root mean square\n");
    println!("| sums | root mean square | largest |\n|---|--:|--:|");
    for Errors { promote, mean, most } in errors(k)? {
        let name =
            if promote == 0 { "fast".to_owned() } else { format!("promoted every {promote} x 32 of K") };
        println!("| {name} | {mean:.2e} | {most:.2e} |");
    }
    Ok(())
}
