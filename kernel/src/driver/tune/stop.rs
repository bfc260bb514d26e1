//! Ends a measurement that runs, from another thread.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::error::EngineError;

/// No measurement runs, one does, or the one that runs shall end. At most one runs in a process.
const IDLE: u8 = 0;
const RUNS: u8 = 1;
const ENDS: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// Ends the measurement of [`Loaded::tuned`](crate::driver::Loaded::tuned) or [`tuned`](crate::driver::tuned) that another
/// thread of this process runs now, if one does, before its next kernel: with [`EngineError::Stopped`]. Its times are lost.
pub fn stop_measuring() {
    // If none runs, there is nothing to end.
    let _ = STATE.compare_exchange(RUNS, ENDS, Relaxed, Relaxed);
}

/// A measurement that runs, until this is dropped.
pub(super) struct Running(());

impl Running {
    pub(super) fn new() -> Self {
        STATE.store(RUNS, Relaxed);
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        STATE.store(IDLE, Relaxed);
    }
}

/// Fails if the measurement that runs shall end.
pub(super) fn go_on() -> Result<(), EngineError> {
    if STATE.load(Relaxed) != ENDS {
        return Ok(());
    }
    Err(EngineError::Stopped { kernel: "tuned".to_owned(), reason: "the measurement was stopped".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::{Running, go_on, stop_measuring};

    #[test]
    fn a_stop_ends_the_measurement_that_runs_and_no_later_one() {
        stop_measuring();
        let running = Running::new();
        assert!(go_on().is_ok(), "nothing ran when it was stopped");
        stop_measuring();
        assert!(go_on().is_err());
        drop(running);
        assert!(go_on().is_ok());
    }
}
