//! Which shapes of a record numbers are fitted to, and which they are judged by.

/// Whether a model may be fitted to the times of this shape; by the others it is judged.
///
/// A hash of the shape (the top bit of a product with 2^32 over the golden ratio) decides, so that a shape stays on its side
/// whatever else is measured. About half of all shapes are on either.
pub(crate) const fn fitted([m, n, k]: [u32; 3]) -> bool {
    (m ^ n.rotate_left(11) ^ k.rotate_left(22)).wrapping_mul(0x9e37_79b1) >> 31 == 1
}
