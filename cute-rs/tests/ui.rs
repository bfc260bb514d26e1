//! Illegal layout types stop the build with a message that names both layouts and the remedy.
//!
//! The expected messages lie beside the cases as `.stderr`; `TRYBUILD=overwrite` writes them anew.

#[test]
fn messages() {
    let cases = trybuild::TestCases::new();
    // Constants are computed when code is generated, which a suite without a passing case leaves out.
    cases.pass("tests/ui/legal.rs");
    cases.compile_fail("tests/ui/indivisible_composition.rs");
    cases.compile_fail("tests/ui/non_injective_complement.rs");
    cases.compile_fail("tests/ui/non_congruent_stride.rs");
    cases.compile_fail("tests/ui/not_a_layout.rs");
}
