//! Checks kernels of any [`Family`]: random inputs, an f64 reference, and a bound per element; and their
//! synchronisation, by breaking it.
//!
//! A family that implements [`Reference`] says what its kernels must write. [`check`] runs one on any engine. [`prove`] runs
//! the [mutants](ptx::mutate) of any [`Kernel`](kernel::Kernel) in the emulator, and [`trace`] records what it does.

mod proof;

use core::ops::Range;

use emulator::Schedule;
use kernel::operands::{Contents, Extents, Fill, Piece, Places};
use kernel::{Buffer, Demand, Engine, EngineError, Family, GemmFamily, GemmProblem, LaunchError, OwnGemm};
use ptx::VerifyError;
use rayon::prelude::*;
use reference::Format;
use thiserror::Error;

pub use proof::{Proof, Traced, prove, trace};

/// Bytes after each piece of memory that must not change.
const MARGIN: usize = 64;

/// What is in memory that no kernel has written.
const POISON: u8 = 0xA5;

/// What commands and checks know of a family in addition: how its requests are written, and what its kernels must write.
pub trait Reference: Family {
    /// The request of a text, for operands that are packed. The text of its [`Problem`](Family::Problem) is such a text.
    ///
    /// # Errors
    /// What is wrong with the text, in a sentence.
    fn request(text: &str) -> Result<Self::Request<'static>, String>;

    /// The elements that the kernel writes. Of each piece of memory that it writes, all are expected or some.
    fn expect(&self, request: &Self::Request<'_>, inputs: &Inputs<'_>) -> Vec<Expected>;

    /// Numbers of the kernel: a name, a value and a note each. Those of its program are known.
    fn numbers(&self) -> Vec<[String; 3]> {
        Vec::new()
    }

    /// What the kernel computes of a request block by block, for a picture; `None` if a picture shows nothing.
    fn blocks(&self, _request: &Self::Request<'_>) -> Option<Blocks> {
        None
    }
}

/// The blocks of a request of which a kernel computes some.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// What is drawn, in a sentence.
    pub of: String,
    /// What the rows and the columns are.
    pub axes: [&'static str; 2],
    /// Rows and columns of a block.
    pub block: [u32; 2],
    /// How much of each block is needed, by row of blocks.
    pub needed: Vec<Vec<Needed>>,
    /// The products for each block that is not left out, in order.
    pub products: Vec<String>,
    /// How the warpgroups share the work, in a sentence.
    pub turns: String,
}

/// How much of a block is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Nothing: the block is left out.
    Nothing,
    /// Some of it: it is computed, and masked.
    Some,
    /// All of it.
    All,
}

impl Needed {
    /// For a block of which `needed(row, column)` says what is needed.
    pub fn of_block([rows, columns]: [Range<u32>; 2], needed: impl Fn(u32, u32) -> bool) -> Self {
        let all = rows.len() * columns.len();
        match rows.map(|row| columns.clone().filter(|&column| needed(row, column)).count()).sum::<usize>() {
            0 => Self::Nothing,
            count if count == all => Self::All,
            _ => Self::Some,
        }
    }
}

/// The inputs of a check.
#[derive(Debug)]
pub struct Inputs<'a> {
    pieces: &'a [Placed],
    seed: u64,
    most: usize,
}

impl Inputs<'_> {
    /// `count` elements of a piece of memory from the `first` on, in the order of its lines; fewer, if there are no more.
    pub fn elements(&self, name: &str, first: usize, count: usize) -> Vec<f64> {
        let found = self.pieces.iter().find(|of| of.piece.name == name);
        found.map_or_else(Vec::new, |of| of.values(&of.before, first, count))
    }

    /// The numbers of 32 bits in a piece of memory: those of a table.
    pub fn numbers(&self, name: &str) -> Vec<u32> {
        let found = self.pieces.iter().find(|of| of.piece.name == name);
        let words = found.map_or(&[][..], |of| &of.before[..of.piece.bytes]).chunks_exact(4);
        words.map(|word| word.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte))).collect()
    }

    /// Some of `count` results, at random, as many as are to be compared.
    pub fn chosen(&self, count: usize) -> Vec<usize> {
        if count <= self.most {
            return (0..count).collect();
        }
        let mut random = fastrand::Rng::with_seed(self.seed);
        (0..self.most).map(|_| random.usize(0..count)).collect()
    }

    /// What is expected of each of the results that are [chosen](Self::chosen), on all processors.
    pub fn rows<T: Send>(&self, count: usize, expected: impl Fn(usize) -> T + Sync) -> Vec<T> {
        self.chosen(count).into_par_iter().map(&expected).collect()
    }
}

