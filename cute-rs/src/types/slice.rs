//! Slices of layouts as types.

use core::marker::PhantomData;

use typenum::{Bit, UInt, UTerm, Unsigned};

use super::{Keep, StaticLayout, refuse};
use crate::layout::{Coord, Layout};
use crate::sentence::Sentence;

/// A type that names a coordinate that may leave modes open: a [`typenum`] number, [`Keep`] for an open mode,
/// or a tuple of 1 to 6 of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no coordinate",
    note = "a coordinate is a number such as `U8`, `Keep` for an open mode, or a tuple of 1 to 6 coordinates"
)]
pub trait StaticCoord {
    /// The coordinate.
    const COORD: Coord<'static>;
}

impl StaticCoord for Keep {
    const COORD: Coord<'static> = Coord::Keep;
}

impl StaticCoord for UTerm {
    const COORD: Coord<'static> = Coord::At(0);
}

impl<U: Unsigned, B: Bit> StaticCoord for UInt<U, B> {
    const COORD: Coord<'static> = Coord::At(<Self as Unsigned>::I64);
}

/// Implements [`StaticCoord`] for tuples of these members.
macro_rules! static_coords {
    ($($member:ident)+) => {
        impl<$($member: StaticCoord),+> StaticCoord for ($($member,)+) {
            const COORD: Coord<'static> = Coord::Modes(&[$($member::COORD),+]);
        }
    };
}

static_coords!(A);
static_coords!(A B);
static_coords!(A B C);
static_coords!(A B C D);
static_coords!(A B C D E);
static_coords!(A B C D E F);

/// A with some modes fixed: [`Layout::slice_at`]. [`Slice::OFFSET`] is the offset of the fixed modes.
///
/// ```
/// use cute_rs::StaticLayout;
/// use cute_rs::typenum::{U2, U4, U8};
/// use cute_rs::types::{Keep, RowMajor, Slice};
///
/// type Row2 = Slice<RowMajor<(U4, U8)>, (U2, Keep)>;
/// assert_eq!((Row2::LAYOUT.to_string().as_str(), Row2::OFFSET), ("(8):(1)", 16));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice<A, C>(PhantomData<(A, C)>);

impl<A: StaticLayout, C: StaticCoord> Slice<A, C> {
    const PARTS: (Layout, i64) = match A::LAYOUT.slice_at(&C::COORD) {
        Ok(parts) => parts,
        Err(error) => {
            let tried =
                Sentence::new().text("cannot slice ").layout(&A::LAYOUT).text(" at ").coord(&C::COORD);
            refuse(tried.text(": "), &error)
        }
    };

    /// The offset of the fixed modes.
    pub const OFFSET: i64 = Self::PARTS.1;
}

impl<A: StaticLayout, C: StaticCoord> StaticLayout for Slice<A, C> {
    const LAYOUT: Layout = Self::PARTS.0;
}

/// The modes of A that [`Slice`] fixes: [`Layout::dice_at`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Dice<A, C>(PhantomData<(A, C)>);

impl<A: StaticLayout, C: StaticCoord> StaticLayout for Dice<A, C> {
    const LAYOUT: Layout = match A::LAYOUT.dice_at(&C::COORD) {
        Ok(layout) => layout,
        Err(error) => {
            let tried = Sentence::new().text("cannot dice ").layout(&A::LAYOUT).text(" at ").coord(&C::COORD);
            refuse(tried.text(": "), &error)
        }
    };
}
