//! Algorithms for one GEMM, and launches of them.
#![allow(unsafe_code, reason = "calls cuBLASLt")]

use core::ffi::c_void;
use core::fmt;
use core::ptr;
use std::sync::Arc;

use collective::{BlockScales, Format};

use kernel::driver::{DeviceMemory, Enqueue, Gpu, Held, Stream};
use kernel::{EngineError, GemmProblem};

use super::fused::{Fused, FusedActivation};
use super::symbols::{
    HeuristicResult, Layout, MOST_WORKSPACE, Operation, RawAlgorithm, compute, epilogue, operation,
    scale_mode,
};
use super::{Handle, WORKSPACE_BYTES, failed, status};
use crate::matmul::{Matmul, Stored};
use crate::{buffer, data_type};

/// The value of an attribute.
enum Setting {
    Byte(i8),
    Number(i32),
    Address(u64),
}

/// Number of algorithms that the heuristic is asked for.
const ALGORITHMS: usize = 64;

/// What the heuristic reports about an algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeuristicEstimate {
    /// Workspace that it uses, in bytes.
    pub workspace: usize,
    /// Number of waves, as the library estimates it.
    pub waves: f32,
}

/// A GEMM with its algorithms, in the heuristic's order, the best first.
pub struct Plan {
    handle: Arc<Handle>,
    operation: Operation,
    /// First operand, second operand, output.
    layouts: [Layout; 3],
    algorithms: Vec<HeuristicResult>,
    beta: f32,
    matmul: Matmul,
    /// The buffers of the bias and the scales.
    read: Vec<DeviceMemory>,
}

// SAFETY: descriptors are plain memory of the library, and no call writes them after `Plan::new`.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("algorithms", &self.algorithms()).finish_non_exhaustive()
    }
}

impl Plan {
    pub(super) fn new(
        handle: Arc<Handle>,
        matmul: &Matmul,
        fused: Option<Fused>,
    ) -> Result<Self, EngineError> {
        let context = Arc::clone(&handle.context);
        let _current = context.bind()?;
        let types = matmul.types;
        let [a, b, d] = [types.a, types.b, types.d].map(data_type::of);
        // Everything created so far is destroyed with the plan, also if a later step fails.
        let mut plan = Self {
            handle,
            operation: ptr::null_mut(),
            layouts: [ptr::null_mut(); 3],
            algorithms: Vec::new(),
            beta: 0.0,
            matmul: *matmul,
            read: Vec::new(),
        };
        let (compute, scale) = match (types.a.is_float(), types.a == Format::Tf32, types.a == Format::F64) {
            (false, ..) => (compute::S32, data_type::S32),
            (true, true, _) => (compute::TF32, data_type::F32),
            (true, false, true) => (compute::F64, data_type::F64),
            (true, false, false) => (compute::F32, data_type::F32),
        };
        // SAFETY: one descriptor is written.
        let result =
            unsafe { (plan.handle.symbols.functions.operation_create)(&mut plan.operation, compute, scale) };
        status("cublasLtMatmulDescCreate", result)?;

        let operands = matmul.column_major();
        let attributes = [operation::TRANSPOSE_A, operation::TRANSPOSE_B];
        for (attribute, operand) in attributes.into_iter().zip(operands) {
            // `CUBLAS_OP_N` is 0, `CUBLAS_OP_T` is 1.
            plan.set(attribute, Setting::Number(i32::from(operand.transposed)))?;
        }
        if types.is_scaled() {
            plan.scale_blocks()?;
        } else if matmul.fast && matches!(types.a, Format::E4m3 | Format::E5m2) {
            plan.set(operation::FAST_ACCUMULATION, Setting::Byte(1))?;
        }
        if let Some(fused) = fused {
            plan.fuse(fused)?;
        }
        let output = Stored { rows: matmul.size.n, columns: matmul.size.m, transposed: false };
        let symbols = &plan.handle.symbols;
        let stored = [(b, operands[0]), (a, operands[1]), (d, output)];
        for (layout, (element, stored)) in plan.layouts.iter_mut().zip(stored) {
            let (rows, columns) = (u64::from(stored.rows), u64::from(stored.columns));
            // SAFETY: one layout is written.
            let result = unsafe {
                (symbols.functions.layout_create)(layout, element, rows, columns, i64::from(stored.rows))
            };
            status("cublasLtMatrixLayoutCreate", result)?;
        }
        plan.algorithms = plan.ask()?;
        Ok(plan)
    }

    /// Sets an attribute of the operation.
    fn set(&self, attribute: i32, setting: Setting) -> Result<(), EngineError> {
        let (value, bytes): (*const c_void, usize) = match &setting {
            Setting::Byte(value) => (ptr::from_ref(value).cast(), size_of_val(value)),
            Setting::Number(value) => (ptr::from_ref(value).cast(), size_of_val(value)),
            Setting::Address(value) => (ptr::from_ref(value).cast(), size_of_val(value)),
        };
        // SAFETY: the attribute is of the setting's kind, and one is read before the call returns.
        let result =
            unsafe { (self.handle.symbols.functions.operation_set)(self.operation, attribute, value, bytes) };
        status("cublasLtMatmulDescSetAttribute", result)
    }

