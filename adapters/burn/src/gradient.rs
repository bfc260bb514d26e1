//! Gradients of GEMMs. They are GEMMs too.

use burn::backend::Autodiff;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::activation::activated_in_32_bits;
use crate::product::{Backend, Product, shape};
use crate::{Activation, Error};

/// The backward pass of a GEMM. It has N = 2 parents, A and B, or three with the bias.
#[derive(Debug)]
struct OfProduct([bool; 2]);

impl<B: Backend, const N: usize> Backward<B, N> for OfProduct {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let d = grads.consume::<B>(&ops.node);
        let [a, b]: [FloatTensor<B>; 2] = ops.state.map(|node| checkpointer.retrieve_node_output(node));
        let product = |transposed, a, b| {
            let product = Product { transposed, activation: Activation::Identity };
            // burn's gradients cannot return errors. Shapes that fit in the forward pass fit here too.
            B::product(product, a, b, None).unwrap_or_else(|error| panic!("a gradient: {error}"))
        };
        let [of_a, of_b] = self.0;
        let mut parents = ops.parents.into_iter();
        // If A is stored as K x M, the gradient is stored transposed too: B times D's transpose.
        if let Some(node) = parents.next().flatten() {
            let (d, b) = (d.clone(), b);
            let grad = if of_a { product([of_b, true], b, d) } else { product([false, !of_b], d, b) };
            grads.register::<B>(node.id, grad);
        }
        if let Some(node) = parents.next().flatten() {
            let d = d.clone();
            let grad = if of_b { product([true, of_a], d, a) } else { product([!of_a, false], a, d) };
            grads.register::<B>(node.id, grad);
        }
        if let Some(node) = parents.next().flatten() {
            let shape = shape(&d);
            let (rank, n) = (shape.num_dims(), shape[shape.num_dims() - 1]);
            let sums = (0..rank - 1).fold(d, |sums, dim| B::float_sum_dim(sums, dim));
            grads.register::<B>(node.id, B::float_reshape(sums, [n].into()));
        }
    }
}

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn product(
        product: Product,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, Error> {
        let Product { transposed, activation } = product;
        let tracked = a.is_tracked() || b.is_tracked() || bias.as_ref().is_some_and(|bias| bias.is_tracked());
        // The gradient of an activation needs the activation's input, so the activation is a separate
        // operation.
        if tracked && activation != Activation::Identity {
            let d = Self::product(Product { transposed, ..Product::default() }, a, b, bias)?;
            return Ok(activated_in_32_bits::<Self>(activation, d));
        }
        let bias_primitive = bias.as_ref().map(|bias| bias.primitive().clone());
        let d = B::product(product, a.primitive().clone(), b.primitive().clone(), bias_primitive)?;
        macro_rules! track {
            ($nodes:expr) => {
                match Backward::<B, _>::prepare::<C>(OfProduct(transposed), $nodes).compute_bound().stateful()
                {
                    OpsKind::Tracked(mut prep) => {
                        let state = [prep.checkpoint(&a), prep.checkpoint(&b)];
                        prep.finish(state, d)
                    }
                    OpsKind::UnTracked(prep) => prep.finish(d),
                }
            };
        }
        Ok(match &bias {
            Some(bias) => track!([a.node(), b.node(), bias.node()]),
            None => track!([a.node(), b.node()]),
        })
    }
}
