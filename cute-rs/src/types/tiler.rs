//! Tilers as types.

use typenum::{Bit, UInt, Unsigned};

use super::{StaticLayout, StaticTuple};
use crate::algebra::Tiler;

/// A type that names a tiler: a layout type, a [`typenum`] number `N` for the layout `N:1`, [`Keep`] for a
/// mode that stays as it is, or a tuple of 1 to 6 of these, one per mode.
///
/// ```
/// use cute_rs::StaticTiler;
/// use cute_rs::typenum::{U2, U8};
/// use cute_rs::types::{Keep, Strided};
/// let text = format!("{:?}", <(U8, Keep, Strided<U2, U8>)>::TILER);
/// assert_eq!(text, "Modes([Shape(8), Keep, By(2:8)])");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no tiler",
    note = "a tiler is a layout type, a number `U8` for `8:1`, `Keep` for a mode that stays, or a tuple of 1 to 6 tilers"
)]
pub trait StaticTiler {
    /// The tiler.
    const TILER: Tiler<'static>;
}

/// `_` in a tiler or a coordinate: the whole mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep;

impl StaticTiler for Keep {
    const TILER: Tiler<'static> = Tiler::Keep;
}

impl<U: Unsigned, B: Bit> StaticTiler for UInt<U, B> {
    const TILER: Tiler<'static> = Tiler::Shape(&<Self as StaticTuple>::TUPLE);
}

impl<A: StaticLayout> StaticTiler for A {
    const TILER: Tiler<'static> = Tiler::By(&A::LAYOUT);
}

/// Implements [`StaticTiler`] for tuples of these members.
macro_rules! static_tilers {
    ($($member:ident)+) => {
        impl<$($member: StaticTiler),+> StaticTiler for ($($member,)+) {
            const TILER: Tiler<'static> = Tiler::Modes(&[$($member::TILER),+]);
        }
    };
}

static_tilers!(A);
static_tilers!(A B);
static_tilers!(A B C);
static_tilers!(A B C D);
static_tilers!(A B C D E);
static_tilers!(A B C D E F);
