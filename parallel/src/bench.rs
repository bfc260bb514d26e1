//! Times layers beside the sequence of NCCL and cuBLASLt, on the GPUs of a group.

use core::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use falchion::collective::{F8E4M3, Format};
use falchion::kernel::driver::{Enqueue, Gpu};
use falchion::kernel::{EngineError, GemmProblem, Types};
use half::bf16;
use peers::Matmul;
use peers::cublaslt::CublasLt;

use crate::device::Memory;
use crate::element::Element;
use crate::error::Error;
use crate::group::Group;
use crate::layer::{ColumnParallel, Input, Part, RowParallel, Tokens, divided};
use crate::record::Record;
use crate::tensor::Tensor;

/// A layer of a model: outputs and inputs of all ranks.
#[derive(Clone, Copy, Debug)]
pub struct LayerShape {
    /// Its name.
    pub name: &'static str,
    /// Whether its outputs are divided, or its inputs.
    pub column: bool,
    /// Outputs.
    pub n: u32,
    /// Inputs.
    pub k: u32,
}

/// Layers of models, as their ranks divide them.
pub const LAYERS: [LayerShape; 8] = [
    LayerShape { name: "llama 70b up", column: true, n: 28672, k: 8192 },
    LayerShape { name: "llama 70b qkv", column: true, n: 10240, k: 8192 },
    LayerShape { name: "deepseek up", column: true, n: 36864, k: 7168 },
    LayerShape { name: "llama 8b up", column: true, n: 28672, k: 4096 },
    LayerShape { name: "llama 70b down", column: false, n: 8192, k: 28672 },
    LayerShape { name: "llama 70b out", column: false, n: 8192, k: 8192 },
    LayerShape { name: "deepseek down", column: false, n: 7168, k: 18432 },
    LayerShape { name: "llama 8b down", column: false, n: 4096, k: 14336 },
];

/// Times of a layer, in microseconds; the slowest rank counts.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Our layer, with the kernel that the model chooses, or the fastest that was measured ([`Group::tune`]).
    pub ours: f64,
    /// Two of our layers on two streams at once, per layer.
    pub overlapped: f64,
    /// The same layer where it is recorded and replayed.
    pub recorded: f64,
    /// NCCL, then cuBLASLt's first algorithm, or the other way round.
    pub first: f64,
    /// The same with its fastest algorithm.
    pub fastest: f64,
    /// The collective alone.
    pub collective: f64,
    /// The host's part of our layer, of a recorded one, of the sequence, and of the collective alone: medians of calls.
    pub host: [f64; 4],
}

/// The median.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Something that is timed.
type Work<'w> = &'w mut dyn FnMut(&mut Group) -> Result<(), Error>;

