//! The cluster section: which CTA computes which tile, and which slices of operands each CTA multicasts to
//! which CTAs.

use collective::Producer;
use kernel::AnyGemm;
use serde::Serialize;

/// The CTAs of a cluster and what they share.
#[derive(Debug, Serialize)]
pub(super) struct Cluster {
    /// CTAs along M and N.
    shape: [u32; 2],
    /// By rank: the CTA's position along M and N.
    places: Vec<[u32; 2]>,
    /// Bytes per stage of a CTA's tile of A and of B.
    tile_bytes: [u32; 2],
    /// The number of CTAs that copy a tile of A, and of B, together; and the bytes that each of them copies
    /// per stage.
    slices: [u32; 2],
    slice_bytes: [u32; 2],
    /// Arrivals that complete a full barrier's phase, and an empty barrier's.
    filling: u32,
    emptying: u32,
    transaction_bytes: u32,
    /// Whether tensor copies load the operands.
    by_copies: bool,
}

impl Cluster {
    pub(super) fn of(entry: &AnyGemm) -> Self {
        let plan = entry.plan();
        let [rows, columns] = plan.mainloop.cluster;
        let tile_bytes = [0, 1].map(|operand| plan.ring.tile_bytes(operand));
        // CTAs of a row use the same tile of A; CTAs of a column use the same tile of B.
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
