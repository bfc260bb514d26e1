//! Layers whose outputs are divided.

use core::marker::PhantomData;

use super::cut::{Cut, Part, Weights};
use super::product::{Argument, Operands, Product, cut_arguments, scale_count};
use super::{Input, Tokens};
use crate::device::nccl::Collective;
use crate::element::{Element, Kind};
use crate::error::Error;
use crate::group::{Group, exactly};
use crate::tensor::SliceMut;

/// A column-parallel layer: `Y = f(X W^T)`, where each rank has some outputs (rows of `W`), so some columns of
/// `Y`. With [`Tokens::Divided`], tokens of all ranks are gathered first.
///
/// `A` is what is multiplied, `D` the output's numbers.
///
/// ```
/// use falchion_parallel::{ColumnParallel, Cut, Error, Group, Tokens, Weights};
/// use half::bf16;
///
/// let ones = vec![bf16::ONE; 256 * 64];
/// let rank = |mut group: Group| {
///     let weights = Weights::new(&ones, [256, 64])?;
///     let mut layer = ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Divided)?;
///     let x = group.upload(&[bf16::ONE; 8 * 64])?; // 8 of 16 tokens
///     let mut y = group.zeros::<bf16>(16 * 128)?; // 16 tokens, 128 of 256 outputs
///     layer.forward(&mut group, x.view(), y.view_mut())?;
///     group.read(&y)
/// };
/// std::thread::scope(|scope| {
///     let ranks: Vec<_> = Group::emulated(2)?.into_iter().map(|group| scope.spawn(|| rank(group))).collect();
///     for y in ranks {
///         assert!(y.join().expect("no panic")?.iter().all(|&y| y == bf16::from_f32(64.0)));
///     }
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ColumnParallel<A, D = A> {
    product: Product,
    cut: Cut,
    rows: u32,
    tokens: Tokens,
    of: PhantomData<(A, D)>,
}

impl<A: Element, D: Element> ColumnParallel<A, D> {
    /// A rank's part of a layer.
    ///
    /// # Errors
    /// Rows that do not divide by the number of ranks; numbers that no kernel multiplies, or that are not `A`
    /// and `D`; the device has not enough memory.
    pub fn new(group: &Group, weights: &Weights<'_>, cut: &Cut, tokens: Tokens) -> Result<Self, Error> {
        let part = weights.rows_of(cut, (group.rank(), group.size()))?;
        let [rows, _] = weights.extents();
        Ok(Self { cut: cut.clone(), rows, ..Self::of_part(group, weights.kind(), &part, tokens)? })
    }

    /// The same where the rank's part is all that there is of the weight.
    pub(crate) fn of_part(group: &Group, kind: Kind, part: &Part, tokens: Tokens) -> Result<Self, Error> {
        let product = Product::new::<A, D>(group, kind, part)?;
        let rows = part.extents[0] * group.size();
        Ok(Self { product, cut: Cut::Rows, rows, tokens, of: PhantomData })
    }

    /// Adds an epilogue: a formula of `acc`, such as `silu(acc + bias[n])`. Vectors have one number per column
    /// of the whole output; each rank takes its part. Matrices come with a call:
    /// [`forward_with`](Self::forward_with).
    ///
    /// # Errors
    /// No formula, or arguments that do not fit it.
    pub fn with_epilogue(
        mut self,
        group: &Group,
        text: &str,
        arguments: &[(&str, Argument)],
    ) -> Result<Self, Error> {
        self.product.fuse(text, Default::default())?;
        let ranges = self.cut.ranges(self.rows, (group.rank(), group.size()))?;
        let arguments = cut_arguments(arguments, self.rows, &ranges, self.product.halvings())?;
        self.product.fuse(text, arguments)?;
        Ok(self)
    }

    /// Columns of the rank's output.
    pub fn columns(&self) -> u32 {
        self.product.columns()
    }

