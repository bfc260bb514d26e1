//! Memory that a call writes and that shares bytes with other memory of the call.

use collective::operands::{Extents, Memory, Path, Visit};

use crate::error::LaunchError;
use crate::kernel::Kernel;

/// Checks that what a call writes shares no byte with anything else that it accesses. Matrices whose lines interleave share
/// none. What the kernel reads [in place](Visit::in_place) may be exactly an output.
///
/// # Errors
/// [`LaunchError::Shared`], of the first two pieces that do.
pub fn check_apart<C: Clone>(kernel: &(impl Kernel<C> + ?Sized), call: &C) -> Result<(), LaunchError> {
    let visit = |visit: &mut dyn Visit| kernel.visit(&mut call.clone(), visit);
    let mut overlaps = Overlaps::default();
    visit(&mut overlaps);
    overlaps.check(visit)
}

/// Sees which bytes a call accesses, and says which pieces of memory share some.
///
/// ```
/// use collective::MatrixRef;
/// use kernel::operands::Overlaps;
/// use kernel::{Call, GemmProblem, Kernel, LaunchError, find};
///
/// let gemm = find("64x64-direct-bf16-kk")?;
/// let call = Call::of(GemmProblem { m: 8, n: 64, k: 64 }).a(0x1000, 128).b(0x8000, 64);
/// // The columns after A's are D; then some of A's are.
/// for (d, apart) in [(0x1080, true), (0x107e, false)] {
///     let mut call = call.d(d, 128);
///     let mut overlaps = Overlaps::default();
///     Kernel::visit(&gemm, &mut call, &mut overlaps);
///     assert_eq!(overlaps.check(|visit| Kernel::visit(&gemm, &mut call, visit)).is_ok(), apart);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Overlaps {
    pieces: Vec<Piece>,
    /// Whether the kernel orders its accesses itself.
    ordered: bool,
}

impl Overlaps {
    /// Forgets what was visited. The memory is used again.
    #[cfg(feature = "driver")]
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.ordered = false;
    }

    /// Checks that no piece that is written shares a byte with another one. `names` visits the same once more, to say which
    /// they are.
    ///
    /// # Errors
    /// [`LaunchError::Shared`].
    pub fn check(&self, names: impl FnOnce(&mut dyn Visit)) -> Result<(), LaunchError> {
        let Some(pair) = self.shared().filter(|_| !self.ordered) else { return Ok(()) };
        let mut all = Names::default();
        names(&mut all);
        let [written, other] = pair.map(|i| all.0.get(i).cloned().unwrap_or_default());
        let addresses = pair.map(|i| self.pieces[i].begin);
        let Piece { writes, in_place, .. } = self.pieces[pair[1]];
        Err(LaunchError::Shared { written, other, addresses, writes, in_place })
    }

    /// The first two pieces that share a byte that the first one writes.
    fn shared(&self) -> Option<[usize; 2]> {
        if self.pieces.len() > FEW {
            return self.shared_of_many();
        }
        for (i, output) in self.pieces.iter().enumerate().filter(|(_, piece)| piece.writes) {
            let hull = output.hull();
            for (j, other) in self.pieces.iter().enumerate() {
                // Two outputs are compared once.
                let is_other = j > i || j < i && !other.writes;
                if is_other && other.begin < hull[1] && meet(hull, other.hull()) && self.collide(i, j) {
                    return Some([i, j]);
                }
            }
        }
        None
    }

    /// The same of many pieces, by those that are written, in order.
    fn shared_of_many(&self) -> Option<[usize; 2]> {
        let hulls: Vec<[u64; 2]> = self.pieces.iter().map(Piece::hull).collect();
        let accessed = (0..hulls.len()).filter(|&i| !is_empty(hulls[i]));
        let (mut written, read): (Vec<usize>, Vec<usize>) = accessed.partition(|&i| self.pieces[i].writes);
        written.sort_unstable_by_key(|&i| hulls[i]);
        // Where the outputs up to each one end.
        let end = |end: &mut u64, &i: &usize| {
            *end = hulls[i][1].max(*end);
            Some(*end)
        };
        let ends: Vec<u64> = written.iter().scan(0, end).collect();
        let others = written.iter().enumerate().map(|(at, &i)| (i, at));
        let below = |&j: &usize| (j, written.partition_point(|&i| hulls[i][0] < hulls[j][1]));
        others.chain(read.iter().map(below)).find_map(|(j, below)| {
            let before = (0..below).rev().take_while(|&at| ends[at] > hulls[j][0]).map(|at| written[at]);
            before.into_iter().find(|&i| meet(hulls[i], hulls[j]) && self.collide(i, j)).map(|i| [i, j])
        })
    }

    /// Whether an output and another piece whose hulls meet share a byte, and may not.
    fn collide(&self, output: usize, other: usize) -> bool {
        let [output, other] = [output, other].map(|i| &self.pieces[i]);
        !(other.in_place && output.is(other)) && output.lines().meets(&other.lines(), &mut { STEPS })
    }
}

