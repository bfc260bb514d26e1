//! Layouts: A's tile in slabs of 64 bytes, D staged in rows of 32 bytes.

use falchion::collective::{RowMajor, Sw, Swizzled};
use falchion::prelude::*;
use typenum::{U8, U16, U32};

/// 8 rows of 32 elements, whose 16-byte chunks are permuted by 2 bits.
pub type Slab = Swizzled<Sw<U2, U3, U3>, RowMajor<(U8, U32)>>;
/// 8 rows of 16 elements, permuted by 1 bit.
pub type Row = Swizzled<Sw<U1, U3, U3>, RowMajor<(U8, U16)>>;
