//! Tuning: chooses the kernel for a call, by measuring on this card, from records, or by the model.
//!
//! [`Loaded::tuned`] is enough for most uses:
//!
//! ```no_run
//! use collective::Format;
//! use cute_rs::atom::Major;
//! use kernel::driver::{Context, Loaded, Tuning};
//! use kernel::{EngineError, GemmProblem, Request};
//!
//! fn kernel_for(problem: GemmProblem) -> Result<Loaded, EngineError> {
//!     let context = Context::primary(0)?; // the application's own: cudarc's, candle's
//!     let request = Request::packed(Format::Bf16, [Major::K; 2], problem);
//!     // Seconds the first time, then a look-up in a file; keep the result.
//!     let tuned = Loaded::tuned(&context, &request, Tuning::default())?;
//!     for warning in &tuned.warnings {
//!         eprintln!("{warning}"); // the records on disk could not be used
//!     }
//!     Ok(tuned.loaded)
//! }
//! ```
//!
//! # What is measured
//!
//! The kernels that [`search`] ranks first, as in `falchion tune`. Each gets a few launches after a rest;
//! then those near the best are measured alternately, in several rounds ([`Turns`]). Inputs are random. If
//! one set of inputs would stay in the L2 cache, several sets are used, one per launch. Matrices, workspaces
//! and the memory that the epilogue accesses are allocated for the measurement and freed after it. None of
//! the caller's memory is read or written.
//!
//! The rest of the module is for measuring tools of your own: [`Inputs`] of a request, a [`Screening`] of its
//! kernels, and [`Turns`].

mod calibrate;
mod heat;
mod inputs;
mod shadow;
mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use heat::{Screening, Timed};
pub use inputs::Inputs;
pub use turns::{Candidate, Turn, Turns, median};

use super::context::Context;
use super::gpu::Gpu;
use super::load;
use super::loaded::Loaded;
use crate::arguments::Arguments;
use crate::disk::records::{Measurement, Problem};
use crate::disk::{CacheError, Key, Records};
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::select::{Known, Machine, Ranked, Request, fastest, impossible, measured, search};
use crate::spec::KernelSpec;

/// How [`Loaded::tuned`] chooses a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tuning {
    /// Use what was measured for the call on this card, by this process or by an earlier one that kept its
    /// records. If nothing was measured, measure up to `budget` kernels now and keep the records. Measuring
    /// takes seconds, and memory for another copy of the call's matrices. Other work on the card makes it
    /// less exact.
    Measured {
        /// Number of kernels to measure, those that the model ranks first; at least 1.
        budget: u32,
    },
    /// Use what was measured for the call on this card, but measure nothing now. If nothing was measured, as
    /// [`Model`](Self::Model).
    Records,
    /// Choose as [`fastest`] does: by the model, and by the measurements that the [`Request`] carries.
    /// Nothing is measured, and nothing on disk is read.
    Model,
}

/// Default: [`Tuning::Measured`] with a budget of 24 kernels.
impl Default for Tuning {
    fn default() -> Self {
        Self::Measured { budget: 24 }
    }
}

/// A kernel that is ready to be launched, and why it was chosen.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tuned {
    /// The kernel.
    pub loaded: Loaded,
    /// Why it was chosen.
    pub chosen: Chosen,
    /// What was wrong with the records on disk. The kernel works, but it may be measured again next time.
    pub warnings: Vec<CacheError>,
}

/// Why a kernel was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Chosen {
    /// It was the fastest of the kernels that were measured now.
    Measured {
        /// Time per launch, in microseconds.
        microseconds: f64,
        /// Number of kernels that were measured.
        kernels: usize,
    },
    /// It was the fastest of the kernels that were measured earlier and can compute the call.
    Recorded {
        /// Time per launch, in microseconds.
        microseconds: f64,
    },
    /// [`fastest`] chose it.
    Predicted {
        /// Time per launch in microseconds, from the model or from what the request knows.
        microseconds: f64,
    },
}

/// Rounds of a measurement: each kernel near the best gets five.
const TURNS: Turns = Turns { count: 5, near: Some(1.04) };

/// Rest before a burst.
pub const REST: Duration = Duration::from_millis(80);

/// Length of a burst, in seconds.
pub const BURST: f64 = 0.006;

