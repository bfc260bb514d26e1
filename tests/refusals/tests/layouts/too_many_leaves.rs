use cute_rs::typenum::U2;
use cute_rs::types::{ColumnMajor, Concat};
use cute_rs::{Layout, StaticLayout};

type Six = ColumnMajor<(U2, U2, U2, U2, U2, U2)>;

// 36 integers.
const _: Layout = Concat::<(Six, Six, Six, Six, Six, Six)>::LAYOUT;

fn main() {}
