//! The passing neighbours of the mistakes.

use cute_rs::typenum::{U1, U2, U3, U4, U6, U8};
use cute_rs::types::{Complement, Compose, Strided};
use cute_rs::{Layout, StaticLayout};

type Composed = Compose<Strided<(U6, U2), (U8, U2)>, Strided<(U4, U3), (U3, U1)>>;
const COMPOSED: Layout = Composed::LAYOUT;
const REST: Layout = Complement::<Strided<(U2, U2), (U1, U4)>, U8>::LAYOUT;
const NESTED: Layout = Strided::<(U4, (U2, U2)), (U1, (U4, U8))>::LAYOUT;

fn main() {
    assert_eq!(COMPOSED.to_string(), "((2,2),3):((24,2),8)");
    assert_eq!(REST.to_string(), "2:2");
    assert_eq!(NESTED.to_string(), "(4,(2,2)):(1,(4,8))");
}
