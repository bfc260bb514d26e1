//! The timeline section: what each warp did in an emulated run, what it waited for, and when each mbarrier's
//! phases completed.

use std::collections::HashMap;

use collective::{MainloopSpec, RingPlan};
use emulator::{Activity, Event, Schedule, SharedAccess, Trace, Track, Wait};
use kernel::operands::Layouts;
use kernel::{AnyGemm, Call, GemmProblem, LinearArguments};
use serde_json::{Value, json};

use crate::verify::family::{self, FamilyError};

/// Largest number of events on a page.
const MOST_EVENTS: usize = 12_000;

/// A table of texts without duplicates.
#[derive(Default)]
struct Words {
    words: Vec<String>,
    known: HashMap<String, i64>,
}

impl Words {
    fn number(&mut self, word: String) -> i64 {
        if word.is_empty() {
            return -1;
        }
        let next = self.words.len() as i64;
        let words = &mut self.words;
        *self.known.entry(word).or_insert_with_key(|word| {
            words.push(word.clone());
            next
        })
    }
}

/// The default problem: two cluster tiles, and enough k-tiles that stages are reused.
pub fn small(entry: &AnyGemm, problem: GemmProblem) -> GemmProblem {
    let plan = entry.plan();
    let MainloopSpec { tile: [m, n, k], cluster, .. } = plan.mainloop;
    let [m, n] = plan.oriented([m * cluster[0], 2 * n * cluster[1]]);
    let k = k * (plan.ring.stages + 2);
    GemmProblem { m: problem.m.min(m), n: problem.n.min(n), k: problem.k.min(k) }
}

/// Runs a kernel on random matrices in the emulator, and records it.
///
/// # Errors
/// The kernel does not take the problem, or this machine cannot trace it.
pub fn traced(entry: &AnyGemm, problem: GemmProblem) -> Result<Value, FamilyError> {
    let call = Call { workspace: None, ..Layouts::of(entry).packed(problem, 16) };
    let sourced = entry.plan().epilogue.sourced;
    let (beta, c) = if sourced { (1.0, Some(call.d)) } else { (0.0, None) };
    let call = call.with(LinearArguments { beta, c, ..LinearArguments::default() });
    let traced = family::trace(entry, (&call, &[]), (1, Schedule::Paced, 0))?;
    Ok(traced.map_or(Value::Null, |(trace, outcome)| {
        of(entry, problem, &trace, outcome.err().map(|error| error.to_string()))
    }))
}

/// What a recorded run of a kernel did; `fault` is what ended it.
pub fn of(
    entry: &AnyGemm,
    GemmProblem { m, n, k }: GemmProblem,
    trace: &Trace,
    fault: Option<String>,
) -> Value {
    let mut run = recorded(trace, Some(entry.plan().ring));
    run["problem"] = json!(format!("{m} × {n} × {k}"));
    run["kernel"] = json!(entry.name());
    // The fault that ended the run.
    run["trap"] = json!(fault);
    run
}

/// The part of a trace that a page holds: its first events. `ring` is the one ring of stages, if there is one.
pub fn recorded(trace: &Trace, ring: Option<RingPlan>) -> Value {
    cut(trace, ring, MOST_EVENTS)
}

fn cut(trace: &Trace, ring: Option<RingPlan>, most: usize) -> Value {
    let mut starts: Vec<u64> = trace.events.iter().map(|event| event.start).collect();
    starts.sort_unstable();
    let cut = starts.get(most).copied();
    let mut ctas: Vec<[u32; 3]> = Vec::new();
    let (mut lanes, mut events, mut words) = (Vec::new(), Vec::new(), Words::default());
    for lane in trace.lanes() {
        let cta = place(&mut ctas, lane.cta);
        let kind = lane.events.first().map_or("warp", |event| kind(event.track));
        for event in lane.events.iter().filter(|event| cut.is_none_or(|cut| event.start < cut)) {
            events.push(shown(event, lanes.len() as i64, ring, &mut words));
        }
        // A row of the timeline.
        lanes.push(json!({ "cta": cta, "name": lane.name, "kind": kind }));
    }
    let mut phases: Vec<(usize, u32, Vec<u64>)> = Vec::new();
    for of_one in trace.phases.chunk_by(|a, b| (a.cta, a.offset) == (b.cta, b.offset)) {
        let Some(first) = of_one.first() else { continue };
        let steps = of_one.iter().map(|phase| phase.step).collect();
        phases.push((place(&mut ctas, first.cta), first.offset, steps));
    }
    let banks = by_statement(&trace.shared).into_iter().map(|(access, _)| {
        json!({
            "instruction": access.instruction,
            "place": access.scopes.join(" / "),
            "executed": access.executed,
            "wavefronts": access.wavefronts,
            "ideal": access.ideal,
        })
    });
    json!({
        "steps": trace.steps(),
        // Number of all events; and the step at which the page ends, if it does not hold all events.
        "events_in_all": trace.events.len(),
        "cut": cut,
        "ctas": ctas,
        "lanes": lanes,
        // Texts that events refer to by number.
        "words": words.words,
        // Lane, label, start, end, stage, scopes, statement, note, offset of the mbarrier. Label, scopes, statement and
        // note are numbers of texts. -1 means none.
        "events": events,
        // CTA, offset, and the step in which each phase completed.
        "phases": phases,
        // Statements whose lanes load from or store to shared memory.
        "banks": banks.collect::<Vec<_>>(),
    })
}

