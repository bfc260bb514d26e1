//! Memory that belongs to a graph while it is captured, whoever captures it.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::{Arc, Mutex};

use super::context::{Context, Current, lock};
use super::memory::DeviceMemory;
use super::stream::{Stream, StreamRef};
use super::sys::{CAPTURE_RELAXED, NO_DESTRUCTOR_SYNC, RawGraph, USER_OBJECT_MOVE};
use crate::error::EngineError;

/// Memory of graphs that are gone. When the driver says that one is, memory cannot be freed, so the next graph gets it, or the next call outside
/// of a capture frees it.
static FREE: Mutex<Vec<DeviceMemory>> = Mutex::new(Vec::new());

/// Memory that is zero, for graphs to come.
static SPARE: Mutex<Vec<DeviceMemory>> = Mutex::new(Vec::new());

/// Most bytes that are spared.
const MOST: usize = 64 << 20;

/// A capture of a stream that is not over.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    number: u64,
    graph: RawGraph,
}

impl Capture {
    /// The capture of a stream; `None` if it is not being captured.
    pub(super) fn of(stream: StreamRef<'_>, current: &Current<'_>) -> Result<Option<Self>, EngineError> {
        let (mut status, mut number, mut graph): (c_int, u64, RawGraph) = (0, 0, ptr::null_mut());
        let info = current.functions().capture_info;
        // SAFETY: the stream is alive, two numbers and a handle are written, and nothing else is asked for.
        let result = unsafe {
            info(stream.raw(), &mut status, &mut number, &mut graph, ptr::null_mut(), ptr::null_mut())
        };
        current.context().check("cuStreamGetCaptureInfo", result)?;
        if status == 0 {
            let gone = core::mem::take(&mut *lock(&FREE));
            if !gone.is_empty() {
                // Another stream may be captured.
                let _relaxed = Relaxed::new(current)?;
                drop(gone);
            }
        }
        Ok((status != 0).then_some(Self { number, graph }))
    }

    /// Its number: no other capture of the process has the same.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Sees to it that a later capture gets that many bytes without waiting for the driver: called where no stream is captured, it makes them
    /// now, unless there are such. More than 64 MiB are not kept for it.
    ///
    /// # Errors
    /// A driver error, for example that the memory is full.
    pub fn spare(context: &Arc<Context>, bytes: usize) -> Result<(), EngineError> {
        let mut spare = lock(&SPARE);
        if bytes > MOST || fitting(&spare, context, bytes).is_some() {
            return Ok(());
        }
        // Another stream may be captured.
        let current = context.bind()?;
        let _relaxed = Relaxed::new(&current)?;
        let all = |spare: &[DeviceMemory]| spare.iter().map(DeviceMemory::bytes).sum::<usize>();
        while all(&spare) + bytes > MOST {
            spare.remove(0);
        }
        spare.push(zeros(DeviceMemory::new(context, bytes)?, context)?);
        Ok(())
    }

    /// The address of that many bytes, which are zero now. Nobody else gets them as long as the graph may be replayed. No launch zeroes
    /// them: those of the graph find what its last replay left. The driver allocates and waits for them where there are no
    /// [spare](Self::spare) ones.
    ///
    /// # Errors
    /// A driver error, for example that the memory is full.
    pub fn zeroed(&self, context: &Arc<Context>, bytes: usize) -> Result<u64, EngineError> {
        let current = context.bind()?;
        let _relaxed = Relaxed::new(&current)?;
        let take = |of: &Mutex<Vec<DeviceMemory>>| {
            let mut all = lock(of);
            fitting(&all, context, bytes).map(|at| all.swap_remove(at))
        };
        let memory = match take(&SPARE) {
            Some(memory) => memory,
            None => zeros(take(&FREE).map_or_else(|| DeviceMemory::new(context, bytes), Ok)?, context)?,
        };
        let address = memory.address();
        self.keep(&current, memory)?;
        Ok(address)
    }

    /// Hands memory to the graph.
    fn keep(&self, current: &Current<'_>, memory: DeviceMemory) -> Result<(), EngineError> {
        let (functions, context) = (current.functions(), current.context());
        let (mut object, of) = (ptr::null_mut(), Box::into_raw(Box::new(memory)));
        // SAFETY: one handle is written. The driver calls `gone` once, with what `into_raw` gave.
        let status = unsafe { (functions.user_object)(&mut object, of.cast(), gone, 1, NO_DESTRUCTOR_SYNC) };
        if let Err(error) = context.check("cuUserObjectCreate", status) {
            // SAFETY: the driver has not taken it.
            drop(unsafe { Box::from_raw(of) });
            return Err(error);
        }
        // SAFETY: both handles are alive; the graph takes the only reference.
        let status = unsafe { (functions.graph_retain)(self.graph, object, 1, USER_OBJECT_MOVE) };
        context.check("cuGraphRetainUserObject", status)
    }
}

/// The least of all memory of a context that has so many bytes, if it has at most twice as many.
fn fitting(all: &[DeviceMemory], context: &Arc<Context>, bytes: usize) -> Option<usize> {
    let fits = |of: &DeviceMemory| of.is_of(context) && (bytes..=2 * bytes).contains(&of.bytes());
    let fitting = all.iter().enumerate().filter(|(_, of)| fits(of));
    fitting.min_by_key(|(_, of)| of.bytes()).map(|(at, _)| at)
}

/// Zeroes memory, and waits for it.
fn zeros(memory: DeviceMemory, context: &Arc<Context>) -> Result<DeviceMemory, EngineError> {
    Stream::new(context)?.copy_in(memory.address(), &vec![0; memory.bytes()])?;
    Ok(memory)
}

/// Called when a graph, and all that can be replayed of it, is gone. It must not call the driver.
unsafe extern "C" fn gone(memory: *mut c_void) {
    // SAFETY: it is what `keep` made, and comes once.
    let memory = unsafe { Box::from_raw(memory.cast::<DeviceMemory>()) };
    lock(&FREE).push(*memory);
}

/// While it lives, this thread may allocate during a capture.
struct Relaxed<'a>(&'a Current<'a>, c_int);

impl<'a> Relaxed<'a> {
    fn new(current: &'a Current<'a>) -> Result<Self, EngineError> {
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: one number is read and written.
        let status = unsafe { (current.functions().capture_mode)(&mut mode) };
        current.context().check("cuThreadExchangeStreamCaptureMode", status)?;
        Ok(Self(current, mode))
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _ = unsafe { (self.0.functions().capture_mode)(&mut self.1) };
    }
}
