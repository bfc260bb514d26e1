use cute_rs::Swizzle;
use cute_rs::typenum::{U2, U3, U4};
use cute_rs::types::Sw;

// Bit 6 would be read and changed.
const _: Swizzle = Sw::<U3, U4, U2>::SWIZZLE;

fn main() {}
