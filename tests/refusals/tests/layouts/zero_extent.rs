use cute_rs::typenum::{U0, U1, U4};
use cute_rs::types::Strided;
use cute_rs::{Layout, StaticLayout};

const _: Layout = Strided::<(U4, U0), (U1, U4)>::LAYOUT;

fn main() {}
