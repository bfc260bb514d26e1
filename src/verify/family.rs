//! Checks kernels of any [`Family`]: random inputs, an f64 reference, and a bound per element; and their
//! synchronisation, by breaking it.
//!
//! A family that implements [`Reference`] says what its kernels must write. [`check`] runs one on any engine. [`prove`] runs
//! the [mutants](ptx::mutate) of any [`Kernel`] in the emulator, and [`trace`] records what it does.

use emulator::{Failure, Memory, Options, Program, Recorder, Schedule, Trace};
use kernel::operands::{Contents, Extents, Fill, Piece, Places};
use kernel::{
    Engine, EngineError, Family, GemmFamily, GemmProblem, Kernel, Launch, LaunchError, OwnGemm, WorkspaceRef,
};
use ptx::VerifyError;
use ptx::mutate::{Mutation, mutations};
use thiserror::Error;

/// Bytes after each piece of memory that must not change.
const MARGIN: usize = 64;

/// Clusters that run at the same time: few, so that persistent kernels compute several tiles per cluster.
const SLOTS: u32 = 2;

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
    pub fn of_block([rows, columns]: [core::ops::Range<u32>; 2], needed: impl Fn(u32, u32) -> bool) -> Self {
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
    pieces: &'a [Piece],
    bytes: &'a [Vec<u8>],
    seed: u64,
    most: usize,
}

impl Inputs<'_> {
    /// `count` elements of a piece of memory from the `first` on, in the order of its lines; fewer, if there are no more.
    pub fn elements(&self, name: &str, first: usize, count: usize) -> Vec<f64> {
        let found = self.pieces.iter().zip(self.bytes).find(|(piece, _)| piece.name == name);
        found.map_or_else(Vec::new, |(piece, bytes)| {
            elements(piece, bytes, first).take(count).map(|(_, value)| value).collect()
        })
    }

    /// The numbers of 32 bits in a piece of memory: those of a table.
    pub fn numbers(&self, name: &str) -> Vec<u32> {
        let found = self.pieces.iter().zip(self.bytes).find(|(piece, _)| piece.name == name);
        let words = found.map_or(&[][..], |(piece, bytes)| &bytes[..piece.bytes]).chunks_exact(4);
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
    (seed, most): (u64, usize),
) -> Result<Agreed, FamilyError> {
    kernel.serves(request).map_err(FamilyError::Other)?;
    let mut call = K::call(request);
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
        return Err(error.into());
    }
    let program = kernel.program()?;
    let slots = engine.slots(&program)?;
    let workspace = engine.workspace(kernel.workspace(&call, slots))?;
    kernel.lend_workspace(&mut call, workspace);
    let mut fill = Fill::new(seed);
    let mut before = Vec::new();
    for (piece, &buffer) in pieces.iter().zip(&buffers) {
        let mut bytes = fill.bytes(piece);
        bytes.resize(piece.bytes + MARGIN, POISON);
        engine.write(buffer, &bytes)?;
        before.push(bytes);
    }
    kernel.run(engine, &call).map_err(|error| {
        if let EngineError::Call { source, .. } = error {
            FamilyError::Call(source)
        } else {
            FamilyError::Engine(error)
        }
    })?;
    let mut after = Vec::new();
    for &buffer in &buffers {
        after.push(engine.read(buffer)?);
    }
    for buffer in buffers {
        engine.free(buffer)?;
    }
    if let Some(workspace) = workspace {
        engine.free(workspace.buffer())?;
    }
    let expected = kernel.expect(request, &Inputs { pieces: &pieces, bytes: &before, seed, most });
    let mut agreed = Agreed { compared: 0, ratio: 0.0 };
    for (i, piece) in pieces.iter().enumerate() {
        let of_piece = expected.iter().find(|expected| expected.name == piece.name).filter(|_| piece.writes);
        agreed.compare(piece, of_piece, [&before[i], &after[i]])?;
    }
    Ok(agreed)
}

