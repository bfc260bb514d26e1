use cute_rs::typenum::{U4, U8};
use cute_rs::types::Compose;
use cute_rs::{Layout, StaticLayout};

// Numbers are shapes, not layouts.
const _: Layout = Compose::<U4, U8>::LAYOUT;

fn main() {}
