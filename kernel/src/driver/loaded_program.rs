//! One compiled program: its properties, and its launches.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::c_void;
use core::ptr;
use std::sync::Arc;

use ptx::abi::{Argument, ArgumentError, Grid, MapDescription, TENSOR_MAP_BYTES};

use super::context::{Context, Current};
use super::load::{self, Image, Origin};
use super::module::{self, Module};
use super::sys::{LaunchAttribute, LaunchConfig, RawStream, function};
use super::tensor_map;
use crate::disk::{Cache, CacheError, Compiled};
use crate::error::EngineError;
use crate::program::Program;

/// Largest number of parameters of a kernel, so that a launch needs no heap allocation.
const MAX_PARAMETERS: usize = 64;

/// Clusters of up to this number of CTAs run on every device of the architecture.
const PORTABLE_CLUSTER: u32 = 8;

/// A program of a [`Loaded`](super::Loaded) kernel: what it became when it was compiled and loaded in a context.
#[derive(Debug)]
pub struct LoadedProgram {
    module: Module,
    name: Arc<str>,
    origin: Origin,
    warnings: Vec<CacheError>,
    block: [u32; 3],
    shared_bytes: u32,
    cluster: [u32; 3],
    /// Whether the kernel itself waits for the kernels before it (`griddepcontrol.wait`).
    overlaps: bool,
    /// Offset of each parameter in the block, in bytes.
    offsets: Vec<usize>,
    registers: u32,
    local_bytes: u32,
}

impl LoadedProgram {
    /// Loads a program, as [`Loaded::load_in`](super::Loaded::load_in) does.
    pub(super) fn load_in(context: &Arc<Context>, program: &Program) -> Result<Self, EngineError> {
        check_parameters(program)?;
        let (cache, warning) = load::of_process()?;
        let mut image = load::load(context, program, cache)?;
        // If the driver compiles, nothing is kept, and the folder does not matter.
        image.warnings.extend(warning.filter(|_| image.origin == Origin::Assembled));
        Self::of_image(program, image)
    }

    /// The same with a folder of your own. With `None`, nothing is read from disk or kept there.
    pub(super) fn load_from(
        context: &Arc<Context>,
        program: &Program,
        cache: Option<&Cache>,
    ) -> Result<Self, EngineError> {
        check_parameters(program)?;
        Self::of_image(program, load::load(context, program, cache)?)
    }

    /// Loads a binary that was built ahead of time together with its PTX text. If the text is not the
    /// program's, or the driver rejects the binary, the program is loaded by [`load_in`](Self::load_in).
    ///
    /// # Safety
    /// The binary must be what NVIDIA's assembler made from that text.
    pub(super) unsafe fn load_ahead(
        context: &Arc<Context>,
        program: &Program,
        text: &str,
        binary: &[u8],
    ) -> Result<Self, EngineError> {
        check_parameters(program)?;
        let compiled = Compiled { cubin: binary.to_vec(), log: String::new() };
        if text == program.text() && compiled.is_whole() {
            match Module::load(context, program.name(), compiled) {
                Ok(module) => {
                    let image = Image { module, origin: Origin::Ahead, warnings: Vec::new() };
                    return Self::of_image(program, image);
                }
                Err(_) => context.alive()?,
            }
        }
        Self::load_in(context, program)
    }

    pub(super) fn of_image(program: &Program, image: Image) -> Result<Self, EngineError> {
        let Image { module, origin, warnings } = image;
        let entry = program.function();
        let (offsets, _) = entry.param_offsets();
        let mut kernel = Self {
            module,
            name: program.name().into(),
            origin,
            warnings,
            block: entry.block,
            shared_bytes: entry.shared_bytes,
            cluster: entry.cluster,
            overlaps: entry.waits_for_grids(),
            offsets,
            registers: 0,
            local_bytes: 0,
        };
        let shared_bytes = i32::try_from(kernel.shared_bytes).unwrap_or(i32::MAX);
        kernel.set(function::MOST_DYNAMIC_SHARED_BYTES, shared_bytes)?;
        if kernel.cluster.iter().product::<u32>() > PORTABLE_CLUSTER {
            kernel.set(function::LARGE_CLUSTERS, 1)?;
        }
        kernel.registers = kernel.get(function::REGISTERS)?;
        kernel.local_bytes = kernel.get(function::LOCAL_BYTES)?;
        Ok(kernel)
    }

