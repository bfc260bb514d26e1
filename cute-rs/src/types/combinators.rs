//! Operations of the algebra on layout types.

use core::marker::PhantomData;

use typenum::Unsigned;

use super::operation::{Operation, Refused, operations};
use super::{StaticLayout, StaticTiler, StaticTuple, refuse};
use crate::layout::Layout;
use crate::sentence::Sentence;

operations! {
    /// `A o B`: [`Layout::composition`].
    Compose<A: StaticLayout, B: StaticLayout> = A::LAYOUT.composition(&B::LAYOUT),
        Sentence::new().text("cannot compose ").layout(&A::LAYOUT).text(" with ").layout(&B::LAYOUT);

    /// `A o T` mode by mode: [`Layout::composition_by`].
    ComposeBy<A: StaticLayout, T: StaticTiler> = A::LAYOUT.composition_by(&T::TILER),
        Sentence::new().text("cannot compose ").layout(&A::LAYOUT).text(" with ").tiler(&T::TILER);

    /// The offsets that A leaves out, up to N: [`Layout::complement`].
    Complement<A: StaticLayout, N: Unsigned> = A::LAYOUT.complement(N::I64),
        Sentence::new().layout(&A::LAYOUT).text(" has no complement up to ").number(N::I64);

    /// The gaps in A, up to its cosize: [`Layout::complement_all`].
    ComplementAll<A: StaticLayout> = A::LAYOUT.complement_all(), Sentence::new().layout(&A::LAYOUT).text(" has no complement");

    /// The layout R with `A(R(i)) = i`: [`Layout::right_inverse`].
    RightInverse<A: StaticLayout> = A::LAYOUT.right_inverse(), Sentence::new().layout(&A::LAYOUT).text(" has no right inverse");

    /// The layout R with `R(A(i)) = i`: [`Layout::left_inverse`].
    LeftInverse<A: StaticLayout> = A::LAYOUT.left_inverse(), Sentence::new().layout(&A::LAYOUT).text(" has no left inverse");

    /// The coordinates that broadcasts of A map to 0: [`Layout::nullspace`].
    Nullspace<A: StaticLayout> = A::LAYOUT.nullspace(), Sentence::new().layout(&A::LAYOUT).text(" has no nullspace");

    /// The longest run that A and B have in the same order: [`Layout::max_common_layout`].
    MaxCommon<A: StaticLayout, B: StaticLayout> = A::LAYOUT.max_common_layout(&B::LAYOUT),
        Sentence::new().text("no common layout of ").layout(&A::LAYOUT).text(" and ").layout(&B::LAYOUT);

    /// A with the fewest leaves: [`Layout::coalesce`].
    Coalesce<A: StaticLayout> = Ok(A::LAYOUT.coalesce()), Sentence::new().layout(&A::LAYOUT).text(" does not coalesce");

    /// A with the fewest leaves, equal to A also beyond its size: [`Layout::coalesce_x`].
    CoalesceX<A: StaticLayout> = Ok(A::LAYOUT.coalesce_x()), Sentence::new().layout(&A::LAYOUT).text(" does not coalesce");

    /// A, coalesced at the leaves of a profile: [`Layout::coalesce_by`].
    CoalesceBy<A: StaticLayout, Profile: StaticTuple> = A::LAYOUT.coalesce_by(&Profile::TUPLE),
        Sentence::new().layout(&A::LAYOUT).text(" does not coalesce like ").tuple(&Profile::TUPLE);

    /// A with extent 1 at every leaf of stride 0: [`Layout::filter_zeros`].
    FilterZeros<A: StaticLayout> = Ok(A::LAYOUT.filter_zeros()), Sentence::new().layout(&A::LAYOUT).text(" cannot be filtered");

    /// A without broadcasts, coalesced: [`Layout::filter`].
    Filter<A: StaticLayout> = Ok(A::LAYOUT.filter()), Sentence::new().layout(&A::LAYOUT).text(" cannot be filtered");

    /// A, filtered at the leaves of a profile: [`Layout::filter_by`].
    FilterBy<A: StaticLayout, Profile: StaticTuple> = A::LAYOUT.filter_by(&Profile::TUPLE),
        Sentence::new().layout(&A::LAYOUT).text(" cannot be filtered like ").tuple(&Profile::TUPLE);

    /// A in elements that are N times as large: [`Layout::upcast`].
    Upcast<A: StaticLayout, N: Unsigned> = A::LAYOUT.upcast(N::I64),
        Sentence::new().layout(&A::LAYOUT).text(" has no elements joined by ").number(N::I64);

    /// A in elements that are N times as small: [`Layout::downcast`].
    Downcast<A: StaticLayout, N: Unsigned> = A::LAYOUT.downcast(N::I64),
        Sentence::new().layout(&A::LAYOUT).text(" has no elements split by ").number(N::I64);

    /// A, given in elements of `Old` bits, in elements of `New` bits: [`Layout::recast`].
    Recast<A: StaticLayout, Old: Unsigned, New: Unsigned> = A::LAYOUT.recast(Old::I64, New::I64),
        Sentence::new()
            .layout(&A::LAYOUT)
            .text(" of ")
            .number(Old::I64)
            .text("-bit elements is no layout of ")
            .number(New::I64)
            .text("-bit ones");
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnMajor, RowMajor, Strided};
    use super::*;
    use std::string::ToString;
    use typenum::{U1, U2, U3, U4, U6, U8, U16, U24, U32};

    #[test]
    fn constants_are_those_of_the_value_operations() {
        type A = Strided<(U6, U2), (U8, U2)>;
        type B = Strided<(U4, U3), (U3, U1)>;
        type Rows = RowMajor<(U4, U6)>;
        type Gaps = Strided<(U2, U2), (U1, U6)>;
        type Bytes = ColumnMajor<(U32, U8)>;
        let [a, b, rows, gaps, bytes] = [A::LAYOUT, B::LAYOUT, Rows::LAYOUT, Gaps::LAYOUT, Bytes::LAYOUT];
        for (why, got, want) in [
            ("composition", Compose::<A, B>::LAYOUT, a.composition(&b)),
            ("complement", Complement::<Gaps, U24>::LAYOUT, gaps.complement(24)),
            ("gaps", ComplementAll::<Gaps>::LAYOUT, gaps.complement_all()),
            ("right inverse", RightInverse::<Rows>::LAYOUT, rows.right_inverse()),
            ("left inverse", LeftInverse::<Gaps>::LAYOUT, gaps.left_inverse()),
            ("common", MaxCommon::<Rows, Rows>::LAYOUT, rows.max_common_layout(&rows)),
            ("coalesce", Coalesce::<ColumnMajor<(U8, U3)>>::LAYOUT, Ok(Layout::leaf(24, 1))),
            ("upcast", Upcast::<Bytes, U4>::LAYOUT, bytes.upcast(4)),
            ("downcast", Downcast::<Bytes, U4>::LAYOUT, bytes.downcast(4)),
            ("recast", Recast::<Bytes, U8, U16>::LAYOUT, bytes.recast(8, 16)),
        ] {
            assert_eq!(Ok(got), want, "{why}");
        }
        assert_eq!(
            CoalesceBy::<Strided<(U2, (U1, U6)), (U1, (U6, U2))>, (U1, U1)>::LAYOUT.to_string(),
            "(2,6):(1,2)"
        );
    }
}
