//! A warp-specialised GEMM under every schedule, and the faults that the emulator reports when the kernel is
//! broken.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod kernel;

use emulator::{Failure, Fault, Options, Owner, Program, Schedule, Wait};
use kernel::{Defect, Problem, Tile, gemm};

const SMALL: Tile = Tile { n: 128, stages: 3, cluster: 1 };

fn schedules() -> Vec<Options<'static>> {
    let mut all: Vec<_> = [Schedule::Default, Schedule::Earliest, Schedule::Latest]
        .into_iter()
        .map(|schedule| Options { schedule, ..Options::default() })
        .collect();
    all.extend((0..8).map(|seed| Options { schedule: Schedule::Random, seed, ..Options::default() }));
    all
}

#[test]
fn whole_and_ragged_problems_on_every_schedule() {
    for (why, tile, shape) in [
        ("one tile", SMALL, [128, 128, 256]),
        ("ragged on every side", SMALL, [200, 136, 200]),
        ("wide tiles", Tile { n: 256, stages: 2, cluster: 1 }, [128, 256, 320]),
        ("a cluster that shares B", Tile { n: 128, stages: 3, cluster: 2 }, [256, 128, 512]),
    ] {
        let program = Program::new(&gemm(tile, Defect::None));
        for options in schedules() {
            let problem = Problem::new(tile, shape);
            let launched = program.launch(problem.grid, &problem.arguments, &problem.memory, &options);
            let report = launched.unwrap_or_else(|failure| panic!("{why}, {options:?}: {failure}"));
            assert_eq!(
                report.ctas,
                problem.grid.ctas.iter().map(|&extent| u64::from(extent)).product::<u64>()
            );
            problem.check();
        }
    }
}

fn fault(defect: Defect, options: &Options<'_>) -> Option<Fault> {
    let problem = Problem::new(SMALL, [128, 128, 512]);
    let program = Program::new(&gemm(SMALL, defect));
    match program.launch(problem.grid, &problem.arguments, &problem.memory, options) {
        Err(Failure::Trap(trap)) => {
            println!("{defect:?}: {trap}\n");
            Some(trap.fault)
        }
        Err(failure) => panic!("{failure}"),
        Ok(_) => None,
    }
}

#[test]
fn every_defect_is_found_by_the_default_schedule() {
    let found =
        |defect| fault(defect, &Options::default()).unwrap_or_else(|| panic!("{defect:?} went unnoticed"));
    let load = |fault| matches!(fault, Fault::SharedInFlight { owner: Owner::TensorLoad, .. });
    assert!(matches!(found(Defect::TooManyBytes), Fault::Hang { .. }));
    assert!(load(found(Defect::NoFullWait)));
    assert!(matches!(found(Defect::NoEmptyWait), Fault::MbarrierOverArrival { .. }));
    assert!(matches!(found(Defect::EarlyRelease), Fault::SharedInFlight { owner: Owner::AsyncRead, .. }));
    assert!(matches!(found(Defect::NoProxyFence), Fault::MissingProxyFence { .. }));
    assert!(matches!(
        found(Defect::NoFinalWait),
        Fault::RegisterInFlight { write: false, .. }
            | Fault::SharedInFlight { owner: Owner::AsyncRead, write: true, .. }
    ));
    assert!(matches!(found(Defect::NoWgmmaFence), Fault::MissingWgmmaFence { .. }));
    assert!(matches!(found(Defect::NoStoreWait), Fault::ExitInFlight { .. }));
}

#[test]
fn a_hang_says_who_waits_for_what() {
    let Some(Fault::Hang { waiting, .. }) = fault(Defect::TooManyBytes, &Options::default()) else {
        panic!("no hang")
    };
    let consumer = waiting.iter().find(|one| one.place.warp == 4).unwrap();
    assert_eq!(consumer.place.scopes, ["consumer", "wait"]);
    assert!(matches!(
        consumer.on,
        Wait::Mbarrier { parity: 0, phase: 0, pending: 0, expected: 1, outstanding: 128, .. }
    ));
    let problem = Problem::new(SMALL, [128, 128, 512]);
    let program = Program::new(&gemm(SMALL, Defect::TooManyBytes));
    let failure = program
        .launch(problem.grid, &problem.arguments, &problem.memory, &Options::default())
        .unwrap_err()
        .to_string();
    for text in [
        "kernel `gemm`: hang: no warp can run and nothing asynchronous is pending",
        "CTA (0, 0, 0) rank 0, warps 4 5 6 7 8 9 10 11 [consumer > wait], mbarrier.try_wait at ",
        "gemm/kernel.rs:",
        "wait for the mbarrier at byte ",
        "parity 0: phase 0 is current, 0 of 1 arrivals pending, 128 bytes outstanding",
        "warp 0 [producer > load], mbarrier.try_wait at ",
        "parity 0: phase 0 is current, 2 of 2 arrivals pending, 0 bytes outstanding",
    ] {
        assert!(failure.contains(text), "`{text}` is missing in\n{failure}");
    }
}

/// Whatever number of host threads runs the clusters, a seed has the same bits and the same verdict.
#[test]
fn a_seed_says_the_same_on_any_number_of_threads() {
    const THREADS: [usize; 3] = [1, 2, 16];
    let shape = [300, 264, 520];
    let schedules = [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Random];
    for (schedule, seed) in schedules.into_iter().flat_map(|schedule| [(schedule, 0), (schedule, 7)]) {
        let options = THREADS.map(|threads| Options { schedule, seed, threads, ..Options::default() });
        let program = Program::new(&gemm(SMALL, Defect::None));
        let bits = options.each_ref().map(|options| {
            let problem = Problem::new(SMALL, shape);
            program.launch(problem.grid, &problem.arguments, &problem.memory, options).unwrap();
            problem.check();
            problem.memory.read(problem.d, (shape[0] * shape[1] * 2) as usize).unwrap()
        });
        assert!(bits[1..].iter().all(|other| *other == bits[0]), "{schedule:?}, seed {seed}");
        for defect in [Defect::TooManyBytes, Defect::NoFullWait, Defect::NoProxyFence, Defect::NoStoreWait] {
            let found =
                options.each_ref().map(|options| fault(defect, options).map(|fault| fault.to_string()));
            assert!(
                found[1..].iter().all(|other| *other == found[0]),
                "{schedule:?}, seed {seed}: {found:?}"
            );
        }
    }
}

#[test]
fn speed() {
    let tile = Tile { n: 256, stages: 3, cluster: 1 };
    let size = if cfg!(debug_assertions) { 256 } else { 1024 };
    let problem = Problem::new(tile, [size; 3]);
    let program = Program::new(&gemm(tile, Defect::None));
    let start = std::time::Instant::now();
    let report =
        program.launch(problem.grid, &problem.arguments, &problem.memory, &Options::default()).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{size}^3 in {seconds:.3} s: {:.2e} multiply-adds/s, {report:?}",
        report.multiply_adds as f64 / seconds
    );
    problem.check();
}
