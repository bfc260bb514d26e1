//! Clusters that run at the same time and may wait for each other through global memory.
//!
//! A cluster runs until it ends, or until it only polls words that have not changed. Then it is set aside,
//! and another cluster begins or continues. The first one runs again once one of the polled words has
//! changed. So a cluster may wait for any other cluster of the grid, on one host thread or many. Under random
//! schedules the clusters of a small grid are also set aside at random moments.
//!
//! Several launches may run at the same time, each on a GPU of its own or after the one before on its GPU. When a launch
//! begins, the others may have done anything or nothing.
//!
//! Each turn looks at every cluster that was set aside, about 0.1 us for each. So a grid of which thousands wait
//! at once takes time with the square of their number: 8000 that wait in a chain, 10 s.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::rounds::Outcome;
use crate::error::Failure;
use crate::launch::{Common, Launch, Report};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::program::Program;
use crate::progress::Standing;
use crate::schedule::{Options, Random, Schedule};
use crate::trap::Trap;

/// Largest number of clusters in a grid for which clusters that could continue are set aside. A cluster that
/// is set aside keeps its shared memory.
const MOST_YIELDING: u64 = 32;

/// Largest number of clusters set aside of which some poll on under random schedules.
const FEW: usize = 8;

/// How long an idle host thread sleeps before it looks for work again.
const LISTEN: Duration = Duration::from_micros(200);

/// A launch, and how many clusters and CTAs it has.
#[derive(Debug)]
pub(crate) struct Job<'p> {
    pub(crate) program: &'p Program,
    pub(crate) launch: &'p Launch<'p>,
    pub(crate) clusters: u64,
    pub(crate) ctas: u64,
}

/// How far a launch has got.
#[derive(Clone, Copy, Debug, Default)]
struct Progressed {
    /// Number of clusters that have begun, and of those that have ended.
    next: u64,
    ended: u64,
    report: Report,
}

/// A cluster: the launch's index, and its own in the launch.
type Index = (usize, u64);

/// Clusters that have not begun, and those set aside.
struct Queue<'p> {
    jobs: Vec<Progressed>,
    waiting: VecDeque<(Index, Machine<'p>)>,
    /// Number of clusters that host threads are running.
    running: usize,
    /// Whether to begin a new cluster before one that was set aside.
    begin: bool,
    /// The failed cluster with the lowest index, and its fault.
    failed: Option<(Index, Box<Trap>)>,
    /// Chooses which of several launches begins a cluster.
    random: Random,
}

/// The clusters of launches that run at the same time.
pub(crate) struct Residents<'p> {
    jobs: Vec<Job<'p>>,
    common: &'p Common,
    memory: &'p Memory,
    options: Options<'p>,
    queue: Mutex<Queue<'p>>,
    /// Notified when a cluster's turn is over.
    turned: Condvar,
}

impl<'p> Residents<'p> {
    pub(crate) fn new(
        jobs: Vec<Job<'p>>,
        common: &'p Common,
        memory: &'p Memory,
        options: Options<'p>,
    ) -> Self {
        let random = Random::new(options.seed, u64::MAX);
        let progressed = vec![Progressed::default(); jobs.len()];
        let (waiting, failed) = (VecDeque::new(), None);
        let queue = Queue { jobs: progressed, waiting, running: 0, begin: true, failed, random };
        let (queue, turned) = (Mutex::new(queue), Condvar::new());
        Self { jobs, common, memory, options, queue, turned }
    }

    /// Number of clusters of all launches.
    pub(crate) fn clusters(&self) -> u64 {
        self.jobs.iter().map(|job| job.clusters).sum()
    }

    fn ctas(&self) -> u64 {
        self.jobs.iter().map(|job| job.ctas).sum()
    }

