use cute_rs::typenum::{U0, U1, U4, U6, U8};
use cute_rs::types::{ColumnMajor, TileToShape};
use cute_rs::{Layout, StaticLayout};

// 6 rows are no multiple of 4.
const _: Layout = TileToShape::<ColumnMajor<(U4, U4)>, (U6, U8), (U0, U1)>::LAYOUT;

fn main() {}
