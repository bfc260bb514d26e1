//! The backend without a card: the same GEMMs by burn's own operations.

use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;

use crate::Error;
use crate::product::{Backend, Extents, Product, shape};

impl Backend for Flex {
    fn product(
        product: Product,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, Error> {
        let bias_shape = bias.as_ref().map(shape);
        let extents = Extents::of(&product, &shape(&a), &shape(&b), bias_shape.as_ref())?;
        let rank = extents.shape().num_dims();
        let stored = |tensor, transposed| {
            if transposed { Self::float_swap_dims(tensor, rank - 2, rank - 1) } else { tensor }
        };
        let [of_a, of_b] = product.transposed;
        let d = Self::float_matmul(stored(a, of_a), stored(b, of_b));
        let d = match bias {
            Some(bias) => {
                let mut dims = vec![1; rank];
                dims[rank - 1] = extents.n;
                Self::float_add(d, Self::float_reshape(bias, dims.into()))
            }
            None => d,
        };
        Ok(product.activation.of::<Self>(d))
    }
}