    /// Runs clusters until none is left to run. Any number of host threads may call this at the same time.
    pub(crate) fn work(&self) {
        while let Some((index, mut machine)) = self.take() {
            let outcome = machine.run(self.clusters() <= MOST_YIELDING);
            let progress = &self.common.progress;
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
        let progress = &self.common.progress;
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
    fn take(&self) -> Option<(Index, Machine<'p>)> {
        let mut queue = self.queue();
        let new = loop {
            if self.options.is_stopped() {
                return None;
            }
            if let Some((failed, _)) = queue.failed {
                // Clusters after the failed one may wait for it, so they are dropped.
                queue.waiting.retain(|(index, _)| *index < failed);
            }
            let new = self.next(&mut queue);
            if let (Some(new), true) = (new, queue.begin) {
                break new;
            }
            let mut stirred = queue.waiting.iter().position(|(_, machine)| machine.is_stirred());
            let (even, of) = (self.options.seed.is_multiple_of(2), queue.waiting.len());
            let mut any = false;
            if self.options.schedule == Schedule::Random && even && of <= FEW && stirred.is_some() {
                // Some poll on meanwhile, though nothing has changed.
                any = queue.random.below(2) == 0;
                stirred = stirred.filter(|_| !any).or_else(|| Some(queue.random.below(of)));
            }
            // If no cluster has anything to do and none is running, the waiting clusters poll once more in
            // turn.
            let idle = new.is_none() && queue.running == 0;
            if let Some(mut found) =
                queue.waiting.remove(stirred.unwrap_or(if idle { 0 } else { usize::MAX }))
            {
                found.1.brief = any || idle && even && self.options.schedule == Schedule::Random;
                queue.begin = true;
                queue.running += 1;
                return Some(found);
            }
            if let Some(new) = new {
                break new;
            }
            if queue.waiting.is_empty() && (queue.running == 0 || self.all_begun(&queue)) {
                return None;
            }
            let waited = self.turned.wait_timeout(queue, LISTEN);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        queue.jobs[new].next += 1;
        let index = (new, queue.jobs[new].next - 1);
        queue.running += 1;
        queue.begin = false;
        drop(queue);
        let job = &self.jobs[new];
        // Under some schedules the last cluster begins first.
        let backwards = match self.options.schedule {
            Schedule::Latest => true,
            Schedule::Random => self.options.seed % 8 >= 4,
            Schedule::Default | Schedule::Earliest | Schedule::Paced => false,
        };
        let cluster = if backwards { job.clusters - 1 - index.1 } else { index.1 };
        let mut machine = Machine::new(job.program, job.launch, self.memory, self.options, cluster);
        self.common.progress.goes_on(&mut machine.standing);
        Some((index, machine))
    }

    /// Whether no cluster will begin any more.
    fn all_begun(&self, queue: &Queue<'p>) -> bool {
        queue.failed.is_some() || self.jobs.iter().zip(&queue.jobs).all(|(job, at)| at.next >= job.clusters)
    }

    /// The launch of which a cluster begins next. A launch waits for the end of the one before it on its GPU. Which
    /// GPU is first, and how long the others lag, is the schedule's choice.
    fn next(&self, queue: &mut Queue<'p>) -> Option<usize> {
        let begins = |(at, job): &(usize, &Job<'p>)| {
            let before = self.jobs[..*at].iter().zip(&queue.jobs);
            let mut before = before.filter(|(other, _)| other.launch.gpu == job.launch.gpu);
            let limit = match queue.failed {
                Some(((failed, index), _)) if failed == *at => index.min(job.clusters),
                Some(((failed, _), _)) if failed < *at => 0,
                Some(_) | None => job.clusters,
            };
            queue.jobs[*at].next < limit && before.all(|(other, at)| at.ended == other.clusters)
        };
        let mut all = self.jobs.iter().enumerate().filter(begins).map(|(at, _)| at);
        match self.options.schedule {
            Schedule::Latest => all.next_back(),
            Schedule::Random if self.jobs.len() > 1 => {
                let all: Vec<usize> = all.collect();
                if all.is_empty() {
                    return None;
                }
                // With every other seed, the GPUs after the first one lag.
                let lags =
                    self.options.seed % 2 == 1 && !queue.waiting.is_empty() && queue.random.below(16) > 0;
                (!lags).then(|| all[queue.random.below(all.len())])
            }
            Schedule::Default | Schedule::Earliest | Schedule::Paced | Schedule::Random => all.next(),
        }
    }

    fn set_aside(&self, index: Index, machine: Machine<'p>) {
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

    fn ended(&self, index: Index, outcome: Result<Report, Box<Trap>>) {
        let mut queue = self.turn_over();
        match outcome {
            Ok(counts) => {
                let (at, job) = (&mut queue.jobs[index.0], &self.jobs[index.0]);
                at.report = at.report.with(counts);
                at.ended += 1;
                if at.ended == job.clusters && job.launch.leaves {
                    self.common.leaves(job.launch.gpu);
                }
                let ctas = queue.jobs.iter().map(|at| at.report.ctas).sum();
                drop(queue);
                if let Some(progress) = self.options.progress {
                    progress(ctas, self.ctas());
                }
            }
            Err(trap) => {
                if queue.failed.as_ref().is_none_or(|(first, _)| index < *first) {
                    queue.failed = Some((index, trap));
                }
            }
        }
    }

    /// The results of the launches, after all host threads have returned from [`Residents::work`].
    pub(crate) fn outcome(self) -> Result<Vec<Report>, Failure> {
        let of = self.ctas();
        let queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ctas = queue.jobs.iter().map(|at| at.report.ctas).sum();
        match queue.failed {
            Some((_, trap)) => Err(Failure::Trap(trap)),
            None if ctas < of => Err(Failure::Stopped { ctas, of }),
            None => Ok(queue.jobs.into_iter().map(|at| at.report).collect()),
        }
    }
}