/// What this process knows about each card, also if no folder keeps it.
static KNOWN: Mutex<Option<HashMap<Key, Records>>> = Mutex::new(None);

/// Only one measurement per process at a time: another one would disturb it.
static MEASURING: Mutex<()> = Mutex::new(());

impl Loaded {
    /// The kernel for a request, loaded in a context. `tuning` says how to choose it: measured at the first
    /// use, from records, or by the model. Keep the result for all calls of the request's shape.
    ///
    /// For a request with a fused epilogue, measuring needs the epilogue's arguments: use
    /// [`tuned_with`](Self::tuned_with).
    ///
    /// Measuring allocates memory and waits for the device. Do it while no stream of the context is being
    /// captured.
    ///
    /// # Errors
    /// No kernel can compute the call (with the rule that it breaks); `FALCHION_CACHE` names a folder that
    /// cannot be made; or a driver error, for example too little memory to measure in. Records that cannot be
    /// read or kept are [`Tuned::warnings`].
    pub fn tuned(
        context: &Arc<Context>,
        request: &Request<'_>,
        tuning: Tuning,
    ) -> Result<Tuned, EngineError> {
        Self::tuned_with(context, request, &request.call.epilogue, tuning)
    }

    /// The same with arguments of the request's epilogue, for example a [`Tree`](crate::Tree)'s. The memory
    /// that they point to is neither read nor written.
    ///
    /// # Errors
    /// As [`tuned`](Self::tuned), or the epilogue rejects its arguments.
    pub fn tuned_with<E: Arguments + Clone>(
        context: &Arc<Context>,
        request: &Request<'_>,
        epilogue: &E,
        tuning: Tuning,
    ) -> Result<Tuned, EngineError> {
        let machine = context.machine()?;
        // Before anything is measured, reject calls that no kernel can compute.
        let predicted = fastest(request, &machine).map_err(|refused| {
            let reason = refused.map(|error| error.to_string()).or_else(|| impossible(request));
            let reason = reason.unwrap_or_else(|| "no kernel of the space fits".to_owned());
            EngineError::NoKernel { call: words(request), reason }
        })?;
        let mut warnings = Vec::new();
        if let Tuning::Records | Tuning::Measured { .. } = tuning {
            let shelf = Shelf::new(context, request, &mut warnings)?;
            if let Some(ranked) = shelf.find(request, &machine, &mut warnings) {
                return ranked.recorded(context, warnings);
            }
            if let Tuning::Measured { budget } = tuning
                && !request.is_empty()
                && epilogue.multiplied()
            {
                let alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
                // Another thread of this process may have measured it meanwhile.
                if let Some(ranked) = shelf.find(request, &machine, &mut warnings) {
                    return ranked.recorded(context, warnings);
                }
                let kernels = search(request, &machine, budget.max(1) as usize).ranked;
                let kernels = kernels.into_iter().map(|ranked| ranked.gemm).collect();
                let (loaded, chosen, times) = measure(context, (request, epilogue), kernels)?;
                drop(alone);
                shelf.keep(times, &mut warnings);
                return Ok(Tuned { loaded, chosen, warnings });
            }
        }
        let microseconds = predicted.measured.unwrap_or(predicted.prediction.microseconds);
        predicted.load(context, Chosen::Predicted { microseconds }, warnings)
    }
}

impl Ranked {
    fn load(
        self,
        context: &Arc<Context>,
        chosen: Chosen,
        warnings: Vec<CacheError>,
    ) -> Result<Tuned, EngineError> {
        let program = written(&self.gemm)?;
        Ok(Tuned { loaded: Loaded::load_in(context, self.gemm, program)?, chosen, warnings })
    }

    /// Loads the kernel of a record.
    fn recorded(self, context: &Arc<Context>, warnings: Vec<CacheError>) -> Result<Tuned, EngineError> {
        let microseconds = self.measured.unwrap_or(self.prediction.microseconds);
        self.load(context, Chosen::Recorded { microseconds }, warnings)
    }
}

/// Builds a kernel's program.
fn written(gemm: &AnyGemm) -> Result<crate::Program, EngineError> {
    let refused =
        |error: ptx::VerifyError| EngineError::Compile { kernel: gemm.entry_name(), log: error.to_string() };
    gemm.program().map_err(refused)
}

