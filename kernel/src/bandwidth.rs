//! Kernels that only move bytes: what memory and L2 give at most.
//!
//! A CTA reads its part of a buffer in 16-byte vectors, several at a time, and adds them up or writes them to another buffer. In the next round it reads
//! the part of the next CTA, so that nothing comes from L1.

use collective::Plan;
use ptx::{Builder, Entry, Special, VerifyError};

use crate::error::LaunchError;
use crate::filled::Launch;
use crate::kernel::Kernel;
use crate::operands::{Contents, Extents, Memory, Visit};
use crate::program::Program;

/// Threads per CTA, and CTAs per SM.
const THREADS: u32 = 512;
const CTAS: u32 = 4;
/// Vectors that a thread has in flight.
const VECTORS: u32 = 8;
/// Bytes that a CTA moves at a time.
const STEP: u32 = THREADS * VECTORS * 16;

/// What a kernel does with the bytes that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    /// Adds them up.
    Reads,
    /// Writes them to another buffer.
    Copies,
}

/// A launch that moves bytes from one buffer to another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    multiprocessors: u32,
    /// Number of times that each CTA moves [`STEP`] bytes per round.
    steps: u32,
    rounds: u32,
    source: u64,
    target: u64,
}

impl Traffic {
    /// `rounds` rounds over a buffer of at least `bytes` bytes.
    pub(crate) fn new(multiprocessors: u32, bytes: u64, rounds: u32) -> Self {
        let each = u64::from(multiprocessors * CTAS) * u64::from(STEP);
        Self { multiprocessors, steps: bytes.div_ceil(each) as u32, rounds, source: 0, target: 0 }
    }

    fn ctas(self) -> u32 {
        self.multiprocessors * CTAS
    }

    /// Bytes of each buffer.
    pub(crate) fn bytes(self) -> usize {
        self.ctas() as usize * self.steps as usize * STEP as usize
    }

    /// Bytes that a launch reads.
    pub(crate) fn read(self) -> f64 {
        self.bytes() as f64 * f64::from(self.rounds)
    }

    /// From one buffer to another. A kernel that reads writes one sum per thread there, 4 bytes each.
    pub(crate) fn between(self, source: u64, target: u64) -> Self {
        Self { source, target, ..self }
    }
}

impl Kernel<Traffic> for Moves {
    fn program(&self) -> Result<Program, VerifyError> {
        let name = match self {
            Self::Reads => "read_bytes",
            Self::Copies => "copy_bytes",
        };
        let entry = Entry {
            name: name.to_owned(),
            target: Plan::TARGET,
            threads: THREADS,
            shared_bytes: 0,
            cluster: [1, 1, 1],
        };
        Program::of(self, entry, |f| {
            emit(f, *self);
        })
    }

    fn launch(&self, of: &Traffic, _resident: u32) -> Result<Option<Launch>, LaunchError> {
        Launch::of(self, of, |_| 16, of.ctas())
    }

    fn visit(&self, of: &mut Traffic, visit: &mut dyn Visit) {
        let extents = Extents::line(8, of.bytes() as u64);
        let Traffic { multiprocessors, steps, rounds, source, target } = of;
        visit.count(multiprocessors);
        let contents = Contents::Elements(1);
        visit.memory(Memory { name: "the source", address: source, extents, contents, writes: false });
        visit.memory(Memory { name: "the target", address: target, extents, contents, writes: true });
        visit.address("source", "the source");
        visit.address("target", "the target");
        visit.counted("steps", steps);
        visit.counted("rounds", rounds);
    }
}

fn emit(f: &Builder, moves: Moves) {
    let [source, target] = ["source", "target"].map(|name| f.parameter::<u64>(name));
    let [steps, rounds] = ["steps", "rounds"].map(|name| f.parameter::<u32>(name));
    let (cta, ctas) = (f.special(Special::CtaX), f.special(Special::GridX));
    let thread = f.special(Special::ThreadX);
    let sum = f.variable(0u32);
    f.repeat(rounds, |round| {
        let first = (cta + round) % ctas * steps;
        f.repeat(steps, |step| {
            let start = (first + step).mul_wide(STEP) + thread.mul_wide(16);
            let at = |i: u32| (i * THREADS * 16).cast_signed();
            let loaded: Vec<[_; 4]> =
                (0..VECTORS).map(|i| f.load_global_vector::<u32, 4>(source + start, at(i))).collect();
            for (i, words) in (0..).zip(loaded) {
                match moves {
                    Moves::Copies => f.store_global(target + start, at(i), words),
                    Moves::Reads => words.into_iter().for_each(|word| sum.set(sum.get() + word)),
                }
            }
        });
    });
    if moves == Moves::Reads {
        f.store_global(target + (cta * THREADS + thread).mul_wide(4), 0, [sum.get()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Emulator, Engine};

    #[test]
    fn every_byte_is_moved() {
        let mut engine = Emulator::new();
        let whole = |rounds| Traffic::new(1, u64::from(2 * CTAS * STEP), rounds);
        let traffic = whole(1);
        assert_eq!(whole(3).read(), 3.0 * 2.0 * f64::from(CTAS * STEP));
        let data: Vec<u8> = (0..traffic.bytes() as u32 / 4).flat_map(u32::to_le_bytes).collect();
        let source = engine.upload(&data).expect("memory");
        let target = engine.allocate(traffic.bytes()).expect("memory");
        for (moves, rounds) in [(Moves::Copies, 1), (Moves::Reads, 3)] {
            let transfer = whole(rounds).between(source.address, target.address);
            let launch = moves.launch(&transfer, 132).expect("legal").expect("work");
            let program = moves.program().expect("legal");
            let run = engine.launch(&program, launch.grid, &launch.arguments);
            run.unwrap_or_else(|error| panic!("{error}"));
            let moved = engine.read(target).expect("no fault");
            if moves == Moves::Copies {
                assert!(moved == data);
            } else {
                let sums = moved.chunks_exact(4).take((CTAS * THREADS) as usize);
                let sum = sums
                    .map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]))
                    .fold(0, u32::wrapping_add);
                let words = 0..traffic.bytes() as u32 / 4;
                assert_eq!(sum, words.fold(0, u32::wrapping_add).wrapping_mul(3));
            }
        }
    }
}
