//! Kernels with their programs, compiled for a card at their first launch.
#![allow(unsafe_code, reason = "launches on the caller's memory")]

use core::any::{Any, TypeId};
use core::ffi::c_void;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use falchion::collective::process::{Choices, Locked};
use falchion::kernel::driver::{Context, Loaded, StreamRef};
use falchion::kernel::{EngineError, Kernel, Program};
use falchion::ptx::VerifyError;

/// A loaded kernel. Different requests may have one kernel.
type Shared<K> = Arc<Loaded<K>>;

/// Kernels by kind, card and text, as long as a request has them.
type Shelf = BTreeMap<(TypeId, usize, String), Weak<dyn Any + Send + Sync>>;

/// The kernels that are loaded.
static SHELF: Locked<Shelf> = Locked::new(BTreeMap::new());

/// The programs that were needed last, by kind of kernel and text. One takes up to a megabyte, and is emitted in milliseconds.
static PROGRAMS: Choices<(TypeId, String), Vec<Arc<Program>>> = Choices::new(32);

/// A kernel that runs at plain addresses: one that was [picked](crate::Picked) for a request, or any other. It is compiled at its first
/// launch on a card.
pub struct Kept<K> {
    kernel: K,
    emit: fn(&K) -> Result<Vec<Program>, VerifyError>,
    /// All that the programs depend on.
    text: String,
    /// The card for which it was compiled last.
    loaded: Mutex<Option<(usize, Shared<K>)>>,
}

impl<K> fmt::Debug for Kept<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("kernel", &self.text).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Clone + Send + Sync + 'static> Kept<K> {
    /// Any kernel.
    pub fn of<C>(kernel: K) -> Self
    where
        K: Kernel<C>,
    {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // What its programs depend on is not known, so they are those of no other kernel.
        let text = format!("{} {}", core::any::type_name::<K>(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self::new(kernel, text, K::programs)
    }

    /// A kernel whose programs `emit` makes. `text` says all that they depend on, the kind of kernel apart.
    pub(crate) fn new(kernel: K, text: String, emit: fn(&K) -> Result<Vec<Program>, VerifyError>) -> Self {
        Self { kernel, emit, text, loaded: Mutex::default() }
    }

    /// What runs.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// The programs, in the order in which they run. They are emitted again if those of other kernels were needed since.
    ///
    /// # Errors
    /// A mistake of this library: one is not a program.
    pub(crate) fn programs(&self) -> Result<Arc<Vec<Arc<Program>>>, EngineError> {
        let emitted = PROGRAMS.get((TypeId::of::<K>(), self.text.clone()), |_| {
            // A kernel keeps its program, and a clone begins without one: thousands of kernels are kept, and a few programs.
            (self.emit)(&self.kernel.clone()).map(|all| all.into_iter().map(Arc::new).collect())
        });
        emitted.map_err(|error| EngineError::Compile { kernel: self.text.clone(), log: error.to_string() })
    }

    /// The first of the kernel's programs, which are emitted again if those of other kernels were needed since.
    ///
    /// # Errors
    /// A mistake of this library: it is not a program.
    pub fn program(&self) -> Result<Arc<Program>, EngineError> {
        let programs = self.programs()?;
        let none = || EngineError::Programs { kernel: self.text.clone(), given: 0, needed: 1 };
        programs.first().cloned().ok_or_else(none)
    }

    /// Compiles the kernel for a card, in its primary context, unless that was done before.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(&self, ordinal: usize) -> Result<(), EngineError> {
        self.on(ordinal).map(drop)
    }

    /// Compiles it for a launch on a stream of a card's primary context, unless that was done. While the stream is captured nothing can be
    /// compiled, and it must have been.
    ///
    /// # Errors
    /// The stream is captured, and the kernel was not loaded; a driver error.
    ///
    /// # Safety
    /// The stream is null, for the default stream, or alive and one of the card's primary context.
    pub unsafe fn ready(&self, ordinal: usize, stream: *mut c_void) -> Result<(), EngineError> {
        if self.card() == Some(ordinal) {
            return Ok(());
        }
        // SAFETY: the caller guarantees it.
        if unsafe { is_captured(ordinal, stream) }? {
            return Err(EngineError::Captured { what: format!("the kernel `{}`", self.text) });
        }
        self.load(ordinal)
    }

    /// Enqueues a call on a stream of the card's primary context. A call of a shape that was launched before
    /// allocates nothing.
    ///
    /// # Errors
    /// The first illegal argument, or a driver error.
    ///
    /// # Safety
    /// As [`Loaded::launch_raw`].
    pub unsafe fn launch<C: Clone>(
        &self,
        ordinal: usize,
        stream: *mut c_void,
        call: &C,
    ) -> Result<(), EngineError>
    where
        K: Kernel<C>,
    {
        // SAFETY: the caller guarantees it.
        unsafe {
            self.ready(ordinal, stream)?;
            self.on(ordinal)?.launch_raw(stream, call)
        }
    }

    fn on(&self, ordinal: usize) -> Result<Shared<K>, EngineError> {
        if let Some((_, loaded)) = lock(&self.loaded).as_ref().filter(|(known, _)| *known == ordinal) {
            return Ok(Arc::clone(loaded));
        }
        let key = (TypeId::of::<K>(), ordinal, self.text.clone());
        let known = SHELF.lock().get(&key).and_then(Weak::upgrade).and_then(|known| known.downcast().ok());
        let loaded = match known {
            Some(loaded) => loaded,
            None => {
                let context = Context::primary(ordinal)?;
                let programs: Vec<_> = self.programs()?.iter().map(|of| Program::clone(of)).collect();
                let loaded = Loaded::load_in(&context, self.kernel.clone(), programs)?;
                let made: Shared<K> = Arc::new(loaded);
                let mut shelf = SHELF.lock();
                shelf.retain(|_, known| known.strong_count() > 0);
                match shelf.get(&key).and_then(Weak::upgrade).and_then(|first| first.downcast().ok()) {
                    Some(first) => first,
                    None => {
                        let known: Arc<dyn Any + Send + Sync> = made.clone();
                        shelf.insert(key, Arc::downgrade(&known));
                        made
                    }
                }
            }
        };
        *lock(&self.loaded) = Some((ordinal, Arc::clone(&loaded)));
        Ok(loaded)
    }

    /// The card for which the kernel was loaded last; `None` if it was not loaded.
    pub fn card(&self) -> Option<usize> {
        lock(&self.loaded).as_ref().map(|(ordinal, _)| *ordinal)
    }

    /// Number of the kernel's clusters that are resident on the card; `None` if it was not loaded.
    pub(crate) fn resident(&self) -> Option<u32> {
        lock(&self.loaded).as_ref().map(|(_, loaded)| loaded.resident_clusters())
    }
}

/// Whether a stream of a card's primary context is being captured into a graph: nothing can be loaded or allocated then.
///
/// # Errors
/// A driver error.
///
/// # Safety
/// The stream is null, for the default stream, or alive and one of the card's primary context.
pub unsafe fn is_captured(ordinal: usize, stream: *mut c_void) -> Result<bool, EngineError> {
    // SAFETY: the caller guarantees it.
    unsafe { StreamRef::from_raw(stream) }.captured(&*Context::primary(ordinal)?)
}
