//! A compiled kernel that remembers its calls, so that repeated calls are cheap.
#![allow(unsafe_code, reason = "launches with addresses that were lent")]

use core::ffi::c_void;
use core::fmt;
use std::sync::{Arc, Mutex};

use ptx::abi::{Argument, Grid, TENSOR_MAP_BYTES};

use super::calls::{Blocks, LaunchBuilder, LaunchCache};
use super::context::{Context, Current, lock};
use super::gpu::check_device;
use super::loaded_program::{LoadedProgram, parameter_block_in};
use super::memory::DeviceMemory;
use super::slice::{DeviceSlice, LentSlices};
use super::stream::{Held, StreamRef};
use super::tensor_map;
use super::workspaces::Workspaces;
use crate::buffer::Buffer;
use crate::disk::Cache;
use crate::error::{EngineError, LaunchError};
use crate::filled::Launch;
use crate::gemm::AnyGemm;
use crate::kernel::{Kernel, as_stated, check_lent};
use crate::operands::Visit;
use crate::overlap::check_apart;
use crate::program::Program;

/// A compiled kernel that remembers its calls: a GEMM, or any other [`Kernel`]. A repeated call costs a look-up and a launch. A call that
/// differs only in addresses reuses the arguments of the earlier one and changes the addresses in them.
///
/// The first call of a shape is checked, and its tensor maps are encoded; it does not wait for anything
/// either. Two calls have the same shape only if their addresses are multiples of the same powers of two, up
/// to 256 bytes. The least recently used shapes are forgotten first.
///
/// ```no_run
/// use kernel::driver::{Context, DeviceSlice, Loaded, Stream};
/// use kernel::{Call, EngineError};
///
/// fn layers(calls: &[Call], weights: DeviceSlice<'_>, sums: DeviceSlice<'_>) -> Result<(), Box<dyn std::error::Error>> {
///     let context = Context::primary(0)?; // the application's own: cudarc's, candle's
///     let stream = Stream::new(&context)?;
///     let gemm = kernel::find("128x256-bf16-kk")?;
///     let program = gemm.program()?;
///     let loaded = Loaded::load_in(&context, gemm, program)?; // milliseconds; keep it
///     for call in calls {
///         loaded.launch(&stream, call, &[weights, sums])?; // microseconds
///     }
///     Ok(())
/// }
/// ```
///
/// A kernel of several [programs](Kernel::programs) is one, too: a call launches all of them, one after the other. Several threads may use
/// one value; their launches are enqueued one after the other.
///
/// A GEMM needs no workspace in its calls: the value allocates one for each stream that needs it, and keeps it.
pub struct Loaded<K = AnyGemm> {
    kernel: K,
    /// One per program, at least one.
    parts: Vec<Part>,
    /// The launches of each program that are kept. Locked until a call's launches are enqueued.
    kept: Mutex<Vec<LaunchCache>>,
    workspaces: Workspaces,
}

/// A program, and how many of its clusters are resident on the GPU at once.
struct Part {
    program: Program,
    loaded: Arc<LoadedProgram>,
    resident: u32,
}

/// A kernel's programs, as [`Loaded::load_in`] takes them: all of [`Kernel::programs`], or the only one.
#[derive(Debug)]
pub struct Programs(Vec<Program>);

impl From<Program> for Programs {
    fn from(program: Program) -> Self {
        Self(vec![program])
    }
}

impl From<Vec<Program>> for Programs {
    fn from(programs: Vec<Program>) -> Self {
        Self(programs)
    }
}

impl<K> fmt::Debug for Loaded<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Loaded");
        for (Part { program, resident, .. }, kept) in self.parts.iter().zip(&*lock(&self.kept)) {
            debug.field("program", &program.name()).field("resident", resident).field("shapes", &kept.len());
        }
        debug.finish_non_exhaustive()
    }
}

