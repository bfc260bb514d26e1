//! GEMMs of tensors as candle's custom operations, with gradients.

use candle_core::{Layout, Result, Shape, Tensor, bail};

use crate::Activation;
use crate::operation::{Of, Operation};
use crate::plain::{Owned, Part, in_place};

/// `op(A) * op(B)` of contiguous tensors, with an optional bias. Each `op` transposes the last two
/// dimensions or does nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) transposed: [bool; 2],
    pub(crate) activation: Activation,
}

/// The extents of a GEMM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    /// Number of GEMMs of a batch; `None` for one GEMM of two matrices.
    pub(crate) batch: Option<usize>,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl Extents {
    /// Number of elements of A, B and D.
    pub(crate) fn elements(&self) -> [usize; 3] {
        let Self { batch, m, n, k } = *self;
        [m * k, k * n, m * n].map(|one| one * batch.unwrap_or(1))
    }
}

impl Product {
    /// A GEMM with these transposes, without a bias and an activation.
    pub(crate) fn plain(transposed: [bool; 2]) -> Self {
        Self { transposed, activation: Activation::Identity }
    }

    /// The extents, and the shape of the result.
    pub(crate) fn extents(&self, a: &Layout, b: &Layout) -> Result<(Extents, Shape)> {
        if !(a.is_contiguous() && b.is_contiguous()) {
            bail!("a product of tensors that are not contiguous: {a:?} and {b:?}");
        }
        let (of_a, of_b) = (a.dims(), b.dims());
        let [(batch_a, [m, k]), (batch_b, [inner, n])] =
            [split(of_a, self.transposed[0])?, split(of_b, self.transposed[1])?];
        if k != inner || batch_a != batch_b {
            bail!("shapes {of_a:?} and {of_b:?} cannot be multiplied, transposed {:?}", self.transposed);
        }
        let batch = (!batch_a.is_empty()).then(|| batch_a.iter().product());
        let shape: Vec<usize> = batch_a.iter().copied().chain([m, n]).collect();
        Ok((Extents { batch, m, n, k }, shape.into()))
    }

    /// The gradients of A and B.
    fn of_operands(&self, a: &Tensor, b: &Tensor, grad: &Tensor) -> Result<[Tensor; 2]> {
        let multiply = |x: &Tensor, y: &Tensor, transposed| {
            x.contiguous()?.apply_op2(&y.contiguous()?, Of(Self::plain(transposed)))
        };
        let [of_a, of_b] = self.transposed;
        let grad_a = if of_a { multiply(b, grad, [of_b, true])? } else { multiply(grad, b, [false, !of_b])? };
        let grad_b = if of_b { multiply(grad, a, [true, of_a])? } else { multiply(a, grad, [!of_a, false])? };
        Ok([grad_a, grad_b])
    }
}

/// The dimensions of the batch, and the last two dimensions, swapped if transposed.
fn split(dims: &[usize], transposed: bool) -> Result<(&[usize], [usize; 2])> {
    match *dims {
        [ref batch @ .., x, y] => Ok((batch, if transposed { [y, x] } else { [x, y] })),
        _ => bail!("a tensor of shape {dims:?} is multiplied, two dimensions or more were needed"),
    }
}

impl Operation<2> for Product {
    const NAME: &'static str = "falchion-matmul";

    fn run(&self, [a, b]: [Part<'_>; 2]) -> Result<(Owned, Shape)> {
        let (extents, shape) = self.extents(a.1, b.1)?;
        Ok((in_place!(a.0, product(self, &extents, [a, b], None))?, shape))
    }

    fn gradients(&self, [a, b]: [&Tensor; 2], _: &Tensor, grad: &Tensor) -> Result<[Option<Tensor>; 2]> {
        Ok(self.of_operands(a, b, grad)?.map(Some))
    }
}

/// With a bias of N elements and an activation, for two matrices.
impl Operation<3> for Product {
    const NAME: &'static str = "falchion-linear";

    fn run(&self, [a, b, bias]: [Part<'_>; 3]) -> Result<(Owned, Shape)> {
        let (extents, shape) = self.extents(a.1, b.1)?;
        Ok((in_place!(a.0, product(self, &extents, [a, b], Some(bias)))?, shape))
    }

    fn gradients(
        &self,
        [a, b, bias]: [&Tensor; 3],
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<[Option<Tensor>; 3]> {
        let grad = match self.activation {
            Activation::Identity => grad.clone(),
            activation => {
                // The input of the activation is computed again.
                let plain = Of(Self { activation: Activation::Identity, ..*self });
                (grad * slope(activation, &a.apply_op3_no_bwd(b, bias, &plain)?)?)?
            }
        };
        let [of_a, of_b] = self.of_operands(a, b, &grad)?;
        // Rows are summed in `f32`.
        let of_bias = grad.to_dtype(candle_core::DType::F32)?.sum(0)?.to_dtype(bias.dtype())?;
        Ok([of_a, of_b, of_bias].map(Some))
    }
}

/// The derivative of an activation at `x`, in `x`'s type.
fn slope(activation: Activation, x: &Tensor) -> Result<Tensor> {
    let wide = x.to_dtype(candle_core::DType::F32)?;
    let slope = match activation {
        Activation::Identity => wide.ones_like()?,
        Activation::Relu => wide.gt(0f32)?.to_dtype(candle_core::DType::F32)?,
        Activation::Gelu => {
            let (factor, cubic) = ((2.0 / std::f64::consts::PI).sqrt(), 0.044715);
            let square = wide.sqr()?;
            let tanh = ((&wide * factor)? * ((&square * cubic)? + 1.0)?)?.tanh()?;
            let inner = (((&square * (3.0 * cubic))? + 1.0)? * factor)?;
            let rest = (tanh.sqr()?.affine(-1.0, 1.0)? * (&wide * inner)?)?;
            ((tanh + 1.0)? + rest)?.affine(0.5, 0.0)?
        }
        Activation::Silu => {
            let logistic = candle_nn::ops::sigmoid(&wide)?;
            (&logistic * ((&wide * logistic.affine(-1.0, 1.0)?)? + 1.0)?)?
        }
    };
    slope.to_dtype(x.dtype())
}

/// Computes `a * b` of shapes `(.., M, K)` and `(.., K, N)`. The leading dimensions are the batch and must be
/// equal. If `b` has two dimensions, all of `a` is multiplied by it. Transposed views are read in place;
/// other tensors that are not contiguous are copied first.
///
/// # Errors
/// Shapes that do not fit; types that differ; on the card a type other than `bf16` and `f16`; an error of
/// candle.
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if let ([.., m, k], [_, n]) = (a.dims(), b.dims())
        && a.rank() > 2
    {
        let dims = a.dims();
        let rows = dims[..dims.len() - 2].iter().product::<usize>() * m;
        let shape: Vec<usize> = dims[..dims.len() - 1].iter().copied().chain([*n]).collect();
        return matmul(&a.reshape((rows, *k))?, b)?.reshape(shape);
    }
    let (a, of_a) = stored(a)?;
    let (b, of_b) = stored(b)?;
    a.apply_op2(&b, Of(Product::plain([of_a, of_b])))
}

/// A contiguous tensor as it is stored in memory, and whether the given tensor is its transpose.
pub(crate) fn stored(tensor: &Tensor) -> Result<(Tensor, bool)> {
    if tensor.is_contiguous() || tensor.rank() < 2 {
        return Ok((tensor.clone(), false));
    }
    let transposed = tensor.t()?;
    if transposed.is_contiguous() { Ok((transposed, true)) } else { Ok((tensor.contiguous()?, false)) }
}
