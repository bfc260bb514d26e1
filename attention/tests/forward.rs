//! The forward pass in the emulator, against the reference in f64.

mod support;

use attention::{Causal, Full, Mask};
use emulator::Schedule;
use kernel::Emulator;
use support::{Case, Layout, Values, attention, check};

/// Checks a case under a schedule, on a device of a few SMs, so that CTAs have several tiles.
fn run(spec: &str, case: Case, (schedule, seed): (Schedule, u64)) -> support::Ratios {
    let kernel = attention(spec);
    let mut engine = Emulator::new().with_multiprocessors(3).with_schedule(schedule, seed);
    let checked = match kernel.plan().spec.mask {
        Mask::Full => check::<Full>(&mut engine, &kernel, case, (&[], &[])),
        Mask::Causal => check::<Causal>(&mut engine, &kernel, case, (&[], &[])),
    };
    checked.unwrap_or_else(|error| panic!("{spec}, {case:?}, {schedule:?} {seed}: {error}"))
}

const DEFAULT: (Schedule, u64) = (Schedule::Default, 0);

#[test]
fn lengths() {
    for spec in ["d=64 tile=64x64", "d=64 tile=64x64 mask=causal"] {
        for queries in [1, 5, 63, 64, 65, 130] {
            for keys in [0, 1, 7, 63, 64, 65, 129, 200] {
                run(spec, Case::new(queries, keys), DEFAULT);
            }
        }
        run(spec, Case::new(0, 5), DEFAULT);
    }
}

#[test]
fn kernels() {
    for spec in [
        "d=64 tile=192x128 mask=causal",
        "d=64 tile=128x96 format=f16",
        "d=64 tile=64x64 store=direct output=f32",
        "tile=128x128 mask=causal",
        "tile=128x176",
        "tile=128x64 format=f16 mask=causal stages=1 turns=off",
        "tile=64x48 store=direct mask=causal",
    ] {
        let ratios = run(spec, Case { heads: [2, 1], ..Case::new(200, 333) }, DEFAULT);
        assert!(ratios.o > 0.01 && ratios.log_sum_exp > 0.001, "{spec}: bounds that say nothing: {ratios:?}");
    }
}

#[test]
fn heads_and_layouts() {
    for layout in [Layout::HeadsFirst, Layout::LengthFirst, Layout::Gaps] {
        for spec in ["d=64 tile=64x64 mask=causal", "d=64 tile=64x64 store=direct"] {
            let case = Case { batch: 2, heads: [6, 2], layout, ..Case::new(70, 100) };
            run(spec, case, DEFAULT);
        }
    }
}

#[test]
fn values() {
    for values in [Values::Normal(1e-4), Values::Normal(20.0), Values::Large(1e4), Values::Large(1e-4)] {
        for format in ["bf16", "f16"] {
            let spec = format!("d=64 tile=64x64 mask=causal format={format}");
            run(&spec, Case { values, ..Case::new(130, 200) }, DEFAULT);
        }
    }
}

#[test]
fn schedules() {
    for spec in [
        "d=64 tile=128x64 mask=causal",
        "d=64 tile=192x64 mask=causal stages=1",
        "d=64 tile=128x64 stages=2 turns=off store=direct mask=causal",
    ] {
        for schedule in Schedule::sweep(6) {
            run(spec, Case { heads: [4, 2], ..Case::new(300, 270) }, schedule);
        }
    }
}
