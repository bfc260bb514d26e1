//! A kernel with its program, compiled for a card at its first launch.
#![allow(unsafe_code, reason = "launches on the caller's memory")]

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falchion::kernel::driver::{Context, Loaded};
use falchion::kernel::{EngineError, Kernel, Program};

use crate::host::{self, Hosted, Run};

/// A loaded kernel. Different requests may have one kernel.
type Shared<K> = Arc<Mutex<Loaded<K>>>;

/// The kernels of a kind that are loaded, by card and text.
pub(crate) type Shelf<K> = Mutex<HashMap<(usize, String), Shared<K>>>;

/// Kernels of a kind, which share what is loaded.
pub(crate) trait Shelved: Clone + 'static {
    /// What is loaded.
    fn shelf() -> &'static Shelf<Self>;
}

/// A kernel, its program, and the card for which it was compiled last.
pub(crate) struct Kept<K> {
    kernel: K,
    program: Program,
    /// All that the program depends on.
    text: String,
    loaded: Mutex<Option<(usize, Shared<K>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Shelved> Kept<K> {
    pub(crate) fn new(kernel: K, program: Program, text: String) -> Self {
        Self { kernel, program, text, loaded: Mutex::default() }
    }

    pub(crate) fn kernel(&self) -> &K {
        &self.kernel
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Compiles the kernel for a card, in its primary context, unless that was done before.
    pub(crate) fn on(&self, ordinal: usize) -> Result<Shared<K>, EngineError> {
        if let Some((_, loaded)) = lock(&self.loaded).as_ref().filter(|(known, _)| *known == ordinal) {
            return Ok(Arc::clone(loaded));
        }
        let key = (ordinal, self.text.clone());
        let known = lock(K::shelf()).get(&key).cloned();
        let loaded = match known {
            Some(loaded) => loaded,
            None => {
                let context = Context::primary(ordinal)?;
                let made = Loaded::load_in(&context, self.kernel.clone(), self.program.clone())?;
                let made = Arc::new(Mutex::new(made));
                Arc::clone(lock(K::shelf()).entry(key).or_insert(made))
            }
        };
        *lock(&self.loaded) = Some((ordinal, Arc::clone(&loaded)));
        Ok(loaded)
    }

    /// The card for which the kernel was loaded last.
    pub(crate) fn card(&self) -> Option<usize> {
        lock(&self.loaded).as_ref().map(|(ordinal, _)| *ordinal)
    }

    /// Bytes of workspace that a call needs on that card; `None` if the kernel was not loaded.
    pub(crate) fn workspace<C>(&self, call: &C) -> Option<u64>
    where
        K: Kernel<C>,
    {
        let loaded = lock(&self.loaded).as_ref().map(|(_, loaded)| Arc::clone(loaded))?;
        let resident = lock(&loaded).resident_clusters();
        Some(self.kernel.workspace(call, resident))
    }

    /// Enqueues a call on a stream of the card's primary context.
    ///
    /// # Safety
    /// As [`Loaded::launch_raw`].
    pub(crate) unsafe fn launch<C: Clone>(
        &self,
        ordinal: usize,
        stream: *mut c_void,
        call: &C,
    ) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        let loaded = self.on(ordinal)?;
        // SAFETY: the caller guarantees it.
        unsafe { lock(&loaded).launch_raw(stream, call) }
    }

    /// Runs a call on the host's memory, in the emulator. `None` if there was nothing to compute.
    ///
    /// # Safety
    /// As [`host::run`].
    pub(crate) unsafe fn emulate<C: Clone>(&self, call: &C, how: Run) -> Result<Option<Duration>, EngineError>
    where
        K: Hosted<C>,
    {
        // SAFETY: the caller guarantees it.
        unsafe { host::run(&self.kernel, &self.program, call, how) }
    }
}
