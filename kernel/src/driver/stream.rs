//! Streams, and events in them.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::any::Any;
use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::captured::Capture;
use super::context::{Context, Current, lock};
use super::sys::{CAPTURE_THREAD_LOCAL, NON_BLOCKING, RawEvent, RawGraph, RawStream};
use crate::error::EngineError;

/// What a graph keeps alive as long as it may be replayed.
pub type Held = Arc<dyn Any + Send + Sync>;

/// What launches need that are captured on streams of other libraries, by address. Nobody says when such a
/// graph is replayed for the last time, so it is kept as long as the process runs.
static CAPTURED: Mutex<BTreeMap<usize, Held>> = Mutex::new(BTreeMap::new());

/// A stream of a context. Work on a stream runs in the order in which it was enqueued.
#[derive(Debug)]
pub struct Stream {
    context: Arc<Context>,
    raw: RawStream,
    /// During a capture: what the captured launches need.
    captured: Mutex<Option<Vec<Held>>>,
}

// SAFETY: a stream is a handle that the driver accepts from any thread on which its context is current.
unsafe impl Send for Stream {}
// SAFETY: as above; what changes is behind a mutex.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream that does not wait for the default stream.
    ///
    /// # Errors
    /// A driver error.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, EngineError> {
        let current = context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current, and one handle is written.
        let status = unsafe { (current.functions().stream_create)(&mut raw, NON_BLOCKING) };
        context.check("cuStreamCreate", status)?;
        Ok(Arc::new(Self { context: Arc::clone(context), raw, captured: Mutex::new(None) }))
    }

    /// The stream's context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The stream as a `CUstream`. It is alive as long as this value.
    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Waits for everything that was enqueued.
    ///
    /// # Errors
    /// An earlier kernel faulted, or a driver error.
    pub fn wait(&self) -> Result<(), EngineError> {
        let current = self.context.bind()?;
        // SAFETY: the stream is alive.
        let status = unsafe { (current.functions().stream_synchronize)(self.raw) };
        self.context.check("cuStreamSynchronize", status)
    }

    /// Copies from device memory that is allocated and large enough, and waits for the copy.
    pub(super) fn copy_out(&self, bytes: &mut [u8], address: u64) -> Result<(), EngineError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let current = self.context.bind()?;
        let copy = current.functions().copy_to_host;
        // SAFETY: that number of bytes is allocated there; `bytes` is borrowed until the copy has ended.
        let status = unsafe { copy(bytes.as_mut_ptr().cast(), address, bytes.len(), self.raw) };
        let copied = self.context.check("cuMemcpyDtoHAsync", status);
        self.wait().and(copied)
    }

    /// Copies to device memory that is allocated and large enough, and waits for the copy.
    pub(super) fn copy_in(&self, address: u64, bytes: &[u8]) -> Result<(), EngineError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let current = self.context.bind()?;
        let copy = current.functions().copy_to_device;
        // SAFETY: that number of bytes is allocated there; `bytes` is borrowed until the copy has ended.
        let status = unsafe { copy(address, bytes.as_ptr().cast(), bytes.len(), self.raw) };
        let copied = self.context.check("cuMemcpyHtoDAsync", status);
        self.wait().and(copied)
    }

    /// During a capture, records what the next launch needs.
    pub fn hold(&self, needed: impl IntoIterator<Item = Held>) {
        if let Some(held) = &mut *lock(&self.captured) {
            held.extend(needed);
        }
    }

    /// Captures what `enqueue` puts on the stream, without running it. Returns the graph, and what its
    /// launches need.
    ///
    /// # Errors
    /// The driver rejects the capture, or `enqueue` fails.
    pub(super) fn capture<E: From<EngineError>>(
        &self,
        enqueue: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(RawGraph, Vec<Held>), E> {
        let current = self.context.bind()?;
        let functions = current.functions();
        // SAFETY: the stream is alive. If it is being captured already, the driver returns an error.
        let status = unsafe { (functions.capture_begin)(self.raw, CAPTURE_THREAD_LOCAL) };
        self.context.check("cuStreamBeginCapture", status)?;
        *lock(&self.captured) = Some(Vec::new());
        let enqueued = enqueue(self);
        let held = lock(&self.captured).take().unwrap_or_default();
        let mut graph = ptr::null_mut();
        // End the capture even if a launch failed, so that the stream can be used again.
        // SAFETY: the capture was begun by this thread; one handle is written.
        let status = unsafe { (functions.capture_end)(self.raw, &mut graph) };
        let ended = self.context.check("cuStreamEndCapture", status);
        if let Err(error) = enqueued.and(ended.map_err(E::from)) {
            if !graph.is_null() {
                // SAFETY: nothing else uses the graph.
                let _ = unsafe { (functions.graph_destroy)(graph) };
            }
            return Err(error);
        }
        Ok((graph, held))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(current) = self.context.bind() {
            // SAFETY: it was created by this value and is not used after this; enqueued work still runs to
            // its end.
            let _ = unsafe { (current.functions().stream_destroy)(self.raw) };
        }
    }
}

