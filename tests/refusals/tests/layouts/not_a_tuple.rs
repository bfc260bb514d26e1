use cute_rs::StaticLayout;
use cute_rs::typenum::U8;
use cute_rs::types::{ColumnMajor, Strided};

fn size<A: StaticLayout>() -> i64 {
    A::LAYOUT.size()
}

fn main() {
    // A layout where a shape belongs.
    size::<ColumnMajor<(U8, Strided<U8, U8>)>>();
}
