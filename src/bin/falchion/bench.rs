//! `falchion bench`: our kernels beside cuBLASLt and the multiply-only ceiling, in one process and one power state.
//!
//! *Burst* is about ten milliseconds after a rest, *sustained* is the card kept busy for seconds, so that its power
//! limit decides. In both, candidates take turns and the median over the turns counts. Inputs rotate over sets that
//! do not fit the L2 cache together.

use std::path::PathBuf;
use std::time::Duration;

use cute_rs::atom::Major;
use half::{bf16, f16};
use kernel::driver::cublaslt::{CublasLt, Plan, Precision, Product};
use kernel::driver::{Enqueue, Prepared};
use kernel::{AnyGemm, Buffer, Call, Engine, GemmProblem, Gpu, MatrixRef, ceiling};
use ptx::WgmmaTypes;
use serde::Serialize;

use crate::Failure;

/// Time our kernels beside cuBLASLt and the ceiling, on the GPU.
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArgs {
    /// Rows of A and D.
    #[arg(long, default_value_t = 8192)]
    m: u32,
    /// Columns of B and D.
    #[arg(long, default_value_t = 8192)]
    n: u32,
    /// Columns of A, rows of B.
    #[arg(long, default_value_t = 8192)]
    k: u32,
    /// A list of shapes in place of --m --n --k: `public`.
    #[arg(long)]
    suite: Option<String>,
    /// Configurations to time; all whose directions are K-major otherwise.
    #[arg(long)]
    config: Vec<String>,
    /// Element type.
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// Turns that each candidate gets.
    #[arg(long, default_value_t = 7)]
    turns: usize,
    /// Leave the sustained measurement out.
    #[arg(long)]
    burst_only: bool,
    /// Write every figure to this JSON file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The shapes people compare GEMMs at: M, N, K.
const PUBLIC: [[u32; 3]; 13] = [
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [16384, 16384, 16384],
    [4096, 14336, 4096],
    [4096, 4096, 14336],
    [8192, 28672, 8192],
    [8192, 8192, 28672],
    [32768, 1024, 1024],
    [4096, 4096, 512],
    [4000, 4000, 4000],
    [3000, 5000, 1000],
    [8191, 8192, 8192],
];

/// Bytes of inputs that are sure not to stay in an L2 cache of 60 MB.
const ROTATION_BYTES: u64 = 200_000_000;

/// One candidate at one shape.
#[derive(Debug, Serialize)]
struct Figure {
    m: u32,
    n: u32,
    k: u32,
    candidate: String,
    state: &'static str,
    /// TFLOP/s over the turns: least, median, most.
    tflops: [f64; 3],
    microseconds: f64,
}

/// A set of matrices; the peer is given the same.
struct Set {
    a: Buffer,
    b: Buffer,
    d: Buffer,
}

struct Candidate<'a> {
    name: String,
    /// One launch a set.
    launches: Vec<Box<dyn Enqueue + 'a>>,
    operations: f64,
}

