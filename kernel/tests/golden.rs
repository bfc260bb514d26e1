//! The PTX of two small kernels, letter by letter: a change of any printed instruction shows in review.
//!
//! `INSTA_UPDATE=always cargo test -p falchion-kernel --test golden` rewrites them.

use ptx::Statement;
use ptx::inst::Inst;

#[test]
fn printed_kernels() {
    for name in ["small-bf16-kk", "small-f16-mn"] {
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

/// A kernel that may begin before its inputs are written must not look at them: nothing before `griddepcontrol.wait`
/// touches global memory.
#[test]
fn kernels_wait_before_they_touch_memory() {
    for entry in kernel::catalogue() {
        let program = entry.program().expect("a legal program");
        let text = program.text();
        let (before, behind) = text.split_once("griddepcontrol.wait;").expect("catalogue kernels overlap");
        for access in ["global", "cp.async", "cp.reduce"] {
            assert!(!before.contains(access), "{}: {access} before the wait", entry.name());
        }
        assert!(behind.contains("global") || behind.contains("cp.async"), "{}", entry.name());
        let everybodys = program.function().body.iter().any(|statement| {
            matches!(statement, Statement::Inst { inst: Inst::GridDependency { wait: true }, .. })
        });
        assert!(everybodys, "{}: no branch is around the wait", entry.name());
    }
}
