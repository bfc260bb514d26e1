//! Which expert sees which token: rows sorted for [`experts`](crate::experts), and their results added.

use candle_core::{D, DType, Device, Result, Tensor, bail};

/// Tokens sorted by their experts.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use falchion_candle::{Routing, experts};
///
/// let x = Tensor::randn(0f32, 1., (6, 32), &Device::Cpu)?.to_dtype(DType::BF16)?;
/// let [up, down] = [(4, 64, 32), (4, 32, 64)]
///     .map(|shape| Tensor::randn(0f32, 0.1, shape, &Device::Cpu).and_then(|weights| weights.to_dtype(DType::BF16)));
/// let logits = Tensor::randn(0f32, 1., (6, 4), &Device::Cpu)?;
///
/// let routing = Routing::top_k(&logits, 2, true)?;
/// let rows = routing.rows(&x)?; // (12, 32)
/// let hidden = experts(&rows, &up?, routing.offsets())?.silu()?;
/// let y = routing.sum(&experts(&hidden, &down?, routing.offsets())?)?;
/// assert_eq!(y.dims(), [6, 32]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Routing {
    /// `experts + 1` numbers: where each expert's rows begin.
    offsets: Tensor,
    /// The token of each row.
    tokens: Tensor,
    /// The row of each token's experts, `(tokens, k)`.
    places: Tensor,
    /// The weight of each token's experts, `(tokens, k)`.
    weights: Tensor,
}

/// Most numbers that candle sorts on a card.
const SORTED: usize = 8192;

impl Routing {
    /// The `k` experts with the largest logits of each token, `(tokens, experts)`, weighted by their softmax over all experts; with
    /// `normalized` their weights are divided by their sum.
    ///
    /// # Errors
    /// `k` is not from 1 to the number of experts; an error of candle.
    pub fn top_k(logits: &Tensor, k: usize, normalized: bool) -> Result<Self> {
        let (_, count) = logits.dims2()?;
        if k == 0 || k > count {
            bail!("k is {k}, 1 to {count}, the number of experts, was needed");
        }
        let all = candle_nn::ops::softmax(&logits.to_dtype(DType::F32)?, D::Minus1)?;
        let ids = all.detach().arg_sort_last_dim(false)?.narrow(1, 0, k)?.contiguous()?;
        let weights = all.gather(&ids, 1)?;
        let weights = if normalized { weights.broadcast_div(&weights.sum_keepdim(1)?)? } else { weights };
        Self::new(&ids, weights, count)
    }

    /// Chosen experts of each token, `(tokens, k)` in `u32`, and their weights of the same shape. `count` is the number of experts.
    ///
    /// Up to 8192 choices are sorted on the device; more are copied to the host, which waits.
    ///
    /// # Errors
    /// Shapes or types that do not fit; an error of candle.
    pub fn new(ids: &Tensor, weights: Tensor, count: usize) -> Result<Self> {
        let (tokens, k) = ids.dims2()?;
        if ids.dtype() != DType::U32 || weights.dims() != [tokens, k] {
            bail!(
                "ids have shape {:?} of {:?} and weights {:?}: the same shape, and u32, were needed",
                ids.dims(),
                ids.dtype(),
                weights.dims()
            );
        }
        let (device, rows) = (ids.device(), tokens * k);
        let flat = ids.flatten_all()?;
        let here = if rows > SORTED { flat.to_device(&Device::Cpu)? } else { flat };
        let order = here.arg_sort_last_dim(true)?;
        let places = order.arg_sort_last_dim(true)?.reshape((tokens, k))?;
        // Offset `i` is the number of choices of experts before `i`.
        let sorted = here.index_select(&order, 0)?.unsqueeze(0)?;
        let experts = Tensor::arange(0u32, count as u32 + 1, here.device())?.unsqueeze(1)?;
        let before = sorted.broadcast_lt(&experts)?.to_dtype(DType::F32)?.sum(1)?.to_dtype(DType::U32)?;
        let by = Tensor::new(k as u32, here.device())?;
        let tokens = order.broadcast_div(&by)?;
        let [offsets, tokens, places] = [before, tokens, places].map(|x| x.to_device(device));
        Ok(Self { offsets: offsets?, tokens: tokens?, places: places?, weights })
    }

    /// Where each expert's rows begin, for [`experts`](crate::experts).
    pub fn offsets(&self) -> &Tensor {
        &self.offsets
    }

    /// The rows of `x` `(tokens, in)`, sorted by expert: `(tokens * k, in)`.
    ///
    /// # Errors
    /// An error of candle.
    pub fn rows(&self, x: &Tensor) -> Result<Tensor> {
        x.index_select(&self.tokens, 0)
    }

    /// The weighted sum of the experts' results `(tokens * k, out)` of each token: `(tokens, out)`, in their type.
    ///
    /// # Errors
    /// An error of candle.
    pub fn sum(&self, y: &Tensor) -> Result<Tensor> {
        let (tokens, k) = self.places.dims2()?;
        let own = y.index_select(&self.places.flatten_all()?, 0)?.reshape((tokens, k, ()))?;
        let weights = self.weights.to_dtype(DType::F32)?.unsqueeze(2)?;
        own.to_dtype(DType::F32)?.broadcast_mul(&weights)?.sum(1)?.to_dtype(y.dtype())
    }
}
