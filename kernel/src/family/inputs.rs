//! What a reference is given: the inputs of a check by name, and the choice of results.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use collective::tree::HostMemory;
use rayon::prelude::*;
use reference::Format;
use thiserror::Error;

use crate::operands::Piece;

/// The inputs of a check. Pieces of one name have their elements one after the other, in the order in which they are visited.
///
/// A question that has no answer, for a name that the call does not have or for elements that are not there, makes
/// the check fail with an error that says so, whatever the reference does with the answer.
#[derive(Debug)]
pub struct Inputs<'a> {
    pieces: Vec<&'a Filled>,
    /// The numbers of pieces by their addresses.
    places: BTreeMap<u64, usize>,
    /// The names of memory without elements.
    empty: &'a [&'static str],
    seed: u64,
    most: usize,
    /// The first question without an answer.
    wrong: Mutex<Option<Unanswered>>,
}

impl<'a> Inputs<'a> {
    /// The inputs in these pieces of memory; and the names of those without elements. A seed chooses `most` results.
    pub fn new(
        pieces: impl IntoIterator<Item = &'a Filled>,
        empty: &'a [&'static str],
        (seed, most): (u64, usize),
    ) -> Self {
        let pieces: Vec<&Filled> = pieces.into_iter().collect();
        let places = pieces.iter().enumerate().map(|(at, of)| (of.piece.address, at)).collect();
        Self { pieces, places, empty, seed, most, wrong: Mutex::default() }
    }

    /// `count` elements of a piece of memory from the `first` on, in the order of its lines. Elements without a
    /// number format are unsigned integers of their size. Where there are none, they are NaN, and the check fails.
    pub fn elements(&self, name: &str, first: usize, count: usize) -> Vec<f64> {
        let Some(parts) = self.parts(name, first, count) else { return vec![f64::NAN; count] };
        parts.into_iter().flat_map(|(of, first, count)| of.values(&of.bytes, first, count)).collect()
    }

    /// `count` numbers of 32 bits of a piece of memory from the `first` on: of a table, or of indices. Where there are
    /// none, they are 0, and the check fails.
    pub fn numbers(&self, name: &str, first: usize, count: usize) -> Vec<u32> {
        let Some(parts) = self.parts(name, first, count) else { return vec![0; count] };
        if let Some((of, ..)) = parts.iter().find(|(of, ..)| !of.has_words()) {
            self.record(Unanswered::Words { name: of.piece.name, elements: of.elements() });
            return vec![0; count];
        }
        parts.into_iter().flat_map(|(of, first, count)| of.words(first, count)).collect()
    }

    /// The element at an address: its piece's name, and its number.
    pub fn place(&self, address: u64) -> Option<(&'static str, usize)> {
        let (at, of) = self.at(address)?;
        let number = of.number(usize::try_from(address - of.piece.address).ok()?)?;
        let before = self.pieces[..at].iter().filter(|other| other.piece.name == of.piece.name);
        Some((of.piece.name, before.map(|of| of.count()).sum::<usize>() + number))
    }

    /// The piece that has this address, and its number.
    fn at(&self, address: u64) -> Option<(usize, &'a Filled)> {
        let (&begin, &at) = self.places.range(..=address).next_back()?;
        let of = self.pieces[at];
        (address - begin < of.piece.bytes as u64).then_some((at, of))
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

    /// Whether all questions had answers, for whoever has asked a reference.
    ///
    /// # Errors
    /// The first question that had none.
    pub fn answered(self) -> Result<(), Unanswered> {
        let wrong = self.wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
        wrong.map_or(Ok(()), Err)
    }

    /// The pieces of a name that have these elements, and which of each.
    fn parts(&self, name: &str, first: usize, count: usize) -> Option<Vec<(&'a Filled, usize, usize)>> {
        let all = || self.pieces.iter().map(|of| of.piece.name).chain(self.empty.iter().copied());
        let Some(name) = all().find(|&of| of == name) else {
            let has = all().collect::<Vec<_>>().join(", ");
            self.record(Unanswered::Unknown { name: name.to_owned(), has });
            return None;
        };
        let (mut parts, mut has) = (Vec::new(), 0);
        let end = first.saturating_add(count);
        for &of in self.pieces.iter().filter(|of| of.piece.name == name) {
            let own = of.count();
            let (from, to) = (first.max(has), end.min(has + own));
            if from < to {
                parts.push((of, from - has, to - from));
            }
            has += own;
        }
        if first.checked_add(count).is_none_or(|end| end > has) {
            self.record(Unanswered::Range { name, first, count, has });
            return None;
        }
        Some(parts)
    }

    fn record(&self, wrong: Unanswered) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
    }
}

/// What is in memory before a launch.
impl HostMemory for Inputs<'_> {
    fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        let (_, of) = self.at(address)?;
        let begin = usize::try_from(address - of.piece.address).ok()?;
        of.bytes.get(begin..begin + bytes as usize).map(integer)
    }
}

/// A question of a reference that [`Inputs`] cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// The reference asks for memory that the call does not have.
    #[error("the reference asks for `{name}`, the call has {has}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of all memory.
        has: String,
    },
    /// The reference asks for elements that are not there.
    #[error("the reference asks for {count} elements of {name} from {first} on, it has {has}")]
    Range {
        /// The piece.
        name: &'static str,
        /// The first element's number.
        first: usize,
        /// Number of elements.
        count: usize,
        /// Number of elements of the piece.
        has: usize,
    },
    /// The reference asks for numbers of 32 bits where other elements are.
    #[error("the reference asks for numbers of 32 bits of {name}, it has elements of {elements}")]
    Words {
        /// The piece.
        name: &'static str,
        /// What its elements are.
        elements: String,
    },
}

