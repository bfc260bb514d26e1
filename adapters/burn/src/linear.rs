//! A linear layer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

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
