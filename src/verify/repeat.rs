//! Repeats a launch: each run must give the bits of the first.
//!
//! The comparison happens on the device: a small program compares D with the first run's bits, and restores
//! the poison for the next run. The workspace is not reset between runs.

use kernel::{Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};
use ptx::{AtomicOp, AtomicSem, Builder, Entry, Function, Location, Scope, Special, Target};

use super::Format;
use super::session::{Output, Ran, Session, Upload};

/// Number of bytes that are compared at a time. The size of D's memory is a multiple of it.
const CHUNK_BYTES: u32 = 16;

/// A number of elements, rounded up to a multiple of what is compared at a time.
pub(super) fn chunks(format: Format, elements: usize) -> usize {
    elements.next_multiple_of((CHUNK_BYTES / format.bytes()) as usize)
}

const THREADS: u32 = 256;

/// The result if no word differs.
const NOWHERE: u32 = u32::MAX;

/// A run that gave another D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Number of the run; the first is 1.
    pub run: u32,
    /// The first element that differs, counted from the start of D's memory.
    pub place: usize,
    /// Its bits in the first run and in this one.
    pub bits: [u64; 2],
}

impl Session<'_> {
    /// Runs a kernel for runs 2 to `runs`. `first` is D after the first run. Stops at the first run that gives other bits.
    pub(super) fn repeat(
        &mut self,
        ran: &Ran<'_>,
        (d, first): (&Output, &[u64]),
        runs: u32,
    ) -> Result<Option<Change>, EngineError> {
        let Some(launch) = ran.launch.as_ref().filter(|_| runs >= 2) else { return Ok(None) };
        let bytes = d.format.memory(&d.before);
        let chunks = (bytes.len() / CHUNK_BYTES as usize) as u32;
        let before = self.upload(&bytes)?;
        let of_first = self.upload(&d.format.memory(first))?;
        let place = self.buffer(&NOWHERE.to_le_bytes())?;
        let ctas = chunks.div_ceil(THREADS).clamp(1, 8 * self.engine.multiprocessors().max(1));
        let comparer = comparer()?;
        let addresses = [d.buffer.address, of_first, before, place.address].map(Argument::from);
        let arguments = [&addresses[..], &[chunks.into()]].concat();
        let compare = |engine: &mut dyn Engine| -> Result<u32, EngineError> {
            engine.launch(&comparer, Grid { ctas: [ctas, 1, 1] }, &arguments)?;
            let bytes = engine.read(place)?;
            Ok(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
        };
        // After the first run everything is equal, so this restores the poison.
        compare(self.engine)?;
        for run in 2..=runs {
            self.engine.launch(ran.program, launch.grid, &launch.arguments)?;
            let word = compare(self.engine)?;
            if word == NOWHERE {
                continue;
            }
            // The program has left the differing chunk unchanged.
            let now = self.read(d)?;
            let begin = word as usize * 4 / d.format.bytes() as usize;
            let differs = |&place: &usize| now[place] != first[place];
            let place = (begin..now.len()).find(differs).unwrap_or(begin);
            return Ok(Some(Change { run, place, bits: [first[place], now[place]] }));
        }
        Ok(None)
    }
}

/// Compares `chunks` chunks of D with those of the first run. Equal chunks get their contents of `before`.
/// The index of the first differing word goes to `place`.
fn comparer() -> Result<Program, EngineError> {
    let name = "same_bits".to_owned();
    let entry = Entry {
        name: name.clone(),
        target: Target::Sm90a,
        threads: THREADS,
        shared_bytes: 0,
        cluster: [1, 1, 1],
    };
    let function = Function::build(entry, |f: &Builder| {
        let [d, first, before, place] = ["d", "first", "before", "place"].map(|name| f.param::<u64>(name));
        let chunks = f.param::<u32>("chunks");
        let index = f.variable(f.special(Special::CtaX) * THREADS + f.special(Special::ThreadX));
        f.while_(
            || index.get().less_than(chunks),
            || {
                let offset = index.get().mul_wide(CHUNK_BYTES);
                let [is, was] = [d, first].map(|base| f.load_global_vector::<u32, 4>(base + offset, 0));
                let least = f.variable(NOWHERE);
                for (word, (is, was)) in (0..4).zip(is.into_iter().zip(was)).rev() {
                    least.set((index.get() * 4 + word).where_or(is.differs_from(was), least.get()));
                }
                f.if_else(
                    least.get().equals(NOWHERE),
                    || f.store_global(d + offset, 0, f.load_global_vector::<u32, 4>(before + offset, 0)),
                    || {
                        let order = (AtomicSem::Relaxed, Scope::Gpu);
                        f.reduce(AtomicOp::Min, Location::global(place, 0), [least.get()], order);
                    },
                );
                index.set(index.get() + f.special(Special::GridX) * THREADS);
            },
        );
    });
    Program::new(function).map_err(|error| EngineError::Compile { kernel: name, log: error.to_string() })
}

