//! CTAs that wait for each other in a chain through global memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

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
