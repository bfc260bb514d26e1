//! A transformer block with seeded weights, whose linear layers are falchion's on cust's buffers. Norms and attention are plain loops on the host. The
//! same block in double precision says whether it is right.
//!
//! `cargo run --release --example block`, on a machine with an H100 or H200.

use std::error::Error;

use cust::memory::{CopyDestination, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use falchion_cust::{Activation, GemmProblem, Products, Weight};
use half::bf16;

const TOKENS: usize = 512;
const WIDTH: usize = 512;
const HEADS: usize = 8;
const DEPTH: usize = WIDTH / HEADS;

/// A matrix, row by row: as the card has it, and in double precision.
#[derive(Clone)]
struct Matrix {
    columns: usize,
    half: Vec<bf16>,
    exact: Vec<f64>,
}

impl Matrix {
    fn of(columns: usize, half: Vec<bf16>) -> Self {
        Self { columns, exact: half.iter().map(|value| value.to_f64()).collect(), half }
    }

    fn random(random: &mut fastrand::Rng, rows: usize, columns: usize, size: f64) -> Self {
        let number = |_| bf16::from_f64(size * (2.0 * random.f64() - 1.0));
        Self::of(columns, (0..rows * columns).map(number).collect())
    }

    /// The same function of both.
    fn map(self, of_rows: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        let wide: Vec<f64> = self.half.iter().map(|value| value.to_f64()).collect();
        let each = |values: &[f64]| -> Vec<f64> { values.chunks(self.columns).flat_map(&of_rows).collect() };
        let half = each(&wide).into_iter().map(bf16::from_f64).collect();
        Self { columns: self.columns, half, exact: each(&self.exact) }
    }

    fn plus(self, other: &Self) -> Self {
        let add = |(x, y): (&bf16, &bf16)| bf16::from_f64(x.to_f64() + y.to_f64());
        let half = self.half.iter().zip(&other.half).map(add).collect();
        let exact = self.exact.iter().zip(&other.exact).map(|(x, y)| x + y).collect();
        Self { columns: self.columns, half, exact }
    }
}

/// A layer: outputs by inputs, and a bias.
struct Layer {
    weight: Matrix,
    bias: Matrix,
    activation: Activation,
}

impl Layer {
    fn random(random: &mut fastrand::Rng, [inputs, outputs]: [usize; 2], activation: Activation) -> Self {
        let size = (3.0 / inputs as f64).sqrt();
        let [weight, bias] = [outputs, 1].map(|rows| {
            let columns = if rows == 1 { outputs } else { inputs };
            Matrix::random(random, rows, columns, size)
        });
        Self { weight, bias, activation }
    }

    fn forward(&self, products: &Products, stream: &Stream, x: &Matrix) -> Result<Matrix, Box<dyn Error>> {
        let (inputs, outputs) = (self.weight.columns, self.bias.columns);
        let rows = x.half.len() / inputs;
        let [on_card, w, bias] =
            [&x.half, &self.weight.half, &self.bias.half].map(|host| DeviceBuffer::from_slice(host));
        let (on_card, w, bias) = (on_card?, w?, bias?);
        let mut half = vec![bf16::NAN; rows * outputs];
        let mut y = DeviceBuffer::from_slice(&half)?;
        let problem = GemmProblem { m: rows as u32, n: outputs as u32, k: inputs as u32 };
        let weight = Weight { matrix: &w, bias: Some(&bias), activation: self.activation };
        products.linear(stream, problem, &on_card, &weight, &mut y)?;
        y.copy_to(&mut half)?;

        let mut exact = Vec::with_capacity(half.len());
        for row in x.exact.chunks(inputs) {
            for (weights, bias) in self.weight.exact.chunks(inputs).zip(&self.bias.exact) {
                let sum: f64 = row.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>() + bias;
                exact.push(match self.activation {
                    Activation::Gelu => {
                        0.5 * sum * (1.0 + (0.797_884_560_802_865_4 * (sum + 0.044715 * sum.powi(3))).tanh())
                    }
                    Activation::Relu => sum.max(0.0),
                    Activation::Silu => sum / (1.0 + (-sum).exp()),
                    Activation::Identity => sum,
                });
            }
        }
        Ok(Matrix { columns: outputs, half, exact })
    }
}

/// Each row less its mean, over its deviation.
fn normalised(row: &[f64]) -> Vec<f64> {
    let count = row.len() as f64;
    let mean = row.iter().sum::<f64>() / count;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect()
}

/// Causal attention of every head, of rows of queries, keys and values.
fn attention(qkv: &[f64]) -> Vec<f64> {
    let part = |row: usize, which: usize, head: usize| {
        let start = row * 3 * WIDTH + which * WIDTH + head * DEPTH;
        &qkv[start..start + DEPTH]
    };
    let mut out = vec![0.0; TOKENS * WIDTH];
    for (head, row) in (0..HEADS).flat_map(|head| (0..TOKENS).map(move |row| (head, row))) {
        let query = part(row, 0, head);
        let score = |other| {
            let dot: f64 = query.iter().zip(part(other, 1, head)).map(|(q, k)| q * k).sum();
            dot / (DEPTH as f64).sqrt()
        };
        let scores: Vec<f64> = (0..=row).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let out = &mut out[row * WIDTH + head * DEPTH..][..DEPTH];
        for (other, weight) in weights.iter().enumerate() {
            out.iter_mut().zip(part(other, 2, head)).for_each(|(out, v)| *out += weight / sum * v);
        }
    }
    out
}

fn main() -> Result<(), Box<dyn Error>> {
    let context = cust::quick_init()?;
    let products = Products::new(&context)?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let random = &mut fastrand::Rng::with_seed(7);
    let layers = [
        ([WIDTH, 3 * WIDTH], Activation::Identity),
        ([WIDTH, WIDTH], Activation::Identity),
        ([WIDTH, 4 * WIDTH], Activation::Gelu),
        ([4 * WIDTH, WIDTH], Activation::Identity),
    ];
    let [qkv, out, up, down] = layers.map(|(extents, activation)| Layer::random(random, extents, activation));
    let x = Matrix::random(random, TOKENS, WIDTH, 1.0);

    let mixed = qkv.forward(&products, &stream, &x.clone().map(normalised))?;
    let wide: Vec<f64> = mixed.half.iter().map(|value| value.to_f64()).collect();
    let half = attention(&wide).into_iter().map(bf16::from_f64).collect();
    let mixed = Matrix { columns: WIDTH, half, exact: attention(&mixed.exact) };
    let x = out.forward(&products, &stream, &mixed)?.plus(&x);
    let inner = up.forward(&products, &stream, &x.clone().map(normalised))?;
    let x = down.forward(&products, &stream, &inner)?.plus(&x);

    let largest = x.exact.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let apart = x.half.iter().zip(&x.exact).map(|(half, exact)| (half.to_f64() - exact).abs());
    let apart =
        apart.fold(0.0, |most: f64, value| if value.is_nan() { f64::INFINITY } else { most.max(value) });
    // Some roundings to 8 bits.
    let allowed = largest * 4.0 / 256.0;
    println!("outputs up to {largest:.2}, at most {apart:.4} from double precision, {allowed:.4} allowed");
    if apart > allowed {
        return Err("the block is wrong".into());
    }
    println!("verified");
    Ok(())
}