impl Visit for Overlaps {
    fn memory(&mut self, Memory { address, extents, writes, .. }: Memory<'_>) {
        let Extents { bits, length, lines, ld, count, stride } = extents;
        let repeats = [(lines, ld), (count, stride), (1, 0)];
        self.pieces.push(Piece { begin: *address, bits, length, repeats, writes, in_place: false });
    }

    fn lines(&mut self, length: u64, repeats: [(u32, u64); 3]) {
        if let Some(last) = self.pieces.last_mut() {
            (last.length, last.repeats) = (length, repeats);
        }
    }

    fn ordered(&mut self) {
        self.ordered = true;
    }

    fn in_place(&mut self) {
        if let Some(last) = self.pieces.last_mut() {
            last.in_place = true;
        }
    }
}

/// As many pieces are compared each with each.
const FEW: usize = 16;

/// Lines of two interleaved pieces that are compared. Of more, they count as sharing a byte.
const STEPS: u32 = 1 << 20;

fn is_empty([begin, end]: [u64; 2]) -> bool {
    begin == end
}

/// Whether two ranges have a byte in common.
fn meet(one: [u64; 2], two: [u64; 2]) -> bool {
    one[0] < two[1] && two[0] < one[1] && !is_empty(one) && !is_empty(two)
}

/// A piece of memory: lines of elements, repeated.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begin: u64,
    bits: u32,
    /// Elements of a line.
    length: u64,
    /// How often, and how many elements apart.
    repeats: [(u32, u64); 3],
    writes: bool,
    in_place: bool,
}

impl Piece {
    /// Where its first line begins and its last one ends; the same twice if it has none.
    fn hull(&self) -> [u64; 2] {
        let Self { begin, bits, length, repeats, .. } = *self;
        // Without branches: a launch asks it of every piece.
        let [i, j, k] = repeats.map(|(count, pitch)| u128::from(count.wrapping_sub(1)) * u128::from(pitch));
        let bytes = (u128::from(length) + i + j + k).saturating_mul(bits.into()).div_ceil(8);
        let none = (begin == 0)
            | (length == 0)
            | repeats.iter().fold(false, |none, (count, _)| none | (*count == 0));
        let end = u64::try_from(u128::from(begin) + bytes).unwrap_or(u64::MAX);
        [begin, if none { begin } else { end }]
    }

    /// Whether each of its elements is in the place of the other's: the same bytes in another order are not.
    fn is(&self, other: &Self) -> bool {
        let places =
            |of: &Self| of.repeats.map(|(count, pitch)| if count == 1 { (1, 0) } else { (count, pitch) });
        let one = |of: &Self| (of.begin, of.bits, of.length, places(of));
        one(self) == one(other)
    }

    fn bytes(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.bits.into()).div_ceil(8)
    }

    /// Its lines of bytes. Those that end inside of a byte are one.
    fn lines(&self) -> Lines {
        let [begin, end] = self.hull();
        let mut lines = Lines { begin, line: end - begin, repeats: [(1, 0); 3] };
        let size = u64::from(self.bits);
        if self.repeats.iter().any(|(_, pitch)| !pitch.wrapping_mul(size).is_multiple_of(8)) {
            return lines;
        }
        lines.line = self.bytes(self.length);
        let mut repeats = self.repeats.map(|(count, pitch)| (count, self.bytes(pitch)));
        repeats.sort_unstable_by_key(|&(_, pitch)| pitch);
        // The innermost first: lines without gaps are one.
        let mut of = 0;
        for (count, pitch) in repeats.into_iter().filter(|&(count, pitch)| count > 1 && pitch > 0) {
            if of == 0 && pitch == lines.line {
                lines.line = lines.line.saturating_mul(count.into());
            } else {
                lines.repeats[of] = (count, pitch);
                of += 1;
            }
        }
        lines
    }
}

/// Lines of bytes in as few repetitions as describe them, the innermost first; those after the last have a count of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines {
    begin: u64,
    line: u64,
    repeats: [(u32, u64); 3],
}

