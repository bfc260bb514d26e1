//! A small transformer with seeded weights: its linear layers and attention by falchion, held against the same by burn's own operations. On the card it also
//! times both.
//!
//! ```sh
//! cargo run --release --example block
//! cargo run --release --features cuda --example block
//! ```

use std::time::{Duration, Instant};

use burn::tensor::{Tensor, TensorData, activation};
use falchion_burn::{Activation, Backend, Error, linear, matmul};

/// Extents of the model.
#[derive(Clone, Copy, Debug)]
struct Model {
    batch: usize,
    tokens: usize,
    width: usize,
    heads: usize,
    blocks: usize,
    words: usize,
}

/// A layer: `(inputs, outputs)` and a bias.
struct Layer<B: Backend> {
    weight: Tensor<B, 2>,
    bias: Tensor<B, 1>,
}

struct Block<B: Backend> {
    qkv: Layer<B>,
    out: Layer<B>,
    up: Layer<B>,
    down: Layer<B>,
}

/// SplitMix64, by S. Vigna: numbers between -1 and 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn tensor<B: Backend, const D: usize>(
        &mut self,
        shape: [usize; D],
        size: f32,
        device: &B::Device,
    ) -> Tensor<B, D> {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| self.next() * size).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    fn layer<B: Backend>(&mut self, [inputs, outputs]: [usize; 2], device: &B::Device) -> Layer<B> {
        let size = (3.0 / inputs as f32).sqrt();
        Layer {
            weight: self.tensor([inputs, outputs], size, device),
            bias: self.tensor([outputs], size, device),
        }
    }
}

/// Whose products.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Burn,
    Falchion,
}

impl By {
    fn layer<B: Backend>(
        self,
        layer: &Layer<B>,
        x: Tensor<B, 3>,
        act: Activation,
    ) -> Result<Tensor<B, 3>, Error> {
        if self == Self::Falchion {
            return linear(x, layer.weight.clone(), Some(layer.bias.clone()), act);
        }
        let y = x.matmul(layer.weight.clone().unsqueeze()) + layer.bias.clone().unsqueeze();
        Ok(if act == Activation::Gelu { activation::gelu_approximate(y) } else { y })
    }

    fn matmul<B: Backend>(self, a: Tensor<B, 4>, b: Tensor<B, 4>) -> Result<Tensor<B, 4>, Error> {
        if self == Self::Falchion { matmul(a, b) } else { Ok(a.matmul(b)) }
    }
}

fn normalised<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    let centred = x.clone() - x.mean_dim(2);
    let variance = (centred.clone() * centred.clone()).mean_dim(2);
    centred / (variance + 1e-5).sqrt()
}

fn forward<B: Backend>(
    model: &Model,
    (blocks, head): (&[Block<B>], &Layer<B>),
    mut x: Tensor<B, 3>,
    by: By,
) -> Result<Tensor<B, 3>, Error> {
    let &Model { batch, tokens, width, heads, .. } = model;
    let depth = width / heads;
    for block in blocks {
        let qkv = by.layer(&block.qkv, normalised(x.clone()), Activation::Identity)?;
        let part = |i: usize| {
            let part = qkv.clone().slice([0..batch, 0..tokens, i * width..(i + 1) * width]);
            part.reshape([batch, tokens, heads, depth]).swap_dims(1, 2)
        };
        let scores = by.matmul(part(0), part(1).swap_dims(2, 3))? / (depth as f32).sqrt();
        let mixed = by.matmul(activation::softmax(scores, 3), part(2))?;
        let mixed = mixed.swap_dims(1, 2).reshape([batch, tokens, width]);
        x = x + by.layer(&block.out, mixed, Activation::Identity)?;
        let inner = by.layer(&block.up, normalised(x.clone()), Activation::Gelu)?;
        x = x + by.layer(&block.down, inner, Activation::Identity)?;
    }
    by.layer(head, normalised(x), Activation::Identity)
}

/// Logits of both, how far they are apart, and medians of the times of passes in turns.
fn run<B: Backend>(
    model: Model,
    passes: usize,
    device: &B::Device,
) -> Result<(), Box<dyn std::error::Error>> {
    let random = &mut Random(7);
    let blocks: Vec<Block<B>> = (0..model.blocks)
        .map(|_| Block {
            qkv: random.layer([model.width, 3 * model.width], device),
            out: random.layer([model.width, model.width], device),
            up: random.layer([model.width, 4 * model.width], device),
            down: random.layer([4 * model.width, model.width], device),
        })
        .collect();
    let head = random.layer([model.width, model.words], device);
    let x: Tensor<B, 3> = random.tensor([model.batch, model.tokens, model.width], 1.0, device);
    let pass = |by| forward(&model, (&blocks, &head), x.clone(), by);

    let logits =
        [By::Burn, By::Falchion].map(|by| pass(by).map(|logits| logits.into_data().convert::<f32>()));
    let [theirs, ours] = logits;
    let (theirs, ours) = (theirs?.to_vec::<f32>(), ours?.to_vec::<f32>());
    let (Ok(theirs), Ok(ours)) = (theirs, ours) else {
        return Err("logits are no numbers of 32 bits".into());
    };
    let largest = theirs.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    let apart = theirs.iter().zip(&ours).fold(0.0, |most: f32, (x, y)| {
        let error = (x - y).abs();
        if error.is_nan() { f32::INFINITY } else { most.max(error) }
    });
    // A rounding to 8 bits of the largest logit for each product, added up as errors of a random walk are.
    let allowed = largest / 256.0 * (6.0 * model.blocks as f32 + 1.0).sqrt();
    println!("{model:?}");
    println!("  logits up to {largest:.2}, at most {apart:.3} apart, {allowed:.3} allowed");
    if apart > allowed {
        return Err("the logits differ".into());
    }

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..passes {
        for (by, times) in [By::Burn, By::Falchion].into_iter().zip(&mut times) {
            B::sync(device)?;
            let start = Instant::now();
            let logits = pass(by)?;
            B::sync(device)?;
            times.push(start.elapsed());
            drop(logits);
        }
    }
    if passes > 0 {
        let [theirs, ours] = times.map(|mut times: Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64() * 1e3
        });
        println!(
            "  a forward pass: burn {theirs:.2} ms, falchion {ours:.2} ms, {:.2} times as fast",
            theirs / ours
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let small = Model { batch: 2, tokens: 24, width: 64, heads: 4, blocks: 2, words: 100 };
    run::<burn::backend::NdArray>(small, 0, &Default::default())?;
    #[cfg(feature = "cuda")]
    {
        type Card = burn::backend::Cuda<half::bf16>;
        let device = Default::default();
        run::<Card>(small, 0, &device)?;
        run::<Card>(
            Model { batch: 1, tokens: 512, width: 1024, heads: 16, blocks: 8, words: 32000 },
            15,
            &device,
        )?;
        run::<Card>(
            Model { batch: 4, tokens: 2048, width: 4096, heads: 32, blocks: 4, words: 32000 },
            15,
            &device,
        )?;
    }
    println!("verified");
    Ok(())
}
