//! The module of the micro-kernels: one program, in which each CTA runs the micro-kernel of its number.

use kernel::Program;
use ptx::{Builder, Entry, Function, Special, Target, Value};

use super::super::CheckError;
use super::{integers, lanes, matrices, memory};

/// Threads of a micro-kernel: a warpgroup.
pub(super) const THREADS: u32 = 128;
/// Words that a thread loads, and words that it stores.
pub(super) const WORDS: usize = 4;
/// Bytes of shared memory: 48 per thread.
const SHARED: u32 = THREADS * 48;

/// The words of all threads.
pub(super) type Inputs = [[u32; WORDS]; THREADS as usize];

/// A micro-kernel.
#[derive(Clone, Copy)]
pub(super) struct Micro {
    pub(super) name: &'static str,
    /// What it does, as a clause after "it".
    pub(super) about: &'static str,
    /// Whether kernels of this library do so.
    pub(super) ours: bool,
    /// The program of a thread: gives its results.
    pub(super) emit: Emit,
    /// The results of all threads.
    pub(super) want: fn(&Inputs) -> Inputs,
}

/// Emits a micro-kernel.
pub(super) type Emit = for<'f> fn(&Site<'f>) -> [Value<'f, u32>; WORDS];

/// What a thread has.
pub(super) struct Site<'f> {
    pub(super) f: &'f Builder,
    /// Its number.
    pub(super) thread: Value<'f, u32>,
    /// Its words.
    pub(super) words: [Value<'f, u32>; WORDS],
    /// The address of thread 0's words, in global memory.
    pub(super) input: Value<'f, u64>,
    /// The address of the CTA's shared memory, a multiple of 1024.
    pub(super) shared: Value<'f, u32>,
}

/// All micro-kernels.
pub(super) fn micros() -> Vec<Micro> {
    [integers::MICROS, lanes::MICROS, memory::MICROS, matrices::MICROS]
        .into_iter()
        .flatten()
        .copied()
        .collect()
}

/// The program of the micro-kernels.
pub(super) fn program(micros: &[Micro]) -> Result<Program, CheckError> {
    let (name, target) = ("falchion_compiler_self_test".into(), Target::Sm90a);
    let entry = Entry { name, target, threads: THREADS, shared_bytes: SHARED, cluster: [1; 3] };
    let function = Function::build(entry, |f| {
        let (input, output) = (f.param::<u64>("input"), f.param::<u64>("output"));
        let (thread, number) = (f.special(Special::ThreadX), f.special(Special::CtaX));
        let words = f.load_global_vector(input + thread.mul_wide(16), 0);
        let site = Site { f, thread, words, input, shared: f.shared_base() };
        let own = output + (number * THREADS + thread).mul_wide(16);
        for (own_number, micro) in (0u32..).zip(micros) {
            f.if_(number.equals(own_number), || {
                f.scope(micro.name, || {
                    let results = (micro.emit)(&site);
                    f.store_global(own, 0, results);
                });
            });
        }
    });
    Program::new(function).map_err(|error| CheckError::Verify { file: "the self-test".to_owned(), error })
}

/// Words without a pattern, the same in each process.
pub(super) fn inputs() -> Inputs {
    let mut state = 0x9E37_79B9_u32;
    let mut next = || {
        // xorshift32.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    core::array::from_fn(|_| core::array::from_fn(|_| next()))
}

/// The words in memory.
pub(super) fn bytes(inputs: &Inputs) -> Vec<u8> {
    inputs.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What each thread computes from its own words.
pub(super) fn each(inputs: &Inputs, one: impl Fn(u32, [u32; WORDS]) -> [u32; WORDS]) -> Inputs {
    let mut number = 0..;
    inputs.map(|words| one(number.next().unwrap_or(0), words))
}
