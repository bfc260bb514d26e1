//! Groups with an odd number of tiles, computed by clusters of two CTAs: one cluster gets the last tile of a
//! group and the first tile of the next. Its leader sees that the two tiles share no operand, and loads only
//! its own. The other CTA waits for the leader's multicast.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, Special, TensorLoad};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "cluster-across-groups",
    shipped: &["DeepGEMM PR#415", "DeepGEMM PR#429"],
    bug: "The two CTAs of a cluster decide separately whether an operand is multicast, each from its own \
          group. A barrier expects bytes that no CTA sends.",
    mended: "Both CTAs decide from the groups of both tiles.",
    hidden: "The bug needs an odd number of tiles per group and a heuristic that chooses clusters for that \
             shape. With an even number no cluster spans two groups.",
    threads: 32,
    cluster: 2,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Tiles of a group, and the first tile of the cluster.
const TILES: u32 = 129;
const FIRST: u32 = 128;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let operand = memory.upload(&[0x3F; BOX_BYTES as usize]);
    vec![box_map(operand).into(), TILES.into()]
}

fn program(f: &Builder, mended: bool) {
    let map = f.tensor_map("map");
    let tiles = f.param::<u32>("tiles");
    let (stage, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let (full, rank) = (stage + BOX_BYTES, f.special(Special::ClusterRank));

    f.if_(thread.equals(0), || {
        f.mbarrier_init(full, 1);
        f.fence_mbarrier_init();
    });
    f.cluster_arrive(false);
    f.cluster_wait();

    let tile = rank + FIRST;
    let group = tile / tiles;
    let shared = if mended {
        // The tile of the leader and the tile of its peer.
        let leader = tile - rank;
        (leader / tiles).equals((leader + 1) / tiles)
    } else {
        // The leader looks ahead; its peer takes for granted that every leader's tile is of its own group.
        let peer = (tile + 1) / tiles;
        rank.equals(1) | group.equals(peer)
    };

    f.if_(thread.equals(0), || {
        f.mbarrier_arrive_expect(full, BOX_BYTES);
        let load = TensorLoad { map, dst: stage, barrier: full, multicast: None, hint: None };
        let origin = [f.constant(0); 2];
        f.if_else(
            shared,
            || {
                let both = TensorLoad { multicast: Some(f.constant(3)), ..load };
                f.if_(rank.equals(0), || f.tensor_load(both, origin));
            },
            || f.tensor_load(load, origin),
        );
    });
    f.scope("consumer", || f.mbarrier_wait(full, 0));
    f.cluster_arrive(false);
    f.cluster_wait();
}
