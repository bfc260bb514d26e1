//! Where a call runs: on the host's memory in the emulator, or on a card's current stream with a workspace of that stream.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use falchion::collective::Format;
use falchion::kernel::driver::{Capture, Context, StreamRef};
use falchion::kernel::{Buffer, EngineError};
use falchion_core::{Offered, Picked, Run};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::array::{Array, Fill, Place, Torch};
use crate::error::of_engine;
use crate::watch::watched;

/// Number of choices that are kept of a kind.
pub(crate) const KEPT: usize = 4096;

/// A kernel that was chosen, with the workspaces of its launches.
pub(crate) struct Chosen<K: Offered> {
    pub(crate) kernel: Picked<K>,
    /// Those that are kept, if a launch does not make one for itself.
    workspaces: Option<Workspaces>,
}

impl<K: Offered<Runs: Sync, Arguments: Sync>> Chosen<K> {
    /// A kernel whose workspaces are kept by stream, or made for each launch.
    pub(crate) fn new(kernel: Picked<K>, kept: bool) -> Self {
        Self { kernel, workspaces: kept.then(Workspaces::default) }
    }

    /// Runs a call in the place of an array: enqueues it on the card's current stream, or emulates it.
    ///
    /// # Safety
    /// The call's addresses are those of arrays that are alive, with their extents and distances.
    pub(crate) unsafe fn run(&self, like: &Array<'_>, call: &mut K::Arguments) -> PyResult<()> {
        let py = like.object().py();
        let Place::Cuda(ordinal) = like.place() else {
            // SAFETY: the caller guarantees it.
            return unsafe { self.emulate(py, call, [Run::default()]) };
        };
        let torch = torch(py)?;
        let stream = torch.stream(py, ordinal)?;
        if self.kernel.card() != Some(ordinal) {
            // SAFETY: torch's stream is alive, and belongs to the card's primary context.
            let loaded = py.detach(|| unsafe { self.kernel.ready(ordinal, handle(stream)) });
            loaded.map_err(|error| of_engine(&error))?;
        }
        let layout = self.kernel.layout(call);
        let own;
        let workspace = match &self.workspaces {
            Some(kept) => kept.lend(like, (ordinal, stream), layout)?,
            None => {
                own = made(like, layout[0], false)?;
                Some(own.1)
            }
        };
        self.kernel.lend(call, workspace);
        // SAFETY: the caller guarantees it. torch's stream is alive, and belongs to the card's primary context; the tensors' memory is
        // freed in the order of that stream.
        unsafe { self.kernel.launch(ordinal, handle(stream), call) }.map_err(|error| of_engine(&error))
    }

    /// Runs a call on the host's memory, once per way.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub(crate) unsafe fn emulate(
        &self,
        py: Python<'_>,
        call: &K::Arguments,
        ways: impl IntoIterator<Item = Run<'static>, IntoIter: Send>,
    ) -> PyResult<()> {
        let mut ways = ways.into_iter();
        let emulated = watched(
            py,
            "falchion: emulating",
            |watch| {
                ways.try_for_each(|way| {
                    // SAFETY: the caller guarantees it.
                    unsafe { self.kernel.emulate(call, Run { watch: Some(watch), ..way }) }
                })
            },
            || (),
        )?;
        emulated.map_err(|error| of_engine(&error))
    }
}

/// torch, which names a card's current stream.
fn torch(py: Python<'_>) -> PyResult<&Torch> {
    let missing = || PyRuntimeError::new_err("torch is not imported, and it names the current stream");
    Torch::imported(py).ok_or_else(missing)
}

/// The handle of a stream, for a launch.
fn handle(stream: usize) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(stream)
}

/// A workspace, and the layout for which it was zeroed.
struct Lent {
    room: Py<PyAny>,
    workspace: Buffer,
    layout: [u64; 4],
}

/// The number of a capture, and its workspaces by their layouts.
type OfCapture = (u64, Vec<([u64; 4], Buffer)>);

/// The workspaces of a kernel's launches, by stream. Those of a stream, or of a capture of it, run one after the other.
#[derive(Default)]
struct Workspaces {
    kept: Mutex<HashMap<usize, Lent>>,
    captured: Mutex<HashMap<usize, OfCapture>>,
}

impl Workspaces {
    /// Zeroed memory of that many bytes, the layout's first number, for launches on a card's stream, in the place of an array; `None` for
    /// no bytes. It is zeroed again where the layout changes. During a capture it belongs to the graph.
    fn lend(
        &self,
        like: &Array<'_>,
        (ordinal, stream): (usize, usize),
        layout: [u64; 4],
    ) -> PyResult<Option<Buffer>> {
        let bytes = layout[0];
        if bytes == 0 {
            return Ok(None);
        }
        let py = like.object().py();
        let own = self.of_capture((ordinal, stream), layout).map_err(|error| of_engine(&error))?;
        if own.is_some() {
            return Ok(own);
        }
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(&stream).filter(|known| known.workspace.bytes as u64 >= bytes) {
            if known.layout != layout {
                known.room.bind(py).call_method0("zero_")?;
                known.layout = layout;
            }
            return Ok(Some(known.workspace));
        }
        let (room, workspace) = made(like, bytes, true)?;
        all.insert(stream, Lent { room: room.unbind(), workspace, layout });
        Ok(Some(workspace))
    }

    /// The workspace of a stream that is being captured; `None` if it is not. A launch that zeroes it in each replay would take longer than
    /// a short kernel waits for anything else.
    fn of_capture(
        &self,
        (ordinal, stream): (usize, usize),
        layout: [u64; 4],
    ) -> Result<Option<Buffer>, EngineError> {
        let context = Context::primary(ordinal)?;
        // SAFETY: torch's stream is alive, and belongs to the card's primary context.
        let capture = unsafe { StreamRef::from_raw(handle(stream)) }.capture(&context)?;
        let bytes = usize::try_from(layout[0]).unwrap_or(usize::MAX);
        let Some(capture) = capture else {
            // A call before a capture is the place to wait for what the capture will take.
            Capture::spare(&context, bytes)?;
            return Ok(None);
        };
        let mut all = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, known) = all.entry(stream).or_default();
        if *number != capture.number() {
            (*number, *known) = (capture.number(), Vec::new());
        }
        if let Some((_, found)) = known.iter().find(|(of, _)| *of == layout) {
            return Ok(Some(*found));
        }
        let made = Buffer::new(capture.zeroed(&context, bytes)?, layout[0]);
        known.push((layout, made));
        Ok(Some(made))
    }
}

/// New memory of that many bytes, in whole lines of 256 bytes, in the place of an array.
fn made<'py>(like: &Array<'py>, bytes: u64, zeros: bool) -> PyResult<(Bound<'py, PyAny>, Buffer)> {
    let fill = if zeros { Fill::Zeros } else { Fill::Nothing };
    let room = like.alike("workspace", &[bytes.next_multiple_of(256) as i64 + 256], Format::U8, fill)?;
    let address = room.address().next_multiple_of(256);
    Ok((room.object().clone(), Buffer::new(address, bytes)))
}
