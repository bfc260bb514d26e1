//! What only a GPU can run: layers of one shape, kernels that sum in the same order, and captures.

#[path = "card/layers.rs"]
mod layers;
#[path = "support/orders.rs"]
mod orders;
#[path = "card/reproducible.rs"]
mod reproducible;
#[path = "support/skipped.rs"]
mod skipped;
