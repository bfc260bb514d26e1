//! Illegal configurations do not compile, and the compiler's words say what is wrong and what would mend it.
//!
//! The messages are those of Rust 1.95; another compiler may word its own part differently.
//! `TRYBUILD=overwrite cargo test -p falchion-kernel --test ui` rewrites the expected messages.

#[test]
fn illegal_configurations_are_refused_with_a_reason() {
    let cases = trybuild::TestCases::new();
    // With a case that must run, trybuild builds instead of checks, so constants are evaluated.
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
