//! The list of exhibits.

#[path = "barrier_ends_early.rs"]
mod barrier_ends_early;
#[path = "barrier_for_some.rs"]
mod barrier_for_some;
#[path = "cluster_across_groups.rs"]
mod cluster_across_groups;
#[path = "cursor_skipped.rs"]
mod cursor_skipped;
#[path = "dependency_not_awaited.rs"]
mod dependency_not_awaited;
#[path = "exhibit.rs"]
pub(crate) mod exhibit;
#[path = "fill_not_seen.rs"]
mod fill_not_seen;
#[path = "fragments_overwritten.rs"]
mod fragments_overwritten;
#[path = "loop_back_edge.rs"]
mod loop_back_edge;
#[path = "multicast_into_busy_peer.rs"]
mod multicast_into_busy_peer;
#[path = "offsets_read_early.rs"]
mod offsets_read_early;
#[path = "one_arrives.rs"]
mod one_arrives;
#[path = "output_not_fenced.rs"]
mod output_not_fenced;
#[path = "parity_of_the_ring.rs"]
mod parity_of_the_ring;
#[path = "parts.rs"]
mod parts;
#[path = "peer_exits.rs"]
mod peer_exits;
#[path = "probabilities_not_fenced.rs"]
mod probabilities_not_fenced;
#[path = "proxy_fence_missing.rs"]
mod proxy_fence_missing;
#[path = "receiver_not_ready.rs"]
mod receiver_not_ready;
#[path = "rendezvous_after_loop.rs"]
mod rendezvous_after_loop;
#[path = "round_trip_without_barrier.rs"]
mod round_trip_without_barrier;
#[path = "scratch_of_one_slot.rs"]
mod scratch_of_one_slot;
#[path = "stages_not_drained.rs"]
mod stages_not_drained;
#[path = "staging_refilled.rs"]
mod staging_refilled;
#[path = "store_map_not_fenced.rs"]
mod store_map_not_fenced;
#[path = "tensor_map_rewritten.rs"]
mod tensor_map_rewritten;
#[path = "tile_told_too_soon.rs"]
mod tile_told_too_soon;
#[path = "two_buffers_one_barrier.rs"]
mod two_buffers_one_barrier;
#[path = "wait_of_another_thread.rs"]
mod wait_of_another_thread;
#[path = "wait_without_barrier.rs"]
mod wait_without_barrier;

use exhibit::Exhibit;

/// Every exhibit, in the order of docs/races.md.
pub(crate) const EXHIBITS: &[Exhibit] = &[
    tensor_map_rewritten::EXHIBIT,
    store_map_not_fenced::EXHIBIT,
    proxy_fence_missing::EXHIBIT,
    staging_refilled::EXHIBIT,
    fragments_overwritten::EXHIBIT,
    loop_back_edge::EXHIBIT,
    wait_without_barrier::EXHIBIT,
    one_arrives::EXHIBIT,
    cluster_across_groups::EXHIBIT,
    multicast_into_busy_peer::EXHIBIT,
    peer_exits::EXHIBIT,
    dependency_not_awaited::EXHIBIT,
    two_buffers_one_barrier::EXHIBIT,
    round_trip_without_barrier::EXHIBIT,
    stages_not_drained::EXHIBIT,
    barrier_for_some::EXHIBIT,
    scratch_of_one_slot::EXHIBIT,
    tile_told_too_soon::EXHIBIT,
    offsets_read_early::EXHIBIT,
    probabilities_not_fenced::EXHIBIT,
    receiver_not_ready::EXHIBIT,
    parity_of_the_ring::EXHIBIT,
    fill_not_seen::EXHIBIT,
    output_not_fenced::EXHIBIT,
    rendezvous_after_loop::EXHIBIT,
    cursor_skipped::EXHIBIT,
    wait_of_another_thread::EXHIBIT,
    barrier_ends_early::EXHIBIT,
];
