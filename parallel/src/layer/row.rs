//! Layers whose inputs are divided.

use core::marker::PhantomData;

use falchion::collective::MatrixRef;
use falchion::rows::{Added, RowAdd};
use falchion_core::Kept;

use super::cut::{Part, Weights};
use super::product::{Argument, Product, part_of_tokens};
use super::{Input, Tokens};
use crate::device::nccl::{Collective, Reduction};
use crate::element::{Element, Kind};
use crate::error::Error;
use crate::group::{Group, exactly};
use crate::tensor::{Slice, SliceMut};

/// A row-parallel layer: `Y = X W^T + bias`, where each rank has some inputs (columns of `W` and of `X`). The
/// ranks' products are added up: with [`Tokens::Divided`] each rank keeps the sums of its part of the tokens
/// (reduce-scatter), with [`Tokens::Whole`] all of them (all-reduce).
///
/// The sums are rounded to `D`, and so is each rank's product.
#[derive(Debug)]
pub struct RowParallel<A, D = A> {
    product: Product,
    tokens: Tokens,
    add: Option<Kept<RowAdd>>,
    of: PhantomData<(A, D)>,
}

impl<A: Element, D: Element> RowParallel<A, D> {
    /// A rank's part of a layer.
    ///
    /// # Errors
    /// Columns that do not divide by the number of ranks; numbers that no kernel multiplies, or that are not
    /// `A` and `D`; the device has not enough memory.
    pub fn new(group: &Group, weights: &Weights<'_>, tokens: Tokens) -> Result<Self, Error> {
        let part = weights.columns_of((group.rank(), group.size()))?;
        Self::of_part(group, weights.kind(), &part, tokens)
    }

    /// The same for the rank's part.
    pub(crate) fn of_part(group: &Group, kind: Kind, part: &Part, tokens: Tokens) -> Result<Self, Error> {
        let product = Product::new::<A, D>(group, kind, part)?;
        Ok(Self { product, tokens, add: None, of: PhantomData })
    }

    /// Adds a bias, one number per output. Rank 0's product has it.
    ///
    /// # Errors
    /// Another length than the outputs'.
    pub fn with_bias(mut self, group: &Group, bias: &[f32]) -> Result<Self, Error> {
        exactly("the bias", bias.len(), self.product.extents[0] as usize)?;
        if group.rank() == 0 {
            let arguments = [("bias".to_owned(), Argument::Columns(bias.to_vec()))].into();
            self.product.fuse("acc + bias[n]:f32", arguments)?;
        }
        Ok(self)
    }

    /// Enqueues the layer. `x` are all tokens' columns of this rank; `y` is the whole output of all tokens, or
    /// of the rank's part of them.
    ///
    /// The first call for a number of tokens chooses and loads a kernel, and agrees on it with the other
    /// ranks.
    ///
    /// # Errors
    /// Lengths that do not fit; tokens that do not divide by the number of ranks; no kernel; the group has
    /// failed.
    pub fn forward<'x>(
        &mut self,
        group: &mut Group,
        x: impl Into<Input<'x, A>>,
        y: SliceMut<'_, D>,
    ) -> Result<(), Error> {
        let (x, [n, k]) = (x.into(), self.product.extents);
        let (size, scaled) = (group.size(), self.product.is_scaled());
        let tokens = x.tokens(k, scaled)?;
        let own = if self.tokens == Tokens::Divided { part_of_tokens(tokens, size)? } else { tokens };
        exactly("the output", y.len(), own as usize * n as usize)?;
        let (from, to) = ((x.values.address(), x.scales.map_or(0, |scales| scales.address())), y.address());
        let (count, what) = (y.len(), "a row-parallel layer");
        match self.tokens {
            _ if size == 1 => self.product.enqueue(group, what, [tokens, 1], from, to, &[]),
            Tokens::Whole => {
                self.product.enqueue(group, what, [tokens, 1], from, to, &[])?;
                let sums = Collective::AllReduce { from: to, to, count, by: Reduction::Sum };
                group.collectives(&[(D::KIND, sums)])
            }
            Tokens::Divided => {
                let all = group.scratch(tokens as usize * n as usize * D::KIND.bytes())?;
                self.product.enqueue(group, what, [tokens, 1], from, all, &[])?;
                group.collectives(&[(D::KIND, Collective::ReduceScatter { from: all, to, count })])
            }
        }
    }
    /// Enqueues the layer, and adds a residual: numbers of the tokens and columns that `y` has. They are added after the sum of the
    /// ranks' products was rounded.
    ///
    /// # Errors
    /// Those of [`forward`](Self::forward); a residual of another length; outputs that are no multiple of 8, or numbers that are
    /// not bf16 or f16.
    pub fn forward_plus<'x>(
        &mut self,
        group: &mut Group,
        x: impl Into<Input<'x, A>>,
        residual: Slice<'_, D>,
        mut y: SliceMut<'_, D>,
    ) -> Result<(), Error> {
        exactly("the residual", residual.len(), y.len())?;
        let format = super::half::<D>("the residual's dtype", D::KIND)?;
        let n = self.product.extents[0];
        let added = Added {
            rows: (y.len() / n as usize) as u32,
            columns: n,
            x: MatrixRef::new(residual.address(), n.into()),
            d: MatrixRef::new(y.address(), n.into()),
        };
        self.forward(group, x, y.part(..)?)?;
        let add = self.add.get_or_insert_with(|| Kept::of(RowAdd { format }));
        group.enqueue_checked(add, &added)
    }
}
