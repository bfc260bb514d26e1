//! Divides and products of layout types.

use core::marker::PhantomData;

use super::operation::{Operation, Refused, operations};
use super::{StaticLayout, StaticTiler, StaticTuple, refuse};
use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;
use crate::sentence::Sentence;

operations! {
    /// A in tiles that B picks: [`Layout::logical_divide`].
    LogicalDivide<A: StaticLayout, B: StaticLayout> = A::LAYOUT.logical_divide(&B::LAYOUT),
        Sentence::new().text("cannot divide ").layout(&A::LAYOUT).text(" by ").layout(&B::LAYOUT);

    /// A divided into tiles mode by mode: [`Layout::logical_divide_by`].
    LogicalDivideBy<A: StaticLayout, T: StaticTiler> = A::LAYOUT.logical_divide_by(&T::TILER),
        Sentence::new().text("cannot divide ").layout(&A::LAYOUT).text(" by ").tiler(&T::TILER);

    /// A as `((tile, tile, …), (rest, rest, …))`: [`Layout::zipped_divide_by`].
    ZippedDivide<A: StaticLayout, T: StaticTiler> = A::LAYOUT.zipped_divide_by(&T::TILER),
        Sentence::new().text("cannot divide ").layout(&A::LAYOUT).text(" by ").tiler(&T::TILER);

    /// A as `((tile, tile, …), rest, rest, …)`: [`Layout::tiled_divide`].
    TiledDivide<A: StaticLayout, T: StaticTiler> = A::LAYOUT.tiled_divide(&T::TILER),
        Sentence::new().text("cannot divide ").layout(&A::LAYOUT).text(" by ").tiler(&T::TILER);

    /// A as `(tile, tile, …, rest, rest, …)`: [`Layout::flat_divide`].
    FlatDivide<A: StaticLayout, T: StaticTiler> = A::LAYOUT.flat_divide(&T::TILER),
        Sentence::new().text("cannot divide ").layout(&A::LAYOUT).text(" by ").tiler(&T::TILER);

    /// Copies of A in the arrangement of B: [`Layout::logical_product`].
    LogicalProduct<A: StaticLayout, B: StaticLayout> = A::LAYOUT.logical_product(&B::LAYOUT),
        Sentence::new().text("cannot repeat ").layout(&A::LAYOUT).text(" over ").layout(&B::LAYOUT);

    /// Copies of A, mode by mode: [`Layout::logical_product_by`].
    LogicalProductBy<A: StaticLayout, T: StaticTiler> = A::LAYOUT.logical_product_by(&T::TILER),
        Sentence::new().text("cannot repeat ").layout(&A::LAYOUT).text(" over ").tiler(&T::TILER);

    /// Copies as `((block, block, …), (copies, copies, …))`: [`Layout::zipped_product`].
    ZippedProduct<A: StaticLayout, T: StaticTiler> = A::LAYOUT.zipped_product(&T::TILER),
        Sentence::new().text("cannot repeat ").layout(&A::LAYOUT).text(" over ").tiler(&T::TILER);

    /// Copies as `((block, block, …), copies, copies, …)`: [`Layout::tiled_product`].
    TiledProduct<A: StaticLayout, T: StaticTiler> = A::LAYOUT.tiled_product(&T::TILER),
        Sentence::new().text("cannot repeat ").layout(&A::LAYOUT).text(" over ").tiler(&T::TILER);

    /// Copies as `(block, block, …, copies, copies, …)`: [`Layout::flat_product`].
    FlatProduct<A: StaticLayout, T: StaticTiler> = A::LAYOUT.flat_product(&T::TILER),
        Sentence::new().text("cannot repeat ").layout(&A::LAYOUT).text(" over ").tiler(&T::TILER);

    /// The block A repeated over the grid B, mode by mode: [`Layout::blocked_product`].
    BlockedProduct<A: StaticLayout, B: StaticLayout> = A::LAYOUT.blocked_product(&B::LAYOUT),
        Sentence::new().text("cannot repeat the block ").layout(&A::LAYOUT).text(" over the grid ").layout(&B::LAYOUT);

    /// The block A repeated over the grid B, mode by mode and interleaved: [`Layout::raked_product`].
    RakedProduct<A: StaticLayout, B: StaticLayout> = A::LAYOUT.raked_product(&B::LAYOUT),
        Sentence::new().text("cannot rake the block ").layout(&A::LAYOUT).text(" over the grid ").layout(&B::LAYOUT);

    /// The block A repeated until it fills a shape, along the modes in the given order:
    /// [`Layout::tile_to_shape`].
    TileToShape<A: StaticLayout, Shape: StaticTuple, Order: StaticTuple> =
        fill(&A::LAYOUT, &Shape::TUPLE, &Order::TUPLE),
        Sentence::new()
            .text("cannot fill ")
            .tuple(&Shape::TUPLE)
            .text(" in the order ")
            .tuple(&Order::TUPLE)
            .text(" with ")
            .layout(&A::LAYOUT);
}

