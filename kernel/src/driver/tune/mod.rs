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
//! The kernels that [`search`](crate::search) ranks first, as in `falchion tune`. Each gets a few launches after a rest;
//! then those near the best are measured alternately, in several rounds ([`Turns`]). Inputs are random. If
//! one set of inputs would stay in the L2 cache, several sets are used, one per launch. Matrices, workspaces
//! and the memory that the epilogue accesses are allocated for the measurement and freed after it. None of
//! the caller's memory is read or written.
//!
//! The rest of the module is for measuring tools of your own: [`Inputs`] of a request, a [`Screening`] of its
//! kernels, and [`Turns`].

mod calibrate;
mod inputs;
mod screening;
mod shelf;
mod stop;
mod turns;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use inputs::Inputs;
pub use screening::{Screening, Timed};
pub use shelf::times_kept;
pub use stop::stop_measuring;
pub use turns::{Candidate, Turn, Turns, median};

use shelf::Shelf;
use stop::{Running, go_on};

use super::context::Context;
use super::gpu::Gpu;
use super::loaded::Loaded;
use crate::arguments::Arguments;
use crate::disk::CacheError;
use crate::error::EngineError;
use crate::family::{Family, Predicted};
use crate::gemm::AnyGemm;
use crate::kernel::all_written;
use crate::program::Program;
use crate::select::{Machine, Request};

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
    /// Choose as [`fastest`](crate::fastest) does: by the model, and by the measurements that the [`Request`] carries.
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
pub struct Tuned<K = AnyGemm> {
    /// The kernel.
    pub loaded: Loaded<K>,
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
    /// [`fastest`](crate::fastest) chose it.
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
        let measurable = !request.is_empty() && epilogue.multiplied();
        choose(context, request, tuning, measurable, |gpu, kernels| {
            let inputs = Inputs::with_epilogue(gpu, request, epilogue)?;
            Screening::run(gpu, &inputs, request.operations(), kernels)
        })
    }
}

/// The kernel of a family for a request, loaded in a context: as [`Loaded::tuned`].
///
/// # Errors
/// As [`Loaded::tuned`].
pub fn tuned<K: Family>(
    context: &Arc<Context>,
    request: &K::Request<'_>,
    tuning: Tuning,
) -> Result<Tuned<K>, EngineError> {
    let measurable = K::operations(request) > 0.0;
    choose(context, request, tuning, measurable, |gpu, kernels: Vec<K>| {
        let inputs = Inputs::of(gpu, &kernels, request)?;
        Screening::run(gpu, &inputs, K::operations(request), kernels)
    })
}

/// The fastest of the kernels that were measured for a request on a context's card, by this process or an earlier one, and that can
/// compute it. Nothing is measured or loaded. Records that cannot be read count as none.
///
/// # Errors
/// `FALCHION_CACHE` names a folder that cannot be made, or a driver error.
pub fn recorded<K: Family>(
    context: &Context,
    request: &K::Request<'_>,
) -> Result<Option<Predicted<K>>, EngineError> {
    let mut warnings = Vec::new();
    Shelf::<K>::new(context, &mut warnings)?.find(request, || context.machine(), &mut warnings)
}

/// The kernel to take for a request on a context's card without measuring now: the fastest that was [recorded], or else the one that the
/// model takes for the fastest. The inner error says why there is none.
///
/// # Errors
/// As [`recorded`].
pub fn chosen<K: Family>(
    context: &Context,
    request: &K::Request<'_>,
    machine: &Machine,
) -> Result<Result<Predicted<K>, String>, EngineError> {
    Ok(match recorded(context, request)? {
        Some(of) => Ok(Predicted { reason: RECORDED.to_owned(), ..of }),
        None => K::first(request, machine),
    })
}

/// Why a kernel of the records is taken.
pub const RECORDED: &str = "the fastest of those that were measured on this card";

