//! The emulator is the device, with an instruction that computes something else.

use std::collections::BTreeSet;

use kernel::{Call, Emulator, Engine, GemmProblem, Gpu};
use ptx::abi::Argument;
use ptx::inst::{Alu, AluOp, ApproxOp, BinaryOp, Inst};

use super::follow::Follower;
use super::instrument::{Plan, Window};
use super::machines::Machines;
use super::{Comparison, ENTRY, against};
use crate::check::broken::Broken;
use crate::check::launch::{Argument as Given, Content, Map, MapKind, Pointer};
use crate::check::run::{Trial, read};
use crate::check::{Buffer as Described, Element, Kernel, Launch, skipped};

mod refuse;
mod time;

/// An emulator whose addresses are others than those of the one that it is compared with.
fn other() -> Emulator {
    let mut inner = Emulator::new().with_numerics(emulator::Numerics::Exact);
    inner.allocate(1 << 12).expect("memory");
    inner
}

/// Each thread computes, hands its value to another thread, and computes again.
const TEXT: &str = "
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(
    .param .u64 x,
    .param .u64 y,
    .param .u32 n
)
.reqntid 64, 1, 1
{
    .shared .align 4 .b8 words[256];
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mad.lo.u32 %r4, %r3, 64, %r2;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    mul.f32 %f2, %f1, 0f3F000000;
    mov.u32 %r5, words;
    mad.lo.u32 %r6, %r2, 4, %r5;
    st.shared.f32 [%r6], %f2;
    bar.sync 0;
    xor.b32 %r7, %r2, 63;
    mad.lo.u32 %r8, %r7, 4, %r5;
    ld.shared.f32 %f3, [%r8];
    mov.u32 %r9, 0;
$again:
    add.f32 %f3, %f3, %f1;
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %p1, %r9, %r1;
    @%p1 bra $again;
    ex2.approx.f32 %f4, %f1;
    setp.gt.f32 %p2, %f1, 0f00000000;
    @%p2 sub.f32 %f3, %f3, %f4;
    st.global.f32 [%rd5], %f3;
    ret;
}
";

