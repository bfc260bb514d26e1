//! The operations on a CPU, by plain loops. Results differ from a kernel's only by the order of summation.

use candle_core::cpu_backend::CpuStorage;
use candle_core::{Result, WithDType, bail};
use float8::F8E4M3;
use half::bf16;

use crate::Activation;
use crate::experts::Experts;
use crate::plain::Part;
use crate::product::{Extents, Product};
use crate::scaled::{BLOCK, Scaled};

/// The elements of a contiguous tensor.
fn elements<'a, T: WithDType>((storage, layout): Part<'a>) -> Result<&'a [T]> {
    let all = storage.host()?.as_slice::<T>()?;
    let start = layout.start_offset();
    Ok(&all[start..start + layout.shape().elem_count()])
}

/// The index of the element of a matrix at a row and a column.
fn at(transposed: bool, [rows, columns]: [usize; 2], [row, column]: [usize; 2]) -> usize {
    if transposed { column * rows + row } else { row * columns + column }
}

fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}

/// One GEMM.
fn multiply<T: WithDType>(
    product: &Product,
    &Extents { m, n, k, .. }: &Extents,
    [a, b]: [&[T]; 2],
    bias: Option<&[T]>,
    d: &mut Vec<T>,
) {
    let [of_a, of_b] = product.transposed;
    for i in 0..m {
        for j in 0..n {
            let sum: f32 = (0..k)
                .map(|l| {
                    let [x, y] = [a[at(of_a, [m, k], [i, l])], b[at(of_b, [k, n], [l, j])]];
                    (x.to_f64() * y.to_f64()) as f32
                })
                .sum();
            let sum = match bias {
                Some(bias) => activate(product.activation, sum + bias[j].to_f64() as f32),
                None => sum,
            };
            d.push(T::from_f64(sum.into()));
        }
    }
}

/// Calls a generic function with the elements' type.
macro_rules! of_type {
    ($storage:expr, $T:ident => $body:expr) => {
        match $storage.host()? {
            CpuStorage::BF16(_) => {
                type $T = half::bf16;
                $body
            }
            CpuStorage::F16(_) => {
                type $T = half::f16;
                $body
            }
            CpuStorage::F32(_) => {
                type $T = f32;
                $body
            }
            other => bail!(
                "tensors are {:?}, bf16, f16 or f32 was needed on a CPU",
                candle_core::backend::BackendStorage::dtype(other)
            ),
        }
    };
}

pub(crate) fn product(
    product: &Product,
    extents: &Extents,
    [a, b]: [Part<'_>; 2],
    bias: Option<Part<'_>>,
) -> Result<CpuStorage> {
    of_type!(a.0, T => {
        let (a, b) = (elements::<T>(a)?, elements::<T>(b)?);
        let bias = bias.map(elements::<T>).transpose()?;
        if let Some(bias) = bias && bias.len() != extents.n {
            bail!("the bias has {} elements, {} were needed", bias.len(), extents.n);
        }
        let Extents { batch, m, n, k } = *extents;
        let mut d: Vec<T> = Vec::with_capacity(extents.elements()[2]);
        for i in 0..batch.unwrap_or(1) {
            let of = [&a[i * m * k..(i + 1) * m * k], &b[i * k * n..(i + 1) * k * n]];
            multiply(product, extents, of, bias, &mut d);
        }
        Ok(T::to_cpu_storage_owned(d))
    })
}

pub(crate) fn experts(
    experts: &Experts,
    count: usize,
    &Extents { m, n, k, .. }: &Extents,
    [x, weights, offsets]: [Part<'_>; 3],
) -> Result<CpuStorage> {
    let offsets = elements::<u32>(offsets)?;
    let product = Product { transposed: [false, experts.transposed], activation: Activation::Identity };
    of_type!(x.0, T => {
        let (x, weights) = (elements::<T>(x)?, elements::<T>(weights)?);
        let mut all = vec![T::from_f64(0.0); m * n];
        let mut reached = 0;
        for i in 0..count {
            let begin = (offsets[i] as usize).clamp(reached, m);
            let end = (offsets[i + 1] as usize).clamp(begin, m);
            reached = end;
            let extents = Extents { batch: None, m: end - begin, n, k };
            let mut d = Vec::new();
            multiply(&product, &extents, [&x[begin * k..end * k], &weights[i * n * k..(i + 1) * n * k]], None, &mut d);
            all[begin * n..end * n].copy_from_slice(&d);
        }
        Ok(T::to_cpu_storage_owned(all))
    })
}

/// Rounds `f32` to `F8E4M3`.
pub(crate) fn rounded(x: Part<'_>) -> Result<CpuStorage> {
    let codes = elements::<f32>(x)?.iter().map(|&value| F8E4M3::from_f32(value));
    Ok(CpuStorage::F8E4M3(codes.collect()))
}

/// A GEMM with block scales: each block of 128 along K is summed separately and multiplied by its scales.
pub(crate) fn scaled(
    scaled: &Scaled,
    &Extents { m, n, k, .. }: &Extents,
    [a, b]: [Part<'_>; 2],
    bias: Option<Part<'_>>,
) -> Result<CpuStorage> {
    let (a, b) = (elements::<F8E4M3>(a)?, elements::<F8E4M3>(b)?);
    let bias = bias.map(elements::<bf16>).transpose()?;
    if let Some(bias) = bias
        && bias.len() != n
    {
        bail!("the bias has {} elements, {n} were needed", bias.len());
    }
    let [of_a, of_b] = [scaled.scales[0].to_vec2::<f32>()?, scaled.scales[1].to_vec2::<f32>()?];
    let mut d = Vec::with_capacity(m * n);
    for i in 0..m {
        for j in 0..n {
            let blocks = (0..k.div_ceil(BLOCK)).map(|block| {
                let along = block * BLOCK..((block + 1) * BLOCK).min(k);
                let products = along.map(|l| a[i * k + l].to_f32() * b[j * k + l].to_f32());
                products.sum::<f32>() * of_a[i][block] * of_b[j / BLOCK][block]
            });
            let sum: f32 = blocks.sum();
            let sum = bias.map_or(sum, |bias| activate(scaled.activation, sum + bias[j].to_f32()));
            d.push(bf16::from_f32(sum));
        }
    }
    Ok(CpuStorage::BF16(d))
}
