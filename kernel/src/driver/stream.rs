//! Streams, and events in them.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::any::Any;
use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::{fmt, ptr};
use std::sync::{Arc, Mutex};

use super::context::{Context, lock};
use super::sys::{CAPTURE_THREAD_LOCAL, NON_BLOCKING, RawEvent, RawGraph, RawStream};
use crate::error::EngineError;

/// What a graph needs as long as it may be replayed.
pub(super) type Held = Arc<dyn Any + Send + Sync>;

/// A stream of a context: what is enqueued on it runs in order.
pub struct Stream {
    context: Arc<Context>,
    raw: RawStream,
    /// While launches are captured: what they need.
    captured: Mutex<Option<Vec<Held>>>,
}

// SAFETY: a stream is a handle that the driver accepts from any thread on which its context is current.
unsafe impl Send for Stream {}
// SAFETY: as above; what changes is in a mutex.
unsafe impl Sync for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Stream {
    /// A new stream, which does not wait for the default stream.
    ///
    /// # Errors
    /// A driver error.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, EngineError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current, and one handle is written.
        let status = unsafe { (context.functions().stream_create)(&mut raw, NON_BLOCKING) };
        context.check("cuStreamCreate", status)?;
        Ok(Arc::new(Self { context: Arc::clone(context), raw, captured: Mutex::new(None) }))
    }

    /// The stream's context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn raw(&self) -> RawStream {
        self.raw
    }

    /// Waits for everything that was enqueued.
    ///
    /// # Errors
    /// A fault of a kernel that was launched before, or a driver error.
    pub fn wait(&self) -> Result<(), EngineError> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        let status = unsafe { (self.context.functions().stream_synchronize)(self.raw) };
        self.context.check("cuStreamSynchronize", status)
    }

    /// Tells a capture that is under way what the launch that comes next needs.
    pub(super) fn hold(&self, needed: impl IntoIterator<Item = Held>) {
        if let Some(held) = &mut *lock(&self.captured) {
            held.extend(needed);
        }
    }

    /// Captures what `enqueue` puts on the stream in place of running it, and says what the launches need.
    ///
    /// # Errors
    /// The driver refuses the capture, or what `enqueue` says.
    pub(super) fn capture(
        &self,
        enqueue: impl FnOnce(&Self) -> Result<(), EngineError>,
    ) -> Result<(RawGraph, Vec<Held>), EngineError> {
        self.context.bind()?;
        let functions = self.context.functions();
        // SAFETY: the stream is alive, and is not captured yet, or the driver refuses.
        let status = unsafe { (functions.capture_begin)(self.raw, CAPTURE_THREAD_LOCAL) };
        self.context.check("cuStreamBeginCapture", status)?;
        *lock(&self.captured) = Some(Vec::new());
        let enqueued = enqueue(self);
        let held = lock(&self.captured).take().unwrap_or_default();
        let mut graph = ptr::null_mut();
        // A capture ends whether or not every launch went in, so that the stream can be used again.
        // SAFETY: the capture was begun by this thread; one handle is written.
        let status = unsafe { (functions.capture_end)(self.raw, &mut graph) };
        let ended = self.context.check("cuStreamEndCapture", status);
        if let Err(error) = enqueued.and(ended) {
            if !graph.is_null() {
                // SAFETY: nobody else knows the graph.
                let _ = unsafe { (functions.graph_destroy)(graph) };
            }
            return Err(error);
        }
        Ok((graph, held))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: it was created by this value and is not used after this; what is enqueued runs to its end.
            let _ = unsafe { (self.context.functions().stream_destroy)(self.raw) };
        }
    }
}

/// A stream that somebody keeps alive.
#[derive(Clone, Copy, Debug)]
pub struct StreamRef<'a> {
    raw: RawStream,
    owner: PhantomData<&'a ()>,
}

impl StreamRef<'_> {
    /// Any stream, as a `CUstream`; null is the default one.
    ///
    /// # Safety
    /// The stream stays alive as long as the value is used.
    pub unsafe fn from_raw(stream: *mut c_void) -> Self {
        Self { raw: stream, owner: PhantomData }
    }

    pub(super) fn raw(self) -> RawStream {
        self.raw
    }

    /// Whether launches are captured into a graph.
    pub(super) fn is_captured(self, context: &Context) -> Result<bool, EngineError> {
        let mut status: c_int = 0;
        // SAFETY: the stream is alive, and one number is written.
        let result = unsafe { (context.functions().stream_capturing)(self.raw, &mut status) };
        context.check("cuStreamIsCapturing", result)?;
        Ok(status != 0)
    }
}

impl<'a> From<&'a Stream> for StreamRef<'a> {
    fn from(stream: &'a Stream) -> Self {
        Self { raw: stream.raw, owner: PhantomData }
    }
}

impl<'a> From<&'a Arc<Stream>> for StreamRef<'a> {
    fn from(stream: &'a Arc<Stream>) -> Self {
        Self::from(stream.as_ref())
    }
}

/// A moment in a stream.
pub(super) struct Event {
    context: Arc<Context>,
    raw: RawEvent,
}

// SAFETY: an event is a handle that the driver accepts from any thread on which its context is current.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, EngineError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current, and one handle is written.
        let status = unsafe { (context.functions().event_create)(&mut raw, 0) };
        context.check("cuEventCreate", status)?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    pub(super) fn record(&self, stream: &Stream) -> Result<(), EngineError> {
        // SAFETY: both are alive; of two contexts the driver refuses them.
        let status = unsafe { (self.context.functions().event_record)(self.raw, stream.raw) };
        self.context.check("cuEventRecord", status)
    }

    /// Milliseconds from another event to this one, where both have happened.
    pub(super) fn since(&self, start: &Self) -> Result<f32, EngineError> {
        let mut milliseconds = 0.0;
        // SAFETY: both are alive, and one number is written.
        let status =
            unsafe { (self.context.functions().event_elapsed)(&mut milliseconds, start.raw, self.raw) };
        self.context.check("cuEventElapsedTime", status)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: it was created by this value and is not used after this.
            let _ = unsafe { (self.context.functions().event_destroy)(self.raw) };
        }
    }
}
