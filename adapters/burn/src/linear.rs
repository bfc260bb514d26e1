//! A linear layer.

use burn::module::{Module, Param};
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use falchion::collective::Format;
use falchion_core::{Prefixed, Tensors, bias};
use safetensors::SafeTensors;

use crate::product::linear;
use crate::{Activation, Error};

/// A linear layer like [`burn::nn::Linear`], with the bias and the activation fused into the GEMM kernel. Its
/// parameters have the same names and shapes, so a record of one loads into the other.
#[derive(Module, Debug)]
pub struct Linear {
    /// The weight, of shape `(inputs, outputs)`.
    pub weight: Param<Tensor<2>>,
    /// The bias, of shape `(outputs)`.
    pub bias: Option<Param<Tensor<1>>>,
    /// The activation of each output; [`Activation::Identity`] by default.
    #[module(skip)]
    pub activation: Activation,
}

impl From<burn::nn::Linear> for Linear {
    fn from(layer: burn::nn::Linear) -> Self {
        Self { weight: layer.weight, bias: layer.bias, activation: Activation::Identity }
    }
}

impl Linear {
    /// Reads a layer from a safetensors file: `weight` `(outputs, inputs)` and, if the file has it, `bias`, whose
    /// names begin with a prefix and a dot. Floats of 16 bits or more are rounded to `dtype`, `F32`, `BF16` or
    /// `F16`. The weight is a transposed view, which is multiplied as it lies.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit, by its name.
    pub fn load(
        inputs: usize,
        outputs: usize,
        (file, prefix): (&SafeTensors<'_>, &str),
        (device, dtype): (&Device, FloatDType),
    ) -> Result<Self, Error> {
        let (format, tensors) = (format_of(dtype)?, Prefixed { file, prefix });
        let weight = tensors.read("weight", format)?.of(&[outputs, inputs])?;
        let weight = floats([outputs, inputs], weight.bytes.into_owned(), (device, dtype));
        let bias = bias(format, outputs, &tensors)?;
        let bias = bias.map(|bias| floats([outputs], bias.bytes.into_owned(), (device, dtype)));
        Ok(Self {
            weight: Param::from_tensor(weight.transpose()),
            bias: bias.map(Param::from_tensor),
            activation: Activation::Identity,
        })
    }

    /// Sets the activation.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Computes `activation(x * weight + bias)` of `x` of shape `(..., inputs)`; the result has shape `(...,
    /// outputs)`.
    ///
    /// # Errors
    /// A shape, an element type or a device that does not fit; an error of the card's driver.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Result<Tensor<D>, Error> {
        linear(x, self.weight.val(), self.bias.as_ref().map(Param::val), self.activation)
    }
}

/// The format of a layer's type.
pub(crate) fn format_of(dtype: FloatDType) -> Result<Format, Error> {
    match dtype {
        FloatDType::F32 => Ok(Format::F32),
        FloatDType::BF16 => Ok(Format::Bf16),
        FloatDType::F16 => Ok(Format::F16),
        other => Err(Error::Element {
            argument: "dtype",
            found: format!("{other:?}"),
            needed: "F32, BF16 or F16".to_owned(),
        }),
    }
}

/// A tensor of elements in the type that it has.
pub(crate) fn floats<const D: usize>(
    shape: [usize; D],
    bytes: Vec<u8>,
    (device, dtype): (&Device, FloatDType),
) -> Tensor<D> {
    Tensor::from_data(TensorData::from_bytes_vec(bytes, shape, dtype.into()), (device, dtype.into()))
}