    /// Sets the attributes of a fusion, and records what it reads.
    fn fuse(&mut self, fused: Fused) -> Result<(), EngineError> {
        let Matmul { size: GemmProblem { m, n, .. }, types, .. } = self.matmul;
        match fused {
            Fused::Bias { activation, bias, beta } => {
                self.beta = beta;
                let epilogue = match activation {
                    FusedActivation::Identity => epilogue::BIAS,
                    FusedActivation::Relu => epilogue::RELU_BIAS,
                    FusedActivation::Gelu => epilogue::GELU_BIAS,
                };
                self.read.push(buffer(&self.handle.memories, bias, [1, n], types.d.bytes())?);
                self.set(operation::EPILOGUE, Setting::Number(epilogue))?;
                self.set(operation::BIAS, Setting::Address(bias))
            }
            Fused::Scaled { rows, columns } => {
                let vector = |address, extent: u32| (scale_mode::VECTOR, address, [1, extent.into()]);
                self.scale([vector(rows, m), vector(columns, n)])
            }
        }
    }

    /// Sets the block scales.
    fn scale_blocks(&mut self) -> Result<(), EngineError> {
        let Matmul { size: GemmProblem { m, n, k }, types, scales, .. } = self.matmul;
        let extents = BlockScales::packed_extents([m, n, k], types.scaled);
        self.scale([0, 1].map(|i| {
            let mode = if types.scaled[i] == 1 { scale_mode::ROWS } else { scale_mode::BLOCKS };
            (mode, scales[i], extents[i])
        }))
    }

    /// Sets the scales of A and of B: mode, address and extents. The library's first operand is B.
    fn scale(&mut self, of: [(i32, u64, [u64; 2]); 2]) -> Result<(), EngineError> {
        let attributes = [
            (operation::SCALE_MODE_B, operation::SCALE_POINTER_B),
            (operation::SCALE_MODE_A, operation::SCALE_POINTER_A),
        ];
        for ((mode, address, extents), (mode_of, pointer_of)) in of.into_iter().zip(attributes) {
            self.read.push(buffer(&self.handle.memories, address, extents, 4)?);
            self.set(mode_of, Setting::Number(mode))?;
            self.set(pointer_of, Setting::Address(address))?;
        }
        Ok(())
    }

