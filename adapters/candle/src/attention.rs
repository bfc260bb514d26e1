//! Attention of candle's tensors, forward.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp3, DType, Error, Layout, Result, Shape, Tensor, WithDType, bail};
use falchion::attention::{AttentionCall, AttentionProblem, AttentionRequest, HeadsRef, Mask};
use falchion::collective::Format;
use falchion::kernel::Machine;
use falchion_core::{Attend, Run};

/// What [`attention`] computes in addition to `softmax(scale * q * kᵀ) * v`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// A query sees the keys up to its own, where the last query stands at the last key.
    pub causal: bool,
    /// The factor of the scores; `None` is `1 / sqrt(d)`.
    pub scale: Option<f32>,
}

/// `softmax(scale * q * kᵀ) * v` per head, without the scores in memory. `q` has shape `(batch, heads, length, d)`, `k` and `v`
/// `(batch, groups, keys, d)`, where `heads` is a multiple of `groups`: consecutive heads of `q` share one of `k` and `v`.
///
/// Tensors are `bf16` or `f16`, with heads of 64, 96, 128, 192 or 256 elements. Views of a cache, and heads that follow the
/// length, are read as they lie if each head is contiguous. On a CPU the kernel runs in falchion's emulator; `f32`, on a CPU
/// alone, is computed by candle's own operations. There is no gradient for 16-bit tensors.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use falchion_candle::{Attention, attention};
///
/// let q = Tensor::randn(0f32, 1., (1, 4, 5, 64), &Device::Cpu)?.to_dtype(DType::F16)?;
/// let cache = Tensor::randn(0f32, 1., (1, 2, 32, 64), &Device::Cpu)?.to_dtype(DType::F16)?;
/// let seen = cache.narrow(2, 0, 9)?;
/// let y = attention(&q, &seen, &seen, Attention { causal: true, ..Attention::default() })?;
/// assert_eq!(y.dims(), [1, 4, 5, 64]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// A shape or a type that does not fit; an error of candle or of the driver.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, what: Attention) -> Result<Tensor> {
    if q.dtype() == DType::F32 && q.device().is_cpu() {
        return plain(q, k, v, what);
    }
    let [q, k, v] = [q, k, v].map(readable);
    q?.apply_op3_no_bwd(&k?, &v?, &what)
}

/// The tensor as a kernel reads it: as it lies, or a copy.
fn readable(tensor: &Tensor) -> Result<Tensor> {
    let layout = tensor.layout();
    let Some((&step, strides)) = layout.stride().split_last() else { return tensor.contiguous() };
    // Addresses and strides are multiples of 16 bytes.
    let multiples = strides.iter().chain([&layout.start_offset()]).all(|at| at % 8 == 0);
    let alone = |(&extent, &stride): (&usize, &usize)| extent < 2 || stride > 0;
    if step == 1 && multiples && tensor.dims().iter().zip(layout.stride()).all(alone) {
        return Ok(tensor.clone());
    }
    // `contiguous` keeps a packed tensor at an odd place of its storage.
    if tensor.is_contiguous() { tensor.copy() } else { tensor.contiguous() }
}

/// By candle's operations.
fn plain(q: &Tensor, k: &Tensor, v: &Tensor, Attention { causal, scale }: Attention) -> Result<Tensor> {
    let (_, heads, length, d) = q.dims4()?;
    let (batch, groups, keys, _) = k.dims4()?;
    let shared = |x: &Tensor| -> Result<Tensor> {
        let (last, share) = (x.dim(3)?, heads / groups.max(1));
        let x = x.unsqueeze(2)?.broadcast_as((batch, groups, share, keys, last))?;
        x.reshape((batch, heads, keys, last))?.contiguous()
    };
    let scale = scale.map_or_else(|| (d as f64).sqrt().recip(), f64::from);
    let mut scores = (q.contiguous()?.matmul(&shared(k)?.t()?.contiguous()?)? * scale)?;
    if causal {
        let seen = |row: usize, key: usize| key + length <= row + keys;
        let cell = |at: usize| if seen(at / keys, at % keys) { 0.0 } else { f32::NEG_INFINITY };
        let mask: Vec<f32> = (0..length * keys).map(cell).collect();
        scores = scores.broadcast_add(&Tensor::from_vec(mask, (length, keys), q.device())?)?;
    }
    candle_nn::ops::softmax_last_dim(&scores)?.matmul(&shared(v)?)
}

/// A call without addresses, and the shape of the result.
pub(crate) struct Asked {
    pub(crate) request: AttentionRequest,
    pub(crate) call: AttentionCall,
    pub(crate) shape: [usize; 4],
}

