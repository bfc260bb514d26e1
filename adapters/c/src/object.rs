//! What the kernel objects of the C interface have in common: they are chosen, loaded, launched and emulated.

use core::ffi::{c_int, c_void};

use falchion::kernel::EngineError;
use falchion_core::{Offered, Picked, Refusal, Run};

use crate::fields::Values;
use crate::{DRIVER, FAULT, Failure, INTERNAL, INVALID, NO_KERNEL, Status, given, guard, invalid};

/// A kernel object.
pub(crate) trait Object {
    /// What functions call it.
    const NAME: &'static str;
    /// What a launch says of an object that was not loaded.
    const NOT_LOADED: &'static str;
    /// The family of its kernels.
    type Family: Offered;

    /// Its kernel.
    fn picked(&self) -> &Picked<Self::Family>;

    /// The call for the caller's arguments.
    ///
    /// # Safety
    /// The arguments are null, or have as many bytes as the description said.
    unsafe fn call(&self, arguments: *const c_void) -> Result<<Self::Family as Offered>::Arguments, Failure>;

    /// The card for which the object was loaded.
    fn card(&self) -> Result<usize, Failure> {
        self.picked().card().ok_or_else(|| Failure(INVALID, Self::NOT_LOADED.to_owned()))
    }
}

/// Compiles an object's kernels for a card, in its primary context.
///
/// # Safety
/// The object is null or valid.
pub(crate) unsafe fn load<T: Object>(object: *mut T, device: c_int) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        let object = unsafe { given(object, T::NAME) }?;
        let ordinal = usize::try_from(device);
        let ordinal = ordinal.or_else(|_| invalid(format!("device is {device}, 0 or more was needed")))?;
        object.picked().load(ordinal).map_err(|error| failed(&error))
    })
}

/// Enqueues a call on a stream.
///
/// # Safety
/// As `falchion_gemm_launch`.
pub(crate) unsafe fn launch<T: Object>(
    object: *mut T,
    stream: *mut c_void,
    arguments: *const c_void,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees all of it.
        unsafe {
            let object = given(object, T::NAME)?;
            given(arguments, "args")?;
            let card = object.card()?;
            object.picked().launch(card, stream, &object.call(arguments)?).map_err(|error| failed(&error))
        }
    })
}

/// Runs a call in the emulator, on the host's memory.
///
/// # Safety
/// As `falchion_gemm_emulate`.
pub(crate) unsafe fn emulate<T: Object>(object: *mut T, arguments: *const c_void) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees all of it.
        unsafe {
            let object = given(object, T::NAME)?;
            given(arguments, "args")?;
            object.picked().emulate(&object.call(arguments)?, Run::default()).map_err(|error| failed(&error))
        }
    })
}

pub(crate) fn failed(error: &EngineError) -> Failure {
    let status = match error {
        EngineError::Call { .. } | EngineError::Memory { .. } | EngineError::Work { .. } => INVALID,
        EngineError::Trap { .. } => FAULT,
        _ => DRIVER,
    };
    Failure(status, error.to_string())
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let words = refusal.to_string();
        match refusal {
            Refusal::Invalid(_) => Self(INVALID, words),
            Refusal::NoKernel(_) => Self(NO_KERNEL, words),
            Refusal::Driver(_) => Self(DRIVER, words),
            Refusal::Internal(_) => Self(INTERNAL, words),
        }
    }
}

/// How a kernel is chosen.
pub(crate) struct Choice<'a> {
    /// Kernels to measure; `None` if nothing is.
    budget: Option<u32>,
    /// The card, counted from 1; 0 is an H200.
    card: u32,
    spec: Option<&'a str>,
}

impl<'a> Choice<'a> {
    /// As a description says.
    pub(crate) fn of<T>(values: &Values<'a, T>, budget: Option<u32>) -> Self {
        Self { budget, card: values.number("card") as u32, spec: values.text("spec") }
    }

    /// The kernel for a request: the one that is measured, or as [`Picked::on`].
    pub(crate) fn kernel<K: Offered>(&self, request: &K::Request<'_>) -> Result<Picked<K>, Failure> {
        let card = self.card.checked_sub(1).map(|ordinal| ordinal as usize);
        match (self.budget, card) {
            (Some(0), _) => invalid("budget is 0, 1 or more was needed to tune".to_owned()),
            (Some(_), None) => invalid("card is 0, 1 or more was needed to tune on".to_owned()),
            (Some(_), Some(_)) if self.spec.is_some() => {
                invalid("spec is given, NULL was needed to tune".to_owned())
            }
            (Some(budget), Some(card)) => Ok(Picked::tuned(request, card, budget)?),
            (None, card) => Ok(Picked::on(request, self.spec, card)?),
        }
    }
}
