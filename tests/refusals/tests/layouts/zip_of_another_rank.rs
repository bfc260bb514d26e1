use cute_rs::typenum::{U2, U3, U4};
use cute_rs::types::{ColumnMajor, Zip};
use cute_rs::{Layout, StaticLayout};

const _: Layout = Zip::<ColumnMajor<(U2, U3)>, ColumnMajor<(U2, U3, U4)>>::LAYOUT;

fn main() {}