/// What the kernels of a [`GemmFamily`] must write.
pub trait GemmReference: GemmFamily {
    /// A row of D: values, and how far the kernel's may be from them.
    fn row(problem: GemmProblem, row: usize, inputs: &Inputs<'_>) -> Vec<(f64, f64)>;
}

impl<F: GemmReference> Reference for OwnGemm<F> {
    fn request(text: &str) -> Result<GemmProblem, String> {
        let extents: Vec<_> = text.split('x').map_while(|extent| extent.parse().ok()).collect();
        match extents[..] {
            [m, n, k] if Self::problem(&GemmProblem { m, n, k }) == text => Ok(GemmProblem { m, n, k }),
            _ => Err(format!("`{text}` was found, MxNxK was needed")),
        }
    }

    fn expect(&self, problem: &GemmProblem, inputs: &Inputs<'_>) -> Vec<Expected> {
        let GemmProblem { m, n, .. } = *problem;
        let row = |row| (row * n as usize, F::row(*problem, row, inputs));
        vec![Expected { name: "D", elements: inputs.chosen(m as usize).into_iter().map(row).collect() }]
    }
}

/// What a piece of memory must hold. Of other elements, it is only checked that the kernel wrote something there.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The piece's name.
    pub name: &'static str,
    /// Consecutive elements: the number of the first one in the order of the piece's lines; values, and how far the kernel's may be from
    /// them.
    pub elements: Vec<(usize, Vec<(f64, f64)>)>,
}

/// A check that found no error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreed {
    /// Number of elements compared.
    pub compared: usize,
    /// The largest error as a fraction of its bound, 1 at most.
    pub ratio: f64,
}

/// Why a kernel is wrong, or was not checked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// The kernel could not be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The verifier refused the program.
    #[error("{0}")]
    Program(#[from] VerifyError),
    /// The call is illegal.
    #[error("{0}")]
    Call(#[from] LaunchError),
    /// The kernel is one for other requests.
    #[error("{0}")]
    Other(String),
    /// An element is wrong.
    #[error(
        "element {index} of {name} is {found}, {expected} was expected, with an error of {bound} at most"
    )]
    Element {
        /// The piece.
        name: &'static str,
        /// The element's number in the order of the piece's lines.
        index: usize,
        /// What the kernel wrote.
        found: f64,
        /// The reference.
        expected: f64,
        /// The largest legal error.
        bound: f64,
    },
    /// Memory changed that the kernel must not write.
    #[error("byte {byte} of {name} changed, and no element is there")]
    Outside {
        /// The piece.
        name: &'static str,
        /// The number of the byte.
        byte: usize,
    },
    /// An element that is expected is outside the piece.
    #[error("element {index} of {name} is expected, it has {count}")]
    Extents {
        /// The piece.
        name: &'static str,
        /// The element's number.
        index: usize,
        /// Number of elements of the piece.
        count: usize,
    },
    /// Elements were not written.
    #[error("no element of {name} from {index} on was written, in {count} of them")]
    Unwritten {
        /// The piece.
        name: &'static str,
        /// The first element's number.
        index: usize,
        /// Number of elements.
        count: usize,
    },
    /// The unbroken kernel failed in the emulator.
    #[error("the unbroken kernel under {schedule:?}, seed {seed}: {reason}")]
    Unbroken {
        /// The schedule.
        schedule: Schedule,
        /// Its seed.
        seed: u64,
        /// The emulator's report, or what differs.
        reason: String,
    },
}

/// Runs a kernel of a request once, on random inputs from a seed, and compares what it writes with the reference: everything, or a number of
/// results where the reference leaves the choice. Nothing else may change.
///
/// # Errors
/// The first element that is wrong or the first byte that changed; or why the kernel could not be run.
pub fn check<K: Reference>(
    engine: &mut dyn Engine,
    kernel: &K,
    request: &K::Request<'_>,
    sample: (u64, usize),
) -> Result<Agreed, FamilyError> {
    let checks = Checks::new(engine, kernel, request, sample)?;
    let agreed = checks.check(engine, kernel, request);
    // The first error is reported.
    let freed = checks.free(engine);
    agreed.and_then(|agreed| Ok(freed.map(|()| agreed)?))
}

/// Random inputs of a request in an engine's memory, on which its kernels are checked one after another.
#[derive(Debug)]
pub struct Checks<C> {
    call: C,
    pieces: Vec<Placed>,
    seed: u64,
    most: usize,
}

/// A piece of memory on an engine.
#[derive(Debug)]
struct Placed {
    piece: Piece,
    buffer: Buffer,
    /// The reference's name of its elements' format.
    format: Option<Format>,
    /// Its bytes before a launch.
    before: Vec<u8>,
}