impl<K> Loaded<K> {
    /// Compiles a kernel in a context, for example a device's primary context, which cudarc, candle, cust and
    /// the CUDA runtime use too. `programs` must be the kernel's own ([`Kernel::programs`]).
    ///
    /// If the folder of compiled kernels ([`disk`](crate::disk)) has a binary, that is loaded. Otherwise the
    /// assembler that `FALCHION_PTXAS` names makes one, which is kept there. If no assembler is named, the
    /// driver compiles the program.
    ///
    /// # Errors
    /// A GPU of another architecture; the driver is too old for a program's version of PTX; the compiler's log if the
    /// driver rejects a program; `FALCHION_PTXAS` names an assembler that fails; `FALCHION_CACHE` names a folder that
    /// cannot be made; or a driver error.
    pub fn load_in(
        context: &Arc<Context>,
        kernel: K,
        programs: impl Into<Programs>,
    ) -> Result<Self, EngineError> {
        Self::load(context, kernel, programs, |_, program| LoadedProgram::load_in(context, program))
    }

    /// The same with a folder of your own. With `None`, nothing is read from disk or kept there.
    ///
    /// # Errors
    /// As [`load_in`](Self::load_in).
    pub fn load_from(
        context: &Arc<Context>,
        kernel: K,
        programs: impl Into<Programs>,
        folder: Option<&Cache>,
    ) -> Result<Self, EngineError> {
        Self::load(context, kernel, programs, |_, program| LoadedProgram::load_from(context, program, folder))
    }

    /// Loads binaries that were [built](crate::build) ahead of time, each together with its PTX text, in the order of the programs. A program
    /// that has none, has another text, or whose binary the driver rejects, is loaded as by [`load_in`](Self::load_in).
    ///
    /// # Errors
    /// As [`load_in`](Self::load_in).
    ///
    /// # Safety
    /// Each binary must be what NVIDIA's assembler made from its text.
    pub unsafe fn load_ahead(
        context: &Arc<Context>,
        kernel: K,
        programs: impl Into<Programs>,
        ahead: &[(&str, &[u8])],
    ) -> Result<Self, EngineError> {
        Self::load(context, kernel, programs, |i, program| match ahead.get(i) {
            // SAFETY: the caller guarantees it.
            Some((text, binary)) => unsafe { LoadedProgram::load_ahead(context, program, text, binary) },
            None => LoadedProgram::load_in(context, program),
        })
    }

    fn load(
        context: &Context,
        kernel: K,
        programs: impl Into<Programs>,
        load: impl Fn(usize, &Program) -> Result<LoadedProgram, EngineError>,
    ) -> Result<Self, EngineError> {
        check_device(context)?;
        let programs = programs.into().0.into_iter().enumerate();
        let load = |(i, program)| load(i, &program).map(|loaded| (program, Arc::new(loaded)));
        Self::of_programs(kernel, programs.map(load).collect::<Result<_, _>>()?)
    }

    /// With programs that are already compiled.
    pub(super) fn of_programs(
        kernel: K,
        programs: Vec<(Program, Arc<LoadedProgram>)>,
    ) -> Result<Self, EngineError> {
        let part = |(program, loaded): (Program, Arc<LoadedProgram>)| {
            let resident = loaded.max_active_clusters()?;
            Ok(Part { program, loaded, resident })
        };
        let parts = programs.into_iter().map(part).collect::<Result<Vec<_>, EngineError>>()?;
        if parts.is_empty() {
            let kernel = core::any::type_name::<K>().to_owned();
            return Err(EngineError::Programs { kernel, given: 0, needed: 1 });
        }
        let kept = Mutex::new(parts.iter().map(|_| LaunchCache::default()).collect());
        Ok(Self { kernel, parts, kept, workspaces: Workspaces::default() })
    }

    /// The compiled program; of several, the first.
    pub fn program(&self) -> &LoadedProgram {
        &self.parts[0].loaded
    }

    /// The compiled programs, in the order in which they run.
    pub fn programs(&self) -> impl Iterator<Item = &LoadedProgram> {
        self.parts.iter().map(|part| &*part.loaded)
    }

    /// The kernel as a value, for example to ask for the workspace of a call.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Number of the clusters of the kernel's first program that are resident on the GPU at once.
    pub fn resident_clusters(&self) -> u32 {
        self.parts[0].resident
    }

