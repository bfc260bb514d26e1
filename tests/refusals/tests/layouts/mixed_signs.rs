use cute_rs::typenum::{N1, U2, U6, U8};
use cute_rs::types::{Compose, Strided};
use cute_rs::{Layout, StaticLayout};

// A step back from the start of the second mode borrows from it.
const _: Layout = Compose::<Strided<(U6, U2), (U8, U2)>, Strided<(U2, U2), (U6, N1)>>::LAYOUT;

fn main() {}
