use cute_rs::typenum::{U2, U4};
use cute_rs::types::{ColumnMajor, Mode};
use cute_rs::{Layout, StaticLayout};

// Modes count from 0.
const _: Layout = Mode::<ColumnMajor<(U4, U4)>, U2>::LAYOUT;

fn main() {}
