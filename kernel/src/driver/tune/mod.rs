//! Tuning: the kernel for a call, measured on this card, from records, or as the model says.
//!
//! [`Loaded::tuned`] is all that most need:
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
//!     // Seconds the first time, then a look into a file; keep what it gives.
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
//! The kernels that [`search`] ranks first, as `falchion tune` does: each gets a few launches after a rest, and those near the best take
//! turns. Inputs are random, and change from launch to launch where one set would stay in the L2 cache. Matrices, workspaces and what the
//! epilogue reaches are memory that is allocated for the measurement and given back after it. Nothing of the caller's is read or
//! written.
//!
//! The rest of the module is what measures, for tools of your own: [`Inputs`] of a request, a [`Heat`] of its kernels, and [`Turns`].

mod data;
mod heat;
mod inputs;
mod shadow;
mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use data::random;
pub use heat::{Heat, Timed};
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
    /// What was measured for the call on this card: by this process, or by one before that kept its records. Where nothing was, so many
    /// kernels are measured now, one at least, and the records are kept. It takes seconds, and memory for the matrices of the call once
    /// more; other work on the card makes it less exact.
    Measured {
        /// How many kernels are measured: those that the model ranks first.
        budget: u32,
    },
    /// What was measured for the call on this card, and nothing is measured now. Where nothing was, as [`Model`](Self::Model).
    Records,
    /// As [`fastest`] chooses: by the model, and by what the [`Request`] knows. Nothing is measured, and nothing on disk is read.
    Model,
}

/// [`Tuning::Measured`] with a budget of 24 kernels.
impl Default for Tuning {
    fn default() -> Self {
        Self::Measured { budget: 24 }
    }
}

/// A kernel, ready to be launched, and why it is this one.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tuned {
    /// The kernel.
    pub loaded: Loaded,
    /// Why it is this one.
    pub chosen: Chosen,
    /// What was wrong with the records on disk: the kernel is right all the same, and may be measured once more.
    pub warnings: Vec<CacheError>,
}

/// Why a kernel was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Chosen {
    /// It was the fastest of those that were measured just now.
    Measured {
        /// Microseconds of a launch.
        microseconds: f64,
        /// How many kernels were measured.
        kernels: usize,
    },
    /// It was the fastest of those that were measured before, and can do the call.
    Recorded {
        /// Microseconds of a launch.
        microseconds: f64,
    },
    /// [`fastest`] chose it.
    Predicted {
        /// Microseconds of a launch, as the model says, or as the request knows.
        microseconds: f64,
    },
}

/// Turns of a measurement: each near the best gets five.
const TURNS: Turns = Turns { count: 5, near: Some(1.04) };

/// A rest before a burst.
pub const REST: Duration = Duration::from_millis(80);

/// Seconds of a burst.
pub const BURST: f64 = 0.006;

/// What this process knows of each card, also where no folder keeps it.
static KNOWN: Mutex<Option<HashMap<Key, Records>>> = Mutex::new(None);

/// One measurement of the process at a time: others would disturb it.
static MEASURING: Mutex<()> = Mutex::new(());

impl Loaded {
    /// The kernel for a request, loaded into a context: measured at the first use, from records, or by the model, as `tuning` says. Keep
    /// it for all calls of the request's shape.
    ///
    /// A request of a fused epilogue is not measured without the epilogue's arguments: [`tuned_with`](Self::tuned_with) takes them.
    ///
    /// Measuring allocates and waits for the device: do it while no stream of the context is captured.
    ///
    /// # Errors
    /// No kernel can do the call, with the rule that it breaks; `FALCHION_CACHE` names a folder that cannot be made; or a driver error, so
    /// too little memory to measure in. Records that cannot be read or kept are [`Tuned::warnings`].
    pub fn tuned(
        context: &Arc<Context>,
        request: &Request<'_>,
        tuning: Tuning,
    ) -> Result<Tuned, EngineError> {
        Self::tuned_with(context, request, &request.call.epilogue, tuning)
    }

