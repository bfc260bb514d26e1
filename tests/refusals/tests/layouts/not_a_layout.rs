use cute_rs::StaticLayout;
use cute_rs::typenum::{U2, U4};
use cute_rs::types::Coalesce;

fn size<A: StaticLayout>() -> i64 {
    A::LAYOUT.size()
}

fn main() {
    // A tuple of numbers is a shape, not a layout.
    size::<Coalesce<(U4, U2)>>();
}
