use cute_rs::typenum::U8;
use cute_rs::types::{ColumnMajor, Strided};
use cute_rs::{Layout, StaticLayout};

// A layout where a shape belongs.
const _: Layout = ColumnMajor::<(U8, Strided<U8, U8>)>::LAYOUT;

fn main() {}
