//! Algorithms for one matrix product, and launches of them.
#![allow(unsafe_code, reason = "calls cuBLASLt")]

use core::ffi::c_void;
use core::fmt;
use core::ptr;
use std::sync::Arc;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as ComputeType, cublasLtMatmulDescAttributes_t as OperationAttribute,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cudaDataType as DataType,
};
use cudarc::driver::CudaStream;

use super::super::call;
use super::super::gpu::Gpu;
use super::super::timing::Enqueue;
use super::product::{Activation, Fused, Precision, Product, Stored};
use super::{Handle, WORKSPACE_BYTES, status};
use crate::error::EngineError;

/// How many algorithms the heuristic is asked for.
const ALGORITHMS: usize = 64;

/// What the heuristic says of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Algorithm {
    /// Bytes of workspace it uses.
    pub workspace: usize,
    /// How many times it fills the device, as the library estimates.
    pub waves: f32,
}

/// A product with its algorithms, best first in the heuristic's opinion.
pub struct Plan {
    handle: Arc<Handle>,
    operation: sys::cublasLtMatmulDesc_t,
    /// First operand, second operand, output.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithms: Vec<sys::cublasLtMatmulHeuristicResult_t>,
    beta: f32,
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
        product: &Product,
        fused: Option<Fused>,
    ) -> Result<Self, EngineError> {
        call::bind(&handle.context)?;
        let data_type = match product.precision {
            Precision::F16 => DataType::CUDA_R_16F,
            Precision::Bf16 => DataType::CUDA_R_16BF,
        };
        // What has been created is destroyed with the plan, also where a later step fails.
        let mut plan = Self {
            handle,
            operation: ptr::null_mut(),
            layouts: [ptr::null_mut(); 3],
            algorithms: Vec::new(),
            beta: 0.0,
        };
        let symbols = &plan.handle.symbols;
        let (compute, scale) = (ComputeType::CUBLAS_COMPUTE_32F, DataType::CUDA_R_32F);
        // SAFETY: one descriptor is written.
        let result = unsafe { (symbols.operation_create)(&mut plan.operation, compute, scale) };
        status("cublasLtMatmulDescCreate", result)?;

        let operands = product.operands();
        let attributes = [
            OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSA,
            OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSB,
        ];
        for (attribute, operand) in attributes.into_iter().zip(operands) {
            // `CUBLAS_OP_N` is 0, `CUBLAS_OP_T` is 1.
            let value = i32::from(operand.transposed);
            // SAFETY: the attribute is a 32-bit number, and one is read.
            let result = unsafe {
                (symbols.operation_set)(
                    plan.operation,
                    attribute,
                    (&raw const value).cast(),
                    size_of_val(&value),
                )
            };
            status("cublasLtMatmulDescSetAttribute", result)?;
        }
        if let Some(Fused { activation, bias, beta }) = fused {
            plan.beta = beta;
            let epilogue = match activation {
                Activation::Identity => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
                Activation::Relu => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
                Activation::Gelu => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
            } as u32;
            // SAFETY: the attribute is a 32-bit number, and one is read.
            let result = unsafe {
                (symbols.operation_set)(
                    plan.operation,
                    OperationAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE,
                    (&raw const epilogue).cast(),
                    size_of_val(&epilogue),
                )
            };
            status("cublasLtMatmulDescSetAttribute", result)?;
            // SAFETY: the attribute is a 64-bit device pointer, and one is read.
            let result = unsafe {
                (symbols.operation_set)(
                    plan.operation,
                    OperationAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                    (&raw const bias).cast(),
                    size_of_val(&bias),
                )
            };
            status("cublasLtMatmulDescSetAttribute", result)?;
        }
        let output = Stored { rows: product.size.n, columns: product.size.m, transposed: false };
        for (layout, stored) in plan.layouts.iter_mut().zip([operands[0], operands[1], output]) {
            let (rows, columns) = (u64::from(stored.rows), u64::from(stored.columns));
            // SAFETY: one layout is written.
            let result =
                unsafe { (symbols.layout_create)(layout, data_type, rows, columns, i64::from(stored.rows)) };
            status("cublasLtMatrixLayoutCreate", result)?;
        }
        plan.algorithms = plan.ask()?;
        Ok(plan)
    }

    /// Asks the heuristic.
    fn ask(&self) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>, EngineError> {
        let symbols = &self.handle.symbols;
        let mut preference = ptr::null_mut();
        // SAFETY: one preference is written.
        let result = unsafe { (symbols.preference_create)(&mut preference) };
        status("cublasLtMatmulPreferenceCreate", result)?;
        let attribute = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let workspace = WORKSPACE_BYTES as u64;
        // SAFETY: the attribute is a 64-bit number of bytes, and one is read.
        let set = unsafe {
            (symbols.preference_set)(
                preference,
                attribute,
                (&raw const workspace).cast(),
                size_of_val(&workspace),
            )
        };
        let nothing = sys::cublasLtMatmulHeuristicResult_t {
            algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            workspaceSize: 0,
            state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
            wavesCount: 0.0,
            reserved: [0; 4],
        };
        let mut found = vec![nothing; ALGORITHMS];
        let mut count = 0;
        let [first, second, output] = self.layouts;
        // SAFETY: all descriptors are alive, and there is room for as many results as are asked for.
        let asked = unsafe {
            (symbols.heuristic)(
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
        let destroyed = unsafe { (symbols.preference_destroy)(preference) };
        status("cublasLtMatmulPreferenceSetAttribute", set)?;
        status("cublasLtMatmulAlgoGetHeuristic", asked)?;
        status("cublasLtMatmulPreferenceDestroy", destroyed)?;
        found.truncate(usize::try_from(count).unwrap_or(0));
        found.retain(|result| result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        if found.is_empty() {
            let (call, status) =
                ("cublasLtMatmulAlgoGetHeuristic", "no algorithm for this product".to_owned());
            return Err(EngineError::CublasLt { call, status });
        }
        Ok(found)
    }

    /// The algorithms, at least one.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let describe = |result: &sys::cublasLtMatmulHeuristicResult_t| Algorithm {
            workspace: result.workspaceSize,
            waves: result.wavesCount,
        };
        self.algorithms.iter().map(describe).collect()
    }

    /// The product of matrices at these device addresses, by one of the algorithms.
    ///
    /// # Errors
    /// There is no such algorithm.
    pub fn with(&self, algorithm: usize, a: u64, b: u64, d: u64) -> Result<Run<'_>, EngineError> {
        let Some(result) = self.algorithms.get(algorithm) else {
            let status = format!("there is no algorithm {algorithm}, the plan has {}", self.algorithms.len());
            return Err(EngineError::CublasLt { call: "cublasLtMatmul", status });
        };
        Ok(Run { plan: self, algorithm: &result.algo, a, b, c: d, d })
    }

    /// Enqueues the product of matrices at these device addresses, by one of the algorithms.
    ///
    /// # Errors
    /// There is no such algorithm, or the library refuses it.
    pub fn run(&self, algorithm: usize, [a, b, d]: [u64; 3], stream: &CudaStream) -> Result<(), EngineError> {
        self.with(algorithm, a, b, d)?.enqueue(stream)
    }

    /// Times every algorithm briefly and returns the index of the fastest; algorithms that the library refuses to run
    /// do not take part.
    ///
    /// # Errors
    /// All of them are refused, or a driver error.
    pub fn fastest(&self, gpu: &mut Gpu, a: u64, b: u64, d: u64) -> Result<usize, EngineError> {
        let mut best: Result<(usize, f64), EngineError> = Err(EngineError::CublasLt {
            call: "cublasLtMatmul",
            status: "no algorithm runs this product".to_owned(),
        });
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
                Ok(_) | Err(EngineError::CublasLt { .. }) => {}
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
                let _ = (symbols.layout_destroy)(layout);
            }
            if !self.operation.is_null() {
                let _ = (symbols.operation_destroy)(self.operation);
            }
        }
    }
}

/// A product with everything chosen, ready for a stream and for [`Gpu::time_many`].
#[derive(Clone, Copy)]
pub struct Run<'p> {
    plan: &'p Plan,
    algorithm: &'p sys::cublasLtMatmulAlgo_t,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
}

impl Run<'_> {
    /// The same with C, packed like D, at a device address: without it D is its own C where beta is not zero.
    #[must_use]
    pub fn with_c(self, c: u64) -> Self {
        Self { c, ..self }
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

    fn enqueue(&self, stream: &CudaStream) -> Result<(), EngineError> {
        let Plan { handle, operation, layouts: [first, second, output], .. } = self.plan;
        call::bind(&handle.context)?;
        let pointer = |address: u64| ptr::without_provenance_mut::<c_void>(address as usize);
        let (alpha, beta) = (1f32, self.plan.beta);
        // SAFETY: handle, descriptors, algorithm and workspace belong together and are alive; alpha and beta are read
        // before the call returns; the matrices are device memory, where a bad address is a fault that is reported.
        let result = unsafe {
            (handle.symbols.matmul)(
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
                pointer(handle.workspace),
                WORKSPACE_BYTES,
                stream.cu_stream().cast(),
            )
        };
        status("cublasLtMatmul", result)
    }
}
