//! Breaks the synchronisation of a kernel, and records what it does.

use core::fmt;

use emulator::{Failure, Memory, Options, Program, Recorder, Schedule, Trace};
use kernel::operands::{Contents, Fill, Places};
use kernel::{Buffer, Demand, Emulator, Engine, Kernel, Launch};
use ptx::mutate::{Mutation, mutations};

use super::FamilyError;

/// Clusters that run at the same time: few, so that persistent kernels compute several tiles per cluster.
const RESIDENT: u32 = 2;

/// What became of a kernel's mutants.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// How often each mutant was launched: twice, so that the second launch finds memory as the first one has left it; once for a
    /// kernel without a workspace, which has no such memory.
    pub launches: u32,
    /// Mutants that the verifier refused.
    pub refused: usize,
    /// Mutants that trapped, hung, or wrote something else.
    pub killed: usize,
    /// Survivors that say nothing: no schedule executes the statement that they change. The request does not reach it.
    pub unreached: Vec<Mutation>,
    /// Survivors whose changed statement was executed, and that did what the unbroken kernel does under every schedule: nothing
    /// noticed them, or they are equivalent to it.
    pub missed: Vec<Mutation>,
}

impl Proof {
    /// Number of mutants.
    pub fn mutants(&self) -> usize {
        self.refused + self.killed + self.unreached.len() + self.missed.len()
    }
}

/// The counts in a sentence, and a line for each survivor.
impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { launches, refused, killed, unreached, missed } = self;
        let launched = if *launches == 2 { "twice on one workspace" } else { "once, without a workspace" };
        write!(
            f,
            "{} mutants, launched {launched}: {refused} refused, {killed} killed, {} never reached, {} missed",
            self.mutants(),
            unreached.len(),
            missed.len()
        )?;
        let classes = [("never reached", unreached), ("missed", missed)];
        let mut all = classes.iter().flat_map(|(class, of)| of.iter().map(move |one| (class, one)));
        all.try_for_each(|(class, mutation)| write!(f, "\n  {class}: {mutation}"))
    }
}

