//! A small decoder-only model with seeded weights: grouped heads, rotary positions, a cache of keys and values. Its products and its
//! attention are candle's or falchion's; all else is candle's.

use std::collections::HashMap;

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Module, VarBuilder, ops};
use falchion_candle::{
    Activation, Attention, FewBitLinear, FewBits, Linear, ScaledLinear, attention, quantize_weight,
};

/// Whose products and attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Candle,
    Falchion,
    /// Falchion's, with the weights of blocks in 8 bits, by [`Decoder::in_8_bits`]; and with inputs rounded too.
    Weights8,
    Falchion8,
}

/// The extents of a model.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub words: usize,
    pub width: usize,
    pub hidden: usize,
    pub heads: usize,
    pub groups: usize,
    pub d: usize,
    pub blocks: usize,
    /// The longest text.
    pub most: usize,
}

struct Block {
    norms: [Tensor; 2],
    /// Q, K, V and the output; then gate, up and down.
    weights: [Tensor; 7],
    /// The same in 8 bits, from a file.
    scaled: Vec<(ScaledLinear, FewBitLinear)>,
}

pub struct Decoder {
    size: Size,
    embedding: Tensor,
    head: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    cos: Tensor,
    sin: Tensor,
}

/// Keys and values of the tokens so far, `(1, groups, most, d)` per block.
pub struct Cache {
    blocks: Vec<[Tensor; 2]>,
    pub tokens: usize,
}

