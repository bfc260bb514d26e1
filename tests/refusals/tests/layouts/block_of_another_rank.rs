use cute_rs::typenum::{U2, U4};
use cute_rs::types::{BlockedProduct, ColumnMajor};
use cute_rs::{Layout, StaticLayout};

// A block of two modes on a line of copies.
const _: Layout = BlockedProduct::<ColumnMajor<(U2, U2)>, ColumnMajor<U4>>::LAYOUT;

fn main() {}
