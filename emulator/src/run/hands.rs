//! Host threads that run clusters together with the thread that launches.
//!
//! They are started for one launch and end with it. Nothing is kept between launches, neither a thread nor a lock:
//! so a launch also works in a process that was forked, where the threads of its parent do not exist.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, Builder};

use super::residents::Residents;
use crate::error::EmulatorError;

/// Largest number of threads that launches of one process have started at the same time, per thread of the host.
const MOST: u32 = 4;

/// The process in the upper half, and in the lower one the number of threads that its launches have started.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Runs clusters on the calling thread and on as many others as `asked` says: 0 means one per thread of the host, or
/// the pool of rayon that the caller is a thread of.
///
/// # Errors
/// The host did not start the threads.
pub(super) fn work(residents: &Residents<'_>, asked: usize, clusters: u64) -> Result<(), EmulatorError> {
    let most = usize::try_from(clusters).unwrap_or(usize::MAX);
    match asked {
        0 if rayon::current_thread_index().is_some() => {
            rayon::scope(|scope| {
                for _ in 1..rayon::current_num_threads().min(most) {
                    scope.spawn(|_| residents.work());
                }
                residents.work();
            });
            Ok(())
        }
        0 => {
            let lent = Lent::take(parallelism().min(most).saturating_sub(1));
            // What the host cannot start, the others do.
            let _ = with(residents, lent.0 as usize);
            Ok(())
        }
        asked => with(residents, asked.min(most).saturating_sub(1))
            .map_err(|error| EmulatorError::Threads { asked, reason: error.to_string() }),
    }
}

/// Runs clusters on the calling thread and on `others`.
fn with(residents: &Residents<'_>, others: usize) -> std::io::Result<()> {
    thread::scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, || residents.work()).map(drop);
        let started = (0..others).try_for_each(start);
        residents.work();
        started
    })
}

/// Number of threads of the host. To ask the host takes as long as a small launch.
fn parallelism() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    match KNOWN.load(Relaxed) {
        0 => {
            let count = thread::available_parallelism().map_or(1, Into::into);
            KNOWN.store(count, Relaxed);
            count
        }
        known => known,
    }
}

/// A number of threads that a launch may start. Launches of many threads would otherwise start the square of that
/// number.
struct Lent(u32);

impl Lent {
    /// At most so many.
    fn take(asked: usize) -> Self {
        let limit = u32::try_from(parallelism()).unwrap_or(u32::MAX).saturating_mul(MOST);
        let asked = u32::try_from(asked).unwrap_or(u32::MAX);
        let mut taken = 0;
        change(|started| {
            taken = asked.min(limit.saturating_sub(started));
            started + taken
        });
        Self(taken)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        change(|started| started.saturating_sub(self.0));
    }
}

/// Changes the number of threads that this process has started. In a forked process it begins at 0, whatever its
/// parent's was.
fn change(mut to: impl FnMut(u32) -> u32) {
    let process = u64::from(std::process::id()) << 32;
    let mut known = STARTED.load(Relaxed);
    loop {
        let started = if known >> 32 == process >> 32 { known as u32 } else { 0 };
        match STARTED.compare_exchange_weak(known, process | u64::from(to(started)), Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => known = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_together_start_a_bounded_number() {
        let limit = parallelism() * MOST as usize;
        let lent: Vec<Lent> = (0..100).map(|_| Lent::take(parallelism())).collect();
        let sum = |lent: &[Lent]| lent.iter().map(|lent| lent.0 as usize).sum::<usize>();
        // Other tests launch meanwhile.
        assert!(sum(&lent) <= limit && lent[0].0 > 0, "{} of {limit}", sum(&lent));
        drop(lent);
        assert!(Lent::take(1).0 == 1);
    }
}
