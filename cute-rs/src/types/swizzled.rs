//! Swizzled layouts as types.

use core::marker::PhantomData;

use typenum::Unsigned;

use super::StaticLayout;
use crate::sentence::Sentence;
use crate::swizzle::{ComposedLayout, Swizzle};

/// A type that names a swizzled layout.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no swizzled layout",
    note = "a swizzled layout is `Swizzled<Sw<B, M, S>, A>` with a layout type `A`"
)]
pub trait StaticComposed {
    /// The swizzled layout.
    const COMPOSED: ComposedLayout;
}

/// The swizzle `Sw<B,M,S>`: B bits from S above bit M are XORed onto those above bit M.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sw<B, M, S>(PhantomData<(B, M, S)>);

impl<B: Unsigned, M: Unsigned, S: Unsigned> Sw<B, M, S> {
    /// The swizzle. Stops the build unless `B <= S` and all bits lie within 32.
    pub const SWIZZLE: Swizzle = {
        let name =
            Sentence::new().text("Sw<").number(B::I64).text(",").number(M::I64).text(",").number(S::I64);
        if B::U64 > S::U64 {
            panic!("{}", name.text("> is not its own inverse; choose a shift of at least the bits").as_str());
        }
        if B::U64 > 32 || M::U64 > 32 || S::U64 > 32 || B::U64 + M::U64 + S::U64 > 32 {
            panic!("{}", name.text("> reads bits above 31; choose numbers whose sum is at most 32").as_str());
        }
        Swizzle { bits: B::U32, base: M::U32, shift: S::U32 }
    };
}

/// `c -> S(A(c))`: the layout A, then the swizzle S.
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

impl<B: Unsigned, M: Unsigned, S: Unsigned, A: StaticLayout> StaticComposed for Swizzled<Sw<B, M, S>, A> {
    const COMPOSED: ComposedLayout =
        ComposedLayout { swizzle: Sw::<B, M, S>::SWIZZLE, offset: 0, layout: A::LAYOUT };
}

#[cfg(test)]
mod tests {
    use super::super::RowMajor;
    use super::*;
    use crate::atom::SwizzleMode;
    use typenum::{U0, U1, U2, U3, U4, U8, U16};

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

    #[test]
    fn the_swizzle_comes_last() {
        let tile = Swizzled::<Sw<U3, U4, U3>, RowMajor<(U8, U16)>>::COMPOSED;
        assert_eq!(tile.at(3), Sw::<U3, U4, U3>::SWIZZLE.apply(48).cast_signed());
    }
}
