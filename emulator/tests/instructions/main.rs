//! Instructions of the scalar and warp families: the results of each lane, compared with a reference on the
//! host.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod atomics;
mod bulk;
mod bytes;
mod tensor_maps;
mod warps;

use emulator::{Memory, Options, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Builder, Entry, Function, Target};

/// A kernel with 4 KiB of shared memory.
fn kernel(threads: u32, cluster: u32, body: impl FnOnce(&Builder)) -> Program {
    let entry = Entry {
        name: "test".into(),
        target: Target::Sm90a,
        threads,
        shared_bytes: 4096,
        cluster: [cluster, 1, 1],
    };
    let function = Function::build(entry, body).verify();
    Program::new(&function.unwrap_or_else(|error| panic!("{error}")))
}

fn run(program: &Program, ctas: u32, arguments: &[Argument], memory: &Memory) {
    let launched = program.launch(Grid { ctas: [ctas, 1, 1] }, arguments, memory, &Options::default());
    launched.unwrap_or_else(|failure| panic!("{failure}"));
}

fn words(memory: &Memory, address: u64, count: usize) -> Vec<u32> {
    let bytes = memory.read(address, count * 4).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}
