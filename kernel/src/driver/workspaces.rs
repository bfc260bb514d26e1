//! Workspaces that a loaded kernel keeps, one per stream.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use super::context::lock;
use super::loaded_program::LoadedProgram;
use super::memory::DeviceMemory;
use super::stream::{Stream, StreamRef};
use crate::error::EngineError;

/// The stream handle that stands for another stream in each thread (`CU_STREAM_PER_THREAD`).
const PER_THREAD: usize = 2;

/// A stream's handle and, for the per-thread stream, the thread.
type Lane = (usize, Option<ThreadId>);

fn lane(stream: StreamRef<'_>) -> Lane {
    let handle = stream.raw().addr();
    (handle, (handle == PER_THREAD).then(|| thread::current().id()))
}

/// Memory by stream. Launches on one stream run one after the other, so they share it.
#[derive(Default)]
pub(super) struct Workspaces(Mutex<HashMap<Lane, DeviceMemory>>);

impl Workspaces {
    /// The workspace of a stream, of at least `bytes` bytes, for a kernel whose first program is `of`: zeroed when it is new.
    pub(super) fn of_stream(
        &self,
        stream: StreamRef<'_>,
        of: &LoadedProgram,
        bytes: u64,
    ) -> Result<DeviceMemory, EngineError> {
        let (known, lane) = (&mut *lock(&self.0), lane(stream));
        if let Some(found) = known.get(&lane).filter(|memory| memory.bytes() as u64 >= bytes) {
            return Ok(found.clone());
        }
        let context = of.context();
        // Memory cannot be allocated while a stream is captured.
        if stream.is_captured(&context.bind()?)? {
            let what = format!("the workspace of {bytes} B for kernel `{}`", of.name());
            return Err(EngineError::Captured { what });
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let made = DeviceMemory::new(context, bytes)?;
        Stream::new(context)?.copy_in(made.address(), &vec![0; bytes])?;
        // Freeing the old memory waits until launches that use it have ended. Graphs that captured them keep it.
        known.insert(lane, made.clone());
        Ok(made)
    }
}