impl Attention {
    pub(crate) fn asked(&self, format: Format, [q, k, v]: [&Layout; 3]) -> Result<Asked> {
        let (&[batch, heads, length, d], &[of_k, groups, keys, d_k], &[of_v, groups_v, keys_v, dv]) =
            (q.dims(), k.dims(), v.dims())
        else {
            bail!(
                "q has shape {:?}, k {:?} and v {:?}: (batch, heads, length, d) of each was needed",
                q.dims(),
                k.dims(),
                v.dims()
            );
        };
        if [of_k, of_v] != [batch; 2] || groups_v != groups || keys_v != keys || d_k != d {
            bail!(
                "q has shape {:?}, k {:?} and v {:?}: the same batch and d, and the same heads and length of k and v, were needed",
                q.dims(),
                k.dims(),
                v.dims()
            );
        }
        let number = |extent: usize| u32::try_from(extent).map_err(Error::wrap);
        let problem = AttentionProblem::new(
            number(batch)?,
            number(heads)?,
            [number(length)?, number(keys)?],
            number(d)?,
        );
        let scale = self.scale.unwrap_or(problem.scale);
        let problem = AttentionProblem { heads: [number(heads)?, number(groups)?], scale, ..problem };
        let mask = if self.causal { Mask::Causal } else { Mask::Full };
        let head = [number(d)?, number(dv)?];
        let request = AttentionRequest {
            format,
            output: format,
            head,
            mask,
            ..AttentionRequest::new(falchion_core::rounded(problem), head[0])
        };
        let of = |layout: &Layout| {
            let stride = |i: usize| {
                // After the only one nothing follows: any legal distance.
                let alone = layout.dims()[i] < 2;
                if alone { layout.dims()[3].next_multiple_of(8) as u64 } else { layout.stride()[i] as u64 }
            };
            HeadsRef { address: 0, row: stride(2), head: stride(1), batch: stride(0) }
        };
        let o = HeadsRef::heads_first(0, [problem.heads[0], problem.queries, head[1]]);
        let call = AttentionCall::new(problem, [of(q), of(k), of(v)], o);
        Ok(Asked { request, call, shape: [batch, heads, length, dv] })
    }
}

/// The kernel for a request on a card (`None` is the emulator), chosen at its first use.
pub(crate) fn kernel(
    card: Option<usize>,
    request: &AttentionRequest,
    machine: impl FnOnce() -> Result<Machine>,
) -> Result<Arc<Attend>> {
    type Known = HashMap<(Option<usize>, String), Arc<Attend>>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (card, <falchion::attention::Attention as falchion::kernel::Family>::problem(request));
    if let Some(known) = lock().get_or_insert_default().get(&key) {
        return Ok(Arc::clone(known));
    }
    let made = Arc::new(Attend::new(request, None, true, &machine()?).map_err(Error::wrap)?);
    Ok(Arc::clone(lock().get_or_insert_default().entry(key).or_insert(made)))
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "falchion-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        of_q: &Layout,
        k: &CpuStorage,
        of_k: &Layout,
        v: &CpuStorage,
        of_v: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let layouts = [of_q, of_k, of_v];
        match (q, k, v) {
            (CpuStorage::BF16(q), CpuStorage::BF16(k), CpuStorage::BF16(v)) => {
                emulated(self, Format::Bf16, [q, k, v], layouts)
            }
            (CpuStorage::F16(q), CpuStorage::F16(k), CpuStorage::F16(v)) => {
                emulated(self, Format::F16, [q, k, v], layouts)
            }
            _ => bail!("q, k and v are of other types, bf16 or f16, of all three, was needed"),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        q: &CudaStorage,
        of_q: &Layout,
        k: &CudaStorage,
        of_k: &Layout,
        v: &CudaStorage,
        of_v: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        crate::cuda::attention(self, [(q, of_q), (k, of_k), (v, of_v)])
    }
}

/// In the emulator.
fn emulated<T: WithDType>(
    what: &Attention,
    format: Format,
    [q, k, v]: [&[T]; 3],
    layouts: [&Layout; 3],
) -> Result<(CpuStorage, Shape)> {
    let Asked { request, mut call, shape } = what.asked(format, layouts)?;
    let kernel = kernel(None, &request, || Ok(Machine::h200()))?;
    let mut o = vec![T::from_f64(0.0); shape.iter().product()];
    let at = |elements: &[T], layout: &Layout| {
        elements.get(layout.start_offset()..).unwrap_or_default().as_ptr().expose_provenance() as u64
    };
    call.q.address = at(q, layouts[0]);
    call.k.address = at(k, layouts[1]);
    call.v.address = at(v, layouts[2]);
    call.o.address = o.as_mut_ptr().expose_provenance() as u64;
    #[allow(unsafe_code, reason = "the emulator reads and writes the tensors' memory")]
    // SAFETY: candle's layouts stay inside of their storage, and O has the elements of its shape.
    let outcome = unsafe { kernel.emulate(&call, Run::default()) };
    outcome.map_err(Error::wrap)?;
    Ok((T::to_cpu_storage_owned(o), shape.as_slice().into()))
}
