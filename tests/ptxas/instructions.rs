//! Every instruction that the printer can write is accepted by the assembler.

use ptx::abi::{TensorElement, TensorSwizzle};
use ptx::inst::{AluOp, Arrival, Bulk, MbarrierOrder, MbarrierPhase, Reduction};
use ptx::{
    AtomicOp, AtomicType, Builder, BulkLoad, Entry, Function, Inst, MapChange, ProxySpace, Scope, Space,
    Special, Target, TensorLoad, Value, Verified, WgmmaOperands, WgmmaSource, WgmmaTypes,
};

use crate::assembler::assemble;

const CTA: MbarrierOrder = MbarrierOrder::CTA;

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn every_instruction_is_spelled_as_the_assembler_wants() {
    let entry = Entry {
        name: "every".into(),
        target: Target::Sm90a,
        threads: 256,
        shared_bytes: 4096,
        cluster: [2, 1, 1],
    };
    let function = Function::build(entry, |f| {
        arithmetic(f);
        memory_and_barriers(f);
        asynchronous(f);
        tensor_maps(f);
        bulk(f);
        barriers(f);
        im2col(f);
        matrix(f);
    });
    let report = assemble("every", &ptx::module_text(&function.verify().expect("legal")));
    assert!(report.accepted, "{}", report.log);
}

/// Every type with one in eight N, in turns, and with `cargo xtask test --long` every N: A from shared memory and from
/// registers, dense and sparse, each modifier that the type has.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn every_form_of_wgmma_assembles() {
    let long = crate::long();
    for (turn, types) in WgmmaTypes::all().enumerate() {
        for sparse in [None, Some(0), Some(1)] {
            if sparse > types.sparse_selectors() {
                continue;
            }
            let widths: Vec<_> = (8..=256).filter(|&n| types.allows(n)).collect();
            assert!(matches!(widths.len(), 32 | 18), "{types:?}: {widths:?}");
            let name = types.suffix().replace('.', "_");
            let entry = Entry {
                name: format!("wgmma_{name}_{}", sparse.map_or("dense".to_owned(), |s| format!("sparse{s}"))),
                target: Target::Sm90a,
                threads: 128,
                shared_bytes: 0,
                cluster: [1; 3],
            };
            let kernel = entry.name.clone();
            let function = Function::build(entry, |f| {
                for &n in
                    widths.iter().skip(if long { 0 } else { turn % 8 }).step_by(if long { 1 } else { 8 })
                {
                    wgmma_forms(f, types, n, sparse);
                }
            });
            assert_eq!(wrong(&kernel, &function.verify().expect("legal")), None, "{kernel}");
        }
    }
}

