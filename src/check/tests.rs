//! Small kernels with one mistake each, checked as text.

use ptx::{Builder, Entry, Function, Scope, Special, Target};

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
        // Neither is needed. Of the fence nobody knows.
        f.fence(Scope::Gpu);
        f.barrier_sync(0, 64);
    });
    let launch = launch(&exchange, "");
    let options = Options { schedules: 6, threads: 2, ..Options::default() };
    let mutants = mutants(&launch, &options, false).expect("it runs");
    let verdicts: Vec<&Verdict> = mutants.mutants.iter().map(|mutant| &mutant.verdict).collect();
    assert!(matches!(verdicts[..], [Verdict::Found(_), Verdict::Missed, Verdict::Needless]), "{mutants}");
    let measured = "measured  1 of 2 mutants of statements that are needed, 50.0 %";
    assert!(mutants.to_string().ends_with(measured), "{mutants}");
    assert!(mutants.mutants[0].spot.text.contains("0, 64;"), "{mutants}");
}

/// A kernel of 64 threads in PTX: `%r1` is the thread, `%rd1` the address of its word of `x` and `%rd2` of `y`, `%r2` that of its word of shared memory.
fn text(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y)\n.reqntid 64, 1, 1\n{{\n\
         .reg .b32 %r<9>;\n.reg .b64 %rd<6>;\n.reg .pred %p<4>;\n.extern .shared .align 16 .b8 all[];\n\
         ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd3, %r1, 4;\n\
         add.s64 %rd1, %rd1, %rd3;\nadd.s64 %rd2, %rd2, %rd3;\nmov.u32 %r2, all;\nmad.lo.u32 %r2, %r1, 4, %r2;\n{body}\nret;\n}}\n"
    )
}

/// What compilers emit though the ISA leaves it open is a warning where nothing comes of it, and an error where something does.
#[test]
fn what_matters_to_nobody_is_a_warning() {
    let warning = |rule| Some((rule, Severity::Warning));
    let error = |rule| Some((rule, Severity::Error));
    for (why, body, expected) in [
        (
            "a row beyond the end is loaded and not stored",
            "setp.lt.u32 %p1, %r1, 40;\n@%p1 st.shared.b32 [%r2], %r1;\nld.shared.b32 %r3, [%r2];\nadd.u32 %r3, %r3, 1;\n@%p1 st.global.b32 [%rd2], %r3;",
            warning("shared-uninitialised"),
        ),
        (
            "and is stored",
            "setp.lt.u32 %p1, %r1, 40;\n@%p1 st.shared.b32 [%r2], %r1;\nld.shared.b32 %r3, [%r2];\nadd.u32 %r3, %r3, 1;\nst.global.b32 [%rd2], %r3;",
            error("shared-uninitialised"),
        ),
        (
            "and decides a branch",
            "setp.lt.u32 %p1, %r1, 40;\n@%p1 st.shared.b32 [%r2], %r1;\nld.shared.b32 %r3, [%r2];\nand.b32 %r3, %r3, 1;\nsetp.eq.u32 %p2, %r3, 0;\n\
             @%p2 bra END;\nst.global.b32 [%rd2], %r1;\nEND:",
            error("shared-uninitialised"),
        ),
        (
            "a register beyond the end is computed with and not stored",
            "setp.lt.u32 %p1, %r1, 40;\n@%p1 ld.global.b32 %r3, [%rd1];\nadd.u32 %r3, %r3, 1;\n@%p1 st.global.b32 [%rd2], %r3;",
            warning("register-uninitialised"),
        ),
        (
            "and is stored",
            "setp.lt.u32 %p1, %r1, 40;\n@%p1 ld.global.b32 %r3, [%rd1];\nadd.u32 %r3, %r3, 1;\nst.global.b32 [%rd2], %r3;",
            error("register-uninitialised"),
        ),
        (
            "y is read before anybody writes it, for nothing",
            "ld.global.b32 %r3, [%rd2];\nst.global.b32 [%rd2], %r1;",
            warning("global-uninitialised"),
        ),
        (
            "and for a sum",
            "ld.global.b32 %r3, [%rd2];\nadd.u32 %r3, %r3, %r1;\nst.global.b32 [%rd2], %r3;",
            error("global-uninitialised"),
        ),
        (
            "two warps store the same",
            "st.shared.b32 [all], 7;\nst.global.b32 [%rd2], %r1;",
            warning("shared-race"),
        ),
        (
            "two warps store what differs",
            "and.b32 %r4, %r1, 32;\nst.shared.b32 [all], %r4;\nst.global.b32 [%rd2], %r1;",
            error("shared-race"),
        ),
        (
            "a store with an order is the first write of a word",
            "st.volatile.shared.u32 [%r2], %r1;\nst.global.b32 [%rd2], %r1;",
            None,
        ),
        (
            "two warps store the same, and then what differs, with one statement",
            "and.b32 %r4, %r1, 32;\nmov.u32 %r5, 0;\nLOOP:\nmul.lo.u32 %r6, %r4, %r5;\nst.shared.b32 [all], %r6;\nadd.u32 %r5, %r5, 1;\n\
             setp.lt.u32 %p1, %r5, 2;\n@%p1 bra LOOP;\nst.global.b32 [%rd2], %r1;",
            error("shared-race"),
        ),
        (
            "a warp takes its own arrival for the first turn",
            "setp.gt.u32 %p1, %r1, 31;\n@!%p1 bra FIRST;\nbar.sync 2, 64;\nbra END;\nFIRST:\nbar.arrive 1, 64;\nbar.sync 1, 64;\nbar.arrive 2, 64;\nEND:\n\
             st.global.b32 [%rd2], %r1;",
            None,
        ),
        (
            "it arrives for others that never come",
            "setp.gt.u32 %p1, %r1, 31;\n@%p1 bra END;\nbar.arrive 1, 64;\nEND:\nst.global.b32 [%rd2], %r1;",
            warning("barrier-incomplete"),
        ),
        (
            "it waits for others that never come",
            "setp.gt.u32 %p1, %r1, 31;\n@%p1 bra END;\nbar.sync 1, 64;\nEND:\nst.global.b32 [%rd2], %r1;",
            error("hang"),
        ),
        (
            "the address of a CTA that is not there, unused",
            "mapa.shared::cluster.u32 %r3, %r2, 1;\nst.global.b32 [%rd2], %r1;",
            None,
        ),
        (
            "and used",
            "mapa.shared::cluster.u32 %r3, %r2, 1;\nst.shared::cluster.b32 [%r3], 1;\nst.global.b32 [%rd2], %r1;",
            error("shared-other-cta"),
        ),
    ] {
        let mut launch = launch(&kernel("k", |_, _| ()), "");
        launch.kernels[0].text = text(body);
        let options = Options { schedules: 8, threads: 2, ..Options::default() };
        let report = check(&launch, &options).expect(why);
        let most = report.findings.iter().map(|finding| (finding.rule.name, finding.severity));
        let worst = most.max_by_key(|(_, severity)| *severity == Severity::Error);
        assert_eq!(worst, expected, "{why}: {report}");
    }
}

