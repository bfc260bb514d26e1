//! A GPU as an engine.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::fmt;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use collective::Record;
use lru::LruCache;
use ptx::Target;
use ptx::abi::{Argument, Grid};

use super::context::Context;
use super::loaded_program::LoadedProgram;
use super::memory::{Allocation, DeviceMemory, Memories};
use super::stopwatch::Stopwatch;
use super::stream::Stream;
use super::sys::device;
use super::{library, reach};
use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::program::Program;

/// Number of kernels that stay compiled: more than one command compiles, and few enough to fit on a device.
const KERNELS: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// A Hopper GPU with memory, a stream, and the kernels compiled for it so far.
///
/// As an [`Engine`] it launches only on its own buffers: any other address is an error. To launch on other
/// memory, use [`prepare_raw`](Self::prepare_raw), which is `unsafe`.
pub struct Gpu {
    context: Arc<Context>,
    stream: Arc<Stream>,
    stopwatch: Stopwatch,
    description: String,
    multiprocessors: u32,
    memories: Arc<Memories>,
    /// Kernels by the digests of their programs. The least recently used is dropped first.
    kernels: LruCache<u64, (Arc<str>, Arc<LoadedProgram>)>,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu")
            .field("description", &self.description)
            .field("buffers", &self.memories.len())
            .field("kernels", &self.kernels.len())
            .field("fault", &self.context.alive().err())
            .finish_non_exhaustive()
    }
}

impl Gpu {
    /// The GPU with an index, in its primary context: the one that cudarc, candle and the CUDA runtime use
    /// too.
    ///
    /// # Errors
    /// No driver, a driver that is too old or lacks a function, no such GPU, a GPU of another architecture,
    /// or a driver error.
    pub fn new(ordinal: usize) -> Result<Self, EngineError> {
        Self::from_context(Context::primary(ordinal)?)
    }

    /// The GPU of an existing context, with a new stream.
    ///
    /// # Errors
    /// A GPU of another architecture, or a driver error.
    pub fn from_context(context: Arc<Context>) -> Result<Self, EngineError> {
        let name = check_device(&context)?;
        let multiprocessors = context.attribute(device::MULTIPROCESSORS)?;
        let stream = Stream::new(&context)?;
        let stopwatch = Stopwatch::new(&context)?;
        Ok(Self {
            description: describe(&name, library::module_version(), context.driver().version),
            multiprocessors,
            memories: Arc::default(),
            kernels: LruCache::new(KERNELS),
            context,
            stream,
            stopwatch,
        })
    }

    /// The context of this GPU.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Peak memory bandwidth of the card in bytes per second: memory clock, times two transfers per cycle,
    /// times bus width.
    ///
    /// # Errors
    /// A driver error.
    pub fn memory_bandwidth(&self) -> Result<f64, EngineError> {
        Ok(self.context.card()?.memory_bandwidth)
    }