impl<C: Clone> Checks<C> {
    /// Allocates and fills the memory that any kernel of the request accesses. A seed and a number of results say what is compared.
    ///
    /// # Errors
    /// The kernel is one for other requests, the call is illegal, or the engine or the host has too little memory, which is found before
    /// anything is allocated.
    pub fn new<K: Reference<Call = C>>(
        engine: &mut dyn Engine,
        kernel: &K,
        request: &K::Request<'_>,
        (seed, most): (u64, usize),
    ) -> Result<Self, FamilyError> {
        kernel.serves(request).map_err(FamilyError::Other)?;
        let mut call = K::call(request);
        // What was there before, what is there after, and what was expected.
        engine.admit(&Demand::of(kernel, &call, engine.multiprocessors())?, 3)?;
        let (mut buffers, mut failed) = (Vec::new(), None);
        let mut allocate = |bytes: usize| match engine.allocate(bytes + MARGIN) {
            Ok(buffer) => {
                buffers.push(buffer);
                buffer.address
            }
            Err(error) => {
                failed.get_or_insert(error);
                0
            }
        };
        let mut places = Places::new(&mut allocate).with(K::words(request, Contents::Table));
        kernel.visit(&mut call, &mut places);
        let pieces = places.pieces;
        if let Some(error) = failed {
            buffers.into_iter().try_for_each(|buffer| engine.free(buffer))?;
            return Err(error.into());
        }
        let mut fill = Fill::new(seed);
        let placed = |(piece, buffer): (Piece, Buffer)| {
            let mut before = fill.bytes(&piece);
            before.resize(piece.bytes + MARGIN, POISON);
            engine.write(buffer, &before)?;
            let format = piece.format().and_then(|format| Format::named(format.name()));
            Ok(Placed { piece, buffer, format, before })
        };
        let pieces = pieces.into_iter().zip(buffers).map(placed).collect::<Result<_, EngineError>>()?;
        Ok(Self { call, pieces, seed, most })
    }

    /// Runs a kernel once, and compares what it writes with the reference.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check<K: Reference<Call = C>>(
        &self,
        engine: &mut dyn Engine,
        kernel: &K,
        request: &K::Request<'_>,
    ) -> Result<Agreed, FamilyError> {
        kernel.serves(request).map_err(FamilyError::Other)?;
        let mut call = self.call.clone();
        let program = kernel.program()?;
        let resident = engine.resident_clusters(&program)?;
        let workspace = engine.workspace(kernel.workspace(&call, resident))?;
        kernel.lend_workspace(&mut call, workspace);
        for of in self.pieces.iter().filter(|of| of.piece.writes) {
            engine.write(of.buffer, &of.before)?;
        }
        let ran = kernel.run(engine, &call);
        if let Some(workspace) = workspace {
            engine.free(workspace)?;
        }
        ran.map_err(|error| {
            if let EngineError::Call { source, .. } = error {
                FamilyError::Call(source)
            } else {
                FamilyError::Engine(error)
            }
        })?;
        let expected =
            kernel.expect(request, &Inputs { pieces: &self.pieces, seed: self.seed, most: self.most });
        let mut agreed = Agreed { compared: 0, ratio: 0.0 };
        for of in &self.pieces {
            let after = engine.read(of.buffer)?;
            let own = expected.iter().find(|own| own.name == of.piece.name).filter(|_| of.piece.writes);
            agreed.compare(of, own, &after)?;
        }
        Ok(agreed)
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// It belongs to another engine.
    pub fn free(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.pieces.into_iter().try_for_each(|of| engine.free(of.buffer))
    }
}

/// Elements in a row of which at least one must have changed. One alone may have had its new value before.
const RUN: usize = 16;

impl Placed {
    /// Bytes of an element, or of what has none.
    fn size(&self) -> usize {
        self.format.map_or(1, |format| format.bytes() as usize)
    }

    /// Number of its elements.
    fn count(&self) -> usize {
        let Extents { length, lines, count, .. } = self.piece.extents;
        if self.format.is_some() { length as usize * lines as usize * count as usize } else { 0 }
    }

