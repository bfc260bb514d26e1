//! Every hazard and every legal program under many schedules, and the page that lists them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use emulator::{Failure, Fault, Options, Schedule};

use crate::{
    Case, agreed, asynchronous, barriers, bulk, cluster, coherence, collectives, copies, crossing, flags,
    global, grid, im2col, impatient, issuers, joint, kept, known, lanes, launch, legal, lifetimes, locks,
    lockstep, matrix, mbarriers, memory, named, observed, partial, paths, phases, pipeline, proxies, remote,
    reused, sources, staging, steps, sums, tensor_maps, unusual, weak,
};

/// Number of random schedules, in addition to the four deterministic ones.
const RANDOM: u64 = 50;
/// The page that this test writes and checks.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/evidence/hazards.md");
/// The environment variable that makes the test write the page.
const WRITE: &str = "HAZARDS_PAGE";

/// Hazards that no schedule finds. If one is found, it must be removed here.
const MISSED: &[&str] = &[];

/// Hazards whose twin traps. If it no longer does, it must be removed here.
const TWINS: &[&str] = &[];

/// Legal programs that are flagged. If one is no longer flagged, it must be removed here.
const FLAGGED: &[&str] = &[];

/// The result of a sweep of one program.
#[derive(Default)]
struct Outcome {
    /// Number of schedules.
    runs: usize,
    /// Number of schedules that ended in the expected fault.
    found: usize,
    /// The kinds of these faults, and the ISA section of the first.
    kinds: Vec<String>,
    section: &'static str,
    /// Other failures, each with a schedule and seed.
    others: BTreeMap<String, (Schedule, u64)>,
}

fn sweep(case: &Case, broken: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for (schedule, seed) in Schedule::sweep(RANDOM) {
        let options = Options { schedule, seed, fuel: crate::FUEL, threads: 1, ..Options::default() };
        outcome.runs += 1;
        match launch(case, broken, &options) {
            Ok(()) => {}
            Err(Failure::Trap(trap)) if broken && (case.found)(&trap.fault) => {
                outcome.found += 1;
                let kind = kind(&trap.fault);
                if outcome.kinds.is_empty() {
                    outcome.section = trap.fault.rule().section;
                }
                if !outcome.kinds.contains(&kind) {
                    outcome.kinds.push(kind);
                }
            }
            Err(other) => {
                outcome.others.entry(other.to_string()).or_insert((schedule, seed));
            }
        }
    }
    outcome
}

/// The name of a fault's variant.
fn kind(fault: &Fault) -> String {
    let text = format!("{fault:?}").replacen("Tensor(", "Tensor", 1);
    text.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}

/// Sweeps all cases on two threads.
fn sweep_all(cases: &[Case], broken: bool) -> Vec<Outcome> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else { break };
            let outcome = sweep(case, broken);
            done.lock().unwrap().insert(number, outcome);
        }
    };
    std::thread::scope(|scope| {
        let _other = scope.spawn(work);
        work();
    });
    done.into_inner().unwrap().into_values().collect()
}

pub(crate) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("Plain accesses", memory::cases()),
        ("Tensor copies and multiplies", asynchronous::cases()),
        ("Rings of stages", pipeline::cases()),
        ("Proxies", proxies::cases()),
        ("Sources of copies, and staging memory", staging::cases()),
        ("What copies and multiplies still read", sources::cases()),
        ("Multiplies and matrices", matrix::cases()),
        ("Copies of threads", copies::cases()),
        ("Bulk copies and asynchronous stores", bulk::cases()),
        ("Orders and scopes of mbarriers", mbarriers::cases()),
        ("im2col", im2col::cases()),
        ("Barriers, clusters, registers, ends", barriers::cases()),
        ("Collectives", collectives::cases()),
        ("Shared memory", named::cases()),
        ("Clusters", cluster::cases()),
        ("Beginnings and ends of mbarriers and peers", lifetimes::cases()),
        ("Global memory between CTAs", global::cases()),
        ("Flags", flags::cases()),
        ("Locks, queues, counters", locks::cases()),
        ("Tensor maps that change", tensor_maps::cases()),
        ("Maps of other CTAs, and grids before this one", grid::cases()),
        ("Lanes", lanes::cases()),
        ("Weak memory", weak::cases()),
        ("What one lane knows", known::cases()),
        ("Stores and reductions in flight together", joint::cases()),
        ("All copies of a source", kept::cases()),
        ("Orders of writes", coherence::cases()),
        ("Sums in order", sums::cases()),
        ("Proxies between CTAs", crossing::cases()),
        ("Two buffers on one mbarrier", phases::shared()),
        ("Fills and drains", phases::drains()),
        ("Barriers that only some threads reach", partial::barriers()),
        ("Skipped steps of a ring", steps::skipped()),
        ("Bulk groups of another thread", issuers::groups()),
        ("Flags raised before the CTA has agreed", agreed::flags()),
        ("Peers that are not ready", remote::early()),
        ("The own CTA in place of a peer", remote::own()),
        ("Memory of mbarriers used again", reused::cases()),
        ("Grids before this one, role by role", issuers::roles()),
        ("Words that decide a branch", steps::branches()),
        ("Copies by every lane", partial::lanes()),
        ("Global memory without a barrier of the grid", agreed::passes()),
        ("What a read has observed", observed::cases()),
        ("Lanes in turn", lockstep::cases()),
        ("Registers that prove nothing", lockstep::registers()),
        ("Fences and waits of another thread", paths::cases()),
        ("Tensor maps from zeros", paths::maps()),
        ("Polls that give up", impatient::polls()),
        ("Counts that cover nothing", impatient::counts()),
        ("A second launch", impatient::launches()),
    ]
}

