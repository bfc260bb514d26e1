//! Measures several candidates in rounds, so that all of them run under the same conditions.

use core::fmt;
use std::thread;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::driver::gpu::Gpu;
use crate::driver::graph::Graph;
use crate::driver::stream::Stream;
use crate::driver::timing::{Enqueue, Prepared};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::filled::Launch;
use crate::kernel::{Kernel, written};
use crate::program::Program;

/// A candidate to time.
pub struct Candidate<'a> {
    /// Its name.
    pub name: String,
    /// One launch per set of inputs.
    pub launches: Vec<Box<dyn Enqueue + 'a>>,
    /// Floating-point operations per launch.
    pub operations: f64,
    /// Number of the kernel's clusters that are resident at once; `None` if the candidate is not a kernel of
    /// this library.
    pub resident: Option<u32>,
}

impl fmt::Debug for Candidate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, launches, operations, resident } = self;
        let mut debug = f.debug_struct("Candidate");
        debug.field("name", name).field("launches", &launches.len());
        debug.field("operations", operations).field("resident", resident).finish()
    }
}

impl Candidate<'static> {
    /// A kernel, with a launch of each call that is not empty. They share a workspace. `operations` is what a launch counts as.
    ///
    /// # Errors
    /// The kernel rejects a call, or a driver error.
    pub fn of<C: Clone>(
        gpu: &mut Gpu,
        kernel: &impl Kernel<C>,
        calls: &[C],
        operations: f64,
    ) -> Result<Self, EngineError> {
        Self::written(gpu, (kernel, &written(kernel)?), calls, operations)
    }

    /// The same, where the program is written.
    pub(super) fn written<C: Clone>(
        gpu: &mut Gpu,
        (kernel, program): (&impl Kernel<C>, &Program),
        calls: &[C],
        operations: f64,
    ) -> Result<Self, EngineError> {
        let resident = gpu.resident_clusters(program)?;
        let refused = |source| EngineError::Call { kernel: program.name().to_owned(), source };
        let needed = calls.first().map_or(0, |call| kernel.workspace(call, resident));
        let workspace = gpu.workspace(needed)?;
        let steps = kernel.steps();
        let (mut launches, mut sequences) = (Vec::new(), Vec::<Box<dyn Enqueue>>::new());
        for call in calls {
            let mut call = call.clone();
            kernel.lend_workspace(&mut call, workspace);
            if !steps.is_empty() {
                let all = steps.iter().map(|step| gpu.prepare_call(&**step, &call));
                let all = all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
                sequences.push(Box::new(Sequence { name: program.name().to_owned(), launches: all }));
                continue;
            }
            launches.extend(kernel.launch(&call, resident).map_err(refused)?);
        }
        let candidate = Self::prepared(gpu, (program, resident), launches, workspace, operations)?;
        Ok(Self { launches: candidate.launches.into_iter().chain(sequences).collect(), ..candidate })
    }

    /// Launches, and the workspace that they share.
    pub(super) fn prepared(
        gpu: &mut Gpu,
        (program, resident): (&Program, u32),
        all: Vec<Launch>,
        workspace: Option<Buffer>,
        operations: f64,
    ) -> Result<Self, EngineError> {
        let mut launches: Vec<Box<dyn Enqueue>> = Vec::new();
        for Launch { grid, arguments, .. } in all {
            launches.push(Box::new(gpu.prepare(program, grid, &arguments)?));
        }
        // The launches keep the memory that they need.
        if let Some(workspace) = workspace {
            gpu.free(workspace)?;
        }
        Ok(Self { name: program.name().to_owned(), launches, operations, resident: Some(resident) })
    }
}

/// Launches that follow each other: those of a kernel of several programs.
#[derive(Debug)]
struct Sequence {
    name: String,
    launches: Vec<Prepared>,
}

impl Enqueue for Sequence {
    fn name(&self) -> &str {
        &self.name
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        self.launches.iter().try_for_each(|launch| launch.enqueue(stream))
    }
}

/// How many rounds each candidate gets.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Number of rounds per candidate.
    pub count: usize,
    /// After two rounds, a kernel of this library that is slower than the best of them by more than this
    /// factor gets no more rounds. `None`: all get all rounds.
    pub near: Option<f64>,
}

/// Seconds that a graph of launches takes.
const GRAPH: f64 = 2e-3;

/// Most launches in a graph, unless a round through the sets of inputs has more.
const MOST: usize = 2048;

/// A candidate's launches as they are timed: as a graph, since the host may take longer to launch them one by one than the device to
/// run them. Candidates that are graphs stay what they are.
struct Replay<'c> {
    graph: Option<Graph>,
    launches: &'c [Box<dyn Enqueue + 'c>],
    /// Number of launches in the graph: whole rounds through the sets of inputs.
    count: usize,
    /// Approximate time per launch, in seconds.
    each: f64,
}

