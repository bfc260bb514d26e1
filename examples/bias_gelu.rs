//! A fused epilogue: `D = gelu(A * B + bias)`. The host evaluates the same epilogue to check the kernel. On a
//! GPU the example also times it, next to the same kernel without the epilogue and cuBLASLt's own fusion.
//!
//! `cargo run --release --example bias_gelu`

use std::error::Error;
use std::time::Duration;

use falchion::collective::Fastest;
use falchion::collective::functions::MultiplyAddGelu;
use falchion::collective::tree::{Accumulator, Compute, RowArgument, RowVector, Scalar};
use falchion::kernel::Launch;
use falchion::kernel::driver::Enqueue;
use falchion::peers::Matmul;
use falchion::peers::cublaslt::{CublasLt, Fused as Fusion, FusedActivation};
use falchion::prelude::*;
use falchion::verify::{Bench, Format};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Bands = Persistent<Grouped<AlongM, U12>>;
/// Kernels for long K, and kernels whose epilogue overlaps the next tile's multiplications.
type Long<E> = Composed<TmaWgmma<Kk, Tile<U128, U256, U64>, Cooperative<U2>>, E, Bands>;
type Wide<E> =
    Composed<TmaWgmma<Kk, Tile<U256, U192, U64>, Cooperative<U2>>, E, Persistent<Grouped<AlongM, U8>>>;
type Short<E> = Composed<TmaWgmma<Kk, Tile<U128, U128, U64>, Pingpong>, E, Persistent<Grouped<AlongM, U8>>>;

type Plain = LinearCombination<bf16, TmaStore>;
/// `gelu(alpha * acc + bias)`.
type BiasGelu = Compute<MultiplyAddGelu<Fastest>, (Accumulator, Scalar, RowVector<bf16>)>;
type Fused = TreeEpilogue<bf16, TmaStore, BiasGelu>;

fn main() -> Result<(), Box<dyn Error>> {
    let problem = GemmProblem { m: 200, n: 264, k: 128 };
    let checked = {
        let mut engine: Box<dyn Engine> = match Gpu::new(0) {
            Ok(gpu) => Box::new(gpu),
            Err(_) => Box::new(Emulator::new()),
        };
        println!("on {}", engine.describe());
        let mut bench = Bench::new(engine.as_mut(), 1);
        let bias = RowArgument { address: bench.random(Format::Bf16, problem.n, 0)?, len: problem.n };
        bench.check::<Long<Fused>>(problem, &((), ((), 1.0, bias)))?
    };
    println!(
        "{} elements as the tree says, error at most {:.2} of the bound",
        checked.compared, checked.ratio
    );
    match Gpu::new(0) {
        Ok(mut gpu) => {
            for (m, n, k) in [(8192, 8192, 8192), (4096, 14336, 4096), (4096, 4096, 512)] {
                time(&mut gpu, GemmProblem { m, n, k })?;
            }
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// Random normal values.
fn normal(count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut value = || {
        let (radius, angle) = (1.0 - random.f32(), random.f32() * core::f32::consts::TAU);
        bf16::from_f32((-2.0 * radius.ln()).sqrt() * angle.cos()).to_le_bytes()
    };
    (0..count).flat_map(|_| value()).collect()
}

fn prepare<C: GemmConfig>(
    gpu: &mut Gpu,
    launch: Result<Option<Launch>, falchion::kernel::LaunchError>,
) -> Result<Box<dyn Enqueue>, Box<dyn Error>> {
    let launch = launch?.ok_or("an empty product")?;
    Ok(Box::new(gpu.prepare(&Gemm::<C>::program()?, launch.grid, &launch.arguments)?))
}

fn time(gpu: &mut Gpu, problem: GemmProblem) -> Result<(), Box<dyn Error>> {
    let GemmProblem { m, n, k } = problem;
    let values = normal((4 << 20) + 1);
    let fill = |gpu: &mut Gpu, count: u32, of: u32| {
        let bytes = count as usize * of as usize * 2;
        gpu.upload(&values.iter().copied().cycle().take(bytes).collect::<Vec<_>>())
    };
    let buffers = [fill(gpu, m, k)?, fill(gpu, n, k)?, fill(gpu, m, n)?, fill(gpu, n, 1)?];
    let [a, b, d, bias] = buffers;
    let call = Call::of(problem).a(a.address, k.into()).b(b.address, k.into()).d(d.address, n.into());
    let arguments = ((), ((), 1.0, RowArgument { address: bias.address, len: n }));
    let resident = gpu.multiprocessors();

    let mut candidates: Vec<(&str, Box<dyn Enqueue>)> = Vec::new();
    macro_rules! both {
        ($name:literal, $fused:literal, $kernel:ident) => {
            let launch = Gemm::<$kernel<Plain>>::launch(&call, resident);
            candidates.push(($name, prepare::<$kernel<Plain>>(gpu, launch)?));
            let launch = Gemm::<$kernel<Fused>>::launch(&call.with(&arguments), resident);
            candidates.push(($fused, prepare::<$kernel<Fused>>(gpu, launch)?));
        };
    }
    both!("128 x 256", "128 x 256, bias + gelu", Long);
    both!("256 x 192", "256 x 192, bias + gelu", Wide);
    both!("pingpong", "pingpong, bias + gelu", Short);
    let product = Matmul::new(falchion::collective::Format::Bf16, problem);
    let fused = Fusion::Bias { activation: FusedActivation::Gelu, bias: bias.address, beta: 0.0 };
    let peer = CublasLt::new(gpu).ok();
    let plans = match &peer {
        Some(peer) => vec![
            ("cuBLASLt", peer.plan(&product)?),
            ("cuBLASLt, bias + gelu", peer.plan_fused(&product, fused)?),
        ],
        None => Vec::new(),
    };
    let mut runs = Vec::new();
    for (name, plan) in &plans {
        let best = plan.fastest(gpu, a.address, b.address, d.address)?;
        runs.push((*name, plan.with(best, a.address, b.address, d.address)?));
    }
    let mut all: Vec<(&str, &dyn Enqueue)> =
        candidates.iter().map(|(name, work)| (*name, work.as_ref())).collect();
    all.extend(runs.iter().map(|(name, run)| (*name, run as &dyn Enqueue)));

    const TURNS: usize = 7;
    let mut times = vec![Vec::new(); all.len()];
    let count = (10e-3 / (problem.operations() / 700e12)).clamp(6.0, 500.0) as usize;
    for turn in 0..=TURNS {
        for ((_, work), times) in all.iter().zip(&mut times) {
            std::thread::sleep(Duration::from_millis(100));
            let seconds = gpu.time_many(&[*work], count)?;
            // The first turn is a warm-up.
            if turn > 0 {
                times.push(seconds);
            }
        }
    }
    println!("{m} x {n} x {k}, burst");
    for ((name, _), times) in all.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let seconds = times[TURNS / 2];
        println!(
            "  {name:28} {:9.1} us {:7.0} TFLOP/s",
            seconds * 1e6,
            problem.operations() / seconds / 1e12
        );
    }
    for buffer in buffers {
        gpu.free(buffer)?;
    }
    Ok(())
}
