//! CTAs that wait for each other through global memory: in a chain, at barriers of the grid, and by fences.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::time::{Duration, Instant};

use emulator::{Memory, Options, Program, Schedule};
use ptx::abi::Grid;
use ptx::{
    AtomicOp, AtomicSem, Builder, Entry, Function, LoadOrder, Location, Scope, Special, Target, Value,
};

/// Each CTA except the last waits for the flag of the next CTA and adds its number to the sum of that CTA.
/// Then it sets its own flag.
fn program(threads: u32) -> Program {
    let entry =
        Entry { name: "chain".into(), target: Target::Sm90a, threads, shared_bytes: 0, cluster: [1, 1, 1] };
    let function = Function::build(entry, |f: &Builder| {
        let (flags, sums): (Value<'_, u64>, Value<'_, u64>) = (f.param("flags"), f.param("sums"));
        let (cta, ctas) = (f.special(Special::CtaX), f.special(Special::GridX));
        let thread = f.special(Special::ThreadX);
        let own = cta.mul_wide(4);
        let sum = f.variable(cta);
        f.if_((cta + 1).less_than(ctas), || {
            f.if_(thread.equals(0), || {
                f.loop_(|| {
                    let order = LoadOrder::Acquire(Scope::Gpu);
                    let [seen] = f.load_ordered::<u32, 1>(order, Location::global(flags + own, 4));
                    f.break_if(seen.differs_from(0));
                });
                sum.set(sum.get() + f.load_global::<u32>(sums + own, 4));
            });
            f.barrier_sync(0, threads);
        });
        f.if_(thread.equals(0), || {
            f.store_global(sums + own, 0, [sum.get()]);
            let flag = Location::global(flags + own, 0);
            f.reduce(AtomicOp::Add, flag, [f.constant(1u32)], (AtomicSem::Release, Scope::Gpu));
        });
    });
    Program::new(&function.verify().unwrap())
}

/// Runs the program on a grid. Returns the number of warp instructions.
fn run(ctas: u32, schedule: Schedule) -> u64 {
    let program = program(128);
    let mut memory = Memory::new();
    let flags = memory.upload(&vec![0; 4 * ctas as usize]);
    let sums = memory.allocate(4 * ctas as usize);
    let options = Options { schedule, threads: 1, ..Options::default() };
    let grid = Grid { ctas: [ctas, 1, 1] };
    let report = program.launch(grid, &[flags.into(), sums.into()], &memory, &options).unwrap();
    let first = memory.read(sums, 4).unwrap();
    assert_eq!(first, (ctas * (ctas - 1) / 2).to_le_bytes(), "{ctas} CTAs under {schedule:?}");
    report.instructions
}

#[test]
fn a_chain_of_ctas_costs_time_in_proportion() {
    for schedule in [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Random] {
        let (few, many) = (run(40, schedule), run(300, schedule));
        // 7.5 times the number of CTAs. If every CTA polled for every other, the work would grow by a factor
        // of 56.
        assert!(many < 12 * few, "{few} instructions for 40 CTAs, {many} for 300, under {schedule:?}");
    }
}

/// Each CTA learns what all CTAs before it know, and adds its own. Threads share what they know, so the cost per CTA
/// does not grow with the length of the chain. The limit is generous, as tests run side by side.
#[test]
fn a_long_chain_shares_what_it_knows() {
    let start = Instant::now();
    run(3000, Schedule::Default);
    let time = start.elapsed();
    assert!(time < Duration::from_secs(20), "{time:?}");
}

fn built(name: &str, threads: u32, body: impl FnOnce(&Builder)) -> Program {
    let entry =
        Entry { name: name.into(), target: Target::Sm90a, threads, shared_bytes: 0, cluster: [1, 1, 1] };
    Program::new(&Function::build(entry, body).verify().unwrap())
}

/// Runs a program on a grid, with words of zeros as its argument. Returns the first word and the time.
fn timed(program: &Program, ctas: u32, words: usize, schedule: Schedule) -> (u32, Duration) {
    let mut memory = Memory::new();
    let at = memory.upload(&vec![0; 4 * words]);
    let options = Options { schedule, threads: 1, ..Options::default() };
    let start = Instant::now();
    program.launch(Grid { ctas: [ctas, 1, 1] }, &[at.into()], &memory, &options).unwrap();
    let elapsed = start.elapsed();
    (u32::from_le_bytes(memory.read(at, 4).unwrap().try_into().unwrap()), elapsed)
}

/// Each CTA executes a `fence.sc` between two accesses. The cost per CTA must not grow with the square of the
/// number of CTAs. The limit is generous, as tests run side by side.
#[test]
fn many_ctas_fence_once() {
    let program = built("fences", 32, |f| {
        let words: Value<'_, u64> = f.param("words");
        f.if_(f.special(Special::ThreadX).equals(0), || {
            let at = Location::global(words, 0);
            f.reduce(AtomicOp::Add, at, [f.constant(1u32)], (AtomicSem::Relaxed, Scope::Gpu));
            f.fence_sc(Scope::Gpu);
            let _seen = f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Gpu), at);
        });
    });
    for schedule in [Schedule::Default, Schedule::Latest] {
        let (count, time) = timed(&program, 2000, 1, schedule);
        assert_eq!(count, 2000);
        assert!(time < Duration::from_secs(20), "{time:?} under {schedule:?}");
    }
}

