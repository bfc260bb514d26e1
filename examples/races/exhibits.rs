//! The list of exhibits.

#[path = "cluster_across_groups.rs"]
mod cluster_across_groups;
#[path = "dependency_not_awaited.rs"]
mod dependency_not_awaited;
#[path = "exhibit.rs"]
pub(crate) mod exhibit;
#[path = "fragments_overwritten.rs"]
mod fragments_overwritten;
#[path = "loop_back_edge.rs"]
mod loop_back_edge;
#[path = "multicast_into_busy_peer.rs"]
mod multicast_into_busy_peer;
#[path = "one_arrives.rs"]
mod one_arrives;
#[path = "peer_exits.rs"]
mod peer_exits;
#[path = "proxy_fence_missing.rs"]
mod proxy_fence_missing;
#[path = "staging_refilled.rs"]
mod staging_refilled;
#[path = "store_map_not_fenced.rs"]
mod store_map_not_fenced;
#[path = "tensor_map_rewritten.rs"]
mod tensor_map_rewritten;
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
];
