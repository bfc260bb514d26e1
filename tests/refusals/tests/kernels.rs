//! Illegal configurations do not compile, and the compiler's words say what is wrong and what would mend it.
//!
//! The messages are those of Rust 1.95; another compiler may word its own part differently.
//! `TRYBUILD=overwrite cargo test -p refusals` rewrites the expected messages.

use std::fmt::Write;
use std::path::PathBuf;

use kernel::KernelSpec;

/// A kernel of each number format.
const FORMATS: [&str; 10] = [
    "dtype=tf32",
    "dtype=e4m3 out=e5m2",
    "dtype=e5m2 dtype-b=e4m3 swizzle-a=64",
    "dtype=s8",
    "dtype=u8 dtype-b=s8 epilogue=sourced",
    "dtype=s8 dtype-b=u8 out=f16 swap=yes store=direct",
    "dtype=bf16 out=f32 swizzle-d=64",
    "weights-b=u4 group=64 zeros=yes swap=yes",
    "weights-a=e2m1 group=32 tile=128x64x128",
    "dtype=e4m3 sparse=b swap=yes tile=128x64x128",
];

/// A program of the types that the catalogue prints: each must be the kernel it is printed for.
fn every_catalogue_type() -> PathBuf {
    let mut text = "#![allow(unused_imports)]\n\
                    use collective::*;\nuse half::*;\nuse kernel::*;\nuse scheduler::*;\nuse typenum::*;\n\n\
                    fn main() {\n"
        .to_owned();
    let specs = FORMATS.map(|text| text.parse::<KernelSpec>().expect(text).kernel().expect(text));
    for entry in kernel::catalogue().into_iter().chain(kernel::by_threads()).chain(specs) {
        let (ty, name) = (entry.rust_type(), entry.program().expect("legal").name().to_owned());
        // Writing to a string does not fail.
        let _ = writeln!(text, "    assert_eq!(Gemm::<{ty}>::name(), {name:?});");
    }
    text.push_str("}\n");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("catalogue.rs");
    std::fs::write(&path, text).expect("a writable folder");
    path
}

#[test]
fn illegal_configurations_are_refused_with_a_reason() {
    refusals::built_once("illegal_configurations_are_refused_with_a_reason", || {
        let cases = trybuild::TestCases::new();
        // With a case that must run, trybuild builds instead of checks, so constants are evaluated.
        cases.pass("tests/kernels/pass/*.rs");
        cases.compile_fail("tests/kernels/fail/*.rs");
        cases.pass(every_catalogue_type());
    });
}