const fn fill(block: &Layout, shape: &IntTuple, order: &IntTuple) -> Result<Layout, LayoutError> {
    let (mut extents, mut modes) = ([0; MAX_LEAVES], [0; MAX_LEAVES]);
    let mut i = 0;
    while i < shape.rank() {
        extents[i] = ok!(shape.mode(i).product());
        i += 1;
    }
    let mut k = 0;
    while k < order.rank() {
        let mode = ok!(order.mode(k).product());
        modes[k] = if mode < 0 { usize::MAX } else { mode as usize };
        k += 1;
    }
    block.tile_to_shape(extents.split_at(i).0, modes.split_at(k).0)
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnMajor, Keep, RowMajor, Strided};
    use super::*;
    use std::string::ToString;
    use typenum::{U0, U1, U2, U3, U4, U5, U6, U8, U9, U13, U32, U59};

    type Matrix = Strided<(U9, (U4, U8)), (U59, (U13, U1))>;
    type Tile = (Strided<U3, U3>, Strided<(U2, U4), (U1, U8)>);

    #[test]
    fn constants_are_those_of_the_value_operations() {
        type Rows = RowMajor<(U4, U6)>;
        type Half = Strided<U2, U2>;
        type Block = RowMajor<(U2, U5)>;
        type Grid = ColumnMajor<(U3, U4)>;
        let [rows, half, block, grid] = [Rows::LAYOUT, Half::LAYOUT, Block::LAYOUT, Grid::LAYOUT];
        for (why, got, want) in [
            ("divide", LogicalDivide::<Rows, Half>::LAYOUT, rows.logical_divide(&half)),
            (
                "product",
                LogicalProduct::<Half, Strided<U4, U1>>::LAYOUT,
                half.logical_product(&Layout::leaf(4, 1)),
            ),
            ("blocked product", BlockedProduct::<Block, Grid>::LAYOUT, block.blocked_product(&grid)),
            ("raked product", RakedProduct::<Block, Grid>::LAYOUT, block.raked_product(&grid)),
            (
                "filled shape",
                TileToShape::<Block, (U4, U5), (U1, U0)>::LAYOUT,
                block.tile_to_shape(&[4, 5], &[1, 0]),
            ),
        ] {
            assert_eq!(Ok(got), want, "{why}");
        }
        let nested =
            super::super::Compose::<Rows, LogicalDivide<ColumnMajor<typenum::U24>, Strided<U2, U4>>>::LAYOUT;
        assert_eq!(nested.size(), 24, "combinators nest");
    }

    #[test]
    fn tilers_are_tuples_of_layouts_extents_and_gaps() {
        for (why, got, want) in [
            (
                "logical",
                LogicalDivideBy::<Matrix, Tile>::LAYOUT,
                "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))",
            ),
            (
                "zipped",
                ZippedDivide::<Matrix, Tile>::LAYOUT,
                "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))",
            ),
            ("tiled", TiledDivide::<Matrix, Tile>::LAYOUT, "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"),
            ("flat", FlatDivide::<Matrix, Tile>::LAYOUT, "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))"),
            (
                "extents",
                TiledDivide::<ColumnMajor<(U32, U8)>, (U8, U4)>::LAYOUT,
                "((8,4),4,2):((1,32),8,128)",
            ),
            ("a gap", ZippedDivide::<ColumnMajor<(U4, U6)>, (Keep, U3)>::LAYOUT, "((3),(4,2)):((4),(1,12))"),
            (
                "copies",
                FlatProduct::<RowMajor<(U2, U5)>, (Strided<U3, U5>, Strided<U4, U6>)>::LAYOUT,
                "(2,5,3,4):(5,1,10,30)",
            ),
        ] {
            assert_eq!(got.to_string(), want, "{why}");
        }
    }
}
