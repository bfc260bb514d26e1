//! A fuzz test: the emulator runs every program that the verifier accepts to its end or to a trap. Neither
//! the emulator nor the printer panics. What the printer writes is read as the same program.
//!
//! Programs are built from strings of bytes ([`generator`]). A short run with fixed strings is part of the
//! normal tests. A long run: `FUZZ_SECONDS=600 cargo test -p falchion-emulator --release --test fuzz --
//! --ignored` runs for this number of seconds on every processor, beginning at the seed in `FUZZ_SEED`
//! (default 0).

mod generator;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use emulator::{Failure, Memory, Options, Program, Schedule};
use ptx::abi::{Argument, Grid, Im2colMap, Promotion, TensorElement, TensorMap, TensorSwizzle};

use generator::{DATA_BYTES, generated};

/// Counts of the programs tried.
#[derive(Debug, Default)]
struct Tally {
    refused: u64,
    ended: u64,
    trapped: u64,
}

/// A string of bytes from a seed, by SplitMix64.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let words = 8 + next() % 120;
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

fn try_one(bytes: &[u8], tally: &mut Tally) {
    let function = generated(bytes);
    let cluster = function.cluster[0];
    let Ok(verified) = function.verify() else {
        tally.refused += 1;
        return;
    };
    assert!(ptx::module_text(&verified).contains(".entry fuzz"));
    if let Err(error) = ptx::read::agree(&verified) {
        panic!("{error}");
    }
    let program = Program::new(&verified);
    let mut memory = Memory::new();
    let (data, out) = (memory.upload(&vec![1; DATA_BYTES]), memory.allocate(DATA_BYTES));
    let map = TensorMap {
        element: TensorElement::Bf16,
        address: data,
        dims: vec![64, 8],
        strides: vec![128],
        box_dims: vec![64, 8],
        swizzle: TensorSwizzle::B128,
        promotion: Promotion::default(),
        reach: None,
    };
    let pixels = Im2colMap {
        element: TensorElement::U32,
        address: out,
        dims: vec![12, 3, 3, 2],
        strides: vec![64, 192, 576],
        lower: vec![-1, -1],
        upper: vec![0, -1],
        channels: 16,
        pixels: 16,
        steps: vec![1, 2],
        swizzle: TensorSwizzle::B64,
    };
    let arguments: [Argument; 5] =
        [data.into(), out.into(), u32::from(bytes[0]).into(), map.into(), pixels.into()];
    let (schedule, seed) = Schedule::sweep(12).nth(usize::from(bytes[1]) % 16).unwrap_or_default();
    let options = Options { fuel: 3000, threads: 1, schedule, seed, ..Options::default() };
    let ctas = cluster * (1 + u32::from(bytes[2] % 2));
    match program.launch(Grid { ctas: [ctas, 1, 1] }, &arguments, &memory, &options) {
        Ok(_) => tally.ended += 1,
        Err(Failure::Trap(trap)) => {
            assert!(!trap.to_string().is_empty());
            tally.trapped += 1;
        }
        Err(other) => panic!("a legal launch was refused: {other}"),
    }
}

/// Tries the programs of these seeds until the time limit. Reports which one panicked.
fn try_all(seeds: impl Iterator<Item = u64>, limit: Option<Duration>) -> Tally {
    let (start, mut tally) = (Instant::now(), Tally::default());
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| try_one(&bytes(seed), &mut tally)));
        assert!(outcome.is_ok(), "the program of FUZZ_SEED={seed} panicked");
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            break;
        }
    }
    tally
}

#[test]
fn accepted_programs_end_or_trap() {
    // The last program loads from the last line of the address space.
    let tally = try_all((0..800).chain([35042]), None);
    assert!(tally.ended > 10 && tally.trapped > 100, "programs of both kinds: {tally:?}");
    assert!(tally.refused < tally.ended + tally.trapped, "most are legal: {tally:?}");
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "as long as FUZZ_SECONDS says"]
fn for_a_while() {
    let limit = Duration::from_secs(number("FUZZ_SECONDS", 5));
    let next = AtomicU64::new(number("FUZZ_SEED", 0));
    let seeds = || std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| println!("{:?}", try_all(seeds(), Some(limit))));
        }
    });
}