    /// The same with arguments of the request's epilogue, for example a [`Tree`](crate::Tree)'s. No memory that they name is read or
    /// written.
    ///
    /// # Errors
    /// As [`tuned`](Self::tuned), or the epilogue refuses its arguments.
    pub fn tuned_with<E: Arguments + Clone>(
        context: &Arc<Context>,
        request: &Request<'_>,
        epilogue: &E,
        tuning: Tuning,
    ) -> Result<Tuned, EngineError> {
        let machine = Machine::h200();
        // Before anything is measured: what nobody can do is refused.
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
                // Somebody else of this process may have measured it meanwhile.
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

    /// Loads what a record is of.
    fn recorded(self, context: &Arc<Context>, warnings: Vec<CacheError>) -> Result<Tuned, EngineError> {
        let microseconds = self.measured.unwrap_or(self.prediction.microseconds);
        self.load(context, Chosen::Recorded { microseconds }, warnings)
    }
}

/// A kernel's program.
fn written(gemm: &AnyGemm) -> Result<crate::Program, EngineError> {
    let refused =
        |error: ptx::VerifyError| EngineError::Compile { kernel: gemm.entry_name(), log: error.to_string() };
    gemm.program().map_err(refused)
}

/// A request in words, for errors.
fn words(request: &Request<'_>) -> String {
    let Problem { form, element, majors, epilogue, .. } = Problem::of(request);
    let crate::GemmProblem { m, n, k } = request.call.problem;
    let (form, layout) = (crate::spec::form_name(form), crate::spec::layout_name(majors));
    format!("{form} {m} x {n} x {k} {element} {layout} with epilogue {epilogue}")
}

/// Microseconds of kernels.
type Times = Vec<(KernelSpec, f64)>;

/// Measures kernels, and gives the fastest with the times of all that had turns.
fn measure<E: Arguments + Clone>(
    context: &Arc<Context>,
    (request, epilogue): (&Request<'_>, &E),
    kernels: Vec<AnyGemm>,
) -> Result<(Loaded, Chosen, Times), EngineError> {
    let count = kernels.len();
    // What the application has enqueued would run beside what is timed.
    context.wait();
    let gpu = &mut Gpu::from_context(Arc::clone(context))?;
    let inputs = Inputs::new(gpu, request)?;
    let Heat { kernels, near, candidates } = Heat::run(gpu, (request, &inputs), epilogue, kernels)?;
    let turns = TURNS.take(gpu, &candidates, &mut |gpu, turn| turn.burst(gpu, REST, BURST))?;
    let time = |seconds: &Vec<f64>| median(seconds).map(|seconds| seconds * 1e6);
    let times = near.iter().zip(&turns).filter_map(|(&i, turns)| Some((&kernels[i].gemm, time(turns)?)));
    let times: Vec<(&AnyGemm, f64)> = times.collect();
    let best = times.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let none = || EngineError::NoKernel { call: words(request), reason: "none was measured".to_owned() };
    let &(gemm, microseconds) = best.ok_or_else(none)?;
    let program = written(gemm)?;
    let kernel = gpu.kernel(&program)?;
    let loaded = Loaded::of_kernel(gemm.clone(), program, kernel)?;
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

    /// What this process knows.
    fn known<T>(&self, look: impl FnOnce(&mut Records) -> T) -> T {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        look(known.get_or_insert_default().entry(self.key.clone()).or_default())
    }

    /// The fastest kernel that was measured and can do the call: one that this process knows, or else one on disk.
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
        // What is wrong is said once.
        warnings.extend(unused.into_iter().filter(|warning| !warnings.contains(warning)).collect::<Vec<_>>());
        self.known(|records| records.merge(saved));
        of_process()
    }

    /// Keeps what was measured.
    fn keep(&self, times: Times, warnings: &mut Vec<CacheError>) {
        let mut own = Records::default();
        for (spec, microseconds) in times {
            warnings.extend(own.insert(self.problem.clone(), Measurement::now(spec, microseconds)).err());
        }
        self.known(|records| records.merge(own.clone()));
        if let Some(cache) = self.cache {
            // What of the file cannot be used was said when it was read.
            warnings.extend(own.save(cache, &self.key).err());
        }
    }
}