    /// Enqueues a call of any form, with the arguments of any epilogue, and returns at once. A call with
    /// nothing to compute enqueues nothing.
    ///
    /// All memory that the call accesses must be part of `lent`: matrices up to their last element, the call's
    /// workspace if it has one, the offsets of groups, and what the epilogue reads and writes. D, the workspace and what
    /// the epilogue writes must be lent as writable. For GEMMs that [`Record`](collective::Record)s describe,
    /// lend the [`DeviceRecords`](super::DeviceRecords) and the matrices of each.
    ///
    /// If the stream is being captured, the launch becomes part of the graph, whether the shape is known or
    /// not. A workspace that this value keeps must have been allocated before, by a launch on the stream or by
    /// [`prepare`](Self::prepare); it belongs to the stream, so replay the graph on the stream that captured it, or while nothing else is
    /// enqueued there. [`DeviceSlice`] says who keeps all other memory.
    ///
    /// # Errors
    /// The first illegal argument, memory that is not lent, records that were not lent as
    /// [`DeviceRecords`](super::DeviceRecords), an epilogue that does not report all memory it accesses, a workspace that cannot be
    /// allocated, or a launch that the driver rejects. Of several programs, none is then launched, unless the driver rejects a later one.
    /// Faults while the kernel runs are reported by a later call.
    pub fn launch<'s, C: Clone>(
        &self,
        stream: impl Into<StreamRef<'s>>,
        call: &C,
        lent: &[DeviceSlice<'_>],
    ) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let stream = stream.into();
        if lent.iter().any(|slice| !slice.serves(stream.raw())) {
            return Err(EngineError::OtherStream { kernel: self.program().name().to_owned() });
        }
        let current = self.program().context().bind()?;
        let captured = stream.is_captured(&current)?;
        let own = self.with_workspace(stream, call)?;
        let call = own.as_ref().map_or(call, |(call, _)| call);
        let lent = LentSlices { lent, workspace: own.as_ref().map(|(_, memory)| memory.into()) };
        self.each(|of, i| {
            let Part { program, loaded, .. } = &self.parts[i];
            check_lent(of, program.name(), call, &lent)?;
            of.check_records(call, &lent)?;
            if captured {
                let memory = lent.iter().filter_map(DeviceSlice::held);
                stream.keep(memory.chain([Arc::clone(loaded) as Held]));
            }
            Ok(())
        })?;
        // SAFETY: the stream is alive, and the driver rejects a stream of another context. The owners lend
        // every byte that the call accesses.
        unsafe { self.enqueue(&current, stream.raw(), call) }
    }

    /// Checks a call, keeps its launches, and allocates the workspace that it needs on this stream, so that the first
    /// [`launch`](Self::launch) of the shape is as cheap as later ones, and can be captured. It enqueues nothing.
    ///
    /// # Errors
    /// The first illegal argument, or a driver error.
    pub fn prepare<'s, C: Clone>(&self, stream: impl Into<StreamRef<'s>>, call: &C) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let own = self.with_workspace(stream.into(), call)?;
        let call = own.as_ref().map_or(call, |(call, _)| call);
        self.prepare_in(&mut lock(&self.kept), call)
    }

    /// [`launch`](Self::launch) on any stream, with any memory.
    ///
    /// # Errors
    /// The first illegal argument, a workspace that cannot be allocated, or the driver rejects the launch. Faults while the kernel
    /// runs are reported by a later call.
    ///
    /// # Safety
    /// `stream` must be null, for the default stream, or a live stream of the context in which the kernel was
    /// loaded. Every address in the call, and in records in device memory, must be that of memory that covers the
    /// extents which the kernel reads and writes. This memory must stay allocated, and nothing else may use
    /// it, until the kernel has finished. If the stream is being captured, this value and the memory must be kept as long as
    /// the graph may be replayed.
    pub unsafe fn launch_raw<C: Clone>(&self, stream: *mut c_void, call: &C) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let current = self.program().context().bind()?;
        // SAFETY: the caller guarantees the stream.
        let of = unsafe { StreamRef::from_raw(stream) };
        let own = self.with_workspace(of, call)?;
        // A larger one may take its place.
        if let Some((_, memory)) = &own
            && of.is_captured(&current)?
        {
            of.keep([memory.held()]);
        }
        let call = own.as_ref().map_or(call, |(call, _)| call);
        // SAFETY: the caller guarantees the stream and the addresses.
        unsafe { self.enqueue(&current, stream, call) }
    }

    /// A call that lacks a workspace, with the one that is kept for the stream.
    fn with_workspace<C: Clone>(
        &self,
        stream: StreamRef<'_>,
        call: &C,
    ) -> Result<Option<(C, DeviceMemory)>, EngineError>
    where
        K: Kernel<C>,
    {
        let bytes = self.kernel.missing_workspace(call, self.resident_clusters());
        if bytes == 0 {
            return Ok(None);
        }
        let memory = self.workspaces.of_stream(stream, self.program(), bytes)?;
        let mut own = call.clone();
        let buffer = Buffer { address: memory.address(), bytes: memory.bytes() };
        self.kernel.lend_workspace(&mut own, Some(buffer));
        Ok(Some((own, memory)))
    }

    /// Keeps the launches of a call.
    fn prepare_in<C: Clone>(&self, kept: &mut [LaunchCache], call: &C) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        if self.parts.len() > 1 {
            // What one program writes, a later one may read, or write too.
            let refused = |source| EngineError::Call { kernel: self.program().name().to_owned(), source };
            check_apart(&self.kernel, call).map_err(refused)?;
        }
        self.each(|of, i| self.parts[i].ready(of, &mut kept[i], call).map(drop))
    }

    /// Enqueues the launches of a call.
    ///
    /// # Safety
    /// As [`launch_raw`](Self::launch_raw).
    unsafe fn enqueue<C: Clone>(
        &self,
        current: &Current<'_>,
        stream: *mut c_void,
        call: &C,
    ) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let kept = &mut *lock(&self.kept);
        if self.parts.len() > 1 {
            // Nothing is launched of a call that some program refuses.
            self.prepare_in(kept, call)?;
        }
        self.each(|of, i| {
            let part = &self.parts[i];
            let Some((grid, block)) = part.ready(of, &mut kept[i], call)? else { return Ok(()) };
            // SAFETY: the caller guarantees it, and the block is the program's.
            unsafe { part.loaded.launch_in(current, stream, grid, block) }
        })
    }

    /// The number of each program, with the kernel that it is of.
    fn each<C>(
        &self,
        mut with: impl FnMut(&dyn Kernel<C>, usize) -> Result<(), EngineError>,
    ) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let steps = self.kernel.steps();
        let (given, needed) = (self.parts.len(), steps.len().max(1));
        if given != needed {
            let kernel = self.program().name().to_owned();
            return Err(EngineError::Programs { kernel, given, needed });
        }
        if steps.is_empty() {
            return with(&self.kernel, 0);
        }
        steps.iter().enumerate().try_for_each(|(i, step)| with(&**step, i))
    }
}

