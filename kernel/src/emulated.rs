//! The emulator as an engine.

use core::fmt;
use core::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

use emulator::{Failure, Memory, Numerics, Options, Report, Schedule};
use ptx::abi::{Argument, Grid};

use crate::buffer::Buffer;
use crate::demand::Demand;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::host::check_memory;
use crate::program::Program;

/// A callback that receives the number of finished CTAs of a launch and the number of all its CTAs.
pub type Progress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// An emulated Hopper GPU on the CPU. Use it to run and check kernels where no GPU is present.
///
/// The times that it reports are those of the host; they say nothing about a GPU.
pub struct Emulator {
    memory: Memory,
    multiprocessors: u32,
    schedule: Schedule,
    seed: u64,
    numerics: Numerics,
    progress: Option<Progress>,
    stop: Option<Arc<AtomicBool>>,
    report: Option<Report>,
}

impl Default for Emulator {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator")
            .field("multiprocessors", &self.multiprocessors)
            .field("schedule", &self.schedule)
            .field("seed", &self.seed)
            .field("numerics", &self.numerics)
            .finish_non_exhaustive()
    }
}

impl Emulator {
    /// A new device with empty memory and 132 SMs, as H100 SXM and H200 have.
    pub fn new() -> Self {
        Self {
            memory: Memory::new(),
            multiprocessors: 132,
            schedule: Schedule::Default,
            seed: 0,
            numerics: Numerics::Fast,
            progress: None,
            stop: None,
            report: None,
        }
    }

    /// Sets the number of SMs. Persistent kernels launch this number of CTAs, divided into clusters. Minimum:
    /// 1.
    #[must_use]
    pub fn with_multiprocessors(mut self, multiprocessors: u32) -> Self {
        self.multiprocessors = multiprocessors.max(1);
        self
    }

    /// Sets the order in which warps run and asynchronous operations complete. `seed` selects one of the
    /// random orders.
    #[must_use]
    pub fn with_schedule(mut self, schedule: Schedule, seed: u64) -> Self {
        (self.schedule, self.seed) = (schedule, seed);
        self
    }

    /// Sets the rounding of floating-point matrix multiplies.
    #[must_use]
    pub fn with_numerics(mut self, numerics: Numerics) -> Self {
        self.numerics = numerics;
        self
    }

    /// Sets a callback that reports progress while a launch runs.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Ends launches soon after `stop` becomes true, with [`EngineError::Stopped`]. What they write is then written in
    /// part.
    #[must_use]
    pub fn with_stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// What the last launch executed; `None` before the first.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// The device memory, for parts of buffers. Whoever frees memory there takes it from a buffer.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn known(&self, buffer: Buffer, needed: usize) -> Result<(), EngineError> {
        let bytes = self.memory.size(buffer.address).unwrap_or(0);
        let fits = bytes >= needed && bytes > 0;
        if fits { Ok(()) } else { Err(EngineError::Buffer { address: buffer.address, bytes, needed }) }
    }
}

/// Bytes that are allocated without asking whether they are there.
const UNCHECKED: usize = 1 << 24;

fn unknown(Buffer { address, .. }: Buffer, needed: usize) -> EngineError {
    EngineError::Buffer { address, bytes: 0, needed }
}

impl Engine for Emulator {
    fn describe(&self) -> String {
        format!("emulator of an sm_90a GPU with {} SMs", self.multiprocessors)
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn traps_outside(&self) -> bool {
        true
    }

    fn admit(&self, demand: &Demand, copies: u32) -> Result<(), EngineError> {
        demand.at_most(Demand::MOST_EMULATED)?;
        check_memory(u128::from(copies) * demand.bytes + demand.on_emulator())
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        let bytes = bytes.max(1);
        if bytes > UNCHECKED {
            check_memory(bytes as u128 + bytes as u128 / 8)?;
        }
        let address = self.memory.allocate(bytes);
        Ok(Buffer { address, bytes })
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        self.known(buffer, bytes.len())?;
        self.memory.write(buffer.address, bytes).map_err(|_| unknown(buffer, bytes.len()))
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        self.known(buffer, buffer.bytes)?;
        self.memory.read(buffer.address, buffer.bytes).map_err(|_| unknown(buffer, buffer.bytes))
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        self.known(buffer, 1)?;
        self.memory.free(buffer.address).map_err(|_| unknown(buffer, buffer.bytes))
    }

    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError> {
        let start = Instant::now();
        let lowered = emulator::Program::new(program.function());
        let progress = self.progress.as_ref().map(|progress| progress.as_ref() as _);
        let options = Options {
            schedule: self.schedule,
            seed: self.seed,
            numerics: self.numerics,
            progress,
            stop: self.stop.as_deref(),
            // Such a kernel is launched before the kernels that it depends on have ended.
            dependent: program.function().waits_for_grids(),
            ..Options::default()
        };
        let kernel = program.name().to_owned();
        match lowered.launch(grid, arguments, &self.memory, &options) {
            Ok(report) => {
                self.report = Some(report);
                Ok(start.elapsed())
            }
            Err(Failure::Argument(source)) => Err(EngineError::Argument { kernel, source }),
            Err(stopped @ Failure::Stopped { .. }) => {
                Err(EngineError::Stopped { kernel, reason: stopped.to_string() })
            }
            Err(failure) => {
                let report = failure.to_string();
                // A trap's text begins with the kernel's name, and so does the error's.
                let named = format!("kernel `{kernel}`: ");
                let report = report.strip_prefix(&named).unwrap_or(&report).to_owned();
                let scheduler = program.scheduler().map(str::to_owned);
                Err(EngineError::Trap { kernel, scheduler, report })
            }
        }
    }
}
