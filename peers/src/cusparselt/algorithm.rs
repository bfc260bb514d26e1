//! Algorithms for one product, and launches of them.
#![allow(unsafe_code, reason = "calls cuSPARSELt")]

use core::ffi::{c_int, c_void};
use core::fmt;
use core::ptr;
use std::sync::Arc;

use kernel::driver::{DeviceMemory, Enqueue, Held, Stream};
use kernel::{EngineError, GemmProblem};

use super::plan::{CompressedMatrix, Descriptors};
use super::refused;
use super::symbols::{Opaque, algorithm};
use crate::buffer;

/// Bytes of scratch memory that an algorithm may use at most.
pub const WORKSPACE_BYTES: usize = 256 << 20;

/// Which of the library's algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its number; `None` for that which the library takes where nothing is said.
    pub id: Option<u32>,
    /// How K is divided; `None` for what the library takes.
    pub split: Option<Split>,
}

/// How K is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// It is not.
    Not,
    /// Into this number of parts, added up in the kernel that multiplies.
    OneKernel(u32),
    /// Into this number of parts, added up in a second kernel.
    TwoKernels(u32),
    /// Into this number of parts. The library chooses how they are added up.
    Parts(u32),
    /// As Stream-K does.
    StreamK,
}

impl Split {
    /// The number of the mode, and of the parts where it is said.
    const fn numbers(self) -> (c_int, Option<c_int>) {
        match self {
            Self::OneKernel(parts) => (1, Some(parts.cast_signed())),
            Self::TwoKernels(parts) => (2, Some(parts.cast_signed())),
            Self::Not => (4, None),
            Self::Parts(parts) => (5, Some(parts.cast_signed())),
            Self::StreamK => (6, None),
        }
    }
}

impl Choice {
    /// What the library takes where nothing is said.
    pub const FIRST: Self = Self { id: None, split: None };

    /// Ways to divide K that are tried.
    pub(super) const SPLITS: [Split; 8] = [
        Split::Not,
        Split::StreamK,
        Split::Parts(2),
        Split::Parts(4),
        Split::OneKernel(2),
        Split::OneKernel(4),
        Split::TwoKernels(2),
        Split::TwoKernels(4),
    ];
}

/// One of the library's algorithms for a product.
pub struct Algorithm {
    of: Arc<Ready>,
}

/// What the library made of a choice.
struct Ready {
    descriptors: Arc<Descriptors>,
    choice: Choice,
    selection: Opaque,
    /// With its workspace, where it can run.
    plan: Option<(Opaque, DeviceMemory)>,
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Algorithm").field("choice", &self.of.choice).finish_non_exhaustive()
    }
}

impl Ready {
    /// Sets an attribute of the algorithm.
    fn set(&self, attribute: c_int, value: c_int) -> Result<(), EngineError> {
        self.descriptors.handle.call("cusparseLtMatmulAlgSetAttribute", |symbols, handle| {
            let (of, bytes) = ((&raw const value).cast(), size_of_val(&value));
            // SAFETY: handle and selection are alive; the attribute is such a number, and one is read before the call returns.
            unsafe { (symbols.functions.algorithm_set)(handle, self.selection.raw(), attribute, of, bytes) }
        })
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let handle = &self.descriptors.handle;
        if let Some((plan, _)) = &self.plan {
            // A product may be in flight.
            handle.context.wait();
            // SAFETY: the library made the plan, and it is not used after this.
            handle.destroy(|symbols| unsafe { (symbols.functions.plan_destroy)(plan.raw()) });
        }
        // SAFETY: the library made the selection, and it is not used after this.
        handle
            .destroy(|symbols| symbols.algorithm_destroy.map_or(0, |of| unsafe { of(self.selection.raw()) }));
    }
}

