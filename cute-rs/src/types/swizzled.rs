//! Swizzled layouts as types.

use core::marker::PhantomData;

use typenum::Unsigned;

use super::{
    BlockedProduct, Compose, ComposeBy, Downcast, FlatDivide, LogicalDivide, LogicalDivideBy, LogicalProduct,
    RakedProduct, Slice, StaticCoord, StaticLayout, StaticTiler, StaticTuple, TiledDivide, Upcast,
    ZippedDivide, refuse,
};
use crate::composed::ComposedLayout;
use crate::error::LayoutError;
use crate::sentence::Sentence;
use crate::swizzle::Swizzle;

/// A type that names a swizzled layout.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no swizzled layout",
    note = "a swizzled layout is `Swizzled<Sw<B, M, S>, A>` with a layout type `A`"
)]
pub trait StaticComposed {
    /// The swizzled layout.
    const COMPOSED: ComposedLayout;
}

/// A type that names a swizzle: `Sw<B, M, S>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no swizzle",
    note = "a swizzle is `Sw<B, M, S>` of `typenum` numbers; S may be a signed one, such as `N3`"
)]
pub trait StaticSwizzle {
    /// The swizzle.
    const SWIZZLE: Swizzle;
}

/// The swizzle `Sw<B,M,S>`: XORs the B bits from bit `M + S` up onto the B bits from bit M up. With a
/// negative S it XORs the bits from M up onto the bits from `M - S` up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sw<B, M, S>(PhantomData<(B, M, S)>);

impl<B: Unsigned, M: Unsigned, S: StaticTuple> StaticSwizzle for Sw<B, M, S> {
    const SWIZZLE: Swizzle = Self::SWIZZLE;
}

impl<B: Unsigned, M: Unsigned, S: StaticTuple> Sw<B, M, S> {
    /// The swizzle. Stops the build unless `B <= |S|` and `B + M + |S| <= 32`.
    pub const SWIZZLE: Swizzle = {
        let shift = S::TUPLE.leaf(0);
        let name =
            Sentence::new().text("Sw<").number(B::I64).text(",").number(M::I64).text(",").number(shift);
        if B::U64 > shift.unsigned_abs() {
            panic!("{}", name.text("> is not its own inverse; choose a shift of at least the bits").as_str());
        }
        if B::U64 > 32
            || M::U64 > 32
            || shift.unsigned_abs() > 32
            || B::U64 + M::U64 + shift.unsigned_abs() > 32
        {
            panic!("{}", name.text("> reads bits above 31; choose numbers whose sum is at most 32").as_str());
        }
        Swizzle { bits: B::U32, base: M::U32, shift: shift as i32 }
    };
}

/// `c -> S(A(c))`: the layout A followed by the swizzle S.
///
/// Stops the build if the swizzle moves no element because every offset of A is below all bits that the
/// swizzle reads.
///
/// ```
/// use cute_rs::StaticComposed;
/// use cute_rs::typenum::{U3, U8, U64};
/// use cute_rs::types::{RowMajor, Sw, Swizzled};
///
/// type Tile = Swizzled<Sw<U3, U3, U3>, RowMajor<(U8, U64)>>;
/// assert_eq!(Tile::COMPOSED.to_string(), "Sw<3,3,3> o 0 o (8,64):(64,1)");
/// assert_eq!(Tile::COMPOSED.at_modes(&[1, 0]), 64 + 8);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Swizzled<S, A>(PhantomData<(S, A)>);

impl<S: StaticSwizzle, A: StaticLayout> StaticComposed for Swizzled<S, A> {
    const COMPOSED: ComposedLayout = {
        let (swizzle, layout) = (S::SWIZZLE, A::LAYOUT);
        let (source, cosize) = (swizzle.source_mask(), layout.cosize());
        // Negative offsets have all higher bits set.
        let positive = layout.stride_ref().is_empty() || layout.stride_ref().min() >= 0;
        if source != 0
            && positive
            && source.trailing_zeros() >= (u64::MAX >> (cosize - 1).leading_zeros()).count_ones()
        {
            let error = LayoutError::SwizzleReach { bits: swizzle.period().trailing_zeros(), cosize };
            let tried = Sentence::new().swizzle(swizzle).text(" is wider than ").layout(&layout);
            refuse(tried.text(": "), &error)
        }
        swizzle.after(layout)
    };
}