/// A piece of memory and what is in it before a launch. Its elements have numbers, in the order of its lines.
#[derive(Clone, Debug)]
pub struct Filled {
    /// The piece.
    pub piece: Piece,
    /// Its bytes. What follows the piece's own is a margin.
    pub bytes: Vec<u8>,
    /// The reference's name of its elements' format.
    format: Option<Format>,
}

impl Filled {
    /// A piece with these bytes.
    pub fn new(piece: Piece, bytes: Vec<u8>) -> Self {
        let format = piece.format().and_then(|format| Format::named(format.name()));
        Self { piece, bytes, format }
    }

    /// Bytes of an element. Several elements of fewer than 8 bits count as one.
    pub fn size(&self) -> usize {
        self.format.map_or(self.piece.extents.bits.max(8) / 8, Format::bytes) as usize
    }

    /// Elements per line; and how often lines are repeated, at which distances in elements.
    fn lines(&self) -> (usize, [(usize, usize); 3]) {
        let (length, repeats) = self.piece.lines;
        let bits = u64::from(self.piece.extents.bits);
        let whole = |elements: u64| (elements * bits / 8) as usize / self.size();
        (whole(length), repeats.map(|(count, distance)| (count as usize, whole(distance))))
    }

    /// Number of its elements.
    pub fn count(&self) -> usize {
        let (length, repeats) = self.lines();
        length * repeats.iter().map(|(count, _)| count).product::<usize>()
    }

    /// What its elements are, in words.
    pub fn elements(&self) -> String {
        self.format.map_or_else(|| format!("{} bytes", self.size()), |format| format.name().to_owned())
    }

    /// Whether its elements have a format. Otherwise they count as unsigned integers.
    pub const fn has_format(&self) -> bool {
        self.format.is_some()
    }

    /// Whether its elements are integers of 32 bits.
    fn has_words(&self) -> bool {
        self.size() == 4 && matches!(self.format, None | Some(Format::S32))
    }

    /// Where `count` elements from the `first` on lie, in the order of lines: the bytes of each line's.
    pub fn spans(&self, first: usize, count: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let ((length, [inner, middle, outer]), size) = (self.lines(), self.size());
        let (mut at, end) = (first, first.saturating_add(count).min(self.count()));
        core::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|&left| left > 0)?;
            let (line, element) = (at / length, at % length);
            let (matrix, line) = (line / inner.0, line % inner.0);
            let begin = matrix / middle.0 * outer.1 + matrix % middle.0 * middle.1 + line * inner.1;
            let begin = (begin + element) * size;
            let taken = left.min(length - element);
            at += taken;
            Some(begin..begin + taken * size)
        })
    }

    /// The number of the element that begins at a byte; `None` between lines.
    fn number(&self, byte: usize) -> Option<usize> {
        let (length, [inner, middle, outer]) = self.lines();
        let element = byte / self.size();
        let matrices = (0..outer.0).flat_map(|i| (0..middle.0).map(move |j| (i, j)));
        { matrices }.find_map(|(i, j)| {
            let at = element.checked_sub(i * outer.1 + j * middle.1)?;
            let line = if inner.0 > 1 { at.checked_div(inner.1)? } else { 0 };
            let column = at - line * inner.1;
            let found = line < inner.0 && column < length;
            found.then_some(((i * middle.0 + j) * inner.0 + line) * length + column)
        })
    }

    /// Puts elements from the first on, as bits, in the order of lines.
    pub fn put(&mut self, elements: impl IntoIterator<Item = u64>) {
        let (spans, size) = (self.spans(0, self.count()), self.size());
        let mut elements = elements.into_iter();
        for span in spans {
            for place in self.bytes[span].chunks_exact_mut(size) {
                let Some(bits) = elements.next() else { return };
                place.copy_from_slice(&bits.to_le_bytes()[..size]);
            }
        }
    }

    /// The values of `count` elements from the `first` on in some bytes of the piece; fewer, if there are no more.
    pub fn values(&self, bytes: &[u8], first: usize, count: usize) -> Vec<f64> {
        let of_span = |span: Range<usize>| match self.format {
            Some(format) => format.values(&bytes[span]),
            None => bytes[span].chunks_exact(self.size()).map(|of| integer(of) as f64).collect(),
        };
        self.spans(first, count).flat_map(of_span).collect()
    }

    /// The same as numbers of 32 bits, before the launch.
    fn words(&self, first: usize, count: usize) -> Vec<u32> {
        let of_span = |span: Range<usize>| self.bytes[span].chunks_exact(4).map(|of| integer(of) as u32);
        self.spans(first, count).flat_map(of_span).collect()
    }
}

/// A number in little-endian bytes.
fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some results are chosen, each once; another seed chooses others.
    #[test]
    fn results_are_chosen_once() {
        let chosen = |count, sample| Inputs::new([], &[], sample).chosen(count);
        for (count, most) in [(0, 0), (5, 0), (5, 5), (5, 9), (1000, 999), (1000, 500), (1000, 1)] {
            let all = chosen(count, (7, most));
            assert_eq!(all.len(), most.min(count), "{most} of {count}");
            assert!(all.is_sorted_by(|a, b| a < b) && all.iter().all(|&of| of < count), "{most} of {count}");
        }
        assert_ne!(chosen(1000, (7, 5)), chosen(1000, (8, 5)));
        // Each is chosen about as often as the others.
        let mut counts = [0; 10];
        (0..1000).for_each(|seed| chosen(10, (seed, 3)).into_iter().for_each(|of| counts[of] += 1));
        assert!(counts.iter().all(|count| (230..370).contains(count)), "{counts:?}");
    }
}
