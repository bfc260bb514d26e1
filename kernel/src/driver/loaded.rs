//! A compiled kernel that remembers its calls, so that repeated calls are cheap.
#![allow(unsafe_code, reason = "launches with addresses that were lent")]

use core::ffi::c_void;
use core::fmt;
use std::sync::Arc;

use ptx::abi::{Argument, Grid, TENSOR_MAP_BYTES};

use super::calls::{Blocks, LaunchBuilder, LaunchCache};
use super::context::{Context, Current};
use super::loaded_program::LoadedProgram;
use super::slice::DeviceSlice;
use super::stream::{Held, StreamRef};
use super::tensor_map;
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
///     let mut loaded = Loaded::load_in(&context, gemm, program)?; // milliseconds; keep it
///     for call in calls {
///         loaded.launch(&stream, call, &[weights, sums])?; // microseconds
///     }
///     Ok(())
/// }
/// ```
///
/// A kernel of several [programs](Kernel::programs) is one, too: a call launches all of them, one after the other.
pub struct Loaded<K = AnyGemm> {
    kernel: K,
    /// One per program, at least one.
    parts: Vec<Part>,
}

/// A program, and the launches of it that are kept.
struct Part {
    program: Program,
    loaded: Arc<LoadedProgram>,
    resident: u32,
    calls: LaunchCache,
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
        for Part { program, resident, calls, .. } in &self.parts {
            debug.field("program", &program.name()).field("resident", resident).field("shapes", &calls.len());
        }
        debug.finish_non_exhaustive()
    }
}

impl<K> Loaded<K> {
    /// Compiles a kernel in a context. `programs` must be the kernel's own ([`Kernel::programs`]).
    ///
    /// # Errors
    /// The compiler's log if the driver rejects a program, or a driver error.
    pub fn load_in(
        context: &Arc<Context>,
        kernel: K,
        programs: impl Into<Programs>,
    ) -> Result<Self, EngineError> {
        let load = |program: Program| {
            let loaded = Arc::new(LoadedProgram::load_in(context, &program)?);
            Ok((program, loaded))
        };
        let programs = programs.into().0.into_iter().map(load).collect::<Result<_, EngineError>>()?;
        Self::of_programs(kernel, programs)
    }

