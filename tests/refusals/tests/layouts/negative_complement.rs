use cute_rs::typenum::{N1, U4, U16};
use cute_rs::types::{Complement, Strided};
use cute_rs::{Layout, StaticLayout};

// A complement counts up from 0.
const _: Layout = Complement::<Strided<U4, N1>, U16>::LAYOUT;

fn main() {}