/// Breaks every synchronising step of a kernel, one at a time, and runs each broken program in the emulator under the deterministic schedules and
/// `random` random ones, until it behaves differently. `call` may have any addresses: memory is made for it. A kernel with a
/// workspace is launched twice: its results are restored, and the second launch finds the workspace as the first one has left it.
///
/// # Errors
/// The unbroken kernel fails under one of the schedules, the call is illegal or larger than the emulator takes, or the kernel has several
/// programs: each of its steps has a proof of its own.
pub fn prove<C: Clone>(
    kernel: &(impl Kernel<C> + ?Sized),
    call: &C,
    random: u64,
) -> Result<Proof, FamilyError> {
    let steps = kernel.steps().len();
    if steps > 0 {
        return Err(FamilyError::Other(format!(
            "the kernel has {steps} programs, one was needed: prove each of its `steps`"
        )));
    }
    Emulator::new().admit(&Demand::of(kernel, call, RESIDENT)?, 2)?;
    let Some(trial) = Trial::new(kernel, call, RESIDENT)? else { return Ok(Proof::default()) };
    let launches = if trial.keeps { 2 } else { 1 };
    let function = trial.program.function();
    let unbroken = Program::new(function);
    let failed = |(schedule, seed), reason| FamilyError::Unbroken { schedule, seed, reason };
    let run = |program: &Program, by, fuel| {
        let options = Options { fuel, threads: 1, ..trial.options(by) };
        trial.run(program, launches, &options).map_err(|failure| failure.to_string())
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
    let mut proof = Proof { launches, ..Proof::default() };
    for mutation in mutations(function) {
        let Ok(mutant) = mutation.apply(function).verify() else {
            proof.refused += 1;
            continue;
        };
        let lives = |by, program: &Program| run(program, by, fuel).is_ok_and(|(_, got)| got == want);
        let mutant = Program::new(&mutant);
        if !Schedule::sweep(random).all(|by| lives(by, &mutant)) {
            proof.killed += 1;
            continue;
        }
        // What a trap in its place does not stop is not executed.
        let trapping = mutation.trap(function).verify().map(|trapping| Program::new(&trapping));
        let passes = |trapping: Program| Schedule::sweep(random).all(|by| lives(by, &trapping));
        let class = if trapping.is_ok_and(passes) { &mut proof.unreached } else { &mut proof.missed };
        class.push(mutation);
    }
    Ok(proof)
}

/// Records what a kernel does with a call in the emulator, with `resident` clusters at a time, and how the run ended: a run that ends in a
/// trap has a trace too. `call` may have any addresses: memory is made for it. `None`: there is nothing to compute.
///
/// # Errors
/// The call is illegal, or larger than this machine traces ([`Demand::traced`]), which is found before anything is allocated.
pub fn trace<C: Clone>(
    kernel: &(impl Kernel<C> + ?Sized),
    call: &C,
    (resident, schedule, seed): (u32, Schedule, u64),
) -> Result<Option<Traced>, FamilyError> {
    Demand::of(kernel, call, resident)?.traced()?;
    let Some(trial) = Trial::new(kernel, call, resident)? else { return Ok(None) };
    let recorder = Recorder::default();
    let options = Options { trace: Some(&recorder), ..trial.options((schedule, seed)) };
    let outcome = trial.run(&Program::new(trial.program.function()), 1, &options).map(|_| ());
    Ok(Some((recorder.into_trace(), outcome)))
}

/// What a kernel did, and how its run ended.
pub type Traced = (Trace, Result<(), Failure>);

/// Launches on memory of their own in the emulator.
struct Trial {
    program: kernel::Program,
    launch: Launch,
    /// The contents of memory before the launch, in the order of allocation.
    contents: Vec<Vec<u8>>,
    /// Which of them the kernel writes.
    written: Vec<usize>,
    /// Which of these are restored before a further launch: the results. A workspace stays as it is.
    results: Vec<usize>,
    /// Whether there is a workspace.
    keeps: bool,
}

impl Trial {
    fn new<C: Clone>(
        kernel: &(impl Kernel<C> + ?Sized),
        call: &C,
        resident: u32,
    ) -> Result<Option<Self>, FamilyError> {
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
        let written: Vec<usize> = (0..pieces.len()).filter(|&at| pieces[at].writes).collect();
        let kept = |at: &usize| matches!(pieces[*at].contents, Contents::Workspace);
        let (own, results) = written.iter().copied().partition::<Vec<_>, _>(kept);
        let keeps = bytes > 0 || !own.is_empty();
        let (program, launch) = (kernel.program()?, kernel.launch(&call, resident)?);
        Ok(launch.map(|launch| Self { program, launch, contents, written, results, keeps }))
    }

    fn options(&self, (schedule, seed): (Schedule, u64)) -> Options<'static> {
        Options { schedule, seed, dependent: self.program.function().waits_for_grids(), ..Options::default() }
    }

    /// Launches a program some times. Returns the number of instructions of the last launch, and what each launch wrote.
    fn run(
        &self,
        program: &Program,
        launches: u32,
        options: &Options<'_>,
    ) -> Result<(u64, Vec<u8>), Failure> {
        let mut memory = Memory::new();
        // It returns the same addresses for the same sizes in the same order.
        let addresses: Vec<u64> = self.contents.iter().map(|bytes| memory.upload(bytes)).collect();
        let (mut instructions, mut all) = (0, Vec::new());
        for launch in 0..launches {
            for &at in self.results.iter().filter(|_| launch > 0) {
                memory.write(addresses[at], &self.contents[at])?;
            }
            let report = program.launch(self.launch.grid, &self.launch.arguments, &memory, options)?;
            instructions = report.instructions;
            for &at in &self.written {
                all.extend(memory.read(addresses[at], self.contents[at].len())?);
            }
        }
        Ok((instructions, all))
    }
}