/// A tensor store that every lane issues, and two polling loops with barriers: what CUTLASS and Triton do.
#[test]
fn polls_between_barriers_let_other_ctas_run() {
    // Each CTA but the last waits for the flag of the next one, in a loop with barriers; the polled word goes through shared memory.
    let body = "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %nctaid.x;\nadd.u32 %r5, %r3, 1;\nsetp.eq.u32 %p1, %r5, %r4;\n\
        setp.eq.u32 %p2, %r1, 0;\nld.param.u64 %rd4, [y];\nmul.wide.u32 %rd5, %r3, 4;\nadd.s64 %rd4, %rd4, %rd5;\n@%p1 bra DONE;\n\
        LOOP:\nbar.sync 0;\n@%p2 ld.global.acquire.gpu.b32 %r6, [%rd4+4];\n@%p2 st.shared.b32 [all], %r6;\nbar.sync 0;\n\
        ld.shared.b32 %r7, [all];\nsetp.eq.u32 %p3, %r7, 0;\n@%p3 bra LOOP;\nDONE:\nbar.sync 0;\n@%p2 st.global.release.gpu.b32 [%rd4], 1;";
    let mut launch = launch(&kernel("k", |_, _| ()), "zeros = true\nrestore = true");
    launch.kernels[0].text = text(body);
    launch.kernels[0].grid = [5, 1, 1];
    let report =
        check(&launch, &Options { schedules: 12, threads: 2, ..Options::default() }).expect("it runs");
    assert!(report.findings.is_empty(), "{report}");
}

/// Bulk stores of the same bytes to one place, as by several lanes of a warp, are no error; those of two CTAs are.
#[test]
fn copies_of_two_ctas_to_one_place_race() {
    let body = |lanes: u32| {
        format!(
            "mov.u32 %r3, %ctaid.x;\nst.shared.b32 [%r2], %r3;\nfence.proxy.async.shared::cta;\nbar.sync 0;\nld.param.u64 %rd4, [y];\n\
             mov.u32 %r4, all;\nsetp.lt.u32 %p1, %r1, {lanes};\n@!%p1 bra END;\n\
             cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r4], 256;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:"
        )
    };
    for (ctas, lanes, races) in [(1, 1, false), (1, 3, false), (2, 1, true), (2, 3, true)] {
        let mut launch = launch(&kernel("k", |_, _| ()), "");
        launch.kernels[0].text = text(&body(lanes));
        launch.kernels[0].grid = [ctas, 1, 1];
        let report =
            check(&launch, &Options { schedules: 8, threads: 2, ..Options::default() }).expect("it runs");
        let errors: Vec<_> = report.findings.iter().filter(|of| of.severity == Severity::Error).collect();
        assert_eq!(errors.iter().any(|of| of.rule.name == "global-race"), races, "{ctas} {lanes}: {report}");
        assert!(races || errors.is_empty(), "{ctas} {lanes}: {report}");
    }
}

/// The second one finds the bytes that it stores: that the first one has been waited for orders nothing.
#[test]
fn a_copy_of_what_is_there_already_is_a_warning() {
    let body = "mov.u32 %r3, 0;\nst.shared.b32 [%r2], %r3;\nst.shared.b32 [%r2+512], %r3;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
        ld.param.u64 %rd4, [y];\nmov.u32 %r4, all;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra STORE;\nsetp.ne.u32 %p2, %r1, 32;\n@%p2 bra END;\n\
        WAIT:\nld.relaxed.cta.shared.b32 %r5, [all+512];\nsetp.ne.u32 %p3, %r5, 7;\n@%p3 bra WAIT;\nSTORE:\n\
        cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r4], 256;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n\
        @%p1 st.relaxed.cta.shared.b32 [all+512], 7;\nEND:";
    let mut launch = launch(&kernel("k", |_, _| ()), "");
    launch.kernels[0].text = text(body);
    let report =
        check(&launch, &Options { schedules: 8, threads: 2, ..Options::default() }).expect("it runs");
    let found: Vec<_> = report.findings.iter().map(|of| (of.rule.name, of.severity)).collect();
    assert_eq!(found, [("global-race", Severity::Warning)], "{report}");
}
