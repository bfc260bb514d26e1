//! Edits of layout types.

use core::marker::PhantomData;

use typenum::Unsigned;

use super::operation::{Operation, Refused, operations};
use super::{StaticLayout, StaticTuple, refuse};
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;
use crate::sentence::Sentence;

operations! {
    /// Mode `I` of A: [`Layout::get`].
    Mode<A: StaticLayout, I: Unsigned> = A::LAYOUT.get(&[I::USIZE]),
        Sentence::new().layout(&A::LAYOUT).text(" has no mode ").number(I::I64);

    /// A with the mode B appended: [`Layout::append`].
    Append<A: StaticLayout, B: StaticLayout> = A::LAYOUT.append(&B::LAYOUT),
        Sentence::new().text("cannot append to ").layout(&A::LAYOUT).text(" the mode ").layout(&B::LAYOUT);

    /// A with the mode B prepended: [`Layout::prepend`].
    Prepend<A: StaticLayout, B: StaticLayout> = A::LAYOUT.prepend(&B::LAYOUT),
        Sentence::new().text("cannot put in front of ").layout(&A::LAYOUT).text(" the mode ").layout(&B::LAYOUT);

    /// A with the mode B inserted before mode `I`: [`Layout::insert`].
    Insert<A: StaticLayout, I: Unsigned, B: StaticLayout> = A::LAYOUT.insert(I::USIZE, &B::LAYOUT),
        Sentence::new().text("cannot insert before mode ").number(I::I64).text(" of ").layout(&A::LAYOUT);

    /// A without mode `I`: [`Layout::remove`].
    Remove<A: StaticLayout, I: Unsigned> = A::LAYOUT.remove(I::USIZE),
        Sentence::new().text("cannot remove mode ").number(I::I64).text(" of ").layout(&A::LAYOUT);

    /// A as the only mode of a layout: [`Layout::wrap`].
    Wrap<A: StaticLayout> = A::LAYOUT.wrap(), Sentence::new().layout(&A::LAYOUT);

    /// A with modes `1:0` appended up to the rank `Rank`: [`Layout::padded`].
    Padded<A: StaticLayout, Rank: Unsigned> = A::LAYOUT.padded(Rank::USIZE),
        Sentence::new().layout(&A::LAYOUT).text(" cannot have the rank ").number(Rank::I64);

    /// The halves of the first `Count` modes of A, gathered: [`Layout::tile_unzip`].
    TileUnzip<A: StaticLayout, Count: Unsigned> = A::LAYOUT.tile_unzip(Count::USIZE),
        Sentence::new().text("cannot unzip ").number(Count::I64).text(" modes of ").layout(&A::LAYOUT);

    /// Pairs of modes of A and B: [`Layout::zip`].
    Zip<A: StaticLayout, B: StaticLayout> = A::LAYOUT.zip(&B::LAYOUT),
        Sentence::new().text("cannot zip ").layout(&A::LAYOUT).text(" with ").layout(&B::LAYOUT);

    /// A with mode `I` replaced by B: [`Layout::replace`].
    Replace<A: StaticLayout, I: Unsigned, B: StaticLayout> = A::LAYOUT.replace(I::USIZE, &B::LAYOUT),
        Sentence::new().text("cannot replace mode ").number(I::I64).text(" of ").layout(&A::LAYOUT);

    /// Modes `Begin..End` of A as one mode: [`Layout::group`].
    Group<A: StaticLayout, Begin: Unsigned, End: Unsigned> = A::LAYOUT.group(Begin::USIZE, End::USIZE),
        Sentence::new()
            .text("cannot group modes ")
            .number(Begin::I64)
            .text("..")
            .number(End::I64)
            .text(" of ")
            .layout(&A::LAYOUT);

    /// Modes `Begin..End` of A: [`Layout::take`].
    Take<A: StaticLayout, Begin: Unsigned, End: Unsigned> = A::LAYOUT.take(Begin::USIZE, End::USIZE),
        Sentence::new()
            .text("cannot take modes ")
            .number(Begin::I64)
            .text("..")
            .number(End::I64)
            .text(" of ")
            .layout(&A::LAYOUT);

    /// The modes of A with the numbers in a tuple, in that order: [`Layout::select`].
    Select<A: StaticLayout, Modes: StaticTuple> = selected(&A::LAYOUT, &Modes::TUPLE),
        Sentence::new().text("cannot select ").tuple(&Modes::TUPLE).text(" from ").layout(&A::LAYOUT);

    /// A without nesting: [`Layout::flatten`].
    Flatten<A: StaticLayout> = Ok(A::LAYOUT.flatten()), Sentence::new().layout(&A::LAYOUT);

    /// The modes of A in reverse order, at every depth: [`Layout::reverse`].
    Reverse<A: StaticLayout> = Ok(A::LAYOUT.reverse()), Sentence::new().layout(&A::LAYOUT);

    /// The leaves of A with the nesting of a profile: [`Layout::unflatten`].
    Unflatten<A: StaticLayout, Profile: StaticTuple> = A::LAYOUT.unflatten(&Profile::TUPLE),
        Sentence::new().layout(&A::LAYOUT).text(" cannot be nested as ").tuple(&Profile::TUPLE);

    /// A with another shape, in the same order: [`Layout::with_shape`].
    WithShape<A: StaticLayout, Shape: StaticTuple> = A::LAYOUT.with_shape(Shape::TUPLE),
        Sentence::new().layout(&A::LAYOUT).text(" cannot take the shape ").tuple(&Shape::TUPLE);

    /// A compact layout with the strides in the order of A's: [`Layout::compact_like`].
    CompactLike<A: StaticLayout> = A::LAYOUT.compact_like(), Sentence::new().layout(&A::LAYOUT);

    /// A compact layout for registers, made from A: [`Layout::fragment_like`].
    FragmentLike<A: StaticLayout> = A::LAYOUT.fragment_like(), Sentence::new().layout(&A::LAYOUT);

    /// The compact layout of a shape with its modes in a given order: [`Layout::ordered`].
    Ordered<Shape: StaticTuple, Order: StaticTuple> = Layout::ordered(Shape::TUPLE, &Order::TUPLE),
        Sentence::new().text("no layout of ").tuple(&Shape::TUPLE).text(" in the order ").tuple(&Order::TUPLE);

    /// N items distributed over a shape: [`Layout::domain_distribute`].
    DomainDistribute<Shape: StaticTuple, N: Unsigned> = Layout::domain_distribute(Shape::TUPLE, N::I64),
        Sentence::new().text("cannot spread ").number(N::I64).text(" items over ").tuple(&Shape::TUPLE);
}

