//! The races that shipped, `examples/races`: each is found or says why not, its twin never traps, and
//! `docs/races.md` has the messages.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

#[path = "../../examples/races/exhibits.rs"]
mod exhibits;

use std::fmt::Write;

use emulator::{Failure, Fault, TensorFault};
use exhibits::EXHIBITS;

/// The page that this test writes and checks.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/races.md");
/// The environment variable that makes the test write the page.
const WRITE: &str = "RACES_PAGE";
/// Number of random schedules, in addition to the four deterministic ones.
const RANDOM: u64 = 50;

const INTRODUCTION: &str = "\
# Races that shipped

Each of these bugs, races and hangs, was in a released library, or in code that a released compiler generated. `examples/races`
has a one-page program for each, built as the kernel was, and a correct twin, mended as its project did or proposed. The
emulator finds the bug on any machine, without a GPU:

```sh
cargo run --release --example races                        # the list
cargo run --release --example races -- staging-refilled    # one of them: what is wrong, where, and the twin
```

*Found* is the number of schedules, of 54, that end in a fault; no schedule makes a twin trap. The quoted text is the
emulator's report for the first schedule that finds the bug. Where it reports nothing, the page says so, and why. A test checks
this page, and `RACES_PAGE=write cargo test --profile ci -p falchion-emulator --test museum` writes it.
";

/// Whether the fault is the one that the exhibit is about.
fn expected(name: &str, fault: &Fault) -> bool {
    match name {
        "tensor-map-rewritten" => matches!(fault, Fault::Tensor(TensorFault::MapInFlight { .. })),
        "store-map-not-fenced" => {
            matches!(fault, Fault::Tensor(TensorFault::MapUnfenced { released: true, .. }))
        }
        "proxy-fence-missing" => matches!(fault, Fault::MissingProxyFence { .. }),
        "fragments-overwritten" => matches!(fault, Fault::RegisterInFlight { write: true, .. }),
        "cluster-across-groups" => matches!(fault, Fault::Hang { .. }),
        "peer-exits" => matches!(fault, Fault::PeerExited { .. } | Fault::PeerUnordered { .. }),
        "one-arrives" => matches!(fault, Fault::SharedRace { .. }),
        "dependency-not-awaited" => matches!(fault, Fault::GridNotAwaited { .. }),
        "staging-refilled"
        | "loop-back-edge"
        | "wait-without-barrier"
        | "multicast-into-busy-peer"
        | "receiver-not-ready"
        | "parity-of-the-ring"
        | "fill-not-seen"
        | "wait-of-another-thread" => {
            matches!(fault, Fault::SharedInFlight { .. } | Fault::SharedRace { .. })
        }
        "two-buffers-one-barrier" => matches!(fault, Fault::MbarrierMissed { .. } | Fault::Hang { .. }),
        "cursor-skipped" => {
            matches!(fault, Fault::MbarrierMissed { .. } | Fault::Hang { .. } | Fault::SharedRace { .. })
        }
        "stages-not-drained" | "barrier-for-some" | "rendezvous-after-loop" => {
            matches!(fault, Fault::Hang { .. })
        }
        "round-trip-without-barrier" | "tile-told-too-soon" | "barrier-ends-early" => {
            matches!(fault, Fault::SharedRace { .. })
        }
        "probabilities-not-fenced" => {
            matches!(fault, Fault::SharedRace { .. } | Fault::MissingProxyFence { .. })
        }
        "offsets-read-early" => matches!(fault, Fault::GridNotAwaited { .. }),
        "output-not-fenced" => matches!(fault, Fault::MissingProxyFence { .. }),
        other => panic!("what is expected of {other}?"),
    }
}

#[test]
fn each_race_is_found_and_its_twin_passes() {
    let (mut page, mut wrong) = (INTRODUCTION.to_owned(), String::new());
    for one in EXHIBITS {
        if let Some((schedule, failure)) = one.sweep(true, RANDOM).unwrap().first {
            writeln!(wrong, "{}: the twin traps under {schedule:?}: {failure}", one.name).unwrap();
        }
        let bug = one.sweep(false, RANDOM).unwrap();
        if (bug.found == 0) != one.silent.is_some() {
            let known = one.silent.map_or("it must be found", |_| "it was not found before");
            writeln!(wrong, "{}: {} of {} schedules find it: {known}", one.name, bug.found, bug.runs)
                .unwrap();
        }
        write!(page, "\n## {}\n\nShipped: {}.\n\n", one.name, one.shipped.join(", ")).unwrap();
        writeln!(page, "**Bug.** {}\n\n**Twin.** {}\n", one.bug, one.mended).unwrap();
        if let Some((schedule, Failure::Trap(trap))) = bug.first {
            if !expected(one.name, &trap.fault) {
                writeln!(wrong, "{}: another fault under {schedule:?}: {trap}", one.name).unwrap();
            }
            let text = trap.fault.to_string();
            let words = text.lines().next().unwrap_or_default();
            writeln!(page, "**Found** by {} of {} schedules:\n\n> {words}\n", bug.found, bug.runs).unwrap();
        } else if let Some(why) = one.silent {
            writeln!(page, "**Not found** by any of {} schedules. {why}\n", bug.runs).unwrap();
        }
        writeln!(page, "**Why a GPU hides it.** {}", one.hidden).unwrap();
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap();
    assert!(
        written == page,
        "docs/races.md is not what the exhibits say: write it with {WRITE}=write\n{page}"
    );
}
