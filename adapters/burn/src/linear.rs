//! A linear layer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::product::{Backend, linear};
use crate::{Activation, Error};

/// [`burn::nn::Linear`], with its bias and activation in the product's kernel. Its parameters have the same names and shapes, so that records of one load into
/// the other.
#[derive(Module, Debug)]
pub struct Linear<B: burn::tensor::backend::Backend> {
    /// `(inputs, outputs)`.
    pub weight: Param<Tensor<B, 2>>,
    /// `(outputs)`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// What becomes of each output.
    #[module(skip)]
    pub activation: Activation,
}

impl<B: burn::tensor::backend::Backend> From<burn::nn::Linear<B>> for Linear<B> {
    fn from(layer: burn::nn::Linear<B>) -> Self {
        Self { weight: layer.weight, bias: layer.bias, activation: Activation::Identity }
    }
}

impl<B: burn::tensor::backend::Backend> Linear<B> {
    /// With an activation.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// `activation(x * weight + bias)`, of `(..., inputs)`.
    ///
    /// # Errors
    /// Shapes or elements that do not fit; what the card's driver says.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Result<Tensor<B, D>, Error>
    where
        B: Backend,
    {
        linear(x, self.weight.val(), self.bias.as_ref().map(Param::val), self.activation)
    }
}
