//! A kernel that is called again and again with little ado.
#![allow(unsafe_code, reason = "launches with addresses that the caller vouches for")]

use core::ffi::c_void;
use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use ptx::abi::Grid;

use super::kernel::{Kernel, parameter_block};
use crate::catalogue::AnyGemm;
use crate::error::EngineError;
use crate::groups::{BatchedCall, Experts, GroupedCall, RaggedCall, Strides};
use crate::problem::{Call, GemmProblem, MatrixRef, WorkspaceRef};
use crate::program::Program;

/// A GEMM kernel, compiled, with the calls it has had: a call that was made before is a look-up and a launch.
///
/// The first call of its kind is checked, and its tensor maps are encoded; it waits for nothing either. Launches may be
/// captured into CUDA graphs.
///
/// ```no_run
/// use kernel::driver::{CudaContext, Loaded};
/// use kernel::{Call, EngineError};
///
/// fn layers(calls: &[Call]) -> Result<(), Box<dyn std::error::Error>> {
///     let context = CudaContext::new(0)?; // the application's own
///     let stream = context.new_stream()?;
///     let gemm = kernel::find("staged-bf16-kk")?;
///     let program = gemm.program()?;
///     let mut loaded = Loaded::load_in(&context, gemm, program)?; // milliseconds; keep it
///     for call in calls {
///         loaded.launch(&stream, call)?; // microseconds
///     }
///     Ok(())
/// }
/// ```
pub struct Loaded {
    gemm: Box<dyn AnyGemm>,
    program: Program,
    kernel: Arc<Kernel>,
    slots: u32,
    calls: Calls,
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
        let Self { gemm, slots, calls, .. } = self;
        let mut debug = f.debug_struct("Loaded");
        debug.field("gemm", &gemm.name()).field("slots", slots).field("calls", &calls.blocks.len());
        debug.finish_non_exhaustive()
    }
}

impl Loaded {
    /// Compiles a kernel into a context; `program` is the kernel's own ([`AnyGemm::program`]).
    ///
    /// # Errors
    /// The compiler's log where the driver refuses the program, or a driver error.
    pub fn load_in(
        context: &Arc<CudaContext>,
        gemm: Box<dyn AnyGemm>,
        program: Program,
    ) -> Result<Self, EngineError> {
        let kernel = Arc::new(Kernel::load_in(context, &program)?);
        let slots = kernel.max_active_clusters()?;
        Ok(Self { gemm, program, kernel, slots, calls: Calls::default() })
    }

    /// The compiled kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// How many of the kernel's clusters run at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Enqueues a call, of one product or of several, and returns at once; one with nothing to do enqueues nothing.
    ///
    /// # Errors
    /// The first argument that is illegal, or the driver refuses the launch. Faults while it runs show up later.
    pub fn launch(&mut self, stream: &CudaStream, call: impl Into<AnyCall>) -> Result<(), EngineError> {
        // SAFETY: the driver refuses a stream of another context. A bad address is a fault of the device, which is
        // reported, and harms no memory of the host.
        unsafe { self.launch_raw(stream.cu_stream().cast(), call) }
    }

    /// The same on any stream.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    ///
    /// # Safety
    /// As [`Kernel::launch_raw`].
    pub unsafe fn launch_raw(
        &mut self,
        stream: *mut c_void,
        call: impl Into<AnyCall>,
    ) -> Result<(), EngineError> {
        let call = &call.into();
        let key = key(call);
        if let Some(kept) = self.calls.blocks.get(&key) {
            // SAFETY: the caller vouches for stream and addresses.
            return unsafe { run(&self.kernel, stream, kept.as_ref()) };
        }
        let block = self.block(call)?;
        // SAFETY: as above.
        unsafe { run(&self.kernel, stream, block.as_ref())? };
        self.calls.keep(key, block);
        Ok(())
    }

    /// Checks a call and lays its arguments out.
    fn block(&self, call: &AnyCall) -> Result<Option<Block>, EngineError> {
        let launch = match call {
            AnyCall::One(call) => self.gemm.launch(call, self.slots),
            AnyCall::Batched(call) => self.gemm.launch_batched(call, self.slots),
            AnyCall::Ragged(call) => self.gemm.launch_ragged(call, self.slots),
            AnyCall::Grouped(call) => self.gemm.launch_grouped(call, self.slots),
        };
        let launch =
            launch.map_err(|source| EngineError::Call { kernel: self.program.name().to_owned(), source })?;
        launch.map(|launch| Ok((launch.grid, parameter_block(&self.program, &launch.arguments)?))).transpose()
    }
}