impl BenchArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let shapes = match self.suite.as_deref() {
            None => vec![[self.m, self.n, self.k]],
            Some("public") => PUBLIC.to_vec(),
            Some(other) => {
                return Err(Failure::usage(format!("there is no suite `{other}`; there is: public")));
            }
        };
        let mut gpu = Gpu::new(0)?;
        println!("{}", gpu.describe());
        let peer = match CublasLt::new(&gpu) {
            Ok(peer) => {
                println!("cuBLASLt {}", peer.version());
                Some(peer)
            }
            Err(error) => {
                println!("without cuBLASLt: {error}");
                None
            }
        };
        let data = random(&self.dtype)?;
        let mut figures = Vec::new();
        for [m, n, k] in shapes {
            self.shape(&mut gpu, peer.as_ref(), &data, GemmProblem { m, n, k }, &mut figures)?;
        }
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&figures)
                .map_err(|error| Failure::environment(format!("the figures do not serialise: {error}")))?;
            std::fs::write(path, text)
                .map_err(|error| Failure::environment(format!("cannot write {}: {error}", path.display())))?;
        }
        Ok(())
    }

    fn kernels(&self) -> Result<Vec<Box<dyn AnyGemm>>, Failure> {
        if !self.config.is_empty() {
            return self.config.iter().map(|name| Ok(kernel::find(name)?)).collect();
        }
        let k_major = |entry: &dyn AnyGemm| {
            let spec = entry.plan().mainloop;
            spec.a_major == Major::K && spec.b_major == Major::K && entry.element() == self.dtype
        };
        Ok(kernel::catalogue().into_iter().filter(|entry| k_major(entry.as_ref())).collect())
    }

    fn shape(
        &self,
        gpu: &mut Gpu,
        peer: Option<&CublasLt>,
        data: &[u8],
        problem: GemmProblem,
        figures: &mut Vec<Figure>,
    ) -> Result<(), Failure> {
        let kernels = self.kernels()?;
        let sets = sets(gpu, data, problem)?;
        let mut ours = Vec::new();
        for entry in &kernels {
            let program = entry.program()?;
            let slots = gpu.slots(&program)?;
            let prepared: Result<Vec<Prepared>, Failure> = sets
                .iter()
                .map(|set| {
                    let call = call(problem, entry.as_ref(), set);
                    let launch = entry.launch(&call, slots)?;
                    let launch = launch.ok_or_else(|| Failure::usage("an empty product takes no time"))?;
                    Ok(gpu.prepare(&program, launch.grid, &launch.arguments)?)
                })
                .collect();
            match prepared {
                Ok(prepared) => ours.push((entry.name().to_owned(), prepared)),
                // Asked for by name, a kernel that cannot do the shape is an error; otherwise it stays out.
                Err(error) if !self.config.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        let plan = peer
            .map(|peer| peer.plan(&product(problem, &self.dtype, kernels.first().map(AsRef::as_ref))))
            .transpose()?;
        let fastest = match (&plan, sets.first()) {
            (Some(plan), Some(set)) => {
                Some(plan.fastest(gpu, set.a.address, set.b.address, set.d.address)?)
            }
            _ => None,
        };
        let limit = Ceiling::new(gpu, data, &self.dtype)?;
        let candidates = candidates(ours, plan.as_ref(), fastest, &sets, problem, &limit)?;

        println!("\n{} x {} x {} {}", problem.m, problem.n, problem.k, self.dtype);
        let mut states = vec!["burst"];
        if !self.burst_only {
            states.push("sustained");
        }
        for state in states {
            let rates = self.measure(gpu, &candidates, state == "burst")?;
            report(state, &candidates, &rates, problem, figures);
        }
        drop(candidates);
        for set in sets {
            for buffer in [set.a, set.b, set.d] {
                gpu.free(buffer)?;
            }
        }
        limit.free(gpu)?;
        Ok(())
    }

    /// TFLOP/s of every candidate in every turn.
    fn measure(
        &self,
        gpu: &mut Gpu,
        candidates: &[Candidate<'_>],
        burst: bool,
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let launches: Vec<Vec<&dyn Enqueue>> = candidates
            .iter()
            .map(|candidate| candidate.launches.iter().map(AsRef::as_ref).collect())
            .collect();
        let mut seconds = Vec::new();
        for launches in &launches {
            gpu.time_many(launches, 2)?;
            seconds.push(gpu.time_many(launches, 3)?.max(1e-7));
        }
        let mut rates = vec![Vec::new(); candidates.len()];
        for _ in 0..self.turns.max(1) {
            for (i, candidate) in candidates.iter().enumerate() {
                let count = |span: f64| ((span / seconds[i]) as usize).clamp(3, 20_000);
                if burst {
                    std::thread::sleep(Duration::from_millis(120));
                } else {
                    gpu.time_many(&launches[i], count(0.4))?;
                }
                let span = if burst { 0.010 } else { 0.3 };
                let each = gpu.time_many(&launches[i], count(span))?;
                rates[i].push(candidate.operations / each / 1e12);
            }
        }
        Ok(rates)
    }
}

/// Random normal values of the element type, enough to fill matrices by repetition.
fn random(dtype: &str) -> Result<Vec<u8>, Failure> {
    let narrow: fn(f32) -> [u8; 2] = match dtype {
        "bf16" => |value| bf16::from_f32(value).to_le_bytes(),
        "f16" => |value| f16::from_f32(value).to_le_bytes(),
        other => return Err(Failure::usage(format!("--dtype is `{other}`, one of bf16 and f16 was needed"))),
    };
    let mut random = fastrand::Rng::with_seed(1);
    // An odd count, so that rows of a repeated matrix differ.
    let count = (8 << 20) + 1;
    let normal = |random: &mut fastrand::Rng| {
        let (radius, angle) = (1.0 - random.f32(), random.f32() * core::f32::consts::TAU);
        (-2.0 * radius.ln()).sqrt() * angle.cos()
    };
    Ok((0..count).flat_map(|_| narrow(normal(&mut random))).collect())
}

fn sets(gpu: &mut Gpu, data: &[u8], problem: GemmProblem) -> Result<Vec<Set>, Failure> {
    let GemmProblem { m, n, k } = problem;
    let bytes = |rows: u32, columns: u32| u64::from(rows) * u64::from(columns) * 2;
    let each = bytes(m, k) + bytes(n, k) + bytes(m, n);
    let count = (ROTATION_BYTES / each.max(1) + 1).min(8);
    let mut filled = |bytes: u64, skip: usize| -> Result<Buffer, Failure> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let content: Vec<u8> = data.iter().copied().cycle().skip(skip * 2).take(length).collect();
        Ok(gpu.upload(&content)?)
    };
    (0..count)
        .map(|i| {
            let skip = usize::try_from(i).unwrap_or(0) * 1001;
            let (a, b) = (filled(bytes(m, k), skip)?, filled(bytes(n, k), skip + 7)?);
            Ok(Set { a, b, d: filled(bytes(m, n), 0)? })
        })
        .collect()
}

fn call(problem: GemmProblem, entry: &dyn AnyGemm, set: &Set) -> Call {
    let spec = entry.plan().mainloop;
    let pitch = |major, mn: u32| u64::from(if major == Major::K { problem.k } else { mn });
    Call {
        problem,
        a: MatrixRef { address: set.a.address, pitch: pitch(spec.a_major, problem.m) },
        b: MatrixRef { address: set.b.address, pitch: pitch(spec.b_major, problem.n) },
        c: None,
        d: MatrixRef { address: set.d.address, pitch: problem.n.into() },
        alpha: 1.0,
        beta: 0.0,
    }
}

/// The peer's product in the directions of the first of our kernels.
fn product(size: GemmProblem, dtype: &str, first: Option<&dyn AnyGemm>) -> Product {
    let precision = if dtype == "f16" { Precision::F16 } else { Precision::Bf16 };
    let majors = first.map(|entry| entry.plan().mainloop);
    let [a, b] = majors.map_or([Major::K; 2], |spec| [spec.a_major, spec.b_major]);
    Product { size, precision, a, b }
}

/// The multiply-only kernel with its operands on the device.
struct Ceiling {
    operands: Buffer,
    sums: Buffer,
    prepared: Prepared,
    operations: f64,
}

impl Ceiling {
    fn new(gpu: &mut Gpu, data: &[u8], dtype: &str) -> Result<Self, Failure> {
        let rounds = 2000;
        let multiprocessors = gpu.multiprocessors();
        let types = if dtype == "f16" { WgmmaTypes::F16F32 } else { WgmmaTypes::Bf16F32 };
        let operands = gpu.upload(&data[..ceiling::OPERAND_BYTES])?;
        let sums = gpu.allocate(ceiling::sum_bytes(multiprocessors))?;
        let (grid, arguments) = ceiling::launch(multiprocessors, operands.address, sums.address, rounds);
        let prepared = gpu.prepare(&ceiling::program(types)?, grid, &arguments)?;
        Ok(Self { operands, sums, prepared, operations: ceiling::operations(multiprocessors, rounds) })
    }

    fn free(self, gpu: &mut Gpu) -> Result<(), Failure> {
        gpu.free(self.operands)?;
        Ok(gpu.free(self.sums)?)
    }
}

fn candidates<'a>(
    ours: Vec<(String, Vec<Prepared>)>,
    plan: Option<&'a Plan>,
    fastest: Option<usize>,
    sets: &[Set],
    problem: GemmProblem,
    limit: &'a Ceiling,
) -> Result<Vec<Candidate<'a>>, Failure> {
    let operations = problem.operations();
    let mut candidates = vec![Candidate {
        name: "ceiling".to_owned(),
        launches: vec![Box::new(&limit.prepared)],
        operations: limit.operations,
    }];
    for (name, prepared) in ours {
        let launches = prepared.into_iter().map(|launch| Box::new(launch) as Box<dyn Enqueue>).collect();
        candidates.push(Candidate { name, launches, operations });
    }
    if let (Some(plan), Some(fastest)) = (plan, fastest) {
        for (name, algorithm) in [("cuBLASLt first", 0), ("cuBLASLt fastest", fastest)] {
            let run = |set: &Set| plan.with(algorithm, set.a.address, set.b.address, set.d.address);
            let launches: Result<Vec<Box<dyn Enqueue + 'a>>, Failure> =
                sets.iter().map(|set| Ok(Box::new(run(set)?) as Box<dyn Enqueue + 'a>)).collect();
            candidates.push(Candidate { name: name.to_owned(), launches: launches?, operations });
        }
    }
    Ok(candidates)
}

fn report(
    state: &'static str,
    candidates: &[Candidate<'_>],
    rates: &[Vec<f64>],
    problem: GemmProblem,
    figures: &mut Vec<Figure>,
) {
    let spread = |turns: &[f64]| {
        let mut sorted = turns.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
        [at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1))]
    };
    let spreads: Vec<[f64; 3]> = rates.iter().map(|turns| spread(turns)).collect();
    let median = |name: &str| {
        candidates.iter().position(|candidate| candidate.name == name).map_or(f64::NAN, |i| spreads[i][1])
    };
    let (limit, first, fastest) = (median("ceiling"), median("cuBLASLt first"), median("cuBLASLt fastest"));
    println!(
        "{state:10} {:20} {:>10} {:>8}  spread     % ceiling  x Lt first  x Lt fastest",
        "", "us", "TFLOP/s"
    );
    for (candidate, [least, median, most]) in candidates.iter().zip(spreads) {
        let microseconds = candidate.operations / median / 1e6;
        println!(
            "{:10} {:20} {microseconds:10.2} {median:8.1}  {least:.0}..{most:.0}  {:8.1}  {:10.3}  {:12.3}",
            "",
            candidate.name,
            100.0 * median / limit,
            median / first,
            median / fastest,
        );
        let GemmProblem { m, n, k } = problem;
        let tflops = [least, median, most];
        figures.push(Figure { m, n, k, candidate: candidate.name.clone(), state, tflops, microseconds });
    }
}