/// Numbers in `-1.0..1.0` from a seed.
fn seeded(seed: &mut u64, shape: &[usize], scale: f32, dtype: DType, device: &Device) -> Result<Tensor> {
    if device.is_cuda() {
        *seed += 1;
        device.set_seed(*seed)?;
        return Tensor::rand(-scale, scale, shape, device)?.to_dtype(dtype);
    }
    let numbers = (0..shape.iter().product()).map(|_| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((*seed >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
    });
    Tensor::from_vec(numbers.collect::<Vec<f32>>(), shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

impl Decoder {
    pub fn new(size: Size, dtype: DType, device: &Device) -> Result<Self> {
        let Size { words, width, hidden, heads, groups, d, blocks, most } = size;
        let seed = &mut 7;
        let mut weight = |rows: usize, columns: usize, gain: f32| {
            seeded(seed, &[rows, columns], gain * (3.0 / columns as f32).sqrt(), dtype, device)
        };
        let embedding = weight(words, width, (width as f32 / 3.0).sqrt())?;
        // Not the embedding: a model whose weights are random would repeat its last word.
        let head = weight(words, width, 1.0)?;
        let one = || Tensor::ones(width, dtype, device);
        let mut block = || -> Result<Block> {
            let weights = [
                weight(heads * d, width, 1.0)?,
                weight(groups * d, width, 1.0)?,
                weight(groups * d, width, 1.0)?,
                weight(width, heads * d, 1.0)?,
                weight(hidden, width, 1.0)?,
                weight(hidden, width, 1.0)?,
                weight(width, hidden, 1.0)?,
            ];
            Ok(Block { norms: [one()?, one()?], weights, scaled: Vec::new() })
        };
        let blocks = (0..blocks).map(|_| block()).collect::<Result<_>>()?;
        let angle =
            |at: usize| (at / (d / 2)) as f32 * 10000f32.powf(-((at % (d / 2)) as f32) / (d / 2) as f32);
        let angles: Vec<f32> = (0..most * d / 2).map(angle).collect();
        let angles = Tensor::from_vec(angles, (most, d / 2), &Device::Cpu)?;
        let of = |table: Tensor| table.to_dtype(dtype)?.to_device(device);
        Ok(Self {
            size,
            embedding,
            head,
            blocks,
            norm: one()?,
            cos: of(angles.cos()?)?,
            sin: of(angles.sin()?)?,
        })
    }

    /// Rounds the weights of the blocks to 8 bits with a scale per 128 x 128, writes them to a file with the names of DeepSeek's and
    /// Qwen's, and reads layers from it. The model's own weights become what the file stands for, so that candle computes the same.
    pub fn in_8_bits(&mut self) -> Result<()> {
        let (dtype, device) = (self.embedding.dtype(), self.embedding.device().clone());
        let path = std::env::temp_dir().join(format!("falchion-decoder-{}.safetensors", std::process::id()));
        for block in &mut self.blocks {
            let mut all = HashMap::new();
            for (i, weight) in block.weights.iter_mut().enumerate() {
                let (codes, scales) = quantize_weight(weight)?;
                let [n, k] = [weight.dim(0)?, weight.dim(1)?];
                let spread = |x: &Tensor, dim| -> Result<Tensor> {
                    let index: Vec<u32> = (0..[n, k][dim] as u32).map(|at| at / 128).collect();
                    x.index_select(&Tensor::new(index, &device)?, dim)
                };
                let wide = codes.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.to_device(&device)?;
                *weight = (wide * spread(&spread(&scales, 0)?, 1)?)?.to_dtype(dtype)?;
                all.insert(format!("{i}.weight"), codes);
                all.insert(format!("{i}.weight_scale_inv"), scales);
            }
            candle_core::safetensors::save(&all, &path)?;
            let file = VarBuilder::from_buffered_safetensors(std::fs::read(&path)?, dtype, &device)?;
            let read = |(i, weight): (usize, &Tensor)| {
                let (n, k) = weight.dims2()?;
                let activation = if i == 4 { Activation::Silu } else { Activation::Identity };
                let scaled = ScaledLinear::load(k, n, &file.pp(i))?.with_activation(activation);
                let weights =
                    FewBitLinear::load(k, n, FewBits::Fp8, &file.pp(i))?.with_activation(activation);
                Ok((scaled, weights))
            };
            block.scaled = block.weights.iter().enumerate().map(read).collect::<Result<_>>()?;
        }
        std::fs::remove_file(&path)?;
        Ok(())
    }

    pub fn cache(&self) -> Result<Cache> {
        let Size { groups, d, most, .. } = self.size;
        let zeros = || Tensor::zeros((1, groups, most, d), self.embedding.dtype(), self.embedding.device());
        let blocks = self.blocks.iter().map(|_| Ok([zeros()?, zeros()?])).collect::<Result<_>>()?;
        Ok(Cache { blocks, tokens: 0 })
    }

    /// The logits of the last of these tokens, which follow those in the cache.
    pub fn forward(&self, by: By, tokens: &[u32], cache: &mut Cache) -> Result<Tensor> {
        let Size { heads, groups, d, width, .. } = self.size;
        let (count, before) = (tokens.len(), cache.tokens);
        let device = self.embedding.device();
        let mut x = self.embedding.index_select(&Tensor::new(tokens, device)?, 0)?;
        let [cos, sin] = [&self.cos, &self.sin].map(|table| table.narrow(0, before, count));
        let (cos, sin) = (cos?, sin?);
        for (block, [keys, values]) in self.blocks.iter().zip(&mut cache.blocks) {
            let [q, k, v, o, gate, up, down] = [0, 1, 2, 3, 4, 5, 6];
            let linear = |x: &Tensor, i: usize| match by {
                By::Falchion8 => block.scaled[i].0.forward(x),
                By::Weights8 => block.scaled[i].1.forward(x),
                _ => linear(
                    by,
                    x,
                    &block.weights[i],
                    if i == gate { Activation::Silu } else { Activation::Identity },
                ),
            };
            let normed = ops::rms_norm(&x, &block.norms[0], 1e-5)?;
            let split =
                |y: Tensor, heads: usize| y.reshape((1, count, heads, d))?.transpose(1, 2)?.contiguous();
            let turned = |y: Tensor| candle_nn::rotary_emb::rope(&y, &cos, &sin);
            let q = turned(split(linear(&normed, q)?, heads)?)?;
            let new = turned(split(linear(&normed, k)?, groups)?)?;
            keys.slice_set(&new, 2, before)?;
            values.slice_set(&split(linear(&normed, v)?, groups)?, 2, before)?;
            let [seen, of_seen] = [&*keys, &*values].map(|all| all.narrow(2, 0, before + count));
            let y = attend(by, &q, &seen?, &of_seen?)?;
            let y = y.transpose(1, 2)?.reshape((count, heads * d))?;
            x = (x + linear(&y, o)?)?;
            let normed = ops::rms_norm(&x, &block.norms[1], 1e-5)?;
            let gated = (linear(&normed, gate)? * linear(&normed, up)?)?;
            x = (x + linear(&gated, down)?)?;
        }
        cache.tokens += count;
        let last = ops::rms_norm(&x.narrow(0, count - 1, 1)?.reshape((1, width))?, &self.norm, 1e-5)?;
        linear(by, &last, &self.head, Activation::Identity)?.to_dtype(DType::F32)?.squeeze(0)
    }

    /// The logits of each of `count` tokens after a prompt, where every token is the most probable of `leader`'s logits, or of its own.
    pub fn generate(
        &self,
        by: By,
        prompt: &[u32],
        count: usize,
        leader: Option<&[Vec<f32>]>,
    ) -> Result<Vec<Vec<f32>>> {
        let mut cache = self.cache()?;
        let mut all: Vec<Vec<f32>> = Vec::new();
        let mut next = prompt.to_vec();
        for i in 0..count {
            all.push(self.forward(by, &next, &mut cache)?.to_vec1::<f32>()?);
            next = vec![best(&leader.unwrap_or(&all)[i])[0] as u32];
        }
        Ok(all)
    }
}

/// The tokens with the two largest logits.
pub fn best(logits: &[f32]) -> [usize; 2] {
    let most = |other: usize| {
        let all = (0..logits.len()).filter(|&i| i != other);
        all.max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0)
    };
    let first = most(usize::MAX);
    [first, most(first)]
}

fn linear(by: By, x: &Tensor, weight: &Tensor, activation: Activation) -> Result<Tensor> {
    if by != By::Candle {
        return Linear::new(weight.clone(), None).with_activation(activation).forward(x);
    }
    let y = candle_nn::Linear::new(weight.clone(), None).forward(x)?;
    if activation == Activation::Silu { y.silu() } else { Ok(y) }
}

/// Causal attention: the queries are the last of the keys' tokens.
fn attend(by: By, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    if by != By::Candle {
        return attention(q, k, v, Attention { causal: true, ..Attention::default() });
    }
    let (_, heads, length, d) = q.dims4()?;
    let (batch, groups, keys, _) = k.dims4()?;
    let shared = |x: &Tensor| -> Result<Tensor> {
        let x = x.unsqueeze(2)?.broadcast_as((batch, groups, heads / groups, keys, d))?;
        x.reshape((batch, heads, keys, d))?.contiguous()
    };
    let mut scores = (q.matmul(&shared(k)?.transpose(2, 3)?.contiguous()?)? * (d as f64).sqrt().recip())?;
    if length > 1 {
        let seen = |at: usize| at % keys + length <= at / keys + keys;
        let mask: Vec<f32> =
            (0..length * keys).map(|at| if seen(at) { 0.0 } else { f32::NEG_INFINITY }).collect();
        let mask = Tensor::from_vec(mask, (length, keys), &Device::Cpu)?
            .to_device(q.device())?
            .to_dtype(q.dtype())?;
        scores = scores.broadcast_add(&mask)?;
    }
    ops::softmax(&scores, D::Minus1)?.matmul(&shared(v)?)
}