    /// Asks the heuristic for algorithms.
    fn ask(&self) -> Result<Vec<HeuristicResult>, EngineError> {
        let symbols = &self.handle.symbols;
        let mut preference = ptr::null_mut();
        // SAFETY: one preference is written.
        let result = unsafe { (symbols.functions.preference_create)(&mut preference) };
        status("cublasLtMatmulPreferenceCreate", result)?;
        let workspace = WORKSPACE_BYTES as u64;
        // SAFETY: the attribute is a 64-bit number of bytes, and one is read.
        let set = unsafe {
            (symbols.functions.preference_set)(
                preference,
                MOST_WORKSPACE,
                (&raw const workspace).cast(),
                size_of_val(&workspace),
            )
        };
        let mut found = vec![HeuristicResult::NONE; ALGORITHMS];
        let mut count = 0;
        let [first, second, output] = self.layouts;
        // SAFETY: all descriptors are alive, and there is room for the number of results that is asked for.
        let asked = unsafe {
            (symbols.functions.heuristic)(
                self.handle.raw,
                self.operation,
                first,
                second,
                output,
                output,
                preference,
                ALGORITHMS as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        // SAFETY: the preference is not used after this.
        let destroyed = unsafe { (symbols.functions.preference_destroy)(preference) };
        status("cublasLtMatmulPreferenceSetAttribute", set)?;
        status("cublasLtMatmulAlgoGetHeuristic", asked)?;
        status("cublasLtMatmulPreferenceDestroy", destroyed)?;
        found.truncate(usize::try_from(count).unwrap_or(0));
        found.retain(|result| result.state == 0);
        if found.is_empty() {
            let (call, status) =
                ("cublasLtMatmulAlgoGetHeuristic", "no algorithm for this product".to_owned());
            return Err(failed(call, status));
        }
        Ok(found)
    }

    /// The algorithms, at least one.
    pub fn algorithms(&self) -> Vec<HeuristicEstimate> {
        let describe =
            |result: &HeuristicResult| HeuristicEstimate { workspace: result.workspace, waves: result.waves };
        self.algorithms.iter().map(describe).collect()
    }

    /// The GEMM of matrices at device addresses, by one of the algorithms.
    ///
    /// # Errors
    /// There is no such algorithm, or a matrix is not inside a buffer of the GPU.
    pub fn with(&self, algorithm: usize, a: u64, b: u64, d: u64) -> Result<Run<'_>, EngineError> {
        let Some(result) = self.algorithms.get(algorithm) else {
            let status = format!("there is no algorithm {algorithm}, the plan has {}", self.algorithms.len());
            return Err(failed("cublasLtMatmul", status));
        };
        let GemmProblem { m, n, k } = self.matmul.size;
        let within = |address, extents, bytes| buffer(&self.handle.memories, address, extents, bytes);
        let [of_a, of_b, of_d] = self.matmul.types.bytes();
        let d_buffer = within(d, [m, n], of_d)?;
        let buffers = [within(a, [m, k], of_a)?, within(b, [k, n], of_b)?, d_buffer.clone(), d_buffer];
        Ok(Run { plan: self, algorithm: &result.algorithm, a, b, c: d, d, buffers })
    }

    /// Enqueues the GEMM of matrices at device addresses, by one of the algorithms.
    ///
    /// # Errors
    /// There is no such algorithm, a matrix is not inside a buffer of the GPU, or the library rejects it.
    pub fn run(&self, algorithm: usize, [a, b, d]: [u64; 3], stream: &Stream) -> Result<(), EngineError> {
        self.with(algorithm, a, b, d)?.enqueue(stream)
    }

    /// Times every algorithm briefly and returns the index of the fastest. Algorithms that the library
    /// refuses to run are skipped.
    ///
    /// # Errors
    /// All algorithms are refused, or a driver error.
    pub fn fastest(&self, gpu: &mut Gpu, a: u64, b: u64, d: u64) -> Result<usize, EngineError> {
        let mut best: Result<(usize, f64), EngineError> =
            Err(failed("cublasLtMatmul", "no algorithm runs this product".to_owned()));
        for index in 0..self.algorithms.len() {
            let run = self.with(index, a, b, d)?;
            // The first run of an algorithm loads its kernels; the best of three short series sees the fewest
            // disturbances.
            let series = gpu.time_many(&[&run], 1).and_then(|_| {
                (0..3).try_fold(f64::INFINITY, |least, _| Ok(gpu.time_many(&[&run], 5)?.min(least)))
            });
            match series {
                Ok(seconds) if best.as_ref().map_or(true, |&(_, least)| seconds < least) => {
                    best = Ok((index, seconds));
                }
                Ok(_) | Err(EngineError::Library { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        best.map(|(index, _)| index)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        let symbols = &self.handle.symbols;
        // SAFETY: every descriptor was created by this plan or is null, and is not used after this.
        unsafe {
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = (symbols.functions.layout_destroy)(layout);
            }
            if !self.operation.is_null() {
                let _ = (symbols.functions.operation_destroy)(self.operation);
            }
        }
    }
}

/// A GEMM with all choices made, ready to be enqueued or timed by [`Gpu::time_many`].
#[derive(Clone)]
pub struct Run<'p> {
    plan: &'p Plan,
    algorithm: &'p RawAlgorithm,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    /// The buffers of A, B, D and C.
    buffers: [DeviceMemory; 4],
}

impl Run<'_> {
    /// Sets C, a matrix packed like D, by its device address. Without this, D is its own C if beta is not 0.
    ///
    /// # Errors
    /// C is not inside a buffer of the GPU.
    pub fn with_c(self, c: u64) -> Result<Self, EngineError> {
        let GemmProblem { m, n, .. } = self.plan.matmul.size;
        let [a, b, d, _] = self.buffers;
        let bytes = self.plan.matmul.types.d.bytes();
        let buffers = [a, b, d, buffer(&self.plan.handle.memories, c, [m, n], bytes)?];
        Ok(Self { c, buffers, ..self })
    }
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("a", &self.a)
            .field("b", &self.b)
            .field("d", &self.d)
            .finish_non_exhaustive()
    }
}

impl Enqueue for Run<'_> {
    fn name(&self) -> &str {
        "cublasLtMatmul"
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        let Plan { handle, operation, layouts: [first, second, output], read, .. } = self.plan;
        let _current = handle.context.bind()?;
        let buffers = self.buffers.iter().chain(read).map(|buffer| Arc::new(buffer.clone()) as Held);
        stream.hold(buffers.chain([Arc::clone(handle) as Held]));
        let pointer = |address: u64| ptr::without_provenance_mut::<c_void>(address as usize);
        // The bits of a factor in the scale type; 32-bit types use the low half.
        let of_a = self.plan.matmul.types.a;
        let factor = |factor: f32| -> u64 {
            match (of_a.is_float(), of_a == Format::F64) {
                (false, _) => (factor as i32).cast_unsigned().into(),
                (true, true) => f64::from(factor).to_bits(),
                (true, false) => factor.to_bits().into(),
            }
        };
        let (alpha, beta) = (factor(1.0), factor(self.plan.beta));
        // SAFETY: handle, descriptors, algorithm and workspace belong together and are alive. alpha and beta
        // are read before the call returns. The matrices and the bias are parts of buffers, which stay
        // allocated until work on them has ended.
        let result = unsafe {
            (handle.symbols.functions.matmul)(
                handle.raw,
                *operation,
                (&raw const alpha).cast(),
                pointer(self.b),
                *first,
                pointer(self.a),
                *second,
                (&raw const beta).cast(),
                pointer(self.c),
                *output,
                pointer(self.d),
                *output,
                self.algorithm,
                pointer(handle.workspace.address()),
                WORKSPACE_BYTES,
                stream.raw(),
            )
        };
        status("cublasLtMatmul", result)
    }
}
