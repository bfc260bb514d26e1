//! 8-bit floats with block scales: blocks of 1 x 128 for activations, 128 x 128 for weights.

use candle_core::{DType, Layout, Result, Shape, Tensor, bail};
use candle_nn::{Module, VarBuilder};

use crate::operation::{Of, Operation};
use crate::plain::{Owned, Part, in_place};
use crate::product::Extents;
use crate::{Activation, activated};

/// The number of elements along K, and of a weight's rows, that share a scale.
pub(crate) const BLOCK: usize = 128;

/// The largest number of `F8E4M3`.
const LARGEST: f64 = 448.0;

/// Rounds `f32` to the nearest code. candle has the kernel for this, but looks it up under another name.
struct Rounded;

impl Operation<1> for Rounded {
    const NAME: &'static str = "falchion-e4m3";

    fn run(&self, [x]: [Part<'_>; 1]) -> Result<(Owned, Shape)> {
        Ok((in_place!(x.0, rounded(x))?, x.1.shape().clone()))
    }
}

/// Codes `(M, K)` in `F8E4M3`, and their scales in `f32`, for blocks of `rows` rows and 128 along K.
fn quantized(x: &Tensor, rows: usize) -> Result<(Tensor, Tensor)> {
    let (m, k) = x.dims2()?;
    let [of_m, of_k] = [m.div_ceil(rows), k.div_ceil(BLOCK)];
    let padded = x
        .to_dtype(DType::F32)?
        .pad_with_zeros(0, 0, of_m * rows - m)?
        .pad_with_zeros(1, 0, of_k * BLOCK - k)?
        .reshape((of_m, rows, of_k, BLOCK))?;
    let scales =
        (padded.abs()?.max_keepdim(3)?.max_keepdim(1)? / LARGEST)?.maximum(f64::from(f32::MIN_POSITIVE))?;
    let codes = padded.broadcast_div(&scales)?.reshape((of_m * rows, of_k * BLOCK))?;
    let codes = codes.narrow(0, 0, m)?.narrow(1, 0, k)?.contiguous()?.apply_op1_no_bwd(&Of(Rounded))?;
    Ok((codes, scales.reshape((of_m, of_k))?))
}

/// Rounds `x` of shape `(rows, K)` to `F8E4M3`, with one `f32` scale per 128 elements of a row. The scale
/// maps the largest of the 128 to 448. Returns codes of the shape of `x` and scales of shape `(rows, ceil(K /
/// 128))`.
///
/// # Errors
/// `x` is not a matrix; an error of candle.
pub fn quantize_rows(x: &Tensor) -> Result<(Tensor, Tensor)> {
    quantized(x, 1)
}

/// Rounds a weight of shape `(N, K)` to `F8E4M3`, with one `f32` scale per block of 128 x 128. Returns codes
/// and scales of shape
/// `(ceil(N / 128), ceil(K / 128))`.
///
/// # Errors
/// `weight` is not a matrix; an error of candle.
pub fn quantize_weight(weight: &Tensor) -> Result<(Tensor, Tensor)> {
    quantized(weight, BLOCK)
}

/// A GEMM with block scales.
#[derive(Debug)]
pub(crate) struct Scaled {
    /// Scales of A, `(M, ceil(K / 128))`, and of B, `(ceil(N / 128), ceil(K / 128))`.
    pub(crate) scales: [Tensor; 2],
    pub(crate) activation: Activation,
}

impl Scaled {
    fn new([a, b]: [&Tensor; 2], activation: Activation) -> Result<Self> {
        for (name, scales) in [("a", a), ("b", b)] {
            if scales.dtype() != DType::F32 || scales.rank() != 2 {
                bail!(
                    "scales of {name} are {:?} of {:?}, f32 in two dimensions was needed",
                    scales.dims(),
                    scales.dtype()
                );
            }
        }
        Ok(Self { scales: [a.contiguous()?, b.contiguous()?], activation })
    }

    /// The scales in the kernels' layout: A's are contiguous along M, and leading dimensions are multiples of
    /// 16 bytes.
    #[cfg(feature = "cuda")]
    pub(crate) fn packed(&self) -> Result<[Tensor; 2]> {
        let padded = |scales: Tensor| {
            let last = scales.dim(1)?;
            scales.pad_with_zeros(1, 0, last.next_multiple_of(4) - last)?.contiguous()
        };
        Ok([padded(self.scales[0].t()?)?, padded(self.scales[1].clone())?])
    }

    fn extents(&self, a: &Layout, b: &Layout) -> Result<(Extents, Shape)> {
        let (&[m, k], &[n, inner]) = (a.dims(), b.dims()) else {
            bail!("a has shape {:?} and b {:?}, (M, K) and (N, K) were needed", a.dims(), b.dims());
        };
        let blocks = k.div_ceil(BLOCK);
        let needed = [[m, blocks], [n.div_ceil(BLOCK), blocks]];
        if k != inner || k % 16 != 0 {
            bail!(
                "a has shape {:?} and b {:?}: the same K, a multiple of 16, was needed",
                a.dims(),
                b.dims()
            );
        }
        for ((name, scales), needed) in ["a", "b"].into_iter().zip(&self.scales).zip(needed) {
            if scales.dims() != needed {
                bail!("scales of {name} have shape {:?}, {needed:?} was needed", scales.dims());
            }
        }
        Ok((Extents { batch: None, m, n, k }, (m, n).into()))
    }
}

impl Operation<2> for Scaled {
    const NAME: &'static str = "falchion-scaled-matmul";

