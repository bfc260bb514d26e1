//! Breaks the synchronisation of a kernel, and records what it does.

use core::fmt;
use std::collections::BTreeMap;

use emulator::{Failure, Options, Program, Recorder, Schedule, Trace};
use kernel::{Demand, Emulator, Engine, Kernel};
use ptx::mutate::{Mutation, mutations};

use super::{Checks, FamilyError, Relaunched};
use crate::verify::equivalent::Reason;

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
    /// Survivors that behave as the unbroken kernel, with the reason. Whether it is [proven](Reason::is_proven) of the program, it says.
    pub equivalent: Vec<(Mutation, &'static Reason)>,
    /// Survivors that say nothing: no schedule executes the statement that they change. The request does not reach it.
    pub unreached: Vec<Mutation>,
    /// Survivors whose changed statement was executed, and that did what the unbroken kernel does under every schedule: nothing
    /// noticed them, or they are equivalent to it for a reason that is not known.
    pub missed: Vec<Mutation>,
}

impl Proof {
    /// Number of mutants.
    pub fn mutants(&self) -> usize {
        self.refused + self.killed + self.equivalent.len() + self.unreached.len() + self.missed.len()
    }
}

/// The counts in a sentence, and a line for each survivor.
impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { launches, refused, killed, equivalent, unreached, missed } = self;
        let launched = if *launches == 2 { "twice on one workspace" } else { "once, without a workspace" };
        write!(
            f,
            "{} mutants, launched {launched}: {refused} refused, {killed} killed, {} equivalent, {} never reached, {} missed",
            self.mutants(),
            equivalent.len(),
            unreached.len(),
            missed.len()
        )?;
        let classes = [("never reached", unreached), ("missed", missed)];
        let mut reasons = BTreeMap::new();
        for (_, reason) in equivalent {
            reasons.entry(reason.name()).or_insert((0, reason.text())).0 += 1;
        }
        reasons
            .iter()
            .try_for_each(|(name, (count, why))| write!(f, "\n  equivalent, {name}: {count}. {why}"))?;
        let mut all = classes.iter().flat_map(|(class, of)| of.iter().map(move |one| (class, one)));
        all.try_for_each(|(class, mutation)| write!(f, "\n  {class}: {mutation}"))
    }
}

/// Breaks every synchronising step of a kernel, one at a time, and runs each broken program in the emulator under the deterministic schedules and
/// `random` random ones, until it behaves differently. `call` may have any addresses: memory is made for it, with the words of its tables ([`Family::words`](kernel::Family::words)). A kernel with a
/// workspace is launched twice: its results are restored, and the second launch finds the workspace as the first one has left it.
///
/// # Errors
/// The unbroken kernel fails under one of the schedules, the call is illegal or larger than the emulator takes, or the kernel has several
/// programs: each of its steps has a proof of its own.
pub fn prove<C: Clone>(
    kernel: &(impl Kernel<C> + ?Sized),
    (call, words): (&C, &[u32]),
    random: u64,
) -> Result<Proof, FamilyError> {
    let steps = kernel.steps().len();
    if steps > 0 {
        return Err(FamilyError::Other(format!(
            "the kernel has {steps} programs, one was needed: prove each of its `steps`"
        )));
    }
    Emulator::new().admit(&Demand::of(kernel, call, RESIDENT)?, 2)?;
    let Some(trial) = Checks::<Relaunched>::emulated(kernel, (call, words), RESIDENT)? else {
        return Ok(Proof::default());
    };
    let (launches, program) = (trial.call().times, kernel.program()?);
    let function = program.function();
    let unbroken = Program::new(function);
    let failed = |(schedule, seed), reason| FamilyError::Unbroken { schedule, seed, reason };
    let run = |program: &Program, by, fuel| {
        let (ran, written) = trial.run(program, &Options { fuel, threads: 1, ..options(function, by) });
        ran.map(|instructions| (instructions, written)).map_err(|failure| failure.to_string())
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
        if let Some(reason) = Reason::of(function, &mutation) {
            proof.equivalent.push((mutation, reason));
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
    (call, words): (&C, &[u32]),
    (resident, schedule, seed): (u32, Schedule, u64),
) -> Result<Option<Traced>, FamilyError> {
    Demand::of(kernel, call, resident)?.traced()?;
    let Some(trial) = Checks::<Relaunched>::emulated(kernel, (call, words), resident)? else {
        return Ok(None);
    };
    let (recorder, program) = (Recorder::default(), kernel.program()?);
    let options = Options { trace: Some(&recorder), ..options(program.function(), (schedule, seed)) };
    let trial = trial.changed(|launch, _| launch.times = 1);
    let (ran, _) = trial.run(&Program::new(program.function()), &options);
    Ok(Some((recorder.into_trace(), ran.map(|_| ()))))
}

/// What a kernel did, and how its run ended.
pub type Traced = (Trace, Result<(), Failure>);

/// Options of a schedule, for a program that waits for the grids that it depends on, or does not.
fn options(function: &ptx::Function, (schedule, seed): (Schedule, u64)) -> Options<'static> {
    Options { schedule, seed, dependent: function.waits_for_grids(), ..Options::default() }
}
