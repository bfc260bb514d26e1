use cute_rs::typenum::{U4, U6};
use cute_rs::types::{RowMajor, Upcast};
use cute_rs::{Layout, StaticLayout};

// Rows of 6 elements are no whole groups of 4.
const _: Layout = Upcast::<RowMajor<(U4, U6)>, U4>::LAYOUT;

fn main() {}
