//! From plain instructions to the fastest kernel, step by step. Each rung is a type that differs from the one
//! before in one or two parameters. The first two rungs are where most tutorials begin: register tiles in
//! `f32`, and Ampere's multistage kernel. `examples/first_rung.rs` is the third rung, written instruction by
//! instruction.
//!
//! On a Hopper GPU, `cargo run --release --example ladder` times every rung at 8192 cubed. It prints the
//! multiply-only ceiling of the same run, and published figures for the same step. On any other machine the
//! emulator runs every rung at a small size. All `wgmma` rungs must compute the same bits. Plain instructions
//! and `mma.sync` add in other orders, so their results agree up to a rounding of D.

use std::error::Error;
use std::time::Duration;

use falchion::collective::{
    Epilogue, Format, LinearArguments, Mainloop, MainloopSpec, MmaKind, MmaSync, Simt,
};
use falchion::kernel::driver::{Enqueue, Prepared};
use falchion::kernel::{Buffer, Ceiling, Launch, LaunchError, Program, Rounds};
use falchion::prelude::*;
use falchion::ptx::{VerifyError, WgmmaTypes};

type Bf16 = Operands<KMajor<bf16>, KMajor<bf16>>;
type Alone = Cluster<U1, U1>;

/// Stores directly from registers.
type Direct<T, R, S> = Composed<TmaWgmma<Bf16, T, R>, LinearCombination<bf16>, S>;
/// Stores through shared memory: `stmatrix` and tensor copies.
type Copied<T, R, S> = Composed<TmaWgmma<Bf16, T, R>, LinearCombination<bf16, TmaStore>, S>;

/// Mainloops before `wgmma`: all warps copy, through three or four stages, and all warps multiply.
type Plain = Simt<Operands<KMajor<f32>, KMajor<f32>>, Tile<U192, U64, U16>, Unspecialised<U1, U4>>;
type Multistage = MmaSync<Bf16, Tile<U256, U128, U64>, Unspecialised<U2, U3>>;

type Square = Tile<U128, U128, U64>;
type Long = Tile<U128, U256, U64>;
type Bands = Persistent<Grouped<AlongM, U12>>;

/// Two consumers and a producer. Every consumer thread arrives to release a stage.
type Slow = Cooperative<U2, Alone, EachThread<AsManyAsFit>>;

struct Rung {
    step: &'static str,
    /// Published TFLOP/s of the step, on an H100 at 8192 cubed.
    published: Option<u32>,
    /// Format of A and B.
    operands: Format,
    /// The kind of multiplying instruction.
    multiply: MmaKind,
    program: fn() -> Result<Program, VerifyError>,
    launch: fn(&Call, u32) -> Result<Option<Launch>, LaunchError>,
}

