//! Launching a program on a grid.

use ptx::abi::{self, Argument, Grid};

use crate::error::{EmulatorError, Failure};
use crate::machine::Counts;
use crate::memory::Memory;
use crate::program::Program;
use crate::race::Races;
use crate::residents::{Progress, Residents};
use crate::schedule::Options;
use crate::tensor_map::{Map, decode, encode};

/// Generic address of the parameter block: nothing else lies up there.
pub(crate) const PARAMETERS: u64 = 0xF000_0000_0000_0000;

/// What the clusters of a launch share.
#[derive(Debug)]
pub(crate) struct Launch {
    /// CTAs of the grid.
    pub(crate) grid: [u32; 3],
    /// The parameter block.
    pub(crate) block: Vec<u8>,
    /// The tensor maps of the block by their generic address.
    pub(crate) maps: Vec<(u64, Map)>,
    /// Accesses to global memory.
    pub(crate) races: Races,
    pub(crate) progress: Progress,
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// CTAs run.
    pub ctas: u64,
    /// Warp instructions executed.
    pub instructions: u64,
    /// `wgmma` instructions executed, each counted once for its warpgroup.
    pub wgmmas: u64,
    /// Products that these summed.
    pub multiply_adds: u64,
    /// Tensor loads, each counted once for each CTA that received it.
    pub tensor_loads: u64,
    /// Tensor stores.
    pub tensor_stores: u64,
}

impl Report {
    pub(crate) fn with(self, counts: Counts) -> Self {
        Self {
            ctas: self.ctas + counts.ctas,
            instructions: self.instructions + counts.instructions,
            wgmmas: self.wgmmas + counts.wgmmas,
            multiply_adds: self.multiply_adds + counts.multiply_adds,
            tensor_loads: self.tensor_loads + counts.tensor_loads,
            tensor_stores: self.tensor_stores + counts.tensor_stores,
        }
    }
}

impl Program {
    /// Runs the program on every CTA of a grid.
    ///
    /// Clusters run in parallel on [`Options::threads`] host threads, and may wait for each other; the failure
    /// returned is that of the first cluster that fails.
    ///
    /// # Errors
    /// [`Failure::Argument`] for arguments that do not fit the parameters, [`Failure::Emulator`] for a grid that
    /// is no multiple of the cluster, [`Failure::Trap`] for what the program does wrong.
    pub fn launch(
        &self,
        grid: Grid,
        arguments: &[Argument],
        memory: &Memory,
        options: &Options<'_>,
    ) -> Result<Report, Failure> {
        let block = abi::parameter_bytes(&self.function, arguments, |map| Ok::<_, Failure>(encode(map)))?;
        let maps = self.tensor_map_offsets().filter_map(|offset| {
            let map = decode(block.get(offset..offset + abi::TENSOR_MAP_BYTES)?)?.ok()?;
            Some((PARAMETERS + offset as u64, map))
        });
        let launch = Launch {
            grid: grid.ctas,
            maps: maps.collect(),
            block,
            races: Races::new(),
            progress: Progress::default(),
        };
        let (ctas, cluster) = (grid.ctas, self.function.cluster);
        if ctas.iter().zip(cluster).any(|(&extent, by)| extent == 0 || by == 0 || extent % by != 0) {
            return Err(EmulatorError::Grid { ctas, cluster }.into());
        }
        let total: u64 = ctas.iter().map(|&extent| u64::from(extent)).product();
        let clusters = total / cluster.iter().map(|&extent| u64::from(extent)).product::<u64>();
        let residents = Residents::new(self, &launch, memory, *options, (clusters, total));
        let work = |threads: usize| {
            rayon::scope(|scope| {
                for _ in 1..threads.min(usize::try_from(clusters).unwrap_or(usize::MAX)) {
                    scope.spawn(|_| residents.work());
                }
                residents.work();
            });
        };
        match options.threads {
            1 => residents.work(),
            0 => work(rayon::current_num_threads()),
            asked => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(asked).build();
                let pool =
                    pool.map_err(|error| EmulatorError::Threads { asked, reason: error.to_string() })?;
                pool.install(|| work(asked));
            }
        }
        Ok(residents.outcome()?)
    }
}