    fn set(&self, attribute: i32, value: i32) -> Result<(), EngineError> {
        let context = self.context();
        let current = context.bind()?;
        // SAFETY: the function is valid as long as the module, which `self` owns.
        let status = unsafe { (current.functions().function_set)(self.module.function(), attribute, value) };
        context.check_kernel(&self.name, "cuFuncSetAttribute", status)
    }

    fn get(&self, attribute: i32) -> Result<u32, EngineError> {
        let (context, mut value) = (self.context(), 0);
        let current = context.bind()?;
        // SAFETY: as above, and one number is written.
        let status =
            unsafe { (current.functions().function_get)(&mut value, attribute, self.module.function()) };
        context.check_kernel(&self.name, "cuFuncGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// The context in which the kernel is loaded.
    pub(super) fn context(&self) -> &Arc<Context> {
        self.module.context()
    }

    /// The name of the program's entry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers per thread at launch.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Bytes of local memory per thread: stack frame and spilled registers.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// Offset of each parameter in the block, in bytes.
    pub(super) fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Where the kernel's binary came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// What was wrong with the folder of compiled kernels. The kernel works, but it took longer to load.
    pub fn warnings(&self) -> &[CacheError] {
        &self.warnings
    }

    /// The compiler's log. For a binary from the folder of compiled kernels, this is the assembler's log that
    /// was kept with it. The driver gives no log for what it takes from its own cache; with
    /// `CUDA_CACHE_DISABLE=1` in the environment it always compiles.
    pub fn compile_log(&self) -> &str {
        self.module.log()
    }

    /// Signs of a slow kernel: lines of the log about serialised `wgmma`, an ignored `setmaxnreg` or spills;
    /// and any local memory, which is known even without a log.
    pub fn advisories(&self) -> Vec<String> {
        let mut advisories = module::advisories(self.module.log());
        if self.local_bytes > 0 {
            advisories.push(format!("{} bytes of local memory per thread", self.local_bytes));
        }
        advisories
    }

    /// Number of clusters that are resident on the whole device at once; for a kernel without clusters,
    /// number of CTAs.
    pub(super) fn max_active_clusters(&self) -> Result<u32, EngineError> {
        let context = self.context();
        let current = context.bind()?;
        let mut clusters = 0;
        let grid = Grid { ctas: self.cluster };
        // A single CTA counts as a cluster. The query needs the attribute in every case.
        let mut attributes = [LaunchAttribute::cluster(self.cluster)];
        let config = self.config(grid, ptr::null_mut(), &mut attributes);
        // SAFETY: the configuration and its attribute are alive, and the function is.
        let status =
            unsafe { (current.functions().active_clusters)(&mut clusters, self.module.function(), &config) };
        context.check_kernel(&self.name, "cuOccupancyMaxActiveClusters", status)?;
        Ok(u32::try_from(clusters).unwrap_or(0))
    }

    /// Enqueues the program on a stream. It allocates nothing and waits for nothing. The [block](parameter_block_in) is copied before
    /// the call returns.
    ///
    /// A program that contains `griddepcontrol.wait` is launched with programmatic dependent launch: it may
    /// start before the previous one has ended.
    ///
    /// # Errors
    /// The driver rejects the launch, for example because the grid is not a multiple of the cluster. Faults while the
    /// program runs are reported by a later call.
    ///
    /// # Safety
    /// `stream` must be null, for the default stream, or a live stream of the current context, in which the program was
    /// loaded. The block must be one of the program. Every address in it, also inside tensor maps, must be that of memory that covers the
    /// extents which the program reads and writes. This memory must stay allocated, and nothing else may use
    /// it, until the program has finished.
    pub(super) unsafe fn launch_in(
        &self,
        current: &Current<'_>,
        stream: *mut c_void,
        grid: Grid,
        block: &[u8],
    ) -> Result<(), EngineError> {
        let mut parameters = [ptr::null_mut::<c_void>(); MAX_PARAMETERS];
        for (parameter, &offset) in parameters.iter_mut().zip(&self.offsets) {
            *parameter = block[offset..].as_ptr().cast_mut().cast();
        }
        let mut attributes = [LaunchAttribute::cluster(self.cluster), LaunchAttribute::overlap()];
        let clustered = usize::from(self.cluster != [1, 1, 1]);
        // Without a cluster the first attribute is left out; without overlap, the second.
        let needed = 1 - clustered..1 + usize::from(self.overlaps);
        let config = self.config(grid, stream, &mut attributes[needed]);
        // SAFETY: every parameter of the function has a pointer to its bytes inside `block`, which the driver copies
        // before it returns; the configuration is alive; the caller vouches for stream and addresses.
        let status = unsafe {
            (current.functions().launch)(
                &config,
                self.module.function(),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        let context = current.context();
        context.check_kernel(&self.name, "cuLaunchKernelEx", status)?;
        context.launched(&self.name);
        Ok(())
    }

    fn config(&self, grid: Grid, stream: RawStream, attributes: &mut [LaunchAttribute]) -> LaunchConfig {
        LaunchConfig {
            grid: grid.ctas,
            block: self.block,
            shared_bytes: self.shared_bytes,
            stream,
            attributes: attributes.as_mut_ptr(),
            attribute_count: attributes.len() as u32,
        }
    }
}

/// An error for a program with more parameters than a launch takes.
fn check_parameters(program: &Program) -> Result<(), EngineError> {
    let count = program.function().params.len();
    if count <= MAX_PARAMETERS {
        return Ok(());
    }
    let log = format!("it has {count} parameters, a launch takes {MAX_PARAMETERS}");
    Err(EngineError::Compile { kernel: program.name().to_owned(), log })
}

/// Lays out arguments as a program's parameter block, in a context, whose driver encodes the tensor maps. If the context is broken, the error names the
/// kernels launched in it.
pub(super) fn parameter_block_in(
    context: &Context,
    program: &Program,
    arguments: &[Argument],
) -> Result<Vec<u8>, EngineError> {
    context.alive()?;
    let _current = context.bind()?;
    block(program, arguments, |map| tensor_map::encode(context, map))
}

fn block(
    program: &Program,
    arguments: &[Argument],
    encode: impl Fn(MapDescription<'_>) -> Result<[u8; TENSOR_MAP_BYTES], EngineError>,
) -> Result<Vec<u8>, EngineError> {
    let block =
        ptx::abi::parameter_bytes(program.function(), arguments, |map| encode(map).map_err(Refusal::Engine));
    block.map_err(|refusal| match refusal {
        Refusal::Argument(source) => EngineError::Argument { kernel: program.name().to_owned(), source },
        Refusal::Engine(error) => error,
    })
}

/// Why a parameter block could not be made.
enum Refusal {
    Argument(ArgumentError),
    Engine(EngineError),
}

impl From<ArgumentError> for Refusal {
    fn from(error: ArgumentError) -> Self {
        Self::Argument(error)
    }
}

#[cfg(test)]
mod tests {
    use ptx::abi::{Argument, Promotion, TensorElement, TensorMap, TensorSwizzle};
    use ptx::{Builder, Entry, Function, Target};

    use super::block;
    use crate::error::EngineError;
    use crate::program::Program;

    /// Of arguments without tensor maps.
    fn parameter_block(program: &Program, arguments: &[Argument]) -> Result<Vec<u8>, EngineError> {
        block(program, arguments, |_| Err(EngineError::NoDriver { library: "libcuda.so.1" }))
    }

    fn program() -> Program {
        let (name, cluster) = ("probe".to_owned(), [1, 1, 1]);
        let entry = Entry { name, target: Target::Sm90a, threads: 32, shared_bytes: 0, cluster };
        Program::new(Function::build(entry, |f: &Builder| {
            let (out, value) = (f.param::<u64>("out"), f.param::<u32>("value"));
            f.store_global(out, 0, [value]);
        }))
        .unwrap()
    }

    #[test]
    fn scalars_are_laid_out_without_a_driver() {
        let block = parameter_block(&program(), &[0x1122_u64.into(), 7u32.into()]).unwrap();
        assert_eq!(block, [0x22, 0x11, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn misfits_name_kernel_and_parameter() {
        let map = TensorMap {
            element: TensorElement::Bf16,
            address: 256,
            dims: vec![64],
            strides: vec![],
            box_dims: vec![64],
            swizzle: TensorSwizzle::B128,
            promotion: Promotion::default(),
            reach: None,
        };
        for (why, arguments, words) in [
            ("one too few", vec![1u64.into()], "kernel `probe`: the kernel takes 2 arguments, 1 were given"),
            ("a float for an integer", vec![1u64.into(), 1f32.into()], "parameter `value` takes"),
            ("a tensor map for an address", vec![map.into(), 1u32.into()], "parameter `out` takes"),
        ] {
            let error = parameter_block(&program(), &arguments).unwrap_err().to_string();
            assert!(error.contains(words), "{why}: {error}");
        }
    }
}
