//! 8-bit floats in blocks with scales: 1 x 128 of activations, 128 x 128 of weights.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Layout, Result, Shape, Tensor, bail};
use candle_nn::Module;

use crate::product::Extents;
use crate::{Activation, cpu};

/// How much of K, and of a weight's rows, share a scale.
pub(crate) const BLOCK: usize = 128;

/// The largest number of the format.
const LARGEST: f64 = 448.0;

/// From `f32` to the nearest code. candle has the kernel for it, and asks for it by another name.
struct Rounded;

impl CustomOp1 for Rounded {
    fn name(&self) -> &'static str {
        "falchion-e4m3"
    }

    fn cpu_fwd(&self, x: &CpuStorage, of_x: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((cpu::rounded((x, of_x))?, of_x.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, of_x: &Layout) -> Result<(CudaStorage, Shape)> {
        Ok((crate::cuda::rounded((x, of_x))?, of_x.shape().clone()))
    }
}

/// Codes `(rows, K)` in `F8E4M3`, and their scales in `f32`, of blocks of so many rows and 128 of K.
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
    let codes = codes.narrow(0, 0, m)?.narrow(1, 0, k)?.contiguous()?.apply_op1_no_bwd(&Rounded)?;
    Ok((codes, scales.reshape((of_m, of_k))?))
}

/// Rounds `(rows, K)` to `F8E4M3`, with a scale for each 128 of a row, in `f32`, so that the largest of them becomes 448: codes as `x`,
/// scales `(rows, ceil(K / 128))`.
///
/// # Errors
/// It is no matrix; candle's own.
pub fn quantize_rows(x: &Tensor) -> Result<(Tensor, Tensor)> {
    quantized(x, 1)
}

/// Rounds a weight `(N, K)` to `F8E4M3`, with a scale for each 128 x 128: scales `(ceil(N / 128), ceil(K / 128))`.
///
/// # Errors
/// It is no matrix; candle's own.
pub fn quantize_weight(weight: &Tensor) -> Result<(Tensor, Tensor)> {
    quantized(weight, BLOCK)
}

/// A product with the scales of its blocks.
#[derive(Debug)]
pub(crate) struct Scaled {
    /// `(M, K / 128)` and `(N / 128, K / 128)`.
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

    /// As the kernels read them: those of rows lie along M, and leading dimensions are multiples of 16 bytes.
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

impl CustomOp2 for Scaled {
    fn name(&self) -> &'static str {
        "falchion-scaled-matmul"
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        of_a: &Layout,
        b: &CpuStorage,
        of_b: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (extents, shape) = self.extents(of_a, of_b)?;
        Ok((cpu::scaled(self, &extents, [(a, of_a), (b, of_b)], None)?, shape))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        a: &CudaStorage,
        of_a: &Layout,
        b: &CudaStorage,
        of_b: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (extents, shape) = self.extents(of_a, of_b)?;
        Ok((crate::cuda::scaled(self, &extents, [(a, of_a), (b, of_b)], None)?, shape))
    }
}

/// With a bias.
impl CustomOp3 for Scaled {
    fn name(&self) -> &'static str {
        "falchion-scaled-linear"
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        of_a: &Layout,
        b: &CpuStorage,
        of_b: &Layout,
        bias: &CpuStorage,
        of_bias: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (extents, shape) = self.extents(of_a, of_b)?;
        Ok((cpu::scaled(self, &extents, [(a, of_a), (b, of_b)], Some((bias, of_bias)))?, shape))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        a: &CudaStorage,
        of_a: &Layout,
        b: &CudaStorage,
        of_b: &Layout,
        bias: &CudaStorage,
        of_bias: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (extents, shape) = self.extents(of_a, of_b)?;
        Ok((crate::cuda::scaled(self, &extents, [(a, of_a), (b, of_b)], Some((bias, of_bias)))?, shape))
    }
}

/// `A * B^T` in `bf16`, of codes `(M, K)` and `(N, K)` in `F8E4M3` and their scales as of [`quantize_rows`] and [`quantize_weight`]. Sums are `f32`, and
/// those of each 128 of K are scaled by themselves. It has no gradient.
///
/// # Errors
/// Shapes or types that do not fit; candle's own.
pub fn scaled_matmul(a: (&Tensor, &Tensor), b: (&Tensor, &Tensor)) -> Result<Tensor> {
    let op = Scaled::new([a.1, b.1], Activation::Identity)?;
    a.0.contiguous()?.apply_op2_no_bwd(&b.0.contiguous()?, &op)
}

/// A linear layer whose weight is `F8E4M3` with a scale for each 128 x 128. Inputs, in `bf16`, are rounded to blocks of 1 x 128 on the way; outputs are `bf16`. For
/// inference: it has no gradient.
#[derive(Clone, Debug)]
pub struct ScaledLinear {
    weight: Tensor,
    scales: Tensor,
    bias: Option<Tensor>,
    activation: Activation,
}

impl ScaledLinear {
    /// Of codes `(out, in)`, their scales `(ceil(out / 128), ceil(in / 128))`, and a bias `(out)` in `bf16`.
    pub fn new(weight: Tensor, scales: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, scales, bias, activation: Activation::Identity }
    }

    /// Of a weight in another type, which is rounded.
    ///
    /// # Errors
    /// The weight is no matrix; candle's own.
    pub fn quantized(weight: &Tensor, bias: Option<Tensor>) -> Result<Self> {
        let (weight, scales) = quantize_weight(weight)?;
        Ok(Self::new(weight, scales, bias))
    }

    /// With an activation, which without a bias is an operation of candle's own.
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
        let op = Scaled::new([&scales, &self.scales], self.activation)?;
        let weight = self.weight.contiguous()?;
        let y = match &self.bias {
            Some(bias) => codes.apply_op3_no_bwd(&weight, &bias.contiguous()?, &op)?,
            None => self.activation.of(codes.apply_op2_no_bwd(&weight, &op)?)?,
        };
        y.reshape([lead, &[n]].concat())
    }
}
