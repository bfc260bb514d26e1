//! Runs a program on a grid.
//!
//! [`Residents`] hands clusters to host threads. A cluster runs in rounds, in which its warps take turns; a turn executes
//! operations by [`Machine::step`](crate::machine::Machine::step).

mod hands;
mod pace;
mod random;
mod residents;
mod rounds;
mod turn;

use ptx::abi::{self, Argument, Grid};

use crate::clock::SLOTS;
use crate::error::{EmulatorError, Failure};
use crate::launch::{Common, Launch, PARAMETERS, Report, Slot};
use crate::memory::Memory;
use crate::program::Program;
use crate::schedule::Options;
use crate::tensor_map::{decode, encode};

pub(crate) use random::Temper;
use residents::{Job, Residents};

/// A launch of a program on one of several emulated GPUs ([`launch_together`]).
#[derive(Clone, Copy, Debug)]
pub struct Together<'a> {
    /// The GPU, 0 to 15.
    pub gpu: u32,
    /// The program.
    pub program: &'a Program,
    /// CTAs of the grid.
    pub grid: Grid,
    /// The arguments. Addresses in the memory of another GPU are those of that GPU: all of them have one address space.
    pub arguments: &'a [Argument],
    /// Whether the GPU's process ends after this launch, so that its memory is gone.
    pub leaves: bool,
}

/// Runs launches on several emulated GPUs at the same time. Launches of one GPU run in the order of the list, each after the
/// end of the one before; otherwise nothing says which begins or ends first, and schedules differ in it.
///
/// The GPUs share the memory that [`Memory::allocate_on`] made for that. Threads of different GPUs synchronise in the scope of
/// the system. [`Program::launch`] runs one program alone.
///
/// # Errors
/// As those of [`Program::launch`], for any of the launches. [`EmulatorError::Together`] if there is none, or more than 16, or
/// if a GPU's number is above 15.
pub fn launch_together(
    launches: &[Together<'_>],
    memory: &Memory,
    options: &Options<'_>,
) -> Result<Vec<Report>, Failure> {
    let gpus = launches.iter().map(|one| one.gpu).max().unwrap_or(u32::MAX);
    if launches.is_empty() || launches.len() > SLOTS || gpus >= SLOTS as u32 {
        return Err(EmulatorError::Together { launches: launches.len(), gpu: gpus }.into());
    }
    let slot = |one: &Together<'_>| Slot { program: one.program.clone(), grid: one.grid.ctas, gpu: one.gpu };
    let common = Common::new(launches.iter().map(slot).collect(), gpus + 1);
    run(launches, &common, memory, options)
}

fn run(
    launches: &[Together<'_>],
    common: &Common,
    memory: &Memory,
    options: &Options<'_>,
) -> Result<Vec<Report>, Failure> {
    let made = launches.iter().zip(0..).map(|(one, slot)| one.begin(slot, common));
    let made = made.collect::<Result<Vec<_>, _>>()?;
    let jobs = launches.iter().zip(&made).map(|(one, launch)| one.job(launch));
    let residents = Residents::new(jobs.collect::<Result<_, _>>()?, common, memory, *options);
    hands::work(&residents, options.threads, residents.clusters())?;
    residents.outcome()
}

impl Together<'_> {
    fn begin<'c>(&self, slot: u32, common: &'c Common) -> Result<Launch<'c>, Failure> {
        let function = &self.program.function;
        let block = abi::parameter_bytes(function, self.arguments, |map| Ok::<_, Failure>(encode(map)))?;
        let offsets = abi::tensor_map_offsets(function, self.arguments).into_iter();
        let maps = offsets.filter_map(|offset| {
            let map = decode(block.get(offset..offset + abi::TENSOR_MAP_BYTES)?)?.ok()?;
            Some((PARAMETERS + offset as u64, map))
        });
        let (gpu, leaves, grid, maps) = (self.gpu, self.leaves, self.grid.ctas, maps.collect());
        Ok(Launch { common, slot, gpu, leaves, grid, maps, block })
    }

    fn job<'p>(&self, launch: &'p Launch<'p>) -> Result<Job<'p>, EmulatorError>
    where
        Self: 'p,
    {
        let (ctas, cluster) = (self.grid.ctas, self.program.function.cluster);
        if ctas.iter().zip(cluster).any(|(&extent, by)| extent == 0 || by == 0 || extent % by != 0) {
            return Err(EmulatorError::Grid { ctas, cluster });
        }
        let total: u64 = ctas.iter().map(|&extent| u64::from(extent)).product();
        let clusters = total / cluster.iter().map(|&extent| u64::from(extent)).product::<u64>();
        Ok(Job { program: self.program, launch, clusters, ctas: total })
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
    /// if the program has a fault. [`Failure::Stopped`] if [`Options::stop`] ended the launch.
    pub fn launch(
        &self,
        grid: Grid,
        arguments: &[Argument],
        memory: &Memory,
        options: &Options<'_>,
    ) -> Result<Report, Failure> {
        let alone = Together { gpu: 0, program: self, grid, arguments, leaves: false };
        let reports = run(&[alone], &Common::new(Vec::new(), 0), memory, options)?;
        Ok(reports.first().copied().unwrap_or_default())
    }
}
