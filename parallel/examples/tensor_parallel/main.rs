//! A model with two blocks shaped as Llama's, on 1, 2 and 4 ranks: a prompt, then token after token with a cache. The logits of
//! all numbers of ranks agree, and those of a token do not depend on whether it was in the prompt.
//!
//! `cargo run --release --example tensor_parallel` runs it in the emulator, and with `-- --gpus 0,1` also on these GPUs, as large
//! as a layer of a model of 8 billion parameters.

mod kernels;

use std::thread;
use std::time::Instant;

use falchion::attention::{Attention, AttentionCall, AttentionProblem, AttentionSpec, HeadsRef};
use falchion_parallel::{
    Argument, ColumnParallel, Cut, Embedding, Error, Group, Kept, Limits, RowParallel, Tensor, Tokens,
    Weights,
};
use half::bf16;
use kernels::{AddNorm, HEAD, Heads, Residual, Rotate};

/// The model's extents: all ranks' together.
#[derive(Clone, Copy)]
struct Size {
    width: u32,
    heads: [u32; 2],
    inner: u32,
    words: u32,
    /// Tokens of the cache.
    most: u32,
}

const SMALL: Size = Size { width: 128, heads: [8, 4], inner: 256, words: 128, most: 32 };
const LARGE: Size = Size { width: 4096, heads: [64, 16], inner: 14336, words: 32768, most: 2048 };

const BLOCKS: usize = 2;

struct Block {
    norms: [Tensor<bf16>; 2],
    qkv: ColumnParallel<bf16>,
    out: RowParallel<bf16>,
    up: ColumnParallel<bf16>,
    down: RowParallel<bf16>,
    cache: [Tensor<bf16>; 2],
}

/// A rank's part of the model.
struct Model {
    size: Size,
    /// Heads of the rank.
    heads: [u32; 2],
    words: Embedding<bf16>,
    blocks: Vec<Block>,
    norm: Tensor<bf16>,
    head: ColumnParallel<bf16>,
    angles: Tensor<f32>,
    add_norm: Kept<AddNorm>,
    rotate: Kept<Rotate>,
    attention: Kept<Attention>,
}

/// Numbers of mean 0, which all ranks draw alike.
fn seeded(seed: u64, count: u32, scale: f32) -> Vec<bf16> {
    let mut of = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| bf16::from_f32((of.f32() * 2.0 - 1.0) * scale)).collect()
}

impl Model {
    fn new(group: &Group, size: Size) -> Result<Self, Error> {
        let Size { width, heads, inner, words, most } = size;
        let ranks = group.size();
        let mut seed = 0;
        let mut numbers = |rows: u32, columns: u32| {
            seed += 1;
            seeded(seed, rows * columns, (3.0 / columns as f32).sqrt())
        };
        let ones = || group.upload(&vec![bf16::ONE; width as usize]);
        let own = heads.map(|heads| heads / ranks);
        let [queries, keys] = heads.map(|heads| heads * HEAD);
        let parts = Cut::Parts(vec![queries, keys, keys]);
        let mut block = || {
            let cache = || group.zeros::<bf16>((own[1] * HEAD * most) as usize);
            let qkv = numbers(queries + 2 * keys, width);
            let (out, up, down) = (numbers(width, queries), numbers(2 * inner, width), numbers(width, inner));
            let of = |numbers, rows, columns| Weights::new(numbers, [rows, columns]);
            let up = of(&up, 2 * inner, width)?;
            Ok::<_, Error>(Block {
                norms: [ones()?, ones()?],
                qkv: ColumnParallel::new(
                    group,
                    &of(&qkv, queries + 2 * keys, width)?,
                    &parts,
                    Tokens::Whole,
                )?,
                out: RowParallel::new(group, &of(&out, width, queries)?, Tokens::Whole)?,
                // Rows of gate and up alternate, so a rank's columns are neighbours after they are joined.
                up: ColumnParallel::new(group, &up, &Cut::Rows, Tokens::Whole)?.with_epilogue(
                    group,
                    "gated(silu_fast, acc)",
                    &[] as &[(&str, Argument)],
                )?,
                down: RowParallel::new(group, &of(&down, width, inner)?, Tokens::Whole)?,
                cache: [cache()?, cache()?],
            })
        };
        let blocks = (0..BLOCKS).map(|_| block()).collect::<Result<_, _>>()?;
        let (table, head) = (seeded(100, words * width, 1.0), numbers(words, width));
        let angles = (0..most).flat_map(|position| {
            (0..HEAD / 2).flat_map(move |pair| {
                let angle = position as f32 * 10_000f32.powf(-2.0 * pair as f32 / HEAD as f32);
                [angle.cos(), angle.sin()]
            })
        });
        let spec: AttentionSpec = "d=64 mask=causal".parse().map_err(refused)?;
        Ok(Self {
            size,
            heads: own,
            words: Embedding::new(group, &Weights::new(&table, [words, width])?, Tokens::Whole)?,
            blocks,
            norm: ones()?,
            head: ColumnParallel::new(
                group,
                &Weights::new(&head, [words, width])?,
                &Cut::Rows,
                Tokens::Whole,
            )?,
            angles: group.upload(&angles.collect::<Vec<_>>())?,
            add_norm: Kept::of(AddNorm),
            rotate: Kept::of(Rotate),
            attention: Kept::of(Attention::new(spec).map_err(refused)?),
        })
    }

