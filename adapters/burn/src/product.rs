//! GEMMs of tensors, on every supported backend.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};

use crate::{Activation, Error};

/// How the operands of a GEMM are stored, and which activation follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Product {
    /// Whether A is stored as `(K, M)`, and whether B is stored as `(N, K)`.
    pub transposed: [bool; 2],
    /// The activation of each element, after the bias.
    pub activation: Activation,
}

/// A supported backend: [`NdArray`](burn::backend::NdArray) by burn's operations, burn's `Cuda` without
/// `fusion` (feature
/// `cuda`) by falchion's kernels, and [`Autodiff`](burn::backend::Autodiff) of these.
pub trait Backend: burn::tensor::backend::Backend {
    /// Computes `activation(A * B + bias)` of two matrices or of a batch. A has shape `(M, K)` or `(batch, M,
    /// K)`, B `(K, N)` or
    /// `(batch, K, N)`, unless [`Product::transposed`] says that they are stored transposed. The bias has N
    /// elements.
    ///
    /// # Errors
    /// A shape or an element type that does not fit; an error of the card's driver.
    fn product(
        product: Product,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, Error>;
}

/// Extents of a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) batch: Option<usize>,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl Extents {
    pub(crate) fn of(product: &Product, a: &Shape, b: &Shape, bias: Option<&Shape>) -> Result<Self, Error> {
        let wrong = |argument, shape: &Shape, needed: String| {
            Err(Error::Shape { argument, found: shape.to_vec(), needed })
        };
        let split = |shape: &Shape| match *shape.as_slice() {
            [x, y] => Some((None, x, y)),
            [batch, x, y] => Some((Some(batch), x, y)),
            _ => None,
        };
        let words = "(rows, columns) or (batch, rows, columns)".to_owned();
        let Some((batch, m, k)) = split(a) else { return wrong("a", a, words) };
        let Some((of_b, inner, n)) = split(b) else { return wrong("b", b, words) };
        let (m, k) = if product.transposed[0] { (k, m) } else { (m, k) };
        let (inner, n) = if product.transposed[1] { (n, inner) } else { (inner, n) };
        if inner != k || batch != of_b {
            let many = batch.map_or(String::new(), |batch| format!("{batch} of "));
            let order = if product.transposed[1] { "columns" } else { "rows" };
            return wrong("b", b, format!("{many}{k} {order}, as a of shape {:?} has it,", a.to_vec()));
        }
        if let Some(bias) = bias
            && bias.as_slice() != [n]
        {
            return wrong("bias", bias, format!("[{n}]"));
        }
        Ok(Self { batch, m, n, k })
    }

    pub(crate) fn shape(&self) -> Shape {
        match self.batch {
            Some(batch) => Shape::from([batch, self.m, self.n]),
            None => Shape::from([self.m, self.n]),
        }
    }
}

/// The shape of a primitive.
pub(crate) fn shape(tensor: &impl TensorMetadata) -> Shape {
    tensor.shape()
}

/// Computes `A * B`: `(M, K)` by `(K, N)`, or a batch of these. The leading dimensions are the batch and must
/// be the same in both. A transposed view of either is read in place, without a copy.
///
/// # Errors
/// A shape or an element type that does not fit; an error of the card's driver.
pub fn matmul<B: Backend, const D: usize>(a: Tensor<B, D>, b: Tensor<B, D>) -> Result<Tensor<B, D>, Error> {
    let (of_a, of_b) = (a.dims(), b.dims());
    let lead = |dims: [usize; D]| dims[..D.saturating_sub(2)].to_vec();
    if D < 2 || lead(of_a) != lead(of_b) {
        let needed = format!("the leading dimensions of a, whose shape is {of_a:?},");
        return Err(Error::Shape { argument: "b", found: of_b.to_vec(), needed });
    }
    let product = Product::default();
    if D <= 3 {
        let d = B::product(product, a.into_primitive().tensor(), b.into_primitive().tensor(), None)?;
        return Ok(Tensor::from_primitive(TensorPrimitive::Float(d)));
    }
    let batch = lead(of_a).iter().product();
    let [a, b]: [Tensor<B, 3>; 2] =
        [(a, of_a), (b, of_b)].map(|(tensor, dims)| tensor.reshape([batch, dims[D - 2], dims[D - 1]]));
    let d = B::product(product, a.into_primitive().tensor(), b.into_primitive().tensor(), None)?;
    let mut dims = of_a;
    dims[D - 1] = of_b[D - 1];
    Ok(Tensor::<B, 3>::from_primitive(TensorPrimitive::Float(d)).reshape(dims))
}

/// Computes `activation(x * weight + bias)` in one kernel. `x` has shape `(..., inputs)`, the weight
/// `(inputs, outputs)` as in [`burn::nn::Linear`], and the bias `(outputs)`.
///
/// # Errors
/// A shape or an element type that does not fit; an error of the card's driver.
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    activation: Activation,
) -> Result<Tensor<B, D>, Error> {
    let mut dims = x.dims();
    let [inputs, outputs] = weight.dims();
    if dims.last() != Some(&inputs) {
        return Err(Error::Shape { argument: "x", found: dims.to_vec(), needed: format!("(..., {inputs})") });
    }
    let rows = dims[..D - 1].iter().product::<usize>();
    let x: Tensor<B, 2> = x.reshape([rows, inputs]);
    let bias = bias.map(|bias| bias.into_primitive().tensor());
    let product = Product { activation, ..Product::default() };
    let y = B::product(product, x.into_primitive().tensor(), weight.into_primitive().tensor(), bias)?;
    dims[D - 1] = outputs;
    Ok(Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(y)).reshape(dims))
}
