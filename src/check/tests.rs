//! Small kernels with one mistake each, checked as text.

use ptx::{Builder, Entry, Function, Special, Target};

use super::*;

/// A kernel of 64 threads with the parameters `x` and `y`, of 64 words each.
fn kernel(name: &str, body: impl Fn(&Builder, [ptx::Value<'_, u64>; 2])) -> Function {
    let entry =
        Entry { name: name.into(), target: Target::Sm90a, threads: 64, shared_bytes: 1024, cluster: [1; 3] };
    Function::build(entry, |f: &Builder| {
        let both = [f.param::<u64>("x"), f.param::<u64>("y")];
        body(f, both);
    })
}

/// A launch of such a kernel: `x` holds 0, 1, 2 and so on, and `y` must hold `want`.
fn launch(function: &Function, want: &str) -> Launch {
    let mut launch = Launch::read(&format!(
        r#"
        ptx = "k.ptx"
        grid = [1, 1, 1]
        threads = [64, 1, 1]
        shared = 1024
        argument = [{{ buffer = "x" }}, {{ buffer = "y" }}]

        [[buffer]]
        name = "x"
        element = "u32"
        count = 64
        range = {{ from = 0.0, step = 1.0 }}
        unchanged = true

        [[buffer]]
        name = "y"
        element = "u32"
        shape = [2, 32]
        {want}
        "#
    ))
    .expect("a description");
    launch.kernels[0].text = ptx::module_text(&function.clone().verify().expect("a program"));
    launch
}

/// The report of a kernel.
fn report(function: Function, want: &str) -> Report {
    let launch = launch(&function, want);
    let options = Options { schedules: 6, threads: 2, ..Options::default() };
    check(&launch, &options).expect("it runs")
}

/// The rules of a report, and the text of its first finding.
fn rules_of(report: &Report) -> (Vec<&'static str>, String) {
    let names = report.findings.iter().map(|finding| finding.rule.name).collect();
    (names, report.findings.first().map_or_else(String::new, |finding| finding.message.clone()))
}

#[test]
fn a_kernel_that_is_right_has_no_findings() {
    let copy = kernel("copy", |f, [x, y]| {
        let offset = f.special(Special::ThreadX).mul_wide(4);
        f.store_global(y + offset, 0, [f.load_global::<u32>(x + offset, 0)]);
    });
    let want: String = (0..64u32).flat_map(u32::to_le_bytes).map(|byte| format!("{byte:02x}")).collect();
    let report = report(copy, &format!("want = {{ hex = \"{want}\" }}"));
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!((report.schedules, report.launches), (10, 2));
    assert!(report.to_string().ends_with("found     0 errors, 0 warnings"), "{report}");
}

#[test]
fn a_race_is_one_finding_with_both_places() {
    let racy = kernel("racy", |f, [_, y]| {
        let thread = f.special(Special::ThreadX);
        f.store_shared(f.shared_base() + thread * 4, 0, [f.constant(0u32)]);
        f.barrier_sync(0, 64);
        f.store_shared(f.shared_base() + thread * 4, 0, [thread]);
        let [other] = f.load_shared_vector::<u32, 1>(f.shared_base() + (f.constant(63u32) - thread) * 4, 0);
        f.store_global(y + thread.mul_wide(4), 0, [other]);
    });
    let report = report(racy, "");
    assert_eq!(rules_of(&report).0, ["shared-race"], "whichever access comes first: {report}");
    let race = report.findings.first().expect("a race");
    assert_eq!((race.severity, race.status, race.launch), (Severity::Error, Status::New, 1));
    assert!(race.related[0].0.starts_with("the other access, CTA (0, 0, 0), warp"), "{report}");
    assert!(race.thread.is_some() && race.spot.is_some(), "{report}");
}

#[test]
fn what_is_wrong_with_results_is_named() {
    for (why, want, rules, told) in [
        (
            "a wrong number",
            r#"want = { hex = "HEX" }"#,
            "wrong-result",
            "element [1, 1] of buffer `y` is 33, 34 was wanted; 1 of 64 differ",
        ),
        (
            "the right numbers of another type",
            r#"want = { hex = "HEX", element = "s32" }"#,
            "wrong-result",
            "1 of 64 differ",
        ),
    ] {
        let copy = kernel("copy", |f, [x, y]| {
            let offset = f.special(Special::ThreadX).mul_wide(4);
            f.store_global(y + offset, 0, [f.load_global::<u32>(x + offset, 0)]);
        });
        let wanted = (0..64u32).map(|index| if index == 33 { 34 } else { index });
        let hex: String = wanted.flat_map(u32::to_le_bytes).map(|byte| format!("{byte:02x}")).collect();
        let report = report(copy, &want.replace("HEX", &hex));
        let (names, message) = rules_of(&report);
        assert_eq!(names, [rules], "{why}");
        assert!(message.contains(told), "{why}: {message}");
        assert_eq!(report.findings[0].schedules, report.schedules, "{why}");
    }
    let half = kernel("half", |f, [x, y]| {
        let thread = f.special(Special::ThreadX);
        f.if_(thread.less_than(f.constant(40u32)), || {
            f.store_global(y + thread.mul_wide(4), 0, [thread]);
            f.store_global(x + thread.mul_wide(4), 0, [thread + 1]);
        });
    });
    let report = report(half, &format!("want = {{ hex = \"{}\" }}", "00".repeat(256)));
    let (names, message) = rules_of(&report);
    assert_eq!(names, ["changed", "wrong-result"], "{report}");
    assert!(
        message.contains("element [0] of buffer `x` is 1, 0 was there before; 40 of 64 differ"),
        "{message}"
    );
    assert!(
        report.findings[1].message.contains("element [1, 8] of buffer `y` was never written"),
        "{report}"
    );
}

#[test]
fn accesses_beyond_a_buffer_name_it() {
    let beyond = kernel("beyond", |f, [x, y]| {
        let thread = f.special(Special::ThreadX);
        f.store_global(y + thread.mul_wide(4), 0, [f.load_global::<u32>(x + thread.mul_wide(4), 128)]);
    });
    let report = report(beyond, "");
    let (names, message) = rules_of(&report);
    assert_eq!(names, ["global-out-of-bounds"], "{report}");
    assert!(message.contains("buffer `x`"), "{message}");
}

#[test]
fn hangs_say_who_waits() {
    let hang = kernel("hang", |f, _| {
        let thread = f.special(Special::ThreadX);
        f.if_(thread.less_than(f.constant(32u32)), || f.barrier_sync(1, 64));
    });
    let report = report(hang, "");
    let (names, message) = rules_of(&report);
    assert!(names.iter().all(|name| matches!(*name, "hang" | "barrier-incomplete")), "{report}");
    assert!(report.findings[0].spot.is_some(), "{message}");
}

#[test]
fn known_and_expected_findings_are_no_news() {
    let hang = || kernel("hang", |f, [_, y]| f.store_global(y, 1 << 20, [f.constant(0u32)]));
    let mut first = report(hang(), "");
    assert_eq!(first.count(Severity::Error), 1);
    let mut baseline = Baseline::default();
    baseline.add(&first);
    first.compare(&baseline);
    assert_eq!((first.count(Severity::Error), first.findings[0].status), (0, Status::Known));
    assert!(first.to_string().ends_with("0 errors, 0 warnings, 1 in the baseline"), "{first}");
    let mut second = report(hang(), "");
    let line = second.findings[0].line().expect("a line");
    let expected = |lines| [Suppression { rule: "global-out-of-bounds", lines }];
    second.suppress(&expected(Some((line + 1, line + 2))));
    assert_eq!(second.count(Severity::Error), 1);
    second.suppress(&expected(Some((line - 1, line))));
    assert_eq!((second.count(Severity::Error), second.findings[0].status), (0, Status::Suppressed));
}

#[test]
fn every_barrier_that_is_needed_is_missed_when_it_is_left_out() {
    let exchange = kernel("exchange", |f, [_, y]| {
        let thread = f.special(Special::ThreadX);
        f.store_shared(f.shared_base() + thread * 4, 0, [thread]);
        f.barrier_sync(0, 64);
        let [other] = f.load_shared_vector::<u32, 1>(f.shared_base() + (f.constant(63u32) - thread) * 4, 0);
        f.store_global(y + thread.mul_wide(4), 0, [other]);
        f.barrier_sync(0, 64);
    });
    let launch = launch(&exchange, "");
    let options = Options { schedules: 6, threads: 2, ..Options::default() };
    let mutants = mutants(&launch, &options, false).expect("it runs");
    let verdicts: Vec<&Verdict> = mutants.mutants.iter().map(|mutant| &mutant.verdict).collect();
    assert!(matches!(verdicts[..], [Verdict::Found(_), Verdict::Missed]), "{mutants}");
    assert!(mutants.to_string().ends_with("measured  1 of 2 mutants that are executed, 50.0 %"), "{mutants}");
    assert!(mutants.mutants[0].spot.text.contains("0, 64;"), "{mutants}");
}
