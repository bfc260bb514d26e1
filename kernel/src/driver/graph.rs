//! Launches as a CUDA graph: recorded once, replayed with one call.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::fmt;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, result};

use super::call;
use super::gpu::Gpu;
use super::timing::{Enqueue, names};
use crate::error::EngineError;

/// Launches that were captured, in order.
///
/// The addresses they were captured with are part of the graph: replays read and write the same matrices.
pub struct Graph {
    graph: CudaGraph,
    name: String,
    launches: usize,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, launches, .. } = self;
        f.debug_struct("Graph").field("name", name).field("launches", launches).finish_non_exhaustive()
    }
}

impl Graph {
    /// How many launches it replays.
    pub fn launches(&self) -> usize {
        self.launches
    }
}

impl Enqueue for Graph {
    fn name(&self) -> &str {
        &self.name
    }

    fn enqueue(&self, stream: &CudaStream) -> Result<(), EngineError> {
        // SAFETY: the graph is alive, and this type is not shared between threads, as cudarc's is not.
        let replay = unsafe { result::graph::launch(self.graph.cu_graph_exec(), stream.cu_stream()) };
        call::kernel(&self.name, "cuGraphLaunch", replay)
    }
}

impl Gpu {
    /// Captures launches into a graph; nothing runs until it is enqueued.
    ///
    /// # Errors
    /// There are no launches, or the driver refuses one of them or the graph.
    pub fn capture(&mut self, launches: &[&dyn Enqueue]) -> Result<Graph, EngineError> {
        if launches.is_empty() {
            return Err(EngineError::EmptyGraph);
        }
        self.alive()?;
        call::bind(self.context())?;
        let (stream, name) = (self.stream(), names(launches));
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        call::driver("cuStreamBeginCapture", stream.begin_capture(mode))?;
        let enqueued = launches.iter().try_for_each(|launch| launch.enqueue(stream));
        // A capture ends whether or not every launch went in, so that the stream can be used again.
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let ended = stream.end_capture(flags);
        enqueued?;
        match call::kernel(&name, "cuStreamEndCapture", ended)? {
            Some(graph) => Ok(Graph { graph, name, launches: launches.len() }),
            None => Err(EngineError::EmptyGraph),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::Gpu;
    use crate::engine::Engine;
    use crate::error::EngineError;
    use crate::problem::{Call, GemmProblem, MatrixRef};

    /// With a GPU: a replayed launch gives what the launch itself gives, and capturing alone gives nothing.
    #[test]
    fn a_graph_replays_its_launches() {
        let Ok(mut gpu) = Gpu::new(0) else { return crate::skipped::skipped("GPU") };
        assert!(matches!(gpu.capture(&[]), Err(EngineError::EmptyGraph)));
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let poison = vec![0x55; ones.len()];
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.upload(&poison).expect("memory"));
        let matrix = |address| MatrixRef { address, pitch: 64 };
        let call = Call {
            problem: GemmProblem { m: 64, n: 64, k: 64 },
            a: matrix(operand.address),
            b: matrix(operand.address),
            c: None,
            d: matrix(d.address),
            alpha: 1.0,
            beta: 0.0,
            workspace: None,
        };
        let gemm = crate::find("small-bf16-kk").expect("a catalogue name");
        let program = gemm.program().expect("legal");
        let slots = gpu.slots(&program).expect("compiles");
        let launch = gemm.launch(&call, slots).expect("legal").expect("not empty");
        let prepared = gpu.prepare(&program, launch.grid, &launch.arguments).expect("legal");
        let graph = gpu.capture(&[&prepared, &prepared]).expect("captured");
        assert_eq!(graph.launches(), 2);
        assert_eq!(gpu.read(d).expect("no fault"), poison, "nothing has run");
        gpu.time_many(&[&graph], 3).expect("replayed");
        assert_eq!(gpu.read(d).expect("no fault"), half::bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64));
    }
}
