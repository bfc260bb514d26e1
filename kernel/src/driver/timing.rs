//! Prepared launches, and how long runs of them take on the device.
#![allow(unsafe_code, reason = "launches with addresses that were checked")]

use std::sync::Arc;

use ptx::abi::{Argument, Grid};

use super::gpu::Gpu;
use super::kernel::{Kernel, parameter_block_in};
use super::memory::Allocation;
use super::reach;
use super::stream::{Held, Stream};
use crate::error::EngineError;
use crate::program::Program;

/// Work that can be put on a stream again and again.
pub trait Enqueue {
    /// Its name in errors.
    fn name(&self) -> &str;

    /// Puts it on a stream and returns at once.
    ///
    /// # Errors
    /// The driver refuses it.
    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError>;
}

impl<T: Enqueue + ?Sized> Enqueue for &T {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        (**self).enqueue(stream)
    }
}

/// A launch with everything done that can be done before: compiled, arguments laid out, tensor maps encoded.
///
/// It keeps its kernel and the buffers that its arguments name.
#[derive(Debug)]
pub struct Prepared {
    kernel: Arc<Kernel>,
    grid: Grid,
    block: Vec<u8>,
    buffers: Vec<Arc<Allocation>>,
}

impl Prepared {
    /// The compiled kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

impl Enqueue for Prepared {
    fn name(&self) -> &str {
        self.kernel.name()
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        let buffers = self.buffers.iter().map(|buffer| Arc::clone(buffer) as Held);
        stream.hold(buffers.chain([Arc::clone(&self.kernel) as Held]));
        // SAFETY: the driver refuses a stream of another context. Every address was found in a buffer that is kept, or the
        // caller of `prepare_raw` vouches for it.
        unsafe { self.kernel.launch_raw(stream.raw(), self.grid, &self.block) }
    }
}

impl Gpu {
    /// Compiles a program, unless that was done before, and lays its arguments out.
    ///
    /// # Errors
    /// Arguments that do not fit, an address that is not in a buffer of this GPU, or a program the driver refuses.
    ///
    /// Records that name matrices are read now, once everything before has run, and kept as they are.
    pub fn prepare(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Prepared, EngineError> {
        self.context().alive()?;
        let mut buffers = self.buffers(program, arguments)?;
        let mut arguments = arguments.to_vec();
        if let Some((index, count, address)) = reach::records(program, &arguments) {
            let (copy, named) = self.own_records(program, count, address)?;
            arguments[index] = copy.address().into();
            buffers.extend(named);
            buffers.push(copy);
        }
        // SAFETY: the addresses lie in buffers, which the launch keeps; those in memory do too, in memory that nobody else
        // has.
        let prepared = unsafe { self.prepare_raw(program, grid, &arguments)? };
        Ok(Prepared { buffers, ..prepared })
    }

    /// As [`prepare`](Self::prepare) for memory of anybody.
    ///
    /// # Errors
    /// Arguments that do not fit, or a program the driver refuses.
    ///
    /// # Safety
    /// Every address among the arguments, also inside tensor maps, and every address that the program finds in memory, names
    /// memory that stays allocated until the last launch has finished, also of graphs, and that nothing else uses in the
    /// meantime, in the extent the kernel reads and writes.
    pub unsafe fn prepare_raw(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Prepared, EngineError> {
        let block = parameter_block_in(self.context(), program, arguments)?;
        Ok(Prepared { kernel: self.kernel(program)?, grid, block, buffers: Vec::new() })
    }

    /// Runs `count` launches back to back, taking them from the list in turn, and says how many seconds of the
    /// device's time one of them took. No launches take no time.
    ///
    /// Give one launch per set of inputs, and enough sets that they do not fit the L2 cache together; warm up with a
    /// call whose answer is dropped; call it in turn for the candidates that are to be compared.
    ///
    /// # Errors
    /// A launch that the driver refuses, or a fault while one ran.
    pub fn time_many(&mut self, launches: &[&dyn Enqueue], count: usize) -> Result<f64, EngineError> {
        if launches.is_empty() || count == 0 {
            return Ok(0.0);
        }
        self.context().alive()?;
        self.context().bind()?;
        match self.run_between_events(launches, count) {
            Ok(milliseconds) => Ok(f64::from(milliseconds) / 1e3 / count as f64),
            Err(error) => Err(self.blame(error)),
        }
    }

    fn run_between_events(&self, launches: &[&dyn Enqueue], count: usize) -> Result<f32, EngineError> {
        let (stream, stopwatch) = (self.stream(), self.stopwatch());
        stopwatch.start(stream)?;
        for launch in launches.iter().cycle().take(count) {
            launch.enqueue(stream)?;
        }
        stopwatch.stop(stream)?;
        stream.wait()?;
        self.context().finished();
        stopwatch.milliseconds()
    }
}

/// The distinct names of launches, for an error that any of them may have caused.
pub(super) fn names(launches: &[&dyn Enqueue]) -> String {
    let mut names: Vec<_> = launches.iter().map(|launch| launch.name()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}
