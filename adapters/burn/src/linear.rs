//! A linear layer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::product::{Backend, linear};
use crate::{Activation, Error};

/// A linear layer like [`burn::nn::Linear`], with the bias and the activation fused into the GEMM kernel. Its
/// parameters have the same names and shapes, so a record of one loads into the other.
#[derive(Module, Debug)]
pub struct Linear<B: burn::tensor::backend::Backend> {
    /// The weight, of shape `(inputs, outputs)`.
    pub weight: Param<Tensor<B, 2>>,
    /// The bias, of shape `(outputs)`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// The activation of each output; [`Activation::Identity`] by default.
    #[module(skip)]
    pub activation: Activation,
}

impl<B: burn::tensor::backend::Backend> From<burn::nn::Linear<B>> for Linear<B> {
    fn from(layer: burn::nn::Linear<B>) -> Self {
        Self { weight: layer.weight, bias: layer.bias, activation: Activation::Identity }
    }
}

impl<B: burn::tensor::backend::Backend> Linear<B> {
    /// Sets the activation.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Computes `activation(x * weight + bias)` of `x` of shape `(..., inputs)`; the result has shape `(...,
    /// outputs)`.
    ///
    /// # Errors
    /// A shape or an element type that does not fit; an error of the card's driver.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Result<Tensor<B, D>, Error>
    where
        B: Backend,
    {
        linear(x, self.weight.val(), self.bias.as_ref().map(Param::val), self.activation)
    }
}