#[cfg(test)]
mod tests {
    use kernel::operands::{Contents, Extents, Memory};
    use kernel::{Emulator, GemmProblem, Launch};

    use super::*;
    use crate::verify::SeveralProducts;

    const WORDS: u32 = 40;

    /// An engine that writes each word's index to the word, except for the last four. In its third run it
    /// writes another value to word 5.
    fn fickle() -> Program {
        let entry = Entry {
            name: "fickle".to_owned(),
            target: Target::Sm90a,
            threads: 64,
            shared_bytes: 0,
            cluster: [1; 3],
        };
        let function = Function::build(entry, |f: &Builder| {
            let [d, runs] = ["d", "runs"].map(|name| f.param::<u64>(name));
            let thread = f.special(Special::ThreadX);
            let run = f.load_global::<u32>(runs, 0);
            f.barrier_sync(0, 64);
            let wrong = run.equals(2) & thread.equals(5);
            f.if_(thread.less_than(WORDS - 4), || {
                f.store_global(d + thread.mul_wide(4), 0, [(thread ^ 0x1_0000).where_or(wrong, thread)]);
            });
            f.if_(thread.equals(0), || f.store_global(runs, 0, [run + 1]));
        });
        Program::new(function).expect("legal")
    }

    #[test]
    fn a_run_with_other_bits_is_noticed() {
        let change = Change { run: 3, place: 11, bits: [0, 1] };
        for (runs, want) in [(1, None), (2, None), (3, Some(change)), (9, Some(change))] {
            let (mut engine, program) = (Emulator::new(), fickle());
            let format = Format::Bf16;
            let session = &mut Session::new(&mut engine);
            let d = session.output(format, vec![format.poison(); 2 * WORDS as usize]).expect("memory");
            let count = session.upload(&[0; 4]).expect("memory");
            let (address, grid) = (d.buffer.address, Grid { ctas: [1, 1, 1] });
            let launch = Launch::new(grid, |visit| {
                for (parameter, name, mut address) in [("d", "D", address), ("runs", "the runs", count)] {
                    let (extents, contents) = (Extents::line(32, 1), Contents::Elements(4));
                    visit.memory(Memory { name, address: &mut address, extents, contents, writes: true });
                    visit.address(parameter, name);
                }
            });
            let launch = launch.expect("both are visited");
            session.engine.launch(&program, launch.grid, &launch.arguments).expect("runs");
            let first = session.read(&d).expect("memory");
            let ran = Ran { program: &program, launch: Some(launch), time: None };
            assert_eq!(session.repeat(&ran, (&d, &first), runs).expect("runs"), want, "{runs} runs");
            if want.is_none() && runs > 1 {
                assert_eq!(session.read(&d).expect("memory"), d.before, "poisoned for the next");
            }
        }
    }

    /// Split tiles of several GEMMs: each run must leave the workspace as it found it.
    #[test]
    fn divided_tiles_have_the_same_bits_every_time() {
        let entry = kernel::find("batched-128x256-stream-k-bf16-kk").expect("a catalogue name");
        let program = entry.program().expect("legal");
        let problem = GemmProblem { m: 20, n: 40, k: 2048 };
        let several = SeveralProducts { d_padding: 8, seed: 1, ..SeveralProducts::batch(problem, 3) };
        let mut engine = Emulator::new().with_multiprocessors(8);
        assert!(entry.workspace(&kernel::Call::of(problem).batched(3), 8) > 0, "tiles are divided");
        let outcome = several.run_times(&entry, &program, &mut engine, 3).expect("runs");
        assert_eq!(outcome.mismatch, None);
    }
}
