use cute_rs::typenum::{U1, U2, U6, U8, U9};
use cute_rs::types::{Compose, Strided};
use cute_rs::{Layout, StaticLayout};

// 9 elements are one and a half modes of 6.
const _: Layout = Compose::<Strided<(U6, U2), (U8, U2)>, Strided<U9, U1>>::LAYOUT;

fn main() {}
