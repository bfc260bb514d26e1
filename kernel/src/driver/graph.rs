//! Launches as a CUDA graph: captured once, replayed with one call.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;
use std::sync::Arc;

use super::context::Context;
use super::gpu::Gpu;
use super::stream::{Held, Stream};
use super::sys::{AUTO_FREE_ON_LAUNCH, RawGraph, RawGraphExec};
use super::timing::{Enqueue, names};
use crate::error::EngineError;

/// A CUDA graph of captured work, in order. [`Gpu::capture`] makes one of launches, [`Graph::of`] of anything.
///
/// The addresses at capture are part of the graph: every replay reads and writes the same matrices. The graph
/// keeps its kernels and buffers alive.
#[derive(Debug)]
pub struct Graph {
    exec: Arc<Exec>,
    name: Arc<str>,
    /// Two threads must not replay the graph at the same time.
    unshared: PhantomData<Cell<()>>,
}

/// What the driver replays.
#[derive(Debug)]
struct Exec {
    context: Arc<Context>,
    graph: RawGraph,
    exec: RawGraphExec,
    /// The launches' kernels and buffers.
    _held: Vec<Held>,
}

// SAFETY: graphs are handles that the driver accepts from any thread on which their context is current.
unsafe impl Send for Exec {}
// SAFETY: two threads must not launch it at the same time. It is launched only through the one `Graph` that
// has it, which is not `Sync`; a capture only keeps it alive.
unsafe impl Sync for Exec {}

impl Graph {
    /// Captures what `enqueue` puts on a stream. Nothing of it runs until the graph is enqueued. Who enqueues keeps the memory
    /// and the kernels that a [`Loaded`](super::Loaded) or a [`Gpu`] does not keep.
    ///
    /// # Errors
    /// `enqueue` fails, or the driver rejects the capture or the graph.
    pub fn of<E: From<EngineError>>(
        stream: &Stream,
        name: &str,
        enqueue: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<Self, E> {
        let context = Arc::clone(stream.context());
        context.alive()?;
        let (graph, held) = stream.capture(enqueue)?;
        if graph.is_null() {
            return Err(EngineError::EmptyGraph.into());
        }
        // From here on, `exec` owns the graph and destroys it, also if the next step fails.
        let mut exec = Exec { context, graph, exec: ptr::null_mut(), _held: held };
        let status = {
            let current = exec.context.bind()?;
            // SAFETY: the graph is alive; one handle is written.
            unsafe { (current.functions().graph_instantiate)(&mut exec.exec, graph, AUTO_FREE_ON_LAUNCH) }
        };
        exec.context.check_kernel(name, "cuGraphInstantiateWithFlags", status)?;
        Ok(Self { exec: Arc::new(exec), name: name.into(), unshared: PhantomData })
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // A replay may still be running.
        self.context.wait();
        if let Ok(current) = self.context.bind() {
            let functions = current.functions();
            // SAFETY: both handles belong to this value, or are null if they were not made, and are not used
            // after this.
            unsafe {
                if !self.exec.is_null() {
                    let _ = (functions.graph_exec_destroy)(self.exec);
                }
                let _ = (functions.graph_destroy)(self.graph);
            }
        }
    }
}

impl Enqueue for Graph {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_graph(&self) -> bool {
        true
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        let context = &self.exec.context;
        let current = context.bind()?;
        stream.hold([Arc::clone(&self.exec) as Held]);
        // SAFETY: the graph is alive with everything its launches need, and this type is not shared between
        // threads.
        let status = unsafe { (current.functions().graph_launch)(self.exec.exec, stream.raw()) };
        context.check_kernel(&self.name, "cuGraphLaunch", status)?;
        context.launched(&self.name);
        Ok(())
    }
}

impl Gpu {
    /// Captures launches into a graph. Nothing runs until the graph is enqueued.
    ///
    /// # Errors
    /// There are no launches, or the driver rejects one of them or the graph.
    pub fn capture(&mut self, launches: &[&dyn Enqueue]) -> Result<Graph, EngineError> {
        if launches.is_empty() {
            return Err(EngineError::EmptyGraph);
        }
        let all = |stream: &Stream| launches.iter().try_for_each(|launch| launch.enqueue(stream));
        Graph::of(self.stream(), &names(launches), all)
    }
}

#[cfg(test)]
mod tests {
    use crate::call::Call;
    use crate::driver::counting::card;
    use crate::engine::Engine;
    use crate::error::EngineError;
    use crate::problem::GemmProblem;

    /// With a GPU: replaying a launch gives the same result as the launch itself; capturing alone computes
    /// nothing.
    #[test]
    fn a_graph_replays_its_launches() {
        let Some(mut gpu) = card() else { return };
        assert!(matches!(gpu.capture(&[]), Err(EngineError::EmptyGraph)));
        let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
        let poison = vec![0x55; ones.len()];
        let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.upload(&poison).expect("memory"));
        let call = Call::of(GemmProblem { m: 64, n: 64, k: 64 });
        let call = call.a(operand.address, 64).b(operand.address, 64).d(d.address, 64);
        let gemm = crate::find("64x64-direct-bf16-kk").expect("a catalogue name");
        let program = gemm.program().expect("legal");
        let resident = gpu.resident_clusters(&program).expect("compiles");
        let launch = gemm.launch(&call, resident).expect("legal").expect("not empty");
        let prepared = gpu.prepare(&program, launch.grid, &launch.arguments).expect("legal");
        let graph = gpu.capture(&[&prepared, &prepared]).expect("captured");
        assert_eq!(gpu.read(d).expect("no fault"), poison, "nothing has run");
        gpu.time_many(&[&graph], 3).expect("replayed");
        assert_eq!(gpu.read(d).expect("no fault"), half::bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64));
    }
}
