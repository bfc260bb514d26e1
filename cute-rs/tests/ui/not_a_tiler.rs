use cute_rs::typenum::{U4, U8};
use cute_rs::types::{ColumnMajor, TiledDivide};
use cute_rs::{Layout, StaticLayout};

// A Rust integer is no number on the level of types.
const _: Layout = TiledDivide::<ColumnMajor<(U8, U8)>, (U4, i64)>::LAYOUT;

fn main() {}