    /// Where `count` elements from the `first` on lie, in the order of lines: the bytes of each line's.
    fn spans(&self, first: usize, count: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let Extents { length, lines, ld, stride, .. } = self.piece.extents;
        let ([length, lines, ld, stride], size) =
            ([length, lines.into(), ld, stride].map(|of| of as usize), self.size());
        let (mut at, end) = (first, (first + count).min(self.count()));
        core::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|&left| left > 0)?;
            let (line, element) = (at / length, at % length);
            let begin = (line / lines * stride + line % lines * ld + element) * size;
            let taken = left.min(length - element);
            at += taken;
            Some(begin..begin + taken * size)
        })
    }

    /// The values of `count` elements from the `first` on; fewer, if there are no more.
    fn values(&self, bytes: &[u8], first: usize, count: usize) -> Vec<f64> {
        let of_span = |span: Range<usize>| self.format.map(|format| format.values(&bytes[span]));
        self.spans(first, count).filter_map(of_span).flatten().collect()
    }

    /// The first of [`RUN`] elements that are as they were before, and the number of these.
    fn unwritten(&self, after: &[u8]) -> Option<(usize, usize)> {
        let size = self.size();
        let (mut index, mut count, mut same) = (0, 0, true);
        for span in self.spans(0, self.count()) {
            let (mut begin, end) = (span.start, span.end);
            while begin < end {
                let to = end.min(begin + (RUN - count) * size);
                same &= self.before[begin..to] == after[begin..to];
                (count, begin) = (count + (to - begin) / size, to);
                if count == RUN {
                    if same {
                        return Some((index, count));
                    }
                    (index, count, same) = (index + RUN, 0, true);
                }
            }
        }
        (count > 0 && same).then_some((index, count))
    }
}

impl Agreed {
    fn compare(&mut self, of: &Placed, expected: Option<&Expected>, after: &[u8]) -> Result<(), FamilyError> {
        let Placed { piece: Piece { name, bytes, writes, .. }, before, .. } = of;
        let (name, mut around) = (*name, before.clone());
        if let Some(Expected { elements: expected, .. }) = expected {
            if let Some((index, count)) = of.unwritten(after) {
                return Err(FamilyError::Unwritten { name, index, count });
            }
            of.spans(0, of.count()).for_each(|span| around[span.clone()].copy_from_slice(&after[span]));
            for (first, expected) in expected {
                let found = of.values(after, *first, expected.len());
                if found.len() < expected.len() {
                    let (index, count) = (first + found.len(), of.count());
                    return Err(FamilyError::Extents { name, index, count });
                }
                for ((index, &(expected, bound)), found) in (*first..).zip(expected).zip(found) {
                    let same = found == expected || (found.is_nan() && expected.is_nan());
                    let error = if same { 0.0 } else { (found - expected).abs() };
                    if error > bound || error.is_nan() {
                        return Err(FamilyError::Element { name, index, found, expected, bound });
                    }
                    self.compared += 1;
                    self.ratio = self.ratio.max(if error > 0.0 { error / bound } else { 0.0 });
                }
            }
        } else if *writes && of.format.is_none() {
            // A workspace, or a report.
            around[..*bytes].copy_from_slice(&after[..*bytes]);
        }
        if around == after {
            return Ok(());
        }
        let byte =
            around.iter().zip(after).position(|(before, after)| before != after).unwrap_or(after.len());
        Err(FamilyError::Outside { name, byte })
    }
}

#[cfg(test)]
mod tests {
    use kernel::operands::{Memory, Visit};

    use super::*;

    /// Two matrices of three lines of 5 elements, 7 apart; a matrix begins 30 elements after the one before it.
    fn placed() -> Placed {
        let mut allocate = |_| 256;
        let mut places = Places::new(&mut allocate);
        let extents = Extents { bits: 16, length: 5, lines: 3, ld: 7, count: 2, stride: 30 };
        let contents = Contents::Output(collective::Format::Bf16);
        places.memory(Memory { name: "D", address: &mut 256, extents, contents, writes: true });
        let piece = places.pieces.remove(0);
        let before = vec![POISON; piece.bytes + MARGIN];
        Placed { before, buffer: Buffer { address: 256, bytes: 0 }, format: Some(Format::Bf16), piece }
    }

    /// What is found if some elements become 1, and then some bytes become 0; all 30 elements are expected to be 1.
    fn found(written: Range<usize>, zeros: Range<usize>) -> String {
        let of = placed();
        let mut after = of.before.clone();
        for span in of.spans(written.start, written.len()) {
            after[span].as_chunks_mut::<2>().0.fill([0x80, 0x3f]);
        }
        after[zeros].fill(0);
        let expected =
            Expected { name: "D", elements: vec![(0, vec![(1.0, 0.0); 16]), (16, vec![(1.0, 0.0); 14])] };
        let mut agreed = Agreed { compared: 0, ratio: 0.0 };
        match agreed.compare(&of, Some(&expected), &after) {
            Ok(()) => format!("{} right", agreed.compared),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_byte_of_a_piece_counts() {
        for (why, written, zeros, want) in [
            ("all elements", 0..30, 0..0, "30 right"),
            ("none of the last ones", 0..16, 0..0, "no element of D from 16 on was written, in 14 of them"),
            ("none of the first ones", 16..30, 0..0, "no element of D from 0 on was written, in 16 of them"),
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
        let spans: Vec<_> = of.spans(13, 4).collect();
        assert_eq!(spans, [34..38, 60..64], "the third line's end, and the second matrix");
    }
}