fn legal() -> Vec<Case> {
    [legal::cases(), unusual::cases(), paths::legal()].into_iter().flatten().collect()
}

const INTRODUCTION: &str = "\
# Hazards

Each row is a program of a few lines with one mistake. It has a twin without the mistake, and no schedule makes the twin trap.
*Section* is the section of the PTX ISA that the mistake breaks. *Fault* is the variant of `emulator::Fault` that reports it.
*Found* is the number of schedules that end in that fault, of 54: four deterministic ones and 50 random ones
(`Schedule::sweep(50)`). The programs are in `emulator/tests/hazards`. A test writes and checks this page:

```sh
HAZARDS_PAGE=write cargo test --profile ci -p falchion-emulator --test hazards   # writes it; without the variable: checks it
```
";

#[test]
fn the_page_says_how_many_schedules_find_each_hazard() {
    let (mut page, mut wrong) = (INTRODUCTION.to_owned(), String::new());
    for (group, cases) in groups() {
        write!(page, "\n## {group}\n\n| hazard | section | fault | found |\n|---|---|---|---|\n").unwrap();
        let (bugs, twins) = (sweep_all(&cases, true), sweep_all(&cases, false));
        for ((case, bug), twin) in cases.iter().zip(bugs).zip(twins) {
            let (why, section) = (case.why, case.isa.unwrap_or(bug.section));
            let faults = bug.kinds.join(", ");
            writeln!(page, "| {why} | {section} | {faults} | {} |", bug.found).unwrap();
            if (bug.found == 0) != MISSED.contains(&why) {
                writeln!(wrong, "{group}: {why}: {} of {} schedules find it", bug.found, bug.runs).unwrap();
                for (other, schedule) in bug.others.iter().take(2) {
                    writeln!(wrong, "  under {schedule:?}: {other}").unwrap();
                }
            }
            if twin.others.is_empty() == TWINS.contains(&why) {
                let failure = twin.others.iter().next();
                writeln!(wrong, "{group}: {why}: the twin: {failure:?}").unwrap();
            }
        }
    }
    let errors = [
        ("A mistake that no schedule finds", MISSED),
        ("A twin that traps", TWINS),
        ("A legal program that traps", FLAGGED),
    ];
    if errors.iter().any(|(_, list)| !list.is_empty()) {
        page.push_str(
            "\n## Known errors of the emulator\n\nThey are exceptions to the rest of this page.\n\n",
        );
    }
    for (what, why) in errors.iter().flat_map(|(what, list)| list.iter().map(move |why| (what, why))) {
        writeln!(page, "* {what}: {why}").unwrap();
    }
    let cases = legal();
    page.push_str(
        "\n## Unusual and legal\n\nNo schedule makes these trap.\n\n| program | section |\n|---|---|\n",
    );
    for (case, outcome) in cases.iter().zip(sweep_all(&cases, false)) {
        let why = case.why;
        if outcome.others.is_empty() {
            writeln!(page, "| {why} | {} |", case.isa.unwrap()).unwrap();
        }
        if outcome.others.is_empty() == FLAGGED.contains(&why) {
            writeln!(wrong, "legal: {why}: {:?}", outcome.others.iter().next()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(Path::new(PAGE)).unwrap();
    for (line, (old, new)) in written.lines().zip(page.lines()).enumerate() {
        assert_eq!(old, new, "docs/evidence/hazards.md, line {}: write it anew with {WRITE}=write", line + 1);
    }
    assert_eq!(written.len(), page.len(), "docs/evidence/hazards.md: write it anew with {WRITE}=write");
}

#[test]
fn each_hazard_has_a_name_of_its_own() {
    let mut names: Vec<&str> = groups().iter().flat_map(|(_, cases)| cases).map(|case| case.why).collect();
    names.extend(legal().iter().map(|case| case.why));
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "two hazards of one name");
    let listed = [MISSED, TWINS, FLAGGED].concat();
    assert!(listed.iter().all(|name| names.contains(name)), "no hazard of that name");
}
