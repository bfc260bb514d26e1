//! A row vector that is loaded before its tile is multiplied.

use ptx::{Builder, Value, Var};

/// Most pairs per thread of a row vector that is loaded before its tile is multiplied: those of 256 columns.
pub(super) const EARLY: usize = 32;

/// A row vector of 16-bit elements of which each thread loads its pairs before its tile is multiplied, so
/// that nothing waits for them afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyRow<'f> {
    base: Value<'f, u64>,
    words: [Option<Var<'f, u32>>; EARLY],
}

impl<'f> EarlyRow<'f> {
    pub(super) fn new(f: &'f Builder, base: Value<'f, u64>, pairs: usize) -> Self {
        Self { base, words: core::array::from_fn(|pair| (pair < pairs).then(|| f.uninitialised())) }
    }

    /// The loaded pairs, for a tile of `pairs` pairs. `None` for a narrower tile, which begins elsewhere and
    /// whose pairs were not loaded.
    pub(super) fn of(&self, pairs: u32) -> Option<impl Iterator<Item = Var<'f, u32>>> {
        let words = self.words.into_iter().flatten();
        (words.clone().count() == pairs as usize).then_some(words)
    }

    /// Emits the loads for a tile in which the thread's first column is `column`. `whole` says that all
    /// columns of the tile are inside and that pairs are aligned.
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