impl Part {
    /// The launch of a call.
    fn ready<'a, C: Clone>(
        &self,
        kernel: &dyn Kernel<C>,
        kept: &'a mut LaunchCache,
        call: &C,
    ) -> Result<Option<(Grid, &'a [u8])>, EngineError> {
        kept.get(&Making { kernel, of: self }, call)
    }
}

/// What is needed to make a launch.
struct Making<'a, C> {
    kernel: &'a dyn Kernel<C>,
    of: &'a Part,
}

impl<C: Clone> LaunchBuilder<C> for Making<'_, C> {
    fn launch(&self, call: &C) -> Result<Option<Launch>, EngineError> {
        let Part { program, resident, .. } = self.of;
        let launch = self.kernel.launch(call, *resident).map_err(|source| self.refused(source))?;
        launch.iter().try_for_each(|launch| as_stated(self.kernel, program, call, launch))?;
        Ok(launch)
    }

    fn refused(&self, source: LaunchError) -> EngineError {
        EngineError::Call { kernel: self.of.program.name().to_owned(), source }
    }

    fn visit(&self, call: &mut C, visit: &mut dyn Visit) {
        self.kernel.visit(call, visit);
    }
}

impl<C> Blocks for Making<'_, C> {
    fn block(&self, arguments: &[Argument]) -> Result<Vec<u8>, EngineError> {
        parameter_block_in(self.of.loaded.context(), &self.of.program, arguments)
    }

    fn offsets(&self) -> &[usize] {
        self.of.loaded.offsets()
    }

    fn readdress(&self, map: &mut [u8; TENSOR_MAP_BYTES], address: u64) -> Result<(), EngineError> {
        tensor_map::readdress(self.of.loaded.context(), map, address)
    }
}

#[cfg(test)]
mod tests;
