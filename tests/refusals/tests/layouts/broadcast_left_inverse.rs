use cute_rs::typenum::{U0, U1, U3, U4};
use cute_rs::types::{LeftInverse, Strided};
use cute_rs::{Layout, StaticLayout};

// Three coordinates share each offset.
const _: Layout = LeftInverse::<Strided<(U3, U4), (U0, U1)>>::LAYOUT;

fn main() {}
