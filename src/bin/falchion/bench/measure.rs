//! Taking turns: how fast each candidate is, burst and sustained.

use std::time::Duration;

use kernel::Gpu;
use kernel::driver::{Enqueue, Monitor, Readings};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The state the card is in while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// A short while after a rest.
    Burst,
    /// Busy for long, so that its power limit decides.
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

/// How long what takes.
#[derive(Clone, Debug)]
pub(super) struct Protocol {
    pub(super) states: Vec<State>,
    /// Turns that each candidate gets.
    pub(super) turns: usize,
    /// Rest before a burst.
    pub(super) rest: Duration,
    /// Seconds of a burst.
    pub(super) burst: f64,
    /// After two turns, whoever of ours is so many times slower than our best gets no further ones.
    pub(super) near: Option<f64>,
}

/// Seconds of the same work before a sustained measurement.
const WARM_UP: f64 = 0.4;

/// Seconds of a sustained measurement.
const SUSTAINED: f64 = 0.3;

/// What is timed.
pub(super) struct Candidate<'a> {
    pub(super) name: String,
    /// One launch a set.
    pub(super) launches: Vec<Box<dyn Enqueue + 'a>>,
    pub(super) operations: f64,
    /// How many of the kernel's clusters run at once, for our kernels.
    pub(super) slots: Option<u32>,
}

/// A candidate's turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    /// TFLOP/s of each turn.
    pub(super) tflops: Vec<f64>,
    /// Clock and power in each sustained turn, where they can be read.
    pub(super) readings: Vec<Readings>,
}

impl Turns {
    /// Least, median and most TFLOP/s.
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
    /// Measures every candidate in every turn of a state; `step` is called after each.
    pub(super) fn measure(
        &self,
        gpu: &mut Gpu,
        monitor: Option<&Monitor>,
        candidates: &[Candidate<'_>],
        state: State,
        step: &dyn Fn(),
    ) -> Result<Vec<Turns>, Failure> {
        let launches: Vec<Vec<&dyn Enqueue>> = candidates
            .iter()
            .map(|candidate| candidate.launches.iter().map(AsRef::as_ref).collect())
            .collect();
        let mut seconds = Vec::new();
        for launches in &launches {
            gpu.time_many(launches, 2)?;
            seconds.push(gpu.time_many(launches, 3)?.max(1e-7));
        }
        let mut turns = vec![Turns::default(); candidates.len()];
        for turn in 0..self.turns.max(1) {
            let far = self.far(turn, candidates, &turns);
            for (i, candidate) in candidates.iter().enumerate().filter(|(i, _)| !far[*i]) {
                let count = |span: f64| ((span / seconds[i]) as usize).clamp(3, 20_000);
                let each = match state {
                    State::Burst => {
                        std::thread::sleep(self.rest);
                        gpu.time_many(&launches[i], count(self.burst))?
                    }
                    State::Sustained => {
                        gpu.time_many(&launches[i], count(WARM_UP))?;
                        let mut work = || gpu.time_many(&launches[i], count(SUSTAINED));
                        let (each, readings) = match monitor {
                            Some(monitor) => monitor.watch(work),
                            None => (work(), None),
                        };
                        turns[i].readings.extend(readings);
                        each?
                    }
                };
                turns[i].tflops.push(candidate.operations / each / 1e12);
                step();
            }
        }
        Ok(turns)
    }

    /// Who gets no further turns.
    fn far(&self, turn: usize, candidates: &[Candidate<'_>], turns: &[Turns]) -> Vec<bool> {
        let most = |turns: &Turns| turns.spread()[2];
        let ours = || candidates.iter().zip(turns).filter(|(candidate, _)| candidate.slots.is_some());
        let best = ours().map(|(_, turns)| most(turns)).fold(0.0, f64::max);
        let far = |(candidate, turns): (&Candidate<'_>, &Turns)| {
            let near = self.near.is_none_or(|near| most(turns) * near >= best);
            turn >= 2 && !near && candidate.slots.is_some()
        };
        candidates.iter().zip(turns).map(far).collect()
    }
}

#[cfg(test)]
mod tests {
    use kernel::driver::Readings;

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