/// Implements [`StaticComposed`] for operations on swizzled layouts.
macro_rules! composed {
    ($($name:ident<$($member:ident: $bound:ident),*> = $method:ident($($argument:expr),*), $words:literal;)+) => {$(
        impl<A: StaticComposed, $($member: $bound),*> StaticComposed for $name<A, $($member),*> {
            const COMPOSED: ComposedLayout = match A::COMPOSED.$method($($argument),*) {
                Ok(composed) => composed,
                Err(error) => {
                    let tried = Sentence::new().text($words).swizzle(A::COMPOSED.swizzle).text(" o ");
                    refuse(tried.layout(&A::COMPOSED.layout).text(": "), &error)
                }
            };
        }
    )+};
}

composed! {
    Compose<B: StaticLayout> = composition(&B::LAYOUT), "cannot compose ";
    ComposeBy<T: StaticTiler> = composition_by(&T::TILER), "cannot compose ";
    LogicalDivide<B: StaticLayout> = logical_divide(&B::LAYOUT), "cannot divide ";
    LogicalDivideBy<T: StaticTiler> = logical_divide_by(&T::TILER), "cannot divide ";
    ZippedDivide<T: StaticTiler> = zipped_divide_by(&T::TILER), "cannot divide ";
    TiledDivide<T: StaticTiler> = tiled_divide(&T::TILER), "cannot divide ";
    FlatDivide<T: StaticTiler> = flat_divide(&T::TILER), "cannot divide ";
    LogicalProduct<B: StaticLayout> = logical_product(&B::LAYOUT), "cannot repeat ";
    BlockedProduct<B: StaticLayout> = blocked_product(&B::LAYOUT), "cannot repeat ";
    RakedProduct<B: StaticLayout> = raked_product(&B::LAYOUT), "cannot repeat ";
    Slice<C: StaticCoord> = slice_at(&C::COORD), "cannot slice ";
    Upcast<N: Unsigned> = upcast(N::I64), "cannot join elements of ";
    Downcast<N: Unsigned> = downcast(N::I64), "cannot split elements of ";
}

#[cfg(test)]
mod tests {
    use super::super::{Keep, RowMajor};
    use super::*;
    use crate::atom::SwizzleMode;
    use std::string::ToString;
    use typenum::{N3, U0, U1, U2, U3, U4, U8, U16, U64, U128};

    #[test]
    fn types_name_swizzles() {
        for (why, got, want) in [
            ("128 bytes of 16-bit elements", Sw::<U3, U3, U3>::SWIZZLE, SwizzleMode::B128.swizzle(16)),
            ("64 bytes of 8-bit elements", Sw::<U2, U4, U3>::SWIZZLE, SwizzleMode::B64.swizzle(8)),
            ("32 bytes of 32-bit elements", Sw::<U1, U2, U3>::SWIZZLE, SwizzleMode::B32.swizzle(32)),
            ("none", Sw::<U0, U0, U0>::SWIZZLE, Swizzle::NONE),
            ("all bits that there are", Sw::<U8, U8, U16>::SWIZZLE, Swizzle { bits: 8, base: 8, shift: 16 }),
        ] {
            assert_eq!(got, want, "{why}");
        }
    }

    /// The type equals the value, also if the highest bit that the swizzle reads is above all offsets.
    #[test]
    fn a_part_of_the_swizzle_may_lie_beyond_the_offsets() {
        type Tile = Swizzled<Sw<U3, U4, U3>, RowMajor<(U8, U64)>>;
        type Down = Swizzled<Sw<U2, U1, N3>, RowMajor<(U2, U2)>>;
        for (why, tile, swizzle) in [
            ("bits 7 and 8 of 7 to 9", Tile::COMPOSED, Sw::<U3, U4, U3>::SWIZZLE),
            ("bits that it changes, beyond", Down::COMPOSED, Sw::<U2, U1, N3>::SWIZZLE),
        ] {
            assert_eq!(tile, swizzle.after(tile.layout), "{why}");
            assert!((0..tile.size()).any(|i| tile.at(i) != tile.layout.at(i)), "{why}: something moves");
        }
    }

    #[test]
    fn the_swizzle_comes_last() {
        let tile = Swizzled::<Sw<U3, U4, U3>, RowMajor<(U8, U128)>>::COMPOSED;
        assert_eq!(tile.at(3), Sw::<U3, U4, U3>::SWIZZLE.apply(384).cast_signed());
        type Columns = TiledDivide<Swizzled<Sw<U3, U4, U3>, RowMajor<(U8, U128)>>, (U8, U16)>;
        assert_eq!(Columns::COMPOSED.to_string(), "Sw<3,4,3> o 0 o ((8,16),1,8):((128,1),0,16)");
        type Third = Slice<Columns, (Keep, U0, U2)>;
        assert_eq!(Third::COMPOSED.offset, 32);
    }
}
