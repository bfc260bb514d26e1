//! Prepared launches, and how long they take on the device.
#![allow(unsafe_code, reason = "launches with addresses that were checked")]

use std::sync::Arc;

use ptx::abi::{Argument, Grid};

use super::gpu::Gpu;
use super::loaded_program::{LoadedProgram, parameter_block_in};
use super::memory::DeviceMemory;
use super::reach;
use super::stream::{Held, Stream};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::kernel::{Kernel, alone, prepared};
use crate::program::Program;

/// Work that can be enqueued on a stream any number of times.
pub trait Enqueue {
    /// Its name in errors.
    fn name(&self) -> &str;

    /// Enqueues the work on a stream and returns at once.
    ///
    /// # Errors
    /// The driver rejects it.
    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError>;

    /// Whether it is a graph: the driver takes no graph into another one.
    fn is_graph(&self) -> bool {
        false
    }
}

impl<T: Enqueue + ?Sized> Enqueue for &T {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        (**self).enqueue(stream)
    }

    fn is_graph(&self) -> bool {
        (**self).is_graph()
    }
}

/// A launch for which everything is prepared: the kernel is compiled, its arguments are laid out, its tensor
/// maps are encoded.
///
/// It keeps its kernel, and the buffers that its arguments point into, alive.
#[derive(Debug)]
pub struct Prepared {
    kernel: Arc<LoadedProgram>,
    grid: Grid,
    block: Vec<u8>,
    buffers: Vec<DeviceMemory>,
}

impl Prepared {
    /// The compiled kernel.
    pub fn kernel(&self) -> &LoadedProgram {
        &self.kernel
    }
}

impl Enqueue for Prepared {
    fn name(&self) -> &str {
        self.kernel.name()
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        let buffers = self.buffers.iter().map(DeviceMemory::held);
        stream.hold(buffers.chain([Arc::clone(&self.kernel) as Held]));
        let current = self.kernel.context().bind()?;
        // SAFETY: the driver rejects a stream of another context. The block was made for the program. Every address was found
        // in a buffer that is kept, or the caller of `prepare_raw` guarantees it.
        unsafe { self.kernel.launch_in(&current, stream.raw(), self.grid, &self.block) }
    }
}

impl Gpu {
    /// Prepares a launch: compiles the program, unless that was done before, and lays out its arguments.
    ///
    /// If records in device memory hold the matrices' addresses, they are read now, after all earlier work
    /// has ended, and a copy is kept. Later changes of the records have no effect.
    ///
    /// # Errors
    /// Arguments that do not match the program's parameters, an address outside this GPU's buffers, or a
    /// program that the driver rejects.
    pub fn prepare(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Prepared, EngineError> {
        self.context().alive()?;
        let mut buffers = reach::buffers(self.memories(), program, arguments)?;
        let mut arguments = arguments.to_vec();
        if let Some((index, count, address)) = reach::records(program, &arguments) {
            let (copy, named) = self.own_records(program, count, address)?;
            arguments[index] = copy.address().into();
            buffers.extend(named);
            buffers.push(copy);
        }
        // SAFETY: the addresses are inside buffers, which the launch keeps. Addresses in the records are too,
        // and the records are in memory that nothing else uses.
        let prepared = unsafe { self.prepare_raw(program, grid, &arguments)? };
        Ok(Prepared { buffers, ..prepared })
    }

    /// Prepares the launch of a call; `None` if there is nothing to compute.
    ///
    /// # Errors
    /// The verifier's faults, the first illegal argument, or those of [`prepare`](Self::prepare).
    pub fn prepare_call<C: Clone>(
        &mut self,
        kernel: &(impl Kernel<C> + ?Sized),
        call: &C,
    ) -> Result<Option<Prepared>, EngineError> {
        let (program, launch) = prepared(kernel, call, |program| self.resident_clusters(program))?;
        alone(kernel, program.name())?;
        launch.map(|launch| self.prepare(&program, launch.grid, &launch.arguments)).transpose()
    }

    /// Prepares a launch on any memory, as [`prepare`](Self::prepare) does on this GPU's buffers.
    ///
    /// # Errors
    /// Arguments that do not match the program's parameters, or a program that the driver rejects.
    ///
    /// # Safety
    /// Every address among the arguments, also inside tensor maps, and every address that the program finds
    /// in memory, must be that of memory that covers the extents which the kernel reads and writes. This
    /// memory must stay allocated, and nothing else may use it, until the last launch has finished, also the
    /// last launch from a graph.
    pub unsafe fn prepare_raw(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Prepared, EngineError> {
        let block = parameter_block_in(self.context(), program, arguments)?;
        Ok(Prepared { kernel: self.kernel(program)?, grid, block, buffers: Vec::new() })
    }

    /// Runs `count` launches back to back, cycling through the list. Returns the mean device time per launch
    /// in seconds; 0 if there are no launches.
    ///
    /// Pass one launch per set of inputs, with enough sets that together they do not fit into the L2 cache.
    /// To warm up, call it once and ignore the result. To compare candidates, call it for each of them
    /// alternately.
    ///
    /// # Errors
    /// The driver rejects a launch, or one faults while it runs.
    pub fn time_many(&mut self, launches: &[&dyn Enqueue], count: usize) -> Result<f64, EngineError> {
        if launches.is_empty() || count == 0 {
            return Ok(0.0);
        }
        self.context().alive()?;
        let _current = self.context().bind()?;
        match self.run_between_events(launches, count) {
            Ok(milliseconds) => Ok(f64::from(milliseconds) / 1e3 / count as f64),
            Err(error) => Err(self.blame(error)),
        }
    }

    fn run_between_events(&self, launches: &[&dyn Enqueue], count: usize) -> Result<f32, EngineError> {
        let (stream, [start, stop]) = (self.stream(), self.events());
        start.record(stream)?;
        for launch in launches.iter().cycle().take(count) {
            launch.enqueue(stream)?;
        }
        stop.record(stream)?;
        stream.wait()?;
        self.context().finished();
        stop.since(start)
    }
}

/// The distinct names of launches, for an error that any of them may have caused.
pub(super) fn names(launches: &[&dyn Enqueue]) -> String {
    let mut names: Vec<_> = launches.iter().map(|launch| launch.name()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}
