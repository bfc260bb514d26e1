//! Numbers of the heads of queries, which scores take from device memory: what a call says of them, and how a program finds them.

use collective::Format;
use kernel::operands::{Contents, Extents, Visit};
use ptx::{Builder, Value};

use crate::scores::AnyScores;

/// The parameter: how many numbers are between those of two sequences.
const OF_SEQUENCE: &str = "head_numbers";

/// Arrays in device memory with a number, `f32`, for each head of queries: those of [`Scores::HEADS`](crate::Scores::HEADS), in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadNumbers {
    /// Their addresses.
    pub addresses: Vec<u64>,
    /// Whether each sequence has its own: arrays are `(sequences, heads)` then, and `(heads)` otherwise.
    pub per_sequence: bool,
}

impl HeadNumbers {
    /// One array for all sequences for each of these addresses.
    pub fn new(addresses: impl Into<Vec<u64>>) -> Self {
        Self { addresses: addresses.into(), per_sequence: false }
    }

    /// Where the number of a head of a sequence is.
    #[cfg(feature = "records")]
    pub(crate) fn index(&self, sequence: usize, head: usize, heads: usize) -> usize {
        if self.per_sequence { sequence * heads + head } else { head }
    }

    /// Visits the arrays of this number of sequences and heads, if these are read, and states the parameters.
    pub(crate) fn visit(
        &mut self,
        scores: &dyn AnyScores,
        [sequences, heads]: [u32; 2],
        is_read: bool,
        visit: &mut dyn Visit,
    ) {
        let names = scores.heads();
        if names.is_empty() {
            return;
        }
        visit.form(self.per_sequence.into());
        let of_sequence = if self.per_sequence { heads } else { 0 };
        let all = u64::from(heads) * if self.per_sequence { u64::from(sequences) } else { 1 };
        let extents = Extents::line(32, if is_read { all } else { 0 });
        // Arrays that are missing are nowhere, which a launch refuses by their names.
        if self.addresses.len() < names.len() {
            self.addresses.resize(names.len(), 0);
        }
        for (name, address) in names.into_iter().zip(&mut self.addresses) {
            visit.input(name, (name, address), extents, Contents::Source(Format::F32));
        }
        visit.number(OF_SEQUENCE, Some(of_sequence));
    }
}

/// The numbers of a head of a sequence on the device.
pub(crate) fn of_head<'f>(
    scores: &dyn AnyScores,
    [sequence, head]: [Value<'f, u32>; 2],
) -> Vec<Value<'f, f32>> {
    let f: &'f Builder = head.builder();
    let each = |name| {
        let at = sequence * f.parameter::<u32>(OF_SEQUENCE) + head;
        f.load_global(f.parameter::<u64>(name) + at.mul_wide(4u32), 0)
    };
    scores.heads().into_iter().map(each).collect()
}
