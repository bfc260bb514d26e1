//! What instructions become that the program does not have as they are.

use super::printed::again;
use crate::module_text;
use crate::read::{Launch, Module};

const REGISTERS: &str =
    ".reg .pred %p<5>; .reg .b16 %h<5>; .reg .b32 %r<10>; .reg .f32 %f<5>; .reg .b64 %d<9>; .reg .f64 %e<4>;";

/// A kernel with a body, before which every register is written.
fn text(body: &str) -> String {
    let mut given = String::new();
    for (class, ty, count) in [
        ("p", "pred", 5),
        ("h", "b16", 5),
        ("r", "b32", 9),
        ("f", "f32", 5),
        ("d", "b64", 9),
        ("e", "f64", 4),
    ] {
        let zero = if ty.starts_with('f') { "0f00000000" } else { "0" };
        given.extend((0..count).map(|number| format!("mov.{ty} %{class}{number}, {zero};\n")));
    }
    format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n.shared .align 8 .b8 fixed[24];
        .global .align 4 .u32 counter = 5;\n.const .f32 table[2] = {{0f3F800000, 2.0}};
        .visible .entry k(.param .u64 out, .param .align 64 .b8 map[128], .param .align 8 .b8 parts[24]) .maxntid 96\n
        {{ {REGISTERS}\n{given}trap;\n{body}\nret; }}"
    )
}

/// Kernels of all instructions below.
pub(super) fn texts() -> Vec<String> {
    FORMS.iter().map(|(body, _)| text(body)).collect()
}

/// The statements that a body becomes, as text.
fn lowered(body: &str) -> String {
    let text = text(body);
    let printed = module_text(&again(&text, 0).verify().unwrap_or_else(|error| panic!("{error}\n{text}")));
    let (_, statements) = printed.split_once("trap;\n").expect("a body");
    let statements: Vec<_> = statements.lines().map(str::trim).collect();
    statements.join(" ").trim_end_matches("ret; }").trim_end().to_owned()
}

#[test]
fn instructions() {
    for (body, want) in FORMS {
        assert_eq!(lowered(body), *want, "{body}");
    }
}

