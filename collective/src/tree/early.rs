//! A row vector that is loaded before its tile is multiplied.

use ptx::{Builder, Value, Var};

/// The most pairs that a thread loads of a row vector before its tile is multiplied: those of 256 columns.
pub(super) const EARLY: usize = 32;

/// A row vector of elements of 16 bits, of which a thread loads its pairs before its tile is multiplied, so that nothing
/// waits for them behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyRow<'f> {
    base: Value<'f, u64>,
    words: [Option<Var<'f, u32>>; EARLY],
}

impl<'f> EarlyRow<'f> {
    pub(super) fn new(f: &'f Builder, base: Value<'f, u64>, pairs: usize) -> Self {
        Self { base, words: core::array::from_fn(|pair| (pair < pairs).then(|| f.uninitialised())) }
    }

    /// What was loaded, if it is that of a tile of so many pairs: of a narrower one, which begins elsewhere, nothing was.
    pub(super) fn of(&self, pairs: u32) -> Option<impl Iterator<Item = Var<'f, u32>>> {
        let words = self.words.into_iter().flatten();
        (words.clone().count() == pairs as usize).then_some(words)
    }

    /// Emits the loads of a tile whose first column of this thread is `column`, where `whole` says that all of its columns
    /// are inside and pairs are aligned.
    pub(crate) fn load(&self, f: &'f Builder, column: Value<'f, u32>, whole: Value<'f, bool>) {
        let first = self.base + column.mul_wide(2);
        self.words.iter().flatten().for_each(|word| word.set(0));
        f.if_(whole, || {
            for (offset, word) in (0..).step_by(16).zip(self.words.iter().flatten()) {
                word.set(f.load_global::<u32>(first, offset));
            }
        });
    }
}
