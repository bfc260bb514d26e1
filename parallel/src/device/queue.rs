//! Streams besides a device's own, and events in them.
#![allow(unsafe_code, reason = "calls the CUDA driver's functions for events")]

use core::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::result::{DriverError, event, stream};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUevent_wait_flags};
use falchion::kernel::driver::{Context, Stream};

use super::order::Clock;
use crate::error::Error;

/// A stream besides a device's own.
#[derive(Clone, Debug)]
pub(crate) enum Queue {
    /// Of the emulator: its number.
    Emulated(usize),
    Own(Arc<Stream>),
    /// A caller's.
    Lent(Arc<CudaStream>),
}

impl Queue {
    /// The stream as a `CUstream`; null in the emulator.
    pub(crate) fn raw(&self) -> *mut c_void {
        match self {
            Self::Emulated(_) => core::ptr::null_mut(),
            Self::Own(stream) => stream.raw(),
            Self::Lent(stream) => stream.cu_stream().cast(),
        }
    }

    /// The number of an emulated stream.
    pub(crate) fn number(&self) -> usize {
        if let Self::Emulated(number) = self { *number } else { 0 }
    }

    /// Waits for everything that was enqueued.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        match self {
            Self::Emulated(_) => Ok(()),
            Self::Own(stream) => Ok(stream.wait()?),
            Self::Lent(stream) => stream.synchronize().map_err(of_driver),
        }
    }
}

/// A point in a stream's order of work.
pub(crate) enum Mark {
    Emulated(Clock),
    Card(CardEvent),
}

/// A `CUevent`.
pub(crate) struct CardEvent {
    context: Arc<Context>,
    raw: CUevent,
}

impl fmt::Debug for CardEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardEvent").finish_non_exhaustive()
    }
}

// SAFETY: an event is a handle that the driver accepts from any thread on which its context is current.
unsafe impl Send for CardEvent {}
// SAFETY: as above.
unsafe impl Sync for CardEvent {}

fn of_driver(error: DriverError) -> Error {
    Error::Engine(error.to_string())
}

impl CardEvent {
    /// An event after what was enqueued on a stream of the context, which is alive.
    pub(crate) fn record(context: &Arc<Context>, on: *mut c_void) -> Result<Self, Error> {
        let _current = context.bind()?;
        let raw = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(of_driver)?;
        let made = Self { context: Arc::clone(context), raw };
        // SAFETY: event and stream are alive, and their context is current.
        unsafe { event::record(made.raw, on.cast()) }.map_err(of_driver)?;
        Ok(made)
    }

    /// What is enqueued next on a stream, which is alive, waits for the event.
    pub(crate) fn before(&self, on: *mut c_void) -> Result<(), Error> {
        let _current = self.context.bind()?;
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: as above.
        unsafe { stream::wait_event(on.cast(), self.raw, flags) }.map_err(of_driver)
    }
}

impl Drop for CardEvent {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.bind() {
            // SAFETY: the event is not used after this; what waits for it still does.
            let _ = unsafe { event::destroy(self.raw) };
        }
    }
}
