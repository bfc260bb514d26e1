use cute_rs::typenum::{U1, U2, U3, U4, U6, U8};
use cute_rs::types::{Compose, Strided};
use cute_rs::{Layout, StaticLayout};

// 4 + 3 steps together leave the 6 elements of the first mode.
const _: Layout = Compose::<Strided<(U6, U2), (U8, U2)>, Strided<(U4, U2), (U1, U3)>>::LAYOUT;

fn main() {}