fn described(launches: u32) -> Launch {
    let text = format!(
        "
        ptx = \"k.ptx\"
        grid = [2, 1, 1]
        launches = {launches}
        argument = [{{ buffer = \"x\" }}, {{ buffer = \"y\" }}, {{ scalar = \"u32\", value = 5 }}]

        [[buffer]]
        name = \"x\"
        element = \"f32\"
        count = 128
        random = {{ seed = 3, low = -1.0, high = 1.0 }}

        [[buffer]]
        name = \"y\"
        element = \"f32\"
        count = 128
        "
    );
    let mut launch = Launch::read(&text).expect("a description");
    launch.load(&|_| Ok(TEXT.into())).expect("a text");
    launch
}

fn compared(change: fn(&mut Inst), launches: u32) -> Comparison {
    against(&described(launches), &mut Broken::new(other(), change)).expect("both run")
}

/// A launch of one of the library's kernels, as text: 128x128x128.
fn product(name: &str) -> Launch {
    let gemm = kernel::find(name).expect("a kernel");
    let call = Call::of(GemmProblem { m: 128, n: 128, k: 128 });
    let call = call.a(1 << 32, 128).b(2 << 32, 128).d(3 << 32, 128);
    let made = gemm.launch(&call, 2).expect("legal").expect("not empty");
    let program = gemm.program().expect("legal");
    let function = program.function();
    let pointer = |address: u64| {
        let buffer = [None, Some("a"), Some("b"), Some("d")][(address >> 32) as usize];
        Pointer { buffer: buffer.map(str::to_owned), offset: address & u64::from(u32::MAX) }
    };
    let given = |argument: &Argument| match argument {
        Argument::Scalar(ty, bits) if ty.bits() == 64 && (1..4).contains(&(bits >> 32)) => {
            Given::Pointer(pointer(*bits))
        }
        Argument::Scalar(ty, bits) => Given::Scalar(bits.to_le_bytes()[..ty.bytes() as usize].to_vec()),
        Argument::TensorMap(map) => {
            Given::Map(Map { at: 0, tensor: pointer(map.address), kind: MapKind::Tiled(map.clone()) })
        }
        Argument::Im2colMap(_) | Argument::Bytes(_) => unreachable!("this kernel has none"),
    };
    let kernel = Kernel {
        file: "product.ptx".to_owned(),
        text: program.text().to_owned(),
        grid: made.grid.ctas,
        threads: Some(function.block),
        shared: function.shared_bytes,
        arguments: made.arguments.iter().map(given).collect(),
        ..Kernel::default()
    };
    let buffer = |name: &str, seed| {
        let content = Content::Random { seed, low: -1.0, high: 1.0 };
        Described { content, ..Described::new(name, Element::Bf16, 128 * 128) }
    };
    let buffers = vec![buffer("a", 1), buffer("b", 2), buffer("d", 3)];
    Launch { kernels: vec![kernel], buffers, launches: 1, any_elected: false, suppressions: Vec::new() }
}

/// Records a launch on both machines, whether anything differs or not.
fn followed(launch: &Launch, device: &mut dyn Engine) -> (Follower, usize) {
    let functions = read(launch).expect("it is read");
    let trial = Trial::new(launch, &functions).expect("legal");
    let mut machines = Machines::new(&trial, &functions, device).expect("memory");
    let grid = launch.kernels[0].grid;
    let all = u64::from(grid.iter().product::<u32>() * functions[0].threads());
    let window = Window { first: 0, count: all, capacity: 1 << 12, grid, all };
    let before = machines.device_memory().expect("memory");
    let plan = Plan::new(&functions[0], &BTreeSet::new());
    let recorded = machines.record((0, 1), (&before, &plan), &window).expect("both run");
    let mut follower = Follower::default();
    follower.follow(&plan.points(), &window, &recorded);
    let entries =
        recorded.emulated.chunks_exact(ENTRY).filter(|entry| entry[0] != 0 || entry[1] != 0).count();
    (follower, entries)
}

/// Copies, multiplies, barriers and roles of warps: the changed program does what the kernel does, and is text that can be read.
#[test]
fn kernels_with_copies_and_multiplies_are_recorded() {
    for name in ["64x64-direct-bf16-kk", "128x128-pingpong-bf16-kk"] {
        let launch = product(name);
        let (follower, entries) = followed(&launch, &mut other());
        assert!(
            follower.found().is_none() && follower.excused().next().is_none() && !follower.is_cut,
            "{name}"
        );
        assert!(entries > 10_000, "{name}: {entries}");
        let round = |inst: &mut Inst| {
            if let Inst::Pack { low, high, .. } = inst {
                core::mem::swap(low, high);
            }
        };
        let comparison = against(&launch, &mut Broken::new(other(), round)).expect("both run");
        let origin = comparison.origin.as_ref().expect("found");
        assert!(origin.spot.text.starts_with("cvt.rn.bf16x2.f32"), "{name}: {comparison}");
        let negate = |inst: &mut Inst| {
            if let Inst::Wgmma { negate_b, .. } = inst {
                *negate_b = true;
            }
        };
        let comparison = against(&launch, &mut Broken::new(other(), negate)).expect("both run");
        assert!(comparison.origin.is_none(), "{name}: {comparison}");
        assert!(
            comparison.excused.iter().any(|one| one.spot.text.starts_with("wgmma.mma_async")),
            "{comparison}"
        );
    }
}

/// The same on a card, if there is one.
#[test]
fn a_card_is_compared() {
    let Ok(gpu) = Gpu::new(0) else {
        return skipped::skipped("GPU");
    };
    let mut card = Broken::new(gpu, |_| {});
    let comparison = against(&described(2), &mut card).expect("both run");
    assert!(!comparison.is_wrong(), "{comparison}");
    for name in ["64x64-direct-bf16-kk", "128x128-pingpong-bf16-kk"] {
        let launch = product(name);
        let comparison = against(&launch, &mut card).expect("both run");
        assert!(comparison.after.is_none(), "{name}: {comparison}");
        let (follower, entries) = followed(&launch, &mut card);
        assert!(follower.found().is_none(), "{name}: {:?}", follower.found());
        assert!(entries > 10_000, "{name}: {entries}");
    }
    card.change = |inst| {
        if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Max;
        }
    };
    let comparison = against(&described(1), &mut card).expect("both run");
    assert!(comparison.origin.as_ref().is_some_and(|origin| origin.register == "%f2"), "{comparison}");
    card.change = |inst| {
        if let Inst::Pack { low, high, .. } = inst {
            core::mem::swap(low, high);
        }
    };
    let comparison = against(&product("64x64-direct-bf16-kk"), &mut card).expect("both run");
    let text = comparison.origin.as_ref().map_or("", |origin| &origin.spot.text);
    assert!(text.starts_with("cvt.rn.bf16x2.f32"), "{comparison}");
}

#[test]
fn equal_machines_are_equal() {
    let comparison = compared(|_| {}, 2);
    assert!(comparison.after.is_none() && !comparison.is_wrong(), "{comparison}");
    assert!(comparison.to_string().contains("every bit"), "{comparison}");
}

/// A statement that computes something else is named, however many values come from it in this thread and in others.
#[test]
fn the_broken_statement_is_named() {
    let mul = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Max;
        }
    };
    let comparison = compared(mul, 1);
    let origin = comparison.origin.as_ref().expect("found");
    assert_eq!(origin.spot.text, "mul.f32 %f2, %f1, 0f3F000000;", "{comparison}");
    assert!(!origin.reads && origin.register == "%f2" && comparison.is_wrong(), "{comparison}");
    assert_eq!(comparison.differences[0].buffer, "y");
}

