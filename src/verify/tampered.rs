//! For tests of what judges: the emulator, with a mistake after each launch.

use core::ops::Range;
use core::time::Duration;

use kernel::{Buffer, Emulator, Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};

use super::Format;

/// A mistake in a buffer.
#[derive(Clone, Debug)]
pub(super) enum Mistake {
    /// These bytes from a place on.
    Set(usize, Vec<u8>),
    /// This part is as it was before the launch.
    Unwritten(Range<usize>),
}

/// The emulator, which computes or does not, and then makes mistakes in a buffer. As a card, it does not notice accesses
/// beside buffers.
pub(super) struct Tampered {
    emulator: Emulator,
    computes: bool,
    /// All that were allocated.
    buffers: Vec<Buffer>,
    /// The number of the buffer with mistakes.
    number: usize,
    mistakes: Vec<Mistake>,
}

impl Tampered {
    /// Mistakes in the buffer that is allocated after `number` others.
    pub(super) fn new(number: usize, mistakes: Vec<Mistake>) -> Self {
        let emulator = Emulator::new().with_multiprocessors(8);
        Self { emulator, computes: true, buffers: Vec::new(), number, mistakes }
    }

    /// One that computes nothing.
    pub(super) fn idle() -> Self {
        Self { computes: false, ..Self::new(0, Vec::new()) }
    }
}

impl Mistake {
    /// Elements of a format from a place on, in bytes.
    pub(super) fn element(format: Format, at: usize, bits: u64) -> Vec<Self> {
        vec![Self::Set(at, bits.to_le_bytes()[..format.bytes() as usize].to_vec())]
    }
}

/// The bits of the last element away from zero that is at most `bound` from a value, and of the next one.
pub(super) fn edge(format: Format, value: f64, bound: f64) -> [u64; 2] {
    let within = |bits: u64| format.decode(bits).abs() <= value.abs() + bound;
    let mut bits = format.round(value);
    while within(bits) {
        bits += 1;
    }
    [bits - 1, bits]
}

impl Engine for Tampered {
    fn describe(&self) -> String {
        "one that makes mistakes".to_owned()
    }

    fn multiprocessors(&self) -> u32 {
        self.emulator.multiprocessors()
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        let buffer = self.emulator.allocate(bytes)?;
        self.buffers.push(buffer);
        Ok(buffer)
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        self.emulator.write(buffer, bytes)
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        self.emulator.read(buffer)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        self.emulator.free(buffer)
    }

    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError> {
        let buffer = self.buffers.get(self.number).copied().filter(|_| !self.mistakes.is_empty());
        let before = buffer.map_or(Ok(Vec::new()), |buffer| self.emulator.read(buffer))?;
        let time = match self.computes {
            true => self.emulator.launch(program, grid, arguments)?,
            false => Duration::ZERO,
        };
        if let Some(buffer) = buffer {
            let mut bytes = self.emulator.read(buffer)?;
            for mistake in &self.mistakes {
                match mistake {
                    Mistake::Set(at, wrong) => bytes[*at..at + wrong.len()].copy_from_slice(wrong),
                    Mistake::Unwritten(part) => {
                        bytes[part.clone()].copy_from_slice(&before[part.clone()]);
                    }
                }
            }
            self.emulator.write(buffer, &bytes)?;
        }
        Ok(time)
    }
}