    /// The rank's logits of some tokens, of which the first stands at `position`.
    fn forward(&mut self, group: &mut Group, ids: &[u32], position: u32) -> Result<Tensor<bf16>, Error> {
        let Size { width, most, .. } = self.size;
        let (tokens, [of_queries, of_keys]) = (ids.len() as u32, self.heads);
        let some = |group: &Group, columns: u32| group.zeros::<bf16>((tokens * columns) as usize);
        let ids = group.upload(ids)?;
        let (mut x, mut normed) = (some(group, width)?, some(group, width)?);
        let mut delta = some(group, width)?;
        let mut qkv = some(group, (of_queries + 2 * of_keys) * HEAD)?;
        let (mut queries, mut attended) = (some(group, of_queries * HEAD)?, some(group, of_queries * HEAD)?);
        let mut inner = some(group, self.size.inner / group.size())?;
        self.words.forward(group, ids.view(), x.view_mut())?;
        let (rows, columns, x_at) = (tokens, width, x.view_mut().address());
        let add_norm = &self.add_norm;
        let norm = |group: &mut Group, delta: &Tensor<bf16>, weights: &Tensor<bf16>, y: &mut Tensor<bf16>| {
            let (delta, weights, y) =
                (delta.view().address(), weights.view().address(), y.view_mut().address());
            group.enqueue(add_norm, &Residual { rows, columns, x: x_at, delta, weights, y })
        };
        for block in &mut self.blocks {
            norm(group, &delta, &block.norms[0], &mut normed)?;
            block.qkv.forward(group, normed.view(), qkv.view_mut())?;
            let [keys, values] = block.cache.each_mut().map(|cache| cache.view_mut().address());
            let heads = Heads {
                tokens,
                position,
                heads: self.heads,
                from: qkv.view().address(),
                angles: self.angles.view().address(),
                queries: queries.view_mut().address(),
                keys,
                values,
                most,
            };
            group.enqueue(&self.rotate, &heads)?;
            let problem = AttentionProblem::new(1, of_queries, [tokens, position + tokens], HEAD);
            let problem = AttentionProblem { heads: self.heads, ..problem };
            let of = |address, heads, length| HeadsRef::length_first(address, [heads, length, HEAD]);
            let tensors =
                [of(heads.queries, of_queries, tokens), of(keys, of_keys, most), of(values, of_keys, most)];
            let to = of(attended.view_mut().address(), of_queries, tokens);
            group.enqueue(&self.attention, &AttentionCall::new(problem, tensors, to))?;
            block.out.forward(group, attended.view(), delta.view_mut())?;
            norm(group, &delta, &block.norms[1], &mut normed)?;
            block.up.forward(group, normed.view(), inner.view_mut())?;
            block.down.forward(group, inner.view(), delta.view_mut())?;
        }
        norm(group, &delta, &self.norm, &mut normed)?;
        let mut logits = some(group, self.head.columns())?;
        self.head.forward(group, normed.view(), logits.view_mut())?;
        Ok(logits)
    }
}

fn refused(error: impl core::fmt::Display) -> Error {
    Error::Kernel(error.to_string())
}

