//! A GPU as an engine.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUdevice_attribute as DeviceAttribute;
use cudarc::driver::{CudaContext, CudaStream, result};
use ptx::Target;
use ptx::abi::{Argument, Grid};

use super::kernel::Kernel;
use super::timing::{Enqueue, Stopwatch, names};
use super::{call, library};
use crate::engine::{Buffer, Engine};
use crate::error::EngineError;
use crate::program::Program;

/// A Hopper GPU with memory, a stream and the kernels compiled for it so far.
pub struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    stopwatch: Stopwatch,
    description: String,
    multiprocessors: u32,
    /// Bytes of each allocation by its address.
    buffers: HashMap<u64, usize>,
    /// Kernels by their PTX text.
    kernels: HashMap<String, Arc<Kernel>>,
    /// Set by a kernel that left the context unusable.
    fault: Option<Fault>,
}

/// What made a context unusable.
#[derive(Clone, Debug)]
struct Fault {
    kernel: String,
    code: String,
    reason: String,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu")
            .field("description", &self.description)
            .field("buffers", &self.buffers.len())
            .field("kernels", &self.kernels.len())
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl Gpu {
    /// The GPU of that index, in its primary context: the one that cudarc, candle and the CUDA runtime use too.
    ///
    /// # Errors
    /// No driver or an old one, no such GPU, a GPU of another architecture, or a driver error.
    pub fn new(ordinal: usize) -> Result<Self, EngineError> {
        library::driver()?;
        call::driver("cuInit", result::init())?;
        let count = call::driver("cuDeviceGetCount", result::device::get_count())?;
        let count = usize::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(EngineError::NoDevice { ordinal, count });
        }
        check_device(ordinal)?;
        Self::from_context(call::driver("cuDevicePrimaryCtxRetain", CudaContext::new(ordinal))?)
    }

    /// The GPU of a context that exists already, with a stream of its own.
    ///
    /// # Errors
    /// An old driver, a GPU of another architecture, or a driver error.
    pub fn from_context(context: Arc<CudaContext>) -> Result<Self, EngineError> {
        let driver = library::driver()?;
        let name = check_device(context.ordinal())?;
        let multiprocessors = DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors = call::driver("cuDeviceGetAttribute", context.attribute(multiprocessors))?;
        let stream = call::driver("cuStreamCreate", context.new_stream())?;
        let stopwatch = Stopwatch::new(&context)?;
        Ok(Self {
            description: describe(&name, library::module_version(), driver.version),
            multiprocessors: u32::try_from(multiprocessors).unwrap_or(0),
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            fault: None,
            context,
            stream,
            stopwatch,
        })
    }

    /// The context everything of this GPU lives in.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The device's index.
    pub(super) fn ordinal(&self) -> i32 {
        i32::try_from(self.context.ordinal()).unwrap_or(i32::MAX)
    }

    /// Bytes a second that the card's memory moves at most: its clock, twice a cycle, times the width of its bus.
    ///
    /// # Errors
    /// A driver error.
    pub fn memory_bandwidth(&self) -> Result<f64, EngineError> {
        let attribute = |attribute| {
            call::driver("cuDeviceGetAttribute", self.context.attribute(attribute)).map(f64::from)
        };
        let kilohertz = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bits = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        Ok(2.0 * kilohertz * 1e3 * bits / 8.0)
    }

