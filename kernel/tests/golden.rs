//! The PTX of two small kernels, character by character: a change of any printed instruction shows in review.
//!
//! `INSTA_UPDATE=always cargo test -p falchion-kernel --test golden` rewrites them.

#[path = "support/waits.rs"]
mod waits;

#[test]
fn printed_kernels() {
    for name in ["64x64-direct-bf16-kk", "64x64-direct-f16-mn"] {
        let program = kernel::find(name).expect("a catalogue name").program().expect("a legal program");
        insta::assert_snapshot!(name, program.text());
    }
}

#[test]
fn building_is_a_function_of_the_type() {
    for entry in kernel::catalogue() {
        let text = || entry.program().expect("a legal program").text().to_owned();
        assert_eq!(text(), text(), "{}", entry.name());
    }
}

/// Kernels of one GEMM, of several, and with fused epilogues.
#[test]
fn kernels_wait_before_they_touch_memory() {
    for entry in [kernel::catalogue(), kernel::several(), kernel::fused()].concat() {
        let program = entry.program().expect("a legal program");
        assert_eq!(waits::fault(&program), None, "{}", entry.name());
    }
}

/// The check of the test above, on wrong kernels.
#[test]
fn a_kernel_that_does_not_wait_is_noticed() {
    let program = kernel::find("ragged-128x256-bf16-kk").expect("a name").program().expect("a legal program");
    let text = program.text();
    let (head, rest) = text.split_once("griddepcontrol.wait;").expect("it waits");
    let early = format!("{head}ld.global.u32 %r1, [%rd1];\ngriddepcontrol.wait;{rest}");
    for (why, text, want) in [
        ("a load in front", early.as_str(), Some("global before the wait")),
        ("no wait", rest, Some("it never waits")),
        ("as it is", text, None),
    ] {
        assert_eq!(waits::fault_of_text(text).as_deref(), want, "{why}");
    }
    let program = kernel::find("64x64-direct-bf16-kk").expect("a name").program().expect("a legal program");
    let text = program.text();
    let consumer = text.find("// consumer {").expect("a role");
    let (producers, consumers) = text.split_at(consumer);
    let early = |role: &str, line: &str| {
        role.replacen("griddepcontrol.wait;", &format!("{line}\ngriddepcontrol.wait;"), 1)
    };
    let load = "cp.async.bulk.tensor.2d.shared::cluster.global.tile";
    let prefetch = "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d0, {%r1, %r2}];";
    for (why, text, want) in [
        ("the producer loads first", early(producers, load) + consumers, Some("global before the wait")),
        ("the producer prefetches first", early(producers, prefetch) + consumers, None),
        (
            "consumers store first",
            producers.to_owned() + &early(consumers, "st.global.u32"),
            Some("global before the wait"),
        ),
        (
            "consumers do not wait",
            producers.to_owned() + &consumers.replace("griddepcontrol.wait;", ""),
            Some("it never waits"),
        ),
        ("as it is", text.to_owned(), None),
    ] {
        assert_eq!(waits::fault_of_roles(&text).as_deref(), want, "{why}");
    }
}
