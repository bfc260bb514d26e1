//! A kernel on the GPU, together with the workspaces that its launches need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use cute_rs::atom::Major;

use super::context::{Context, lock};
use super::gpu::Gpu;
use super::loaded::Loaded;
use super::loaded_program::LoadedProgram;
use super::memory::DeviceMemory;
use super::slice::DeviceSlice;
use super::stream::StreamRef;
use crate::arguments::Arguments;
use crate::buffer::Buffer;
use crate::call::Call;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::kernel::written;
use crate::problem::GemmProblem;

/// A workspace and its memory.
type Workspace = (Buffer, DeviceMemory);

/// The stream handle that stands for another stream in each thread (`CU_STREAM_PER_THREAD`).
const PER_THREAD: usize = 2;

/// A stream's handle and, for the per-thread stream, the thread.
type Lane = (usize, Option<ThreadId>);

fn lane(stream: StreamRef<'_>) -> Lane {
    let handle = stream.raw().addr();
    (handle, (handle == PER_THREAD).then(|| thread::current().id()))
}

/// How far a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Everything that cannot be done while a stream is captured: memory is allocated, nothing is enqueued.
    Prepare,
    /// It is enqueued.
    Launch,
}

/// A kernel on the GPU, with one workspace per stream that it was launched on.
pub(super) struct Ready {
    loaded: Mutex<Loaded>,
    majors: [Major; 2],
    /// Workspaces by stream, and the GPU that allocates them.
    workspaces: Mutex<(Gpu, HashMap<Lane, Workspace>)>,
}

impl Ready {
    pub(super) fn new(context: &Arc<Context>, gemm: AnyGemm) -> Result<Self, EngineError> {
        let program = written::<Call>(&gemm)?;
        let majors = gemm.plan().majors();
        let loaded = Mutex::new(Loaded::load_in(context, gemm, program)?);
        let workspaces = Mutex::new((Gpu::from_context(Arc::clone(context))?, HashMap::new()));
        Ok(Self { loaded, majors, workspaces })
    }

    /// The call of a GEMM of packed matrices.
    pub(super) fn call(&self, problem: GemmProblem, [a, b, d]: [u64; 3]) -> Call {
        let GemmProblem { m, n, k } = problem;
        let ld = |major, mn: u32| u64::from(if major == Major::K { k } else { mn });
        let [of_a, of_b] = [ld(self.majors[0], m), ld(self.majors[1], n)];
        Call::of(problem).a(a, of_a).b(b, of_b).d(d, n.into())
    }

    /// A zeroed workspace for a call on a stream. Launches on one stream run one after the other, so they
    /// share it.
    fn workspace(
        &self,
        stream: StreamRef<'_>,
        kernel: &LoadedProgram,
        bytes: u64,
    ) -> Result<Option<Workspace>, EngineError> {
        if bytes == 0 {
            return Ok(None);
        }
        let (gpu, known) = &mut *lock(&self.workspaces);
        let lane = lane(stream);
        if let Some(found) = known.get(&lane).filter(|(of, _)| of.bytes as u64 >= bytes) {
            return Ok(Some(found.clone()));
        }
        // Memory cannot be allocated while a stream is captured.
        let current = kernel.context().bind()?;
        if stream.is_captured(&current)? {
            let what = format!("the workspace of {bytes} B for kernel `{}`", kernel.name());
            return Err(EngineError::Captured { what });
        }
        let Some(made) = gpu.workspace(bytes)? else { return Ok(None) };
        let memory = gpu.memory(made)?;
        // Freeing waits until launches that use the old memory have ended. Graphs that captured them keep it.
        if let Some((old, _)) = known.insert(lane, (made, memory.clone())) {
            gpu.free(old)?;
        }
        Ok(Some((made, memory)))
    }

    /// Enqueues a call on lent memory, or only prepares it.
    pub(super) fn launch<E: Arguments + Clone>(
        &self,
        (step, stream): (Step, StreamRef<'_>),
        call: Call<E>,
        lent: &[DeviceSlice<'_>],
    ) -> Result<(), EngineError> {
        let mut loaded = lock(&self.loaded);
        let bytes = loaded.kernel().workspace(&call, loaded.resident_clusters());
        let workspace = self.workspace(stream, loaded.program(), bytes)?;
        let mut lent = lent.to_vec();
        lent.extend(workspace.as_ref().map(|(_, memory)| DeviceSlice::from(memory)));
        let call = Call { workspace: workspace.as_ref().map(|(workspace, _)| *workspace), ..call };
        match step {
            Step::Prepare => loaded.prepare(&call),
            Step::Launch => loaded.launch(stream, &call, &lent),
        }
    }
}
