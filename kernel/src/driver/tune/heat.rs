//! Kernels of one request beside each other: all of them briefly, and those near the best in turns.

use std::thread;
use std::time::Duration;

use super::inputs::Inputs;
use super::shadow::Shadow;
use super::turns::{Candidate, time};
use crate::arguments::Arguments;
use crate::driver::gpu::Gpu;
use crate::driver::timing::Enqueue;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::program::Program;
use crate::select::Request;

use collective::tree::Path;

/// What is this much slower than the best of a few launches gets no turns.
const SLOWER: f64 = 1.12;

/// How many times as long as a few launches the card rests before the next.
const REST: f64 = 12.0;

/// A kernel that was timed.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The kernel.
    pub gemm: AnyGemm,
    /// How many of its clusters run at once.
    pub slots: u32,
    /// Microseconds of a launch, from a few of them alone.
    pub quick: f64,
}

/// Kernels that had a few launches each, and those that are worth turns.
#[derive(Debug)]
pub struct Heat {
    /// All of them, in the order in which they were given.
    pub kernels: Vec<Timed>,
    /// The places of those near the best, and of the first.
    pub near: Vec<usize>,
    /// What [`near`](Self::near) names, ready to take turns.
    pub candidates: Vec<Candidate<'static>>,
}

impl Heat {
    /// Compiles kernels of a request, and times a few launches of each after a rest. `epilogue` are the arguments of their epilogue: no
    /// memory that they name is reached.
    ///
    /// # Errors
    /// A kernel that refuses the call or the epilogue's arguments, an epilogue that does not say what it reaches, or a driver error.
    pub fn run<E: Arguments + Clone>(
        gpu: &mut Gpu,
        (request, inputs): (&Request<'_>, &Inputs),
        epilogue: &E,
        kernels: Vec<AnyGemm>,
    ) -> Result<Self, EngineError> {
        let written = |gemm: AnyGemm| match gemm.program() {
            Ok(program) => Ok((gemm, program)),
            Err(error) => Err(EngineError::Compile { kernel: gemm.entry_name(), log: error.to_string() }),
        };
        let programs = kernels.into_iter().map(written).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<&Program> = programs.iter().map(|(_, program)| program).collect();
        gpu.compile(&all)?;
        let mut shadows = Vec::new();
        if let Some((first, _)) = programs.first() {
            let groups = request.groups().unwrap_or_default();
            for call in inputs.sets() {
                shadows.push(Shadow::new(gpu, first, &call.lend().with(epilogue.clone()), &groups)?);
            }
        }
        let (mut timed, mut launches) = (Vec::new(), Vec::new());
        let mut rest = Duration::from_millis(60);
        for (gemm, program) in &programs {
            let slots = gpu.slots(program)?;
            let own = prepare(gpu, (gemm, program, slots), epilogue, (inputs, &shadows))?;
            // The card's clock falls while it is busy: without a rest, who comes late is slow.
            thread::sleep(rest);
            time(gpu, &own, 1)?;
            let quick = time(gpu, &own, 4)?.min(time(gpu, &own, 4)?) * 1e6;
            rest = Duration::from_secs_f64((quick * 9e-6 * REST).clamp(0.002, 0.06));
            timed.push(Timed { gemm: gemm.clone(), slots, quick });
            launches.push(own);
        }
        for shadow in shadows {
            shadow.free(gpu)?;
        }
        let best = timed.iter().map(|timed| timed.quick).fold(f64::INFINITY, f64::min);
        let is_near = |i: usize| i == 0 || timed[i].quick <= SLOWER * best + 1.0;
        let near: Vec<usize> = (0..timed.len()).filter(|&i| is_near(i)).collect();
        let operations = request.operations();
        let candidate = |(i, launches): (usize, Vec<Box<dyn Enqueue>>)| {
            let Timed { gemm, slots, .. } = &timed[i];
            Candidate { name: gemm.name().to_owned(), launches, operations, slots: Some(*slots) }
        };
        let kept = launches.into_iter().enumerate().filter(|(i, _)| is_near(*i));
        let candidates = kept.map(candidate).collect();
        Ok(Self { kernels: timed, near, candidates })
    }
}

/// Launches of a kernel, one a set, with a workspace of its own.
fn prepare<E: Arguments + Clone>(
    gpu: &mut Gpu,
    (gemm, program, slots): (&AnyGemm, &Program, u32),
    epilogue: &E,
    (inputs, shadows): (&Inputs, &[Shadow]),
) -> Result<Vec<Box<dyn Enqueue>>, EngineError> {
    let refused = |source| EngineError::Call { kernel: program.name().to_owned(), source };
    let needed = inputs.sets().first().map_or(0, |call| gemm.workspace(call, slots));
    let workspace = gpu.workspace(needed)?;
    let mut all: Vec<Box<dyn Enqueue>> = Vec::new();
    for (call, shadow) in inputs.sets().iter().zip(shadows) {
        let mut call = call.lend().with(epilogue.clone());
        call.workspace = workspace;
        let made = gemm.make(&call, gemm, &Path::ROOT, slots).map_err(refused)?;
        let Some(made) = made else { continue };
        let launch = shadow.redirect(program, made, call.d.address)?;
        all.push(Box::new(gpu.prepare(program, launch.grid, &launch.arguments)?));
    }
    // Launches keep what they need.
    if let Some(workspace) = workspace {
        gpu.free(workspace.buffer())?;
    }
    Ok(all)
}
