//! A kernel that is called again and again with little ado.
#![allow(unsafe_code, reason = "launches with addresses that were lent")]

use core::ffi::c_void;
use core::fmt;
use std::sync::Arc;

use ptx::abi::{Argument, TENSOR_MAP_BYTES};

use super::calls::{Calls, Maker};
use super::context::Context;
use super::footprint::{self, Matrices};
use super::kernel::{Kernel, parameter_block_in};
use super::memory::DeviceSlice;
use super::stream::StreamRef;
use super::tensor_map;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::groups::{BatchedCall, GroupedCall, RaggedCall};
use crate::problem::{Call, Launch};
use crate::program::Program;

/// A GEMM kernel, compiled, with the calls it has had: a call that was made before is a look-up and a launch, and one that
/// differs in addresses alone changes them in the arguments of the other.
///
/// The first call of its shape is checked, and its tensor maps are encoded; it waits for nothing either. Addresses have to be
/// multiples of the same powers of two, up to 256 B, for two calls to be of one shape. The shapes that were not called for
/// longest are forgotten one by one.
///
/// ```no_run
/// use kernel::driver::{Context, DeviceSlice, Loaded, Stream};
/// use kernel::{Call, EngineError};
///
/// fn layers(calls: &[Call], weights: DeviceSlice<'_>, sums: DeviceSlice<'_>) -> Result<(), Box<dyn std::error::Error>> {
///     let context = Context::primary(0)?; // the application's own: cudarc's, candle's
///     let stream = Stream::new(&context)?;
///     let gemm = kernel::find("staged-bf16-kk")?;
///     let program = gemm.program()?;
///     let mut loaded = Loaded::load_in(&context, gemm, program)?; // milliseconds; keep it
///     for call in calls {
///         loaded.launch(&stream, call, &[weights, sums])?; // microseconds
///     }
///     Ok(())
/// }
/// ```
pub struct Loaded {
    parts: Parts,
    calls: Calls,
}

/// What launches are made with.
struct Parts {
    gemm: AnyGemm,
    program: Program,
    kernel: Arc<Kernel>,
    slots: u32,
    matrices: Matrices,
}

/// A call of one product or of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyCall {
    /// One product.
    One(Call),
    /// Products of one shape.
    Batched(BatchedCall),
    /// Groups of rows.
    Ragged(RaggedCall),
    /// Products that device memory describes.
    Grouped(GroupedCall),
}

impl From<&Call> for AnyCall {
    fn from(call: &Call) -> Self {
        Self::One(*call)
    }
}

impl From<&BatchedCall> for AnyCall {
    fn from(call: &BatchedCall) -> Self {
        Self::Batched(*call)
    }
}

impl From<&RaggedCall> for AnyCall {
    fn from(call: &RaggedCall) -> Self {
        Self::Ragged(*call)
    }
}

impl From<&GroupedCall> for AnyCall {
    fn from(call: &GroupedCall) -> Self {
        Self::Grouped(*call)
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts: Parts { gemm, slots, .. }, calls } = self;
        let mut debug = f.debug_struct("Loaded");
        debug.field("gemm", &gemm.name()).field("slots", slots).field("shapes", &calls.len());
        debug.finish_non_exhaustive()
    }
}

impl Loaded {
    /// Compiles a kernel into a context; `program` is the kernel's own ([`AnyGemm::program`]).
    ///
    /// # Errors
    /// The compiler's log where the driver refuses the program, or a driver error.
    pub fn load_in(context: &Arc<Context>, gemm: AnyGemm, program: Program) -> Result<Self, EngineError> {
        let kernel = Arc::new(Kernel::load_in(context, &program)?);
        let slots = kernel.max_active_clusters()?;
        let matrices = Matrices::new(&gemm.plan(), gemm.plan().epilogue.output.bits());
        let parts = Parts { gemm, program, kernel, slots, matrices };
        Ok(Self { parts, calls: Calls::default() })
    }