/// The elements of a piece in the order of its lines, from one on: the number of its first byte, and its value.
fn elements<'a>(piece: &'a Piece, bytes: &'a [u8], first: usize) -> impl Iterator<Item = (usize, f64)> + 'a {
    let Extents { length, lines, ld, count, stride, .. } = piece.extents;
    let size = piece.format().map_or(1, |format| format.bytes() as usize);
    let all = if piece.format().is_some() { length * u64::from(lines) * u64::from(count) } else { 0 };
    (first as u64..all).map(move |index| {
        let (line, element) = (index / length, index % length);
        let [matrix, line] = [line / u64::from(lines), line % u64::from(lines)];
        let at = (matrix * stride + line * ld + element) as usize * size;
        let bits = bytes[at..at + size].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        (at, piece.format().map_or(0.0, |format| format.decode(bits)))
    })
}

/// Elements in a row of which at least one must have changed. One alone may have had its new value before.
const RUN: usize = 16;

impl Agreed {
    fn compare(
        &mut self,
        piece: &Piece,
        expected: Option<&Expected>,
        [before, after]: [&[u8]; 2],
    ) -> Result<(), FamilyError> {
        let name = piece.name;
        let mut may = vec![false; after.len()];
        if let Some(Expected { elements: expected, .. }) = expected {
            let size = piece.format().map_or(1, |format| format.bytes() as usize);
            let places: Vec<usize> = elements(piece, after, 0).map(|(at, _)| at).collect();
            for (i, run) in places.chunks(RUN).enumerate() {
                let same = |&at: &usize| before[at..at + size] == after[at..at + size];
                if run.iter().all(same) {
                    return Err(FamilyError::Unwritten { name, index: i * RUN, count: run.len() });
                }
                run.iter().for_each(|&at| may[at..at + size].fill(true));
            }
            for (first, expected) in expected {
                let mut found = elements(piece, after, *first);
                for (index, &(expected, bound)) in (*first..).zip(expected) {
                    let Some((_, found)) = found.next() else {
                        return Err(FamilyError::Extents { name, index, count: places.len() });
                    };
                    let same = found == expected || (found.is_nan() && expected.is_nan());
                    let error = if same { 0.0 } else { (found - expected).abs() };
                    if error > bound || error.is_nan() {
                        return Err(FamilyError::Element { name, index, found, expected, bound });
                    }
                    self.compared += 1;
                    self.ratio = self.ratio.max(if error > 0.0 { error / bound } else { 0.0 });
                }
            }
        } else if piece.writes && piece.format().is_none() {
            // A workspace, or a report.
            may[..piece.bytes].fill(true);
        }
        match (0..after.len()).find(|&byte| before[byte] != after[byte] && !may[byte]) {
            Some(byte) => Err(FamilyError::Outside { name, byte }),
            None => Ok(()),
        }
    }
}

/// What became of a kernel's mutants.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// Mutants that the verifier refused.
    pub refused: usize,
    /// Mutants that trapped, hung, or wrote something else.
    pub killed: usize,
    /// Mutants that did what the unbroken kernel does, under every schedule: they are equivalent to it, or the request does not reach
    /// what they broke.
    pub survivors: Vec<Mutation>,
}

/// Breaks every synchronising step of a kernel, one at a time, and runs each broken program in the emulator under the deterministic schedules and
/// `random` random ones, until it behaves differently. `call` may have any addresses: memory is made for it.
///
/// # Errors
/// The unbroken kernel fails under one of the schedules, or the call is illegal.
pub fn prove<C: Clone>(kernel: &impl Kernel<C>, call: &C, random: u64) -> Result<Proof, FamilyError> {
    let Some(trial) = Trial::new(kernel, call, SLOTS)? else { return Ok(Proof::default()) };
    let unbroken = Program::new(trial.program.function());
    let failed = |(schedule, seed), reason| FamilyError::Unbroken { schedule, seed, reason };
    let run = |program: &Program, by, fuel| {
        let options = Options { fuel, threads: 1, ..trial.options(by) };
        trial.run(program, &options).map_err(|failure| failure.to_string())
    };
    let first = (Schedule::Default, 0);
    let (instructions, want) =
        run(&unbroken, first, Options::default().fuel).map_err(|reason| failed(first, reason))?;
    let fuel = instructions * 16 + (1 << 16);
    for by in Schedule::sweep(random) {
        let (_, got) = run(&unbroken, by, fuel).map_err(|reason| failed(by, reason))?;
        if got != want {
            return Err(failed(by, "it wrote other bits than under the default schedule".to_owned()));
        }
    }
    let mut proof = Proof::default();
    for mutation in mutations(trial.program.function()) {
        let Ok(mutant) = mutation.apply(trial.program.function()).verify() else {
            proof.refused += 1;
            continue;
        };
        let mutant = Program::new(&mutant);
        if Schedule::sweep(random).all(|by| run(&mutant, by, fuel).is_ok_and(|(_, got)| got == want)) {
            proof.survivors.push(mutation);
        } else {
            proof.killed += 1;
        }
    }
    Ok(proof)
}

