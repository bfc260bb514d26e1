//! Runs a program on a grid.
//!
//! [`Residents`] hands clusters to host threads. A cluster runs in rounds, in which its warps take turns; a turn executes
//! operations by [`Machine::step`](crate::machine::Machine::step).

mod hands;
mod pace;
mod residents;
mod rounds;
mod turn;

use ptx::abi::{self, Argument, Grid};

use crate::error::{EmulatorError, Failure};
use crate::launch::{Launch, PARAMETERS, Report};
use crate::memory::Memory;
use crate::program::Program;
use crate::progress::Progress;
use crate::race::Races;
use crate::schedule::Options;
use crate::tensor_map::{decode, encode};

use residents::Residents;

impl Program {
    /// Runs the program on every CTA of a grid.
    ///
    /// Clusters run in parallel on [`Options::threads`] host threads, and may wait for each other. If several
    /// clusters fail, the failure returned is that of the cluster with the lowest index.
    ///
    /// # Errors
    /// [`Failure::Argument`] if the arguments do not match the parameters. [`Failure::Emulator`] if the grid
    /// is not a positive multiple of the cluster, or if the host cannot start the threads. [`Failure::Trap`]
    /// if the program has a fault. [`Failure::Stopped`] if [`Options::stop`] ended the launch.
    pub fn launch(
        &self,
        grid: Grid,
        arguments: &[Argument],
        memory: &Memory,
        options: &Options<'_>,
    ) -> Result<Report, Failure> {
        let block = abi::parameter_bytes(&self.function, arguments, |map| Ok::<_, Failure>(encode(map)))?;
        let offsets = abi::tensor_map_offsets(&self.function, arguments).into_iter();
        let maps = offsets.filter_map(|offset| {
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
        hands::work(&residents, options.threads, clusters)?;
        residents.outcome()
    }
}