    /// The compiled kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.parts.kernel
    }

    /// How many of the kernel's clusters run at once.
    pub fn slots(&self) -> u32 {
        self.parts.slots
    }

    /// Enqueues a call, of one product or of several, and returns at once; one with nothing to do enqueues nothing. Everything
    /// the call reaches has to be part of memory that is lent: matrices to their last element, the workspace, the offsets of
    /// groups. D and the workspace have to be lent to be written.
    ///
    /// # Errors
    /// The first argument that is illegal, memory that is not lent, products that [`Record`](collective::Record)s describe, a
    /// stream that is captured, or the driver refuses the launch. Faults while it runs show up later.
    pub fn launch<'s>(
        &mut self,
        stream: impl Into<StreamRef<'s>>,
        call: impl Into<AnyCall>,
        lent: &[DeviceSlice<'_>],
    ) -> Result<(), EngineError> {
        let (stream, call) = (stream.into(), call.into());
        let Parts { program, kernel, matrices, .. } = &self.parts;
        if lent.iter().any(|slice| !slice.serves(stream.raw())) {
            return Err(EngineError::OtherStream { kernel: kernel.name().to_owned() });
        }
        footprint::check(program.name(), *matrices, &call, lent)?;
        kernel.context().bind()?;
        if stream.is_captured(kernel.context())? {
            return Err(EngineError::Captured { kernel: kernel.name().to_owned() });
        }
        // SAFETY: the stream is alive, and the driver refuses one of another context. Owners lend every byte that the call
        // reaches.
        unsafe { self.launch_raw(stream.raw(), call) }
    }

    /// The same on any stream, with memory of anybody. The launch may be captured into a graph.
    ///
    /// # Errors
    /// The first argument that is illegal, or the driver refuses the launch. Faults while it runs show up later.
    ///
    /// # Safety
    /// As [`Kernel::launch_raw`]; and records in device memory name memory of which the same holds.
    pub unsafe fn launch_raw(
        &mut self,
        stream: *mut c_void,
        call: impl Into<AnyCall>,
    ) -> Result<(), EngineError> {
        match self.calls.get(&self.parts, &call.into())? {
            // SAFETY: the caller vouches for stream and addresses.
            Some((grid, block)) => unsafe { self.parts.kernel.launch_raw(stream, grid, block) },
            None => Ok(()),
        }
    }
}

impl Maker for Parts {
    fn launch(&self, call: &AnyCall) -> Result<Option<Launch>, EngineError> {
        let launch = match call {
            AnyCall::One(call) => self.gemm.launch(call, self.slots),
            AnyCall::Batched(call) => self.gemm.launch_batched(call, self.slots),
            AnyCall::Ragged(call) => self.gemm.launch_ragged(call, self.slots),
            AnyCall::Grouped(call) => self.gemm.launch_grouped(call, self.slots),
        };
        launch.map_err(|source| EngineError::Call { kernel: self.program.name().to_owned(), source })
    }

    fn block(&self, arguments: &[Argument]) -> Result<Vec<u8>, EngineError> {
        parameter_block_in(self.kernel.context(), &self.program, arguments)
    }

    fn offsets(&self) -> &[usize] {
        self.kernel.offsets()
    }

    fn readdress(&self, map: &mut [u8; TENSOR_MAP_BYTES], address: u64) -> Result<(), EngineError> {
        let context = self.kernel.context();
        tensor_map::readdress(context.driver(), &|call, status| context.check(call, status), map, address)
    }
}

#[cfg(test)]
mod tests {
    use collective::Record;

    use super::{AnyCall, Loaded, Maker};
    use crate::driver::DeviceSlice;
    use crate::driver::counting::allocations;
    use crate::driver::counting::card;
    use crate::engine::Engine;
    use crate::groups::{Experts, GroupedCall, RaggedCall};
    use crate::problem::{Call, GemmProblem, MatrixRef};

    fn call(address: u64) -> Call {
        let matrix = MatrixRef { address, pitch: 64 };
        let problem = GemmProblem { m: 64, n: 64, k: 64 };
        Call { problem, a: matrix, b: matrix, c: None, d: matrix, alpha: 1.0, beta: 0.0, workspace: None }
    }

    /// With a GPU: the second of two equal calls allocates nothing, and both give the product.
    #[test]
    fn equal_calls_are_launched_without_allocations() {
        let Some(mut gpu) = card() else { return };
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.allocate(ones.len()).expect("memory"));
        let mut call = call(operand.address);
        call.d.address = d.address;
        let gemm = crate::find("small-bf16-kk").expect("a catalogue name");
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

