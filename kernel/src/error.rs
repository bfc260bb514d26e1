//! What can go wrong, each with what was seen and what was needed.

use collective::Form;
use ptx::abi::{ArgumentError, TensorMapError};

/// Why an engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no CUDA driver on this machine.
    #[error("no CUDA driver: {library} could not be loaded; install NVIDIA's driver, or use the emulator")]
    NoDriver {
        /// The library that was looked for.
        library: &'static str,
    },
    /// A library of NVIDIA's is not installed; only comparisons with it need it.
    #[error(
        "{library} could not be loaded ({reason}): install it, or put its folder on the loader's search path"
    )]
    NoLibrary {
        /// The library.
        library: &'static str,
        /// What was tried.
        reason: String,
    },
    /// The CUDA driver lacks a function.
    #[error("the CUDA driver has no function {function}: install NVIDIA's driver of CUDA 12.4 or later")]
    MissingFunction {
        /// The function.
        function: &'static str,
    },
    /// The CUDA driver does not know the PTX version that kernels are printed in.
    #[error(
        "the CUDA driver is of CUDA {}.{}; kernels need one of {}.{} or later",
        version.0, version.1, needed.0, needed.1
    )]
    OldDriver {
        /// Its CUDA version.
        version: (i32, i32),
        /// The oldest that will do.
        needed: (i32, i32),
    },
    /// There is no such GPU.
    #[error("GPU {ordinal} was asked for, this machine has {count}")]
    NoDevice {
        /// Index asked for.
        ordinal: usize,
        /// GPUs there are.
        count: usize,
    },
    /// The GPU is not one the kernels are written for.
    #[error(
        "{name} has compute capability {major}.{minor}; sm_90a kernels run on 9.0 (H100, H200, GH200) only"
    )]
    WrongDevice {
        /// The card.
        name: String,
        /// Its compute capability.
        major: u32,
        /// Its compute capability.
        minor: u32,
    },
    /// A call of the CUDA driver failed.
    #[error("CUDA driver: {call} failed with {code}: {reason}")]
    Driver {
        /// The function.
        call: &'static str,
        /// The error's name.
        code: String,
        /// The driver's words.
        reason: String,
    },
    /// The driver refused the PTX.
    #[error("the driver could not compile kernel `{kernel}`:\n{log}")]
    Compile {
        /// The entry's name.
        kernel: String,
        /// The assembler's log.
        log: String,
    },
    /// The folder of compiled kernels that the user named cannot be used.
    #[cfg(feature = "driver")]
    #[error("{source}")]
    Cache {
        /// Which and why.
        source: crate::disk::CacheError,
    },
    /// The assembler that the user named gave no binary that the driver loads.
    #[cfg(feature = "driver")]
    #[error("{source}")]
    Assembler {
        /// Which and why.
        source: crate::build::AssemblerError,
    },
    /// Arguments that do not fit the kernel's parameters.
    #[error("kernel `{kernel}`: {source}")]
    Argument {
        /// The entry's name.
        kernel: String,
        /// Which and why.
        source: ArgumentError,
    },
    /// A parameter block of the wrong size.
    #[error("kernel `{kernel}` takes a parameter block of {needed} B, {bytes} B were given")]
    ParameterBlock {
        /// The entry's name.
        kernel: String,
        /// Bytes given.
        bytes: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// A tensor map that breaks a rule.
    #[error("tensor map: {source}")]
    TensorMap {
        /// The rule.
        source: TensorMapError,
    },
    /// The GPU refused a kernel or stopped while it ran.
    #[error("kernel `{kernel}` failed on the GPU: {call} gave {code} ({reason})")]
    Fault {
        /// The entry's name; several where any of them may be to blame.
        kernel: String,
        /// The driver's function that reported it.
        call: &'static str,
        /// The error's name.
        code: String,
        /// The driver's words.
        reason: String,
    },
    /// The emulated program did something a GPU must not be asked to do.
    #[error("kernel `{kernel}`{} failed in the emulator: {report}", scheduled(scheduler.as_deref()))]
    Trap {
        /// The entry's name.
        kernel: String,
        /// The scheduler's name, where the kernel has one.
        scheduler: Option<String>,
        /// The emulator's report.
        report: String,
    },
    /// A call of cuBLASLt failed.
    #[error("cuBLASLt: {call} failed with {status}")]
    CublasLt {
        /// The function.
        call: &'static str,
        /// The status it returned.
        status: String,
    },
    /// A call of cuSPARSELt failed.
    #[error("cuSPARSELt: {call} failed with {status}")]
    CusparseLt {
        /// The function.
        call: &'static str,
        /// The status it returned, or what was needed.
        status: String,
    },
    /// A GEMM call that is not legal.
    #[error("kernel `{kernel}`: {source}")]
    Call {
        /// The entry's name.
        kernel: String,
        /// Which argument and why.
        source: LaunchError,
    },
    /// No kernel can do a call.
    #[error("no kernel for {call}: {reason}")]
    NoKernel {
        /// The call in words: form, types, directions and epilogue.
        call: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// An argument names memory that is not the engine's.
    #[error(
        "kernel `{kernel}`: parameter `{parameter}` names {bytes} B at {address:#x}, which lie in no buffer of this GPU: \
         allocate them with `Engine::allocate`, or vouch for them and call the unsafe `Gpu::prepare_raw`"
    )]
    Foreign {
        /// The entry's name.
        kernel: String,
        /// The parameter's name.
        parameter: &'static str,
        /// Device address.
        address: u64,
        /// Bytes that it names; 1 where the beginning alone is known.
        bytes: u64,
    },
    /// A call reaches memory that nobody lent it.
    #[error(
        "kernel `{kernel}`: {name} is {bytes} B at {address:#x}, and no slice that was given has all of them{}",
        if *writes { " to write" } else { "" }
    )]
    NotLent {
        /// The entry's name.
        kernel: String,
        /// Which matrix.
        name: &'static str,
        /// Device address.
        address: u64,
        /// Bytes that the call reaches from there on.
        bytes: u64,
        /// Whether they are written.
        writes: bool,
    },
    /// A slice has fewer elements than its matrix.
    #[error("{argument} has {found} elements, {extents} = {} x {} needs {}", needed[0], needed[1], u64::from(needed[0]) * u64::from(needed[1]))]
    Short {
        /// Which matrix.
        argument: &'static str,
        /// The slice's elements.
        found: usize,
        /// Its extents by name.
        extents: &'static str,
        /// Its extents.
        needed: [u32; 2],
    },
    /// An epilogue that does not say what it reaches.
    #[error(
        "kernel `{kernel}`: the epilogue's arguments have {addresses} addresses beside D, and {told} were told to the path: \
         tell each in `check`, by `Path::reads` or `Path::writes`, or call the unsafe `Loaded::launch_raw`"
    )]
    Untold {
        /// The entry's name.
        kernel: String,
        /// Addresses that were told.
        told: usize,
        /// Addresses among the parameters.
        addresses: usize,
    },
    /// Memory that is lent for another stream.
    #[error(
        "kernel `{kernel}`: a slice was lent for launches on another stream: lend it on the stream of the launch"
    )]
    OtherStream {
        /// The entry's name.
        kernel: String,
    },
    /// A launch whose memory is only lent, into a graph that would replay it.
    #[error(
        "kernel `{kernel}`: the stream is captured, and a graph cannot keep memory that is lent: capture what \
         `Gpu::prepare` makes, or call the unsafe `Loaded::launch_raw`"
    )]
    Captured {
        /// The entry's name.
        kernel: String,
    },
    /// Products whose addresses are in device memory, where nobody can check them.
    #[error(
        "kernel `{kernel}`: records in device memory name the matrices, which nobody can check: lend `Records`, or call the \
         unsafe `Loaded::launch_raw`"
    )]
    Described {
        /// The entry's name.
        kernel: String,
    },
    /// One of the products that records describe.
    #[error("record {index}: {source}")]
    Record {
        /// Which, from 0.
        index: usize,
        /// What is wrong with it.
        source: Box<EngineError>,
    },
    /// A graph of no launches.
    #[error("a graph was to be captured of no launches: pass at least one")]
    EmptyGraph,
    /// NVML does not tell what was asked.
    #[error("NVML: {reason}")]
    Nvml {
        /// NVML's words.
        reason: String,
    },
    /// A buffer is too small, or is not the engine's.
    #[error("buffer at {address:#x} holds {bytes} B; {needed} B were asked of it")]
    Buffer {
        /// Device address.
        address: u64,
        /// What it holds; zero where the engine does not know it.
        bytes: usize,
        /// What was asked.
        needed: usize,
    },
}

