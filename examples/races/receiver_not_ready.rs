//! The leader of a cluster multicasts a stage to both CTAs, each of which has a full barrier for it. The
//! results of a tile go through the same memory. The leader does not know whether its peer is ready to
//! receive. This is the bug of `multicast-into-busy-peer`, mended where it was looked for first.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::inst::MbarrierOrder;
use ptx::{Builder, ProxySpace, Special, TensorLoad};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::set_up;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "receiver-not-ready",
    shipped: &["humming PR#54"],
    bug: "The leader multicasts when it is ready itself. Its peer may not have come to the tile yet: its \
          barrier expects nothing, and its last results are still in the stage.",
    mended: "Each CTA tells the leader by a barrier per stage that it has expected the bytes; the leader \
             waits for both.",
    hidden: "The bytes may come before they are expected, that alone is legal. The memory is in use only in \
             a cluster's second tile, for the time that the CTAs are apart: 4 to 21 % of the results were \
             wrong.",
    threads: 64,
    cluster: 2,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Number of tiles of the cluster, each with one step of K.
const TILES: u32 = 3;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into()]
}

fn program(f: &Builder, mended: bool) {
    let map = f.tensor_map("map");
    let (stage, lane) = (f.shared_base(), f.special(Special::Lane));
    let rank = f.special(Special::ClusterRank);
    let barrier = |number: u32| stage + (BOX_BYTES + 8 * number);
    // A stage is empty for the leader when both CTAs have read it.
    let (full, empty, stored, ready) = (barrier(0), barrier(1), barrier(2), barrier(3));
    let readers = f.constant(64).where_or(rank.equals(0), 32);

    set_up(f, &[(full, 1), (stored, 32), (ready, 2)]);
    f.if_(f.special(Special::ThreadX).equals(0), || {
        f.mbarrier_init(empty, readers);
        f.fence_mbarrier_init();
    });
    f.cluster_arrive(false);
    f.cluster_wait();

    let multicast = || {
        f.if_(rank.equals(0), || {
            let both = Some(f.constant(3));
            let load = TensorLoad { map, dst: stage, barrier: full, multicast: both, hint: None };
            f.tensor_load(load, [f.constant(0); 2]);
        });
    };
    let load = |tile: u32| {
        if tile > 0 {
            f.mbarrier_wait_as(empty, (tile - 1) % 2, MbarrierOrder::CLUSTER);
            f.mbarrier_wait(stored, (tile - 1) % 2);
        }
        if mended {
            f.mbarrier_arrive_expect(full, BOX_BYTES);
            f.mbarrier_arrive_as(f.map_shared(ready, 0), true, MbarrierOrder::CLUSTER);
            f.if_(rank.equals(0), || f.mbarrier_wait_as(ready, tile % 2, MbarrierOrder::CLUSTER));
            multicast();
        } else {
            multicast();
            f.mbarrier_arrive_expect(full, BOX_BYTES);
        }
    };
    let compute = |tile: u32| {
        f.mbarrier_wait(full, tile % 2);
        let operand = f.load_shared_vector::<u32, 4>(stage + lane * 16, 0);
        f.mbarrier_arrive(empty);
        f.if_(rank.equals(1), || {
            f.mbarrier_arrive_as(f.map_shared(empty, 0), true, MbarrierOrder::CLUSTER);
        });
        f.warp_sync();
        f.scope("results through the stage", || {
            f.store_shared(stage + lane * 16, 0, operand);
            f.warp_sync();
            let _result = f.load_shared_vector::<u32, 4>(stage + (lane ^ 1) * 16, 0);
            f.fence_proxy_async(ProxySpace::Shared);
            f.mbarrier_arrive(stored);
        });
    };
    f.if_else(
        f.warp_index().equals(0),
        || f.scope("loads", || f.if_(lane.equals(0), || (0..TILES).for_each(load))),
        || f.scope("multiplies", || (0..TILES).for_each(compute)),
    );
    f.cluster_arrive(false);
    f.cluster_wait();
}
