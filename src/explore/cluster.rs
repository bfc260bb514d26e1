//! The cluster section: which CTA computes which tile, and which slices of operands each CTA multicasts to
//! which CTAs.

use collective::Producer;
use kernel::AnyGemm;
use serde_json::{Value, json};

/// The CTAs of a cluster and what they share.
pub fn of(entry: &AnyGemm) -> Value {
    let plan = entry.plan();
    let [rows, columns] = plan.mainloop.cluster;
    let tile_bytes = [0, 1].map(|operand| plan.ring.tile_bytes(operand));
    let places: Vec<_> = (0..rows * columns).map(|rank| [rank % rows, rank / rows]).collect();
    json!({
        // CTAs along M and N.
        "shape": [rows, columns],
        // By rank: the CTA's position along M and N.
        "places": places,
        // Bytes per stage of a CTA's tile of A and of B.
        "tile_bytes": tile_bytes,
        // The number of CTAs that copy a tile of A, and of B, together; and the bytes that each of them copies per stage.
        // CTAs of a row use the same tile of A; CTAs of a column use the same tile of B.
        "slices": [columns, rows],
        "slice_bytes": [tile_bytes[0] / columns, tile_bytes[1] / rows],
        // Arrivals that complete a full barrier's phase, and an empty barrier's.
        "filling": plan.ring.filling,
        "emptying": plan.ring.emptying,
        "transaction_bytes": plan.ring.transaction_bytes(),
        // Whether tensor copies load the operands.
        "by_copies": plan.mainloop.producer == Producer::Thread,
    })
}
