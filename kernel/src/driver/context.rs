//! A device's primary context: the one that cudarc, candle and the CUDA runtime use too.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::c_int;
use core::{fmt, ptr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::call;
use super::library::Driver;
use super::sys::{Functions, RawContext, STICKY, SUCCESS, Status};
use crate::error::EngineError;

/// Number of most recently launched kernels that are remembered.
const REMEMBERED: usize = 8;

/// A device's primary context. It is retained as long as this value lives.
pub struct Context {
    driver: &'static Driver,
    ordinal: usize,
    device: c_int,
    raw: RawContext,
    history: Mutex<History>,
}

// SAFETY: a context is a handle that the driver accepts from any thread.
unsafe impl Send for Context {}
// SAFETY: as above; what changes is behind a mutex.
unsafe impl Sync for Context {}

/// The most recent launches, and the fault that one of them caused.
#[derive(Default)]
struct History {
    launched: [Option<Arc<str>>; REMEMBERED],
    fault: Option<Fault>,
}

/// The fault that made a context unusable.
#[derive(Clone)]
struct Fault {
    kernel: String,
    code: String,
    reason: String,
}

/// The contexts in use, by device. Everything on one device shares one history.
static CONTEXTS: Mutex<Vec<(usize, Weak<Context>)>> = Mutex::new(Vec::new());

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}

impl Context {
    /// The primary context of the GPU with an index.
    ///
    /// # Errors
    /// No driver, a driver that is too old or lacks a function, no such GPU, or a driver error.
    pub fn primary(ordinal: usize) -> Result<Arc<Self>, EngineError> {
        let driver = call::initialised()?;
        let mut count = 0;
        // SAFETY: one number is written.
        let status = unsafe { (driver.functions.device_count)(&mut count) };
        call::check(driver, "cuDeviceGetCount", status)?;
        let count = usize::try_from(count).unwrap_or(0);
        let index = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let Some(index) = index else { return Err(EngineError::NoDevice { ordinal, count }) };
        let mut contexts = lock(&CONTEXTS);
        contexts.retain(|(_, context)| context.strong_count() > 0);
        let known = contexts.iter().find(|(other, _)| *other == ordinal);
        if let Some(context) = known.and_then(|(_, context)| context.upgrade()) {
            return Ok(context);
        }
        let mut device = 0;
        // SAFETY: one number is written.
        let status = unsafe { (driver.functions.device_get)(&mut device, index) };
        call::check(driver, "cuDeviceGet", status)?;
        let mut raw = ptr::null_mut();
        // SAFETY: one handle is written; it is released when the value is dropped.
        let status = unsafe { (driver.functions.primary_retain)(&mut raw, device) };
        call::check(driver, "cuDevicePrimaryCtxRetain", status)?;
        let context = Arc::new(Self { driver, ordinal, device, raw, history: Mutex::default() });
        contexts.push((ordinal, Arc::downgrade(&context)));
        Ok(context)
    }

    /// The GPU's index.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The version of CUDA that the driver supports, major and minor.
    pub fn cuda_version(&self) -> (i32, i32) {
        self.driver.version
    }

    /// The card's UUID.
    ///
    /// # Errors
    /// A driver error.
    pub fn uuid(&self) -> Result<[u8; 16], EngineError> {
        let mut uuid = [0; 16];
        // SAFETY: 16 bytes are written.
        let status = unsafe { (self.functions().device_uuid)(&mut uuid, self.device) };
        self.check("cuDeviceGetUuid", status)?;
        Ok(uuid)
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    fn functions(&self) -> &'static Functions {
        &self.driver.functions
    }