fn place(ctas: &mut Vec<[u32; 3]>, cta: [u32; 3]) -> usize {
    ctas.iter().position(|known| *known == cta).unwrap_or_else(|| {
        ctas.push(cta);
        ctas.len() - 1
    })
}

fn kind(track: Track) -> &'static str {
    match track {
        Track::Warp(_) => "warp",
        Track::Loads => "loads",
        Track::Multiplies(_) => "multiplies",
        Track::Stores => "stores",
    }
}

/// The stage of a barrier of the ring; `None` for other barriers.
fn stage(ring: Option<RingPlan>, offset: u32) -> Option<u32> {
    let ring = ring?;
    let of_ring = ring.barriers..ring.barriers + ring.barrier_bytes();
    // An mbarrier has 8 bytes. The full barriers come first, then the empty ones.
    of_ring.contains(&offset).then(|| (offset - ring.barriers) / 8 % ring.stages.max(1))
}

fn shown(event: &Event, lane: i64, ring: Option<RingPlan>, words: &mut Words) -> [i64; 9] {
    let (note, barrier) = match &event.activity {
        Activity::Wait(on) => {
            let offset = if let Wait::Mbarrier { offset, .. } = on { i64::from(*offset) } else { -1 };
            (on.to_string(), offset)
        }
        Activity::Run { instructions, .. } => (format!("{instructions} instructions"), -1),
        Activity::Load { bytes } | Activity::Store { bytes } => (format!("{bytes} B"), -1),
        Activity::Multiply { n } => (format!("64 x {n} sums"), -1),
        _ => (String::new(), -1),
    };
    let site = event.site.as_ref().map_or_else(String::new, ToString::to_string);
    // The trace names barriers by their number of arrivals; the plan says which barrier it is.
    let stage = if let Activity::Wait(Wait::Mbarrier { offset, .. }) = &event.activity {
        stage(ring, *offset).or(event.stage)
    } else {
        event.stage
    };
    let stage = stage.map_or(-1, i64::from);
    let number = |step: u64| i64::try_from(step).unwrap_or(i64::MAX);
    let label = words.number(event.label().to_owned());
    let (scopes, site) = (words.number(event.scopes.join(" / ")), words.number(site));
    [lane, label, number(event.start), number(event.end), stage, scopes, site, words.number(note), barrier]
}

/// Sums the accesses per source statement, since one line of a kernel's source builds many instructions. Also
/// returns the number of instructions.
pub fn by_statement(accesses: &[SharedAccess]) -> Vec<(SharedAccess, u64)> {
    let mut sums: Vec<(SharedAccess, u64)> = Vec::new();
    for access in accesses {
        let same = |(sum, _): &&mut (SharedAccess, u64)| {
            (&sum.site, sum.instruction, &sum.scopes) == (&access.site, access.instruction, &access.scopes)
        };
        match sums.iter_mut().find(same) {
            Some((sum, instructions)) => {
                sum.executed += access.executed;
                sum.wavefronts += access.wavefronts;
                sum.ideal += access.ideal;
                *instructions += 1;
            }
            None => sums.push((access.clone(), 1)),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use kernel::operands::Layouts;
    use kernel::{Call, GemmProblem};

    use super::{Value, cut, stage};

    #[test]
    fn long_runs_are_cut_where_the_page_says() {
        let entry = kernel::find("64x64-direct-bf16-kk").expect("in the catalogue");
        let problem = GemmProblem { m: 64, n: 64, k: 128 };
        let call = Call { workspace: None, ..Layouts::of(&entry).packed(problem, 16) };
        let traced = crate::verify::family::trace(&entry, (&call, &[]), (1, emulator::Schedule::Paced, 0));
        let (trace, outcome) = traced.expect("a legal problem").expect("there is something to compute");
        assert!(outcome.is_ok());
        let ring = Some(entry.plan().ring);
        let events = |run: &Value| run["events"].as_array().expect("a list").clone();
        let whole = cut(&trace, ring, 1 << 20);
        assert_eq!((whole["cut"].as_u64(), events(&whole).len()), (None, trace.events.len()));
        let part = cut(&trace, ring, 40);
        let (cut, shown) = (part["cut"].as_u64().expect("there are more events"), events(&part));
        assert!(shown.len() <= 40 && shown.iter().all(|event| event[2].as_u64().is_some_and(|at| at < cut)));
        let before = trace.events.iter().filter(|event| event.start < cut).count();
        assert_eq!((shown.len(), part["events_in_all"].as_u64()), (before, Some(trace.events.len() as u64)));
    }

    #[test]
    fn barriers_are_of_stages() {
        let ring = kernel::find("128x128-pingpong-bf16-kk").expect("in the catalogue").plan().ring;
        let stage = |ring, offset| stage(Some(ring), offset);
        let of = |index: u32| stage(ring, ring.barriers + 8 * index);
        assert_eq!((of(0), of(5), of(6), of(11), of(12)), (Some(0), Some(5), Some(0), Some(5), None));
        assert_eq!(stage(ring, ring.barriers - 8), None);
    }
}