/// A statement in a loop, and a guarded one.
#[test]
fn broken_statements_are_named_where_they_are_executed() {
    let add = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Add, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Sub;
        }
    };
    let sub = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Sub, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Add;
        }
    };
    for (change, text) in
        [(add as fn(&mut Inst), "add.f32 %f3, %f3, %f1;"), (sub, "@%p2 sub.f32 %f3, %f3, %f4;")]
    {
        let comparison = compared(change, 1);
        let origin = comparison.origin.as_ref().expect("found");
        assert_eq!(origin.spot.text, text, "{comparison}");
    }
}

/// A store that writes something else shows where it is read.
#[test]
fn what_no_register_shows_is_found_where_it_is_read() {
    let store = |inst: &mut Inst| {
        if let Inst::Store { space: ptx::Space::Shared, src, .. } = inst {
            src[0] = ptx::inst::Operand::Imm(0x4000_0000);
        }
    };
    let comparison = compared(store, 1);
    let origin = comparison.origin.as_ref().expect("found");
    assert_eq!(origin.spot.text, "ld.shared.f32 %f3, [%r8];", "{comparison}");
    assert!(origin.reads, "{comparison}");
}

/// An approximation may be another one. What comes from it is no difference of its own.
#[test]
fn approximations_are_excused() {
    let approximate = |inst: &mut Inst| {
        if let Inst::Alu(Alu { op: op @ AluOp::Approx(ApproxOp::Exp2), .. }) = inst {
            *op = AluOp::Approx(ApproxOp::Tanh);
        }
    };
    let comparison = compared(approximate, 1);
    assert!(
        comparison.after.is_some() && comparison.origin.is_none() && !comparison.is_wrong(),
        "{comparison}"
    );
    assert_eq!(comparison.excused.len(), 1, "{comparison}");
    assert_eq!(comparison.excused[0].spot.text, "ex2.approx.f32 %f4, %f1;");
    // Another mistake beside it is found all the same.
    let both = |inst: &mut Inst| {
        if let Inst::Alu(Alu { op: op @ AluOp::Approx(ApproxOp::Exp2), .. }) = inst {
            *op = AluOp::Approx(ApproxOp::Tanh);
        }
        if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Max;
        }
    };
    let comparison = compared(both, 1);
    assert!(comparison.is_wrong() && comparison.origin.is_some_and(|origin| origin.register == "%f2"));
}
