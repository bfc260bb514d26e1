//! Mixtures of experts: an MoE grouped GEMM of groups of rows, each with its own weight.

use candle_core::{DType, Layout, Result, Shape, Tensor, bail};

use crate::operation::{Of, Operation};
use crate::plain::{Owned, Part, in_place};
use crate::product::{Extents, Product};

/// Groups of rows of X, each multiplied by its own weight or the weight's transpose.
pub(crate) struct Experts {
    /// Whether weights are `(N, K)`, as in linear layers; `(K, N)` otherwise.
    pub(crate) transposed: bool,
}

impl Experts {
    /// The number of experts, and the extents of the GEMM: `m` is the total number of rows.
    fn extents(&self, x: &Layout, weights: &Layout, offsets: &Layout) -> Result<(usize, Extents)> {
        if let (&[m, k], &[count, rows, columns], &[ends]) = (x.dims(), weights.dims(), offsets.dims()) {
            let [n, inner] = if self.transposed { [rows, columns] } else { [columns, rows] };
            if k == inner && ends == count + 1 && count > 0 {
                return Ok((count, Extents { batch: None, m, n, k }));
            }
        }
        bail!(
            "x has shape {:?}, weights {:?} and offsets {:?}: (rows, in), (experts, out, in) and (experts + 1) were needed",
            x.dims(),
            weights.dims(),
            offsets.dims()
        )
    }
}

impl Operation<3> for Experts {
    const NAME: &'static str = "falchion-experts";

    fn run(&self, all: [Part<'_>; 3]) -> Result<(Owned, Shape)> {
        let [x, weights, offsets] = all;
        let (count, extents) = self.extents(x.1, weights.1, offsets.1)?;
        Ok((in_place!(x.0, experts(self, count, &extents, all))?, (extents.m, extents.n).into()))
    }

    fn gradients(
        &self,
        [x, weights, offsets]: [&Tensor; 3],
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<[Option<Tensor>; 3]> {
        let grad = grad.contiguous()?;
        let of_x = grad.apply_op3(weights, offsets, Of(Self { transposed: !self.transposed }))?;
        // One GEMM per expert: the host must know the length of its K.
        let ends = offsets.to_vec1::<u32>()?;
        let (_, rows, columns) = weights.dims3()?;
        let of_weights = ends.windows(2).map(|ends| {
            let [begin, count] = [ends[0] as usize, ends[1].saturating_sub(ends[0]) as usize];
            if count == 0 {
                return Tensor::zeros((rows, columns), weights.dtype(), weights.device());
            }
            let [x, grad] = [x.narrow(0, begin, count)?, grad.narrow(0, begin, count)?];
            let (first, second) = if self.transposed { (&grad, &x) } else { (&x, &grad) };
            first.apply_op2(second, Of(Product::plain([true, false])))
        });
        let of_weights = Tensor::stack(&of_weights.collect::<Result<Vec<_>>>()?, 0)?;
        Ok([Some(of_x), Some(of_weights), None])
    }
}

/// Multiplies rows of `x` `(rows, in)`, sorted by expert, by the experts' weights `(experts, out, in)`, in
/// one launch. The result has shape `(rows, out)`. Expert `i` has the rows from `offsets[i]` to `offsets[i +
/// 1]`. The offsets are `experts + 1` numbers (`u32`) that stay on the device. Result rows that are in no
/// group are zero.
///
/// It has gradients. The gradient of the weights takes one launch per expert, and copies the offsets to the
/// host.
///
/// # Errors
/// A shape or a type that does not fit; an error of candle.
pub fn experts(x: &Tensor, weights: &Tensor, offsets: &Tensor) -> Result<Tensor> {
    if offsets.dtype() != DType::U32 {
        bail!("offsets are {:?}, u32 was needed", offsets.dtype());
    }
    x.contiguous()?.apply_op3(
        &weights.contiguous()?,
        &offsets.contiguous()?,
        Of(Experts { transposed: true }),
    )
}