/// A rank's logits of a prompt and of the tokens after it, one at a time; and the time of each, in microseconds.
fn rank(
    mut group: Group,
    size: Size,
    ids: &[u32],
    prompt: usize,
) -> Result<(Vec<Vec<bf16>>, [f64; 2]), Error> {
    let mut model = Model::new(&group, size)?;
    let mut logits = Vec::new();
    let mut times = [0.0; 2];
    // The first pass chooses and loads kernels; the second is timed.
    for _ in 0..2 {
        logits.clear();
        let began = Instant::now();
        let all = model.forward(&mut group, &ids[..prompt], 0)?;
        let all = group.read(&all)?;
        times[0] = began.elapsed().as_secs_f64() * 1e6;
        logits.extend(all.chunks_exact(all.len() / prompt).map(<[bf16]>::to_vec));
        let began = Instant::now();
        for (position, id) in ids.iter().enumerate().skip(prompt) {
            let one = model.forward(&mut group, &[*id], position as u32)?;
            logits.push(group.read(&one)?);
        }
        times[1] = began.elapsed().as_secs_f64() * 1e6 / (ids.len() - prompt).max(1) as f64;
    }
    Ok((logits, times))
}

/// The logits of each token, of all words, and the times.
fn run(
    groups: Vec<Group>,
    size: Size,
    ids: &[u32],
    prompt: usize,
) -> Result<(Vec<Vec<f32>>, [f64; 2]), Error> {
    let ranks: Vec<_> = thread::scope(|scope| {
        let ranks: Vec<_> =
            groups.into_iter().map(|group| scope.spawn(move || rank(group, size, ids, prompt))).collect();
        ranks.into_iter().map(|rank| rank.join().map_err(|_| refused("a rank panicked"))?).collect()
    });
    let ranks = ranks.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let of_token =
        |token: usize| ranks.iter().flat_map(|(own, _)| &own[token]).map(|of| of.to_f32()).collect();
    Ok(((0..ids.len()).map(of_token).collect(), ranks[0].1))
}

/// The largest difference of two results, over the root of the mean square of the first.
fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    let squares: f32 = a.iter().flatten().map(|a| a * a).sum();
    let mean = (squares / a.iter().map(Vec::len).sum::<usize>() as f32).sqrt();
    a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / mean
}

/// Each number of ranks, beside one rank; whether all agree.
fn compare(
    size: Size,
    tokens: u32,
    counts: &[usize],
    groups: impl Fn(usize) -> Result<Vec<Group>, Error>,
) -> Result<bool, Error> {
    let mut of = fastrand::Rng::with_seed(7);
    let ids: Vec<u32> = (0..tokens).map(|_| of.u32(..size.words)).collect();
    let prompt = ids.len() - 4;
    // bf16 has 8 bits, and roundings add up over the blocks.
    let bound = 0.08;
    let (one, times) = run(groups(1)?, size, &ids, prompt)?;
    println!("1 rank: prompt of {prompt} tokens {:.0} us, a token {:.0} us", times[0], times[1]);
    let (whole, _) = run(groups(1)?, size, &ids, ids.len())?;
    let mut most = difference(&whole, &one);
    println!("tokens in the prompt, or after it: differ by {most:.4} of the logits' size");
    for &count in counts {
        let (several, times) = run(groups(count)?, size, &ids, prompt)?;
        let own = difference(&one, &several);
        most = most.max(own);
        println!(
            "{count} ranks: prompt {:.0} us, a token {:.0} us; logits differ from one rank's by {own:.4}",
            times[0], times[1]
        );
    }
    Ok(most < bound)
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().collect();
    println!("emulated, {} wide", SMALL.width);
    let mut agree = compare(SMALL, 12, &[2, 4], |count| Group::emulated(count as u32))?;
    if let [_, option, gpus] = &arguments[..] {
        let numbers: Result<Vec<usize>, _> = gpus.split(',').map(str::parse).collect();
        let (true, Ok(numbers)) = (option == "--gpus", numbers) else {
            let found = arguments[1..].join(" ");
            return Err(Error::Argument {
                field: "the options".to_owned(),
                found,
                needed: "--gpus 0,1".to_owned(),
            });
        };
        println!("GPUs {gpus}, {} wide", LARGE.width);
        let counts: Vec<_> = [2, 4, 8].into_iter().filter(|&count| count <= numbers.len()).collect();
        agree &= compare(LARGE, 1028, &counts, |count| Group::gpus(&numbers[..count], Limits::default()))?;
    }
    match agree {
        true => println!("all agree"),
        false => return Err(refused("logits differ by more than 0.08 of their size")),
    }
    Ok(())
}
