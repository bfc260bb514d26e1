//! Coordinate layouts as types.

use core::marker::PhantomData;

use super::{
    Compose, ComposeBy, FlatDivide, LogicalDivide, LogicalDivideBy, StaticLayout, StaticTiler, StaticTuple,
    TiledDivide, ZippedDivide, refuse,
};
use crate::coord_layout::CoordLayout;
use crate::sentence::Sentence;

/// A type that names a coordinate layout.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no coordinate layout",
    note = "a coordinate layout is `Identity<Shape>`, composed or divided by layout types"
)]
pub trait StaticCoords {
    /// The coordinate layout.
    const COORDS: CoordLayout;
}

/// The layout that maps each coordinate to itself: [`CoordLayout::identity`].
///
/// ```
/// use cute_rs::StaticCoords;
/// use cute_rs::typenum::{U4, U8, U32};
/// use cute_rs::types::{Identity, TiledDivide};
///
/// type Tiles = TiledDivide<Identity<(U32, U8)>, (U8, U4)>;
/// assert_eq!(Tiles::COORDS.to_string(), "((8,4),4,2):((1@0,1@1),8@0,4@1)");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity<Shape>(PhantomData<Shape>);

impl<Shape: StaticTuple> StaticCoords for Identity<Shape> {
    const COORDS: CoordLayout = match CoordLayout::identity(Shape::TUPLE) {
        Ok(coords) => coords,
        Err(error) => refuse(Sentence::new().text("no identity of ").tuple(&Shape::TUPLE).text(": "), &error),
    };
}

/// Implements [`StaticCoords`] for operations on coordinate layouts.
macro_rules! coordinates {
    ($($name:ident<$member:ident: $bound:ident> = $method:ident($argument:expr), $tried:expr;)+) => {$(
        impl<A: StaticCoords, $member: $bound> StaticCoords for $name<A, $member> {
            const COORDS: CoordLayout = match A::COORDS.$method($argument) {
                Ok(coords) => coords,
                Err(error) => refuse($tried.text(": "), &error),
            };
        }
    )+};
}

coordinates! {
    Compose<B: StaticLayout> = composition(&B::LAYOUT),
        Sentence::new().text("cannot compose coordinates of ").tuple(&A::COORDS.shape()).text(" with ").layout(&B::LAYOUT);
    LogicalDivide<B: StaticLayout> = logical_divide(&B::LAYOUT),
        Sentence::new().text("cannot divide coordinates of ").tuple(&A::COORDS.shape()).text(" by ").layout(&B::LAYOUT);
    ComposeBy<T: StaticTiler> = composition_by(&T::TILER),
        Sentence::new().text("cannot compose coordinates of ").tuple(&A::COORDS.shape()).text(" with ").tiler(&T::TILER);
    LogicalDivideBy<T: StaticTiler> = logical_divide_by(&T::TILER),
        Sentence::new().text("cannot divide coordinates of ").tuple(&A::COORDS.shape()).text(" by ").tiler(&T::TILER);
    ZippedDivide<T: StaticTiler> = zipped_divide_by(&T::TILER),
        Sentence::new().text("cannot divide coordinates of ").tuple(&A::COORDS.shape()).text(" by ").tiler(&T::TILER);
    TiledDivide<T: StaticTiler> = tiled_divide(&T::TILER),
        Sentence::new().text("cannot divide coordinates of ").tuple(&A::COORDS.shape()).text(" by ").tiler(&T::TILER);
    FlatDivide<T: StaticTiler> = flat_divide(&T::TILER),
        Sentence::new().text("cannot divide coordinates of ").tuple(&A::COORDS.shape()).text(" by ").tiler(&T::TILER);
}
