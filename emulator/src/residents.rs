//! Clusters that run at the same time and may wait for each other through global memory.
//!
//! A cluster runs until it ends or only looks, again and again, at words that others have not changed. Then it is set
//! aside, another begins or goes on, and it comes back once one of those words has changed. So a cluster may wait for any other of the grid,
//! on one host thread as on many. Under random schedules the clusters of a small grid are set aside at random moments too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::launch::{Launch, Report};
use crate::machine::{Counts, Machine};
use crate::memory::Memory;
use crate::program::Program;
use crate::schedule::Options;
use crate::trap::Trap;

/// Turns of a waiting cluster, while no cluster does anything else, after which it counts as hung.
const IDLE_TURNS: u32 = 1 << 10;

/// Most clusters of a grid that are set aside though they could go on: each keeps its shared memory meanwhile.
const MOST_YIELDING: u64 = 32;

/// How long a host thread sleeps that finds nothing to do before it looks again.
const LISTEN: Duration = Duration::from_micros(200);

/// How a cluster's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every warp has exited.
    Done,
    /// It waits for other clusters.
    Waits,
    /// It could go on, and lets others run.
    Yields,
}

/// What the clusters of a launch tell each other about how they get on.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Clusters that have begun and do not wait.
    active: AtomicUsize,
    /// How often one has begun, has gone on after waiting, or has ended.
    events: AtomicU64,
}

/// A cluster's part in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    active: bool,
    /// Events at the end of its last turn, and turns since they changed.
    events: u64,
    idle: u32,
}

impl Progress {
    /// A cluster does something else than waiting.
    pub(crate) fn goes_on(&self, standing: &mut Standing) {
        if !standing.active {
            standing.active = true;
            self.active.fetch_add(1, Relaxed);
            self.events.fetch_add(1, Relaxed);
        }
    }

    /// A cluster waits or has ended.
    fn pauses(&self, standing: &mut Standing) {
        if standing.active {
            standing.active = false;
            self.active.fetch_sub(1, Relaxed);
        }
    }

    /// Counts a turn in which a cluster did nothing but wait; says whether it seems to wait in vain.
    fn idles(&self, standing: &mut Standing) -> bool {
        self.pauses(standing);
        let events = self.events.load(Relaxed);
        standing.idle = if events == standing.events { standing.idle + 1 } else { 0 };
        standing.events = events;
        standing.idle > IDLE_TURNS
    }

    /// Whether nothing has happened since the last turn of a cluster.
    fn stands(&self, standing: &Standing) -> bool {
        self.events.load(Relaxed) == standing.events && self.active.load(Relaxed) == 0
    }
}

/// Clusters that have not begun, and those set aside.
struct Queue<'p> {
    next: u64,
    waiting: VecDeque<(u64, Machine<'p>)>,
    /// Clusters that a host thread runs.
    running: usize,
    /// Whether the cluster that was set aside last should make way for a new one.
    begin: bool,
    /// The first cluster that has failed, and how.
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
    /// A cluster's turn is over.
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

    /// Runs clusters until none is left that another host thread does not run. Any number of threads may call this.
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
            progress.goes_on(&mut machine.standing);
            progress.pauses(&mut machine.standing);
            machine.finish();
            self.ended(index, outcome.map(|_| machine.counts));
        }
    }

    /// Whether a cluster that did nothing but wait does so in vain: nothing has happened in many of its turns, and the
    /// turns of all others are over too. A host thread may be held up in the middle of one for as long as it likes.
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

    /// The next cluster to run: one that was set aside and has something to do, or a new one, in turn.
    fn take(&self) -> Option<(u64, Machine<'p>)> {
        let mut queue = self.queue();
        loop {
            let limit = queue.failed.as_ref().map_or(self.clusters, |(index, _)| *index);
            // What waits behind a failure may wait for it.
            queue.waiting.retain(|(index, _)| *index < limit);
            let new = queue.next < limit;
            if new && queue.begin {
                break;
            }
            let stirred = queue.waiting.iter().position(|(_, machine)| machine.is_stirred());
            // Where nobody has anything to do each has another look, once nobody runs who may change that.
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
        // After a failure nothing that waits is worth waiting for.
        if queue.failed.is_none() {
            queue.waiting.push_back((index, machine));
        }
    }

    /// A host thread has run a cluster for a turn.
    fn turn_over(&self) -> std::sync::MutexGuard<'_, Queue<'p>> {
        let mut queue = self.queue();
        queue.running -= 1;
        self.turned.notify_all();
        queue
    }

    fn ended(&self, index: u64, outcome: Result<Counts, Box<Trap>>) {
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

    /// What came out, once every thread has ended its work.
    pub(crate) fn outcome(self) -> Result<Report, Box<Trap>> {
        let queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        queue.failed.map_or(Ok(queue.report), |(_, trap)| Err(trap))
    }
}
