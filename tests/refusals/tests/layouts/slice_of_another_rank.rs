use cute_rs::typenum::{U2, U4};
use cute_rs::types::{ColumnMajor, Keep, Slice};
use cute_rs::{Layout, StaticLayout};

const _: Layout = Slice::<ColumnMajor<(U4, U4)>, (U2, Keep, Keep)>::LAYOUT;

fn main() {}