    /// Enqueues the layer: `y` are all tokens' columns of this rank, row-major.
    ///
    /// The first call for a number of tokens chooses and loads a kernel, and agrees on it with the other
    /// ranks.
    ///
    /// # Errors
    /// Lengths that do not fit; no kernel; the group has failed.
    pub fn forward<'x>(
        &mut self,
        group: &mut Group,
        x: impl Into<Input<'x, A>>,
        y: SliceMut<'_, D>,
    ) -> Result<(), Error> {
        self.forward_with(group, x, &[], y)
    }

    /// The same with arguments of the epilogue that are not the layer's: matrices of all tokens and the columns of this rank, as
    /// `y` is, such as a residual or the other factor of a gate; outputs; vectors with a number per token.
    ///
    /// ```
    /// use falchion_parallel::{ColumnParallel, Cut, Error, Group, Tokens, Weights};
    /// use half::bf16;
    ///
    /// let mut group = Group::emulated(1)?.remove(0);
    /// let ones = vec![bf16::ONE; 64 * 64];
    /// let weights = Weights::new(&ones, [64, 64])?;
    /// let mut layer = ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Whole)?
    ///     .with_epilogue(&group, "store(kept[m,n], acc) + residual[m,n]", &[])?;
    /// let x = group.upload(&[bf16::ONE; 4 * 64])?;
    /// let [mut y, mut kept] = [group.zeros(4 * 64)?, group.zeros(4 * 64)?];
    /// let operands = [("residual", x.view().into()), ("kept", kept.view_mut().into())];
    /// layer.forward_with(&mut group, x.view(), &operands, y.view_mut())?;
    /// assert_eq!([group.read(&y)?[0], group.read(&kept)?[0]], [65.0, 64.0].map(bf16::from_f32));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`forward`](Self::forward); an argument that is missing, of another length or format, or that the epilogue does not
    /// have.
    pub fn forward_with<'x>(
        &mut self,
        group: &mut Group,
        x: impl Into<Input<'x, A>>,
        operands: Operands<'_>,
        y: SliceMut<'_, D>,
    ) -> Result<(), Error> {
        let (x, [_, k]) = (x.into(), self.product.extents);
        let (size, scaled) = (group.size(), self.product.is_scaled());
        let own = x.tokens(k, scaled)?;
        let gathers = self.tokens == Tokens::Divided && size > 1;
        let all = if gathers { own.checked_mul(size) } else { Some(own) };
        let all = all.ok_or_else(|| {
            Error::argument("the number of tokens", own, format!("less than 2^32 / {size}"))
        })?;
        exactly("the output", y.len(), all as usize * self.product.columns() as usize)?;
        let scales = x.scales.map_or(0, |scales| scales.address());
        if !gathers {
            return self.product.enqueue(
                group,
                "a column-parallel layer",
                [all, 1],
                (x.values.address(), scales),
                y.address(),
                operands,
            );
        }
        // Each rank's scales are a matrix of their own, so chunks stay apart if there are scales.
        let chunks = if scaled { [own, size] } else { [all, 1] };
        let first = if operands.is_empty() { chunks } else { [chunks[0], 1] };
        let (values, count) = (x.values.len() * size as usize * A::KIND.bytes(), scale_count(own, k));
        let behind = values.next_multiple_of(256);
        let scratch = group.scratch(behind + if scaled { count * size as usize * 4 } else { 0 })?;
        let (to, scales_to) = (scratch, scratch + behind as u64);
        self.product.ready(group, "a column-parallel layer", first, to, y.address())?;
        let values = Collective::AllGather { from: x.values.address(), to, count: x.values.len() };
        let scales = Collective::AllGather { from: scales, to: scales_to, count };
        let both = [(A::KIND, values), (f32::KIND, scales)];
        group.collectives(if scaled { &both } else { &both[..1] })?;
        self.product.enqueue(group, "a column-parallel layer", chunks, (to, scales_to), y.address(), operands)
    }
}
