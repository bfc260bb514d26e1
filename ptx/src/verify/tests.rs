//! Tests of each invariant: a program that violates it, and a similar one that does not.

use super::*;
use crate::inst::{Fp8, Int8, Reg};
use crate::{Builder, Entry, Special, Target, WgmmaOperands, WgmmaSource, WgmmaTypes};

fn entry() -> Entry {
    Entry {
        name: "probe".into(),
        target: Target::Sm90a,
        threads: 128,
        shared_bytes: 1024,
        cluster: [1, 1, 1],
    }
}

fn messages(build: impl FnOnce(&Builder)) -> Vec<String> {
    match Function::build(entry(), build).verify() {
        Ok(_) => Vec::new(),
        Err(error) => error.violations.into_iter().map(|violation| violation.message).collect(),
    }
}

/// Each invariant has a program that violates it and a similar one that does not.
#[test]
fn each_violation_is_found() {
    type Build = fn(&Builder);
    let cases: &[(&str, Build, &str, Build)] = &[
        (
            "a value defined on one path only",
            |f| {
                let seen = core::cell::Cell::new(None);
                f.if_(f.special(Special::ThreadX).equals(0), || seen.set(Some(f.special(Special::Lane) + 1)));
                f.barrier_sync(seen.get().unwrap(), 128);
            },
            "read where a path has not written it",
            |f| {
                let lane = f.variable(0);
                f.if_(f.special(Special::ThreadX).equals(0), || lane.set(f.special(Special::Lane)));
                f.barrier_sync(lane.get(), 128);
            },
        ),
        (
            "a value defined in a loop that may run zero times",
            |f| {
                let late = f.uninitialised::<u32>();
                f.repeat(f.special(Special::CtaX), |i| late.set(i));
                f.barrier_sync(late.get(), 128);
            },
            "read where a path has not written it",
            |f| {
                let late = f.variable(0);
                f.repeat(f.special(Special::CtaX), |i| late.set(i));
                f.barrier_sync(late.get(), 128);
            },
        ),
        (
            "a break outside every loop",
            |f| f.break_if(f.special(Special::ThreadX).equals(0)),
            "a break outside every loop",
            |f| f.loop_(|| f.break_if(f.special(Special::ThreadX).equals(0))),
        ),
        (
            "a named barrier that does not exist",
            |f| f.barrier_sync(16, 128),
            "barrier 16 is not below 16",
            |f| f.barrier_sync(15, 128),
        ),
        (
            "more threads at a barrier than the CTA has",
            |f| f.barrier_sync(0, 160),
            "160 threads at a barrier",
            |f| f.barrier_sync(0, 96),
        ),
        (
            "a register count that setmaxnreg does not take",
            |f| f.set_max_registers(true, 100),
            "setmaxnreg 100",
            |f| f.set_max_registers(true, 104),
        ),
        (
            "more pending wgmma groups than the instruction can name",
            |f| f.wgmma_wait(8),
            "wgmma.wait_group 8",
            |f| f.wgmma_wait(7),
        ),
        ("an N that wgmma does not have", |f| wgmma(f, 12, 6), "has no N = 12", |f| wgmma(f, 16, 8)),
        (
            "another number of accumulators",
            |f| wgmma(f, 16, 7),
            "7 accumulators for N = 16",
            |f| wgmma(f, 24, 12),
        ),
        (
            "an N that the integers do not have",
            |f| form(f, WgmmaForm { types: S8, n: 40, ..WgmmaForm::default() }),
            "has no N = 40: 8, 16, 24, 32 or 48..=256 in steps of 16",
            |f| form(f, WgmmaForm { types: S8, n: 48, ..WgmmaForm::default() }),
        ),
        (
            "a transposed operand of 8 bits",
            |f| form(f, WgmmaForm { types: E4M3, transpose: [false, true], ..WgmmaForm::default() }),
            "wgmma .f32.e4m3.e5m2 cannot read a transposed operand",
            |f| form(f, WgmmaForm { transpose: [true, true], ..WgmmaForm::default() }),
        ),
        (
            "transposed fragments",
            |f| form(f, WgmmaForm { registers: true, transpose: [true, false], ..WgmmaForm::default() }),
            "wgmma .f32.bf16.bf16 cannot read a transposed operand there",
            |f| form(f, WgmmaForm { registers: true, transpose: [false, true], ..WgmmaForm::default() }),
        ),
        (
            "a negated integer",
            |f| form(f, WgmmaForm { types: S8, negate: true, ..WgmmaForm::default() }),
            "wgmma .satfinite.s32.s8.u8 cannot negate",
            |f| form(f, WgmmaForm { types: WgmmaTypes::Tf32F32, negate: true, ..WgmmaForm::default() }),
        ),
        (
            "sparse bits",
            |f| form(f, WgmmaForm { types: WgmmaTypes::B1, selector: Some(0), ..WgmmaForm::default() }),
            "wgmma .s32.b1.b1.and.popc has no sparse form",
            |f| form(f, WgmmaForm { types: WgmmaTypes::B1, ..WgmmaForm::default() }),
        ),
        (
            "a selector that 8-bit types do not have",
            |f| form(f, WgmmaForm { types: E4M3, selector: Some(1), ..WgmmaForm::default() }),
            "wgmma.sp .f32.e4m3.e5m2 has no metadata selector 1: 0..=0",
            |f| form(f, WgmmaForm { selector: Some(1), ..WgmmaForm::default() }),
        ),
        (
            "a vector wider than 16 bytes",
            |f| {
                let address = f.param::<u64>("p");
                let _: [crate::Value<'_, u64>; 4] = f.load_global_vector(address, 0);
            },
            "an access of 4 x .u64",
            |f| {
                let address = f.param::<u64>("p");
                let _: [crate::Value<'_, u64>; 2] = f.load_global_vector(address, 0);
            },
        ),
        (
            "a parameter declared twice",
            |f| {
                f.param::<u32>("x");
                f.param::<u32>("x");
            },
            "`x` is declared twice",
            |f| {
                f.param::<u32>("x");
                f.param::<u32>("y");
            },
        ),
        (
            "a parameter that is no identifier",
            |f| {
                f.param::<u32>("1x");
            },
            "`1x` is not an identifier",
            |f| {
                f.param::<u32>("x1");
            },
        ),
        (
            "a register of another type",
            |f| {
                let wide = f.special(Special::ThreadX).cast::<u64>();
                f.emit(Inst::BarrierSync { id: wide.operand(), threads: 128 });
            },
            "is .u64 where .u32 is needed",
            |f| {
                let narrow = f.special(Special::ThreadX);
                f.emit(Inst::BarrierSync { id: narrow.operand(), threads: 128 });
            },
        ),
        (
            "a register that does not exist",
            |f| f.emit(Inst::Elect { dst: Reg(7) }),
            "register 7 does not exist",
            |f| {
                f.elect();
            },
        ),
        (
            "a conversion between two 16-bit floats",
            |f| {
                f.constant(half::f16::ONE).cast::<half::bf16>();
            },
            "cvt from .f16 to .bf16",
            |f| {
                f.constant(half::f16::ONE).cast::<f32>();
            },
        ),
        (
            "pixels of no dimension",
            |f| {
                let zero = f.constant(0);
                f.im2col_store(f.constant(0u64), f.shared_base(), [zero; 2], None);
            },
            "im2col mode of 2 dimensions, not 3..=5",
            |f| {
                let zero = f.constant(0);
                f.im2col_store(f.constant(0u64), f.shared_base(), [zero; 3], None);
            },
        ),
        (
            "a filter offset of another dimension",
            |f| {
                let zero = f.constant(0);
                f.im2col_prefetch(f.constant(0u64), [zero; 4], [f.constant(1)]);
            },
            "of 4 dimensions with 1 offsets, not 2",
            |f| {
                let zero = f.constant(0);
                f.im2col_prefetch(f.constant(0u64), [zero; 4], [f.constant(1); 2]);
            },
        ),
    ];
    for (why, wrong, wanted, right) in cases {
        let found = messages(wrong);
        assert!(found.iter().any(|message| message.contains(wanted)), "{why}: found {found:?}");
        assert_eq!(messages(right), [""; 0], "{why}: the twin");
    }
}

const S8: WgmmaTypes = WgmmaTypes::Int8 { a: Int8::S8, b: Int8::U8, saturate: true };
const E4M3: WgmmaTypes = WgmmaTypes::Fp8F32(Fp8::E4m3, Fp8::E5m2);

/// The fields of one `wgmma`.
struct WgmmaForm {
    types: WgmmaTypes,
    n: u32,
    registers: bool,
    transpose: [bool; 2],
    negate: bool,
    selector: Option<u32>,
}

impl Default for WgmmaForm {
    fn default() -> Self {
        let (types, transpose) = (WgmmaTypes::Bf16F32, [false; 2]);
        Self { types, n: 16, registers: false, transpose, negate: false, selector: None }
    }
}

fn form(f: &Builder, form: WgmmaForm) {
    let WgmmaForm { types, n, registers, transpose: [transpose_a, transpose_b], negate, selector } = form;
    let (descriptor, fragment) = (f.constant(0u64), [0; 4].map(|zero| f.variable(zero)));
    let a = if registers { WgmmaSource::Registers(fragment) } else { WgmmaSource::Shared(descriptor) };
    let sparse = selector.map(|selector| (f.variable(0x4444_4444), selector));
    let sums: Vec<_> = (0..types.accumulators(n)).map(|_| f.variable(0)).collect();
    let dense = WgmmaOperands::new(types, n, a, descriptor);
    f.wgmma(WgmmaOperands { transpose_a, transpose_b, negate_b: negate, sparse, ..dense }, &sums);
}

fn wgmma(f: &Builder, n: u32, accumulators: usize) {
    let registers: Vec<_> = (0..accumulators).map(|_| f.variable(0.0f32)).collect();
    let descriptor = f.constant(0u64);
    f.wgmma(WgmmaOperands::new(WgmmaTypes::Bf16F32, n, descriptor, descriptor), &registers);
}

#[test]
fn limits_of_the_function() {
    for (why, change, wanted) in [
        ("threads", Entry { threads: 100, ..entry() }, "100 threads per CTA"),
        ("shared memory", Entry { shared_bytes: 300_000, ..entry() }, "300000 B of shared memory"),
        ("cluster", Entry { cluster: [4, 4, 1], ..entry() }, "a cluster of 16 CTAs"),
        ("name", Entry { name: "my kernel".into(), ..entry() }, "`my kernel` is not an identifier"),
    ] {
        let error = Function::build(change, |_| ()).verify().unwrap_err();
        assert!(error.to_string().contains(wanted), "{why}: {error}");
    }
}

#[test]
fn a_violation_names_the_line_that_built_it() {
    let line = core::cell::Cell::new(0);
    let build = |f: &Builder| {
        line.set(line!() + 1);
        f.wgmma_wait(9);
    };
    let error = Function::build(entry(), build).verify().unwrap_err();
    assert_eq!(error.violations[0].site.as_ref().map(crate::SourceSite::line), Some(line.get()));
    assert!(error.to_string().contains(file!()), "{error}");
}
