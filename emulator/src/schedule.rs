//! How a launch is scheduled: which warp runs next, and when asynchronous work completes.
//!
//! Every choice comes from [`Options`], so a launch is a function of program, arguments, memory and options
//! (clusters that talk through global memory while they run in parallel are the exception).

use core::fmt;

use crate::numerics::Numerics;
use crate::trace::Recorder;

/// When asynchronous work completes, and in which order warps take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Warps take turns in order. Asynchronous work is done when no warp can go on, one piece at a time: tensor
    /// loads from the oldest, then matrix multiplies, then tensor stores. Finds a missing wait on the first run.
    #[default]
    Default,
    /// Everything asynchronous is done as soon as it is issued.
    Earliest,
    /// As [`Schedule::Default`], but warps take turns in reverse order, and asynchronous work is done in
    /// reverse order too: tensor stores, then matrix multiplies, then the newest tensor load.
    Latest,
    /// Every warp that can go on executes one instruction a step, and asynchronous work takes a nominal number of
    /// steps: the order of events that comes nearest to a GPU's. Made for [traces](crate::Trace).
    Paced,
    /// Warps are picked at random for a random number of instructions, and asynchronous work completes at
    /// random moments in random order. With odd seeds some warps are favoured, so that others fall far behind. The same
    /// seed repeats the same run.
    Random,
}

impl Schedule {
    /// Every schedule that repeats itself, then `random` random ones, each with its seed: what a program has to
    /// survive. Earlier ones find more mistakes in less time.
    pub fn sweep(random: u64) -> impl Iterator<Item = (Self, u64)> + Clone {
        let fixed = [Self::Default, Self::Latest, Self::Earliest, Self::Paced];
        fixed.into_iter().map(|schedule| (schedule, 0)).chain((0..random).map(|seed| (Self::Random, seed)))
    }
}

impl Schedule {
    /// Whether relaxed reads may return older values than the last.
    pub(crate) fn remembers(self) -> bool {
        match self {
            Self::Latest | Self::Random => true,
            Self::Default | Self::Earliest | Self::Paced => false,
        }
    }
}

/// How to run a launch.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Start of the pseudo-random sequence of [`Schedule::Random`].
    pub seed: u64,
    /// The schedule.
    pub schedule: Schedule,
    /// How floating-point `wgmma`s round.
    pub numerics: Numerics,
    /// Most warp instructions that one cluster may execute before it counts as a livelock, for instance because a tile
    /// scheduler never advances. A cluster needs about a million for its part of a product of 8192 cubed.
    pub fuel: u64,
    /// Host threads that run clusters: 0 for rayon's current pool, 1 for none but the caller's.
    pub threads: usize,
    /// The grid may begin before those before it have ended: until `griddepcontrol.wait` it may touch nothing in global
    /// memory.
    pub dependent: bool,
    /// Called with CTAs finished and CTAs in all, from whichever thread finished them.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    /// Where everything that happens is written down. Without it nothing is.
    pub trace: Option<&'a Recorder>,
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
            trace: None,
        }
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
            .field("trace", &self.trace.is_some())
            .finish()
    }
}

/// SplitMix64, by S. Vigna: a 64-bit counter through a mixing function.
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

    /// A number below `bound`, which is at least 1.
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