/// Instructions, and what they become.
const FORMS: &[(&str, &str)] = &[
    (
        "add.cc.u32 %r0, %r1, %r2; addc.u32 %r3, %r4, %r5;",
        "add.u32 %t1, %r1, %r2; setp.lt.u32 %t2, %t1, %r1; mov.pred %t3, %t2; mov.b32 %r0, %t1; add.u32 %t4, %r4, %r5; setp.lt.u32 %t5, %t4, %r4; selp.b32 %t6, 1, 0, %t3; add.u32 %t7, %t4, %t6; setp.lt.u32 %t8, %t7, %t4; or.pred %t9, %t5, %t8; mov.b32 %r3, %t7;",
    ),
    (
        "sub.cc.s64 %d0, %d1, %d2; subc.cc.s64 %d3, %d4, 0;",
        "sub.u64 %t1, %d1, %d2; setp.lt.u64 %t2, %d1, %d2; mov.pred %t3, %t2; mov.b64 %d0, %t1; sub.u64 %t4, %d4, 0; setp.lt.u64 %t5, %d4, 0; selp.b64 %t6, 1, 0, %t3; sub.u64 %t7, %t4, %t6; setp.lt.u64 %t8, %t4, %t6; or.pred %t9, %t5, %t8; mov.pred %t3, %t9; mov.b64 %d3, %t7;",
    ),
    (
        "mad.lo.cc.u32 %r0, %r1, %r2, %r3;",
        "mul.lo.u32 %t1, %r1, %r2; add.u32 %t2, %t1, %r3; setp.lt.u32 %t3, %t2, %t1; mov.pred %t4, %t3; mov.b32 %r0, %t2;",
    ),
    (
        "sad.u32 %r0, %r1, %r2, %r3;",
        "max.u32 %t1, %r1, %r2; min.u32 %t2, %r1, %r2; sub.u32 %t3, %t1, %t2; add.u32 %r0, %t3, %r3;",
    ),
    (
        "dp4a.u32.s32 %r0, %r1, %r2, %r3;",
        "bfe.u32 %t1, %r1, 0, 8; bfe.s32 %t2, %r2, 0, 8; mad.lo.u32 %t3, %t1, %t2, %r3; bfe.u32 %t4, %r1, 8, 8; bfe.s32 %t5, %r2, 8, 8; mad.lo.u32 %t6, %t4, %t5, %t3; bfe.u32 %t7, %r1, 16, 8; bfe.s32 %t8, %r2, 16, 8; mad.lo.u32 %t9, %t7, %t8, %t6; bfe.u32 %t10, %r1, 24, 8; bfe.s32 %t11, %r2, 24, 8; mad.lo.u32 %t12, %t10, %t11, %t9; mov.b32 %r0, %t12;",
    ),
    (
        "testp.subnormal.f32 %p0, %f0;",
        "mov.b32 %t1, %f0; and.b32 %t2, %t1, 2147483647; setp.ge.u32 %t3, %t2, 1; setp.lt.u32 %t4, %t2, 8388608; and.pred %p0, %t3, %t4;",
    ),
    (
        "add.rn.sat.f16x2 %r0, %r1, %r2;",
        "add.rn.f16x2 %r0, %r1, %r2; mov.b32 %t1, 0; max.f16x2 %r0, %r0, %t1; mov.b32 %t2, 1006648320; min.f16x2 %r0, %r0, %t2;",
    ),
    ("add.s16x2 %r0, %r1, 65537;", "mov.b32 %t1, 65537; add.s16x2 %r0, %r1, %t1;"),
    ("max.u16x2 %r0, %r1, %r2;", "max.u16x2 %r0, %r1, %r2;"),
    ("ex2.approx.ftz.bf16x2 %r0, %r1;", "ex2.approx.ftz.bf16x2 %r0, %r1;"),
    (
        "add.sat.s32 %r0, %r1, %r2;",
        "cvt.s64.s32 %t1, %r1; cvt.s64.s32 %t2, %r2; add.s64 %t3, %t1, %t2; min.s64 %t3, %t3, 2147483647; max.s64 %t3, %t3, -2147483648; cvt.s32.s64 %r0, %t3;",
    ),
    ("mul.wide.s16 %r0, %h0, -1;", "cvt.s32.s16 %t1, %h0; mul.lo.s32 %r0, %t1, -1;"),
    (
        "mad.wide.u16 %r0, %h0, %h1, %r1;",
        "cvt.u32.u16 %t1, %h0; cvt.u32.u16 %t2, %h1; mad.lo.u32 %r0, %t1, %t2, %r1;",
    ),
    ("bfind.u32 %r0, %r1;", "clz.b32 %t1, %r1; sub.u32 %r0, 31, %t1;"),
    (
        "bfind.shiftamt.s64 %r0, %d1;",
        "shr.s64 %t1, %d1, 63; xor.b64 %t2, %d1, %t1; clz.b64 %t3, %t2; setp.eq.u32 %t4, %t3, 64; selp.b32 %r0, 4294967295, %t3, %t4;",
    ),
    ("cnot.b32 %r0, %r1;", "setp.eq.u32 %t1, %r1, 0; selp.b32 %r0, 1, 0, %t1;"),
    (
        "setp.lt.and.s32 %p0, %r0, 4, !%p1;",
        "setp.lt.s32 %t1, %r0, 4; not.pred %t2, %p1; and.pred %p0, %t1, %t2;",
    ),
    (
        "setp.hi.or.u32 %p0|%p1, %r0, %r1, %p2;",
        "setp.gt.u32 %t1, %r0, %r1; not.pred %t2, %t1; or.pred %t3, %t2, %p2; or.pred %p0, %t1, %p2; mov.pred %p1, %t3;",
    ),
    ("setp.ltu.ftz.f32 %p0, %f0, %f1;", "setp.ltu.ftz.f32 %p0, %f0, %f1;"),
    ("setp.neu.f32 %p0, %f0, 0f00000000;", "setp.neu.f32 %p0, %f0, 0f00000000;"),
    (
        "setp.gt.f16x2 %p0|%p1, %r0, %r1;",
        "mov.b32 {%t1, %t2}, %r0; mov.b32 {%t3, %t4}, %r1; setp.gt.f16 %t5, %t1, %t3; setp.gt.f16 %t6, %t2, %t4; mov.pred %p0, %t5; mov.pred %p1, %t6;",
    ),
    (
        "set.ge.f16x2.f16x2 %r0, %r1, %r2;",
        "mov.b32 {%t1, %t2}, %r1; mov.b32 {%t3, %t4}, %r2; setp.ge.f16 %t5, %t1, %t3; selp.b16 %t6, 15360, 0, %t5; setp.ge.f16 %t7, %t2, %t4; selp.b16 %t8, 15360, 0, %t7; mov.b32 %r0, {%t6, %t8};",
    ),
    ("set.lt.u32.f32 %r0, %f0, %f1;", "setp.lt.f32 %t1, %f0, %f1; selp.b32 %r0, 4294967295, 0, %t1;"),
    ("slct.f32.s32 %f0, %f1, %f2, %r0;", "setp.ge.s32 %t1, %r0, 0; selp.f32 %f0, %f1, %f2, %t1;"),
    ("neg.ftz.f32 %f0, %f1;", "neg.f32 %f0, %f1; mul.rn.ftz.f32 %f0, %f0, 0f3F800000;"),
    ("div.full.ftz.f32 %f0, %f1, %f2;", "div.full.ftz.f32 %f0, %f1, %f2;"),
    ("max.ftz.NaN.f32 %f0, %f1, %f2;", "max.ftz.NaN.f32 %f0, %f1, %f2;"),
    ("fma.rn.relu.bf16x2 %r0, %r1, %r2, 0;", "mov.b32 %t1, 0; fma.rn.relu.bf16x2 %r0, %r1, %r2, %t1;"),
    ("cvt.rzi.s64.f32 %d0, %f0;", "cvt.rzi.s64.f32 %d0, %f0;"),
    ("cvt.rni.ftz.s32.f32 %r0, %f0;", "cvt.rni.ftz.s32.f32 %r0, %f0;"),
    ("cvt.sat.u8.s32 %r0, %r1;", "cvt.sat.u8.s32 %r0, %r1;"),
    ("cvt.s32.s8 %r0, %r1;", "cvt.s32.s8 %r0, %r1;"),
    ("cvt.u16.u16 %r0, %r1;", "cvt.u32.u16 %r0, %r1;"),
    ("cvt.rz.f32.s32 %f0, %r0;", "cvt.rz.f32.s32 %f0, %r0;"),
    ("mov.b64 {%r0, _}, %d0;", "mov.b64 {%r0, %t1}, %d0;"),
    ("mov.b64 %d0, {%r0, 7};", "mov.b64 %d0, {%r0, 7};"),
    ("mov.b32 {%h0, %h1}, %r0;", "mov.b32 {%h0, %h1}, %r0;"),
    ("mov.b32 %r0, {%h0, %h1};", "mov.b32 %r0, {%h0, %h1};"),
    (
        "mov.u32 %r0, dynamic; mov.u64 %d0, fixed; mov.u32 %r1, fixed+8;",
        "mov.u32 %r0, dynamic_shared; mov.u32 %t1, static_shared; cvt.u64.u32 %t2, %t1; mov.b64 %d0, %t2; mov.u32 %r1, static_shared+8;",
    ),
    (
        "mov.u64 %d0, counter; ld.global.u32 %r0, [counter]; ld.const.f32 %f0, [table+4];",
        "ld.param.u64 %d0, [counter]; ld.param.u64 %t1, [counter]; ld.global.u32 %r0, [%t1]; ld.param.u64 %t2, [table]; add.u64 %t3, %t2, 4; ld.global.f32 %f0, [%t3];",
    ),
    (
        "mov.u64 %d0, map; cvta.param.u64 %d1, map; ld.param.u32 %r0, [parts+12]; ld.param.v2.b64 {%d2, %d3}, [parts];",
        "mov.u64 %d0, map; cvta.param.u64 %d1, map; ld.param.u32 %r0, [parts+12]; ld.param.v2.b64 {%d2, %d3}, [parts];",
    ),
    (
        "ld.param.u32 %r0, [%d0+4]; prefetch.param.tensormap [%d0]; prefetch.tensormap [%d1];",
        "ld.param.u32 %r0, [%d0+4]; cvta.param.u64 %t1, %d0; prefetch.tensormap [%t1]; prefetch.tensormap [%d1];",
    ),
    (
        ".local .align 8 .b8 stack[24]; mov.u64 %d0, stack; st.local.u32 [stack+4], 7; ld.local.u32 %r0, [%d0];",
        "mov.u64 %d0, local_memory; mov.u64 %t1, local_memory+4; st.local.u32 [%t1], 7; ld.local.u32 %r0, [%d0];",
    ),
    (
        "ld.shared.u32 %r0, [%d0+8]; st.shared.u8 [fixed+3], %r1; ld.global.s8 %r0, [%d1]; ld.u16 %r1, [%d2];",
        "add.u64 %t1, %d0, 8; cvt.u32.u64 %t2, %t1; ld.shared::cta.u32 %r0, [%t2]; mov.u32 %t3, static_shared+3; st.shared::cta.u8 [%t3], %r1; ld.global.s8 %r0, [%d1]; ld.b16 %r1, [%d2];",
    ),
    (
        "ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%f0, %f1, %f2, %f3}, [%d0];",
        "ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%d0];",
    ),
    (
        "st.global.cs.L2::cache_hint.b32 [%d0], %r0, %d1; ld.volatile.global.u32 %r0, [%d0]; ld.acquire.gpu.u32 %r0, [%d0];",
        "st.global.b32 [%d0], %r0; ld.volatile.global.u32 %r0, [%d0]; ld.acquire.gpu.u32 %r0, [%d0];",
    ),
    (
        "atom.global.add.u32 %r0, [%d0], 1; red.shared.add.f32 [%r0], %f0; atom.cas.b64 %d0, [%d1], %d2, %d3;",
        "atom.relaxed.gpu.global.add.u32 %r0, [%d0], 1; red.relaxed.gpu.shared::cta.add.f32 [%r0], %f0; atom.relaxed.gpu.cas.b64 %d0, [%d1], %d2, %d3;",
    ),
    (
        "red.global.gpu.relaxed.add.v4.f32 [%d0], {%f0, %f1, %f2, %f3}; atom.global.acq_rel.sys.add.noftz.f16x2 %r0, [%d0], %r1;",
        "red.relaxed.gpu.global.add.v4.f32 [%d0], {%f0, %f1, %f2, %f3}; atom.acq_rel.sys.global.add.noftz.f16x2 %r0, [%d0], %r1;",
    ),
    (
        "createpolicy.fractional.L2::evict_last.b64 %d0, 1.0; prefetch.global.L2 [%d0];",
        "mov.b64 %d0, 1508705875169116160;",
    ),
    (
        "mapa.shared::cluster.u32 %r0, %r1, 1; mapa.u64 %d0, %d1, %r2; getctarank.u64 %r0, %d1;",
        "mapa.shared::cluster.u32 %r0, %r1, 1; cvta.to.shared::cta.u64 %t1, %d1; cvt.u32.u64 %t2, %t1; mapa.shared::cluster.u32 %t3, %t2, %r2; cvt.u64.u32 %t4, %t3; cvta.shared::cluster.u64 %t5, %t4; mov.b64 %d0, %t5; cvta.to.shared::cluster.u64 %t6, %d1; cvt.u32.u64 %t7, %t6; getctarank.shared::cluster.u32 %r0, %t7;",
    ),
    (
        "getctarank.shared::cluster.u32 %r0, %r1; isspacep.shared %p0, %d0;",
        "getctarank.shared::cluster.u32 %r0, %r1; isspacep.shared::cta %p0, %d0;",
    ),
    (
        "bar.sync 0; barrier.sync 1, 64; bar.arrive %r0, 32; barrier.cta.sync.aligned 2; bar.warp.sync 0xffffffff; bar.warp.sync 15;",
        "bar.sync 0; barrier.sync 1, 64; bar.arrive %r0, 32; bar.sync 2; bar.warp.sync -1; bar.warp.sync 15;",
    ),
    (
        "bar.red.popc.u32 %r0, 0, 96, %p0; bar.red.or.pred %p0, 0, !%p1;",
        "bar.red.popc.u32 %r0, 0, 96, %p0; not.pred %t1, %p1; bar.red.or.pred %p0, 0, %t1;",
    ),
    ("mov.u32 %r9, 64; bar.sync %r1, %r9;", "mov.u32 %r9, 64; bar.sync %r1, 64;"),
    (
        "barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive.release.aligned; membar.gl; fence.acq_rel.sys;",
        "barrier.cluster.arrive; barrier.cluster.wait.acquire; barrier.cluster.arrive.aligned; fence.sc.gpu; fence.acq_rel.sys;",
    ),
    (
        "mbarrier.init.shared.b64 [%r0], 1; mbarrier.init.b64 [%d0], 1; mbarrier.arrive.b64 %d1, [%d0]; mbarrier.arrive.shared.b64 _, [fixed+8], 2;",
        "mbarrier.init.shared::cta.b64 [%r0], 1; cvta.to.shared::cta.u64 %t1, %d0; cvt.u32.u64 %t2, %t1; mbarrier.init.shared::cta.b64 [%t2], 1; cvta.to.shared::cta.u64 %t3, %d0; cvt.u32.u64 %t4, %t3; mbarrier.arrive.shared::cta.b64 %d1, [%t4], 1; mov.u32 %t5, static_shared+8; mbarrier.arrive.shared::cta.b64 _, [%t5], 2;",
    ),
    (
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r0]; mbarrier.arrive.noComplete.shared.b64 %d0, [%r0], 3; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], 8;",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r0]; mbarrier.arrive.noComplete.shared::cta.b64 %d0, [%r0], 3; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], 8;",
    ),
    (
        "mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p0, [%r0], %r1, 100; mbarrier.test_wait.shared.b64 %p1, [%r0], %d0;",
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r0], %r1; mbarrier.test_wait.shared::cta.b64 %p1, [%r0], %d0;",
    ),
    (
        "{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%r0], %r1; @p bra D; bra.uni W; D: }",
        "{ .reg .pred %done; W: mbarrier.try_wait.parity.shared::cta.b64 %done, [%r0], %r1; @!%done bra W; }",
    ),
    (
        "{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%r0], %r1, 5; @!p bra.uni W; mov.pred %p0, p; }",
        "{ .reg .pred %done; W: mbarrier.try_wait.parity.shared::cta.b64 %done, [%r0], %r1; @!%done bra W; } mov.pred p, 1; mov.pred %p0, p;",
    ),
    (
        "{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%r0], %r1; @p bra W; }",
        "W: mbarrier.try_wait.parity.shared::cta.b64 p, [%r0], %r1; @p bra W;",
    ),
    (
        "cp.async.cg.shared.global [%r0], [%d0+16], 16; cp.async.ca.shared.global.L2::128B [%r0], [%d0], 4, %r1; cp.async.ca.shared.global [%r0], [%d0], 8, %p0;",
        "cp.async.cg.shared::cta.global [%r0], [%d0+16], 16; cp.async.ca.shared::cta.global [%r0], [%d0], 4, %r1; selp.b32 %t1, 0, 8, %p0; cp.async.ca.shared::cta.global [%r0], [%d0], 8, %t1;",
    ),
    (
        "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r0], [%d0, {%r1, 0}], [%r2]; cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r0], [%d0, {%r1}], [%r2], %h0, %d1;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%d0, {%r1, 0}], [%r2]; cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r0], [%d0, {%r1}], [%r2], %h0, %d1;",
    ),
    (
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d0, {0, 1}], [%r0]; cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%d0, {0}], [%r0]; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%d0], [%r0], 64;",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d0, {0, 1}], [%r0]; cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%d0, {0}], [%r0]; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%d0], [%r0], 64;",
    ),
    (
        "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r0], 6; tensormap.replace.tile.global_stride.global.b1024.b64 [%d0], 0, %d1; fence.proxy.tensormap::generic.acquire.gpu [%d0], 128;",
        "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r0], 6; tensormap.replace.tile.global_stride.global.b1024.b64 [%d0], 0, %d1; fence.proxy.tensormap::generic.acquire.gpu [%d0], 128;",
    ),
    (
        "shfl.sync.bfly.b32 %r0, %r1, 4, 31, -1; shfl.sync.down.b32 %r0|%p0, %r1, 1, 0x1c1f, 0xffffffff; elect.sync %r0|%p0, 255; vote.sync.ballot.b32 %r0, !%p1, -1;",
        "shfl.sync.bfly.b32 %r0, %r1, 4, 31, -1; shfl.sync.down.b32 %r0|%p0, %r1, 1, 7199, 4294967295; elect.sync %r0|%p0, 255; not.pred %t1, %p1; vote.sync.ballot.b32 %r0, %t1, 4294967295;",
    ),
    (
        "redux.sync.or.b32 %r0, %r1, -1; match.all.sync.b32 %r0, %r1, -1; activemask.b32 %r0;",
        "redux.sync.or.b32 %r0, %r1, 4294967295; match.all.sync.b32 %r0|%t1, %r1, 4294967295; activemask.b32 %r0;",
    ),
    (
        "@%p0 setp.lt.or.s32 %p0, %r0, %r1, %p1; @!%p0 bra.uni L; @%p1 exit; L: nanosleep.u32 20; @%p0 mov.u32 %r0, 1;",
        "@%p0 setp.lt.s32 %t1, %r0, %r1; @%p0 or.pred %p0, %t1, %p1; @!%p0 bra L; @%p1 ret; L: nanosleep.u32 20; @%p0 mov.u32 %r0, 1;",
    ),
    (
        "T: .branchtargets L, M; brx.idx %r0, T; L: add.u32 %r0, %r0, 1; M: bra L;",
        "setp.eq.u32 %t1, %r0, 0; @%t1 bra L; bra M; L: add.u32 %r0, %r0, 1; M: bra L;",
    ),
    (
        "{ .reg .b32 a; mov.u32 a, %tid.y; { .reg .b32 a; mov.u32 a, 1; add.u32 %r0, a, %r1; } add.u32 %r1, a, WARP_SZ; }",
        "mov.u32 a, %tid.y; mov.u32 a_1, 1; add.u32 %r0, a_1, %r1; add.u32 %r1, a, 32;",
    ),
    (
        "{ .reg .v4 .b32 v; mov.u32 v.x, %laneid; mov.b32 v.y, 1; mov.b32 v.z, 2; mov.b32 v.w, v.x; st.global.v4.b32 [%d0], v; }",
        "mov.u32 v_x, %laneid; mov.b32 v_y, 1; mov.b32 v_z, 2; mov.b32 v_w, v_x; st.global.v4.b32 [%d0], {v_x, v_y, v_z, v_w};",
    ),
];

/// A variable that is a name for all of shared memory: what lies beyond it is at the same distance from it in the text.
#[test]
fn dynamic_shared_memory_begins_where_the_variables_end() {
    let text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.reqntid 32, 1, 1\n{ .shared .align 16 .b8 one; .reg .b32 %r<3>;\n\
        mov.u32 %r1, one;\nmov.u32 %r2, one+512;\nst.shared.u32 [one+1024], %r1;\nret; }";
    let module = Module::parse(text, "k").expect("read");
    let launch = Launch { shared_bytes: 2048, ..Launch::default() };
    let function = module.entry("k", &launch).expect("an entry");
    assert_eq!((function.static_shared, function.all_shared()), (16, 2064));
    let printed = module_text(&function.verify().expect("legal"));
    assert!(printed.contains(".extern .shared .align 16 .b8 dynamic_shared[];"), "{printed}");
    assert!(printed.contains("dynamic_shared+496;") && printed.contains("dynamic_shared+1008"), "{printed}");
}
