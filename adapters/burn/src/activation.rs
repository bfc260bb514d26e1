//! The activations that can be fused into a layer, by burn's own operations.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::FloatDType;
use falchion_core::Activation;

/// Applies an activation by burn's own operations, which have gradients. It computes in 32 bits, because one
/// minus the square of a tanh has few digits in 16.
pub(crate) fn activated_in_32_bits<B: Backend>(activation: Activation, x: FloatTensor<B>) -> FloatTensor<B> {
    let dtype: FloatDType = x.dtype().into();
    B::float_cast(activated::<B>(activation, B::float_cast(x, FloatDType::F32)), dtype)
}

/// Applies an activation by burn's own operations.
pub(crate) fn activated<B: Backend>(activation: Activation, x: FloatTensor<B>) -> FloatTensor<B> {
    match activation {
        Activation::Identity => x,
        Activation::Relu => B::relu(x),
        Activation::Silu => B::float_mul(x.clone(), B::sigmoid(x)),
        Activation::Gelu => {
            let cube = B::float_mul(B::float_mul(x.clone(), x.clone()), x.clone());
            let inner = B::float_add(x.clone(), B::float_mul_scalar(cube, 0.044715.into()));
            let root = core::f64::consts::FRAC_2_PI.sqrt();
            let tanh = B::float_tanh(B::float_mul_scalar(inner, root.into()));
            B::float_mul(B::float_mul_scalar(x, 0.5.into()), B::float_add_scalar(tanh, 1.0.into()))
        }
    }
}
