//! The backend without a card: the same GEMMs by burn's own operations.

use burn::backend::NdArray;
use burn::backend::ndarray::{
    FloatNdArrayElement, IntNdArrayElement, NdArrayTensor, QuantElement, SharedArray,
};
use burn::tensor::ops::FloatTensor;

use crate::Error;
use crate::product::{Backend, Extents, Product, shape};

fn plain<B: burn::tensor::backend::Backend>(
    product: Product,
    a: FloatTensor<B>,
    b: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
) -> Result<FloatTensor<B>, Error> {
    let bias_shape = bias.as_ref().map(shape);
    let extents = Extents::of(&product, &shape(&a), &shape(&b), bias_shape.as_ref())?;
    let rank = extents.shape().num_dims();
    let stored = |tensor, transposed| {
        if transposed { B::float_swap_dims(tensor, rank - 2, rank - 1) } else { tensor }
    };
    let [of_a, of_b] = product.transposed;
    let d = B::float_matmul(stored(a, of_a), stored(b, of_b));
    let d = match bias {
        Some(bias) => {
            let mut dims = vec![1; rank];
            dims[rank - 1] = extents.n;
            B::float_add(d, B::float_reshape(bias, dims.into()))
        }
        None => d,
    };
    Ok(product.activation.of::<B>(d))
}

impl<E: FloatNdArrayElement, I: IntNdArrayElement, Q: QuantElement> Backend for NdArray<E, I, Q>
where
    NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
{
    fn product(
        product: Product,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, Error> {
        plain::<Self>(product, a, b, bias)
    }
}
