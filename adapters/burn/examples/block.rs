//! A small transformer with seeded weights: its linear layers and attention by falchion, held against the same by burn's own operations. On the card it also
//! times both.
//!
//! ```sh
//! cargo run --release --example block
//! cargo run --release --features cuda --example block
//! ```

use std::time::{Duration, Instant};

use burn::tensor::{Device, FloatDType, Tensor, TensorData, activation};
use falchion_burn::{Activation, Error, linear, matmul};

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
struct Layer {
    weight: Tensor<2>,
    bias: Tensor<1>,
}

struct Block {
    qkv: Layer,
    out: Layer,
    up: Layer,
    down: Layer,
}

/// Where tensors are, and the type of their elements.
type Place<'a> = (&'a Device, FloatDType);

/// SplitMix64, by S. Vigna: numbers between -1 and 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn tensor<const D: usize>(
        &mut self,
        shape: [usize; D],
        size: f32,
        (device, dtype): Place<'_>,
    ) -> Tensor<D> {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| self.next() * size).collect();
        Tensor::from_data(TensorData::new(values, shape), (device, dtype.into()))
    }

    fn layer(&mut self, [inputs, outputs]: [usize; 2], place: Place<'_>) -> Layer {
        let size = (3.0 / inputs as f32).sqrt();
        Layer {
            weight: self.tensor([inputs, outputs], size, place),
            bias: self.tensor([outputs], size, place),
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
    fn layer(self, layer: &Layer, x: Tensor<3>, act: Activation) -> Result<Tensor<3>, Error> {
        if self == Self::Falchion {
            return linear(x, layer.weight.clone(), Some(layer.bias.clone()), act);
        }
        let y = x.matmul(layer.weight.clone().unsqueeze()) + layer.bias.clone().unsqueeze();
        Ok(if act == Activation::Gelu { activation::gelu_approximate(y) } else { y })
    }

    fn matmul(self, a: Tensor<4>, b: Tensor<4>) -> Result<Tensor<4>, Error> {
        if self == Self::Falchion { matmul(a, b) } else { Ok(a.matmul(b)) }
    }
}

fn normalised(x: Tensor<3>) -> Tensor<3> {
    let centred = x.clone() - x.mean_dim(2);
    let variance = (centred.clone() * centred.clone()).mean_dim(2);
    centred / (variance + 1e-5).sqrt()
}

fn forward(
    model: &Model,
    (blocks, head): (&[Block], &Layer),
    mut x: Tensor<3>,
    by: By,
) -> Result<Tensor<3>, Error> {
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
fn run(model: Model, passes: usize, place: Place<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let random = &mut Random(7);
    let blocks: Vec<Block> = (0..model.blocks)
        .map(|_| Block {
            qkv: random.layer([model.width, 3 * model.width], place),
            out: random.layer([model.width, model.width], place),
            up: random.layer([model.width, 4 * model.width], place),
            down: random.layer([4 * model.width, model.width], place),
        })
        .collect();
    let head = random.layer([model.width, model.words], place);
    let x: Tensor<3> = random.tensor([model.batch, model.tokens, model.width], 1.0, place);
    let pass = |by| forward(&model, (&blocks, &head), x.clone(), by);

    let logits =
        [By::Burn, By::Falchion].map(|by| pass(by).map(|logits| logits.into_data().convert::<f32>()));
    let [theirs, ours] = logits;
    let (theirs, ours) = (theirs?.try_to_vec::<f32>(), ours?.try_to_vec::<f32>());
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
            place.0.sync()?;
            let start = Instant::now();
            let logits = pass(by)?;
            place.0.sync()?;
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
    run(small, 0, (&Device::flex(), FloatDType::F32))?;
    #[cfg(feature = "cuda")]
    {
        let card = (&Device::cuda(0), FloatDType::BF16);
        run(small, 0, card)?;
        run(Model { batch: 1, tokens: 512, width: 1024, heads: 16, blocks: 8, words: 32000 }, 15, card)?;
        run(Model { batch: 4, tokens: 2048, width: 4096, heads: 32, blocks: 4, words: 32000 }, 15, card)?;
    }
    println!("verified");
    Ok(())
}
