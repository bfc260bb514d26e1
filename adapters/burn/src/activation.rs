//! The activations that can be fused into a layer.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::FloatDType;

/// A function that is applied to each element of a GEMM after the bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// No activation.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`. (burn's own GELU uses the error function.)
    Gelu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

impl Activation {
    /// Applies it by burn's own operations, which have gradients. It computes in 32 bits, because one minus
    /// the square of a tanh has few digits in 16.
    pub(crate) fn in_32_bits<B: Backend>(self, x: FloatTensor<B>) -> FloatTensor<B> {
        let dtype: FloatDType = x.dtype().into();
        B::float_cast(self.of::<B>(B::float_cast(x, FloatDType::F32)), dtype)
    }

    /// Applies it by burn's own operations.
    pub(crate) fn of<B: Backend>(self, x: FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Self::Identity => x,
            Self::Relu => B::relu(x),
            Self::Silu => B::float_mul(x.clone(), B::sigmoid(x)),
            Self::Gelu => {
                let cube = B::float_mul(B::float_mul(x.clone(), x.clone()), x.clone());
                let inner = B::float_add(x.clone(), B::float_mul_scalar(cube, 0.044715.into()));
                let root = core::f64::consts::FRAC_2_PI.sqrt();
                let tanh = B::float_tanh(B::float_mul_scalar(inner, root.into()));
                B::float_mul(B::float_mul_scalar(x, 0.5.into()), B::float_add_scalar(tanh, 1.0.into()))
            }
        }
    }
}
