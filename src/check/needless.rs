//! Which synchronising statements of a kernel order nothing in a launch that is not ordered without them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use emulator::{Meetings, Met, Schedule};
use ptx::mutate::Mutation;

use super::CheckError;
use super::run::{Trial, Watch};

/// Number of schedules under which meetings are collected.
const SCHEDULES: usize = 6;

/// What the statements of the unbroken kernels order.
pub(super) struct Needs<'a> {
    trial: &'a Trial<'a>,
    schedules: &'a [(Schedule, u64)],
    fuel: u64,
    watch: Watch<'a>,
    /// What meets in each kernel, once somebody has asked.
    met: Mutex<HashMap<usize, Arc<Met>>>,
}

impl<'a> Needs<'a> {
    pub(super) fn new(
        trial: &'a Trial<'a>,
        (schedules, fuel): (&'a [(Schedule, u64)], u64),
        watch: Watch<'a>,
    ) -> Self {
        let schedules = &schedules[..schedules.len().min(SCHEDULES)];
        Self { trial, schedules, fuel, watch, met: Mutex::default() }
    }

    /// Whether a statement of a kernel is needless: without it no two statements meet that do not meet with it. The mutant is a launch
    /// in which no schedule finds anything wrong.
    ///
    /// Fences order what one proxy or thread sees, of which [`Meetings`] know nothing: they are never needless.
    pub(super) fn is_needless(
        &self,
        kernel: usize,
        (mutation, mutant): (&Mutation, &Trial<'_>),
    ) -> Result<bool, CheckError> {
        if mutation.target.contains("fence") {
            return Ok(false);
        }
        let with = {
            let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
            match met.get(&kernel) {
                Some(met) => Arc::clone(met),
                None => {
                    let new = Arc::new(self.meetings(kernel, self.trial)?);
                    met.insert(kernel, Arc::clone(&new));
                    new
                }
            }
        };
        let without = self.meetings(kernel, mutant)?;
        Ok(without.iter().all(|(pair, places)| with.get(pair).is_some_and(|known| places.is_subset(known))))
    }

    fn meetings(&self, kernel: usize, trial: &Trial<'_>) -> Result<Met, CheckError> {
        let meetings = Meetings::new();
        let watch = Watch { meetings: Some((kernel, &meetings)), ..self.watch };
        for &by in self.schedules {
            trial.run(by, self.fuel, watch)?;
        }
        Ok(meetings.into_met())
    }
}
