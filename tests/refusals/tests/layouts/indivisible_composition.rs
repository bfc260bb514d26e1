use cute_rs::typenum::{U1, U2, U3, U4, U6, U8};
use cute_rs::types::{Compose, Strided};
use cute_rs::{Layout, StaticLayout};

// Steps of 4 through a mode of 6 elements reach the next mode in the middle.
type Rows = Strided<(U6, U2), (U8, U2)>;
type Steps = Strided<(U3, U2), (U4, U1)>;
const _: Layout = Compose::<Rows, Steps>::LAYOUT;

fn main() {}