impl<'c> Replay<'c> {
    fn of(gpu: &mut Gpu, launches: &'c [Box<dyn Enqueue + 'c>]) -> Result<Self, EngineError> {
        time(gpu, launches, 2)?;
        let each = time(gpu, launches, 3)?.max(1e-7);
        if launches.iter().any(|launch| launch.is_graph()) || launches.is_empty() {
            return Ok(Self { graph: None, launches, count: 1, each });
        }
        let rounds = ((GRAPH / each) as usize).min(MOST).div_ceil(launches.len()).max(1);
        let count = launches.len() * rounds;
        let all: Vec<&dyn Enqueue> = launches.iter().map(AsRef::as_ref).cycle().take(count).collect();
        let mut replay = Self { graph: Some(gpu.capture(&all)?), launches, count, each };
        replay.run(gpu, 0.0)?;
        replay.each = replay.run(gpu, 0.0)?;
        Ok(replay)
    }

    /// Runs for about `seconds` seconds, at least three launches. Returns the time per launch in seconds.
    fn run(&self, gpu: &mut Gpu, seconds: f64) -> Result<f64, EngineError> {
        let once = self.each * self.count as f64;
        let times = ((seconds / once) as usize).clamp(3_usize.div_ceil(self.count), 20_000);
        match &self.graph {
            Some(graph) => Ok(gpu.time_many(&[graph], times)? / self.count as f64),
            None => time(gpu, self.launches, times),
        }
    }
}

/// One candidate's turn in a round.
pub struct Turn<'t> {
    /// Its index among the candidates.
    pub candidate: usize,
    replay: &'t Replay<'t>,
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { candidate, replay } = self;
        f.debug_struct("Turn")
            .field("candidate", candidate)
            .field("each", &replay.each)
            .finish_non_exhaustive()
    }
}

impl Turn<'_> {
    /// Replays the launches for about `seconds` seconds. Returns the time per launch in seconds.
    ///
    /// # Errors
    /// The driver rejects a launch, or one faults while it runs.
    pub fn run(&self, gpu: &mut Gpu, seconds: f64) -> Result<f64, EngineError> {
        self.replay.run(gpu, seconds)
    }

    /// The same after a rest, because the card's clock falls under load.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn burst(&self, gpu: &mut Gpu, rest: Duration, seconds: f64) -> Result<f64, EngineError> {
        thread::sleep(rest);
        self.run(gpu, seconds)
    }
}

/// Time per launch in seconds, over `count` launches that cycle through the list.
pub(super) fn time(
    gpu: &mut Gpu,
    launches: &[Box<dyn Enqueue + '_>],
    count: usize,
) -> Result<f64, EngineError> {
    let launches: Vec<&dyn Enqueue> = launches.iter().map(AsRef::as_ref).collect();
    gpu.time_many(&launches, count)
}

impl Turns {
    /// Runs all rounds. Returns, per candidate, the time per launch in seconds in each of its rounds. Every
    /// candidate gets its first round before any gets its second. `work` does one turn and returns its time.
    ///
    /// # Errors
    /// An error of `work`, a launch that the driver rejects, or a fault while one ran.
    pub fn take(
        &self,
        gpu: &mut Gpu,
        candidates: &[Candidate<'_>],
        work: &mut dyn FnMut(&mut Gpu, &Turn<'_>) -> Result<f64, EngineError>,
    ) -> Result<Vec<Vec<f64>>, EngineError> {
        let replays = candidates.iter().map(|of| Replay::of(gpu, &of.launches));
        let replays = replays.collect::<Result<Vec<_>, _>>()?;
        let mut seconds = vec![Vec::new(); candidates.len()];
        for turn in 0..self.count.max(1) {
            let far = self.far(turn, candidates, &seconds);
            for (i, replay) in replays.iter().enumerate().filter(|(i, _)| !far[*i]) {
                seconds[i].push(work(gpu, &Turn { candidate: i, replay })?);
            }
        }
        Ok(seconds)
    }

    /// Which candidates get no more rounds.
    fn far(&self, turn: usize, candidates: &[Candidate<'_>], seconds: &[Vec<f64>]) -> Vec<bool> {
        let rate = |i: usize| {
            let least = seconds[i].iter().copied().fold(f64::INFINITY, f64::min);
            candidates[i].operations / least
        };
        let ours = |i: &usize| candidates[*i].resident.is_some();
        let best = (0..candidates.len()).filter(ours).map(rate).fold(0.0, f64::max);
        let far = |i: usize| turn >= 2 && ours(&i) && self.near.is_some_and(|near| rate(i) * near < best);
        (0..candidates.len()).map(far).collect()
    }
}

/// The median of some times; for an even number, the faster of the middle two.
pub fn median(times: &[f64]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Turns, median};

    #[test]
    fn those_that_are_far_from_the_best_are_left_out_after_two_turns() {
        let candidate =
            |resident| Candidate { name: String::new(), launches: Vec::new(), operations: 1.0, resident };
        let candidates = [candidate(Some(1)), candidate(Some(1)), candidate(Some(1)), candidate(None)];
        let seconds = [vec![1.0, 2.0], vec![1.03, 1.03], vec![1.2, 1.05], vec![9.0, 9.0]];
        for (near, turn, want) in [
            (Some(1.04), 2, [false, false, true, false]),
            (Some(1.04), 1, [false; 4]),
            (Some(1.02), 3, [false, true, true, false]),
            (None, 2, [false; 4]),
        ] {
            assert_eq!(Turns { count: 5, near }.far(turn, &candidates, &seconds), want, "{near:?} {turn}");
        }
    }

    #[test]
    fn the_middle_one_counts() {
        assert_eq!(
            [median(&[]), median(&[5.0]), median(&[3.0, 1.0, 2.0, 4.0])],
            [None, Some(5.0), Some(2.0)]
        );
    }
}