/// Why the assembler disagrees with a program: it refuses the text, or it accepts it in an older version of
/// PTX too.
fn wrong(name: &str, function: &Verified) -> Option<String> {
    let text = ptx::module_text(function);
    let report = assemble(name, &text);
    if !report.accepted {
        return Some(report.log);
    }
    let (major, minor) = function.version();
    if (major, minor) == Target::Sm90a.version() {
        return None;
    }
    let (printed, before) = (format!(".version {major}.{minor}"), format!(".version {major}.{}", minor - 1));
    assert!(text.starts_with(&printed), "{text:.20}");
    let older = assemble(&format!("{name}_before"), &text.replacen(&printed, &before, 1));
    older.accepted.then(|| format!("the text says {printed}, and {before} is enough"))
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn every_other_form_assembles() {
    let (forms, mut refused) = (falchion::verify::instructions::forms(), Vec::new());
    for (i, form) in forms.iter().enumerate().filter(|(_, form)| !form.family.starts_with("wgmma")) {
        let prepared = form.prepare(0).expect("legal");
        if let Some(why) = wrong(&format!("form_{i}"), prepared.program().function()) {
            refused.push(format!("{}: {why}", form.name));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// The modifiers of one type and N, each alone and in both states.
fn wgmma_forms(f: &Builder, types: WgmmaTypes, n: u32, sparse: Option<u32>) {
    let descriptor = f.special(Special::CtaX).cast::<u64>();
    let fragment: [_; 4] = core::array::from_fn(|_| f.variable(f.special(Special::Lane)));
    let metadata = f.variable(f.special(Special::Lane));
    let sums: Vec<_> = (0..types.accumulators(n)).map(|_| f.uninitialised::<u32>()).collect();
    let mut forms = Vec::new();
    for a in [WgmmaSource::Shared(descriptor), WgmmaSource::Registers(fragment)] {
        let sparse = sparse.map(|selector| (metadata, selector));
        let plain = WgmmaOperands { sparse, ..WgmmaOperands::new(types, n, a, descriptor) };
        forms.extend([
            WgmmaOperands { accumulate: f.constant(false), ..plain },
            plain,
            WgmmaOperands { accumulate: f.special(Special::CtaY).equals(0), ..plain },
        ]);
        if types.allows_negation() {
            forms.push(WgmmaOperands { negate_a: true, ..plain });
            forms.push(WgmmaOperands { negate_b: true, ..plain });
        }
        if types.allows_transpose() {
            let shared = matches!(a, WgmmaSource::Shared(_));
            forms.push(WgmmaOperands { transpose_a: shared, ..plain });
            forms.push(WgmmaOperands { transpose_b: true, ..plain });
        }
    }
    f.wgmma_fence();
    for form in forms {
        f.wgmma(form, &sums);
    }
    f.wgmma_commit();
    f.wgmma_wait(0);
    for sum in &sums {
        keep(f, sum.get());
    }
    // Keeps the registers of one N from being live at the same time as the next one's.
    f.barrier_sync(0, 128);
}

/// Stores a value, so that the assembler must assume that it is used.
fn keep<T: ptx::Scalar>(f: &Builder, value: ptx::Value<'_, T>) {
    let sink = f.special(Special::ThreadX).mul_wide(8);
    f.store_global(sink, 0, [value]);
}

fn arithmetic(f: &Builder) {
    let (a, b) = (f.param::<u32>("u32_a"), f.param::<u32>("u32_b"));
    for value in [a + b, a - b, a * b, a / b, a % b, a.min(b), a.max(b), a & b, a | b, a ^ b, a << 3, a >> 3]
    {
        keep(f, value);
    }
    keep(f, a.mul_add(b, 7));
    keep(f, a.mul_wide(b));
    let (a, b) = (f.param::<i32>("s32_a"), f.param::<i32>("s32_b"));
    for value in [a + b, a / b, a % b, a.min(b), a.max(b), a >> 3, -a, a.abs()] {
        keep(f, value);
    }
    let (a, b) = (f.param::<u64>("u64_a"), f.param::<u64>("u64_b"));
    for value in [a + b, a - b, a * b, a / b, a % b, a & b, a << 3, a >> 3, a.mul_add(b, a)] {
        keep(f, value);
    }
    let (a, b) = (f.param::<i64>("s64_a"), f.param::<i64>("s64_b"));
    keep(f, (a + b).min(-b));
    let (x, y) = (f.param::<f32>("f32_x"), f.param::<f32>("f32_y"));
    for value in [x + y, x - y, x * y, x / y, x.min(y), x.max(y), -x, x.abs(), x.mul_add(y, 1.5)] {
        keep(f, value);
    }
    let (v, w) = (f.param::<f64>("f64_v"), f.param::<f64>("f64_w"));
    for value in [v + w, v * w, v / w, v.mul_add(w, 1.5)] {
        keep(f, value);
    }
    let all =
        x.less_than(y) & x.at_most(y) & !x.equals(y) | x.differs_from(y) ^ x.more_than(y) & x.at_least(0.5);
    keep(f, x.where_or(all, y));
    keep(f, a.where_or(all, b));
    keep(f, f.param::<u16>("u16_a").where_or(all, 3));
    keep(f, x.cast::<half::f16>());
    keep(f, x.cast::<half::bf16>());
    keep(f, x.cast::<f64>());
    keep(f, x.cast::<i32>());
    keep(f, x.cast::<u32>());
    keep(f, a.cast::<f32>());
    keep(f, v.cast::<f32>());
    keep(f, f.special(Special::Lane).cast::<u16>());
    keep(f, x.bits_as::<u32>());
    let packed = f.pack::<half::bf16>(x, y);
    keep(f, packed);
    keep(f, f.pack::<half::f16>(x, y));
    let [low, high] = f.unpack::<half::f16>(packed);
    keep(f, low.cast::<f32>() + high.cast::<f32>());
    let [low, high] = f.unpack::<half::bf16>(packed);
    keep(f, low.cast::<f32>() + high.cast::<f32>());
    for special in [
        Special::CtaX,
        Special::CtaY,
        Special::CtaZ,
        Special::GridX,
        Special::GridY,
        Special::GridZ,
        Special::ClusterRank,
        Special::ClusterSize,
        Special::ClusterX,
    ] {
        keep(f, f.special(special));
    }
    keep(f, f.shuffle(x, 3));
    keep(f, f.shuffle_xor(x, 1));
    f.if_(f.elect(), || f.trap());
}

fn memory_and_barriers(f: &Builder) {
    let shared = f.shared_base();
    let global = f.param::<u64>("global");
    let two: [ptx::Value<'_, f32>; 2] = f.load_global_vector(global, 8);
    f.store_shared(shared, 16, two);
    let four: [ptx::Value<'_, u32>; 4] = f.load_shared_vector(shared, 32);
    f.store_global(global, -16, four);
    keep(f, f.load_global::<half::bf16>(global, 2));
    let peer = f.map_shared(shared, 1);
    f.emit(Inst::Load {
        space: Space::SharedCluster,
        ty: ptx::Type::U32,
        dst: vec![f.uninitialised::<u32>().reg()],
        address: ptx::inst::Address { base: peer.operand(), offset: 0 },
    });
    f.barrier_sync(0, 256);
    f.barrier_arrive(f.special(Special::ClusterRank) + 1, 64);
    f.warp_sync();
    f.mbarrier_init(shared, 1);
    f.fence_mbarrier_init();
    f.cluster_arrive(true);
    f.cluster_wait();
    f.cluster_arrive(false);
    f.cluster_wait();
    f.mbarrier_arrive(shared);
    f.mbarrier_arrive_cluster(peer);
    f.mbarrier_arrival(shared, Arrival::count(3), false, false, CTA);
    f.mbarrier_arrive_expect(shared, 128);
    for scope in [Scope::Cta, Scope::Cluster] {
        let (barrier, bytes) = (shared.operand(), ptx::Operand::Imm(64));
        f.emit(Inst::MbarrierTransact { complete: false, barrier, space: Space::Shared, bytes, scope });
    }
    let done = f.mbarrier_try_wait(shared, 0);
    keep(f, f.constant(1u32).where_or(done, 2));
    f.mbarrier_wait(shared, 1);
    f.emit(Inst::MbarrierInvalidate { barrier: shared.operand() });
    for space in [ProxySpace::Shared, ProxySpace::SharedCluster, ProxySpace::Global, ProxySpace::All] {
        f.fence_proxy_async(space);
    }
    for scope in Scope::ALL {
        f.fence(scope);
        f.fence_sc(scope);
    }
}

fn asynchronous(f: &Builder) {
    let map = f.tensor_map("map");
    let shared = f.shared_base();
    f.prefetch_tensor_map(map);
    let coordinate = f.param::<i32>("coordinate");
    let plain = TensorLoad { map, dst: shared, barrier: shared + 2048, multicast: None, hint: None };
    f.tensor_load(plain, [coordinate]);
    f.tensor_load(plain, [coordinate; 2]);
    f.tensor_load(plain, [coordinate, -coordinate, coordinate]);
    let mask = f.special(Special::ClusterRank).cast::<u16>();
    f.tensor_load(TensorLoad { multicast: Some(mask), ..plain }, [coordinate; 4]);
    f.tensor_load(
        TensorLoad { multicast: Some(mask), hint: Some(ptx::inst::tma::EVICT_LAST), ..plain },
        [coordinate; 5],
    );
    f.tensor_store(map, shared, [coordinate; 2]);
    f.bulk_commit();
    f.bulk_wait(0, true);
    f.bulk_wait(1, false);
    let value = f.special(Special::Lane);
    f.store_matrix(shared, [value], false);
    f.store_matrix(shared, [value; 2], true);
    f.store_matrix(shared, [value; 4], false);
}

fn bulk(f: &Builder) {
    let (map, global) = (f.tensor_map("reduced"), f.param::<u64>("line"));
    let (shared, bytes) = (f.shared_base(), f.param::<u32>("line_bytes"));
    let peer = f.map_shared(shared, 1);
    let load = BulkLoad { src: global, dst: shared, barrier: shared + 2048, multicast: None, hint: None };
    let multicast = Some(f.special(Special::ClusterRank).cast::<u16>());
    f.bulk_load(load, bytes);
    f.bulk_load(BulkLoad { multicast, hint: Some(ptx::inst::tma::EVICT_FIRST), ..load }, 64);
    f.bulk_store(global, shared, 64);
    f.bulk_share((peer, peer + 2048), shared, bytes, None);
    f.bulk_prefetch(global, 64);
    f.tensor_prefetch(map, [f.constant(0); 3]);
    let value = f.special(Special::Lane);
    for op in AtomicOp::ALL {
        if !matches!(op, AtomicOp::Exchange | AtomicOp::CompareSwap) {
            f.tensor_reduce(op, map, shared, [f.constant(0); 4]);
        }
        for ty in AtomicType::ALL {
            let reduce = Reduction { op, ty };
            if reduce.in_global() {
                f.bulk_reduce((op, ty), global, shared, bytes);
            }
            if reduce.in_shared() {
                f.bulk_share((peer, peer + 2048), shared, 32, Some((op, ty)));
            }
            if reduce.of_one() {
                let src = match (ty.bytes(), ty.register().is_signed()) {
                    (8, false) => global.operand(),
                    (8, true) => global.bits_as::<i64>().operand(),
                    (_, true) => value.bits_as::<i32>().operand(),
                    (_, false) => value.operand(),
                };
                let (dst, barrier) = (peer.operand(), (peer + 2048).operand());
                f.emit(Inst::Bulk(Bulk::AsyncReduce { reduce, src, dst, barrier }));
            }
        }
    }
    f.store_async((peer, peer + 2048), [value]);
    f.store_async((peer, peer + 2048), [value.cast::<f32>(); 4]);
    f.store_async((peer, peer + 2048), [global; 2]);
}

fn im2col(f: &Builder) {
    let (map, shared, some) = (f.tensor_map("pixels"), f.shared_base(), f.param::<i32>("base"));
    let load = TensorLoad { map, dst: shared, barrier: shared + 2048, multicast: None, hint: None };
    let offset = f.special(Special::Lane).cast::<u16>();
    f.im2col_load(load, [some; 3], [offset]);
    f.im2col_load(load, [some; 4], [offset, f.constant(2)]);
    let load = TensorLoad { multicast: Some(offset), hint: Some(ptx::inst::tma::EVICT_FIRST), ..load };
    f.im2col_load(load, [some; 5], [offset, f.constant(2), offset]);
    f.im2col_prefetch(map, [some; 3], [offset]);
    f.im2col_prefetch(map, [some; 5], [f.constant(1), f.constant(2), offset]);
    f.im2col_store(map, shared, [some; 3], None);
    f.im2col_store(map, shared, [some; 5], None);
    for op in AtomicOp::ALL {
        if !matches!(op, AtomicOp::Exchange | AtomicOp::CompareSwap) {
            f.im2col_store(map, shared, [some; 4], Some(op));
        }
    }
}

/// Every order that an arrival or a wait can have.
fn orders<'f>(f: &'f Builder, shared: Value<'f, u32>, peer: Value<'f, u32>) {
    use MbarrierOrder::{Relaxed, Sync};
    for order in [Sync(Scope::Cta), Sync(Scope::Cluster), Relaxed(Scope::Cta), Relaxed(Scope::Cluster)] {
        for (barrier, cluster) in [(shared, false), (peer, true)] {
            f.mbarrier_arrive_as(barrier, cluster, order);
            f.mbarrier_arrival(barrier, Arrival::count(1), true, cluster, order);
        }
        f.mbarrier_arrival(shared, Arrival::expect(16), false, false, order);
        let arrive = |arrival, drop| f.mbarrier_arrive_state(shared, arrival, drop, order);
        let state = arrive(Arrival::count(1), false);
        for (arrival, drop) in
            [(Arrival::expect(16), false), (Arrival::count(1), true), (Arrival::expect(16), true)]
        {
            keep(f, f.mbarrier_pending(arrive(arrival, drop)));
        }
        for patient in [false, true] {
            for phase in [MbarrierPhase::state(state), MbarrierPhase::parity(1)] {
                keep(f, f.constant(1u32).where_or(f.mbarrier_test(shared, phase, patient, order), 2));
            }
        }
        f.mbarrier_wait_as(shared, 0, order);
        for drop in [false, true] {
            f.mbarrier_arrival(peer, Arrival::expect(16), drop, true, order);
        }
    }
    for scope in [Scope::Cta, Scope::Cluster] {
        let (barrier, bytes, space) = (peer.operand(), ptx::Operand::Imm(16), Space::SharedCluster);
        f.emit(Inst::MbarrierTransact { complete: true, barrier, space, bytes, scope });
    }
}

fn barriers(f: &Builder) {
    let (shared, number) = (f.shared_base(), f.param::<u32>("number"));
    let peer = f.map_shared(shared, 1);
    let state = f.mbarrier_arrive_state(shared, Arrival::count(number), false, CTA);
    let other = f.mbarrier_arrive_state(shared, Arrival::expect(64), false, CTA);
    keep(f, f.mbarrier_pending(state));
    let test = |state, patient| f.mbarrier_test(shared, MbarrierPhase::state(state), patient, CTA);
    let tests = [test(state, true), test(other, false)];
    for done in tests.into_iter().chain([f.mbarrier_test_parity(shared, number)]) {
        keep(f, number.where_or(done, 2));
    }
    for (barrier, cluster) in [(shared, false), (peer, true)] {
        f.mbarrier_arrival(barrier, Arrival::count(number), true, cluster, CTA);
        f.mbarrier_transact(true, barrier, 64, cluster);
    }
    for drop in [false, true] {
        keep(f, f.mbarrier_pending(f.mbarrier_arrive_state(shared, Arrival::no_complete(number), drop, CTA)));
    }
    for arrival in [Arrival::count(2), Arrival::expect(number)] {
        keep(f, f.mbarrier_pending(f.mbarrier_arrive_state(shared, arrival, true, CTA)));
    }
    f.mbarrier_arrival(peer, Arrival::expect(number), true, true, MbarrierOrder::CLUSTER);
    f.mbarrier_arrival(peer, Arrival::expect(number), false, true, MbarrierOrder::CLUSTER);
    f.mbarrier_transact(false, peer, 16, true);
    orders(f, shared, peer);
    let some = number.less_than(3);
    keep(f, f.barrier_count(3, 256, some));
    keep(f, f.barrier_count(number & 7, 256, f.constant(true)));
    keep(f, number.where_or(f.barrier_all(3, 256, some), 2));
    keep(f, number.where_or(f.barrier_any(3, 256, f.constant(false)), 2));
    let set = [number.operand(), ptx::Operand::Imm(3), f.constant(-2i32).operand()];
    keep(f, f.alu::<u32>(AluOp::FindNth, &set));
}

fn tensor_maps(f: &Builder) {
    let (map, slot) = (f.tensor_map("template"), f.param::<u64>("slot"));
    let (shared, some) = (f.shared_base(), f.param::<u32>("some"));
    f.copy_tensor_map(map, shared);
    f.warp_sync();
    let mut changes = vec![MapChange::Address(slot), MapChange::Rank(3)];
    changes.extend(TensorElement::ALL.map(MapChange::Element));
    let swizzles = [TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B64, TensorSwizzle::B128];
    changes.extend(swizzles.map(MapChange::Swizzle));
    for dim in 0..5 {
        changes.extend([MapChange::Box(dim, some), MapChange::Extent(dim, some)]);
        changes.push(MapChange::ElementStride(dim, f.constant(2)));
    }
    changes.extend((1..5).map(|dim| MapChange::Stride(dim, slot)));
    for change in changes {
        f.replace_tensor_map(shared, change);
        f.replace_tensor_map(slot, change);
    }
    for scope in Scope::ALL {
        f.publish_tensor_map(slot, shared, scope);
        f.release_tensor_maps(scope);
        f.acquire_tensor_map(slot, scope);
    }
}

fn matrix(f: &Builder) {
    f.grid_wait();
    f.grid_launch_dependents();
    f.set_max_registers(false, 40);
    f.set_max_registers(true, 96);
    let descriptor = f.param::<u64>("descriptor");
    let operands = |types, n, accumulate, transpose: bool| WgmmaOperands {
        accumulate,
        transpose_a: transpose,
        transpose_b: !transpose,
        ..WgmmaOperands::new(types, n, descriptor, descriptor)
    };
    let sums: Vec<_> = (0..8).map(|_| f.variable(0.0f32)).collect();
    let halves: Vec<_> = (0..4).map(|_| f.variable(0u32)).collect();
    let some = f.special(Special::CtaX).equals(0);
    f.wgmma_fence();
    f.wgmma(operands(WgmmaTypes::Bf16F32, 16, f.constant(false), false), &sums);
    f.wgmma(operands(WgmmaTypes::F16F32, 16, some, true), &sums);
    f.wgmma(operands(WgmmaTypes::F16F16, 16, f.constant(true), true), &halves);
    let fragment = core::array::from_fn(|_| f.variable(0u32));
    f.wgmma_fence();
    let from_registers = WgmmaOperands {
        negate_a: true,
        negate_b: true,
        transpose_b: true,
        ..WgmmaOperands::new(WgmmaTypes::Bf16F32, 16, fragment, descriptor)
    };
    f.wgmma(from_registers, &sums);
    f.wgmma_commit();
    f.wgmma_wait(0);
    for sum in &sums {
        keep(f, sum.get());
    }
    for half in &halves {
        keep(f, half.get());
    }
}