/// A borrowed stream, which its owner keeps alive.
#[derive(Clone, Copy, Debug)]
pub struct StreamRef<'a> {
    raw: RawStream,
    /// The stream, if it is one of this library.
    own: Option<&'a Stream>,
}

impl StreamRef<'_> {
    /// Any stream, as a `CUstream`; null is the default stream.
    ///
    /// # Safety
    /// The stream must stay alive as long as the value is used. If it is being captured into a graph, the
    /// memory that launches on it access must stay allocated as long as the graph may be replayed.
    pub unsafe fn from_raw(stream: *mut c_void) -> Self {
        Self { raw: stream, own: None }
    }

    pub(super) fn raw(self) -> RawStream {
        self.raw
    }

    /// Whether the stream, which is one of a context, is being captured into a graph: nothing can be loaded or allocated then.
    ///
    /// # Errors
    /// A driver error.
    pub fn captured(self, context: &Context) -> Result<bool, EngineError> {
        self.is_captured(&context.bind()?)
    }

    /// Whether the stream is being captured into a graph.
    pub(super) fn is_captured(self, current: &Current<'_>) -> Result<bool, EngineError> {
        Ok(Capture::of(self, current)?.is_some())
    }

    /// The capture of the stream, which is one of a context; `None` if it is not being captured.
    ///
    /// # Errors
    /// A driver error.
    pub fn capture(self, context: &Context) -> Result<Option<Capture>, EngineError> {
        Capture::of(self, &context.bind()?)
    }

    /// While the stream is being captured, keeps what a launch needs as long as the graph may be replayed.
    pub(super) fn keep(self, needed: impl IntoIterator<Item = Held>) {
        match self.own {
            Some(stream) => stream.hold(needed),
            None => lock(&CAPTURED).extend(needed.into_iter().map(|held| (Arc::as_ptr(&held).addr(), held))),
        }
    }
}

impl<'a> From<&'a Stream> for StreamRef<'a> {
    fn from(stream: &'a Stream) -> Self {
        Self { raw: stream.raw, own: Some(stream) }
    }
}

impl<'a> From<&'a Arc<Stream>> for StreamRef<'a> {
    fn from(stream: &'a Arc<Stream>) -> Self {
        Self::from(stream.as_ref())
    }
}

/// An event: a point in a stream's order of work.
#[derive(Debug)]
pub(super) struct Event {
    context: Arc<Context>,
    raw: RawEvent,
}

// SAFETY: an event is a handle that the driver accepts from any thread on which its context is current.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, EngineError> {
        let current = context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current, and one handle is written.
        let status = unsafe { (current.functions().event_create)(&mut raw, 0) };
        context.check("cuEventCreate", status)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    pub(super) fn record(&self, stream: &Stream) -> Result<(), EngineError> {
        let current = self.context.bind()?;
        // SAFETY: both are alive; if their contexts differ, the driver returns an error.
        let status = unsafe { (current.functions().event_record)(self.raw, stream.raw) };
        self.context.check("cuEventRecord", status)
    }

    /// Milliseconds from another event to this one, after both have happened.
    pub(super) fn since(&self, start: &Self) -> Result<f32, EngineError> {
        let mut milliseconds = 0.0;
        let current = self.context.bind()?;
        // SAFETY: both are alive, and one number is written.
        let status = unsafe { (current.functions().event_elapsed)(&mut milliseconds, start.raw, self.raw) };
        self.context.check("cuEventElapsedTime", status)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(current) = self.context.bind() {
            // SAFETY: it was created by this value and is not used after this.
            let _ = unsafe { (current.functions().event_destroy)(self.raw) };
        }
    }
}