/// Launches, unless there is nothing to do.
///
/// # Safety
/// As [`Kernel::launch_raw`].
unsafe fn run(kernel: &Kernel, stream: *mut c_void, block: Option<&Block>) -> Result<(), EngineError> {
    match block {
        // SAFETY: the caller vouches for stream and addresses.
        Some((grid, block)) => unsafe { kernel.launch_raw(stream, *grid, block) },
        None => Ok(()),
    }
}

/// A launch's grid and parameter block.
type Block = (Grid, Vec<u8>);

/// A call in words, for look-ups: equal words are equal launches.
type Key = [u64; 20];

fn key(call: &AnyCall) -> Key {
    let ([kind, more @ ..], first) = match *call {
        AnyCall::One(call) => ([0; 6], words(&call)),
        AnyCall::Batched(BatchedCall { first, count, strides: Strides { a, b, c, d } }) => {
            ([1, count.into(), a, b, c, d], words(&first))
        }
        AnyCall::Ragged(RaggedCall { rows, experts: Experts { count, offsets, b_stride } }) => {
            ([2, count.into(), offsets, b_stride, 0, 0], words(&rows))
        }
        AnyCall::Grouped(GroupedCall { count, records, alpha, beta, workspace }) => {
            let factors = Call { alpha, beta, workspace, ..Call::of(GemmProblem { m: 0, n: 0, k: 0 }) };
            ([3, count.into(), records, 0, 0, 0], words(&factors))
        }
    };
    let mut key = [0; 20];
    for (word, value) in key.iter_mut().zip([kind].into_iter().chain(more).chain(first)) {
        *word = value;
    }
    key
}

fn words(call: &Call) -> [u64; 14] {
    let Call { problem: GemmProblem { m, n, k }, a, b, c, d, alpha, beta, workspace } = *call;
    let none = MatrixRef { address: 0, pitch: 0 };
    let workspace = workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
    let c_given = c.is_some();
    let c = c.unwrap_or(none);
    let factors = u64::from(alpha.to_bits()) << 32 | u64::from(beta.to_bits());
    let extents = u64::from(m) << 32 | u64::from(n);
    [
        extents,
        k.into(),
        a.address,
        a.pitch,
        b.address,
        b.pitch,
        c.address,
        c.pitch,
        d.address,
        d.pitch,
        factors,
        c_given.into(),
        workspace.address,
        workspace.bytes,
    ]
}

/// Calls that are kept: a model's layers, and room to spare. Beyond, all are forgotten and come back one by one.
const KEPT: usize = 1024;

/// Launches by their calls; `None` is an empty product.
#[derive(Debug, Default)]
struct Calls {
    blocks: HashMap<Key, Option<Block>>,
}

