//! A table of vectors, whose words are divided.

use falchion::collective::MatrixRef;
use falchion::rows::{Gathered, Gathering, RowGather};
use falchion_core::Kept;

use super::cut::{Cut, Weights};
use super::product::part_of_tokens;
use super::{Tokens, half};
use crate::device::Memory;
use crate::device::nccl::{Collective, Reduction};
use crate::element::Element;
use crate::error::Error;
use crate::group::{Group, exactly};
use crate::tensor::{Slice, SliceMut};

/// An embedding whose vocabulary is divided: each rank has the vectors of neighbouring words. A rank takes what it has,
/// and the ranks' results are added up, where one alone is not zero: the sum is exact.
///
/// ```
/// use falchion_parallel::{Embedding, Error, Group, Tokens, Weights};
/// use half::bf16;
///
/// let table: Vec<_> = (0..16 * 8).map(|i| bf16::from_f32((i / 8) as f32)).collect(); // the word's number, 8 times
/// let rank = |mut group: Group| {
///     let mut words = Embedding::<bf16>::new(&group, &Weights::new(&table, [16, 8])?, Tokens::Whole)?;
///     let ids = group.upload(&[3u32, 12])?;
///     let mut y = group.zeros::<bf16>(2 * 8)?;
///     words.forward(&mut group, ids.view(), y.view_mut())?;
///     group.read(&y)
/// };
/// std::thread::scope(|scope| {
///     let ranks: Vec<_> = Group::emulated(2)?.into_iter().map(|group| scope.spawn(|| rank(group))).collect();
///     for y in ranks {
///         let y = y.join().expect("no panic")?;
///         assert_eq!([y[0], y[15]].map(f32::from), [3.0, 12.0]);
///     }
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Embedding<T> {
    table: Memory,
    /// Words of all ranks, words of the rank, and its first one.
    words: [u32; 3],
    columns: u32,
    tokens: Tokens,
    gather: Kept<RowGather>,
    of: core::marker::PhantomData<T>,
}

impl<T: Element> Embedding<T> {
    /// A rank's part of a table of `bf16` or `f16`, one row per word. With [`Tokens::Divided`] each rank keeps the
    /// vectors of its part of the tokens.
    ///
    /// # Errors
    /// Words that do not divide by the number of ranks; other numbers than `T`, or than `bf16` and `f16`; columns that are
    /// no multiple of 8; the device has not enough memory.
    pub fn new(group: &Group, table: &Weights<'_>, tokens: Tokens) -> Result<Self, Error> {
        let format = half::<T>("the table's dtype", table.kind())?;
        let part = table.rows_of(&Cut::Rows, (group.rank(), group.size()))?;
        let ([all, columns], [own, _]) = (table.extents(), part.extents);
        if columns % 8 != 0 {
            return Err(Error::argument("the table's columns", columns, "a multiple of 8"));
        }
        let memory = group.device().upload(&part.bytes)?;
        let words = [all, own, own * group.rank()];
        let gather = Kept::of(RowGather { format, how: Gathering::Summed });
        Ok(Self { table: memory, words, columns, tokens, gather, of: core::marker::PhantomData })
    }

    /// Enqueues the vectors of all tokens' words: to `y`, which has all tokens or the rank's part of them. The vector of a
    /// word that is not in the vocabulary is not a number.
    ///
    /// # Errors
    /// Lengths that do not fit; tokens that do not divide by the number of ranks; the group has failed.
    pub fn forward(
        &mut self,
        group: &mut Group,
        ids: Slice<'_, u32>,
        y: SliceMut<'_, T>,
    ) -> Result<(), Error> {
        let tokens = u32::try_from(ids.len())
            .map_err(|_| Error::argument("the number of tokens", ids.len(), "less than 2^32"))?;
        let (size, columns) = (group.size(), u64::from(self.columns));
        let divided = self.tokens == Tokens::Divided;
        let own = if divided { part_of_tokens(tokens, size)? } else { tokens };
        exactly("the output", y.len(), own as usize * self.columns as usize)?;
        let to = match divided && size > 1 {
            true => group.scratch(tokens as usize * self.columns as usize * T::KIND.bytes())?,
            false => y.address(),
        };
        let [limit, words, first] = self.words;
        let call = Gathered {
            rows: tokens,
            columns: self.columns,
            choices: 1,
            table: (MatrixRef::new(self.table.buffer.address, columns), words),
            first,
            limit,
            index: ids.address(),
            weights: 0,
            d: MatrixRef::new(to, columns),
        };
        group.enqueue_checked(&self.gather, &call)?;
        let count = y.len();
        let sum = match divided {
            _ if size == 1 => return Ok(()),
            true => Collective::ReduceScatter { from: to, to: y.address(), count },
            false => Collective::AllReduce { from: to, to, count, by: Reduction::Sum },
        };
        group.collectives(&[(T::KIND, sum)])
    }
}
