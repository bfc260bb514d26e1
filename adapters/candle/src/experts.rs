//! Mixtures of experts: groups of rows, each with a weight of its own.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor, bail};

use crate::cpu;
use crate::product::Extents;

/// Groups of rows of X times their weights' transposes.
struct Experts;

/// How many experts there are, and of what extents: `m` is the rows of all of them.
pub(crate) fn extents(x: &Layout, weights: &Layout, offsets: &Layout) -> Result<(usize, Extents)> {
    match (x.dims(), weights.dims(), offsets.dims()) {
        (&[m, k], &[count, n, inner], &[ends]) if k == inner && ends == count + 1 && count > 0 => {
            Ok((count, Extents { batch: None, m, n, k }))
        }
        (x, weights, offsets) => bail!(
            "x has shape {x:?}, weights {weights:?} and offsets {offsets:?}: (rows, in), (experts, out, in) and (experts + 1) \
             were needed"
        ),
    }
}

impl CustomOp3 for Experts {
    fn name(&self) -> &'static str {
        "falchion-experts"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        of_x: &Layout,
        weights: &CpuStorage,
        of_weights: &Layout,
        offsets: &CpuStorage,
        of_offsets: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (count, extents) = extents(of_x, of_weights, of_offsets)?;
        let shape = (extents.m, extents.n).into();
        let all = [(x, of_x), (weights, of_weights), (offsets, of_offsets)];
        Ok((cpu::experts(count, &extents, all)?, shape))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        of_x: &Layout,
        weights: &CudaStorage,
        of_weights: &Layout,
        offsets: &CudaStorage,
        of_offsets: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (count, extents) = extents(of_x, of_weights, of_offsets)?;
        let shape = (extents.m, extents.n).into();
        let all = [(x, of_x), (weights, of_weights), (offsets, of_offsets)];
        Ok((crate::cuda::experts(count, &extents, all)?, shape))
    }
}

/// Rows of `x` `(rows, in)`, sorted by expert, times the experts' weights `(experts, out, in)`: `(rows, out)`, in one launch. Expert `i` has
/// the rows from `offsets[i]` to `offsets[i + 1]`, of `experts + 1` numbers (`u32`) that stay on the device. Rows in no group are not
/// written: let the first offset be 0 and the last the number of rows.
///
/// It has no gradient yet: candle's error says so.
///
/// # Errors
/// Shapes or types that do not fit; candle's own.
pub fn experts(x: &Tensor, weights: &Tensor, offsets: &Tensor) -> Result<Tensor> {
    if offsets.dtype() != DType::U32 {
        bail!("offsets are {:?}, u32 was needed", offsets.dtype());
    }
    x.contiguous()?.apply_op3(&weights.contiguous()?, &offsets.contiguous()?, Experts)
}
