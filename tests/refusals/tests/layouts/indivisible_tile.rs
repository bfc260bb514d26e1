use cute_rs::typenum::{U0, U1, U4, U6, U8};
use cute_rs::types::{Ordered, TiledDivide};
use cute_rs::{Layout, StaticLayout};

// The 8 rows are 2 x 4 inside; 6 of them are no whole part.
const _: Layout = TiledDivide::<Ordered<((U4, U4), U8), ((U1, U0), U4)>, (U6, U8)>::LAYOUT;

fn main() {}
