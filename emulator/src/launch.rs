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

/// Generic address of the parameter block. No allocation reaches this address.
pub(crate) const PARAMETERS: u64 = 0xF000_0000_0000_0000;

/// State that the clusters of a launch share.
#[derive(Debug)]
pub(crate) struct Launch {
    /// CTAs of the grid.
    pub(crate) grid: [u32; 3],
    /// The parameter block.
    pub(crate) block: Vec<u8>,
    /// The tensor maps of the block, by generic address.
    pub(crate) maps: Vec<(u64, Map)>,
    /// Accesses to global memory so far, for race detection.
    pub(crate) races: Races,
    pub(crate) progress: Progress,
}

/// Counts of what a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Number of CTAs that ran.
    pub ctas: u64,
    /// Number of warp instructions executed.
    pub instructions: u64,
    /// Number of `wgmma` instructions executed, counted once per warpgroup.
    pub wgmmas: u64,
    /// Number of multiply-adds in these `wgmma` instructions.
    pub multiply_adds: u64,
    /// Number of tensor loads, counted once per CTA that receives the data.
    pub tensor_loads: u64,
    /// Number of tensor stores.
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
    /// Clusters run in parallel on [`Options::threads`] host threads, and may wait for each other. If several
    /// clusters fail, the failure returned is that of the cluster with the lowest index.
    ///
    /// # Errors
    /// [`Failure::Argument`] if the arguments do not match the parameters. [`Failure::Emulator`] if the grid
    /// is not a positive multiple of the cluster, or if the host cannot start the threads. [`Failure::Trap`]
    /// if the program has a fault.
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
