//! A piece of memory of a check, and the comparison with what is expected of it.

use kernel::operands::{Contents, Piece};
use kernel::{Allowed, Buffer, Expected, Filled};

use super::{Agreed, FamilyError};

/// Bytes after each piece of memory that must not change, on engines that do not notice an access there.
pub(super) const MARGIN: usize = 64;

/// What is in memory that no kernel has written.
pub(super) const POISON: u8 = 0xA5;

/// Elements in a row of which at least one must have changed, where one alone may have had its new value before.
const RUN: usize = 16;

/// A piece of memory on an engine.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) buffer: Buffer,
    /// The piece, its bytes before a launch, and those after it that must not change.
    pub(super) before: Filled,
    pub(super) becomes: Becomes,
}

/// What becomes of a piece of memory where broken programs are launched several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// It is read.
    Read,
    /// It is compared, and restored before a further launch.
    Compared,
    /// It is compared, and a further launch finds it as the launch before has left it.
    Left,
    /// It is left as it is, and not compared.
    Own,
}

/// Whether a reference can say what is written to memory, and it is not what a kernel keeps for itself.
pub(super) fn is_result(writes: bool, contents: Contents) -> bool {
    writes && !matches!(contents, Contents::Workspace | Contents::Report)
}

impl Placed {
    /// A piece in a buffer.
    pub(super) fn new(buffer: Buffer, before: Filled) -> Self {
        let becomes = match (before.piece.writes, before.piece.contents) {
            (false, _) => Becomes::Read,
            (true, Contents::Workspace) => Becomes::Left,
            (true, _) => Becomes::Compared,
        };
        Self { buffer, before, becomes }
    }

    /// The bytes of its buffer before a launch.
    pub(super) fn bytes(&self) -> Vec<u8> {
        [&vec![POISON; self.before.piece.begin()][..], &self.before.bytes].concat()
    }

    /// Whether the kernel writes results there.
    pub(super) fn is_result(&self) -> bool {
        is_result(self.before.piece.writes, self.before.piece.contents)
    }

    /// The first of [`RUN`] elements that are as they were before, of which one at least is not compared, and the number of these. Of outputs
    /// in floats each must have changed that was poison: a NaN that no kernel writes.
    fn unwritten<'e>(
        &self,
        after: &[u8],
        own: impl Iterator<Item = (usize, &'e [Allowed])>,
    ) -> Option<(usize, usize)> {
        let (of, size) = (&self.before, self.before.size());
        let poisoned = matches!(of.piece.contents, Contents::Output(format) if format.is_float());
        let run = if poisoned { 1 } else { RUN };
        // Numbers that are compared may be what they were before.
        let mut compared = vec![false; if poisoned { 0 } else { of.count() }];
        for (first, elements) in own {
            let all = compared.get_mut(first..).into_iter().flatten().zip(elements);
            all.for_each(|(compared, element)| *compared = !matches!(element, Allowed::Kept));
        }
        let known = |index: usize, count: usize| {
            compared.get(index..index + count).is_some_and(|all| all.iter().all(|of| *of))
        };
        let (mut index, mut count, mut same) = (0, 0, true);
        for span in of.spans(0, of.count()) {
            let (mut begin, end) = (span.start, span.end);
            while begin < end {
                let to = end.min(begin + (run - count) * size);
                let before = &of.bytes[begin..to];
                same &= before == &after[begin..to] && !(poisoned && before.iter().any(|&byte| byte != 0xFF));
                (count, begin) = (count + (to - begin) / size, to);
                if count == run {
                    if same && !known(index, count) {
                        return Some((index, count));
                    }
                    (index, count, same) = (index + run, 0, true);
                }
            }
        }
        (count > 0 && same && !known(index, count)).then_some((index, count))
    }