impl Lines {
    fn end(&self) -> u64 {
        let last = |(count, pitch): (u32, u64)| u64::from(count - 1).saturating_mul(pitch);
        let all = self.repeats.into_iter().map(last).fold(self.line, u64::saturating_add);
        self.begin.saturating_add(all)
    }

    /// The index of the outermost repetition.
    fn outer(&self) -> Option<usize> {
        (0..3).rev().find(|&i| self.repeats[i].0 > 1)
    }

    /// Whether both have a byte in common. It takes a few steps, or as many as there are lines.
    fn meets(&self, other: &Self, steps: &mut u32) -> bool {
        let disjoint = self.end() <= other.begin || other.end() <= self.begin;
        if disjoint || self.interleaves(other) {
            return false;
        }
        let pitch = |of: &Self| of.outer().map_or(0, |i| of.repeats[i].1);
        let (wide, narrow) = if pitch(self) >= pitch(other) { (self, other) } else { (other, self) };
        let Some(outer) = wide.outer() else { return true };
        let (count, pitch) = wide.repeats[outer];
        let mut part = *wide;
        part.repeats[outer] = (1, 0);
        // The first part that ends after the other one begins, and the last one that begins before it ends.
        let before = narrow.begin.checked_sub(part.end());
        let first = before.map_or(0, |bytes| bytes / pitch + 1);
        let last = ((narrow.end() - 1 - wide.begin) / pitch).min(u64::from(count) - 1);
        (first..=last).any(|i| {
            *steps = steps.saturating_sub(1);
            *steps == 0 || Self { begin: wide.begin + i * pitch, ..part }.meets(narrow, steps)
        })
    }

