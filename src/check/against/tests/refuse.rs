//! Devices that refuse a program.

use kernel::Program;
use ptx::inst::{BinaryOp, Inst};

use super::super::against;
use super::{TEXT, described, other};
use crate::check::broken::Broken;

/// The text is compiled as of the version that the device reads, and the report says so.
#[test]
fn a_newer_version_is_lowered() {
    let mut launch = described(2);
    launch.kernels[0].text = TEXT.replace(".version 8.0", ".version 9.4");
    let why = |_, program: &Program| {
        program
            .text()
            .contains(".version 9.4")
            .then_some("Unsupported .version 9.4; current version is '9.0'")
    };
    let mut device = Broken { refuses: why, ..Broken::new(other(), |_| {}) };
    let comparison = against(&launch, &mut device).expect("both run");
    assert!(comparison.after.is_none() && !comparison.is_wrong(), "{comparison}");
    assert_eq!(comparison.notes.len(), 1, "{comparison}");
    assert!(comparison.to_string().contains("of PTX 9.4") && comparison.notes[0].ends_with("PTX 9.0"));
    // What is refused for another reason stays refused.
    device.refuses = |_, _| Some("no");
    assert!(against(&launch, &mut device).is_err());
}

/// Where the program that records fails, the buffers are compared all the same.
#[test]
fn a_program_that_does_not_record_says_so() {
    let change = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Max;
        }
    };
    let why = |launch, _: &Program| (launch > 1).then_some("misaligned address");
    let mut device = Broken { refuses: why, ..Broken::new(other(), change) };
    let comparison = against(&described(1), &mut device).expect("the first launch runs");
    assert!(comparison.is_wrong() && comparison.origin.is_none(), "{comparison}");
    assert_eq!(comparison.differences[0].buffer, "y", "{comparison}");
    assert!(comparison.to_string().contains("registers cannot be compared"), "{comparison}");
}
