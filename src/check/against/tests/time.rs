//! What depends on time or on the order of threads is no difference. The device is the emulator under another schedule.

use emulator::{Numerics, Schedule};
use kernel::{Emulator, Engine};
use ptx::Space;
use ptx::inst::{BinaryOp, Inst, Operand};

use super::super::{Comparison, against};
use crate::check::Launch;
use crate::check::broken::Broken;

fn device(schedule: Schedule, change: fn(&mut Inst)) -> Broken<Emulator> {
    let mut inner = Emulator::new().with_numerics(Numerics::Exact).with_schedule(schedule, 0);
    inner.allocate(1 << 12).expect("memory");
    Broken::new(inner, change)
}

/// A kernel of a buffer `x` of 128 random numbers and a buffer `y` of 128 zeros.
fn compared(body: &str, grid: u32, schedule: Schedule, change: fn(&mut Inst)) -> Comparison {
    let text = format!(
        "
        ptx = \"k.ptx\"
        grid = [{grid}, 1, 1]
        cluster = [{grid}, 1, 1]
        argument = [{{ buffer = \"x\" }}, {{ buffer = \"y\" }}, {{ buffer = \"locks\" }}]

        [[buffer]]
        name = \"x\"
        element = \"f32\"
        count = 128
        random = {{ seed = 3, low = -1.0, high = 1.0 }}

        [[buffer]]
        name = \"y\"
        element = \"f32\"
        count = 128
        zeros = true

        [[buffer]]
        name = \"locks\"
        element = \"u32\"
        count = 32
        zeros = true
        "
    );
    let ptx = format!(
        "
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 locks)
.reqntid {threads}, 1, 1
{{
    .shared .align 128 .b8 words[4096];
    .reg .pred %p<9>;
    .reg .b32 %r<19>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [locks];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, {threads}, %r1;
    mul.wide.u32 %rd4, %r3, 4;
    add.s64 %rd5, %rd1, %rd4;
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd6, %rd2, %rd4;
    mov.u32 %r4, words;
    ld.global.f32 %f1, [%rd5];
{body}
    ret;
}}
",
        threads = 128 / grid
    );
    let mut launch = Launch::read(&text).expect("a description");
    launch.load(&|_| Ok(ptx.clone().into())).expect("a text");
    against(&launch, &mut device(schedule, change)).expect("both run")
}

fn multiply_less(inst: &mut Inst) {
    if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
        *op = BinaryOp::Max;
    }
}

/// The wait for a multiply stands before it in the text, at the head of the loop.
#[test]
fn accumulators_are_recorded_before_they_are_read() {
    let body = "
    mad.lo.u32 %r5, %r1, 32, %r4;
    add.u32 %r6, %r1, 0x3c003800;
    st.shared.v4.b32 [%r5], {%r6, %r6, %r6, %r6};
    st.shared.v4.b32 [%r5+16], {%r6, %r6, %r6, %r6};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %r7, %r4, 4;
    cvt.u64.u32 %rd7, %r7;
    or.b64 %rd7, %rd7, 0x1000080000;
    add.s64 %rd8, %rd7, 128;
    setp.eq.u32 %p2, %r1, %r1;
    mov.f32 %f2, 0f3F800000;
    mov.f32 %f3, 0f3F800000;
    mov.f32 %f4, 0f3F800000;
    mov.f32 %f5, 0f3F800000;
    mov.u32 %r8, 0;
$again:
    wgmma.wait_group.sync.aligned 0;
    mul.f32 %f2, %f2, %f1;
    mul.f32 %f3, %f3, %f1;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f2, %f3, %f4, %f5}, %rd7, %rd8, %p2, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    add.u32 %r8, %r8, 1;
    setp.lt.u32 %p1, %r8, 3;
    @%p1 bra $again;
    wgmma.wait_group.sync.aligned 0;
    add.f32 %f2, %f2, %f3;
    add.f32 %f4, %f4, %f5;
    add.f32 %f2, %f2, %f4;
    st.global.f32 [%rd6], %f2;";
    let negate = |inst: &mut Inst| {
        if let Inst::Wgmma { negate_b, .. } = inst {
            *negate_b = true;
        }
    };
    let comparison = compared(body, 1, Schedule::Default, negate);
    assert!(comparison.after.is_some() && comparison.origin.is_none(), "{comparison}");
    let is_multiply = |text: &str| text.starts_with("wgmma.mma_async");
    assert_eq!(comparison.excused.len(), 1, "{comparison}");
    assert!(comparison.excused.iter().all(|one| is_multiply(&one.spot.text)), "{comparison}");
    // A mistake in the loop is found beside it.
    let both = |inst: &mut Inst| {
        multiply_less(inst);
        if let Inst::Wgmma { negate_b, .. } = inst {
            *negate_b = true;
        }
    };
    let comparison = compared(body, 1, Schedule::Default, both);
    let origin = comparison.origin.as_ref().expect("found");
    assert!(origin.spot.text.starts_with("mul.f32"), "{comparison}");
}

