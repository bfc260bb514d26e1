//! Breaks the synchronisation of a kernel, and records what it does.

use emulator::{Failure, Memory, Options, Program, Recorder, Schedule, Trace};
use kernel::operands::{Fill, Places};
use kernel::{Buffer, Demand, Emulator, Engine, Kernel, Launch};
use ptx::mutate::{Mutation, mutations};

use super::FamilyError;

/// Clusters that run at the same time: few, so that persistent kernels compute several tiles per cluster.
const RESIDENT: u32 = 2;

/// What became of a kernel's mutants.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// Mutants that the verifier refused.
    pub refused: usize,
    /// Mutants that trapped, hung, or wrote something else.
    pub killed: usize,
    /// Mutants that did what the unbroken kernel does, under every schedule: they are equivalent to it, or the request does not reach
    /// what they broke.
    pub survivors: Vec<Mutation>,
}

/// Breaks every synchronising step of a kernel, one at a time, and runs each broken program in the emulator under the deterministic schedules and
/// `random` random ones, until it behaves differently. `call` may have any addresses: memory is made for it.
///
/// # Errors
/// The unbroken kernel fails under one of the schedules, or the call is illegal.
pub fn prove<C: Clone>(kernel: &impl Kernel<C>, call: &C, random: u64) -> Result<Proof, FamilyError> {
    Emulator::new().admit(&Demand::of(kernel, call, RESIDENT)?, 2)?;
    let Some(trial) = Trial::new(kernel, call, RESIDENT)? else { return Ok(Proof::default()) };
    let unbroken = Program::new(trial.program.function());
    let failed = |(schedule, seed), reason| FamilyError::Unbroken { schedule, seed, reason };
    let run = |program: &Program, by, fuel| {
        let options = Options { fuel, threads: 1, ..trial.options(by) };
        trial.run(program, &options).map_err(|failure| failure.to_string())
    };
    let first = (Schedule::Default, 0);
    let (instructions, want) =
        run(&unbroken, first, Options::default().fuel).map_err(|reason| failed(first, reason))?;
    let fuel = instructions * 16 + (1 << 16);
    for by in Schedule::sweep(random) {
        let (_, got) = run(&unbroken, by, fuel).map_err(|reason| failed(by, reason))?;
        if got != want {
            return Err(failed(by, "it wrote other bits than under the default schedule".to_owned()));
        }
    }
    let mut proof = Proof::default();
    for mutation in mutations(trial.program.function()) {
        let Ok(mutant) = mutation.apply(trial.program.function()).verify() else {
            proof.refused += 1;
            continue;
        };
        let mutant = Program::new(&mutant);
        if Schedule::sweep(random).all(|by| run(&mutant, by, fuel).is_ok_and(|(_, got)| got == want)) {
            proof.survivors.push(mutation);
        } else {
            proof.killed += 1;
        }
    }
    Ok(proof)
}

/// Records what a kernel does with a call in the emulator, with `resident` clusters at a time, and how the run ended: a run that ends in a
/// trap has a trace too. `call` may have any addresses: memory is made for it. `None`: there is nothing to compute.
///
/// # Errors
/// The call is illegal, or larger than this machine traces ([`Demand::traced`]), which is found before anything is allocated.
pub fn trace<C: Clone>(
    kernel: &impl Kernel<C>,
    call: &C,
    (resident, schedule, seed): (u32, Schedule, u64),
) -> Result<Option<Traced>, FamilyError> {
    Demand::of(kernel, call, resident)?.traced()?;
    let Some(trial) = Trial::new(kernel, call, resident)? else { return Ok(None) };
    let recorder = Recorder::default();
    let options = Options { trace: Some(&recorder), ..trial.options((schedule, seed)) };
    let outcome = trial.run(&Program::new(trial.program.function()), &options).map(|_| ());
    Ok(Some((recorder.into_trace(), outcome)))
}

/// What a kernel did, and how its run ended.
pub type Traced = (Trace, Result<(), Failure>);

/// A launch on memory of its own in the emulator.
struct Trial {
    program: kernel::Program,
    launch: Launch,
    /// The contents of memory before the launch, in the order of allocation.
    contents: Vec<Vec<u8>>,
    /// Which of them the kernel writes.
    written: Vec<usize>,
}

impl Trial {
    fn new<C: Clone>(kernel: &impl Kernel<C>, call: &C, resident: u32) -> Result<Option<Self>, FamilyError> {
        let (mut call, mut memory) = (call.clone(), Memory::new());
        let mut allocate = |bytes| memory.allocate(bytes);
        let mut places = Places::new(&mut allocate);
        kernel.visit(&mut call, &mut places);
        let pieces = places.pieces;
        let mut fill = Fill::new(1);
        let mut contents: Vec<Vec<u8>> = pieces.iter().map(|piece| fill.bytes(piece)).collect();
        let Buffer { bytes, .. } = Buffer::new(0, kernel.workspace(&call, resident));
        if bytes > 0 {
            let address = memory.allocate(bytes);
            kernel.lend_workspace(&mut call, Some(Buffer { address, bytes }));
            contents.push(vec![0; bytes]);
        }
        let written = (0..pieces.len()).filter(|&at| pieces[at].writes).collect();
        let (program, launch) = (kernel.program()?, kernel.launch(&call, resident)?);
        Ok(launch.map(|launch| Self { program, launch, contents, written }))
    }

    fn options(&self, (schedule, seed): (Schedule, u64)) -> Options<'static> {
        Options { schedule, seed, dependent: self.program.function().waits_for_grids(), ..Options::default() }
    }

    /// Runs a program. Returns the number of instructions, and what it wrote.
    fn run(&self, program: &Program, options: &Options<'_>) -> Result<(u64, Vec<u8>), Failure> {
        let mut memory = Memory::new();
        // It returns the same addresses for the same sizes in the same order.
        let addresses: Vec<u64> = self.contents.iter().map(|bytes| memory.upload(bytes)).collect();
        let report = program.launch(self.launch.grid, &self.launch.arguments, &memory, options)?;
        let mut all = Vec::new();
        for &at in &self.written {
            all.extend(memory.read(addresses[at], self.contents[at].len())?);
        }
        Ok((report.instructions, all))
    }
}
