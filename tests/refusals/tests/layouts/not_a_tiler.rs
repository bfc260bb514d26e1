use cute_rs::StaticLayout;
use cute_rs::typenum::{U4, U8};
use cute_rs::types::{ColumnMajor, TiledDivide};

fn size<A: StaticLayout>() -> i64 {
    A::LAYOUT.size()
}

fn main() {
    // A Rust integer is no number on the level of types.
    size::<TiledDivide<ColumnMajor<(U8, U8)>, (U4, i64)>>();
}
