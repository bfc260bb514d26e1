//! The cross entropy of a vocabulary that is divided.

use falchion::collective::MatrixRef;
use falchion::rows::{Differentiated, Logits, Merged, Peaked, RowGradient, RowMerge, RowPeak};
use falchion_core::Kept;

use super::half;
use crate::device::nccl::Collective;
use crate::element::Element;
use crate::error::Error;
use crate::group::{Group, exactly};
use crate::tensor::{Slice, SliceMut, Tensor};

/// The cross entropy of logits whose columns are divided, as those of a [`ColumnParallel`](crate::ColumnParallel) head: each rank
/// has the logits of neighbouring words. Ranks exchange 16 bytes per token, and no logits.
///
/// `T` is `bf16` or `f16`.
#[derive(Debug)]
pub struct CrossEntropy<T> {
    /// Words of the rank.
    words: u32,
    statistics: Kept<RowPeak>,
    merge: Kept<RowMerge>,
    slope: Kept<RowGradient>,
    /// Logarithms of the sums of `e^logit`, from the last forward pass.
    sums: Option<Tensor<f32>>,
    of: core::marker::PhantomData<T>,
}

impl<T: Element> CrossEntropy<T> {
    /// The loss over a vocabulary of so many words.
    ///
    /// # Errors
    /// Words that do not divide by 8 times the number of ranks; other numbers than `bf16` and `f16`.
    pub fn new(group: &Group, vocabulary: u32) -> Result<Self, Error> {
        let format = half::<T>("the logits' dtype", T::KIND)?;
        if vocabulary == 0 || !vocabulary.is_multiple_of(8 * group.size()) {
            let needed = format!("a multiple of {}, 8 times the number of ranks", 8 * group.size());
            return Err(Error::argument("the vocabulary", vocabulary, needed));
        }
        Ok(Self {
            words: vocabulary / group.size(),
            statistics: Kept::of(RowPeak(format)),
            merge: Kept::of(RowMerge),
            slope: Kept::of(RowGradient(format)),
            sums: None,
            of: core::marker::PhantomData,
        })
    }

    /// Enqueues the loss of each token on every rank. `logits` are all tokens' logits of the rank's words, row-major;
    /// `targets` the right words among all. The loss of a target that is not in the vocabulary is infinite.
    ///
    /// # Errors
    /// Lengths that do not fit; the group has failed.
    pub fn forward(
        &mut self,
        group: &mut Group,
        logits: Slice<'_, T>,
        targets: Slice<'_, u32>,
        loss: SliceMut<'_, f32>,
    ) -> Result<(), Error> {
        let of = self.logits(group, logits, targets)?;
        let (rows, ranks) = (of.rows, group.size());
        exactly("the loss", loss.len(), rows as usize)?;
        if self.sums.as_ref().is_none_or(|sums| sums.len() != loss.len()) {
            self.sums = Some(group.zeros(loss.len())?);
        }
        let Some(sums) = &mut self.sums else { return Ok(()) };
        let log_sum_exp = sums.view_mut().address();
        let count = 4 * rows as usize;
        let to = group.scratch((4 * count).next_multiple_of(256) + 4 * count * ranks as usize)?;
        let all = if ranks > 1 { to + (4 * count).next_multiple_of(256) as u64 } else { to };
        group.enqueue_checked(&self.statistics, &Peaked { of, to })?;
        if ranks > 1 {
            group.collectives(&[(f32::KIND, Collective::AllGather { from: to, to: all, count })])?;
        }
        group.enqueue_checked(
            &self.merge,
            &Merged { rows, ranks, from: all, loss: loss.address(), log_sum_exp },
        )
    }

    /// Enqueues the gradient of `factor` times the sum of the last [`forward`](Self::forward)'s losses, by the rank's logits.
    ///
    /// # Errors
    /// Lengths that do not fit, or that are not those of the forward pass; the group has failed.
    pub fn backward(
        &mut self,
        group: &mut Group,
        logits: Slice<'_, T>,
        targets: Slice<'_, u32>,
        factor: f32,
        gradient: SliceMut<'_, T>,
    ) -> Result<(), Error> {
        let of = self.logits(group, logits, targets)?;
        exactly("the gradient", gradient.len(), logits.len())?;
        let known = self.sums.as_ref().filter(|sums| sums.len() == of.rows as usize);
        let Some(sums) = known else {
            let found = self.sums.as_ref().map_or(0, Tensor::len);
            return Err(Error::argument("the tokens of the last forward pass", found, of.rows.to_string()));
        };
        let (log_sum_exp, to) = (sums.view().address(), MatrixRef::new(gradient.address(), of.logits.ld));
        group.enqueue_checked(&self.slope, &Differentiated { of, log_sum_exp, factor, to })
    }

    fn logits(&self, group: &Group, logits: Slice<'_, T>, targets: Slice<'_, u32>) -> Result<Logits, Error> {
        let rows = u32::try_from(targets.len())
            .map_err(|_| Error::argument("the number of targets", targets.len(), "less than 2^32"))?;
        exactly("the logits", logits.len(), targets.len() * self.words as usize)?;
        Ok(Logits {
            rows,
            columns: self.words,
            logits: MatrixRef::new(logits.address(), self.words.into()),
            first: self.words * group.rank(),
            limit: self.words * group.size(),
            targets: targets.address(),
        })
    }
}