    /// The stream that launches, copies and timings go through, in order.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Waits for everything that was enqueued on the stream.
    ///
    /// # Errors
    /// A fault of a program that was launched before.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        self.alive()?;
        call::bind(&self.context)?;
        self.synchronize()
    }

    pub(super) fn stopwatch(&self) -> &Stopwatch {
        &self.stopwatch
    }

    /// A program's kernel, compiled at its first use.
    ///
    /// # Errors
    /// The compiler's log where the driver refuses the program, or a driver error.
    pub fn kernel(&mut self, program: &Program) -> Result<Arc<Kernel>, EngineError> {
        if let Some(kernel) = self.kernels.get(program.text()) {
            return Ok(Arc::clone(kernel));
        }
        self.alive()?;
        let kernel = Arc::new(Kernel::load_in(&self.context, program)?);
        self.kernels.insert(program.text().to_owned(), Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Repeats the fault that made the context unusable, if one did.
    pub(super) fn alive(&self) -> Result<(), EngineError> {
        match self.fault.clone() {
            None => Ok(()),
            Some(Fault { kernel, code, reason }) => {
                let call = "an earlier launch";
                Err(EngineError::Fault { kernel, call, code, reason })
            }
        }
    }

    /// After a failed call: if the context is broken for good these launches did it, and every later call says so.
    pub(super) fn blame(&mut self, launches: &[&dyn Enqueue], error: EngineError) -> EngineError {
        let Err(fault) = self.stream.synchronize() else { return error };
        let (code, reason) = call::explain(fault);
        let kernel = names(launches);
        self.fault = Some(Fault { kernel: kernel.clone(), code: code.clone(), reason: reason.clone() });
        EngineError::Fault { kernel, call: "cuStreamSynchronize", code, reason }
    }

    /// Fails unless the buffer is one of this GPU's and holds that many bytes.
    fn known(&self, buffer: Buffer, needed: usize) -> Result<(), EngineError> {
        self.alive()?;
        let bytes = self.buffers.get(&buffer.address).copied().unwrap_or(0);
        let fits = bytes >= needed && bytes > 0;
        if fits { Ok(()) } else { Err(EngineError::Buffer { address: buffer.address, bytes, needed }) }
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        call::driver("cuStreamSynchronize", self.stream.synchronize())
    }
}

/// A device's name, if its architecture is the one the kernels are for.
fn check_device(ordinal: usize) -> Result<String, EngineError> {
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    let device = call::driver("cuDeviceGet", result::device::get(ordinal))?;
    let name = call::driver("cuDeviceGetName", result::device::get_name(device))?;
    let attribute = |attribute| {
        // SAFETY: the device is one that the driver has just named.
        let value = unsafe { result::device::get_attribute(device, attribute) };
        call::driver("cuDeviceGetAttribute", value).map(|value| u32::try_from(value).unwrap_or(0))
    };
    let major = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
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
        self.alive()?;
        call::bind(&self.context)?;
        let bytes = bytes.max(1);
        // SAFETY: the memory is only ever read and written as bytes, by kernels and by the copies below.
        let address = call::driver("cuMemAlloc", unsafe { result::malloc_sync(bytes) })?;
        self.buffers.insert(address, bytes);
        Ok(Buffer { address, bytes })
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        self.known(buffer, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        call::bind(&self.context)?;
        // SAFETY: the buffer is allocated and holds that many bytes; `bytes` is borrowed until the copy is over.
        let copy = unsafe { result::memcpy_htod_async(buffer.address, bytes, self.stream.cu_stream()) };
        call::driver("cuMemcpyHtoDAsync", copy)?;
        self.synchronize()
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        self.known(buffer, buffer.bytes)?;
        if buffer.bytes == 0 {
            return Ok(Vec::new());
        }
        call::bind(&self.context)?;
        let mut bytes = vec![0; buffer.bytes];
        // SAFETY: the buffer is allocated and holds that many bytes; `bytes` is borrowed until the copy is over.
        let copy = unsafe { result::memcpy_dtoh_async(&mut bytes, buffer.address, self.stream.cu_stream()) };
        call::driver("cuMemcpyDtoHAsync", copy)?;
        self.synchronize()?;
        Ok(bytes)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        self.known(buffer, 1)?;
        call::bind(&self.context)?;
        self.buffers.remove(&buffer.address);
        // SAFETY: it was allocated by this GPU and is no longer known to it. The call waits for work that uses it.
        call::driver("cuMemFree", unsafe { result::free_sync(buffer.address) })
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

impl Drop for Gpu {
    fn drop(&mut self) {
        if call::bind(&self.context).is_ok() {
            for &address in self.buffers.keys() {
                // SAFETY: it was allocated by this GPU and not freed yet. After a fault the driver answers with that
                // fault and releases the memory with the context.
                let _ = unsafe { result::free_sync(address) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gpu, describe};
    use crate::engine::Engine;
    use crate::error::EngineError;

    /// Passes with a GPU and without: what counts is that nothing panics and that the reason is said.
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
