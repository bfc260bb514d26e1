use cute_rs::typenum::{U1, U2, U3, U5};
use cute_rs::types::{LogicalProduct, Strided};
use cute_rs::{Layout, StaticLayout};

// 3 copies of 5 elements that are 2 apart: one in the gap, two behind, then half a pair.
const _: Layout = LogicalProduct::<Strided<U5, U2>, Strided<U3, U1>>::LAYOUT;

fn main() {}