    /// With programs that are already compiled.
    pub(super) fn of_programs(
        kernel: K,
        programs: Vec<(Program, Arc<LoadedProgram>)>,
    ) -> Result<Self, EngineError> {
        let part = |(program, loaded): (Program, Arc<LoadedProgram>)| {
            let resident = loaded.max_active_clusters()?;
            Ok(Part { program, loaded, resident, calls: LaunchCache::default() })
        };
        let parts = programs.into_iter().map(part).collect::<Result<Vec<_>, EngineError>>()?;
        if parts.is_empty() {
            let kernel = core::any::type_name::<K>().to_owned();
            return Err(EngineError::Programs { kernel, given: 0, needed: 1 });
        }
        Ok(Self { kernel, parts })
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
    /// All memory that the call accesses must be part of `lent`: matrices up to their last element, the
    /// workspace, the offsets of groups, and what the epilogue reads and writes. D, the workspace and what
    /// the epilogue writes must be lent as writable. For GEMMs that [`Record`](collective::Record)s describe,
    /// lend the [`DeviceRecords`](super::DeviceRecords) and the matrices of each.
    ///
    /// If the stream is being captured, the launch becomes part of the graph, whether the shape is known or
    /// not. [`DeviceSlice`] says who keeps the memory.
    ///
    /// # Errors
    /// The first illegal argument, memory that is not lent, records that were not lent as
    /// [`DeviceRecords`](super::DeviceRecords), an epilogue that does not report all memory it accesses, or a launch that
    /// the driver rejects. Of several programs, none is then launched, unless the driver rejects a later one. Faults while
    /// the kernel runs are reported by a later call.
    pub fn launch<'s, C: Clone>(
        &mut self,
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
        let first = Arc::clone(&self.parts[0].loaded);
        let current = first.context().bind()?;
        let captured = stream.is_captured(&current)?;
        self.each(|of, part| {
            let Part { program, loaded, .. } = part;
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

    /// Checks a call and keeps its launches, so that the first [`launch`](Self::launch) of the shape is as
    /// cheap as later ones. It enqueues nothing.
    ///
    /// # Errors
    /// The first illegal argument, or a driver error.
    pub fn prepare<C: Clone>(&mut self, call: &C) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        if self.parts.len() > 1 {
            // What one program writes, a later one may read, or write too.
            let refused = |source| EngineError::Call { kernel: self.program().name().to_owned(), source };
            check_apart(&self.kernel, call).map_err(refused)?;
        }
        self.each(|of, part| part.ready(of, call).map(drop))
    }

    /// The same on any stream, with any memory.
    ///
    /// # Errors
    /// The first illegal argument, or the driver rejects the launch. Faults while the kernel runs are
    /// reported by a later call.
    ///
    /// # Safety
    /// As [`LoadedProgram::launch_raw`]. The same must hold for the memory that records in device memory point to. If
    /// the stream is being captured, this value and the memory must be kept as long as the graph may be
    /// replayed.
    pub unsafe fn launch_raw<C: Clone>(&mut self, stream: *mut c_void, call: &C) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let first = Arc::clone(&self.parts[0].loaded);
        let current = first.context().bind()?;
        // SAFETY: the caller guarantees the stream and the addresses.
        unsafe { self.enqueue(&current, stream, call) }
    }

    /// Enqueues the launches of a call.
    ///
    /// # Safety
    /// As [`launch_raw`](Self::launch_raw).
    unsafe fn enqueue<C: Clone>(
        &mut self,
        current: &Current<'_>,
        stream: *mut c_void,
        call: &C,
    ) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        if self.parts.len() > 1 {
            // Nothing is launched of a call that some program refuses.
            self.prepare(call)?;
        }
        self.each(|of, part| {
            let loaded = Arc::clone(&part.loaded);
            let Some((grid, block)) = part.ready(of, call)? else { return Ok(()) };
            // SAFETY: the caller guarantees it.
            unsafe { loaded.launch_in(current, stream, grid, block) }
        })
    }

    /// Each program, with the kernel that it is of.
    fn each<C>(
        &mut self,
        mut with: impl FnMut(&dyn Kernel<C>, &mut Part) -> Result<(), EngineError>,
    ) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let Self { kernel, parts } = self;
        let steps = kernel.steps();
        let (given, needed) = (parts.len(), steps.len().max(1));
        if given != needed {
            let kernel = parts[0].program.name().to_owned();
            return Err(EngineError::Programs { kernel, given, needed });
        }
        if steps.is_empty() {
            return with(&*kernel, &mut parts[0]);
        }
        steps.iter().zip(parts).try_for_each(|(step, part)| with(&**step, part))
    }
}

impl Part {
    /// The launch of a call.
    fn ready<C: Clone>(
        &mut self,
        kernel: &dyn Kernel<C>,
        call: &C,
    ) -> Result<Option<(Grid, &[u8])>, EngineError> {
        let Self { program, loaded, resident, calls } = self;
        calls.get(&Making { kernel, program, loaded, resident: *resident }, call)
    }
}

/// What is needed to make a launch.
struct Making<'a, C> {
    kernel: &'a dyn Kernel<C>,
    program: &'a Program,
    loaded: &'a LoadedProgram,
    resident: u32,
}

impl<C: Clone> LaunchBuilder<C> for Making<'_, C> {
    fn launch(&self, call: &C) -> Result<Option<Launch>, EngineError> {
        let launch = self.kernel.launch(call, self.resident).map_err(|source| self.refused(source))?;
        launch.iter().try_for_each(|launch| as_stated(self.kernel, self.program, call, launch))?;
        Ok(launch)
    }

    fn refused(&self, source: LaunchError) -> EngineError {
        EngineError::Call { kernel: self.program.name().to_owned(), source }
    }

    fn visit(&self, call: &mut C, visit: &mut dyn Visit) {
        self.kernel.visit(call, visit);
    }
}

