//! Measures how fast each candidate is, burst and sustained. Candidates alternate.

use std::time::Duration;

use kernel::Gpu;
use kernel::driver::tune::Candidate;
use peers::{Monitor, Readings};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The state of the GPU during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// A short time after a rest.
    Burst,
    /// Busy for seconds, so that its power limit decides.
    Sustained,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Sustained => "sustained",
        }
    }
}

/// The durations of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Protocol {
    pub(super) states: Vec<State>,
    /// Number of turns of each candidate.
    pub(super) turns: usize,
    /// Rest before a burst.
    pub(super) rest: Duration,
    /// Seconds of a burst.
    pub(super) burst: f64,
    /// After two turns, a kernel of ours that is slower than our best by this factor gets no further turns.
    pub(super) near: Option<f64>,
}

/// Duration of the same work before a sustained measurement, in seconds.
const WARM_UP: f64 = 0.4;

/// Duration of a sustained measurement, in seconds.
const SUSTAINED: f64 = 0.3;

/// The turns of a candidate.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    /// TFLOP/s of each turn.
    pub(super) tflops: Vec<f64>,
    /// Clock and power in each sustained turn, if they can be read.
    pub(super) readings: Vec<Readings>,
}

impl Turns {
    /// Minimum, median and maximum of TFLOP/s.
    pub(super) fn spread(&self) -> [f64; 3] {
        let mut sorted = self.tflops.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
        [at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1))]
    }

    /// MHz and watts, means over the turns.
    pub(super) fn card(&self) -> Option<[f64; 2]> {
        let count = self.readings.len() as f64;
        let mean = |part: fn(&Readings) -> f64| self.readings.iter().map(part).sum::<f64>() / count;
        (count > 0.0).then(|| [mean(|readings| readings.megahertz), mean(|readings| readings.watts)])
    }
}

impl Protocol {
    /// Measures every candidate in every turn of a state. `step` is called after each measurement.
    pub(super) fn measure(
        &self,
        gpu: &mut Gpu,
        monitor: Option<&Monitor>,
        candidates: &[Candidate<'_>],
        state: State,
        step: &dyn Fn(),
    ) -> Result<Vec<Turns>, Failure> {
        let mut readings = vec![Vec::new(); candidates.len()];
        let turns = kernel::driver::tune::Turns { count: self.turns, near: self.near };
        let seconds = turns.take(gpu, candidates, &mut |gpu, turn| {
            let each = match state {
                State::Burst => turn.burst(gpu, self.rest, self.burst)?,
                State::Sustained => {
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
            Turns { tflops, readings }
        });
        Ok(turns.collect())
    }
}

#[cfg(test)]
mod tests {
    use peers::Readings;

    use super::Turns;

    #[test]
    fn the_spread_is_least_median_and_most() {
        for (tflops, want) in [
            (vec![], [0.0, 0.0, 0.0]),
            (vec![5.0], [5.0, 5.0, 5.0]),
            (vec![3.0, 1.0, 2.0], [1.0, 2.0, 3.0]),
            (vec![4.0, 1.0, 3.0, 2.0], [1.0, 3.0, 4.0]),
        ] {
            assert_eq!(Turns { tflops: tflops.clone(), readings: vec![] }.spread(), want, "{tflops:?}");
        }
    }

    #[test]
    fn the_card_is_averaged_over_the_turns() {
        let readings = |megahertz, watts| Readings { megahertz, watts, count: 3 };
        let turns =
            Turns { tflops: vec![], readings: vec![readings(1000.0, 500.0), readings(1400.0, 700.0)] };
        assert_eq!(turns.card(), Some([1200.0, 600.0]));
        assert_eq!(Turns::default().card(), None);
    }
}
