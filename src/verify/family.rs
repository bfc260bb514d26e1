//! Checks kernels of any [`Family`]: random inputs, an f64 reference, and a bound per element; and their
//! synchronisation, by breaking it.
//!
//! A family that implements [`Reference`] says what its kernels must write. [`check`] runs one on any engine. [`prove`] runs
//! the [mutants](ptx::mutate) of any [`Kernel`] in the emulator, and [`trace`] records what it does.

use emulator::{Failure, Memory, Options, Program, Recorder, Schedule, Trace};
use kernel::operands::{Contents, Fill, Piece, Places};
use kernel::{Engine, EngineError, Family, Kernel, Launch, LaunchError, WorkspaceRef};
use ptx::VerifyError;
use ptx::mutate::{Mutation, mutations};
use thiserror::Error;

/// Bytes after each piece of memory that must not change.
const MARGIN: usize = 64;

/// Clusters that run at the same time: few, so that persistent kernels compute several tiles per cluster.
const SLOTS: u32 = 2;

/// What is in memory that no kernel has written.
const POISON: u8 = 0xA5;

/// What the kernels of a family must write.
pub trait Reference: Family {
    /// The elements of each piece of memory that a kernel writes, by name, in the order of the piece's lines.
    /// `input` gives the elements of a piece that is read.
    fn expect(request: &Self::Request<'_>, input: &dyn Fn(&str) -> Vec<f64>) -> Vec<Expected>;
}

/// What a piece of memory must hold.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The piece's name.
    pub name: &'static str,
    /// Values, and how far the kernel's may be from them.
    pub elements: Vec<(f64, f64)>,
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
    /// The reference and the kernel disagree on what is written.
    #[error("the reference has {expected} elements of {name}, the kernel writes {written}")]
    Extents {
        /// The piece.
        name: &'static str,
        /// Elements of the reference.
        expected: usize,
        /// Elements of the piece.
        written: usize,
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

/// Runs a kernel of a request once, on random inputs from a seed, and compares all that it writes with the reference.
/// Nothing else may change.
///
/// # Errors
/// The first element that is wrong or the first byte that changed; or why the kernel could not be run.
pub fn check<K: Reference>(
    engine: &mut dyn Engine,
    kernel: &K,
    request: &K::Request<'_>,
    seed: u64,
) -> Result<Agreed, FamilyError> {
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
    if let Some(Launch { grid, arguments }) = kernel.launch(&call, slots)? {
        engine.launch(&program, grid, &arguments)?;
    }
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
    let input = |name: &str| {
        let found = pieces.iter().position(|piece| piece.name == name);
        found.map_or_else(Vec::new, |i| elements(&pieces[i], &before[i]).map(|(_, value)| value).collect())
    };
    let expected = K::expect(request, &input);
    let mut agreed = Agreed { compared: 0, ratio: 0.0 };
    for (i, piece) in pieces.iter().enumerate() {
        let of_piece = expected.iter().find(|expected| expected.name == piece.name).filter(|_| piece.writes);
        agreed.compare(piece, of_piece, [&before[i], &after[i]])?;
    }
    Ok(agreed)
}

/// The elements of a piece in the order of its lines: the number of its first byte, and its value.
fn elements<'a>(piece: &'a Piece, bytes: &'a [u8]) -> impl Iterator<Item = (usize, f64)> + 'a {
    let of = piece.extents;
    let format = piece.format();
    let size = format.map_or(1, |format| format.bytes() as usize);
    let all = format.is_some().then_some(()).into_iter();
    let places = all.flat_map(move |()| {
        (0..u64::from(of.count)).flat_map(move |matrix| {
            (0..u64::from(of.lines)).flat_map(move |line| {
                let first = matrix * of.stride + line * of.ld;
                (first..first + of.length).map(move |at| at as usize * size)
            })
        })
    });
    places.map(move |at| {
        let bits = bytes[at..at + size].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        (at, format.map_or(0.0, |format| format.decode(bits)))
    })
}

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
            let found: Vec<(usize, f64)> = elements(piece, after).collect();
            if found.len() != expected.len() {
                let (expected, written) = (expected.len(), found.len());
                return Err(FamilyError::Extents { name, expected, written });
            }
            for (index, (&(at, found), &(expected, bound))) in found.iter().zip(expected).enumerate() {
                may[at..at + size].fill(true);
                let same = found == expected || (found.is_nan() && expected.is_nan());
                let error = if same { 0.0 } else { (found - expected).abs() };
                if error > bound || error.is_nan() {
                    return Err(FamilyError::Element { name, index, found, expected, bound });
                }
                self.compared += 1;
                self.ratio = self.ratio.max(if error > 0.0 { error / bound } else { 0.0 });
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