impl Algorithm {
    /// A choice for a product, with a plan where it is to run.
    pub(super) fn new(
        descriptors: &Arc<Descriptors>,
        choice: Choice,
        planned: bool,
    ) -> Result<Self, EngineError> {
        let (selection, handle) = (Opaque::new(), &descriptors.handle);
        handle.call("cusparseLtMatmulAlgSelectionInit", |symbols, raw| {
            // The only kind of algorithms is number 0.
            // SAFETY: handle and descriptor are alive, and there is room for the selection.
            unsafe { (symbols.functions.algorithm_init)(raw, selection.raw(), descriptors.matmul.raw(), 0) }
        })?;
        let mut ready = Ready { descriptors: Arc::clone(descriptors), choice, selection, plan: None };
        if let Some(id) = choice.id {
            ready.set(algorithm::ID, id.cast_signed())?;
        }
        if let Some((mode, parts)) = choice.split.map(Split::numbers) {
            ready.set(algorithm::SPLIT_K_MODE, mode)?;
            if let Some(parts) = parts {
                ready.set(algorithm::SPLIT_K, parts)?;
            }
        }
        if planned {
            let plan = Opaque::new();
            handle.call("cusparseLtMatmulPlanInit", |symbols, raw| {
                let (matmul, selection) = (descriptors.matmul.raw(), ready.selection.raw());
                // SAFETY: handle, descriptor and selection are alive, and there is room for the plan.
                unsafe { (symbols.functions.plan_init)(raw, plan.raw(), matmul, selection) }
            })?;
            // From here on the plan is destroyed with the rest.
            let nothing = DeviceMemory::new(&handle.context, 0)?;
            let plan = ready.plan.insert((plan, nothing));
            let mut bytes = 0_usize;
            handle.call("cusparseLtMatmulGetWorkspace", |symbols, raw| {
                // SAFETY: handle and plan are alive, and one number is written.
                unsafe { (symbols.functions.workspace)(raw, plan.0.raw(), &mut bytes) }
            })?;
            if bytes > WORKSPACE_BYTES {
                let needed = format!("a workspace of {bytes} B, at most {WORKSPACE_BYTES} are given");
                return Err(refused("cusparseLtMatmulGetWorkspace", needed));
            }
            plan.1 = DeviceMemory::new(&handle.context, bytes)?;
        }
        Ok(Self { of: Arc::new(ready) })
    }

    /// An attribute of the algorithm.
    pub(super) fn attribute(&self, attribute: c_int) -> Result<c_int, EngineError> {
        let mut value: c_int = 0;
        self.of.descriptors.handle.call("cusparseLtMatmulAlgGetAttribute", |symbols, handle| {
            let (to, bytes) = ((&raw mut value).cast(), size_of::<c_int>());
            // SAFETY: handle and selection are alive; the attribute is such a number, and one is written.
            unsafe {
                (symbols.functions.algorithm_get)(handle, self.of.selection.raw(), attribute, to, bytes)
            }
        })?;
        Ok(value)
    }

    /// The product of a compressed operand with the other one and into D, which lie at device addresses.
    ///
    /// # Errors
    /// A matrix is not part of a buffer of the GPU, or the operand was compressed for another plan.
    pub fn with(&self, sparse: &CompressedMatrix, dense: u64, d: u64) -> Result<Run, EngineError> {
        if !Arc::ptr_eq(&sparse.of, &self.of.descriptors) {
            let needed = "an operand of another plan, one that this plan compressed was needed".to_owned();
            return Err(refused("cusparseLtMatmul", needed));
        }
        let Descriptors { handle, product, .. } = &*self.of.descriptors;
        let (GemmProblem { m, n, .. }, types) = (product.size, product.types);
        let other = usize::from(!product.types.sparse[1]);
        let stored = product.row_major()[other];
        let bytes = types.bytes();
        let buffers = [
            sparse.values.clone(),
            buffer(&handle.memories, dense, [stored.rows, stored.columns], bytes[other])?,
            buffer(&handle.memories, d, [m, n], bytes[2])?,
        ];
        let values = sparse.values.address();
        let [a, b] = if product.types.sparse[1] { [dense, values] } else { [values, dense] };
        Ok(Run { ready: Arc::clone(&self.of), a, b, d, buffers })
    }
}

/// A product with everything chosen, ready for a stream and for [`Gpu::time_many`](kernel::driver::Gpu::time_many).
pub struct Run {
    ready: Arc<Ready>,
    a: u64,
    b: u64,
    d: u64,
    /// Where the operands and D lie.
    buffers: [DeviceMemory; 3],
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ready, a, b, d, .. } = self;
        let mut debug = f.debug_struct("Run");
        debug.field("choice", &ready.choice).field("a", a).field("b", b).field("d", d).finish_non_exhaustive()
    }
}

impl Enqueue for Run {
    fn name(&self) -> &str {
        "cusparseLtMatmul"
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        let Ready { descriptors, plan, .. } = &*self.ready;
        let Some((plan, workspace)) = plan else {
            return Err(refused("cusparseLtMatmul", "no plan".to_owned()));
        };
        let buffers = self.buffers.iter().map(|buffer| Arc::new(buffer.clone()) as Held);
        stream.hold(buffers.chain([Arc::clone(&self.ready) as Held]));
        let pointer = |address: u64| ptr::without_provenance_mut::<c_void>(address as usize);
        // Factors are `f32`, also of integers.
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let mut streams = [stream.raw()];
        descriptors.handle.call("cusparseLtMatmul", |symbols, handle| {
            // SAFETY: handle, plan and workspace belong together and are alive; the factors and the stream are read before the call
            // returns; the matrices are parts of buffers, which stay until work on them is over.
            unsafe {
                (symbols.functions.matmul)(
                    handle,
                    plan.raw(),
                    (&raw const alpha).cast(),
                    pointer(self.a),
                    pointer(self.b),
                    (&raw const beta).cast(),
                    pointer(self.d),
                    pointer(self.d),
                    pointer(workspace.address()),
                    streams.as_mut_ptr(),
                    1,
                )
            }
        })
    }
}