/// A description of a request, for errors.
fn words(request: &Request<'_>) -> String {
    let Problem { form, element, majors, epilogue, .. } = Problem::of(request);
    let crate::GemmProblem { m, n, k } = request.call.problem;
    let (form, layout) = (crate::spec::form_name(form), crate::spec::layout_name(majors));
    format!("{form} {m} x {n} x {k} {element} {layout} with epilogue {epilogue}")
}

/// Specs of kernels, and their times in microseconds.
type Times = Vec<(KernelSpec, f64)>;

/// Measures kernels. Returns the fastest, and the times of all that were measured in rounds.
fn measure<E: Arguments + Clone>(
    context: &Arc<Context>,
    (request, epilogue): (&Request<'_>, &E),
    kernels: Vec<AnyGemm>,
) -> Result<(Loaded, Chosen, Times), EngineError> {
    let count = kernels.len();
    // Work that the application has enqueued would run at the same time as what is timed.
    context.wait();
    let gpu = &mut Gpu::from_context(Arc::clone(context))?;
    let inputs = Inputs::new(gpu, request)?;
    let Screening { kernels, near, candidates } = Screening::run(gpu, (request, &inputs), epilogue, kernels)?;
    let turns = TURNS.take(gpu, &candidates, &mut |gpu, turn| turn.burst(gpu, REST, BURST))?;
    let time = |seconds: &Vec<f64>| median(seconds).map(|seconds| seconds * 1e6);
    let times = near.iter().zip(&turns).filter_map(|(&i, turns)| Some((&kernels[i].gemm, time(turns)?)));
    let times: Vec<(&AnyGemm, f64)> = times.collect();
    let best = times.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let none = || EngineError::NoKernel { call: words(request), reason: "none was measured".to_owned() };
    let &(gemm, microseconds) = best.ok_or_else(none)?;
    let program = written(gemm)?;
    let kernel = gpu.kernel(&program)?;
    let loaded = Loaded::of_program(gemm.clone(), program, kernel)?;
    let specs = times.iter().filter_map(|&(gemm, time)| Some((gemm.spec()?, time))).collect();
    Ok((loaded, Chosen::Measured { microseconds, kernels: count }, specs))
}

/// The records of a card: this process's, and those on disk.
struct Shelf {
    key: Key,
    problem: Problem,
    cache: Option<&'static crate::disk::Cache>,
}

impl Shelf {
    fn new(
        context: &Context,
        request: &Request<'_>,
        warnings: &mut Vec<CacheError>,
    ) -> Result<Self, EngineError> {
        let (cache, warning) = load::of_process()?;
        warnings.extend(warning);
        Ok(Self { key: context.key(Records::digest())?, problem: Problem::of(request), cache })
    }

    /// Accesses the records of this process.
    fn known<T>(&self, look: impl FnOnce(&mut Records) -> T) -> T {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        look(known.get_or_insert_default().entry(self.key.clone()).or_default())
    }

    /// The fastest measured kernel that can compute the call, from this process's records or else from disk.
    fn find(
        &self,
        request: &Request<'_>,
        machine: &Machine,
        warnings: &mut Vec<CacheError>,
    ) -> Option<Ranked> {
        let of_process = || {
            let times: Times = self.known(|records| {
                let measured = records.lookup(&self.problem).iter();
                measured.map(|of| (of.spec, of.microseconds)).collect()
            });
            measured(&request.known(Known::Measured(&times)), machine)
        };
        if let Some(ranked) = of_process() {
            return Some(ranked);
        }
        let (saved, unused) = Records::load(self.cache?, &self.key);
        // Report each warning once.
        warnings.extend(unused.into_iter().filter(|warning| !warnings.contains(warning)).collect::<Vec<_>>());
        self.known(|records| records.merge(saved));
        of_process()
    }

    /// Keeps measured times.
    fn keep(&self, times: Times, warnings: &mut Vec<CacheError>) {
        let mut own = Records::default();
        for (spec, microseconds) in times {
            warnings.extend(own.insert(self.problem.clone(), Measurement::now(spec, microseconds)).err());
        }
        self.known(|records| records.merge(own.clone()));
        if let Some(cache) = self.cache {
            // Unusable lines of the file were reported when it was read.
            warnings.extend(own.save(cache, &self.key).err());
        }
    }
}
