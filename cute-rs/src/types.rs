//! Layouts as types, for layouts that are known at compile time.
//!
//! A type that implements [`StaticLayout`] names a layout. The basic types are [`Strided`], [`ColumnMajor`]
//! and [`RowMajor`] over [`typenum`] numbers and tuples of them. Combinators such as [`Compose`] and
//! [`LogicalDivide`] name the result of the operation of the same name on values, and the same `const fn`
//! computes it. So types and values always agree. An operation without a result stops the build with both
//! layouts in the message.
//!
//! ```
//! use cute_rs::typenum::{U1, U2, U3, U4, U6, U8};
//! use cute_rs::types::{Compose, LogicalDivide, RowMajor, Strided};
//! use cute_rs::{Layout, StaticLayout};
//!
//! type A = Strided<(U6, U2), (U8, U2)>;
//! type B = Strided<(U4, U3), (U3, U1)>;
//! const COMPOSED: Layout = Compose::<A, B>::LAYOUT;
//! assert_eq!(COMPOSED.to_string(), "((2,2),3):((24,2),8)");
//!
//! type Tiles = LogicalDivide<RowMajor<(U4, U6)>, Strided<U2, U2>>;
//! assert_eq!(Tiles::LAYOUT.to_string(), "(2,(2,6)):(12,(6,1))");
//! ```
//!
//! A constant is computed where it is used. To let `cargo check` check a layout at its definition, use it
//! there: `const _: Layout = Tiles::LAYOUT;`.

mod combinators;
mod coords;
mod edit;
mod operation;
mod slice;
mod swizzled;
mod tiler;
mod tiling;

use core::marker::PhantomData;

use typenum::{Bit, NInt, NonZero, PInt, UInt, UTerm, Unsigned, Z0};

use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::sentence::Sentence;

pub use combinators::{
    Coalesce, CoalesceBy, CoalesceX, Complement, ComplementAll, Compose, ComposeBy, Downcast, Filter,
    FilterBy, FilterZeros, LeftInverse, MaxCommon, Nullspace, Recast, RightInverse, Upcast,
};
pub use coords::{Identity, StaticCoords};
pub use edit::{
    Append, CompactLike, Concat, DomainDistribute, Flatten, FragmentLike, Group, Insert, Mode, Ordered,
    Padded, Prepend, Remove, Replace, Reverse, Select, Take, TileUnzip, Unflatten, WithShape, Wrap, Zip,
};
pub use operation::{Operation, Refused};
pub use slice::{Dice, Slice, StaticCoord};
pub use swizzled::{StaticComposed, StaticSwizzle, Sw, Swizzled};
pub use tiler::{Keep, StaticTiler};
pub use tiling::{
    BlockedProduct, FlatDivide, FlatProduct, LogicalDivide, LogicalDivideBy, LogicalProduct,
    LogicalProductBy, RakedProduct, TileToShape, TiledDivide, TiledProduct, ZippedDivide, ZippedProduct,
};

/// A type that names an integer tuple: a [`typenum`] number, unsigned such as `U8` or signed such as `N8`, or
/// a tuple of 1 to 6 such types.
///
/// ```
/// use cute_rs::StaticTuple;
/// use cute_rs::typenum::{U2, U4, U8};
/// assert_eq!(<(U8, (U4, U2))>::TUPLE.to_string(), "(8,(4,2))");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no integer tuple",
    note = "an integer tuple is an unsigned `typenum` number such as `U8`, or a tuple of 1 to 6 integer tuples"
)]
pub trait StaticTuple {
    /// The tuple.
    const TUPLE: IntTuple;
}

impl StaticTuple for UTerm {
    const TUPLE: IntTuple = IntTuple::int(0);
}

impl<U: Unsigned, B: Bit> StaticTuple for UInt<U, B> {
    const TUPLE: IntTuple = {
        assert!(<Self as Unsigned>::U64 <= i64::MAX.cast_unsigned(), "the number exceeds 2^63 - 1");
        IntTuple::int(<Self as Unsigned>::U64.cast_signed())
    };
}

impl StaticTuple for Z0 {
    const TUPLE: IntTuple = IntTuple::int(0);
}

impl<U: Unsigned + NonZero> StaticTuple for PInt<U> {
    const TUPLE: IntTuple = IntTuple::int(U::I64);
}

impl<U: Unsigned + NonZero> StaticTuple for NInt<U> {
    const TUPLE: IntTuple = IntTuple::int(-U::I64);
}