/// Layouts concatenated as the modes of one, `Concat<(A, B, C)>`: [`Layout::concat`].
///
/// ```
/// use cute_rs::StaticLayout;
/// use cute_rs::typenum::{U1, U3, U4};
/// use cute_rs::types::{Concat, Strided};
///
/// assert_eq!(Concat::<(Strided<U4, U3>, Strided<U3, U1>)>::LAYOUT.to_string(), "(4,3):(3,1)");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Concat<Modes>(PhantomData<Modes>);

/// Implements [`StaticLayout`] for concatenated layouts.
macro_rules! concatenated {
    ($($member:ident)+) => {
        impl<$($member: StaticLayout),+> StaticLayout for Concat<($($member,)+)> {
            const LAYOUT: Layout = match Layout::concat(&[$($member::LAYOUT),+]) {
                Ok(layout) => layout,
                Err(error) => refuse(Sentence::new().text("cannot put modes side by side: "), &error),
            };
        }
    };
}

concatenated!(A);
concatenated!(A B);
concatenated!(A B C);
concatenated!(A B C D);
concatenated!(A B C D E);
concatenated!(A B C D E F);

const fn selected(layout: &Layout, names: &IntTuple) -> Result<Layout, LayoutError> {
    let mut modes = [0; MAX_LEAVES];
    let mut i = 0;
    while i < names.len() {
        let mode = names.leaf(i);
        modes[i] = if mode < 0 { usize::MAX } else { mode as usize };
        i += 1;
    }
    layout.select(modes.split_at(i).0)
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnMajor, RowMajor, Strided};
    use super::*;
    use std::string::ToString;
    use typenum::{U0, U1, U2, U3, U4, U6, U8, U12, U100};

    #[test]
    fn constants_are_those_of_the_value_operations() {
        type A = ColumnMajor<(U2, U3, U4)>;
        for (why, got, want) in [
            ("mode", Mode::<A, U1>::LAYOUT, "3:2"),
            ("append", Append::<A, Strided<U8, U100>>::LAYOUT, "(2,3,4,8):(1,2,6,100)"),
            ("prepend", Prepend::<A, Strided<U8, U100>>::LAYOUT, "(8,2,3,4):(100,1,2,6)"),
            ("zip", Zip::<ColumnMajor<(U2, U3)>, RowMajor<(U2, U3)>>::LAYOUT, "((2,2),(3,3)):((1,3),(2,1))"),
            ("replace", Replace::<A, U0, Strided<U8, U0>>::LAYOUT, "(8,3,4):(0,2,6)"),
            ("group", Group::<A, U0, U2>::LAYOUT, "((2,3),4):((1,2),6)"),
            ("take", Take::<A, U1, U3>::LAYOUT, "(3,4):(2,6)"),
            ("select", Select::<A, (U2, U0)>::LAYOUT, "(4,2):(6,1)"),
            ("flatten", Flatten::<Group<A, U0, U2>>::LAYOUT, "(2,3,4):(1,2,6)"),
            ("reverse", Reverse::<A>::LAYOUT, "(4,3,2):(6,2,1)"),
            ("unflatten", Unflatten::<A, (U0, (U0, U0))>::LAYOUT, "(2,(3,4)):(1,(2,6))"),
            ("with a shape", WithShape::<RowMajor<(U4, U6)>, (U2, U12)>::LAYOUT, "(2,(2,6)):(6,(12,1))"),
            ("compact", CompactLike::<Strided<(U4, U8), (U100, U2)>>::LAYOUT, "(4,8):(8,1)"),
            ("fragment", FragmentLike::<Strided<(U4, U8), (U100, U2)>>::LAYOUT, "(4,8):(1,4)"),
            ("ordered", Ordered::<(U3, U4), (U1, U0)>::LAYOUT, "(3,4):(4,1)"),
            ("spread", DomainDistribute::<(U4, U6, U8), U8>::LAYOUT, "8:1"),
        ] {
            assert_eq!(got.to_string(), want, "{why}");
        }
    }
}
