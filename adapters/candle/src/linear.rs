//! The linear layer.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};

use crate::operation::Of;
use crate::product::{Product, stored};
use crate::{Activation, activated};

/// A linear layer, `y = activation(x * wᵀ + b)` in one kernel. Use it in place of [`candle_nn::Linear`].
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    activation: Activation,
}

impl Linear {
    /// Makes a layer of a weight of shape `(out, in)` and a bias of `out` elements, without an activation.
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, bias, activation: Activation::Identity }
    }

    /// Reads a layer from a file: `weight` `(out, in)`, and `bias` if the file has it, in the type and on the device of `vb`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit; an error of candle.
    pub fn load(inputs: usize, outputs: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let bias = vb.contains_tensor("bias").then(|| vb.get(outputs, "bias")).transpose()?;
        Ok(Self::new(vb.get((outputs, inputs), "weight")?, bias))
    }

    /// Sets the activation. Without a bias it is a separate operation of candle.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// The weight, of shape `(out, in)`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, of `out` elements.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

impl From<candle_nn::Linear> for Linear {
    fn from(linear: candle_nn::Linear) -> Self {
        Self::new(linear.weight().clone(), linear.bias().cloned())
    }
}

impl Module for Linear {
    /// Maps `x` of shape `(.., in)` to `(.., out)`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inputs = self.weight.dim(1)?;
        let shape = match x.dims() {
            [outer @ .., k] if *k == inputs => [outer, &[self.weight.dim(0)?]].concat(),
            dims => candle_core::bail!(
                "x has shape {dims:?}, and a weight of {:?} takes (.., {inputs})",
                self.weight.dims()
            ),
        };
        let rows = shape[..shape.len() - 1].iter().product::<usize>();
        let (x, transposed) = stored(&x.reshape((rows, inputs))?)?;
        let (weight, flipped) = stored(&self.weight)?;
        let product = Of(Product { transposed: [transposed, !flipped], activation: self.activation });
        let y = match &self.bias {
            Some(bias) => x.apply_op3(&weight, &bias.contiguous()?, product)?,
            None => activated(self.activation, x.apply_op2(&weight, product)?)?,
        };
        y.reshape(shape)
    }
}
