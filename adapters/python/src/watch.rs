//! Long work: a thread of its own does it, while the thread of the caller looks for Ctrl-C and shows how far it is.

use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use falchion_core::Watch;
use pyo3::prelude::*;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Time after which the progress of work is shown.
const PATIENCE: Duration = Duration::from_secs(2);

/// Does work without the lock of the interpreter, and returns its result.
///
/// # Errors
/// What a signal's handler raises in the main thread: `KeyboardInterrupt` for Ctrl-C. The watch is stopped then, `stop` is
/// called, and this returns when the work has ended.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    what: &str,
    work: impl FnOnce(&Watch) -> T + Send,
    stop: impl Fn() + Send + Sync,
) -> PyResult<T> {
    py.detach(move || {
        let watch = Watch::default();
        std::thread::scope(move |scope| {
            let (send, receive) = channel();
            let own = watch.clone();
            // The receiver waits for it.
            let work = move || drop(send.send(work(&own)));
            let worker = Builder::new().name("falchion".to_owned()).spawn_scoped(scope, work)?;
            let (mut line, mut raised) = (Line::new(what), None);
            loop {
                match receive.recv_timeout(LOOK) {
                    Ok(result) => return raised.map_or(Ok(result), Err),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if raised.is_none() {
                    line.show(watch.done());
                    raised = Python::attach(|py| py.check_signals()).err();
                    if raised.is_some() {
                        watch.stop();
                        stop();
                    }
                }
            }
            match worker.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => Err(pyo3::exceptions::PyRuntimeError::new_err("the work ended without a result")),
            }
        })
    })
}

/// A line on standard error that says how much is done and how long the rest takes. It appears after two seconds, on a
/// terminal only.
struct Line<'a> {
    what: &'a str,
    start: Instant,
    terminal: bool,
    shown: bool,
}

impl<'a> Line<'a> {
    fn new(what: &'a str) -> Self {
        Self { what, start: Instant::now(), terminal: stderr().is_terminal(), shown: false }
    }

    fn show(&mut self, done: f64) {
        let spent = self.start.elapsed();
        if self.terminal && spent >= PATIENCE {
            self.shown = true;
            self.write(&words(self.what, done, spent));
        }
    }

    fn write(&self, words: &str) {
        let mut terminal = stderr().lock();
        // A terminal that is gone is no reason to end the work.
        let _ = write!(terminal, "\r\x1b[K{words}").and_then(|()| terminal.flush());
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if self.shown {
            self.write("");
        }
    }
}

/// What the line says.
fn words(what: &str, done: f64, spent: Duration) -> String {
    let left = spent.as_secs_f64() * (1.0 - done) / done;
    match done > 0.0 && left.is_finite() {
        true => format!("{what}: {:.0} %, about {left:.0} s left", 100.0 * done),
        false => format!("{what}: {:.0} s so far", spent.as_secs_f64()),
    }
}
