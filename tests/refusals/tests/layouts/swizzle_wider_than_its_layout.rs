use cute_rs::typenum::{U3, U4, U8, U16};
use cute_rs::types::{RowMajor, Sw, Swizzled};
use cute_rs::{ComposedLayout, StaticComposed};

// The swizzle reads bits up to 10, the 128 offsets have 7.
const _: ComposedLayout = Swizzled::<Sw<U3, U4, U3>, RowMajor<(U8, U16)>>::COMPOSED;

fn main() {}