impl<C> Blocks for Making<'_, C> {
    fn block(&self, arguments: &[Argument]) -> Result<Vec<u8>, EngineError> {
        self.loaded.parameter_block(self.program, arguments)
    }

    fn offsets(&self) -> &[usize] {
        self.loaded.offsets()
    }

    fn readdress(&self, map: &mut [u8; TENSOR_MAP_BYTES], address: u64) -> Result<(), EngineError> {
        tensor_map::readdress(self.loaded.context(), map, address)
    }
}

#[cfg(test)]
mod tests {
    use collective::Record;

    use super::{Blocks, LaunchBuilder, Loaded, Making, Part};
    use crate::call::Call;
    use crate::driver::DeviceSlice;
    use crate::driver::counting::allocations;
    use crate::driver::counting::card;
    use crate::engine::Engine;
    use crate::problem::GemmProblem;
    use crate::products::GroupedProblem;

    fn call(address: u64) -> Call {
        Call::of(GemmProblem { m: 64, n: 64, k: 64 }).a(address, 64).b(address, 64).d(address, 64)
    }

    /// With a GPU: the second of two equal calls allocates nothing, and both give the right result.
    #[test]
    fn equal_calls_are_launched_without_allocations() {
        let Some(mut gpu) = card() else { return };
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.allocate(ones.len()).expect("memory"));
        let mut call = call(operand.address);
        call.d.address = d.address;
        let gemm = crate::find("64x64-direct-bf16-kk").expect("a catalogue name");
        let program = gemm.program().expect("legal");
        let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let stream = gpu.stream().clone();
        let lent = [operand, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
        let lent = lent.each_ref().map(DeviceSlice::from);
        let mut launch = || loaded.launch(&stream, &call, &lent).expect("legal");
        assert!(allocations(&mut launch) > 0);
        assert_eq!(allocations(&mut launch), 0);
        assert_eq!(gpu.read(d).expect("no fault"), half::bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64));
    }

    /// With a GPU: a launch whose addresses were changed in the arguments of an earlier call gives the result
    /// of the new matrices. Its parameter block equals a newly made one.
    #[test]
    fn new_addresses_of_a_known_shape_are_launched_without_allocations() {
        let Some(mut gpu) = card() else { return };
        for name in [
            "64x64-direct-bf16-kk",
            "128x256-bf16-kk",
            "128x256-sourced-bf16-kk",
            "128x128-unaligned-bf16-kk",
        ] {
            let gemm = crate::find(name).expect("a catalogue name");
            let program = gemm.program().expect("legal");
            let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
            let stream = gpu.stream().clone();
            for value in 1..5u8 {
                let numbers = half::bf16::from_f32(value.into()).to_le_bytes().repeat(64 * 64);
                let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
                let [a, b] = [&numbers, &ones].map(|bytes| gpu.upload(bytes).expect("memory"));
                let d = gpu.allocate(numbers.len()).expect("memory");
                let call = call(0).a(a.address, 64).b(b.address, 64).d(d.address, 64);
                let lent = [a, b, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
                let lent = lent.each_ref().map(DeviceSlice::from);
                let count = allocations(|| loaded.launch(&stream, &call, &lent).expect("legal"));
                assert_eq!(count == 0, value > 1, "{name}: {count} allocations");
                let sums = half::bf16::from_f32(64.0 * f32::from(value)).to_le_bytes().repeat(64 * 64);
                assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}");
                let Loaded { kernel, parts } = &mut loaded;
                let Part { program, loaded: compiled, resident, calls } = &mut parts[0];
                let making = Making::<Call> { kernel, program, loaded: compiled, resident: *resident };
                let afresh = making.launch(&call).expect("legal").expect("not empty");
                let afresh = making.block(&afresh.arguments).expect("legal");
                let kept = calls.get(&making, &call).expect("legal");
                assert_eq!(kept.map(|(_, block)| block.to_vec()), Some(afresh), "{name}");
            }
        }
    }

    /// With a GPU: memory that was not lent is refused, and so are writes to memory that was lent to be read.
    #[test]
    fn memory_that_is_not_lent_is_refused() {
        let Some(mut gpu) = card() else { return };
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.upload(&ones).expect("memory"));
        let mut call = call(operand.address);
        call.d.address = d.address;
        let gemm = crate::find("64x64-direct-bf16-kk").expect("a catalogue name");
        let program = gemm.program().expect("legal");
        let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let stream = gpu.stream().clone();
        let lent = [operand, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
        let all = lent.each_ref().map(DeviceSlice::from);
        let mut wide = call;
        wide.d.ld += 1;
        // SAFETY: it is the memory of the buffer.
        let read = unsafe { DeviceSlice::readable(d.address, d.bytes as u64) };
        for (why, call, lent, name) in [
            ("D is not lent", call, vec![all[0]], "D"),
            ("D is lent to be read", call, vec![all[0], read], "D"),
            ("A is not lent", call, vec![all[1]], "A"),
            ("D's last row goes beyond its buffer", wide, all.to_vec(), "D"),
        ] {
            let error = loaded.launch(&stream, &call, &lent).expect_err(why).to_string();
            assert!(error.contains(&format!(": {name} is ")), "{why}: {error}");
        }
        assert_eq!(gpu.read(d).expect("no fault"), ones, "nothing ran");
    }

    /// With a GPU: repeated launches of groups of rows and of described GEMMs allocate nothing either, and
    /// graphs of them replay.
    #[test]
    fn launches_of_several_products_are_captured() {
        let Some(mut gpu) = card() else { return };
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let sums = half::bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64);
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.allocate(ones.len()).expect("memory"));
        let mut rows = call(operand.address);
        rows.d.address = d.address;
        let offsets: Vec<u8> = [0u32, 5, 5, 64].iter().flat_map(|row| row.to_le_bytes()).collect();
        let offsets = gpu.upload(&offsets).expect("memory").address;
        let record = Record {
            m: 64,
            n: 64,
            k: 64,
            addresses: [operand.address, operand.address, 0, d.address],
            lds: [64; 4],
        };
        let records = gpu.upload(&record.to_bytes()).expect("memory").address;
        for name in ["ragged-128x256-bf16-kk", "ragged-128x256-step32-bf16-kk", "grouped-128x256-bf16-kk"] {
            let gemm = crate::find(name).expect("a name");
            let program = gemm.program().expect("legal");
            let resident = gpu.resident_clusters(&program).expect("compiles");
            let call = match gemm.form().described() {
                true => Call::grouped(1, records),
                false => Call { products: GroupedProblem::GroupedContiguous { count: 3, offsets }, ..rows },
            };
            let workspace = gpu.workspace(gemm.workspace(&call, resident)).expect("memory");
            let call = Call { workspace, ..call };
            let launch = gemm.launch(&call, resident);
            let launch = launch.expect("legal").expect("not empty");
            let prepared = gpu.prepare(&program, launch.grid, &launch.arguments).expect("legal");
            let graph = gpu.capture(&[&prepared, &prepared]).expect("captured");
            gpu.write(d, &vec![0; ones.len()]).expect("memory");
            gpu.time_many(&[&graph], 3).expect("replayed");
            assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}: replayed");
            gpu.write(d, &vec![0; ones.len()]).expect("memory");
            let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
            let stream = gpu.stream().clone();
            // SAFETY: the matrices, and those that the record describes, are buffers of the GPU.
            let mut launch = || unsafe { loaded.launch_raw(stream.raw(), &call) }.expect("legal");
            assert!(allocations(&mut launch) > 0, "{name}");
            assert_eq!(allocations(&mut launch), 0, "{name}");
            assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}");
        }
    }
}
