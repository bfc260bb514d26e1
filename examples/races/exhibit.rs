//! An exhibit: a program with a bug that a library shipped, its twin without the bug, and the code that runs
//! both.

use std::error::Error;

use emulator::{Failure, Memory, Options, Program, Schedule};
use ptx::abi::{Argument, Grid, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::{Builder, Entry, Function, Target};

/// Bytes of the box that the exhibits copy: 8 rows of 64 bf16.
pub(crate) const BOX_BYTES: u32 = 8 * 64 * 2;

/// A bug that shipped.
#[derive(Clone, Copy)]
pub(crate) struct Exhibit {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Where it shipped: project, and issue or pull request.
    pub(crate) shipped: &'static [&'static str],
    /// What the program does wrong.
    pub(crate) bug: &'static str,
    /// What the twin does instead.
    pub(crate) mended: &'static str,
    /// Why a GPU often gives the right result anyway.
    pub(crate) hidden: &'static str,
    /// Number of threads per CTA.
    pub(crate) threads: u32,
    /// Number of CTAs in the cluster; the grid is one cluster.
    pub(crate) cluster: u32,
    /// Whether the grid may begin before the previous grid has ended.
    pub(crate) dependent: bool,
    /// Why the emulator reports nothing, if it does not. `None` for the others, which it must find.
    pub(crate) silent: Option<&'static str>,
    /// Fills memory, and returns the kernel's arguments.
    pub(crate) arguments: fn(&mut Memory) -> Vec<Argument>,
    /// Emits the kernel. The flag selects the twin.
    pub(crate) program: fn(&Builder, bool),
}

impl Exhibit {
    /// The kernel, verified.
    fn kernel(&self, mended: bool) -> Result<Program, Box<dyn Error>> {
        let entry = Entry {
            name: self.name.replace('-', "_"),
            target: Target::Sm90a,
            threads: self.threads,
            shared_bytes: 16384,
            cluster: [self.cluster, 1, 1],
        };
        Ok(Program::new(&Function::build(entry, |f| (self.program)(f, mended)).verify()?))
    }

    /// Runs it once, and returns the failure, if any.
    ///
    /// # Errors
    /// The program does not verify, which is a mistake in the exhibit.
    pub(crate) fn run(
        &self,
        mended: bool,
        schedule: (Schedule, u64),
    ) -> Result<Option<Failure>, Box<dyn Error>> {
        let program = self.kernel(mended)?;
        let mut memory = Memory::new();
        let arguments = (self.arguments)(&mut memory);
        let options = Options {
            schedule: schedule.0,
            seed: schedule.1,
            dependent: self.dependent,
            fuel: 100_000,
            threads: 1,
            ..Options::default()
        };
        Ok(program.launch(Grid { ctas: [self.cluster, 1, 1] }, &arguments, &memory, &options).err())
    }

    /// Runs it under every deterministic schedule and `random` random ones. Returns the number of schedules,
    /// the number that found a failure, and the first failure.
    ///
    /// # Errors
    /// As [`Exhibit::run`].
    pub(crate) fn sweep(&self, mended: bool, random: u64) -> Result<Sweep, Box<dyn Error>> {
        let mut sweep = Sweep::default();
        for schedule in Schedule::sweep(random) {
            sweep.runs += 1;
            if let Some(failure) = self.run(mended, schedule)? {
                sweep.found += 1;
                sweep.first.get_or_insert((schedule, failure));
            }
        }
        Ok(sweep)
    }
}

/// The outcome of a sweep over schedules.
#[derive(Default)]
pub(crate) struct Sweep {
    pub(crate) runs: u64,
    pub(crate) found: u64,
    pub(crate) first: Option<((Schedule, u64), Failure)>,
}

/// The tensor map of a tensor of one box at `address`.
pub(crate) fn box_map(address: u64) -> TensorMap {
    TensorMap {
        element: TensorElement::Bf16,
        address,
        dims: vec![64, 8],
        strides: vec![128],
        box_dims: vec![64, 8],
        swizzle: TensorSwizzle::B128,
        promotion: Promotion::default(),
        reach: None,
    }
}