/// One warp waits for another one: a test, and a loop of tests where it fails. How often it tests says nothing.
#[test]
fn rounds_of_a_poll_are_not_compared() {
    let body = "
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra $made;
    mbarrier.init.shared::cta.b64 [%r4], 64;
$made:
    bar.sync 0;
    setp.ge.u32 %p2, %r1, 64;
    @!%p2 bra $wait;
    mbarrier.arrive.shared::cta.b64 %rd7, [%r4];
    ret;
$wait:
    add.u32 %r5, %r4, 0;
    mov.u32 %r6, 0;
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5], %r6;
    @%p3 bra $waited;
    add.u32 %r7, %r4, 0;
$again:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r7], %r6;
    @%p4 bra $done;
    bra $again;
$done:
$waited:
    mul.f32 %f2, %f1, 0f3F000000;
    st.global.f32 [%rd6], %f2;";
    for schedule in [Schedule::Default, Schedule::Latest, Schedule::Paced] {
        let comparison = compared(body, 1, schedule, multiply_less);
        let origin = comparison.origin.as_ref().expect("found");
        assert!(origin.spot.text.starts_with("mul.f32"), "{schedule:?}: {comparison}");
        assert!(!origin.ways, "{schedule:?}: {comparison}");
    }
}

/// A lock that each CTA takes in turn: the thread that polls hands the word on through shared memory.
const LOCKED: &str = "
    setp.eq.u32 %p1, %r1, 0;
$again:
    bar.sync 0;
    mov.u32 %r5, 0;
    @%p1 atom.global.acq_rel.gpu.cas.b32 %r5, [%rd3], 0, 1;
    @%p1 st.shared.b32 [%r4], %r5;
    bar.sync 0;
    ld.shared.b32 %r6, [%r4];
    setp.eq.u32 %p2, %r6, 1;
    @%p2 bra $again;
    mul.f32 %f3, %f1, 0f3F400000;
    ld.global.f32 %f2, [%rd6];
    add.f32 %f2, %f2, %f3;
    st.global.f32 [%rd6], %f2;
    bar.sync 0;
    @%p1 atom.global.acq_rel.gpu.exch.b32 %r7, [%rd3], 0;";

#[test]
fn the_order_of_a_lock_is_excused() {
    let comparison = compared(LOCKED, 8, Schedule::Latest, |_| {});
    assert!(comparison.after.is_some(), "{comparison}");
    assert!(comparison.origin.is_none() && !comparison.is_wrong(), "{comparison}");
    assert!(comparison.excused.iter().any(|one| one.spot.text.starts_with("st.global.f32")), "{comparison}");
    let comparison = compared(LOCKED, 8, Schedule::Latest, multiply_less);
    let origin = comparison.origin.as_ref().expect("found");
    assert!(origin.spot.text.starts_with("mul.f32") && !origin.reads, "{comparison}");
}

/// Sums of floats by atomics depend on the order; another buffer does not.
#[test]
fn the_order_of_atomics_is_excused() {
    let body = "
    red.global.gpu.relaxed.add.f32 [%rd2+64], %f1;
    setp.eq.u32 %p1, %r3, 0;
    @%p1 st.global.u32 [%rd3], 5;";
    let comparison = compared(body, 4, Schedule::Latest, |_| {});
    assert!(comparison.after.is_some(), "{comparison}");
    assert!(comparison.origin.is_none() && !comparison.is_wrong(), "{comparison}");
    assert!(comparison.excused.iter().all(|one| one.spot.text.starts_with("red.global")), "{comparison}");
    assert_eq!((comparison.excused.len(), comparison.excused[0].threads), (1, 128), "{comparison}");
    let store = |inst: &mut Inst| {
        if let Inst::Store { space: Space::Global, ty, src, .. } = inst
            && *src == [Operand::Imm(5)]
            && ty.bytes() == 4
        {
            src[0] = Operand::Imm(6);
        }
    };
    let comparison = compared(body, 1, Schedule::Latest, store);
    assert!(comparison.is_wrong(), "{comparison}");
}
