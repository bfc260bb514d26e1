//! What a reference is given: the inputs of a check by name, and the choice of results.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::FamilyError;
use super::placed::Placed;

/// The inputs of a check.
///
/// A question that has no answer, for a name that the call does not have or for elements that are not there, makes
/// the check fail with an error that says so, whatever the reference does with the answer.
#[derive(Debug)]
pub struct Inputs<'a> {
    pieces: &'a [Placed],
    /// The names of memory without elements.
    empty: &'a [&'static str],
    seed: u64,
    most: usize,
    /// The first question without an answer.
    wrong: Mutex<Option<FamilyError>>,
}

impl<'a> Inputs<'a> {
    /// The inputs in these pieces of memory. A seed chooses `most` results.
    pub(super) fn new(pieces: &'a [Placed], empty: &'a [&'static str], (seed, most): (u64, usize)) -> Self {
        Self { pieces, empty, seed, most, wrong: Mutex::default() }
    }

    /// `count` elements of a piece of memory from the `first` on, in the order of its lines. Elements without a
    /// number format are unsigned integers of their size. Where there are none, they are NaN, and the check fails.
    pub fn elements(&self, name: &str, first: usize, count: usize) -> Vec<f64> {
        let found = self.piece(name, first, count);
        found.map_or_else(|| vec![f64::NAN; count], |of| of.values(&of.before, first, count))
    }

    /// `count` numbers of 32 bits of a piece of memory from the `first` on: of a table, or of indices. Where there are
    /// none, they are 0, and the check fails.
    pub fn numbers(&self, name: &str, first: usize, count: usize) -> Vec<u32> {
        let found = self.piece(name, first, count).filter(|of| {
            let fits = of.has_words();
            if !fits {
                self.record(FamilyError::Words { name: of.piece.name, elements: of.elements() });
            }
            fits
        });
        found.map_or_else(|| vec![0; count], |of| of.words(first, count))
    }

    /// Some of `count` results, each once, as many as are to be compared; in order.
    pub fn chosen(&self, count: usize) -> Vec<usize> {
        if count <= self.most {
            return (0..count).collect();
        }
        // Every choice is equally likely (R. W. Floyd's).
        let (mut random, mut chosen) = (fastrand::Rng::with_seed(self.seed), BTreeSet::new());
        for last in count - self.most..count {
            let drawn = random.usize(0..=last);
            if !chosen.insert(drawn) {
                chosen.insert(last);
            }
        }
        chosen.into_iter().collect()
    }

    /// What is expected of each of the results that are [chosen](Self::chosen), on all processors.
    pub fn rows<T: Send>(&self, count: usize, expected: impl Fn(usize) -> T + Sync) -> Vec<T> {
        self.chosen(count).into_par_iter().map(&expected).collect()
    }

    /// The first question that had no answer.
    ///
    /// # Errors
    /// That one.
    pub(super) fn answered(self) -> Result<(), FamilyError> {
        let wrong = self.wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
        wrong.map_or(Ok(()), Err)
    }

    /// The piece of a name, if it has these elements.
    fn piece(&self, name: &str, first: usize, count: usize) -> Option<&Placed> {
        let found = self.pieces.iter().find(|of| of.piece.name == name);
        let all = || self.pieces.iter().map(|of| of.piece.name).chain(self.empty.iter().copied());
        let Some(name) = all().find(|&of| of == name) else {
            let has = all().collect::<Vec<_>>().join(", ");
            self.record(FamilyError::Unknown { name: name.to_owned(), has });
            return None;
        };
        let has = found.map_or(0, Placed::count);
        if first.checked_add(count).is_none_or(|end| end > has) {
            self.record(FamilyError::Range { name, first, count, has });
            return None;
        }
        found
    }

    fn record(&self, wrong: FamilyError) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
    }
}
