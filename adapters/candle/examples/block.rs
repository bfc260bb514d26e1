//! A transformer of some blocks with seeded weights, by candle's linear layers and by falchion's: the same logits within a bound, and, on the card,
//! the time of a forward pass from its first operation to its last.
//!
//! `cargo run --release --example block`, and with `--features cuda` on the card.

use std::time::Instant;

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{LayerNorm, Module};
use falchion_candle::{Activation, Linear, matmul};

/// The model's extents.
struct Size {
    tokens: usize,
    batch: usize,
    width: usize,
    heads: usize,
    blocks: usize,
    words: usize,
}

/// Who multiplies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Candle,
    Falchion,
}

/// A layer with an activation, by either.
enum Layer {
    Candle(candle_nn::Linear, bool),
    Falchion(Linear),
}

impl Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Candle(layer, false) => layer.forward(x),
            Self::Candle(layer, true) => layer.forward(x)?.gelu(),
            Self::Falchion(layer) => layer.forward(x),
        }
    }
}

struct Block {
    norms: [LayerNorm; 2],
    qkv: Layer,
    out: Layer,
    up: Layer,
    down: Layer,
}

struct Model {
    by: By,
    heads: usize,
    blocks: Vec<Block>,
    head: Layer,
}

/// A generator of one sequence, whatever the device: SplitMix64, by S. Vigna.
struct Seeded(u64);

impl Seeded {
    fn tensor(&mut self, shape: &[usize], scale: f32, device: &Device) -> Result<Tensor> {
        let count = shape.iter().product();
        let mut next = || {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let values: Vec<f32> = (0..count).map(|_| next() * scale).collect();
        Tensor::from_vec(values, shape, device)?.to_dtype(DType::BF16)
    }
}

impl Model {
    fn new(size: &Size, by: By, device: &Device) -> Result<Self> {
        let mut seeded = Seeded(7);
        let width = size.width;
        let mut layer = |outputs: usize, inputs: usize, gelu: bool| {
            // Outputs are about as large as inputs.
            let scale = (3.0 / inputs as f32).sqrt();
            let weight = seeded.tensor(&[outputs, inputs], scale, device)?;
            let bias = Some(seeded.tensor(&[outputs], 0.1, device)?);
            let activation = if gelu { Activation::Gelu } else { Activation::Identity };
            Ok::<_, candle_core::Error>(match by {
                By::Candle => Layer::Candle(candle_nn::Linear::new(weight, bias), gelu),
                By::Falchion => Layer::Falchion(Linear::new(weight, bias).with_activation(activation)),
            })
        };
        let ones = Tensor::ones(width, DType::BF16, device)?;
        let norm = || LayerNorm::new(ones.clone(), ones.zeros_like().expect("as large"), 1e-5);
        let blocks = (0..size.blocks).map(|_| {
            Ok(Block {
                norms: [norm(), norm()],
                qkv: layer(3 * width, width, false)?,
                out: layer(width, width, false)?,
                up: layer(4 * width, width, true)?,
                down: layer(width, 4 * width, false)?,
            })
        });
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        Ok(Self { by, heads: size.heads, blocks, head: layer(size.words, width, false)? })
    }

    fn multiply(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        match self.by {
            By::Candle => a.matmul(b),
            By::Falchion => matmul(a, b),
        }
    }

    fn attend(&self, block: &Block, x: &Tensor) -> Result<Tensor> {
        let (batch, tokens, width) = x.dims3()?;
        let depth = width / self.heads;
        let qkv = block.qkv.forward(x)?.reshape((batch, tokens, 3, self.heads, depth))?;
        let qkv = qkv.permute((2, 0, 3, 1, 4))?.contiguous()?;
        let [q, k, v] = [0, 1, 2].map(|i| qkv.get(i));
        let (q, k, v) = (q?, k?, v?);
        let scores = (self.multiply(&q, &k.t()?)? * (1.0 / (depth as f64).sqrt()))?;
        let mixed = self.multiply(&candle_nn::ops::softmax(&scores, D::Minus1)?, &v)?;
        block.out.forward(&mixed.transpose(1, 2)?.reshape((batch, tokens, width))?)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            x = (&x + self.attend(block, &block.norms[0].forward(&x)?)?)?;
            let inner = block.up.forward(&block.norms[1].forward(&x)?)?;
            x = (&x + block.down.forward(&inner)?)?;
        }
        self.head.forward(&x)
    }
}

/// Seconds of some forward passes each, in turns.
fn time(models: [&Model; 2], x: &Tensor, device: &Device) -> Result<[f64; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        for (model, times) in models.into_iter().zip(&mut times) {
            device.synchronize()?;
            let begun = Instant::now();
            model.forward(x)?;
            device.synchronize()?;
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

fn main() -> Result<()> {
    let card = Device::new_cuda(0);
    let sizes = match card {
        Ok(_) => vec![
            Size { tokens: 512, batch: 1, width: 1024, heads: 16, blocks: 8, words: 32000 },
            Size { tokens: 2048, batch: 4, width: 4096, heads: 32, blocks: 4, words: 32000 },
        ],
        Err(_) => vec![Size { tokens: 24, batch: 2, width: 64, heads: 4, blocks: 2, words: 100 }],
    };
    let device = card.unwrap_or(Device::Cpu);
    for size in sizes {
        let x = Seeded(11).tensor(&[size.batch, size.tokens, size.width], 1.0, &device)?;
        let models = [Model::new(&size, By::Candle, &device)?, Model::new(&size, By::Falchion, &device)?];
        let [candle, own] =
            [models[0].forward(&x)?, models[1].forward(&x)?].map(|y| y.to_dtype(DType::F32)?.flatten_all());
        let (candle, own) = (candle?, own?);
        let largest = candle.abs()?.max(0)?.to_scalar::<f32>()?;
        let apart = (&candle - &own)?.abs()?.max(0)?.to_scalar::<f32>()?;
        // Each of some products of a block rounds to 8 bits; errors add up as in a random walk.
        let bound = largest * (6.0 * size.blocks as f32 + 1.0).sqrt() * 2f32.powi(-8);
        println!(
            "{} x {} tokens, width {}, {} blocks: logits up to {largest:.2}, at most {apart:.3} apart, {bound:.3} allowed",
            size.batch, size.tokens, size.width, size.blocks
        );
        if apart.is_nan() || apart > bound {
            candle_core::bail!("logits are {apart} apart, at most {bound} was allowed");
        }
        if device.is_cuda() {
            let [candle, own] = time([&models[0], &models[1]], &x, &device)?;
            println!(
                "a forward pass: candle {:.2} ms, falchion {:.2} ms: {:.2} times as fast",
                candle * 1e3,
                own * 1e3,
                candle / own
            );
        }
    }
    println!("verified");
    Ok(())
}
