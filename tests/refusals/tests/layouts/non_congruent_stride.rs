use cute_rs::typenum::{U1, U2, U4, U8};
use cute_rs::types::Strided;
use cute_rs::{Layout, StaticLayout};

// The shape has a nested mode, the stride has not.
const _: Layout = Strided::<(U4, (U2, U2)), (U1, U4, U8)>::LAYOUT;

fn main() {}
