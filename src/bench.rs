//! How fast kernels of any family are on a GPU, burst and sustained: [`bench()`] checks them, then times them in turns on the same inputs.

use core::fmt;
use std::time::Duration;

use kernel::driver::tune::{Candidate, Inputs};
use kernel::{EngineError, Family, Gpu};
use peers::{Monitor, Readings};
use serde::{Deserialize, Serialize};

use crate::verify::family::{Agreed, Checks, FamilyError};

/// The state of the GPU during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerState {
    /// A short time after a rest.
    Burst,
    /// Busy for seconds, so that its power limit decides.
    Sustained,
}

impl PowerState {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Sustained => "sustained",
        }
    }
}

/// The durations of a measurement.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// The states, in the order in which they are measured.
    pub states: Vec<PowerState>,
    /// Number of turns of each candidate.
    pub turns: usize,
    /// Rest before a burst.
    pub rest: Duration,
    /// Seconds of a burst.
    pub burst: f64,
    /// After two turns, a kernel of ours that is slower than our best by this factor gets no further turns.
    pub near: Option<f64>,
}

/// Duration of the same work before a sustained measurement, in seconds.
const WARM_UP: f64 = 0.4;

/// Duration of a sustained measurement, in seconds.
const SUSTAINED: f64 = 0.3;

/// The turns of a candidate, each with its rate.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// TFLOP/s of each turn.
    pub tflops: Vec<f64>,
    /// Clock and power in each sustained turn, if they can be read.
    pub readings: Vec<Readings>,
}

impl Rates {
    /// Minimum, median and maximum of TFLOP/s.
    pub fn spread(&self) -> [f64; 3] {
        let mut sorted = self.tflops.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
        [at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1))]
    }

    /// MHz and watts, means over the turns.
    pub fn card(&self) -> Option<[f64; 2]> {
        let count = self.readings.len() as f64;
        let mean = |part: fn(&Readings) -> f64| self.readings.iter().map(part).sum::<f64>() / count;
        (count > 0.0).then(|| [mean(|readings| readings.megahertz), mean(|readings| readings.watts)])
    }
}

/// Both states, in seven turns of ten milliseconds after a rest.
impl Default for Protocol {
    fn default() -> Self {
        let states = vec![PowerState::Burst, PowerState::Sustained];
        Self { states, turns: 7, rest: Duration::from_millis(120), burst: 0.010, near: None }
    }
}

