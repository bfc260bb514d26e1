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
use super::memory::{DeviceMemory, Memories};
use super::stream::{Event, Stream};
use super::sys::device;
use super::{library, load, reach};
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
    /// Around what is timed.
    events: [Event; 2],
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
        let events = [Event::new(&context)?, Event::new(&context)?];
        Ok(Self {
            description: describe(&name, library::module_version(), context.driver().version),
            multiprocessors,
            memories: Arc::default(),
            kernels: LruCache::new(KERNELS),
            context,
            stream,
            events,
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
        self.waited(self.stream.wait())
    }

    /// The memory of a buffer, to lend to a [`Loaded`](super::Loaded). It stays allocated as long as the
    /// returned value is kept.
    ///
    /// # Errors
    /// The buffer does not belong to this GPU.
    pub fn memory(&self, buffer: Buffer) -> Result<DeviceMemory, EngineError> {
        self.known(buffer, 1)
    }

    pub(super) fn events(&self) -> &[Event; 2] {
        &self.events
    }

    /// The memory of this GPU's buffers.
    pub fn memories(&self) -> &Arc<Memories> {
        &self.memories
    }

    /// A checked copy of a program's records, in memory that nothing else writes, and the buffers that the
    /// records point into.
    pub(super) fn own_records(
        &self,
        program: &Program,
        count: u32,
        address: u64,
    ) -> Result<(DeviceMemory, Vec<DeviceMemory>), EngineError> {
        let bytes = u64::from(count) * u64::from(Record::BYTES[0]);
        let foreign = || {
            let (kernel, parameter) = (program.name().to_owned(), "records".into());
            EngineError::Foreign { kernel, parameter, address, bytes }
        };
        let there = self.memories.containing(address, bytes).ok_or_else(foreign)?;
        let mut records = vec![0; bytes as usize];
        self.waited(self.stream.copy_out(&mut records, address))?;
        drop(there);
        let named = reach::check_records(&self.memories, program.name(), &mut records)?;
        let copy = DeviceMemory::new(&self.context, records.len())?;
        self.waited(self.stream.copy_in(copy.address(), &records))?;
        Ok((copy, named))
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
    fn known(&self, buffer: Buffer, needed: usize) -> Result<DeviceMemory, EngineError> {
        self.context.alive()?;
        let Buffer { address, .. } = buffer;
        let memory = self.memories.get(address);
        let bytes = memory.as_ref().map_or(0, DeviceMemory::bytes);
        memory.filter(|_| bytes >= needed).ok_or(EngineError::Buffer { address, bytes, needed })
    }

    /// Forgets the launches that have ended, if the stream was waited for without an error.
    fn waited(&self, waited: Result<(), EngineError>) -> Result<(), EngineError> {
        waited?;
        self.context.finished();
        Ok(())
    }
}

/// A device's name, if the kernels are for its architecture.
pub(super) fn check_device(context: &Context) -> Result<String, EngineError> {
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

    fn compiler(&self) -> Option<String> {
        Some(load::compiler(self.context.cuda_version()))
    }

    fn resident_clusters(&mut self, program: &Program) -> Result<u32, EngineError> {
        self.kernel(program)?.max_active_clusters()
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        self.context.alive()?;
        let memory = DeviceMemory::new(&self.context, bytes)?;
        let buffer = Buffer { address: memory.address(), bytes: memory.bytes() };
        self.memories.insert(memory);
        Ok(buffer)
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        let memory = self.known(buffer, bytes.len())?;
        self.waited(self.stream.copy_in(memory.address(), bytes))
    }

    /// Writes in chunks, so that the host does not need memory for the whole buffer.
    fn repeat(&mut self, buffer: Buffer, data: &[u8]) -> Result<(), EngineError> {
        let Buffer { address, bytes } = buffer;
        let memory = self.known(buffer, bytes)?;
        if data.is_empty() && bytes > 0 {
            return Err(EngineError::Buffer { address, bytes: 0, needed: bytes });
        }
        for first in (0..bytes).step_by(data.len().max(1)) {
            let piece = &data[..data.len().min(bytes - first)];
            self.waited(self.stream.copy_in(memory.address() + first as u64, piece))?;
        }
        Ok(())
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        let memory = self.known(buffer, buffer.bytes)?;
        let mut bytes = vec![0u8; buffer.bytes];
        self.waited(self.stream.copy_out(&mut bytes, memory.address()))?;
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