    /// With a GPU: a launch with the addresses of another of its shape changed gives the product of what lies there, and its
    /// block is that of one made afresh.
    #[test]
    fn new_addresses_of_a_known_shape_are_launched_without_allocations() {
        let Some(mut gpu) = card() else { return };
        for name in ["small-bf16-kk", "staged-bf16-kk", "sourced-bf16-kk", "unaligned-bf16-kk"] {
            let gemm = crate::find(name).expect("a catalogue name");
            let program = gemm.program().expect("legal");
            let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
            let stream = gpu.stream().clone();
            for value in 1..5u8 {
                let numbers = half::bf16::from_f32(value.into()).to_le_bytes().repeat(64 * 64);
                let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
                let [a, b] = [&numbers, &ones].map(|bytes| gpu.upload(bytes).expect("memory"));
                let d = gpu.allocate(numbers.len()).expect("memory");
                let at = |address| MatrixRef { address, pitch: 64 };
                let call = Call { a: at(a.address), b: at(b.address), d: at(d.address), ..call(0) };
                let lent = [a, b, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
                let lent = lent.each_ref().map(DeviceSlice::from);
                let count = allocations(|| loaded.launch(&stream, &call, &lent).expect("legal"));
                assert_eq!(count == 0, value > 1, "{name}: {count} allocations");
                let sums = half::bf16::from_f32(64.0 * f32::from(value)).to_le_bytes().repeat(64 * 64);
                assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}");
                let afresh = loaded.parts.launch(&AnyCall::One(call)).expect("legal").expect("not empty");
                let afresh = loaded.parts.block(&afresh.arguments).expect("legal");
                let kept = loaded.calls.get(&loaded.parts, &AnyCall::One(call)).expect("legal");
                assert_eq!(kept.map(|(_, block)| block.to_vec()), Some(afresh), "{name}");
            }
        }
    }

    /// With a GPU: a call reaches no memory that was not lent, or not to be written.
    #[test]
    fn memory_that_is_not_lent_is_refused() {
        let Some(mut gpu) = card() else { return };
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.upload(&ones).expect("memory"));
        let mut call = call(operand.address);
        call.d.address = d.address;
        let gemm = crate::find("small-bf16-kk").expect("a catalogue name");
        let program = gemm.program().expect("legal");
        let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let stream = gpu.stream().clone();
        let lent = [operand, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
        let all = lent.each_ref().map(DeviceSlice::from);
        let mut wide = call;
        wide.d.pitch += 1;
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

    /// With a GPU: launches of groups of rows and of described products allocate nothing either, and graphs of them replay.
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
            pitches: [64; 4],
        };
        let records = gpu.upload(&record.to_bytes()).expect("memory").address;
        for name in ["ragged-bf16-kk", "ragged-fitted-bf16-kk", "grouped-bf16-kk"] {
            let gemm = crate::find(name).expect("a name");
            let program = gemm.program().expect("legal");
            let slots = gpu.slots(&program).expect("compiles");
            let call = if gemm.form().described() {
                let workspace = gpu.workspace(gemm.workspace_grouped(slots)).expect("memory");
                AnyCall::Grouped(GroupedCall { count: 1, records, alpha: 1.0, beta: 0.0, workspace })
            } else {
                let workspace = gpu.workspace(gemm.workspace(rows.problem, slots)).expect("memory");
                let experts = Experts { count: 3, offsets, b_stride: 0 };
                AnyCall::Ragged(RaggedCall { rows: Call { workspace, ..rows }, experts })
            };
            let launch = match &call {
                AnyCall::Grouped(call) => gemm.launch_grouped(call, slots),
                AnyCall::Ragged(call) => gemm.launch_ragged(call, slots),
                AnyCall::One(_) | AnyCall::Batched(_) => unreachable!("made above"),
            };
            let launch = launch.expect("legal").expect("not empty");
            let prepared = gpu.prepare(&program, launch.grid, &launch.arguments).expect("legal");
            let graph = gpu.capture(&[&prepared, &prepared]).expect("captured");
            gpu.write(d, &vec![0; ones.len()]).expect("memory");
            gpu.time_many(&[&graph], 3).expect("replayed");
            assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}: replayed");
            gpu.write(d, &vec![0; ones.len()]).expect("memory");
            let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
            let stream = gpu.stream().clone();
            // SAFETY: the matrices, and those that the record names, are buffers of the GPU.
            let mut launch = || unsafe { loaded.launch_raw(stream.raw(), call) }.expect("legal");
            assert!(allocations(&mut launch) > 0, "{name}");
            assert_eq!(allocations(&mut launch), 0, "{name}");
            assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}");
        }
    }
}
