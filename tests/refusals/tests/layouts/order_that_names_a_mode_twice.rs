use cute_rs::typenum::{U1, U4, U8};
use cute_rs::types::{ColumnMajor, TileToShape};
use cute_rs::{Layout, StaticLayout};

const _: Layout = TileToShape::<ColumnMajor<(U4, U4)>, (U8, U8), (U1, U1)>::LAYOUT;

fn main() {}
