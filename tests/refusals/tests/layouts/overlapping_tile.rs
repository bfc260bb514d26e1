use cute_rs::typenum::{U1, U2, U4, U16};
use cute_rs::types::{LogicalDivide, Strided};
use cute_rs::{Layout, StaticLayout};

// The tile names element 2 twice.
const _: Layout = LogicalDivide::<Strided<U16, U1>, Strided<(U4, U2), (U1, U2)>>::LAYOUT;

fn main() {}