/// Microseconds per repetition, of the device and of the host, after a rest.
fn turn(group: &mut Group, repetitions: usize, work: Work<'_>) -> Result<[f64; 2], Error> {
    group.wait()?;
    thread::sleep(Duration::from_millis(30));
    group.barrier()?;
    // The ranks begin together, behind a collective.
    work(group)?;
    group.wait()?;
    group.barrier()?;
    let began = Instant::now();
    let mut calls = Vec::new();
    for i in 0..repetitions {
        let began = Instant::now();
        work(group)?;
        // Later calls may wait for the device, whose queue is full.
        if i < 8 {
            calls.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    group.wait()?;
    Ok([began.elapsed().as_secs_f64() * 1e6 / repetitions as f64, median(calls)])
}

/// The largest number of all ranks.
fn largest(group: &mut Group, numbers: &[f64]) -> Result<Vec<f64>, Error> {
    let own: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = group.exchange("times", &own)?;
    let read = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let mut most = vec![0.0f64; numbers.len()];
    for rank in all {
        most.iter_mut().zip(rank.chunks_exact(8)).for_each(|(most, bytes)| *most = most.max(read(bytes)));
    }
    Ok(most)
}

/// Times a layer for some numbers of tokens of all ranks. `scaled` multiplies `e4m3` with block scales, instead
/// of `bf16`.
///
/// # Errors
/// No GPU; tokens that do not divide by the number of ranks; the group or a library has failed.
pub fn layer(
    group: &mut Group,
    layer: LayerShape,
    tokens: &[u32],
    scaled: bool,
) -> Result<Vec<Times>, Error> {
    if scaled {
        Timed::<F8E4M3>::new(group, layer, true, F8E4M3::from_f32)?.all(group, tokens)
    } else {
        Timed::<bf16>::new(group, layer, false, bf16::from_f32)?.all(group, tokens)
    }
}

/// Random numbers that repeat: what they are decides a card's power.
fn random<T: Element>(count: usize, of: impl Fn(f32) -> T) -> Vec<T> {
    let mut seed = fastrand::Rng::with_seed(count as u64);
    let some: Vec<T> = (0..65_537).map(|_| of(seed.f32() * 2.0 - 1.0)).collect();
    let mut all = Vec::with_capacity(count + some.len());
    while all.len() < count {
        all.extend_from_slice(&some);
    }
    all.truncate(count);
    all
}

enum Either<A> {
    Column(Box<ColumnParallel<A, bf16>>),
    Row(Box<RowParallel<A, bf16>>),
}

/// A layer and what its peers multiply, on one rank.
struct Timed<A> {
    column: bool,
    scaled: bool,
    /// Outputs and inputs of the rank.
    own: [u32; 2],
    /// Copies of the layer: its weights come from memory and not from L2.
    layers: Vec<Either<A>>,
    weights: Vec<Tensor<A>>,
    weight_scales: Tensor<f32>,
    of: fn(f32) -> A,
}

impl<A: Element> Timed<A> {
    fn new(
        group: &mut Group,
        LayerShape { column, n, k, .. }: LayerShape,
        scaled: bool,
        of: fn(f32) -> A,
    ) -> Result<Self, Error> {
        let size = group.size();
        let own = if column { [divided("outputs", n, size)?, k] } else { [n, divided("inputs", k, size)?] };
        let count = own[0] as usize * own[1] as usize;
        let copies = (100_000_000 / (count * A::KIND.bytes())).clamp(2, 4);
        let numbers = random(count, of);
        let scales = scaled.then(|| vec![1.0f32; (own[0].div_ceil(128) * own[1].div_ceil(128)) as usize]);
        let part = Part { bytes: crate::element::bytes(&numbers), extents: own, scales };
        let (mut layers, mut weights) = (Vec::new(), Vec::new());
        for _ in 0..copies {
            layers.push(match column {
                true => {
                    Either::Column(Box::new(ColumnParallel::of_part(group, A::KIND, &part, Tokens::Divided)?))
                }
                false => Either::Row(Box::new(RowParallel::of_part(group, A::KIND, &part, Tokens::Divided)?)),
            });
            weights.push(group.upload(&numbers)?);
        }
        let weight_scales = group.upload(&vec![1.0f32; crate::layer::weight_scale_count(own[0], own[1])])?;
        Ok(Self { column, scaled, own, layers, weights, weight_scales, of })
    }

    fn all(mut self, group: &mut Group, tokens: &[u32]) -> Result<Vec<Times>, Error> {
        tokens.iter().map(|&tokens| self.times(group, tokens)).collect()
    }

    fn times(&mut self, group: &mut Group, tokens: u32) -> Result<Times, Error> {
        let Self { column, scaled, own: [n, k], ref mut layers, ref weights, ref weight_scales, of } = *self;
        let size = group.size();
        let part = divided("the number of tokens", tokens, size)?;
        let [rows, columns] = if column { [part, tokens] } else { [tokens, part] };
        let x = group.upload(&random(rows as usize * k as usize, of))?;
        let x_scales = group.upload(&vec![1.0f32; crate::layer::scale_count(rows, k)])?;
        let mut y = group.zeros::<bf16>(columns as usize * n as usize)?;
        let copies = layers.len();
        let mut i = 0;
        let ours = RefCell::new(|group: &mut Group, y: &mut Tensor<bf16>| {
            i = (i + 1) % copies;
            let input = if scaled { Input::scaled(x.view(), x_scales.view()) } else { Input::from(x.view()) };
            match &mut layers[i] {
                Either::Column(layer) => layer.forward(group, input, y.view_mut()),
                Either::Row(layer) => layer.forward(group, input, y.view_mut()),
            }
        });
        for _ in 0..copies {
            ours.borrow_mut()(group, &mut y)?;
        }

        // The same with NCCL and cuBLASLt.
        let types = Types::of(if scaled { Format::E4m3 } else { Format::Bf16 });
        let types = if scaled { types.scaled([1, 128]) } else { types };
        let gathered = |count: usize| if column { count * size as usize } else { 1 };
        let mut full = group.zeros::<A>(gathered(x.len()))?;
        let mut full_scales = group.zeros::<f32>(gathered(x_scales.len()))?;
        let sums = group.zeros::<bf16>(if column { 1 } else { tokens as usize * n as usize })?;
        let address = |memory: &Memory| memory.buffer.address;
        let scales = address(if column { &full_scales.memory } else { &x_scales.memory });
        let matmul = Matmul {
            scales: if scaled { [scales, address(&weight_scales.memory)] } else { [0; 2] },
            ..Matmul::new(types, GemmProblem { m: tokens, n, k })
        };
        let a = if column { address(&full.memory) } else { address(&x.memory) };
        let d = if column { address(&y.memory) } else { address(&sums.memory) };
        let plan = group.with_gpu(|gpu| {
            let plan = CublasLt::new(gpu)?.plan(&matmul)?;
            let fastest = plan.fastest(gpu, a, address(&weights[0].memory), d)?;
            Ok::<_, EngineError>((plan, fastest))
        });
        let (plan, fastest) =
            plan.ok_or_else(|| Error::argument("the rank's machine", group.describe(), "a GPU"))??;
        let mut j = 0;
        let mut product = |group: &mut Group, algorithm: usize| {
            j = (j + 1) % copies;
            let b = address(&weights[j].memory);
            let run = |gpu: &mut Gpu| plan.with(algorithm, a, b, d)?.enqueue(gpu.stream());
            group.with_gpu(run).unwrap_or(Ok(())).map_err(Error::from)
        };
        // What their sequence does: the collective, and the product by an algorithm.
        let mut theirs = |group: &mut Group, y: &mut Tensor<bf16>, algorithm: Option<usize>| {
            let mut multiply =
                |group: &mut Group| algorithm.map_or(Ok(()), |algorithm| product(group, algorithm));
            if column {
                group.all_gather(x.view(), full.view_mut())?;
                if scaled {
                    group.all_gather(x_scales.view(), full_scales.view_mut())?;
                }
                multiply(group)
            } else {
                multiply(group)?;
                group.reduce_scatter(sums.view(), y.view_mut())
            }
        };

        // All copies of the layer are one record.
        let mut to = group.zeros::<bf16>(y.len())?;
        let mut record =
            group.record(|group| (0..copies).try_for_each(|_| ours.borrow_mut()(group, &mut to)))?;

        let first = turn(group, 3, &mut |group| theirs(group, &mut y, Some(0)))?;
        let each = largest(group, &first)?[0];
        let repetitions = ((20_000.0 / each) as usize).clamp(4, 200);
        let turns = Turns { copies, repetitions, fastest };
        let times = turns.rounds(group, &ours, &mut theirs, &mut record, &mut y)?;
        slowest(group, &times)
    }
}

/// How often what is timed is repeated.
struct Turns {
    /// Copies of the layer in a record.
    copies: usize,
    repetitions: usize,
    /// The fastest algorithm.
    fastest: usize,
}

impl Turns {
    /// Times of ours, recorded, and two at once; and theirs with the first and the fastest algorithm, and without a product.
    fn rounds(
        &self,
        group: &mut Group,
        ours: &RefCell<impl FnMut(&mut Group, &mut Tensor<bf16>) -> Result<(), Error>>,
        theirs: &mut impl FnMut(&mut Group, &mut Tensor<bf16>, Option<usize>) -> Result<(), Error>,
        record: &mut Record<'_>,
        y: &mut Tensor<bf16>,
    ) -> Result<[Vec<[f64; 2]>; 6], Error> {
        let Self { copies, repetitions, fastest } = *self;
        let mut times = [const { Vec::new() }; 6];
        let mut side = group.stream()?;
        let mut on_side = group.zeros::<bf16>(y.len())?;
        for _ in 0..5 {
            times[0].push(turn(group, repetitions, &mut |group| ours.borrow_mut()(group, y))?);
            let replays = repetitions.div_ceil(copies);
            let replayed = turn(group, replays, &mut |group| record.replay(group))?;
            times[1].push(replayed.map(|time| time / copies as f64));
            let both = turn(group, repetitions.div_ceil(2), &mut |group| {
                let before = group.event()?;
                let done = group.on(&mut side, |group| {
                    group.after(&before)?;
                    ours.borrow_mut()(group, &mut on_side)?;
                    group.event()
                })?;
                ours.borrow_mut()(group, y)?;
                group.after(&done)
            })?;
            times[2].push(both.map(|time| time / 2.0));
            for (times, algorithm) in times[3..].iter_mut().zip([Some(0), Some(fastest), None]) {
                times.push(turn(group, repetitions, &mut |group| theirs(group, y, algorithm))?);
            }
        }
        Ok(times)
    }
}

/// The medians of the rank that takes longest.
fn slowest(group: &mut Group, times: &[Vec<[f64; 2]>; 6]) -> Result<Times, Error> {
    let of =
        |(i, which): (usize, usize)| median(times[i].iter().map(|time: &[f64; 2]| time[which]).collect());
    let own: Vec<f64> = (0..6).map(|i| (i, 0)).chain([(0, 1), (1, 1), (4, 1), (5, 1)]).map(of).collect();
    let largest: [f64; 10] = largest(group, &own)?.try_into().unwrap_or([f64::NAN; 10]);
    let [ours, recorded, overlapped, first, fastest, collective, host @ ..] = largest;
    Ok(Times { ours, overlapped, recorded, first, fastest, collective, host })
}