    /// Compares its buffer's bytes after a launch with all that is expected of its elements, the first of which has the number
    /// `begin`, and the last of which has the last number of its name if it `ends` it. Adds what was found.
    pub(super) fn compare(
        &self,
        expected: &[Expected],
        (begin, ends): (usize, bool),
        after: &[u8],
        agreed: &mut Agreed,
    ) -> Result<(), FamilyError> {
        let of = &self.before;
        let Piece { name, bytes, writes, .. } = of.piece;
        let (lead, after) = after.split_at(of.piece.begin());
        if let Some(byte) = lead.iter().rposition(|&byte| byte != POISON) {
            return Err(FamilyError::Outside { name, byte: byte as i64 - lead.len() as i64 });
        }
        let mut around = of.bytes.clone();
        let end = if ends { usize::MAX } else { begin + of.count() };
        let own = || {
            let all = expected.iter().filter(|own| own.name == name).flat_map(|own| &own.elements);
            all.filter_map(move |(first, elements)| {
                let (from, to) = (begin.max(*first), end.min(first + elements.len()));
                (from < to).then(|| (from - begin, &elements[from - first..to - first]))
            })
        };
        if self.is_result() || writes && own().next().is_some() {
            let kept = self.kept(own(), after)?;
            if self.is_result()
                && let Some((index, count)) = self.unwritten(kept.as_deref().unwrap_or(after), own())
            {
                return Err(FamilyError::Unwritten { name, index: begin + index, count });
            }
            of.spans(0, of.count()).for_each(|span| around[span.clone()].copy_from_slice(&after[span]));
            let judged = self.judge(own(), begin, after)?;
            (agreed.ratio, agreed.least) = (agreed.ratio.max(judged.ratio), agreed.least.min(judged.ratio));
            if judged.ratio >= agreed.ratio {
                (agreed.error, agreed.bound) = (judged.error, judged.bound);
            }
            agreed.wraps = agreed.wraps.or(judged.wraps);
            agreed.compared += judged.compared;
            agreed.total += of.count() - judged.kept;
            if judged.compared == 0 && judged.kept < of.count() {
                return Err(FamilyError::LeftOut { name, count: of.count() });
            }
        } else if writes {
            around[..bytes].copy_from_slice(&after[..bytes]);
        }
        match around.iter().zip(after).position(|(before, after)| before != after) {
            Some(byte) => Err(FamilyError::Outside { name, byte: byte as i64 }),
            None => Ok(()),
        }
    }