/// Chooses a kernel; `screen` compares some.
fn choose<K: Family>(
    context: &Arc<Context>,
    request: &K::Request<'_>,
    tuning: Tuning,
    measurable: bool,
    screen: impl FnOnce(&mut Gpu, Vec<K>) -> Result<Screening<K>, EngineError>,
) -> Result<Tuned<K>, EngineError> {
    let machine = context.machine()?;
    let none = |reason| EngineError::NoKernel { call: K::problem(request).to_string(), reason };
    // Before anything is measured, reject calls that no kernel can compute.
    let predicted = K::first(request, &machine).map_err(none)?;
    let mut warnings = Vec::new();
    if let Tuning::Records | Tuning::Measured { .. } = tuning {
        let shelf = Shelf::<K>::new(context, &mut warnings)?;
        let find = |warnings: &mut Vec<CacheError>| shelf.find(request, || Ok(machine), warnings);
        if let Some(recorded) = find(&mut warnings)? {
            return load(context, recorded, true, warnings);
        }
        if let Tuning::Measured { budget } = tuning
            && measurable
        {
            let alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
            let running = Running::new();
            // Another thread of this process may have measured it meanwhile.
            if let Some(recorded) = find(&mut warnings)? {
                return load(context, recorded, true, warnings);
            }
            let kernels = K::ranked(request, &machine, budget.max(1) as usize).map_err(none)?;
            let kernels = kernels.into_iter().map(|predicted| predicted.kernel).collect();
            let best = measure(context, kernels, screen)?;
            drop((running, alone));
            let (loaded, chosen, times) = best.ok_or_else(|| none("none was measured".to_owned()))?;
            shelf.keep(&K::problem(request), times, &mut warnings);
            return Ok(Tuned { loaded, chosen, warnings });
        }
    }
    load(context, predicted, false, warnings)
}

/// Loads a kernel that was recorded, or that was predicted.
fn load<K: Family>(
    context: &Arc<Context>,
    Predicted { kernel, microseconds, .. }: Predicted<K>,
    recorded: bool,
    warnings: Vec<CacheError>,
) -> Result<Tuned<K>, EngineError> {
    let programs = all_written(&kernel)?;
    let chosen =
        if recorded { Chosen::Recorded { microseconds } } else { Chosen::Predicted { microseconds } };
    Ok(Tuned { loaded: Loaded::load_in(context, kernel, programs)?, chosen, warnings })
}

/// Kernels, and their times in microseconds.
type Times<K> = Vec<(K, f64)>;

/// The fastest of the kernels that were measured, and the times of all that were measured in rounds.
type Measured<K> = (Loaded<K>, Chosen, Times<K>);

/// Measures kernels. `None` if there was nothing to launch.
fn measure<K: Family>(
    context: &Arc<Context>,
    kernels: Vec<K>,
    screen: impl FnOnce(&mut Gpu, Vec<K>) -> Result<Screening<K>, EngineError>,
) -> Result<Option<Measured<K>>, EngineError> {
    let count = kernels.len();
    // Work that the application has enqueued would run at the same time as what is timed.
    context.wait();
    let gpu = &mut Gpu::from_context(Arc::clone(context))?;
    let Screening { kernels, near, candidates } = screen(gpu, kernels)?;
    let turns = TURNS.take(gpu, &candidates, &mut |gpu, turn| {
        go_on()?;
        turn.burst(gpu, REST, BURST)
    })?;
    let time = |seconds: &Vec<f64>| median(seconds).map(|seconds| seconds * 1e6);
    let times = near.iter().zip(&turns).filter_map(|(&i, turns)| Some((&kernels[i].kernel, time(turns)?)));
    let times: Vec<(&K, f64)> = times.collect();
    // Of kernels that take as long, the one that records name first.
    let text = |of: &K| of.spec().map(|spec| spec.to_string());
    let order = |a: &&(&K, f64), b: &&(&K, f64)| a.1.total_cmp(&b.1).then_with(|| text(a.0).cmp(&text(b.0)));
    let Some(&(kernel, microseconds)) = times.iter().min_by(order) else {
        return Ok(None);
    };
    let compiled = |program: Program| {
        let compiled = gpu.kernel(&program)?;
        Ok((program, compiled))
    };
    let programs = all_written(kernel)?.into_iter().map(compiled).collect::<Result<_, EngineError>>()?;
    let loaded = Loaded::of_programs(kernel.clone(), programs)?;
    let times = times.iter().map(|&(kernel, time)| (kernel.clone(), time)).collect();
    Ok(Some((loaded, Chosen::Measured { microseconds, kernels: count }, times)))
}
