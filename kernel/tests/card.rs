//! What only a GPU can run: layers of one shape, and captures.

#[path = "card/layers.rs"]
mod layers;
#[path = "support/skipped.rs"]
mod skipped;
