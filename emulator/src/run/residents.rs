//! Clusters that run at the same time and may wait for each other through global memory.
//!
//! A cluster runs until it ends, or until it only polls words that have not changed. Then it is set aside,
//! and another cluster begins or continues. The first one runs again once one of the polled words has
//! changed. So a cluster may wait for any other cluster of the grid, on one host thread or many. Under random
//! schedules the clusters of a small grid are also set aside at random moments.
//!
//! Each turn looks at every cluster that was set aside, about 0.1 us for each. So a grid of which thousands wait
//! at once takes time with the square of their number: 8000 that wait in a chain, 10 s.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::rounds::Outcome;
use crate::error::Failure;
use crate::launch::{Launch, Report};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::program::Program;
use crate::progress::Standing;
use crate::schedule::Options;
use crate::trap::Trap;

/// Largest number of clusters in a grid for which clusters that could continue are set aside. A cluster that
/// is set aside keeps its shared memory.
const MOST_YIELDING: u64 = 32;

/// How long an idle host thread sleeps before it looks for work again.
const LISTEN: Duration = Duration::from_micros(200);

/// Clusters that have not begun, and those set aside.
struct Queue<'p> {
    next: u64,
    waiting: VecDeque<(u64, Machine<'p>)>,
    /// Number of clusters that host threads are running.
    running: usize,
    /// Whether to begin a new cluster before one that was set aside.
    begin: bool,
    /// The failed cluster with the lowest index, and its fault.
    failed: Option<(u64, Box<Trap>)>,
    report: Report,
}

/// The clusters of one launch.
pub(crate) struct Residents<'p> {
    pub(crate) program: &'p Program,
    pub(crate) launch: &'p Launch,
    pub(crate) memory: &'p Memory,
    pub(crate) options: Options<'p>,
    clusters: u64,
    ctas: u64,
    queue: Mutex<Queue<'p>>,
    /// Notified when a cluster's turn is over.
    turned: Condvar,
}

impl<'p> Residents<'p> {
    pub(crate) fn new(
        program: &'p Program,
        launch: &'p Launch,
        memory: &'p Memory,
        options: Options<'p>,
        (clusters, ctas): (u64, u64),
    ) -> Self {
        let report = Report::default();
        let queue =
            Queue { next: 0, waiting: VecDeque::new(), running: 0, begin: true, failed: None, report };
        let (queue, turned) = (Mutex::new(queue), Condvar::new());
        Self { program, launch, memory, options, clusters, ctas, queue, turned }
    }

    /// Runs clusters until none is left to run. Any number of host threads may call this at the same time.
    pub(crate) fn work(&self) {
        while let Some((index, mut machine)) = self.take() {
            let outcome = machine.run(self.clusters <= MOST_YIELDING);
            let progress = &self.launch.progress;
            let outcome = match outcome {
                Ok(Outcome::Waits) if self.in_vain(&mut machine.standing) => Err(machine.hang()),
                outcome => outcome,
            };
            if matches!(outcome, Ok(Outcome::Waits | Outcome::Yields)) {
                self.set_aside(index, machine);
                std::thread::yield_now();
                continue;
            }
            if matches!(outcome, Ok(Outcome::Stopped)) {
                machine.finish();
                drop(self.turn_over());
                continue;
            }
            progress.goes_on(&mut machine.standing);
            progress.pauses(&mut machine.standing);
            machine.finish();
            self.ended(index, outcome.map(|_| machine.counts));
        }
    }

    /// Whether a cluster that only waited is hung: no cluster has made progress in many of its turns, and the
    /// turns of all other clusters are over too. It waits for these, as the host may suspend a thread for any
    /// time during a turn.
    fn in_vain(&self, standing: &mut Standing) -> bool {
        let progress = &self.launch.progress;
        if !progress.idles(standing) {
            return false;
        }
        let mut queue = self.queue();
        queue.running -= 1;
        self.turned.notify_all();
        while queue.running > 0 && queue.failed.is_none() && progress.stands(standing) {
            queue = self.turned.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.running += 1;
        queue.failed.is_none() && progress.stands(standing)
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue<'p>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next cluster to run: alternately a new one, and one that was set aside and has something to do.
    fn take(&self) -> Option<(u64, Machine<'p>)> {
        let mut queue = self.queue();
        loop {
            if self.options.is_stopped() {
                return None;
            }
            let limit = queue.failed.as_ref().map_or(self.clusters, |(index, _)| *index);
            if queue.failed.is_some() {
                // Clusters after the failed one may wait for it, so they are dropped.
                queue.waiting.retain(|(index, _)| *index < limit);
            }
            let new = queue.next < limit;
            if new && queue.begin {
                break;
            }
            let stirred = queue.waiting.iter().position(|(_, machine)| machine.is_stirred());
            // If no cluster has anything to do and none is running, the waiting clusters poll once more in
            // turn.
            let idle = !new && queue.running == 0;
            if let Some(found) = queue.waiting.remove(stirred.unwrap_or(if idle { 0 } else { usize::MAX })) {
                queue.begin = true;
                queue.running += 1;
                return Some(found);
            }
            if new {
                break;
            }
            if queue.waiting.is_empty() {
                return None;
            }
            let waited = self.turned.wait_timeout(queue, LISTEN);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let index = queue.next;
        queue.next += 1;
        queue.running += 1;
        queue.begin = false;
        drop(queue);
        let mut machine = Machine::new(self.program, self.launch, self.memory, self.options, index);
        self.launch.progress.goes_on(&mut machine.standing);
        Some((index, machine))
    }

    fn set_aside(&self, index: u64, machine: Machine<'p>) {
        let mut queue = self.turn_over();
        // After a failure, waiting clusters are dropped.
        if queue.failed.is_none() {
            queue.waiting.push_back((index, machine));
        }
    }

    /// Called when a host thread has run a cluster for a turn.
    fn turn_over(&self) -> std::sync::MutexGuard<'_, Queue<'p>> {
        let mut queue = self.queue();
        queue.running -= 1;
        self.turned.notify_all();
        queue
    }

    fn ended(&self, index: u64, outcome: Result<Report, Box<Trap>>) {
        let mut queue = self.turn_over();
        match outcome {
            Ok(counts) => {
                queue.report = queue.report.with(counts);
                let ctas = queue.report.ctas;
                drop(queue);
                if let Some(progress) = self.options.progress {
                    progress(ctas, self.ctas);
                }
            }
            Err(trap) => {
                if queue.failed.as_ref().is_none_or(|(first, _)| index < *first) {
                    queue.failed = Some((index, trap));
                }
            }
        }
    }

    /// The result of the launch, after all host threads have returned from [`Residents::work`].
    pub(crate) fn outcome(self) -> Result<Report, Failure> {
        let queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        match queue.failed {
            Some((_, trap)) => Err(Failure::Trap(trap)),
            None if queue.report.ctas < self.ctas => {
                Err(Failure::Stopped { ctas: queue.report.ctas, of: self.ctas })
            }
            None => Ok(queue.report),
        }
    }
}
