//! The epilogue's staging buffer is the memory of the operands. The leader of a cluster multicasts the next
//! tile's operand when its own epilogue is done, but its peer's epilogue may still read the buffer.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::inst::MbarrierOrder;
use ptx::{Builder, ProxySpace, Special, TensorLoad};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "multicast-into-busy-peer",
    shipped: &["humming PR#56"],
    bug: "The leader waits only for its own epilogue before it multicasts into the memory of both CTAs.",
    mended: "The barrier that the leader waits for counts the epilogues of both CTAs.",
    hidden: "Both CTAs of a cluster run in step, and the copy takes longer than the rest of an epilogue. \
             Only a persistent cluster with a second tile has the race at all.",
    threads: 32,
    cluster: 2,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()]
}

fn program(f: &Builder, mended: bool) {
    let map = f.tensor_map("map");
    let (stage, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (full, done) = (stage + BOX_BYTES, stage + BOX_BYTES + 8);
    let rank = f.special(Special::ClusterRank);

    f.if_(thread.equals(0), || {
        f.mbarrier_init(full, 1);
        f.mbarrier_init(done, if mended { 2 } else { 1 });
        f.fence_mbarrier_init();
    });
    f.cluster_arrive(false);
    f.cluster_wait();

    for tile in 0..2 {
        f.scope("producer", || {
            f.if_(thread.equals(0), || {
                f.mbarrier_arrive_expect(full, BOX_BYTES);
                f.if_(rank.equals(0), || {
                    if tile > 0 {
                        f.mbarrier_wait_as(done, 0, MbarrierOrder::CLUSTER);
                    }
                    let both = Some(f.constant(3));
                    let load = TensorLoad { map, dst: stage, barrier: full, multicast: both, hint: None };
                    f.tensor_load(load, [f.constant(0); 2]);
                });
            });
        });
        f.mbarrier_wait(full, tile);
        f.scope("epilogue", || {
            // The tile's results overwrite the operand. Other lanes read them, to store them.
            f.store_shared(stage + thread * 4, 0, [thread]);
            f.warp_sync();
            let _result = f.load_shared_vector::<u32, 1>(stage + (thread ^ 1) * 4, 0);
            f.fence_proxy_async(ProxySpace::Shared);
            f.warp_sync();
            let leader = f.map_shared(done, 0);
            let counts = if mended { thread.equals(0) } else { thread.equals(0) & rank.equals(0) };
            f.if_(counts, || f.mbarrier_arrive_as(leader, true, MbarrierOrder::CLUSTER));
        });
    }
    f.cluster_arrive(false);
    f.cluster_wait();
}
