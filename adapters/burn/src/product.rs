//! GEMMs of tensors, on every supported device.

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, DispatchDevice, DispatchKindConversion, DispatchTensor, Flex, TensorMetadata};
use burn::tensor::{Device, GradientCheckpointingStrategy, Shape, Tensor};

use crate::{Activation, Error};

/// How the operands of a GEMM are stored, and which activation follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Product {
    /// Whether A is stored as `(K, M)`, and whether B is stored as `(N, K)`.
    pub transposed: [bool; 2],
    /// The activation of each element, after the bias.
    pub activation: Activation,
}

/// A supported backend: [`Flex`] by burn's operations, burn's CUDA backend without `fusion` (feature `cuda`)
/// by falchion's kernels, and [`Autodiff`] of these.
pub(crate) trait Backend: burn::backend::Backend {
    /// [`product`] of the backend's own tensors.
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

/// Computes `activation(A * B + bias)` of two matrices or of a batch. A has shape `(M, K)` or `(batch, M, K)`,
/// B `(K, N)` or `(batch, K, N)`, unless [`Product::transposed`] says that they are stored transposed. The
/// bias has N elements. Operands without gradients are constants next to operands with gradients.
///
/// # Errors
/// A shape, an element type or a device that does not fit; an error of the card's driver.
pub fn product<const D: usize>(
    product: Product,
    a: Tensor<D>,
    b: Tensor<D>,
    bias: Option<Tensor<1>>,
) -> Result<Tensor<D>, Error> {
    let devices = [Some(a.device()), Some(b.device()), bias.as_ref().map(Tensor::device)];
    let device = devices.into_iter().flatten().find(Device::is_autodiff).unwrap_or_else(|| a.device());
    let operands = Operands { a, b, bias, device };
    match operands.device.clone().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) => operands.on::<Flex>(product),
        #[cfg(feature = "cuda")]
        DispatchDevice::Cube(_) => operands.on::<burn::backend::Cube>(product),
        other => Err(Error::Device {
            argument: "a",
            found: format!("{other:?}"),
            needed: "Flex, or Cuda with the feature cuda,".to_owned(),
        }),
    }
}

/// The operands of a GEMM, and their device, with gradients if any of them has these.
struct Operands<const D: usize> {
    a: Tensor<D>,
    b: Tensor<D>,
    bias: Option<Tensor<1>>,
    device: Device,
}

impl<const D: usize> Operands<D> {
    /// Computes on the backend, with gradients if the device has them.
    fn on<B: Backend>(self, product: Product) -> Result<Tensor<D>, Error>
    where
        DispatchTensor: DispatchKindConversion<B>
            + DispatchKindConversion<Autodiff<B>>
            + DispatchKindConversion<Autodiff<B, BalancedCheckpointing>>,
    {
        match self.device.gradient_checkpointing_strategy() {
            None => self.by::<B>(product),
            Some(GradientCheckpointingStrategy::Disabled) => self.by::<Autodiff<B>>(product),
            Some(GradientCheckpointingStrategy::Balanced) => {
                self.by::<Autodiff<B, BalancedCheckpointing>>(product)
            }
        }
    }

    fn by<B: Backend>(self, product: Product) -> Result<Tensor<D>, Error>
    where
        DispatchTensor: DispatchKindConversion<B>,
    {
        let Self { a, b, bias, device } = self;
        let (a, b) = (primitive::<B, D>("a", a, &device)?, primitive::<B, D>("b", b, &device)?);
        let bias = bias.map(|bias| primitive::<B, 1>("bias", bias, &device)).transpose()?;
        Ok(Tensor::from_primitive::<B>(B::product(product, a, b, bias)?))
    }
}

/// The tensor as the backend of the device holds it.
fn primitive<B: Backend, const D: usize>(
    argument: &'static str,
    tensor: Tensor<D>,
    device: &Device,
) -> Result<FloatTensor<B>, Error>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let found = tensor.device();
    let wrong = || Error::Device {
        argument,
        found: format!("{:?}", found.as_dispatch()),
        needed: format!("{:?}, as of the others,", device.as_dispatch()),
    };
    if found != *device {
        return Err(wrong());
    }
    let tensor = match device.gradient_checkpointing_strategy() {
        Some(strategy) if !found.is_autodiff() => {
            tensor.dequantize().autodiff().with_gradient_checkpointing_strategy(strategy)
        }
        _ => tensor.dequantize(),
    };
    tensor.try_into_primitive::<B>().map_err(|_| wrong())
}

/// Computes `A * B`: `(M, K)` by `(K, N)`, or a batch of these. The leading dimensions are the batch and must
/// be the same in both. A transposed view of either is read in place, without a copy.
///
/// # Errors
/// A shape, an element type or a device that does not fit; an error of the card's driver.
pub fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Result<Tensor<D>, Error> {
    let (of_a, of_b) = (a.dims(), b.dims());
    let lead = |dims: [usize; D]| dims[..D.saturating_sub(2)].to_vec();
    if D < 2 || lead(of_a) != lead(of_b) {
        let needed = format!("the leading dimensions of a, whose shape is {of_a:?},");
        return Err(Error::Shape { argument: "b", found: of_b.to_vec(), needed });
    }
    if D <= 3 {
        return product(Product::default(), a, b, None);
    }
    let batch = lead(of_a).iter().product();
    let [a, b]: [Tensor<3>; 2] =
        [(a, of_a), (b, of_b)].map(|(tensor, dims)| tensor.reshape([batch, dims[D - 2], dims[D - 1]]));
    let mut dims = of_a;
    dims[D - 1] = of_b[D - 1];
    Ok(product(Product::default(), a, b, None)?.reshape(dims))
}

/// Computes `activation(x * weight + bias)` in one kernel. `x` has shape `(..., inputs)`, the weight
/// `(inputs, outputs)` as in [`burn::nn::Linear`], and the bias `(outputs)`.
///
/// # Errors
/// A shape, an element type or a device that does not fit; an error of the card's driver.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Result<Tensor<D>, Error> {
    let mut dims = x.dims();
    let [inputs, outputs] = weight.dims();
    if dims.last() != Some(&inputs) {
        return Err(Error::Shape { argument: "x", found: dims.to_vec(), needed: format!("(..., {inputs})") });
    }
    let rows = dims[..D - 1].iter().product::<usize>();
    let x: Tensor<2> = x.reshape([rows, inputs]);
    dims[D - 1] = outputs;
    Ok(product(Product { activation, ..Product::default() }, x, weight, bias)?.reshape(dims))
}
