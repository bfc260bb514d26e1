//! The backend without a card: the same GEMMs by burn's own operations, those with few-bit weights in the emulator.

use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Int, Tensor, TensorData};
use falchion::kernel::Machine;
use falchion_core::{FewBitMemory, Run};

use crate::activation::activated;
use crate::fewbit::kernel;
use crate::product::{Backend, Extents, Product, shape};
use crate::{Error, FewBitLinear};

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
        Ok(activated::<Self>(product.activation, d))
    }
}

/// A layer with few-bit weights: its kernel in falchion's emulator.
pub(crate) fn few_bits(layer: &FewBitLinear, rows: u32, x: Tensor<2>) -> Result<Tensor<2>, Error> {
    let (device, dtype) = (x.device(), x.dtype());
    let kernel = kernel((None, rows, layer.what), || Ok(Machine::h200()))?;
    // Kernels need addresses that are multiples of 16.
    let words = |data: TensorData| -> Vec<u128> {
        let word = |bytes: &[u8]| {
            let mut word = [0; 16];
            word[..bytes.len()].copy_from_slice(bytes);
            u128::from_ne_bytes(word)
        };
        data.as_bytes().chunks(16).map(word).collect()
    };
    let held = |bytes: &Option<Tensor<1, Int>>| words(bytes.clone().map_or_else(nothing, Tensor::into_data));
    let (x, units) = (words(x.into_data()), words(layer.units.clone().into_data()));
    let [scales, zeros] = [held(&layer.scales), held(&layer.zeros)];
    let bias = words(layer.bias.clone().map_or_else(nothing, Tensor::into_data));
    let shape = [rows as usize, layer.what.shape[0] as usize];
    let bytes = shape[0] * shape[1] * dtype.size();
    let mut d = vec![0u128; bytes.div_ceil(16)];
    let at = |words: &[u128]| words.as_ptr().expose_provenance() as u64;
    let memory = FewBitMemory {
        x: at(&x),
        units: at(&units),
        lines: [at(&scales), at(&zeros)],
        bias: at(&bias),
        offsets: 0,
        d: d.as_mut_ptr().expose_provenance() as u64,
    };
    let call = layer.what.call_of(&kernel, rows, memory);
    // SAFETY: the layer's tensors have the sizes that kernels need, x and D the elements of their shapes; all live here.
    unsafe { kernel.emulate(&call, Run::default()) }.map_err(|error| Error::Card(error.to_string()))?;
    let d: Vec<u8> = d.into_iter().flat_map(u128::to_ne_bytes).take(bytes).collect();
    Ok(Tensor::from_data(TensorData::from_bytes_vec(d, shape, dtype), (&device, dtype)))
}

fn nothing() -> TensorData {
    TensorData::new(Vec::<u8>::new(), [0])
}
