//! Values that all threads of a process share: tables and lists that are made once.
//!
//! A forked process has the memory of its parent, and of its threads only the one that forked. What another thread had
//! locked, or had begun to make, stays so for ever. So these values have an instance per process. A forked process takes
//! its parent's over, unless it was locked or unfinished at that moment, and then begins with an empty one.

mod choices;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

pub use choices::Choices;

/// An instance per process: that of the first one, then those of processes that were forked from it.
#[derive(Debug)]
struct Instance<T> {
    /// The process that has it; 0 if it was not used yet.
    process: AtomicU32,
    value: T,
    forked: OnceLock<Box<Self>>,
}

impl<T> Instance<T> {
    const fn new(value: T) -> Self {
        Self { process: AtomicU32::new(0), value, forked: OnceLock::new() }
    }

    /// The instance of a process. If there is none, `inherit` makes it of the parent's, which no thread uses any more.
    fn of(&self, process: u32, inherit: impl Fn(&T) -> T) -> &T {
        let mut at = self;
        loop {
            match at.process.compare_exchange(0, process, Relaxed, Relaxed) {
                Ok(_) => return &at.value,
                Err(known) if known == process => return &at.value,
                Err(_) => {}
            }
            at = at.forked.get_or_init(|| Box::new(Self::new(inherit(&at.value))));
        }
    }
}

/// A value behind a lock, for a `static`.
#[derive(Debug)]
pub struct Locked<T>(Instance<Mutex<T>>);

impl<T> Locked<T> {
    /// The value with which the first process begins.
    pub const fn new(value: T) -> Self {
        Self(Instance::new(Mutex::new(value)))
    }
}

impl<T: Default> Locked<T> {
    /// Locks the value, even if a thread panicked while it had the lock: nobody may leave it half changed.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.of(std::process::id())
    }

    fn of(&self, process: u32) -> MutexGuard<'_, T> {
        let inherit = |of_parent: &Mutex<T>| match of_parent.try_lock() {
            Ok(mut value) => Mutex::new(core::mem::take(&mut *value)),
            Err(TryLockError::Poisoned(value)) => Mutex::new(core::mem::take(&mut *value.into_inner())),
            Err(TryLockError::WouldBlock) => Mutex::default(),
        };
        self.0.of(process, inherit).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value that is made at its first use, for a `static`.
#[derive(Debug)]
pub struct Once<T>(Instance<OnceLock<T>>);

impl<T> Once<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(Instance::new(OnceLock::new()))
    }

    /// The value. Threads that ask for it while another one makes it wait for that.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.of(std::process::id, make)
    }

    fn of(&self, process: impl FnOnce() -> u32, make: impl FnOnce() -> T) -> &T {
        // What is made can be read in every process.
        let mut at = Some(&self.0);
        while let Some(instance) = at {
            if let Some(value) = instance.value.get() {
                return value;
            }
            at = instance.forked.get().map(Box::as_ref);
        }
        self.0.of(process(), |_| OnceLock::new()).get_or_init(make)
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Locked, Once};

    #[test]
    fn a_forked_process_takes_over_what_was_not_locked() {
        let numbers = Locked::new(vec![1]);
        numbers.of(10).push(2);
        numbers.of(11).push(3);
        assert_eq!(*numbers.of(11), [1, 2, 3], "taken over");
        assert!(numbers.of(10).is_empty(), "the parent's, of which no thread is left here");
        let held = numbers.of(11);
        numbers.of(12).push(4);
        assert_eq!((&*held, &*numbers.of(12)), (&vec![1, 2, 3], &vec![4]), "locked when it was forked");
    }

    #[test]
    fn a_forked_process_makes_what_was_unfinished() {
        let number = Once::new();
        let made = number.of(
            || 20,
            || {
                // A thread that makes it while this process is forked.
                assert_eq!(*number.of(|| 21, || 5), 5);
                assert_eq!(*number.of(|| 21, || 6), 5);
                4
            },
        );
        assert_eq!((*made, *number.of(|| 20, || 7)), (4, 4));
        let whole = Once::new();
        assert_eq!((*whole.of(|| 20, || 1), *whole.of(|| 21, || 2)), (1, 1));
    }
}
