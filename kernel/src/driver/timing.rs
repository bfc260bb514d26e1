//! Prepared launches, and how long runs of them take on the device.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use ptx::abi::{Argument, Grid};

use super::gpu::Gpu;
use super::kernel::{Kernel, parameter_block};
use super::{call, library};
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
    fn enqueue(&self, stream: &CudaStream) -> Result<(), EngineError>;
}

impl<T: Enqueue + ?Sized> Enqueue for &T {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn enqueue(&self, stream: &CudaStream) -> Result<(), EngineError> {
        (**self).enqueue(stream)
    }
}

/// A launch with everything done that can be done before: compiled, arguments laid out, tensor maps encoded.
#[derive(Debug)]
pub struct Prepared {
    kernel: Arc<Kernel>,
    grid: Grid,
    block: Vec<u8>,
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

    fn enqueue(&self, stream: &CudaStream) -> Result<(), EngineError> {
        // SAFETY: the driver refuses a stream of another context. The block was laid out for this kernel, and its
        // addresses are the device's: a bad one is a fault of the device, which is reported, and harms no memory of
        // the host.
        unsafe { self.kernel.launch_raw(stream.cu_stream().cast(), self.grid, &self.block) }
    }
}

impl Gpu {
    /// Compiles a program, unless that was done before, and lays its arguments out.
    ///
    /// # Errors
    /// Arguments that do not fit, or a program the driver refuses.
    pub fn prepare(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Prepared, EngineError> {
        let block = parameter_block(program, arguments)?;
        Ok(Prepared { kernel: self.kernel(program)?, grid, block })
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
        self.alive()?;
        call::bind(self.context())?;
        match self.run_between_events(launches, count) {
            Ok(milliseconds) => Ok(f64::from(milliseconds) / 1e3 / count as f64),
            Err(error) => Err(self.blame(launches, error)),
        }
    }

    fn run_between_events(&self, launches: &[&dyn Enqueue], count: usize) -> Result<f32, EngineError> {
        let (stream, stopwatch) = (self.stream(), self.stopwatch());
        stopwatch.start(stream)?;
        for launch in launches.iter().cycle().take(count) {
            launch.enqueue(stream)?;
        }
        stopwatch.stop(stream)?;
        call::kernel(&names(launches), "cuStreamSynchronize", stream.synchronize())?;
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

/// Two events around a piece of work.
#[derive(Debug)]
pub(super) struct Stopwatch {
    start: CudaEvent,
    stop: CudaEvent,
}

impl Stopwatch {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, EngineError> {
        let event = || context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        Ok(Self {
            start: call::driver("cuEventCreate", event())?,
            stop: call::driver("cuEventCreate", event())?,
        })
    }

    fn start(&self, stream: &CudaStream) -> Result<(), EngineError> {
        call::driver("cuEventRecord", self.start.record(stream))
    }

    fn stop(&self, stream: &CudaStream) -> Result<(), EngineError> {
        call::driver("cuEventRecord", self.stop.record(stream))
    }

    fn milliseconds(&self) -> Result<f32, EngineError> {
        // SAFETY: both events live as long as `self`.
        unsafe { library::driver()?.elapsed(self.start.cu_event(), self.stop.cu_event()) }
    }
}