    /// Whether all lines of both are at other places of a period: columns of one matrix, heads of one tensor.
    fn interleaves(&self, other: &Self) -> bool {
        let all = self.repeats.iter().chain(&other.repeats).filter(|(count, _)| *count > 1);
        let period = all.fold(0, |period, &(_, pitch)| gcd(period, pitch));
        if period == 0 || self.line > period || other.line > period {
            return false;
        }
        let [at, of] = [self.begin % period, other.begin % period];
        let after = (of + period - at) % period;
        after >= self.line && after + other.line <= period
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The names of what is visited.
#[derive(Default)]
struct Names(Vec<String>);

impl Visit for Names {
    fn memory(&mut self, memory: Memory<'_>) {
        self.0.push(memory.name.to_owned());
    }

    fn node(&mut self, path: &Path<'_>, _memory: Memory<'_>) {
        self.0.push(path.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use collective::{Format, LinearArguments, MatrixRef, Record};

    use super::*;
    use crate::call::Call;
    use crate::error::EngineError;
    use crate::gemm::AnyGemm;
    use crate::lent::Lent;
    use crate::problem::GemmProblem;
    use crate::products::GroupedProblem;
    use crate::transpose::{Transpose, Transposition};

    fn visited(overlaps: &mut Overlaps, address: u64, extents: Extents, writes: bool) {
        let (mut address, contents) = (address, collective::operands::Contents::Elements(1));
        overlaps.memory(Memory { name: "", address: &mut address, extents, contents, writes });
    }

    /// All bytes of two pieces, one by one, say the same: of lines, of matrices, and of heads.
    #[test]
    fn pieces_share_what_their_bytes_share() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut found = [0; 2];
        for case in 0..20_000 {
            let mut overlaps = Overlaps::default();
            let mut bytes: [BTreeSet<u64>; 2] = Default::default();
            for (i, bytes) in bytes.iter_mut().enumerate() {
                let (address, length, bits) = (random.u64(1..50), random.u64(0..7), 8 << random.u32(..2));
                let repeats: [(u32, u64); 3] = core::array::from_fn(|_| {
                    let pitch = [random.u64(..40), 8, 16, 24][random.usize(..4)];
                    (random.u32(..16).min(3), pitch)
                });
                let size = u64::from(bits / 8);
                let at = |[i, j, k]: [u32; 3]| {
                    let distance =
                        [i, j, k].into_iter().zip(repeats).map(|(i, (_, pitch))| u64::from(i) * pitch);
                    address + size * distance.sum::<u64>()
                };
                let [of_i, of_j, of_k] = repeats.map(|(count, _)| 0..count);
                for i in of_i {
                    for j in of_j.clone() {
                        let lines = of_k.clone().map(|k| at([i, j, k]));
                        bytes.extend(lines.flat_map(|begin| begin..begin + size * length));
                    }
                }
                visited(&mut overlaps, address, Extents::line(bits, 1), i == 0);
                overlaps.lines(length, repeats);
            }
            let share = !bytes[0].is_disjoint(&bytes[1]);
            assert_eq!(overlaps.shared().is_some(), share, "{case}: {overlaps:?}");
            // The same among many.
            for i in 0..40 {
                visited(&mut overlaps, 10_000 + 8 * i, Extents::line(8, 8), i % 3 == 0);
            }
            assert_eq!(overlaps.shared(), share.then_some([0, 1]), "{case}: {overlaps:?}");
            found[usize::from(share)] += 1;
        }
        assert!(found.iter().all(|&count| count > 4000), "{found:?}");
    }

    /// Lines of other distances are compared one by one, and very many of them count as sharing memory.
    #[test]
    fn lines_of_other_distances_are_compared() {
        for (lines, shares) in [(1 << 10, false), (1 << 22, true)] {
            let mut overlaps = Overlaps::default();
            // In a period of 6 bytes, both are at other places.
            for (address, ld, writes) in [(6_000_000, 6, true), (6_000_003, 18, false)] {
                visited(&mut overlaps, address, Extents { lines, ld, ..Extents::line(8, 1) }, writes);
            }
            assert_eq!(overlaps.shared(), None);
            let mut overlaps = Overlaps::default();
            for (address, ld, count, stride, writes) in
                [(6_000_000, 6, 1, 0, true), (6_000_003, 12, 2, 5, false)]
            {
                let extents = Extents { lines, ld, count, stride, ..Extents::line(8, 1) };
                visited(&mut overlaps, address, extents, writes);
            }
            assert_eq!(overlaps.shared().is_some(), shares, "{lines}");
        }
    }

    /// `D (8, 32) = A (8, 64) * B (64, 32)` of 2 B.
    fn call(a: MatrixRef, d: MatrixRef) -> Call {
        let problem = GemmProblem { m: 8, n: 32, k: 64 };
        Call { a, d, ..Call::of(problem) }.b(0x9_0000, 64)
    }

    fn gemm(name: &str) -> AnyGemm {
        crate::find(name).expect("a catalogue name")
    }

    #[test]
    fn outputs_have_memory_of_their_own() {
        let at = |address: u64, ld: u64| MatrixRef::new(address, ld);
        let linear = |beta, c| LinearArguments { beta, c: Some(c), ..LinearArguments::default() };
        let (a, d) = (at(0x1_0000, 64), at(0x2_0000, 32));
        let plain = call(a, d);
        let (single, batched) = ("64x64-direct-bf16-kk", "batched-128x128-direct-bf16-kk");
        let batch = |a: MatrixRef, d: MatrixRef, c: MatrixRef| {
            Call { products: GroupedProblem::Batched { count: 3 }, ..call(a, d) }.with(linear(1.0, c))
        };
        for (why, kernel, call, other) in [
            ("apart", single, plain, None),
            ("D is A", single, call(a, at(0x1_0000, 64)), Some("A")),
            ("D begins in A's last row", single, call(a, at(0x1_03FE, 32)), Some("A")),
            ("D begins after A's last element", single, call(a, at(0x1_0400, 32)), None),
            ("D ends in A", single, call(a, at(0x1_0000 - 0x1FE, 32)), Some("A")),
            ("D ends before A", single, call(a, at(0x1_0000 - 0x200, 32)), None),
            ("D is B", single, call(a, at(0x9_0000, 32)), Some("B")),
            ("D is columns after A's", single, call(at(0x1_0000, 96), at(0x1_0080, 96)), None),
            ("D is columns before A's", single, call(at(0x1_0040, 96), at(0x1_0000, 96)), None),
            ("a column is both's", single, call(at(0x1_0000, 96), at(0x1_007E, 96)), Some("A")),
            ("D is columns of every second row", single, call(at(0x1_0000, 96), at(0x1_0080, 192)), None),
            ("D is rows between A's", single, call(at(0x1_0000, 192), at(0x1_00C0, 192)), None),
            ("other distances", single, call(at(0x1_0000, 96), at(0x1_0080, 128)), Some("A")),
            ("C is D", single, plain.with(linear(1.0, d)), None),
            ("C is not read", single, plain.with(linear(0.0, at(0x2_0002, 32))), None),
            ("C begins in D", single, plain.with(linear(1.0, at(0x2_0004, 32))), Some("C")),
            (
                "C has D's address, and other rows",
                single,
                plain.with(linear(1.0, at(0x2_0000, 34))),
                Some("C"),
            ),
            (
                "C is columns after D's",
                single,
                call(a, at(0x2_0000, 64)).with(linear(1.0, at(0x2_0040, 64))),
                None,
            ),
            ("A is not read", single, call(a, a).with(LinearArguments::scaled(0.0)), None),
            ("a batch", batched, batch(a.every(512), d.every(256), d.every(256)), None),
            (
                "a batch in rows of all",
                batched,
                batch(a.every(512), at(0x2_0000, 96).every(32), at(0x2_0000, 96).every(32)),
                None,
            ),
            ("all read the first one's D", batched, batch(a.every(512), d.every(256), d), Some("C")),
            (
                "a batch of A and D in turns",
                batched,
                batch(at(0x1_0000, 64).every(768), at(0x1_0400, 32).every(768), at(0x5_0000, 32)),
                None,
            ),
            (
                "the second A is the first D",
                batched,
                batch(at(0x1_0000, 64).every(512), at(0x1_0400, 32).every(768), at(0x5_0000, 32)),
                Some("A"),
            ),
        ] {
            let error = gemm(kernel).launch(&call, 132).err();
            let other_of = |error: &LaunchError| {
                if let LaunchError::Shared { written, other, .. } = error {
                    (written == "D").then(|| other.clone())
                } else {
                    None
                }
            };
            assert_eq!(error.as_ref().and_then(other_of).as_deref(), other, "{why}: {error:?}");
            assert_eq!(error.is_some(), other.is_some(), "{why}: {error:?}");
        }
        let error = gemm(single).launch(&call(a, at(0x1_0002, 64)), 132).expect_err("D is in A").to_string();
        let want =
            "D at 0x10002 is written and shares memory with A at 0x10000: memory of its own was needed";
        assert_eq!(error, want);
        let shifted = plain.with(linear(1.0, at(0x2_0004, 32)));
        let error = gemm(single).launch(&shifted, 132).expect_err("C begins in D").to_string();
        assert!(
            error.ends_with("or exactly the same: the same address, leading dimension and stride"),
            "{error}"
        );
        // Kernels of other kinds, by the same check.
        let transpose = Transpose::of(Format::E4m3).expect("8 bits");
        for (d, apart) in [(0x1_0000, false), (0x1_1000, true)] {
            let d = MatrixRef::new(d, 64);
            let what = Transposition { rows: 64, columns: 64, count: 1, a: MatrixRef::new(0x1_0000, 64), d };
            assert_eq!(transpose.launch(&what, 1).is_ok(), apart, "{d:?}");
        }
    }

    /// Records, in memory that is all lent.
    struct All<'a>(&'a [Record]);

    impl Lent for All<'_> {
        fn covers(&self, _address: u64, _bytes: u64, _writes: bool) -> bool {
            true
        }

        fn records(&self, _address: u64) -> Option<&[Record]> {
            Some(self.0)
        }
    }

    /// Of GEMMs that records describe, no D is over a matrix of another one.
    #[test]
    fn outputs_of_records_are_apart() {
        let record = |a: u64, d: u64| Record {
            m: 8,
            n: 32,
            k: 64,
            addresses: [a, 0x9_0000, 0, d],
            lds: [64, 64, 32, 32],
        };
        let all = |count: u64| (0..count).map(|i| record(0x10_0000 + i * 0x400, 0x80_0000 + i * 0x200));
        for (why, count, last, words) in [
            ("one", 0, record(0x1_0000, 0x2_0000), None),
            ("its own A", 0, record(0x1_0000, 0x1_0200), Some("A at 0x10000")),
            ("apart", 100, record(0x1_0000, 0x2_0000), None),
            ("another one's A", 100, record(0x1_0000, 0x10_0600), Some("A at 0x100400")),
            ("another one's D", 3, record(0x1_0000, 0x80_0000), Some("D at 0x800000, which is written, too")),
            (
                "another of many",
                100,
                record(0x1_0000, 0x80_0010),
                Some("D at 0x800010, which is written, too"),
            ),
        ] {
            let records: Vec<Record> = all(count).chain([last]).collect();
            let call = Call::grouped(records.len() as u32, 0x100);
            let checked = gemm("grouped-128x256-bf16-kk").check_records(&call, &All(&records));
            match (checked, words) {
                (Ok(()), None) => {}
                (Err(error @ EngineError::Call { .. }), Some(words)) => {
                    assert!(error.to_string().contains(words), "{why}: {error}");
                }
                (checked, _) => panic!("{why}: {checked:?}"),
            }
        }
    }
}