/// Records what a kernel does with a call in the emulator, with `slots` clusters at a time, and how the run ended: a run that ends in a
/// trap has a trace too. `call` may have any addresses: memory is made for it. `None`: there is nothing to compute.
///
/// # Errors
/// The call is illegal.
pub fn trace<C: Clone>(
    kernel: &impl Kernel<C>,
    call: &C,
    (slots, schedule, seed): (u32, Schedule, u64),
) -> Result<Option<Traced>, FamilyError> {
    let Some(trial) = Trial::new(kernel, call, slots)? else { return Ok(None) };
    let recorder = Recorder::default();
    let options = Options { trace: Some(&recorder), ..trial.options((schedule, seed)) };
    let outcome = trial.run(&Program::new(trial.program.function()), &options).map(|_| ());
    Ok(Some((recorder.into_trace(), outcome)))
}

/// What a kernel did, and how its run ended.
pub type Traced = (Trace, Result<(), Failure>);

/// A launch on memory of its own in the emulator.
struct Trial {
    program: kernel::Program,
    launch: Launch,
    /// The contents of memory before the launch, in the order of allocation.
    contents: Vec<Vec<u8>>,
    /// Which of them the kernel writes.
    written: Vec<usize>,
}

impl Trial {
    fn new<C: Clone>(kernel: &impl Kernel<C>, call: &C, slots: u32) -> Result<Option<Self>, FamilyError> {
        let (mut call, mut memory) = (call.clone(), Memory::new());
        let mut allocate = |bytes| memory.allocate(bytes);
        let mut places = Places::new(&mut allocate);
        kernel.visit(&mut call, &mut places);
        let pieces = places.pieces;
        let mut fill = Fill::new(1);
        let mut contents: Vec<Vec<u8>> = pieces.iter().map(|piece| fill.bytes(piece)).collect();
        let bytes = kernel.workspace(&call, slots);
        if bytes > 0 {
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            let address = memory.allocate(length);
            kernel.lend_workspace(&mut call, Some(WorkspaceRef { address, bytes }));
            contents.push(vec![0; length]);
        }
        let written = (0..pieces.len()).filter(|&at| pieces[at].writes).collect();
        let (program, launch) = (kernel.program()?, kernel.launch(&call, slots)?);
        Ok(launch.map(|launch| Self { program, launch, contents, written }))
    }

    fn options(&self, (schedule, seed): (Schedule, u64)) -> Options<'static> {
        Options { schedule, seed, dependent: self.program.function().waits_for_grids(), ..Options::default() }
    }

    /// Runs a program. Returns the number of instructions, and what it wrote.
    fn run(&self, program: &Program, options: &Options<'_>) -> Result<(u64, Vec<u8>), Failure> {
        let mut memory = Memory::new();
        // It returns the same addresses for the same sizes in the same order.
        let addresses: Vec<u64> = self.contents.iter().map(|bytes| memory.upload(bytes)).collect();
        let report = program.launch(self.launch.grid, &self.launch.arguments, &memory, options)?;
        let mut all = Vec::new();
        for &at in &self.written {
            all.extend(memory.read(addresses[at], self.contents[at].len())?);
        }
        Ok((report.instructions, all))
    }
}