/// Implements [`StaticTuple`] for tuples of these members.
macro_rules! static_tuples {
    ($($member:ident)+) => {
        impl<$($member: StaticTuple),+> StaticTuple for ($($member,)+) {
            const TUPLE: IntTuple = match IntTuple::tuple(&[$($member::TUPLE),+]) {
                Ok(tuple) => tuple,
                Err(error) => refuse(Sentence::new(), &error),
            };
        }
    };
}

static_tuples!(A);
static_tuples!(A B);
static_tuples!(A B C);
static_tuples!(A B C D);
static_tuples!(A B C D E);
static_tuples!(A B C D E F);

/// A type that names a layout.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no layout",
    label = "this is no layout type",
    note = "layout types are `Strided<Shape, Stride>`, `ColumnMajor<Shape>`, `RowMajor<Shape>` and combinators of \
            them such as `Compose<A, B>`"
)]
pub trait StaticLayout {
    /// The layout.
    const LAYOUT: Layout;
}

/// The layout `Shape:Stride`, such as `Strided<(U6, U2), (U8, U2)>` for `(6,2):(8,2)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strided<Shape, Stride>(PhantomData<(Shape, Stride)>);

impl<Shape: StaticTuple, Stride: StaticTuple> StaticLayout for Strided<Shape, Stride> {
    const LAYOUT: Layout = match Layout::new(Shape::TUPLE, Stride::TUPLE) {
        Ok(layout) => layout,
        Err(error) => {
            let text = Sentence::new().tuple(&Shape::TUPLE).text(":").tuple(&Stride::TUPLE);
            refuse(text.text(" is no layout: "), &error)
        }
    };
}

/// The compact layout whose leftmost leaf is contiguous: `(2,3):(1,2)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColumnMajor<Shape>(PhantomData<Shape>);

impl<Shape: StaticTuple> StaticLayout for ColumnMajor<Shape> {
    const LAYOUT: Layout = match Layout::column_major(Shape::TUPLE) {
        Ok(layout) => layout,
        Err(error) => refuse(Sentence::new(), &error),
    };
}

/// The compact layout whose rightmost leaf is contiguous: `(2,3):(3,1)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowMajor<Shape>(PhantomData<Shape>);

impl<Shape: StaticTuple> StaticLayout for RowMajor<Shape> {
    const LAYOUT: Layout = match Layout::row_major(Shape::TUPLE) {
        Ok(layout) => layout,
        Err(error) => refuse(Sentence::new(), &error),
    };
}

/// Stops the build with a message: what was tried, why it has no result, and what to change.
#[track_caller]
const fn refuse(tried: Sentence, error: &LayoutError) -> ! {
    let sentence = tried.then(&error.sentence()).text("; ").text(error.remedy());
    panic!("{}", sentence.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use typenum::{N2, U0, U1, U2, U3, U4, U6, U8, U32};

    #[test]
    fn types_name_tuples() {
        for (why, got, want) in [
            ("zero is a stride", U0::TUPLE, "0"),
            ("a number", U32::TUPLE, "32"),
            ("a tuple of one", <(U3,)>::TUPLE, "(3)"),
            ("nested", <(U8, (U4, (U2, U1)))>::TUPLE, "(8,(4,(2,1)))"),
            ("six members", <(U1, U2, U3, U4, U6, U8)>::TUPLE, "(1,2,3,4,6,8)"),
        ] {
            assert_eq!(got.to_string(), want, "{why}");
        }
    }

    #[test]
    fn types_name_layouts() {
        type Shape = (U8, (U4, U2));
        for (why, got, want) in [
            ("any stride", Strided::<Shape, (U1, (U8, U32))>::LAYOUT, "(8,(4,2)):(1,(8,32))"),
            ("an integer layout", Strided::<U4, U2>::LAYOUT, "4:2"),
            ("backwards", Strided::<(U4, U2), (N2, U8)>::LAYOUT, "(4,2):(-2,8)"),
            ("a broadcast", Strided::<(U4, U2), (U0, U1)>::LAYOUT, "(4,2):(0,1)"),
            ("leftmost contiguous", ColumnMajor::<Shape>::LAYOUT, "(8,(4,2)):(1,(8,32))"),
            ("rightmost contiguous", RowMajor::<Shape>::LAYOUT, "(8,(4,2)):(8,(2,1))"),
        ] {
            assert_eq!(got.to_string(), want, "{why}");
        }
    }
}
