use cute_rs::typenum::{U0, U1, U2, U4, U8};
use cute_rs::types::Ordered;
use cute_rs::{Layout, StaticLayout};

const _: Layout = Ordered::<(U4, U8), (U1, (U0, U2))>::LAYOUT;

fn main() {}
