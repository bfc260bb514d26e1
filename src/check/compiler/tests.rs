//! The micro-kernels in the emulator, on machines with a broken instruction, and through NVIDIA's assembler.

use kernel::{Emulator, Gpu};
use ptx::inst::{Alu, AluOp, BinaryOp, Inst, Operand, WarpInst};

use super::program::micros;
use super::{CompilerReport, compiler};
use crate::check::broken::Broken;
use crate::check::skipped;

/// The emulator comes to the bits that the host has computed.
#[test]
fn the_emulator_is_right() {
    let report = compiler(&mut Emulator::new()).expect("it runs");
    assert!(report.is_right() && report.micros.len() >= 12 && report.compiler.is_none(), "{report}");
    assert!(report.to_string().contains("0 of 17 micro-kernels"), "{report}");
}

/// The same under schedules in which what is asynchronous ends as late as it may, or as early.
#[test]
fn no_schedule_changes_a_bit() {
    for (schedule, seed) in emulator::Schedule::sweep(8) {
        let report = compiler(&mut Emulator::new().with_schedule(schedule, seed)).expect("it runs");
        assert!(report.is_right(), "{schedule:?}, {seed}: {report}");
    }
}

fn broken(change: fn(&mut Inst)) -> CompilerReport {
    compiler(&mut Broken::new(Emulator::new(), change)).expect("it runs")
}

fn names(report: &CompilerReport) -> Vec<&'static str> {
    report.wrong().map(|micro| micro.name).collect()
}

/// What `ptxas` of CUDA 12.8 to 13.1 makes of it: the constant is gone.
#[test]
fn a_lost_constant_is_told_by_name() {
    let report = broken(|inst| {
        if let Inst::Move { src: src @ Operand::Imm(0x0005_0003 | 0x7FFF_8001), .. } = inst {
            *src = Operand::Imm(0);
        }
    });
    assert_eq!(names(&report), ["packed-add"], "{report}");
    assert!(!report.concerns_us() && report.to_string().contains("packed-add: 512 of 512 words"), "{report}");
}

/// Why, what is done to instructions, and the micro-kernel that tells it.
type Row = (&'static str, fn(&mut Inst), &'static str);

#[test]
fn each_broken_instruction_is_told() {
    let rows: [Row; 9] = [
        ("a maximum is a minimum", |inst| swap(inst, BinaryOp::Max, BinaryOp::Min), "extremes"),
        ("a quotient", |inst| swap(inst, BinaryOp::Div, BinaryOp::Sub), "quotients"),
        (
            "a predicate is the other one",
            |inst| {
                if let Inst::Select { a, b, .. } = inst {
                    core::mem::swap(a, b);
                }
            },
            "selections",
        ),
        (
            "a product loses its sum",
            |inst| {
                if let Inst::Alu(Alu { op: AluOp::Half { .. }, src, .. }) = inst {
                    src[2] = src[0];
                }
            },
            "packed-fma",
        ),
        (
            "a vote of all",
            |inst| {
                if let Inst::Warp(WarpInst::Shuffle { lane, .. }) = inst {
                    *lane = Operand::Imm(1);
                }
            },
            "some-lanes",
        ),
        (
            "a negative offset",
            |inst| {
                if let Inst::Load { address, .. } = inst
                    && address.offset == -12
                {
                    address.offset = 12;
                }
            },
            "addresses",
        ),
        (
            "a store that is guarded",
            |inst| {
                if let Inst::Store { space: ptx::Space::Shared, src, .. } = inst
                    && let [Operand::Reg(_)] = src[..]
                {
                    src[0] = Operand::Imm(1);
                }
            },
            "guarded-stores",
        ),
        (
            "a matrix is not transposed",
            |inst| {
                if let Inst::WarpMatrix(ptx::inst::WarpMatrix::Load { transpose, .. }) = inst {
                    *transpose = false;
                }
            },
            "matrices",
        ),
        (
            "a multiply of -B",
            |inst| {
                if let Inst::Wgmma { negate_b, .. } = inst {
                    *negate_b = true;
                }
            },
            "wgmma-registers",
        ),
    ];
    for (why, change, name) in rows {
        let report = broken(change);
        // No kernel of this library has the pattern of `extremes`.
        assert!(names(&report).contains(&name), "{why}: {report}");
        assert!(report.concerns_us() || name == "extremes", "{why}: {report}");
    }
}

/// Signed ones only: addresses stay as they are.
fn swap(inst: &mut Inst, from: BinaryOp, to: BinaryOp) {
    if let Inst::Binary { op, ty: ptx::Type::S32, .. } = inst
        && *op == from
    {
        *op = to;
    }
}

#[test]
fn names_are_words_and_are_used_once() {
    let mut names: Vec<_> = micros().iter().map(|micro| micro.name).collect();
    assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), micros().len());
}

/// On a card the driver's compiler is told.
#[test]
fn a_card_runs_it() {
    let Ok(mut gpu) = Gpu::new(0) else {
        return skipped::skipped("GPU");
    };
    let report = compiler(&mut gpu).expect("it runs");
    assert!(report.compiler.is_some(), "{report}");
    // Compilers before 13.2 are known to be wrong there.
    assert!(!report.concerns_us(), "{report}");
}
