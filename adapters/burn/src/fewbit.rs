//! Linear layers whose weights have few bits, from files as they are.

use std::sync::Arc;

use burn::backend::DispatchDevice;
use burn::module::Module;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use falchion::collective::Format;
use falchion::kernel::{AnyGemm, Machine};
use falchion_core::{Choices, FewBit, FewBits, Layer, Picked, Prefixed};
use safetensors::SafeTensors;

use crate::linear::{floats, format_of};
use crate::{Activation, Error};

/// A linear layer whose weights have few bits and are scaled per group of inputs, `y = activation(x * wᵀ + b)` in
/// one kernel. Inputs, outputs and the bias have the layer's type, `BF16` or `F16`. Use it for inference: it has
/// no gradient, and it is no part of a module's record.
///
/// ```no_run
/// use burn::tensor::{Device, FloatDType, Tensor};
/// use falchion_burn::{FewBitLinear, SafeTensors};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bytes = std::fs::read("model.safetensors")?;
/// let (file, device) = (SafeTensors::deserialize(&bytes)?, Device::flex());
/// let layer = (&file, "model.layers.0.mlp.up_proj");
/// let layer = FewBitLinear::load(4096, 11008, None, layer, (&device, FloatDType::BF16))?;
/// let y = layer.forward(Tensor::<3>::zeros([2, 7, 4096], (&device, FloatDType::BF16.into())))?;
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct FewBitLinear {
    /// Bytes, in the order that kernels read.
    pub(crate) units: Tensor<1, Int>,
    pub(crate) scales: Option<Tensor<1, Int>>,
    pub(crate) zeros: Option<Tensor<1, Int>>,
    pub(crate) bias: Option<Tensor<1>>,
    /// The order of inputs in the weights, if it is not theirs.
    order: Option<Tensor<1, Int>>,
    #[module(skip)]
    pub(crate) what: FewBit,
}

impl FewBitLinear {
    /// Reads a layer from a safetensors file: the tensors whose names begin with a prefix and a dot (or `_`), by the names
    /// that the file's tool gives them. `bits` says how they are stored; with `None` their names and shapes say
    /// it ([`FewBits::found`]). `dtype` is the layer's type, `BF16` or `F16`, to which scales and the bias are
    /// rounded.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit, by its name; a device with gradients.
    pub fn load(
        inputs: usize,
        outputs: usize,
        bits: impl Into<Option<FewBits>>,
        (file, prefix): (&SafeTensors<'_>, &str),
        (device, dtype): (&Device, FloatDType),
    ) -> Result<Self, Error> {
        if device.is_autodiff() {
            return Err(Error::Device {
                argument: "device",
                found: format!("{device:?}"),
                needed: "a device without gradients".to_owned(),
            });
        }
        let tensors = Prefixed { file, prefix };
        let bits = bits.into().map_or_else(|| FewBits::found(&tensors), Ok)?;
        let Layer { weights, bias } = Layer::read(bits, format_of(dtype)?, [outputs, inputs], &tensors)?;
        let what = FewBit::of(&weights, bias.is_some());
        let bytes = |bytes: Vec<u8>| -> Tensor<1, Int> {
            let count = bytes.len();
            Tensor::from_data(TensorData::new(bytes, [count]), (device, DType::U8))
        };
        let lines = |all: Vec<u8>| (!all.is_empty()).then(|| bytes(all));
        let order = weights.order.map(|order| {
            let order: Vec<i64> = order.into_iter().map(i64::from).collect();
            Tensor::from_data(TensorData::new(order, [inputs]), device)
        });
        Ok(Self {
            units: bytes(weights.units),
            scales: lines(weights.scales.bytes),
            zeros: lines(weights.zeros.bytes),
            bias: bias.map(|bias| floats([outputs], bias, (device, dtype))),
            order,
            what,
        })
    }

    /// Sets the activation.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { what: FewBit { activation, ..self.what }, ..self }
    }

    /// Maps `x` of shape `(.., inputs)` to `(.., outputs)`.
    ///
    /// # Errors
    /// A shape, an element type or a device that does not fit; an error of the card's driver.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Result<Tensor<D>, Error> {
        let [outputs, inputs] = self.what.shape.map(|extent| extent as usize);
        let (mut dims, device) = (x.dims(), x.device());
        if dims.last() != Some(&inputs) {
            let needed = format!("(..., {inputs})");
            return Err(Error::Shape { argument: "x", found: dims.to_vec(), needed });
        }
        let needed = if self.what.format == Format::Bf16 { DType::BF16 } else { DType::F16 };
        if x.dtype() != needed {
            let (found, needed) = (format!("{:?}", x.dtype()), format!("{needed:?}, the layer's type,"));
            return Err(Error::Element { argument: "x", found, needed });
        }
        if device != self.units.device() {
            return Err(Error::Device {
                argument: "x",
                found: format!("{device:?}"),
                needed: format!("{:?}, as the layer is,", self.units.device()),
            });
        }
        let rows = dims[..D - 1].iter().product::<usize>();
        let of_x = dims.to_vec();
        dims[D - 1] = outputs;
        if rows == 0 {
            return Ok(Tensor::zeros(dims, (&device, needed)));
        }
        let Ok(count) = u32::try_from(rows) else {
            let needed = "less than 2^32 rows".to_owned();
            return Err(Error::Shape { argument: "x", found: of_x, needed });
        };
        let x: Tensor<2> = x.reshape([rows, inputs]);
        let x = match &self.order {
            Some(order) => x.select(1, order.clone()),
            None => x,
        };
        let y = match device.as_dispatch() {
            DispatchDevice::Flex(_) => crate::plain::few_bits(self, count, x),
            #[cfg(feature = "cuda")]
            DispatchDevice::Cube(_) => crate::cuda::few_bits(self, count, x),
            other => Err(Error::Device {
                argument: "x",
                found: format!("{other:?}"),
                needed: "Flex, or Cuda with the feature cuda,".to_owned(),
            }),
        }?;
        Ok(y.reshape(dims))
    }
}

/// Most kernels that are kept, and most workspaces: each number of rows has its own. When there are so many, all are forgotten.
pub(crate) const KEPT: usize = 1024;

/// What a kernel is chosen for: the card (`None` is the host), the rows, and the product.
type Asked = (Option<usize>, u32, FewBit);

/// The kernel for a number of rows in a place.
pub(crate) fn kernel(
    asked: Asked,
    machine: impl FnOnce() -> Result<Machine, Error>,
) -> Result<Arc<Picked<AnyGemm>>, Error> {
    static ALL: Choices<Asked, Picked<AnyGemm>> = Choices::new(KEPT);
    ALL.get(asked, |(card, rows, what)| {
        what.kernel(*rows, &machine()?, *card).map_err(|refusal| Error::Card(refusal.to_string()))
    })
}