    /// The value of a `CUdevice_attribute`.
    pub(super) fn attribute(&self, attribute: i32) -> Result<u32, EngineError> {
        let mut value = 0;
        // SAFETY: one number is written; the device is one that the driver named.
        let status = unsafe { (self.functions().device_attribute)(&mut value, attribute, self.device) };
        call::check(self.driver, "cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// The card's name.
    pub(super) fn name(&self) -> Result<String, EngineError> {
        let mut name = [0u8; 256];
        // SAFETY: the driver writes at most that number of bytes.
        let status = unsafe {
            (self.functions().device_name)(name.as_mut_ptr().cast(), name.len() as c_int, self.device)
        };
        call::check(self.driver, "cuDeviceGetName", status)?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Makes the context current in the calling thread, as long as the returned value is kept.
    ///
    /// # Errors
    /// An earlier launch made the context unusable, or a driver error.
    pub fn bind(&self) -> Result<Current<'_>, EngineError> {
        let mut before = ptr::null_mut();
        // SAFETY: one handle is written.
        self.check("cuCtxGetCurrent", unsafe { (self.functions().current)(&mut before) })?;
        if before == self.raw {
            return Ok(Current { context: self, before: None });
        }
        // SAFETY: the context is retained as long as `self` is.
        self.check("cuCtxSetCurrent", unsafe { (self.functions().set_current)(self.raw) })?;
        Ok(Current { context: self, before: Some(before) })
    }

    /// Waits for everything that runs in the context. After a fault there is nothing to wait for.
    pub fn wait(&self) {
        if let Ok(current) = self.bind() {
            // SAFETY: the context is current.
            let _ = unsafe { (current.functions().synchronize)() };
        }
    }

    /// Records a kernel as the most recently launched.
    pub(super) fn launched(&self, kernel: &Arc<str>) {
        let mut history = lock(&self.history);
        let place = history.launched.iter().position(|known| known.as_ref() == Some(kernel));
        let place = place.unwrap_or(REMEMBERED - 1);
        history.launched[..=place].rotate_right(1);
        history.launched[0] = Some(Arc::clone(kernel));
    }

    /// Records that everything launched before has ended without a fault.
    pub(super) fn finished(&self) {
        lock(&self.history).launched = Default::default();
    }

    /// An error that names the kernel which made the context unusable, if one did.
    pub(super) fn alive(&self) -> Result<(), EngineError> {
        match &lock(&self.history).fault {
            None => Ok(()),
            Some(fault) => Err(fault.seen_by("an earlier launch")),
        }
    }

    /// Turns a call's status into a result. If the context is unusable, the error names the kernels that were
    /// launched before.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), EngineError> {
        self.judge(None, call, status)
    }

    /// The same for a call that concerns one kernel.
    pub(super) fn check_kernel(
        &self,
        kernel: &str,
        call: &'static str,
        status: Status,
    ) -> Result<(), EngineError> {
        self.judge(Some(kernel), call, status)
    }

    fn judge(&self, kernel: Option<&str>, call: &'static str, status: Status) -> Result<(), EngineError> {
        if status == SUCCESS {
            return Ok(());
        }
        let (code, reason) = call::explain(self.driver, status);
        if STICKY.contains(&status) {
            let History { launched, fault } = &mut *lock(&self.history);
            let fault = fault.get_or_insert_with(|| Fault { kernel: suspects(launched), code, reason });
            return Err(fault.seen_by(call));
        }
        Err(match kernel.map(str::to_owned) {
            None => EngineError::Driver { call, code, reason },
            Some(kernel) => EngineError::Fault { kernel, call, code, reason },
        })
    }
}

impl Fault {
    /// The error of a call after the fault.
    fn seen_by(&self, call: &'static str) -> EngineError {
        let Self { kernel, code, reason } = self.clone();
        EngineError::Fault { kernel, call, code, reason }
    }
}

/// A context while it is current in the calling thread, made by [`Context::bind`]. When it is dropped, the
/// context that was current before is current again, or none if there was none.
///
/// Only through it are the driver's functions reached that work in the current context.
#[must_use]
#[derive(Debug)]
pub struct Current<'a> {
    context: &'a Context,
    /// What was current before, if that is another context.
    before: Option<RawContext>,
}

impl<'a> Current<'a> {
    pub(super) fn context(&self) -> &'a Context {
        self.context
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.context.functions()
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: the caller's context, or null. Nothing can be done if its owner destroyed it meanwhile.
            let _ = unsafe { (self.context.functions().set_current)(before) };
        }
    }
}

/// The kernels launched since the device was last known to be idle, the most recent first.
fn suspects(launched: &[Option<Arc<str>>]) -> String {
    let names: Vec<&str> = launched.iter().flatten().map(AsRef::as_ref).collect();
    if names.is_empty() { "of another library".to_owned() } else { names.join(", ") }
}

/// Locks a mutex even if a thread panicked while it held the lock: no code leaves the data half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and nothing uses it after this.
        let _ = unsafe { (self.functions().primary_release)(self.device) };
    }
}
