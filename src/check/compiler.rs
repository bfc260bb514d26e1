//! Tells a compiler that makes wrong machine code: a dozen micro-kernels in one module, whose bits are known.
//!
//! PTX is compiled twice: by this library, and by the driver or by `ptxas`. The second compiler has been wrong before, on PTX that is right.
//! Each micro-kernel has the pattern of such an error, or one that the kernels of this library rely on.

mod integers;
#[cfg(feature = "driver")]
mod known;
mod lanes;
mod matrices;
mod memory;
mod program;

use core::fmt;
use std::time::{Duration, Instant};

use kernel::{Engine, EngineError, Program};
use ptx::Type;
use ptx::abi::{Argument, Grid};
use serde::Serialize;

use super::CheckError;
#[cfg(feature = "driver")]
pub use known::{KnownCompiler, known_compiler};
use program::{Micro, THREADS, WORDS};

/// What [`compiler`] has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompilerReport {
    /// The machine that ran the micro-kernels.
    pub device: String,
    /// What compiled them, where the machine knows ([`Engine::compiler`]).
    pub compiler: Option<String>,
    /// The micro-kernels, in the order of the module.
    pub micros: Vec<MicroReport>,
    /// Time to compile and load the module, or to load it, if the driver has it in its cache.
    pub load: Duration,
    /// Time from there to the results on the host: memory, one launch, and the comparison.
    pub run: Duration,
}

/// A micro-kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MicroReport {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Whether kernels of this library do so, too. Otherwise only PTX of others does.
    pub ours: bool,
    /// The first word that differs. `None`: all bits are right.
    pub wrong: Option<WrongWord>,
}

/// A word that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrongWord {
    /// The thread that computed it.
    pub thread: u32,
    /// Its number among the thread's words.
    pub word: u32,
    /// What it is.
    pub is: u32,
    /// What it must be.
    pub want: u32,
    /// The number of words that differ, of all threads.
    pub count: u32,
}

impl CompilerReport {
    /// The micro-kernels with wrong bits.
    pub fn wrong(&self) -> impl Iterator<Item = &MicroReport> {
        self.micros.iter().filter(|micro| micro.wrong.is_some())
    }

    /// Whether all bits are right.
    pub fn is_right(&self) -> bool {
        self.wrong().next().is_none()
    }

    /// Whether something is wrong that kernels of this library do.
    pub fn concerns_us(&self) -> bool {
        self.wrong().any(|micro| micro.ours)
    }
}

/// Runs the self-test: loads one module on a machine, launches it once, and compares the bits of each micro-kernel.
///
/// On a [`Gpu`](kernel::Gpu) it tells about the compiler that the process's kernels are made by: the driver's, or the assembler that
/// `FALCHION_PTXAS` names. A library may call it at its start, before it loads a kernel.
///
/// # What it tells
/// A micro-kernel with wrong bits is a proof: the PTX has one meaning, and the emulator comes to the same bits. A report without wrong
/// bits is none: most errors of compilers need more registers, or more code around them, than a micro-kernel has. It does not tell a
/// compiler that is only slow, and it does not tell the compiler from a card that computes wrong numbers: a second `ptxas` does.
///
/// # Errors
/// The machine cannot load the module, or it fails. A wrong compiler may also make code that faults, after which a GPU's context is lost.
///
/// ```
/// use falchion::check::compiler;
/// use falchion::kernel::Emulator;
///
/// let report = compiler(&mut Emulator::new())?; // or Gpu::new(0)?
/// assert!(report.is_right(), "{report}");
/// # Ok::<(), falchion::check::CheckError>(())
/// ```
pub fn compiler(engine: &mut dyn Engine) -> Result<CompilerReport, CheckError> {
    let (micros, program) = (program::micros(), compiler_program()?);
    let inputs = program::inputs();
    let start = Instant::now();
    // This loads it.
    engine.resident_clusters(&program)?;
    let load = start.elapsed();
    let input = engine.upload(&program::bytes(&inputs))?;
    let size = micros.len() * THREADS as usize * WORDS * 4;
    let output = engine.upload(&vec![POISON; size]);
    let ran = output.and_then(|output| {
        let arguments = [input.address, output.address].map(|address| Argument::Scalar(Type::U64, address));
        let ran = engine.launch(&program, Grid { ctas: [micros.len() as u32, 1, 1] }, &arguments);
        let read = ran.and_then(|_| engine.read(output));
        freed(engine.free(output), read)
    });
    let words = freed(engine.free(input), ran)?;
    let words: Vec<u32> =
        words.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let per = THREADS as usize * WORDS;
    let judged =
        micros.iter().zip(words.chunks_exact(per)).map(|(micro, words)| judge(micro, &inputs, words));
    let micros = judged.collect();
    let run = start.elapsed() - load;
    Ok(CompilerReport { device: engine.describe(), compiler: engine.compiler(), micros, load, run })
}

/// The module of the self-test, to compile by other means: two parameters, the addresses of its inputs and of its results.
///
/// # Errors
/// None that is known.
pub fn compiler_program() -> Result<Program, CheckError> {
    program::program(&program::micros())
}

/// What results are before they are written.
const POISON: u8 = 0xA5;

/// The result, or the error of what came before.
fn freed<T>(freed: Result<(), EngineError>, result: Result<T, EngineError>) -> Result<T, EngineError> {
    let result = result?;
    freed.map(|()| result)
}

fn judge(micro: &Micro, inputs: &program::Inputs, words: &[u32]) -> MicroReport {
    let want = (micro.want)(inputs);
    let mut wrong: Option<WrongWord> = None;
    for (at, (&is, &want)) in (0u32..).zip(words.iter().zip(want.as_flattened())) {
        if is != want {
            let first = WrongWord { thread: at / WORDS as u32, word: at % WORDS as u32, is, want, count: 0 };
            wrong.get_or_insert(first).count += 1;
        }
    }
    let Micro { name, about, ours, .. } = *micro;
    MicroReport { name, about, ours, wrong }
}

impl fmt::Display for CompilerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device    {}", self.device)?;
        if let Some(compiler) = &self.compiler {
            writeln!(f, "compiler  {compiler}")?;
        }
        for MicroReport { name, about, ours, wrong } in &self.micros {
            let Some(WrongWord { thread, word, is, want, count }) = wrong else {
                writeln!(f, "right     {name}")?;
                continue;
            };
            writeln!(
                f,
                "wrong     {name}: {count} of {} words; thread {thread} has {is:#010x} as word {word}, {want:#010x} is right",
                THREADS as usize * WORDS,
            )?;
            let whose = if *ours {
                "kernels of this library do so"
            } else {
                "no kernel of this library does so, PTX of others may"
            };
            writeln!(f, "          it {about}; {whose}")?;
        }
        let wrong = self.wrong().count();
        writeln!(f, "found     {wrong} of {} micro-kernels have wrong bits", self.micros.len())?;
        let [load, run] = [self.load, self.run].map(|time| time.as_secs_f64() * 1e3);
        writeln!(f, "time      {load:.2} ms to compile and load, {run:.2} ms to run and compare")
    }
}

#[cfg(test)]
mod tests;