impl Protocol {
    /// Measures every candidate in every turn of a state. `step` is called after each measurement.
    ///
    /// # Errors
    /// The driver's.
    pub fn measure(
        &self,
        gpu: &mut Gpu,
        monitor: Option<&Monitor>,
        candidates: &[Candidate<'_>],
        state: PowerState,
        step: &dyn Fn(),
    ) -> Result<Vec<Rates>, EngineError> {
        let mut readings = vec![Vec::new(); candidates.len()];
        let turns = kernel::driver::tune::Turns { count: self.turns, near: self.near };
        let seconds = turns.take(gpu, candidates, &mut |gpu, turn| {
            let each = match state {
                PowerState::Burst => turn.burst(gpu, self.rest, self.burst)?,
                PowerState::Sustained => {
                    turn.run(gpu, WARM_UP)?;
                    let mut work = || turn.run(gpu, SUSTAINED);
                    let (each, read) = match monitor {
                        Some(monitor) => monitor.watch(work),
                        None => (work(), None),
                    };
                    readings[turn.candidate].extend(read);
                    each?
                }
            };
            step();
            Ok(each)
        })?;
        let all = candidates.iter().zip(seconds).zip(readings);
        let turns = all.map(|((candidate, seconds), readings)| {
            let tflops = seconds.into_iter().map(|each| candidate.operations / each / 1e12).collect();
            Rates { tflops, readings }
        });
        Ok(turns.collect())
    }
}

/// Number of results of a kernel that are compared with the reference before it is timed.
const CHECKED: usize = 64;

/// A kernel that computes what it must, and how fast.
#[derive(Clone, Debug)]
pub struct Rated<K> {
    /// The kernel.
    pub kernel: K,
    /// What was compared.
    pub agreed: Agreed,
    /// Number of its clusters that are resident at once.
    pub resident: u32,
    /// Its turns in each state of the protocol.
    pub rates: Vec<(PowerState, Rates)>,
}

/// Why kernels were not timed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError<K: fmt::Debug> {
    /// A kernel is wrong, or cannot compute the request.
    #[error("{kernel:?}: {source}")]
    Kernel {
        /// The kernel.
        kernel: K,
        /// What is wrong with it.
        source: FamilyError,
    },
    /// There is nothing to compute.
    #[error("an empty product takes no time")]
    Empty,
    /// The driver's.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Times kernels of a request in turns on the same random inputs ([`Inputs`]), after a check of what each computes.
///
/// # Errors
/// A kernel is wrong, or cannot compute the request; there is nothing to compute; the driver's.
pub fn bench<K: Family>(
    gpu: &mut Gpu,
    kernels: &[K],
    request: &K::Request<'_>,
    protocol: &Protocol,
    monitor: Option<&Monitor>,
) -> Result<Vec<Rated<K>>, BenchError<K>> {
    let Some(first) = kernels.first() else { return Ok(Vec::new()) };
    let wrong = |kernel: &K| {
        let kernel = kernel.clone();
        move |source| BenchError::Kernel { kernel, source }
    };
    let checks = Checks::new(gpu, first, request, (0, CHECKED)).map_err(wrong(first))?;
    let check = |kernel: &K| checks.check(gpu, kernel, request).map_err(wrong(kernel));
    let agreed: Vec<_> = kernels.iter().map(check).collect::<Result<_, _>>()?;
    checks.free(gpu)?;
    let inputs = Inputs::of(gpu, kernels, request)?;
    let operations = K::operations(request);
    let ready = |kernel| Candidate::of(gpu, kernel, inputs.sets(), operations);
    let candidates: Vec<_> = kernels.iter().map(ready).collect::<Result<_, _>>()?;
    if candidates.iter().any(|of| of.launches.is_empty()) {
        return Err(BenchError::Empty);
    }
    let rated = kernels.iter().zip(&candidates).zip(agreed).map(|((kernel, of), agreed)| Rated {
        kernel: kernel.clone(),
        agreed,
        resident: of.resident.unwrap_or(0),
        rates: Vec::new(),
    });
    let mut rated: Vec<_> = rated.collect();
    for &state in &protocol.states {
        let rates = protocol.measure(gpu, monitor, &candidates, state, &|| ())?;
        rated.iter_mut().zip(rates).for_each(|(of, rates)| of.rates.push((state, rates)));
    }
    drop(candidates);
    inputs.free(gpu)?;
    Ok(rated)
}

#[cfg(test)]
mod tests {
    use peers::Readings;

    use super::Rates;

    #[test]
    fn the_spread_is_least_median_and_most() {
        for (tflops, want) in [
            (vec![], [0.0, 0.0, 0.0]),
            (vec![5.0], [5.0, 5.0, 5.0]),
            (vec![3.0, 1.0, 2.0], [1.0, 2.0, 3.0]),
            (vec![4.0, 1.0, 3.0, 2.0], [1.0, 3.0, 4.0]),
        ] {
            assert_eq!(Rates { tflops: tflops.clone(), readings: vec![] }.spread(), want, "{tflops:?}");
        }
    }

    #[test]
    fn the_card_is_averaged_over_the_turns() {
        let readings = |megahertz, watts| Readings { megahertz, watts, count: 3 };
        let turns =
            Rates { tflops: vec![], readings: vec![readings(1000.0, 500.0), readings(1400.0, 700.0)] };
        assert_eq!(turns.card(), Some([1200.0, 600.0]));
        assert_eq!(Rates::default().card(), None);
    }
}