/// All CTAs of a grid meet four times. All of them know of all others afterwards.
#[test]
fn a_grid_meets_four_times() {
    const CTAS: u32 = 96;
    let program = built("meetings", 128, |f| {
        let words: Value<'_, u64> = f.param("words");
        let (thread, cta) = (f.special(Special::ThreadX), f.special(Special::CtaX));
        let own = words + (cta * 128 + thread + 1).mul_wide(4);
        let next = words + ((cta + 1) % CTAS * 128 + thread + 1).mul_wide(4);
        for round in 1..=4 {
            let sum = f.load_global::<u32>(own, 0);
            f.store_global(own, 0, [sum + round]);
            f.barrier_sync(0, 128);
            f.if_(thread.equals(0), || {
                let (at, one) = (Location::global(words, 0), [f.constant(1u32)]);
                f.reduce(AtomicOp::Add, at, one, (AtomicSem::Release, Scope::Gpu));
                f.loop_(|| {
                    let [seen] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), at);
                    f.break_if(!seen.less_than(CTAS * (2 * round - 1)));
                });
            });
            f.barrier_sync(0, 128);
            let _other = f.load_global::<u32>(next, 0);
            f.barrier_sync(0, 128);
            f.if_(thread.equals(0), || {
                let (at, one) = (Location::global(words, 0), [f.constant(1u32)]);
                f.reduce(AtomicOp::Add, at, one, (AtomicSem::Release, Scope::Gpu));
                f.loop_(|| {
                    let [seen] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), at);
                    f.break_if(!seen.less_than(CTAS * 2 * round));
                });
            });
            f.barrier_sync(0, 128);
        }
    });
    for schedule in [Schedule::Default, Schedule::Latest, Schedule::Random] {
        let (count, _time) = timed(&program, CTAS, 1 + 128 * CTAS as usize, schedule);
        assert_eq!(count, 8 * CTAS, "under {schedule:?}");
    }
}

/// The time that the host has executed this thread, where it says so: other tests run side by side.
fn executed() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// Whether a program of four times the size takes much less than sixteen times the time.
fn in_proportion(what: &str, run: impl Fn(u32) -> Duration, few: u32) {
    // The host counts in steps of some milliseconds.
    let time = |runs: u32, size| {
        let start = executed();
        let elapsed = (0..runs).map(|_| run(size)).sum();
        start.zip(executed()).map_or(elapsed, |(start, end)| end.saturating_sub(start)) / runs
    };
    let (one, four) = (time(32, few), time(8, 4 * few));
    assert!(four < 11 * one, "{what}: {one:?} for {few}, {four:?} for four times as many");
}

/// A warp acquires tensor maps at other and other addresses. One lane says so after each, so that the lanes know different
/// things, until they meet.
#[test]
fn a_warp_acquires_many_maps() {
    let program = |maps: u32, each_lane: bool| {
        built("maps", 32, |f| {
            let words: Value<'_, u64> = f.param("words");
            let thread = f.special(Special::ThreadX);
            f.repeat(f.constant(maps), |number| {
                let own = if each_lane { thread } else { f.constant(0u32) };
                f.acquire_tensor_map(words + (number * 32 + own).mul_wide(128), Scope::Gpu);
                f.if_(thread.equals(0), || {
                    let (at, one) = (Location::global(words, 0), [f.constant(1u32)]);
                    f.reduce(AtomicOp::Add, at, one, (AtomicSem::Release, Scope::Gpu));
                });
                f.warp_sync();
            });
        })
    };
    for (each_lane, few) in [(false, 500), (true, 100)] {
        let time = |maps| timed(&program(maps, each_lane), 1, 1, Schedule::Default).1;
        in_proportion(if each_lane { "a map of each lane" } else { "one map" }, time, few);
    }
}

/// The releases of a word are remembered for each CTA, with the older values that a read may return.
#[test]
fn many_ctas_release_to_one_counter() {
    let program = |result: bool| {
        built("releases", 32, |f| {
            let words: Value<'_, u64> = f.param("words");
            f.if_(f.special(Special::ThreadX).equals(0), || {
                let (at, one) = (Location::global(words, 0), f.constant(1u32));
                if result {
                    let _old = f.atomic(AtomicOp::Add, at, one, (AtomicSem::AcquireRelease, Scope::Gpu));
                } else {
                    f.reduce(AtomicOp::Add, at, [one], (AtomicSem::Release, Scope::Gpu));
                }
            });
        })
    };
    for result in [false, true] {
        let program = program(result);
        for schedule in [Schedule::Default, Schedule::Latest, Schedule::Random] {
            let time = |ctas| timed(&program, ctas, 1, schedule).1;
            in_proportion(&format!("{schedule:?}, result: {result}"), time, 500);
        }
    }
}
