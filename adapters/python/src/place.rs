//! Where a call runs: on the host's memory in the emulator, or on a card's current stream with a workspace of that stream.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use falchion::collective::Format;
use falchion::kernel::Buffer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::array::{Array, Torch};

/// torch, which names a card's current stream.
pub(crate) fn torch(py: Python<'_>) -> PyResult<&Torch> {
    let missing = || PyRuntimeError::new_err("torch is not imported, and it names the current stream");
    Torch::imported(py).ok_or_else(missing)
}

/// The handle of a stream, for a launch.
pub(crate) fn handle(stream: usize) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(stream)
}

/// A workspace, and the layout for which it was zeroed.
struct Lent {
    room: Py<PyAny>,
    workspace: Buffer,
    layout: [u64; 4],
}

/// The workspaces of a kernel's launches, by stream.
#[derive(Default)]
pub(crate) struct Workspaces(Mutex<HashMap<usize, Lent>>);

impl Workspaces {
    /// Zeroed memory of that many bytes, the layout's first number, for launches on a stream, in the place of an array; `None` for no
    /// bytes. It is zeroed again where the layout changes. During a capture it belongs to the graph.
    pub(crate) fn lend(
        &self,
        torch: &Torch,
        like: &Array<'_>,
        (stream, layout): (usize, [u64; 4]),
    ) -> PyResult<Option<Buffer>> {
        let bytes = layout[0];
        if bytes == 0 {
            return Ok(None);
        }
        let py = like.object.py();
        let captured = torch.module.bind(py).getattr("cuda")?.call_method0("is_current_stream_capturing")?;
        if captured.is_truthy()? {
            return Ok(Some(made(like, bytes, true)?.1));
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
}

/// New memory of that many bytes, in whole lines of 256 bytes, in the place of an array.
pub(crate) fn made<'py>(like: &Array<'py>, bytes: u64, zeros: bool) -> PyResult<(Bound<'py, PyAny>, Buffer)> {
    let room = like.empty(&[bytes.next_multiple_of(256) as i64 + 256], Format::U8, zeros)?;
    let address = Array::of("workspace", &room)?.address.next_multiple_of(256);
    Ok((room, Buffer::new(address, bytes)))
}
