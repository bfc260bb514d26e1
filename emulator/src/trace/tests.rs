//! Tests: the trace of a small program.

use ptx::abi::Grid;
use ptx::{Builder, Entry, Function, Target};

use super::*;
use crate::{Memory, Options, Program, Schedule};

/// Warp 0 computes for a while in one scope. The other warps wait for it in another scope.
fn meeting(f: &Builder) {
    let warp = f.warp_index();
    let base = f.shared_base();
    f.if_(warp.equals(0), || f.if_(f.elect(), || f.mbarrier_init(base + 64, 1)));
    f.barrier_sync(0, 128);
    let late = || {
        f.repeat(f.constant(20u32), |_| {});
        f.store_shared(base, 0, [f.constant(7u32)]);
        f.if_(f.elect(), || f.mbarrier_arrive(base + 64));
    };
    f.if_else(
        warp.equals(0),
        || f.scope("late", late),
        || f.scope("early", || f.mbarrier_wait(base + 64, f.constant(0u32))),
    );
}

fn trace(schedule: Schedule) -> Trace {
    let entry = Entry {
        name: "meeting".into(),
        target: Target::Sm90a,
        threads: 128,
        shared_bytes: 128,
        cluster: [1; 3],
    };
    let function = Function::build(entry, meeting).verify().unwrap();
    let recorder = Recorder::default();
    let options = Options { schedule, trace: Some(&recorder), ..Options::default() };
    Program::new(&function).launch(Grid { ctas: [2, 1, 1] }, &[], &Memory::new(), &options).unwrap();
    recorder.into_trace()
}

#[test]
fn waits_are_as_long_as_what_is_waited_for() {
    let trace = trace(Schedule::Paced);
    let on_warp =
        |warp| trace.events.iter().filter(move |e| e.cta == [1, 0, 0] && e.track == Track::Warp(warp));
    let wait = on_warp(3).find(|event| event.label() == "wait for mbarrier").unwrap();
    assert_eq!((wait.scopes.join(" / "), wait.stage), ("early".to_owned(), Some(0)));
    assert!(matches!(
        wait.activity,
        Activity::Wait(Wait::Mbarrier { offset: 64, parity: 0, pending: 1, .. })
    ));
    let late = on_warp(0).rfind(|event| event.scopes == ["late"]).unwrap();
    assert!(wait.end - wait.start > 40, "twenty rounds of several steps: {wait:?}");
    assert!(wait.end <= late.end + 1, "nobody waits any longer: {wait:?} {late:?}");
}

#[test]
fn phases_complete_when_the_last_has_arrived() {
    let trace = trace(Schedule::Paced);
    let [first, second] = &trace.phases[..] else {
        panic!("one phase for each of two CTAs: {:?}", trace.phases)
    };
    assert_eq!((first.cta, second.cta), ([0; 3], [1, 0, 0]));
    assert_eq!((first.offset, first.phase, first.expected), (64, 0, 1));
    let end = |warp| {
        let waits = |event: &&Event| event.cta == [0; 3] && event.track == Track::Warp(warp);
        let wait = trace.events.iter().filter(waits).find(|event| event.label() == "wait for mbarrier");
        wait.map(|event| event.end)
    };
    for warp in 1..4 {
        let end = end(warp).unwrap();
        assert!(first.step <= end && end <= first.step + 1, "warp {warp} goes on at {end}: {first:?}");
    }
}

#[test]
fn a_track_does_one_thing_at_a_time() {
    for (schedule, _) in Schedule::sweep(2) {
        let trace = trace(schedule);
        assert!(!trace.events.is_empty());
        for pair in trace
            .events
            .windows(2)
            .filter(|pair| (pair[0].cta, pair[0].track) == (pair[1].cta, pair[1].track))
        {
            assert!(pair[0].end <= pair[1].start, "{schedule:?}: {pair:?}");
        }
    }
}

#[test]
fn one_row_of_accesses_for_each_instruction() {
    let [store] = &trace(Schedule::Default).shared[..] else { panic!("one store") };
    assert_eq!((store.instruction, store.executed), ("st.shared", 2), "by one warp of each of two CTAs");
    assert_eq!((store.wavefronts, store.ideal), (2, 2), "all lanes store to the same word");
}

#[test]
fn the_texts_hold_every_lane() {
    let trace = trace(Schedule::Paced);
    let (json, svg) = (trace.chrome_json(), trace.svg());
    for words in ["CTA (1, 0, 0)", "warp 0: late", "warp 3: early", "wait for mbarrier, stage 0", "not time"]
    {
        assert!(svg.contains(words), "{words}");
    }
    for words in
        ["\"CTA (1, 0, 0)\"", "\"warp 0: late\"", "\"name\":\"wait for mbarrier stage 0\"", "\"ph\":\"X\""]
    {
        assert!(json.contains(words), "{words}");
    }
    let depth = json.chars().fold((0, 0), |(depth, deepest), c| match c {
        '{' | '[' => (depth + 1, (depth + 1).max(deepest)),
        '}' | ']' => (depth - 1, deepest),
        _ => (depth, deepest),
    });
    assert_eq!(depth, (0, 4), "brackets match");
    assert_eq!(
        svg.matches("<rect").count(),
        svg.matches("</rect>").count() + 9,
        "the background and the legend"
    );
}