fn rung<C>(step: &'static str, published: Option<u32>) -> Rung
where
    C: GemmConfig<Epilogue: Epilogue<Arguments = LinearArguments>>,
{
    let MainloopSpec { operands: [a, _], atom, .. } = <C::Mainloop as Mainloop>::SPEC;
    let (operands, multiply) = (a.format, atom.types.multiply());
    let (program, launch) = (Gemm::<C>::program, Gemm::<C>::launch::<LinearArguments>);
    Rung { step, published, operands, multiply, program, launch }
}

fn ladder() -> Vec<Rung> {
    vec![
        rung::<Composed<Plain, LinearCombination<bf16>, OneTile<AlongM>>>("plain instructions, in f32", None),
        rung::<Composed<Multistage, LinearCombination<bf16>, OneTile<AlongM>>>(
            "cp.async, ldmatrix and mma.sync",
            None,
        ),
        rung::<Direct<Tile<U64, U64, U64>, Unspecialised<U1, U1>, OneTile<AlongM>>>(
            "tensor copies and wgmma, one stage",
            Some(317),
        ),
        rung::<Direct<Square, Unspecialised<U1, U1>, OneTile<AlongM>>>("a tile of 128 x 128", Some(423)),
        rung::<Direct<Square, Cooperative<U1, Alone, EachThread<AsManyAsFit>>, OneTile<AlongM>>>(
            "a producer and a ring of stages",
            Some(498),
        ),
        rung::<Direct<Long, Slow, OneTile<AlongM>>>("128 x 256, two consumers", Some(610)),
        rung::<Direct<Long, Slow, Bands>>("persistent, in bands", Some(660)),
        rung::<Direct<Long, Cooperative<U2>, Bands>>("one arrival a warpgroup", Some(704)),
        rung::<Direct<Long, Cooperative<U2, Cluster<U2, U1>>, Persistent<Grouped<AlongM, U6>>>>(
            "clusters of two, multicast",
            Some(734),
        ),
        rung::<Copied<Long, Cooperative<U2, Cluster<U2, U1>>, Persistent<Grouped<AlongM, U6>>>>(
            "stmatrix and asynchronous stores",
            Some(758),
        ),
        rung::<Copied<Long, Cooperative<U2, Cluster<U2, U1>>, Persistent<Hilbert<U8>>>>(
            "along Hilbert's curve",
            Some(764),
        ),
        rung::<Copied<Long, Cooperative<U2>, Bands>>("no clusters, bands of 12", None),
        rung::<Copied<Tile<U256, U192, U64>, Cooperative<U2>, Persistent<Grouped<AlongM, U8>>>>(
            "256 x 192",
            None,
        ),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    match Gpu::new(0) {
        Ok(gpu) => climb(gpu),
        Err(reason) => {
            println!("no GPU ({reason}): the emulator runs every rung at 300 x 520 x 200");
            emulate()
        }
    }
}

fn call(problem: GemmProblem, [a, b, d]: [Buffer; 3]) -> Call {
    let GemmProblem { n, k, .. } = problem;
    Call::of(problem).a(a.address, k.into()).b(b.address, k.into()).d(d.address, n.into())
}

/// Random normal values, `count` of them.
fn normal(count: usize, random: &mut fastrand::Rng) -> Vec<u8> {
    let value = |random: &mut fastrand::Rng| {
        let (radius, angle) = (1.0 - random.f32(), random.f32() * core::f32::consts::TAU);
        bf16::from_f32((-2.0 * radius.ln()).sqrt() * angle.cos()).to_le_bytes()
    };
    (0..count).flat_map(|_| value(random)).collect()
}

/// `bf16` values, converted to the format of a rung's operands.
fn stored(values: &[u8], operands: Format) -> Vec<u8> {
    if operands == Format::F32 {
        return numbers(values).flat_map(f32::to_le_bytes).collect();
    }
    values.to_vec()
}

fn numbers(values: &[u8]) -> impl Iterator<Item = f32> + '_ {
    values.chunks_exact(2).map(|bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
}

/// Whether two results differ by at most the rounding to `bf16` and the error of `f32` sums of 200 products
/// in any order.
fn agree(some: &[u8], others: &[u8]) -> bool {
    numbers(some).zip(numbers(others)).all(|(a, b)| (a - b).abs() <= a.abs() / 128.0 + 2e-3)
}

fn emulate() -> Result<(), Box<dyn Error>> {
    let problem = GemmProblem { m: 300, n: 520, k: 200 };
    let mut random = fastrand::Rng::with_seed(1);
    let (a, b) = (normal(300 * 200, &mut random), normal(520 * 200, &mut random));
    // The first result of each instruction.
    let mut firsts: Vec<(MmaKind, Vec<u8>)> = Vec::new();
    for rung in ladder() {
        let mut engine = Emulator::new().with_multiprocessors(4);
        let [a, b] = [&a, &b].map(|values| stored(values, rung.operands));
        let operands = [engine.upload(&a)?, engine.upload(&b)?];
        let d = engine.upload(&vec![0xff; 300 * 520 * 2])?;
        let program = (rung.program)()?;
        let resident = engine.resident_clusters(&program)?;
        let launch = (rung.launch)(&call(problem, [operands[0], operands[1], d]), resident)?;
        let launch = launch.ok_or("an empty product")?;
        engine.launch(&program, launch.grid, &launch.arguments)?;
        let result = engine.read(d)?;
        let known = firsts.iter().find(|(multiply, _)| *multiply == rung.multiply);
        let (right, words) = match (known, firsts.first()) {
            (Some((_, first)), _) => (first == &result, "the same bits"),
            (None, Some((_, first))) => (agree(first, &result), "the same to a rounding"),
            (None, None) => (true, "the reference for the others"),
        };
        println!("{:38} {}", rung.step, if right { words } else { "WRONG" });
        if known.is_none() {
            firsts.push((rung.multiply, result));
        }
        if !right {
            return Err(format!("{} computes another result than the others", program.name()).into());
        }
    }
    Ok(())
}

/// Times all rungs, alternating, in short bursts. The median counts.
fn climb(mut gpu: Gpu) -> Result<(), Box<dyn Error>> {
    const EXTENT: u32 = 8192;
    const TURNS: usize = 5;
    let problem = GemmProblem { m: EXTENT, n: EXTENT, k: EXTENT };
    let mut random = fastrand::Rng::with_seed(1);
    // An odd number, so that rows of a repeated matrix differ.
    let values = normal((4 << 20) + 1, &mut random);
    let fill = |gpu: &mut Gpu, operands: Format| {
        let bytes = (EXTENT as usize).pow(2) * operands.bytes() as usize;
        gpu.upload(&stored(&values, operands).into_iter().cycle().take(bytes).collect::<Vec<_>>())
    };
    let [a, b, d] = [0; 3].map(|_| fill(&mut gpu, Format::Bf16));
    let [wide_a, wide_b] = [0; 2].map(|_| fill(&mut gpu, Format::F32));
    let (buffers, wide) = ([a?, b?], [wide_a?, wide_b?]);
    let d = d?;

    let operands = gpu.upload(&values[..Ceiling::OPERAND_BYTES])?.address;
    let ctas = gpu.multiprocessors();
    let sums = gpu.allocate(Rounds::sum_bytes(ctas))?.address;
    let (limit, rounds) =
        (Ceiling::dense(WgmmaTypes::Bf16F32), Rounds { ctas, rounds: 2000, operands, sums });
    let prepared = gpu.prepare_call(&limit, &rounds)?.ok_or("no SMs")?;
    let mut candidates = vec![(prepared, limit.operations(&rounds))];
    for rung in ladder() {
        let program = (rung.program)()?;
        let resident = gpu.resident_clusters(&program)?;
        let [a, b] = if rung.operands == Format::F32 { wide } else { buffers };
        let launch = (rung.launch)(&call(problem, [a, b, d]), resident)?.ok_or("an empty product")?;
        candidates.push((gpu.prepare(&program, launch.grid, &launch.arguments)?, problem.operations()));
    }
    let rates = medians(&mut gpu, &candidates, TURNS)?;
    println!("{}, 8192 cubed, bf16, burst", gpu.describe());
    println!("{:38} {:>8} {:>10} {:>10}", "", "TFLOP/s", "% ceiling", "published");
    println!("{:38} {:8.0}", "multiply-only ceiling", rates[0]);
    for (rung, rate) in ladder().iter().zip(&rates[1..]) {
        let published = rung.published.map_or_else(String::new, |published| published.to_string());
        println!("{:38} {rate:8.0} {:10.1} {published:>10}", rung.step, 100.0 * rate / rates[0]);
    }
    Ok(())
}

fn medians(gpu: &mut Gpu, candidates: &[(Prepared, f64)], turns: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut rates = vec![Vec::new(); candidates.len()];
    for turn in 0..=turns {
        for ((launch, operations), rates) in candidates.iter().zip(&mut rates) {
            std::thread::sleep(Duration::from_millis(120));
            let seconds = gpu.time_many(&[launch as &dyn Enqueue], 6)?;
            // The first turn warms up.
            if turn > 0 {
                rates.push(operations / seconds / 1e12);
            }
        }
    }
    for rates in &mut rates {
        rates.sort_by(f64::total_cmp);
    }
    Ok(rates.iter().map(|rates| rates[turns / 2]).collect())
}
