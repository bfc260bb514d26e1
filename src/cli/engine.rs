//! Chooses an engine, and shows its progress.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use kernel::driver::Context;
use kernel::{Emulator, Engine, EngineError, Gpu, Machine};
use rayon::prelude::*;

use crate::cli::Failure;

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// The GPU if there is a usable one, else the emulator.
    #[default]
    Auto,
    /// The emulator, on any machine.
    Emulator,
    /// The GPU, or an error.
    Gpu,
}

/// Where to run cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engines {
    /// The GPU if there is a usable one, else the emulator.
    #[default]
    Auto,
    /// The emulator, on any machine.
    Emulator,
    /// The GPU, or an error.
    Gpu,
    /// Both. Without a GPU, its cases are skipped.
    All,
}

/// An engine, and why it was chosen.
pub(crate) struct Chosen {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) emulated: bool,
    pub(crate) why: String,
}

/// The machine that kernels are ranked for: the GPU's, or an H200 where there is none.
pub(crate) fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let card = Context::primary(0).and_then(|context| context.machine());
        card.unwrap_or_else(|_| Machine::h200())
    })
}

impl Choice {
    pub(crate) fn open(self) -> Result<Chosen, Failure> {
        let gpu = |gpu: Gpu, why: String| Chosen { engine: Box::new(gpu), emulated: false, why };
        match self {
            Self::Emulator => Ok(emulator("as asked".to_owned())),
            Self::Gpu => Ok(gpu(Gpu::new(0)?, "as asked".to_owned())),
            Self::Auto => match Gpu::new(0) {
                Ok(found) => Ok(gpu(found, "a usable GPU is here".to_owned())),
                Err(EngineError::NoDriver { .. }) => Ok(emulator("no CUDA driver here".to_owned())),
                Err(error) => Ok(emulator(format!("no usable GPU here: {error}"))),
            },
        }
    }
}

/// An engine, or why it is missing.
pub(crate) struct Found {
    pub(crate) name: &'static str,
    pub(crate) engine: Result<Box<dyn Engine>, EngineError>,
    /// Why it was chosen.
    pub(crate) why: String,
}

impl Engines {
    /// The engines. Only the GPU of `all` may be missing.
    pub(crate) fn open(self) -> Result<Vec<Found>, Failure> {
        let gpu = || Gpu::new(0).map(|gpu| Box::new(gpu) as Box<dyn Engine>);
        let found = |name, engine| Found { name, engine, why: "as asked".to_owned() };
        let emulator = found("emulator", Ok(emulator(String::new()).engine));
        Ok(match self {
            Self::Emulator => vec![emulator],
            Self::Gpu => vec![found("gpu", Ok(gpu()?))],
            Self::Auto => match gpu() {
                Ok(gpu) => vec![found("gpu", Ok(gpu))],
                Err(error) => vec![Found { why: format!("no usable GPU here: {error}"), ..emulator }],
            },
            Self::All => vec![emulator, found("gpu", gpu())],
        })
    }
}

fn emulator(why: String) -> Chosen {
    let bar = Progress::new("emulating");
    let engine = Emulator::new().with_progress(Box::new(move |done, total| bar.show(done, total)));
    Chosen { engine: Box::new(engine), emulated: true, why }
}

/// Does work of which nobody knows how much there is, and shows for how long it has run. It appears after one second, and only on a
/// terminal.
pub(crate) fn patiently<T>(label: &'static str, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    thread::scope(|scope| {
        let (done, waits) = mpsc::channel::<()>();
        scope.spawn(move || {
            if waits.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let spinner = ProgressBar::new_spinner().with_message(label).with_elapsed(Duration::from_secs(1));
            if let Ok(style) = ProgressStyle::with_template("{msg} {spinner} {elapsed} so far") {
                spinner.set_style(style);
            }
            while waits.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                spinner.tick();
            }
            spinner.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}

/// A progress bar on standard error. It appears after one second, and only on a terminal.
pub(crate) struct Progress {
    label: &'static str,
    start: Instant,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    pub(crate) fn new(label: &'static str) -> Self {
        Self { label, start: Instant::now(), bar: OnceLock::new() }
    }

    /// Shows `done` of `total`. The bar disappears when they are equal.
    pub(crate) fn show(&self, done: u64, total: u64) {
        if self.start.elapsed() < Duration::from_secs(1) || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} ({eta} left)");
            let bar = ProgressBar::new(total).with_message(self.label);
            match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        // The next of several launches.
        if bar.is_finished() && done < total {
            bar.reset();
        }
        bar.set_length(total);
        bar.set_position(done);
        if done >= total {
            bar.finish_and_clear();
        }
    }

    /// Runs `run` for each item, on all threads, and shows how many of all are done: of `total`, `before` these items.
    pub(crate) fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        (before, total): (u64, u64),
        run: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let done = AtomicU64::new(before);
        let run = |item| {
            let result = run(item);
            self.show(done.fetch_add(1, Relaxed) + 1, total);
            result
        };
        items.par_iter().map(run).collect()
    }

    /// Hides the bar while `print` prints.
    pub(crate) fn aside(&self, print: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.bar.get() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}
