//! The cluster: which CTA has which tile, and which slices of operands each of them sends to whom.

use collective::Producer;
use kernel::AnyGemm;
use serde::Serialize;

/// The CTAs of a cluster and what they share.
#[derive(Debug, Serialize)]
pub(super) struct Cluster {
    /// CTAs along M and N.
    shape: [u32; 2],
    /// By rank: the place along M and N.
    places: Vec<[u32; 2]>,
    /// Bytes of a CTA's tile of A and of B, a stage.
    tile_bytes: [u32; 2],
    /// CTAs that bring a tile of A, and of B, together, and so many bytes that each of them copies a stage.
    slices: [u32; 2],
    slice_bytes: [u32; 2],
    /// Arrivals on a full barrier and on an empty one.
    filling: u32,
    emptying: u32,
    transaction_bytes: u32,
    /// Tensor copies bring the operands.
    by_copies: bool,
}

impl Cluster {
    pub(super) fn of(entry: &AnyGemm) -> Self {
        let plan = entry.plan();
        let [rows, columns] = plan.mainloop.cluster;
        let tile_bytes = [0, 1].map(|operand| plan.ring.tile_bytes(operand));
        // CTAs of a row have the same tile of A, those of a column the same tile of B.
        let slices = [columns, rows];
        Self {
            shape: [rows, columns],
            places: (0..rows * columns).map(|rank| [rank % rows, rank / rows]).collect(),
            tile_bytes,
            slices,
            slice_bytes: [tile_bytes[0] / columns, tile_bytes[1] / rows],
            filling: plan.ring.filling,
            emptying: plan.ring.emptying,
            transaction_bytes: plan.ring.transaction_bytes(),
            by_copies: plan.mainloop.producer == Producer::Thread,
        }
    }
}