/// Why a GEMM call is not legal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// An extent is too large.
    #[error("{name} is {extent}, it must be below {limit}")]
    Extent {
        /// M, N or K.
        name: &'static str,
        /// Its value in elements; of groups of rows, of all of them.
        extent: u64,
        /// The limit.
        limit: u32,
    },
    /// The output has more tiles than a launch can number.
    #[error(
        "there are {m} x {n} tiles, a launch of this kernel numbers at most {most}: take a larger tile, or launch in parts"
    )]
    TooManyTiles {
        /// Tiles along M, of all products.
        m: u128,
        /// Tiles along N, of all products.
        n: u128,
        /// The limit.
        most: u32,
    },
    /// A band of the scheduler's order has more tiles than are counted.
    #[error(
        "a band of the schedule is {band} x {tiles} tiles, at most 2^32 - 1 are counted: take a larger tile or a narrower band"
    )]
    Band {
        /// Tiles across it.
        band: u32,
        /// Tiles along it.
        tiles: u32,
    },
    /// More CTAs than a grid has.
    #[error(
        "the launch has {ctas} CTAs, a grid has at most {most}: take a larger tile, or a scheduler of persistent CTAs"
    )]
    Grid {
        /// CTAs of all clusters.
        ctas: u64,
        /// The limit.
        most: u32,
    },
    /// A matrix that ends where there are no addresses.
    #[error(
        "{name} begins at {address:#x} and takes {bytes} B, which ends beyond the last address, 2^64 - 1"
    )]
    End {
        /// Which matrix, or which matrices of a batch.
        name: &'static str,
        /// Its device address.
        address: u64,
        /// Bytes from there to the end of its last row.
        bytes: u128,
    },
    /// The epilogue looks at whole rows, and the output is wider than a tile.
    #[error("N is {n}, at most tile N = {tile_n} was needed: the epilogue looks at whole rows")]
    WholeRows {
        /// Columns of the product.
        n: u32,
        /// Columns of a tile.
        tile_n: u32,
    },
    /// The epilogue takes gates from one half of B's columns and ups from the other.
    #[error("N is {n}, a multiple of {step} was needed: gates and ups are halves of it")]
    Halves {
        /// Columns of the product.
        n: u32,
        /// What it must be a multiple of.
        step: u32,
    },
    /// A matrix has no address.
    #[error("{name} is a null pointer, a device address was needed")]
    Null {
        /// Which matrix.
        name: &'static str,
    },
    /// A matrix begins at the wrong place.
    #[error(
        "{name} begins at {address:#x}, a multiple of {alignment} B was needed{}", other_kernels(name, *alignment)
    )]
    Address {
        /// Which matrix.
        name: &'static str,
        /// Its device address.
        address: u64,
        /// Bytes it must be aligned to.
        alignment: u64,
    },
    /// Rows or columns of a matrix would overlap.
    #[error("{name}'s leading dimension is {pitch} elements, at least {needed} were needed")]
    ShortPitch {
        /// Which matrix.
        name: &'static str,
        /// Its leading dimension.
        pitch: u64,
        /// Elements that lie contiguously.
        needed: u32,
    },
    /// A leading dimension that the copies cannot follow.
    #[error(
        "{name}'s leading dimension is {bytes} B, a multiple of {alignment} B below 2^40 was needed: \
         pad the rows (for packed 16-bit operands, the contiguous extent must be a multiple of 8){}",
        other_kernels(name, *alignment)
    )]
    Pitch {
        /// Which matrix.
        name: &'static str,
        /// Its leading dimension in bytes.
        bytes: u128,
        /// Bytes it must be a multiple of.
        alignment: u64,
    },
    /// Rows of an output that a tensor store cannot end in the middle of.
    #[error(
        "{name}'s rows are {bytes} B, a multiple of {alignment} B was needed: tensor stores write whole chunks of \
         16 B; take a kernel that stores directly"
    )]
    Row {
        /// Which matrix.
        name: &'static str,
        /// Bytes of a row.
        bytes: u64,
        /// Bytes it must be a multiple of.
        alignment: u64,
    },
    /// Scales for a kernel that takes none.
    #[error(
        "the call has scales of blocks, and the kernel's operands have none: take a kernel of BlockScaled operands (`scale-a=1x128 scale-b=128x128`)"
    )]
    NotScaled,
    /// No scales for a kernel that multiplies by them.
    #[error(
        "the kernel's operands are blocks that have scales, and the call says of none where they lie: Call::scales was needed"
    )]
    NoScales,
    /// Scales of groups for a kernel that takes none.
    #[error(
        "the call has scales of groups of weights, and the kernel's operands have none: take a kernel of Quantized weights (`weights-b=s4 group=128 swap=on`)"
    )]
    NotGroupScaled,
    /// No scales of groups for a kernel that multiplies by them.
    #[error(
        "the groups of the kernel's weights have scales, and the call says of none where they lie: Call::group_scales was needed"
    )]
    NoGroupScales,
    /// Metadata for a kernel of dense operands.
    #[error(
        "the call has metadata of a sparse operand, and the kernel's operands are dense: take a kernel of a Sparse operand (`sparse=a`)"
    )]
    NotSparse,
    /// No metadata for a kernel of a sparse operand.
    #[error(
        "an operand of the kernel is sparse, and the call does not say where its metadata lies: Call::metadata was needed"
    )]
    NoMetadata,
    /// Scales that do not fit.
    #[error("{reason}")]
    Scales {
        /// Whose, what they are, and what was needed.
        reason: String,
    },
    /// An argument of the mainloop's own.
    #[error("the mainloop refuses its arguments: {reason}")]
    Mainloop {
        /// Which one, and what was needed.
        reason: String,
    },
    /// An argument of the epilogue.
    #[error(transparent)]
    Epilogue(#[from] collective::tree::NodeError),
    /// Sums of divided tiles have no place.
    #[error(
        "the workspace has {bytes} B, {needed} B were needed: allocate what `Gemm::workspace` says and zero it once"
    )]
    Workspace {
        /// Bytes given; zero where there is none.
        bytes: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// Matrices of a batch that lie where copies cannot follow.
    #[error(
        "{name}'s matrices lie {bytes} B from each other, a multiple of {alignment} B below 2^40 was needed{}",
        other_kernels(name, *alignment)
    )]
    Distance {
        /// Which matrix.
        name: &'static str,
        /// From the first element of one to that of the next, in bytes.
        bytes: u128,
        /// Bytes it must be a multiple of.
        alignment: u64,
    },
    /// Outputs of a batch that have elements in common.
    #[error(
        "D's matrices of {m} x {n} in rows of {pitch} elements lie {stride} elements from each other, so that they overlap: \
         each must end before the next begins, or their rows lie side by side"
    )]
    Overlap {
        /// From the first element of one to that of the next, in elements.
        stride: u64,
        /// Rows.
        m: u32,
        /// Columns.
        n: u32,
        /// Elements from one row to the next.
        pitch: u64,
    },
    /// Groups whose buffers have more rows than there are.
    #[error("{count} groups in buffers of {room} rows need {needed} rows, and M is {rows}", needed = u64::from(*count) * u64::from(*room))]
    Room {
        /// Groups.
        count: u32,
        /// Rows of each buffer.
        room: u32,
        /// M.
        rows: u32,
    },
    /// More groups than a kernel has a table for.
    #[error("there are {groups} groups, at most {most} are possible: launch them in parts")]
    Groups {
        /// How many.
        groups: u32,
        /// Most of them.
        most: u32,
    },
    /// A kernel of another form than the call.
    #[error(
        "the kernel is {kernel:?} and the call is {call:?}: take a kernel for the call's `products`, `Batched<..>`, `Ragged<..>` \
         or `PointerArray<..>` of its type, or one for a single product"
    )]
    Form {
        /// What the kernel computes.
        kernel: Form,
        /// What was asked of it.
        call: Form,
    },
    /// An epilogue whose arguments are not factors and C.
    #[error(
        "the epilogue `{epilogue}` has arguments of its own, and the call brings alpha, beta and C alone"
    )]
    NotLinear {
        /// Its name.
        epilogue: String,
    },
    /// Arguments of another tree than the kernel's.
    #[error("the epilogue is `{epilogue}`, and the arguments are those of the tree `{tree}`")]
    OtherTree {
        /// The kernel's.
        epilogue: String,
        /// The arguments'.
        tree: String,
    },
    /// C is needed and missing.
    #[error("beta is {beta} but there is no C: pass C, or beta = 0")]
    MissingC {
        /// Factor of C.
        beta: f32,
    },
}

impl From<scheduler::TooManyTiles> for LaunchError {
    fn from(scheduler::TooManyTiles { m, n, most }: scheduler::TooManyTiles) -> Self {
        Self::TooManyTiles { m, n, most }
    }
}

/// Who deals out a kernel's tiles.
fn scheduled(scheduler: Option<&str>) -> String {
    scheduler.map_or(String::new(), |name| format!(", scheduled by `{name}`,"))
}

/// Which kernels take a matrix that tensor copies cannot reach.
fn other_kernels(name: &str, alignment: u64) -> &'static str {
    match (name, alignment) {
        ("A" | "B", 16) => ", or take a kernel that copies elements (`CopyWgmma`, kinds `unaligned…`)",
        (_, 16) => ", or take a kernel that stores directly (`DirectStore`)",
        _ => "",
    }
}
