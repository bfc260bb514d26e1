//! Operations on layouts as types.

use core::marker::PhantomData;

use typenum::Unsigned;

use super::{StaticLayout, refuse};
use crate::error::LayoutError;
use crate::layout::Layout;
use crate::sentence::Sentence;

/// `A o B`: [`Layout::composition`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Compose<A, B>(PhantomData<(A, B)>);

impl<A: StaticLayout, B: StaticLayout> StaticLayout for Compose<A, B> {
    const LAYOUT: Layout =
        settle(A::LAYOUT.composition(&B::LAYOUT), ["cannot compose ", " with "], &A::LAYOUT, &B::LAYOUT);
}

/// A in tiles that B picks: [`Layout::logical_divide`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LogicalDivide<A, B>(PhantomData<(A, B)>);

impl<A: StaticLayout, B: StaticLayout> StaticLayout for LogicalDivide<A, B> {
    const LAYOUT: Layout =
        settle(A::LAYOUT.logical_divide(&B::LAYOUT), ["cannot divide ", " by "], &A::LAYOUT, &B::LAYOUT);
}

/// Copies of A as B arranges them: [`Layout::logical_product`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LogicalProduct<A, B>(PhantomData<(A, B)>);

impl<A: StaticLayout, B: StaticLayout> StaticLayout for LogicalProduct<A, B> {
    const LAYOUT: Layout =
        settle(A::LAYOUT.logical_product(&B::LAYOUT), ["cannot repeat ", " over "], &A::LAYOUT, &B::LAYOUT);
}

/// The block A over the grid B, mode by mode: [`Layout::blocked_product`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockedProduct<A, B>(PhantomData<(A, B)>);

impl<A: StaticLayout, B: StaticLayout> StaticLayout for BlockedProduct<A, B> {
    const LAYOUT: Layout = settle(
        A::LAYOUT.blocked_product(&B::LAYOUT),
        ["cannot repeat the block ", " over the grid "],
        &A::LAYOUT,
        &B::LAYOUT,
    );
}

/// What A leaves out up to N: [`Layout::complement`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Complement<A, N>(PhantomData<(A, N)>);

impl<A: StaticLayout, N: Unsigned> StaticLayout for Complement<A, N> {
    const LAYOUT: Layout = match A::LAYOUT.complement(N::I64) {
        Ok(layout) => layout,
        Err(error) => {
            let tried = Sentence::new().layout(&A::LAYOUT).text(" has no complement up to ").number(N::I64);
            refuse(tried.text(": "), &error)
        }
    };
}

/// A with as few leaves as it takes: [`Layout::coalesce`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Coalesce<A>(PhantomData<A>);

impl<A: StaticLayout> StaticLayout for Coalesce<A> {
    const LAYOUT: Layout = A::LAYOUT.coalesce();
}

/// The result, or the end of the build with the words around both layouts.
#[track_caller]
const fn settle(result: Result<Layout, LayoutError>, words: [&str; 2], a: &Layout, b: &Layout) -> Layout {
    match result {
        Ok(layout) => layout,
        Err(error) => {
            let tried = Sentence::new().text(words[0]).layout(a).text(words[1]).layout(b);
            refuse(tried.text(": "), &error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnMajor, RowMajor, Strided};
    use super::*;
    use typenum::{U1, U2, U3, U4, U5, U6, U8, U24};

    #[test]
    fn constants_are_those_of_the_value_operations() {
        type A = Strided<(U6, U2), (U8, U2)>;
        type B = Strided<(U4, U3), (U3, U1)>;
        type Rows = RowMajor<(U4, U6)>;
        type Half = Strided<U2, U2>;
        type Block = RowMajor<(U2, U5)>;
        type Grid = ColumnMajor<(U3, U4)>;
        type Gaps = Strided<(U2, U2), (U1, U6)>;
        let [a, b, rows, half] = [A::LAYOUT, B::LAYOUT, Rows::LAYOUT, Half::LAYOUT];
        let [block, grid, gaps] = [Block::LAYOUT, Grid::LAYOUT, Gaps::LAYOUT];
        for (why, got, want) in [
            ("composition", Compose::<A, B>::LAYOUT, a.composition(&b)),
            ("divide", LogicalDivide::<Rows, Half>::LAYOUT, rows.logical_divide(&half)),
            (
                "product",
                LogicalProduct::<Half, Strided<U4, U1>>::LAYOUT,
                half.logical_product(&Layout::leaf(4, 1)),
            ),
            ("blocked product", BlockedProduct::<Block, Grid>::LAYOUT, block.blocked_product(&grid)),
            ("complement", Complement::<Gaps, U24>::LAYOUT, gaps.complement(24)),
            ("coalesce", Coalesce::<ColumnMajor<(U8, U3)>>::LAYOUT, Ok(Layout::leaf(24, 1))),
        ] {
            assert_eq!(Ok(got), want, "{why}");
        }
        let nested = Compose::<Rows, LogicalDivide<ColumnMajor<U24>, Strided<U2, U4>>>::LAYOUT;
        assert_eq!(nested.size(), 24, "combinators nest");
    }
}
