use cute_rs::typenum::{U2, U4, U8};
use cute_rs::types::{ColumnMajor, ComposeBy};
use cute_rs::{Layout, StaticLayout};

// The matrix has two modes.
const _: Layout = ComposeBy::<ColumnMajor<(U8, U8)>, (U4, U4, U2)>::LAYOUT;

fn main() {}