    /// The stream on which launches, copies and timings run in order.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Waits for everything that was enqueued on the stream.
    ///
    /// # Errors
    /// An earlier program faulted.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        self.context.alive()?;
        self.synchronize()
    }

    /// The memory of a buffer, to lend to a [`Loaded`](super::Loaded). It stays allocated as long as the
    /// returned value is kept.
    ///
    /// # Errors
    /// The buffer does not belong to this GPU.
    pub fn memory(&self, buffer: Buffer) -> Result<DeviceMemory, EngineError> {
        self.known(buffer, 1).map(DeviceMemory)
    }

    pub(super) fn stopwatch(&self) -> &Stopwatch {
        &self.stopwatch
    }

    /// The memory of this GPU's buffers.
    pub fn memories(&self) -> &Arc<Memories> {
        &self.memories
    }

    /// The buffers that the arguments of a program point into.
    pub(super) fn buffers(
        &self,
        program: &Program,
        arguments: &[Argument],
    ) -> Result<Vec<Arc<Allocation>>, EngineError> {
        reach::buffers(&self.memories, program, arguments)
    }

    /// A checked copy of a program's records, in memory that nothing else writes, and the buffers that the
    /// records point into.
    pub(super) fn own_records(
        &self,
        program: &Program,
        count: u32,
        address: u64,
    ) -> Result<(Arc<Allocation>, Vec<Arc<Allocation>>), EngineError> {
        let bytes = u64::from(count) * u64::from(Record::BYTES[0]);
        let foreign = || {
            let (kernel, parameter) = (program.name().to_owned(), "records");
            EngineError::Foreign { kernel, parameter, address, bytes }
        };
        let there = self.memories.around(address, bytes).ok_or_else(foreign)?;
        let mut records = vec![0; bytes as usize];
        self.copy_out(&mut records, address)?;
        drop(there);
        let named = reach::check_records(&self.memories, program.name(), &mut records)?;
        let copy = Allocation::new(&self.context, records.len())?;
        self.copy_in(copy.address(), &records)?;
        Ok((copy, named))
    }

    /// Copies from device memory that is allocated and large enough, and waits for the copy.
    fn copy_out(&self, bytes: &mut [u8], address: u64) -> Result<(), EngineError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let current = self.context.bind()?;
        let (functions, stream) = (current.functions(), self.stream.raw());
        // SAFETY: that number of bytes is allocated there; `bytes` is borrowed until the copy has ended.
        let status =
            unsafe { (functions.copy_to_host)(bytes.as_mut_ptr().cast(), address, bytes.len(), stream) };
        let copied = self.context.check("cuMemcpyDtoHAsync", status);
        self.synchronize().and(copied)
    }

    /// Copies to device memory that is allocated and large enough, and waits for the copy.
    fn copy_in(&self, address: u64, bytes: &[u8]) -> Result<(), EngineError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let current = self.context.bind()?;
        let (functions, stream) = (current.functions(), self.stream.raw());
        // SAFETY: that number of bytes is allocated there; `bytes` is borrowed until the copy has ended.
        let status =
            unsafe { (functions.copy_to_device)(address, bytes.as_ptr().cast(), bytes.len(), stream) };
        let copied = self.context.check("cuMemcpyHtoDAsync", status);
        self.synchronize().and(copied)
    }

    /// A program's kernel. It is compiled at its first use.
    ///
    /// # Errors
    /// The compiler's log if the driver rejects the program, or a driver error.
    pub fn kernel(&mut self, program: &Program) -> Result<Arc<LoadedProgram>, EngineError> {
        let text = program.shared_text();
        // Two texts may have the same digest. Then the later one replaces the earlier.
        if let Some((known, kernel)) = self.kernels.get(&program.digest())
            && (Arc::ptr_eq(known, text) || known == text)
        {
            return Ok(Arc::clone(kernel));
        }
        self.context.alive()?;
        let kernel = Arc::new(LoadedProgram::load_in(&self.context, program)?);
        self.kernels.put(program.digest(), (Arc::clone(text), Arc::clone(&kernel)));
        Ok(kernel)
    }

    /// Compiles programs in parallel on all of the host's processors, so that their first use is quick.
    /// Programs that are already compiled cost nothing.
    ///
    /// # Errors
    /// The first program that the driver rejects, with the compiler's log; or a driver error.
    pub fn compile(&mut self, programs: &[&Program]) -> Result<(), EngineError> {
        self.context.alive()?;
        let missing: Vec<&Program> =
            programs.iter().copied().filter(|program| !self.kernels.contains(&program.digest())).collect();
        let (next, context) = (AtomicUsize::new(0), &self.context);
        let work = || {
            let mut made = Vec::new();
            while let Some(program) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                made.push((*program, LoadedProgram::load_in(context, program)));
            }
            made
        };
        let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(missing.len());
        let made: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        for (program, kernel) in made {
            self.kernels.put(program.digest(), (Arc::clone(program.shared_text()), Arc::new(kernel?)));
        }
        Ok(())
    }

    /// The error to report after a failed call. If the context is broken for good, every later call reports
    /// that too.
    pub(super) fn blame(&self, error: EngineError) -> EngineError {
        self.stream.wait().err().unwrap_or(error)
    }

    /// The memory of a buffer, if it belongs to this GPU and has at least `needed` bytes.
    fn known(&self, buffer: Buffer, needed: usize) -> Result<Arc<Allocation>, EngineError> {
        self.context.alive()?;
        let Buffer { address, .. } = buffer;
        let allocation = self.memories.get(address);
        let bytes = allocation.as_ref().map_or(0, |allocation| allocation.bytes());
        allocation.filter(|_| bytes >= needed).ok_or(EngineError::Buffer { address, bytes, needed })
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        self.stream.wait()?;
        self.context.finished();
        Ok(())
    }
}

