//! Errors of engines and of calls. Each says what was given and what is allowed.

mod launch;

use ptx::Name;
use ptx::abi::ArgumentError;

use crate::host::{bytes_in_words, free_in_words};

pub use launch::LaunchError;

/// Why an engine could not do what it was asked to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no CUDA driver on this machine.
    #[error(
        "no CUDA driver: {library} could not be loaded; install NVIDIA's driver; without a GPU, use the emulator, which checks kernels but cannot time them"
    )]
    NoDriver {
        /// The library that could not be loaded.
        library: &'static str,
    },
    /// A library from NVIDIA is not installed. Only comparisons with that library need it.
    #[error(
        "{library} could not be loaded ({reason}): install it, or put its folder on the loader's search path"
    )]
    NoLibrary {
        /// The library that could not be loaded.
        library: &'static str,
        /// The loader's error message.
        reason: String,
    },
    /// The CUDA driver lacks a function.
    #[error("the CUDA driver has no function {function}: install NVIDIA's driver of CUDA 12.0 or later")]
    MissingFunction {
        /// The function's name.
        function: &'static str,
    },
    /// The CUDA driver does not know the PTX version of the kernel, or of any kernel.
    #[error(
        "the CUDA driver is of CUDA {}.{}; one of {}.{} or later was needed",
        version.0, version.1, needed.0, needed.1
    )]
    OldDriver {
        /// The driver's CUDA version: major, minor.
        version: (i32, i32),
        /// The oldest CUDA version that works: major, minor.
        needed: (i32, i32),
    },
    /// There is no GPU with this index.
    #[error("there is no GPU {ordinal}: this machine has {count}, numbered from 0")]
    NoDevice {
        /// The index that was asked for.
        ordinal: usize,
        /// Number of GPUs in this machine.
        count: usize,
    },
    /// The GPU is not a Hopper GPU.
    #[error(
        "{name} has compute capability {major}.{minor}; sm_90a kernels run on 9.0 (H100, H200, GH200) only"
    )]
    WrongDevice {
        /// The card's name.
        name: String,
        /// Major number of its compute capability.
        major: u32,
        /// Minor number of its compute capability.
        minor: u32,
    },
    /// A call of the CUDA driver failed.
    #[error("CUDA driver: {call} failed with {code}: {reason}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The error code's name.
        code: String,
        /// The driver's error message.
        reason: String,
    },
    /// The driver rejected the PTX.
    #[error("the driver could not compile kernel `{kernel}`:\n{log}")]
    Compile {
        /// The name of the program's entry.
        kernel: String,
        /// The driver's compilation log.
        log: String,
    },
    /// The folder of compiled kernels that the user named cannot be used.
    #[cfg(feature = "driver")]
    #[error("{source}")]
    Cache {
        /// Which folder, and why.
        source: crate::disk::CacheError,
    },
    /// The assembler that the user named gave no binary that the driver loads.
    #[cfg(feature = "driver")]
    #[error("{source}")]
    Assembler {
        /// Which assembler, and why.
        source: crate::build::AssemblerError,
    },
    /// Arguments that do not match the kernel's parameters.
    #[error("kernel `{kernel}`: {source}")]
    Argument {
        /// The name of the program's entry.
        kernel: String,
        /// Which argument, and why.
        source: ArgumentError,
    },
    /// The GPU rejected a kernel, or stopped while it ran.
    #[error("kernel `{kernel}` failed on the GPU: {call} gave {code} ({reason})")]
    Fault {
        /// The name of the program's entry. Several names if any of these kernels may be the cause.
        kernel: String,
        /// The driver's function that reported the error.
        call: &'static str,
        /// The error code's name.
        code: String,
        /// The driver's error message.
        reason: String,
    },
    /// The emulator found a fault in the program: something that a GPU must not be asked to do.
    #[error("kernel `{kernel}`{} failed in the emulator: {report}", scheduled(scheduler.as_deref()))]
    Trap {
        /// The name of the program's entry.
        kernel: String,
        /// The scheduler's name, if the program is a GEMM kernel's.
        scheduler: Option<String>,
        /// The emulator's report.
        report: String,
    },
    /// The caller ended a launch in the emulator ([`Emulator::with_stop`](crate::Emulator::with_stop)).
    #[error("kernel `{kernel}`: {reason}")]
    Stopped {
        /// The name of the program's entry.
        kernel: String,
        /// How far it had come.
        reason: String,
    },
    /// A call of one of NVIDIA's other libraries failed.
    #[error("{library}: {call} failed with {status}")]
    Library {
        /// The library.
        library: &'static str,
        /// The function.
        call: &'static str,
        /// The status that it returned, or what was needed.
        status: String,
    },
    /// A GEMM call that is not legal.
    #[error("kernel `{kernel}`: {source}")]
    Call {
        /// The name of the program's entry.
        kernel: String,
        /// Which argument, and why.
        source: LaunchError,
    },
    /// No kernel can compute a call.
    #[error("no kernel for {call}: {reason}")]
    NoKernel {
        /// The call: form, types, directions and epilogue.
        call: String,
        /// The rule that the call breaks.
        reason: String,
    },
    /// An argument holds an address outside the engine's buffers.
    #[error(
        "kernel `{kernel}`: parameter `{parameter}` names {bytes} B at {address:#x}, which are in no buffer of this GPU: \
         allocate them with `Engine::allocate`, or call the unsafe `Gpu::prepare_raw`"
    )]
    Foreign {
        /// The name of the program's entry.
        kernel: String,
        /// The parameter's name.
        parameter: Name,
        /// The device address.
        address: u64,
        /// Bytes that the kernel accesses from there; 1 if only the first byte is known.
        bytes: u64,
    },
    /// A call accesses memory that was not lent to it.
    #[error(
        "kernel `{kernel}`: {name} is {bytes} B at {address:#x}, and no slice of the call contains all of them{}",
        if *writes { " to write" } else { "" }
    )]
    NotLent {
        /// The name of the program's entry.
        kernel: String,
        /// Which matrix.
        name: &'static str,
        /// The device address.
        address: u64,
        /// Bytes that the call accesses from that address.
        bytes: u64,
        /// Whether they are written.
        writes: bool,
    },
    /// A slice has fewer elements than its matrix.
    #[error("{argument} has {found} elements, {extents} = {} x {} needs {}", needed[0], needed[1], u64::from(needed[0]) * u64::from(needed[1]))]
    Short {
        /// Which matrix.
        argument: &'static str,
        /// Elements in the slice.
        found: usize,
        /// The names of the matrix's extents.
        extents: &'static str,
        /// The matrix's extents.
        needed: [u32; 2],
    },
    /// An epilogue, a mainloop or a kernel of your own does not visit all the memory that it accesses.
    #[error(
        "kernel `{kernel}`: parameter `{parameter}` is the address {address:#x}, which is in no memory that the call visits: \
         visit the argument that it comes from, or declare it with `Builder::number` if it is no address"
    )]
    Untold {
        /// The name of the program's entry.
        kernel: String,
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        address: u64,
    },
    /// The program's parameters are not those of the kernel's interface.
    #[error(
        "kernel `{kernel}`: the program declares the parameters {declared:?}, and the interface states {given:?}: declare them by \
         `kernel::declare`"
    )]
    Parameters {
        /// The name of the program's entry.
        kernel: String,
        /// The names that the program declares, in order.
        declared: Vec<Name>,
        /// The names that the interface of the call states.
        given: Vec<Name>,
    },
    /// A kernel has another number of programs than were loaded.
    #[error(
        "kernel `{kernel}`: {given} programs were loaded, {needed} were needed: all of `Kernel::programs`"
    )]
    Programs {
        /// The name of the first program's entry, or of the kernel's type.
        kernel: String,
        /// Programs that were loaded.
        given: usize,
        /// Programs of the kernel.
        needed: usize,
    },
    /// Memory that was lent for another stream.
    #[error(
        "kernel `{kernel}`: a slice was lent for launches on another stream: lend it on the stream of the launch"
    )]
    OtherStream {
        /// The name of the program's entry.
        kernel: String,
    },
    /// A launch on a stream that is being captured into a graph, for which something must be loaded or
    /// allocated first. During a capture nothing can be.
    #[error(
        "the stream is being captured, and {what} is not there yet: call `prepare` with this stream, or enqueue the same once, \
         before the capture begins"
    )]
    Captured {
        /// What is missing.
        what: String,
    },
    /// The matrices' addresses are in device memory, where they cannot be checked.
    #[error(
        "kernel `{kernel}`: the addresses of the matrices are in device memory and cannot be checked: lend `Records`, or call the \
         unsafe `Loaded::launch_raw`"
    )]
    Described {
        /// The name of the program's entry.
        kernel: String,
    },
    /// One of the records that describe GEMMs is illegal.
    #[error("record {index}: {source}")]
    Record {
        /// Index of the record, from 0.
        index: usize,
        /// What is wrong with it.
        source: Box<EngineError>,
    },
    /// A graph with no launches.
    #[error("a graph of no launches cannot be captured: pass at least one")]
    EmptyGraph,
    /// More memory than this machine has.
    #[error("{} of memory are needed, {}", bytes_in_words(*needed as f64), free_in_words(*free))]
    Memory {
        /// Bytes needed.
        needed: u128,
        /// Bytes that are free; `None` if the system does not tell, or gives this process less than that.
        free: Option<u64>,
    },
    /// More work than is done in any reasonable time.
    #[error("{work} blocks are multiplied or stored, at most {most} are possible here")]
    Work {
        /// Blocks of the call.
        work: u128,
        /// Most blocks.
        most: u128,
    },
    /// A buffer is too small, or does not belong to the engine.
    #[error("the buffer at {address:#x} has {bytes} B; {needed} B are needed")]
    Buffer {
        /// Device address.
        address: u64,
        /// The buffer's size in bytes; 0 if the engine does not know it.
        bytes: usize,
        /// Size needed, in bytes.
        needed: usize,
    },
}

/// Names the scheduler of a kernel.
fn scheduled(scheduler: Option<&str>) -> String {
    scheduler.map_or(String::new(), |name| format!(", scheduled by `{name}`,"))
}
