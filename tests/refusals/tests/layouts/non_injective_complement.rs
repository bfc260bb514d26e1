use cute_rs::typenum::{U1, U2, U16, U4, U8};
use cute_rs::types::{Complement, Strided};
use cute_rs::{Layout, StaticLayout};

// Stride 2 comes back to offsets that the 4 elements of stride 1 hold already.
const _: Layout = Complement::<Strided<(U4, (U2, U2)), (U1, (U2, U8))>, U16>::LAYOUT;

fn main() {}
