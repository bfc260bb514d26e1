//! Bulk copies, reductions by copies, asynchronous stores, barriers that reduce: their results.

use emulator::{Memory, Options, Schedule};
use ptx::abi::{Grid, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::inst::{Arrival, MbarrierPhase, ProxySpace};
use ptx::{AtomicOp, AtomicType, BulkLoad, MbarrierOrder, Special};

use crate::{kernel, run, words};

const SCHEDULES: [Schedule; 4] = [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Random];

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn lines_go_round_a_cluster() {
    // Rank 0 loads 64 words into both CTAs and sends its own copy to rank 1. Rank 1 adds both and writes the
    // sums.
    let program = kernel(32, 2, |f| {
        let (data, out) = (f.param::<u64>("data"), f.param::<u64>("out"));
        let (base, lane, rank) = (f.shared_base(), f.special(Special::Lane), f.special(Special::ClusterRank));
        let (all, sent) = (base + 2048, base + 2056);
        let first = lane.equals(0);
        f.if_(first, || {
            f.mbarrier_init(all, 1);
            f.mbarrier_init(sent, 1);
            f.fence_mbarrier_init();
            f.mbarrier_arrive_expect(all, 256);
        });
        f.cluster_arrive(false);
        f.cluster_wait();
        f.if_(rank.equals(0), || {
            f.if_(first, || {
                let multicast = Some(f.constant(0b11u16));
                f.bulk_load(BulkLoad { src: data, dst: base, barrier: all, multicast, hint: None }, 256);
            });
        });
        f.mbarrier_wait(all, 0);
        f.cluster_arrive(false);
        f.cluster_wait();
        f.if_(first, || {
            f.if_else(
                rank.equals(0),
                || {
                    let to = (f.map_shared(base, 1), f.map_shared(sent, 1));
                    f.bulk_share(to, base, 256, Some((AtomicOp::Add, AtomicType::U32)));
                },
                || {
                    f.mbarrier_arrive_expect(sent, 256);
                    f.mbarrier_wait(sent, 0);
                    f.fence_proxy_async(ProxySpace::All);
                    f.bulk_store(out, base, 256);
                    f.bulk_reduce((AtomicOp::Max, AtomicType::S32), out + 256u64, base, 256);
                    f.bulk_commit();
                    f.bulk_wait(0, false);
                },
            );
        });
        f.cluster_arrive(false);
        f.cluster_wait();
    });
    for schedule in SCHEDULES {
        let mut memory = Memory::new();
        let data = memory.upload(&bytes(0..64));
        let out =
            memory.upload(&bytes((0..64).chain((0..64).map(|i| if i % 2 == 0 { 1000 } else { u32::MAX }))));
        let options = Options { schedule, ..Options::default() };
        let done = program.launch(Grid { ctas: [2, 1, 1] }, &[data.into(), out.into()], &memory, &options);
        done.unwrap_or_else(|failure| panic!("{schedule:?}: {failure}"));
        let sums = (0..64).map(|i| 2 * i);
        let larger = (0..64).map(|i| if i % 2 == 0 { 1000 } else { 2 * i });
        assert_eq!(words(&memory, out, 128), sums.chain(larger).collect::<Vec<_>>(), "{schedule:?}");
    }
}

#[test]
fn words_of_all_peers_arrive_with_their_barrier() {
    // Each lane of 4 CTAs stores one word to each CTA, and adds one to a counter of each.
    let program = kernel(32, 4, |f| {
        let out = f.param::<u64>("out");
        let (base, lane, rank) = (f.shared_base(), f.special(Special::Lane), f.special(Special::ClusterRank));
        let barrier = base + 2048;
        f.if_(lane.equals(0), || {
            f.store_shared(base, 512, [f.constant(0u32)]);
            f.mbarrier_init(barrier, 1);
            f.fence_mbarrier_init();
            f.mbarrier_arrive_expect(barrier, 4 * 32 * 8);
        });
        f.cluster_arrive(false);
        f.cluster_wait();
        for peer in 0..4 {
            let (place, barrier) = (f.map_shared(base, peer), f.map_shared(barrier, peer));
            f.store_async((place + rank * 128 + lane * 4, barrier), [rank * 100 + lane]);
            f.reduce_async((AtomicOp::Add, AtomicType::U32), (place + 512, barrier), lane);
        }
        f.mbarrier_wait(barrier, 0);
        for from in 0..4u32 {
            let [word] = f.load_shared_vector::<u32, 1>(base + from * 128 + lane * 4, 0);
            f.store_global(out + (rank * 128 + from * 32 + lane).mul_wide(4), 0, [word]);
        }
        let [count] = f.load_shared_vector::<u32, 1>(base, 512);
        f.if_(lane.equals(0), || f.store_global(out + rank.mul_wide(4), 2048, [count]));
        f.cluster_arrive(false);
        f.cluster_wait();
    });
    for schedule in SCHEDULES {
        let mut memory = Memory::new();
        let out = memory.allocate(2064);
        let options = Options { schedule, ..Options::default() };
        let done = program.launch(Grid { ctas: [4, 1, 1] }, &[out.into()], &memory, &options);
        done.unwrap_or_else(|failure| panic!("{schedule:?}: {failure}"));
        let sent = (0..4u32).flat_map(|from| (0..32).map(move |lane| from * 100 + lane));
        let sent: Vec<u32> = sent.collect();
        assert_eq!(words(&memory, out, 512), sent.repeat(4), "{schedule:?}");
        assert_eq!(words(&memory, out + 2048, 4), [4 * 496; 4], "{schedule:?}");
    }
}

#[test]
fn a_box_is_added_to_a_tensor() {
    let program = kernel(32, 1, |f| {
        let map = f.tensor_map("map");
        let (base, lane) = (f.shared_base(), f.special(Special::Lane));
        let x = lane.cast::<f32>();
        f.store_shared(base + lane * 4, 0, [x]);
        f.fence_proxy_async(ProxySpace::Shared);
        f.warp_sync();
        f.if_(lane.equals(0), || {
            f.tensor_prefetch(map, [f.constant(4), f.constant(1)]);
            f.tensor_reduce(AtomicOp::Add, map, base, [f.constant(4), f.constant(1)]);
            f.bulk_commit();
            f.bulk_wait(0, false);
        });
    });
    let mut memory = Memory::new();
    let ones = 1.0f32.to_bits();
    let address = memory.upload(&bytes([ones; 32]));
    let map = TensorMap {
        element: TensorElement::F32,
        address,
        dims: vec![8, 3],
        strides: vec![32],
        box_dims: vec![4, 8],
        swizzle: TensorSwizzle::None,
        promotion: Promotion::default(),
        reach: None,
    };
    run(&program, 1, &[map.into()], &memory);
    // Row r of the box goes to row r + 1. The tensor has three rows.
    let want = (0..32u32).map(|at| {
        let (row, column) = (at / 8, at % 8);
        let inside = (1..3).contains(&row) && column >= 4;
        let added = if inside { 4 * (row - 1) + column - 4 } else { 0 };
        (1.0 + added as f32).to_bits()
    });
    assert_eq!(words(&memory, address, 32), want.collect::<Vec<_>>());
}

#[test]
fn states_and_reducing_barriers() {
    let program = kernel(128, 1, |f| {
        let out = f.param::<u64>("out");
        let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
        f.if_(thread.equals(0), || f.mbarrier_init(base, 129));
        let count = f.barrier_count(1, 128, thread.less_than(40));
        let all = f.barrier_all(2, 128, thread.less_than(128));
        let any = f.barrier_any(3, 128, thread.more_than(200));
        let state = f.mbarrier_arrive_state(base, Arrival::count(1), false, MbarrierOrder::CTA);
        f.if_(thread.equals(77), || {
            f.mbarrier_arrival(base, Arrival::count(1), true, false, MbarrierOrder::CTA);
        });
        f.loop_(|| f.break_if(f.mbarrier_test(base, MbarrierPhase::state(state), true, MbarrierOrder::CTA)));
        // The next phase waits for 128.
        let next = f.mbarrier_arrive_state(base, Arrival::count(1), false, MbarrierOrder::CTA);
        f.loop_(|| f.break_if(f.mbarrier_test(base, MbarrierPhase::state(next), false, MbarrierOrder::CTA)));
        let bits = f.constant(1u32).where_or(all, 0) + f.constant(2u32).where_or(any, 0);
        f.store_global(out + thread.mul_wide(8), 0, [count, bits]);
    });
    for schedule in SCHEDULES {
        let mut memory = Memory::new();
        let out = memory.allocate(1024);
        let options = Options { schedule, ..Options::default() };
        let done = program.launch(Grid { ctas: [1, 1, 1] }, &[out.into()], &memory, &options);
        done.unwrap_or_else(|failure| panic!("{schedule:?}: {failure}"));
        assert_eq!(words(&memory, out, 256), [40, 1].repeat(128), "{schedule:?}");
    }
}