    /// Checks that the elements that are to be kept did not change. Returns the bytes with changes there, if there are any.
    fn kept<'e>(
        &self,
        own: impl Iterator<Item = (usize, &'e [Allowed])>,
        after: &[u8],
    ) -> Result<Option<Vec<u8>>, FamilyError> {
        let (of, mut changed) = (&self.before, None);
        for (first, elements) in own {
            let kept = (first..).zip(elements).filter(|(_, element)| matches!(element, Allowed::Kept));
            for span in kept.flat_map(|(at, _)| of.spans(at, 1)) {
                if let Some(byte) = span.clone().find(|&byte| of.bytes[byte] != after[byte]) {
                    return Err(FamilyError::Outside { name: of.piece.name, byte: byte as i64 });
                }
                let changed: &mut Vec<u8> = changed.get_or_insert_with(|| after.to_vec());
                changed[span].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        Ok(changed)
    }

    /// Compares elements after a launch with what they may be.
    fn judge<'e>(
        &self,
        own: impl Iterator<Item = (usize, &'e [Allowed])>,
        begin: usize,
        after: &[u8],
    ) -> Result<Judged, FamilyError> {
        let (of, name) = (&self.before, self.before.piece.name);
        let mut judged = Judged { compared: 0, kept: 0, ratio: 0.0, error: 0.0, bound: 0.0, wraps: None };
        let mut compared = Vec::new();
        for (first, elements) in own {
            let found = of.values(after, first, elements.len());
            if found.len() < elements.len() {
                let (index, count) = (begin + first + found.len(), begin + of.count());
                return Err(FamilyError::Extents { name, index, count });
            }
            for ((at, allowed), found) in (first..).zip(elements).zip(found) {
                if matches!(allowed, Allowed::Kept) {
                    judged.kept += 1;
                    continue;
                }
                let (index, (expected, bound)) = (begin + at, allowed.value());
                // Memory of a kernel's own says no format.
                let found = match allowed {
                    Allowed::Rounded(wanted) if !of.has_format() => wanted.format.decode(found as u64),
                    Allowed::Near(..) | Allowed::Rounded(_) | Allowed::Product(..) | Allowed::Kept => found,
                };
                // An infinity and NaN have no neighbours, so no bound is needed.
                if expected.is_finite() && (bound.is_nan() || bound < 0.0) {
                    return Err(FamilyError::Bound { name, index, bound });
                }
                if !allowed.admits(found) {
                    return Err(FamilyError::Element { name, index, found, expected, bound });
                }
                // An infinite bound compares nothing.
                if bound.is_finite() || !expected.is_finite() {
                    compared.push(at);
                }
                judged.wraps = judged.wraps.or(allowed.wraps().map(|exact| (index, exact)));
                let (error, ratio) = allowed.error(found);
                if ratio >= judged.ratio && bound.is_finite() {
                    (judged.ratio, judged.error, judged.bound) = (ratio, error, bound);
                }
            }
        }
        compared.sort_unstable();
        compared.dedup();
        Ok(Judged { compared: compared.len(), ..judged })
    }
}

/// What was found of the elements of a piece.
struct Judged {
    /// Number of elements compared, and of those that are to be kept.
    compared: usize,
    kept: usize,
    /// The largest error as a fraction of its bound, and both.
    ratio: f64,
    error: f64,
    bound: f64,
    wraps: Option<(usize, f64)>,
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use kernel::operands::{Extents, Memory, Places, Visit};

    use super::*;

    /// Two matrices of three lines of 5 elements, 7 apart; a matrix begins 30 elements after the one before it.
    fn placed() -> Placed {
        let mut allocate = |_| 256;
        let mut places = Places::new(&mut allocate);
        let extents = Extents { bits: 16, length: 5, lines: 3, ld: 7, count: 2, stride: 30 };
        let contents = Contents::Output(collective::Format::Bf16);
        places.memory(Memory { name: "D", address: &mut 256, extents, contents, writes: true });
        let piece = places.pieces.remove(0);
        let mut before = vec![0xFF; piece.bytes];
        before.resize(piece.bytes + MARGIN, POISON);
        Placed::new(Buffer { address: 256, bytes: 0 }, Filled::new(piece, before))
    }

    /// What is found if some elements become 1, and then some bytes become 0; all 30 elements are expected to be 1.
    fn found(written: Range<usize>, zeros: Range<usize>) -> String {
        let of = placed();
        let mut after = of.before.bytes.clone();
        for span in of.before.spans(written.start, written.len()) {
            after[span].as_chunks_mut::<2>().0.fill([0x80, 0x3f]);
        }
        after[zeros].fill(0);
        let expected = Expected::near("D", vec![(0, vec![(1.0, 0.0); 16]), (16, vec![(1.0, 0.0); 14])]);
        let mut agreed = Agreed::NONE;
        match of.compare(&[expected], (0, true), &after, &mut agreed) {
            Ok(()) => format!("{} of {} right", agreed.compared, agreed.total),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_byte_of_a_piece_counts() {
        for (why, written, zeros, want) in [
            ("all elements", 0..30, 0..0, "30 of 30 right"),
            ("none of the last ones", 0..16, 0..0, "no element of D from 16 on was written, in 1 of them"),
            ("one alone", 0..29, 0..0, "no element of D from 29 on was written, in 1 of them"),
            (
                "a wrong one, in the second matrix",
                0..30,
                60..62,
                "element 15 of D is 0, 1 was expected, with an error of 0 at most",
            ),
            ("a byte between lines", 0..30, 10..11, "byte 10 of D changed, and no element is there"),
            ("a byte between matrices", 0..30, 59..60, "byte 59 of D changed, and no element is there"),
            ("a byte after the end", 0..30, 98..99, "byte 98 of D changed, and no element is there"),
        ] {
            assert_eq!(found(written, zeros), want, "{why}");
        }
        let of = placed();
        let spans: Vec<_> = of.before.spans(13, 4).collect();
        assert_eq!(spans, [34..38, 60..64], "the third line's end, and the second matrix");
    }

    /// A result must be expected. What a kernel keeps for itself need not be, but is compared if it is; and what it
    /// only reads must not change.
    #[test]
    fn what_is_written_decides_what_is_compared() {
        let output = Contents::Output(collective::Format::Bf16);
        let wrong = "element 0 of D is NaN, 1 was expected, with an error of 0 at most";
        for (why, contents, writes, expects, changes, want) in [
            ("a result", output, true, true, true, "30 of 30 right"),
            (
                "a result of which nothing is expected",
                output,
                true,
                false,
                true,
                "the kernel writes D, and of its 30 elements none was compared",
            ),
            ("a workspace", Contents::Workspace, true, false, true, "0 of 0 right"),
            ("a workspace that is not used", Contents::Workspace, true, false, false, "0 of 0 right"),
            ("a workspace that is known", Contents::Workspace, true, true, true, "30 of 30 right"),
            ("a workspace that is known, and not written", Contents::Workspace, true, true, false, wrong),
            ("a report", Contents::Report, true, false, false, "0 of 0 right"),
            ("an input", output, false, false, false, "0 of 0 right"),
            (
                "an input that changes",
                output,
                false,
                false,
                true,
                "byte 0 of D changed, and no element is there",
            ),
            // That nothing may be expected of it is said elsewhere.
            ("an input that is expected", output, false, true, false, "0 of 0 right"),
        ] {
            let mut of = placed();
            (of.before.piece.contents, of.before.piece.writes) = (contents, writes);
            let mut after = of.before.bytes.clone();
            for span in of.before.spans(0, if changes { 30 } else { 0 }) {
                after[span].as_chunks_mut::<2>().0.fill([0x80, 0x3f]);
            }
            let expected = [Expected::near("D", vec![(0, vec![(1.0, 0.0); 30])])];
            let mut agreed = Agreed::NONE;
            let found = of.compare(if expects { &expected } else { &[] }, (0, true), &after, &mut agreed);
            let found = found.map_or_else(
                |error| error.to_string(),
                |()| format!("{} of {} right", agreed.compared, agreed.total),
            );
            assert_eq!(found, want, "{why}");
        }
    }
}
