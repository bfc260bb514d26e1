use cute_rs::typenum::{U1, U6, U8};
use cute_rs::types::{CoalesceBy, ColumnMajor};
use cute_rs::{Layout, StaticLayout};

// The second mode is an integer, and has no two parts.
const _: Layout = CoalesceBy::<ColumnMajor<(U8, U6)>, (U1, (U1, U1))>::LAYOUT;

fn main() {}