/// A device's name, if the kernels are for its architecture.
fn check_device(context: &Context) -> Result<String, EngineError> {
    let name = context.name()?;
    let major = context.attribute(device::CAPABILITY_MAJOR)?;
    let minor = context.attribute(device::CAPABILITY_MINOR)?;
    if (major, minor) == Target::Sm90a.compute_capability() {
        Ok(name)
    } else {
        Err(EngineError::WrongDevice { name, major, minor })
    }
}

/// The card, its driver and its architecture on one line.
fn describe(name: &str, module: Option<String>, (major, minor): (i32, i32)) -> String {
    let (cc_major, cc_minor) = Target::Sm90a.compute_capability();
    match module {
        Some(module) => format!("{name}, driver {module} (CUDA {major}.{minor}), sm_{cc_major}{cc_minor}"),
        None => format!("{name}, driver of CUDA {major}.{minor}, sm_{cc_major}{cc_minor}"),
    }
}

impl Engine for Gpu {
    fn describe(&self) -> String {
        self.description.clone()
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn slots(&mut self, program: &Program) -> Result<u32, EngineError> {
        self.kernel(program)?.max_active_clusters()
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        self.context.alive()?;
        let allocation = Allocation::new(&self.context, bytes)?;
        let buffer = Buffer { address: allocation.address(), bytes: allocation.bytes() };
        self.memories.insert(allocation);
        Ok(buffer)
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        let allocation = self.known(buffer, bytes.len())?;
        self.copy_in(allocation.address(), bytes)
    }

    /// Writes in chunks, so that the host does not need memory for the whole buffer.
    fn repeat(&mut self, buffer: Buffer, data: &[u8]) -> Result<(), EngineError> {
        let Buffer { address, bytes } = buffer;
        let allocation = self.known(buffer, bytes)?;
        if data.is_empty() && bytes > 0 {
            return Err(EngineError::Buffer { address, bytes: 0, needed: bytes });
        }
        for first in (0..bytes).step_by(data.len().max(1)) {
            let piece = &data[..data.len().min(bytes - first)];
            self.copy_in(allocation.address() + first as u64, piece)?;
        }
        Ok(())
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        let allocation = self.known(buffer, buffer.bytes)?;
        let mut bytes = vec![0u8; buffer.bytes];
        self.copy_out(&mut bytes, allocation.address())?;
        Ok(bytes)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        self.known(buffer, 1)?;
        // Prepared launches and graphs keep the memory until they are dropped.
        self.memories.remove(buffer.address);
        Ok(())
    }

    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError> {
        let prepared = self.prepare(program, grid, arguments)?;
        self.time_many(&[&prepared], 1).map(Duration::from_secs_f64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Gpu, describe};
    use crate::engine::Engine;
    use crate::error::EngineError;

    /// Passes with a GPU and without one: nothing may panic, and the error must state the reason.
    #[test]
    fn a_missing_gpu_is_an_error() {
        match Gpu::new(0) {
            Ok(gpu) => assert!(gpu.describe().contains("sm_90"), "{gpu:?}"),
            Err(EngineError::NoDriver { library }) => {
                let text = EngineError::NoDriver { library }.to_string();
                assert!(text.contains("no CUDA driver") && text.contains("emulator"), "{text}");
            }
            Err(error @ EngineError::WrongDevice { .. }) => assert!(error.to_string().contains("9.0")),
            Err(error) => assert!(error.to_string().contains("driver"), "{error}"),
        }
    }

    #[test]
    fn no_machine_has_that_many_gpus() {
        let error = Gpu::new(usize::MAX).unwrap_err();
        assert!(!matches!(error, EngineError::WrongDevice { .. }), "{error}");
    }

    #[test]
    fn a_card_is_described_on_one_line() {
        for (why, module, want) in [
            ("the module is known", Some("580.159"), "NVIDIA H200, driver 580.159 (CUDA 13.0), sm_90"),
            ("the module is hidden", None, "NVIDIA H200, driver of CUDA 13.0, sm_90"),
        ] {
            assert_eq!(describe("NVIDIA H200", module.map(str::to_owned), (13, 0)), want, "{why}");
        }
    }
}