    fn run(&self, [a, b]: [Part<'_>; 2]) -> Result<(Owned, Shape)> {
        let (extents, shape) = self.extents(a.1, b.1)?;
        Ok((in_place!(a.0, scaled(self, &extents, [a, b], None))?, shape))
    }
}

/// With a bias.
impl Operation<3> for Scaled {
    const NAME: &'static str = "falchion-scaled-linear";

    fn run(&self, [a, b, bias]: [Part<'_>; 3]) -> Result<(Owned, Shape)> {
        let (extents, shape) = self.extents(a.1, b.1)?;
        Ok((in_place!(a.0, scaled(self, &extents, [a, b], Some(bias)))?, shape))
    }
}

/// Computes `A * B^T` in `bf16` from codes `(M, K)` and `(N, K)` in `F8E4M3`. Each argument is a pair of
/// codes and scales, as [`quantize_rows`] (A) and [`quantize_weight`] (B) return them. Accumulators are
/// `f32`; each 128 of K are scaled separately. It has no gradient.
///
/// # Errors
/// A shape or a type that does not fit; a K that is not a multiple of 16; an error of candle.
pub fn scaled_matmul(a: (&Tensor, &Tensor), b: (&Tensor, &Tensor)) -> Result<Tensor> {
    let op = Of(Scaled::new([a.1, b.1], Activation::Identity)?);
    a.0.contiguous()?.apply_op2_no_bwd(&b.0.contiguous()?, &op)
}

/// A linear layer whose weight is `F8E4M3` with one scale per 128 x 128. The forward pass rounds its inputs,
/// in `bf16`, to `F8E4M3` with one scale per 1 x 128; outputs are `bf16`. Use it for inference: it has no
/// gradient.
#[derive(Clone, Debug)]
pub struct ScaledLinear {
    weight: Tensor,
    scales: Tensor,
    bias: Option<Tensor>,
    activation: Activation,
}

impl ScaledLinear {
    /// Makes a layer of codes `(out, in)` in `F8E4M3`, their `f32` scales `(ceil(out / 128), ceil(in /
    /// 128))`, and a bias `(out)` in `bf16`.
    pub fn new(weight: Tensor, scales: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, scales, bias, activation: Activation::Identity }
    }

    /// Reads a layer from a file of DeepSeek or Qwen: `weight` `(out, in)` in `F8E4M3`, `weight_scale_inv` with a scale per 128 x 128, and
    /// `bias` if the file has it.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit; an error of candle.
    pub fn load(inputs: usize, outputs: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let get = |shape: [usize; 2], name: &str, dtype| {
            vb.get_with_hints_dtype(&shape[..], name, candle_nn::Init::default(), dtype)
        };
        let weight = get([outputs, inputs], "weight", DType::F8E4M3)?;
        let blocks = [outputs, inputs].map(|extent| extent.div_ceil(BLOCK));
        let scales = get(blocks, "weight_scale_inv", DType::F32)?;
        let bias = vb.contains_tensor("bias");
        let bias =
            bias.then(|| vb.get_with_hints_dtype(outputs, "bias", candle_nn::Init::default(), DType::BF16));
        Ok(Self::new(weight, scales, bias.transpose()?))
    }

    /// Makes a layer of a weight in another type, which it rounds with [`quantize_weight`].
    ///
    /// # Errors
    /// The weight is not a matrix; an error of candle.
    pub fn quantized(weight: &Tensor, bias: Option<Tensor>) -> Result<Self> {
        let (weight, scales) = quantize_weight(weight)?;
        Ok(Self::new(weight, scales, bias))
    }

    /// Sets the activation. Without a bias it is a separate operation of candle.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }
}

impl Module for ScaledLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, k) = self.weight.dims2()?;
        let Some((&last, lead)) = x.dims().split_last().filter(|(last, _)| **last == k) else {
            bail!("x has shape {:?}, a layer of {k} inputs takes (.., {k})", x.dims());
        };
        let rows: usize = lead.iter().product();
        let (codes, scales) = quantize_rows(&x.reshape((rows, last))?)?;
        let op = Of(Scaled::new([&scales, &self.scales], self.activation)?);
        let weight = self.weight.contiguous()?;
        let y = match &self.bias {
            Some(bias) => codes.apply_op3_no_bwd(&weight, &bias.contiguous()?, &op)?,
            None => activated(self.activation, codes.apply_op2_no_bwd(&weight, &op)?)?,
        };
        y.reshape([lead, &[n]].concat())
    }
}
