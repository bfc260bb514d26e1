//! How a launch is scheduled: which warp runs next, and when asynchronous work completes.
//!
//! Every choice comes from [`Options`], so the result of a launch depends only on program, arguments, memory
//! and options. The exception: clusters that communicate through global memory while they run in parallel.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::meetings::Meetings;
use crate::numerics::Numerics;
use crate::trace::Recorder;
use crate::trap::Warnings;

/// The order in which warps run, and the moment at which asynchronous work completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Warps run one after the other, in order. Asynchronous work completes only when no warp can continue,
    /// one operation at a time: tensor loads from the oldest, then matrix multiplies, then tensor stores.
    /// Finds a missing wait on the first run.
    #[default]
    Default,
    /// Asynchronous work completes as soon as it is issued.
    Earliest,
    /// As [`Schedule::Default`], but warps run in reverse order, and asynchronous work completes in reverse
    /// order too: tensor stores, then matrix multiplies, then the newest tensor load.
    Latest,
    /// Every warp that can continue executes one instruction per step, and asynchronous work takes a nominal
    /// number of steps. Of all schedules, this order of events is the closest to that of a GPU. Made for
    /// [traces](crate::Trace).
    Paced,
    /// Warps are picked at random and run for a random number of instructions. Asynchronous work completes at
    /// random moments in random order. With odd seeds some warps run much more often, so that others fall far
    /// behind. The same seed repeats the same run.
    Random,
}

impl Schedule {
    /// The schedules that a program must survive, each with its seed: the four deterministic ones, then
    /// `random` times [`Schedule::Random`] with seeds from 0. Earlier ones find more errors in less time.
    pub fn sweep(random: u64) -> impl Iterator<Item = (Self, u64)> + Clone {
        let fixed = [Self::Default, Self::Latest, Self::Earliest, Self::Paced];
        fixed.into_iter().map(|schedule| (schedule, 0)).chain((0..random).map(|seed| (Self::Random, seed)))
    }
}

impl Schedule {
    /// Whether a relaxed read may return a value older than the last one written.
    pub(crate) fn remembers(self) -> bool {
        match self {
            Self::Latest | Self::Random => true,
            Self::Default | Self::Earliest | Self::Paced => false,
        }
    }
}

/// Options of a launch: the schedule, the numerics, limits and observers.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Seed of the pseudo-random sequence of [`Schedule::Random`]. Default: 0.
    pub seed: u64,
    /// The schedule. Default: [`Schedule::Default`].
    pub schedule: Schedule,
    /// How floating-point `wgmma`s round. Default: [`Numerics::Fast`].
    pub numerics: Numerics,
    /// Maximum number of warp instructions per cluster. A cluster that executes more counts as a livelock
    /// ([`Fault::Fuel`](crate::Fault::Fuel)), for instance because a tile scheduler never advances. In a GEMM
    /// of 8192³ a cluster needs about a million. Default: 2^27.
    pub fuel: u64,
    /// Number of host threads that run clusters: 0 uses all threads of the host, or the pool of rayon that the caller
    /// is a thread of; 1 uses only the calling thread. Default: 0.
    pub threads: usize,
    /// Whether the grid may begin before earlier grids have ended. If so, it must not access global memory
    /// before `griddepcontrol.wait`. Default: `false`.
    pub dependent: bool,
    /// Called after each cluster with the number of CTAs finished and the number of CTAs of the grid, on the
    /// thread that ran the cluster. Default: `None`.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    /// Ends the launch soon after it becomes true, with [`Failure::Stopped`](crate::Failure::Stopped): for example
    /// when a user interrupts it. Memory is then written in part. Default: `None`.
    pub stop: Option<&'a AtomicBool>,
    /// Collects debatable faults, which then do not end the launch. Default: `None`; they end it as any other.
    pub warnings: Option<&'a Warnings>,
    /// Where warnings are collected, memory that nobody has written holds bytes drawn with this seed: a kernel that does the same for
    /// two seeds does not depend on them. Default: 0.
    pub garbage: u64,
    /// Whether `elect.sync` chooses the lowest lane under every schedule, as all cards so far do. The ISA does not say which lane it
    /// chooses. Default: `false`.
    pub lowest_elected: bool,
    /// Records everything that happens. Default: `None`, which records nothing.
    pub trace: Option<&'a Recorder>,
    /// Collects which statements meet. Default: `None`.
    pub meetings: Option<&'a Meetings>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            seed: 0,
            schedule: Schedule::Default,
            numerics: Numerics::Fast,
            fuel: 1 << 27,
            threads: 0,
            dependent: false,
            progress: None,
            stop: None,
            warnings: None,
            garbage: 0,
            lowest_elected: false,
            trace: None,
            meetings: None,
        }
    }
}

impl Options<'_> {
    /// Whether the caller has ended the launch.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Relaxed))
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("schedule", &self.schedule)
            .field("numerics", &self.numerics)
            .field("fuel", &self.fuel)
            .field("threads", &self.threads)
            .field("dependent", &self.dependent)
            .field("progress", &self.progress.is_some())
            .field("stop", &self.stop)
            .field("warnings", &self.warnings.is_some())
            .field("garbage", &self.garbage)
            .field("lowest_elected", &self.lowest_elected)
            .field("trace", &self.trace.is_some())
            .field("meetings", &self.meetings.is_some())
            .finish()
    }
}

/// The generator SplitMix64 by S. Vigna: a 64-bit counter through a mixing function.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of one cluster of a launch.
    pub(crate) fn new(seed: u64, cluster: u64) -> Self {
        let mut random = Self(seed ^ cluster.wrapping_mul(0xA076_1D64_78BD_642F));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A pseudo-random number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_repeats_and_seeds_differ() {
        let draw = |seed, cluster| {
            let mut random = Random::new(seed, cluster);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(1, 0), draw(1, 0), "the same seed repeats");
        assert_ne!(draw(1, 0), draw(2, 0), "seeds differ");
        assert_ne!(draw(1, 0), draw(1, 1), "clusters differ");
    }
}