impl Calls {
    fn keep(&mut self, key: Key, block: Option<Block>) {
        if self.blocks.len() >= KEPT {
            self.blocks.clear();
        }
        self.blocks.insert(key, block);
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    use collective::Record;
    use ptx::abi::Grid;

    use super::{AnyCall, Calls, KEPT, Loaded, key};
    use crate::driver::Gpu;
    use crate::engine::Engine;
    use crate::groups::{BatchedCall, Experts, GroupedCall, RaggedCall, Strides};
    use crate::problem::{Call, GemmProblem, MatrixRef, WorkspaceRef};

    /// The system's allocator, which counts for each thread.
    struct Counting;

    thread_local! {
        static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    }

    // SAFETY: everything is the system allocator's; the counter does not allocate.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
            // SAFETY: the caller vouches for the layout.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: the caller vouches for pointer and layout.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    #[global_allocator]
    static COUNTING: Counting = Counting;

    fn allocations(work: impl FnOnce()) -> u64 {
        let before = ALLOCATIONS.get();
        work();
        ALLOCATIONS.get() - before
    }

    fn call(address: u64) -> Call {
        let matrix = MatrixRef { address, pitch: 64 };
        let problem = GemmProblem { m: 64, n: 64, k: 64 };
        Call { problem, a: matrix, b: matrix, c: None, d: matrix, alpha: 1.0, beta: 0.0, workspace: None }
    }

    #[test]
    fn calls_that_differ_have_other_keys() {
        let base = call(4096);
        let other = MatrixRef { address: 8192, pitch: 128 };
        let problem = |m, n, k| GemmProblem { m, n, k };
        let calls = [
            base,
            Call { problem: problem(65, 64, 64), ..base },
            Call { problem: problem(64, 65, 64), ..base },
            Call { problem: problem(64, 64, 65), ..base },
            Call { a: other, ..base },
            Call { b: other, ..base },
            Call { d: other, ..base },
            Call { c: Some(other), ..base },
            Call { c: Some(MatrixRef { address: 0, pitch: 0 }), ..base },
            Call { alpha: 2.0, ..base },
            Call { beta: 2.0, ..base },
            Call { workspace: Some(WorkspaceRef { address: 128, bytes: 256 }), ..base },
        ];
        let batched = BatchedCall { first: base, count: 2, strides: Strides { a: 1, b: 2, c: 3, d: 4 } };
        let ragged = RaggedCall { rows: base, experts: Experts { count: 2, offsets: 16, b_stride: 64 } };
        let grouped = GroupedCall { count: 2, records: 16, alpha: 1.0, beta: 0.0, workspace: None };
        let strides = batched.strides;
        let batches = [
            batched,
            BatchedCall { first: calls[1], ..batched },
            BatchedCall { count: 3, ..batched },
            BatchedCall { strides: Strides { a: 9, ..strides }, ..batched },
            BatchedCall { strides: Strides { b: 9, ..strides }, ..batched },
            BatchedCall { strides: Strides { c: 9, ..strides }, ..batched },
            BatchedCall { strides: Strides { d: 9, ..strides }, ..batched },
        ];
        let experts = ragged.experts;
        let rows = [
            ragged,
            RaggedCall { rows: calls[1], ..ragged },
            RaggedCall { experts: Experts { count: 3, ..experts }, ..ragged },
            RaggedCall { experts: Experts { offsets: 32, ..experts }, ..ragged },
            RaggedCall { experts: Experts { b_stride: 0, ..experts }, ..ragged },
        ];
        let records = [
            grouped,
            GroupedCall { count: 3, ..grouped },
            GroupedCall { records: 32, ..grouped },
            GroupedCall { alpha: 2.0, ..grouped },
            GroupedCall { beta: 2.0, ..grouped },
            GroupedCall { workspace: calls[11].workspace, ..grouped },
        ];
        let mut all: Vec<AnyCall> = calls.iter().map(AnyCall::from).collect();
        all.extend(batches.iter().map(AnyCall::from));
        all.extend(rows.iter().map(AnyCall::from));
        all.extend(records.iter().map(AnyCall::from));
        for (i, one) in all.iter().enumerate() {
            for (j, two) in all.iter().enumerate() {
                assert_eq!(key(one) == key(two), i == j, "{one:?} and {two:?}");
            }
        }
    }

    #[test]
    fn a_call_that_is_kept_allocates_nothing() {
        let mut calls = Calls::default();
        let grid = Grid { ctas: [1, 1, 1] };
        for i in 0..2 * KEPT as u64 {
            calls.keep(key(&AnyCall::One(call(i * 16))), Some((grid, vec![0; 8])));
            assert!(calls.blocks.len() <= KEPT);
        }
        let (mut found, last) = (false, AnyCall::One(call((2 * KEPT as u64 - 1) * 16)));
        assert_eq!(allocations(|| found = calls.blocks.contains_key(&key(&last))), 0);
        assert!(found, "the last call is kept");
        assert!(allocations(|| drop(vec![0u8; 100])) > 0, "the counter counts");
    }

    /// With a GPU: the second of two equal calls allocates nothing, and both give the product.
    #[test]
    fn equal_calls_are_launched_without_allocations() {
        let Ok(mut gpu) = Gpu::new(0) else { return };
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.allocate(ones.len()).expect("memory"));
        let mut call = call(operand.address);
        call.d.address = d.address;
        let gemm = crate::find("small-bf16-kk").expect("a catalogue name");
        let program = gemm.program().expect("legal");
        let mut loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let stream = gpu.stream().clone();
        let mut launch = || loaded.launch(&stream, &call).expect("legal");
        assert!(allocations(&mut launch) > 0);
        assert_eq!(allocations(&mut launch), 0);
        assert_eq!(gpu.read(d).expect("no fault"), half::bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64));
    }

    /// With a GPU: launches of groups of rows and of described products allocate nothing either, and graphs of them replay.
    #[test]
    fn launches_of_several_products_are_captured() {
        let Ok(mut gpu) = Gpu::new(0) else { return };
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
            let mut launch = || loaded.launch(&stream, call).expect("legal");
            assert!(allocations(&mut launch) > 0, "{name}");
            assert_eq!(allocations(&mut launch), 0, "{name}");
            assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}");
        }
    }
}
