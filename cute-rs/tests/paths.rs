//! Tests that three ways to compute a layout agree: as a type, whose constant the compiler computes; as a
//! value, computed at run time from numbers that the compiler does not know; and as text.

use std::hint::black_box;

use cute_rs::expr::evaluate;
use cute_rs::typenum::{N1, U0, U1, U2, U3, U4, U5, U6, U8, U9, U12, U13, U16, U24, U32, U59, U64};
use cute_rs::types::*;
use cute_rs::{
    CoordLayout, IntTuple, Layout, LayoutError, StaticComposed, StaticCoords, StaticLayout, Swizzle, Tiler,
};

type Rows = RowMajor<(U4, U6)>;
type Nested = Strided<(U2, (U1, U6)), (U1, (U6, U2))>;
type Pad = Strided<(U4, U3, U2), (U1, U0, U4)>;
type Matrix = Strided<(U9, (U4, U8)), (U59, (U13, U1))>;
type Tile = (Strided<U3, U3>, Strided<(U2, U4), (U1, U8)>);
type Block = RowMajor<(U2, U5)>;
type Grid = ColumnMajor<(U3, U4)>;
type Modes = ColumnMajor<(U2, U3, U4)>;
type Four = Strided<U4, U9>;
type Pairs = Strided<((U2, U3), (U4, U5), U6), ((U1, U2), (U6, U24), U0)>;

const ROWS: &str = "(4,6):(6,1)";
const NESTED: &str = "(2,(1,6)):(1,(6,2))";
const PAD: &str = "(4,3,2):(1,0,4)";
const MATRIX: &str = "(9,(4,8)):(59,(13,1))";
const BLOCK: &str = "(2,5):(5,1)";
const MODES: &str = "(2,3,4):(1,2,6)";

/// A layout whose numbers the compiler does not know.
fn dynamic(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
    Layout::new(black_box(shape.into()), black_box(stride.into())).expect("a layout")
}

type Outcome = Result<Layout, LayoutError>;

#[test]
fn types_values_and_texts_agree() {
    let (rows, nested) = (dynamic((4, 6), (6, 1)), dynamic((2, (1, 6)), (1, (6, 2))));
    let (pad, matrix) = (dynamic((4, 3, 2), (1, 0, 4)), dynamic((9, (4, 8)), (59, (13, 1))));
    let (block, grid) = (dynamic((2, 5), (5, 1)), dynamic((3, 4), (1, 3)));
    let (modes, four) = (dynamic((2, 3, 4), (1, 2, 6)), dynamic(4, 9));
    let pairs = dynamic(((2, 3), (4, 5), 6), ((1, 2), (6, 24), 0));
    let (three, eight) = (dynamic(3, 3), dynamic((2, 4), (1, 8)));
    let tilers = [Tiler::By(&three), Tiler::By(&eight)];
    let tile = Tiler::Modes(&tilers);
    let (five, six) = (dynamic(3, 5), dynamic(4, 6));
    let copies = [Tiler::By(&five), Tiler::By(&six)];
    let copies = Tiler::Modes(&copies);
    let profile = black_box(IntTuple::from((1, 1)));
    let call = |name: &str, rest: &str| format!("{name}({rest})");
    let cases: Vec<(Layout, Outcome, String)> = vec![
        (Rows::LAYOUT, Layout::row_major((4, 6).into()), call("row_major", "(4,6)")),
        (Grid::LAYOUT, Layout::column_major((3, 4).into()), call("column_major", "(3,4)")),
        (
            Ordered::<(U3, U4), (U1, U0)>::LAYOUT,
            Layout::ordered((3, 4).into(), &(1, 0).into()),
            call("make_ordered_layout", "(3,4), (1,0)"),
        ),
        (CompactLike::<Pad>::LAYOUT, pad.compact_like(), call("make_layout_like", PAD)),
        (FragmentLike::<Rows>::LAYOUT, rows.fragment_like(), call("make_fragment_like", ROWS)),
        (
            DomainDistribute::<(U3, U8), U4>::LAYOUT,
            Layout::domain_distribute((3, 8).into(), 4),
            call("domain_distribute", "(3,8), 4"),
        ),
        (
            Concat::<(Rows, Four)>::LAYOUT,
            Layout::concat(&[rows, four]),
            call("make_layout", &format!("{ROWS}, 4:9")),
        ),
        // Edits.
        (Mode::<Matrix, U1>::LAYOUT, Ok(matrix.mode(1)), call("get", &format!("{MATRIX}, 1"))),
        (Append::<Rows, Four>::LAYOUT, rows.append(&four), call("append", &format!("{ROWS}, 4:9"))),
        (Prepend::<Rows, Four>::LAYOUT, rows.prepend(&four), call("prepend", &format!("{ROWS}, 4:9"))),
        (Insert::<Rows, U1, Four>::LAYOUT, rows.insert(1, &four), call("insert", &format!("{ROWS}, 1, 4:9"))),
        (Remove::<Modes, U1>::LAYOUT, modes.remove(1), call("remove", &format!("{MODES}, 1"))),
        (
            Replace::<Rows, U1, Four>::LAYOUT,
            rows.replace(1, &four),
            call("replace", &format!("{ROWS}, 1, 4:9")),
        ),
        (Padded::<Rows, U4>::LAYOUT, rows.padded(4), call("padded", &format!("{ROWS}, 4"))),
        (Wrap::<Four>::LAYOUT, four.wrap(), call("wrap", "4:9")),
        (Group::<Modes, U0, U2>::LAYOUT, modes.group(0, 2), call("group", &format!("{MODES}, 0, 2"))),
        (Take::<Modes, U1, U3>::LAYOUT, modes.take(1, 3), call("take", &format!("{MODES}, 1, 3"))),
        (Select::<Modes, (U2, U0)>::LAYOUT, modes.select(&[2, 0]), call("select", &format!("{MODES}, 2, 0"))),
        (Flatten::<Matrix>::LAYOUT, Ok(matrix.flatten()), call("flatten", MATRIX)),
        (
            Unflatten::<Modes, (U0, (U0, U0))>::LAYOUT,
            modes.unflatten(&(0, (0, 0)).into()),
            call("unflatten", &format!("{MODES}, (0,(0,0))")),
        ),
        (Reverse::<Matrix>::LAYOUT, Ok(matrix.reverse()), call("reverse", MATRIX)),
        (Zip::<Block, Grid>::LAYOUT, block.zip(&grid), call("zip", &format!("{BLOCK}, (3,4)"))),
        (TileUnzip::<Pairs, U2>::LAYOUT, pairs.tile_unzip(2), call("tile_unzip", &format!("{pairs}, 2"))),
        (
            WithShape::<Rows, (U2, U12)>::LAYOUT,
            rows.with_shape((2, 12).into()),
            call("with_shape", &format!("{ROWS}, (2,12)")),
        ),
        (
            Slice::<Rows, (U2, Keep)>::LAYOUT,
            rows.slice(&[Some(2), None]).map(|part| part.0),
            call("slice", &format!("(2,_), {ROWS}")),
        ),
        (
            Dice::<Rows, (U2, Keep)>::LAYOUT,
            rows.dice(&[Some(2), None]),
            call("dice", &format!("(2,_), {ROWS}")),
        ),
        // Coalescing and other operations that keep the function.
        (Coalesce::<Nested>::LAYOUT, Ok(nested.coalesce()), call("coalesce", NESTED)),
        (CoalesceX::<Nested>::LAYOUT, Ok(nested.coalesce_x()), call("coalesce_x", NESTED)),
        (
            CoalesceBy::<Nested, (U1, U1)>::LAYOUT,
            nested.coalesce_by(&profile),
            call("coalesce", &format!("{NESTED}, (1,1)")),
        ),
        (Filter::<Pad>::LAYOUT, Ok(pad.filter()), call("filter", PAD)),
        (FilterZeros::<Pad>::LAYOUT, Ok(pad.filter_zeros()), call("filter_zeros", PAD)),
        (
            FilterBy::<Pad, (U1, U1)>::LAYOUT,
            pad.filter_by(&profile),
            call("filter", &format!("{PAD}, (1,1)")),
        ),
        // Compositions and inverses.
        (
            Compose::<Matrix, Strided<(U4, U9), (U9, U1)>>::LAYOUT,
            matrix.composition(&dynamic((4, 9), (9, 1))),
            call("composition", &format!("{MATRIX}, (4,9):(9,1)")),
        ),
        (
            Compose::<Rows, Strided<U4, N1>>::LAYOUT,
            rows.composition(&dynamic(4, -1)),
            call("composition", &format!("{ROWS}, 4:-1")),
        ),
        (
            ComposeBy::<Matrix, Tile>::LAYOUT,
            matrix.composition_by(&tile),
            call("composition", &format!("{MATRIX}, <3:3,(2,4):(1,8)>")),
        ),
        (
            Complement::<Strided<(U2, U2), (U1, U6)>, U24>::LAYOUT,
            dynamic((2, 2), (1, 6)).complement(24),
            call("complement", "(2,2):(1,6), 24"),
        ),
        (
            ComplementAll::<Strided<(U2, U2), (U1, U6)>>::LAYOUT,
            dynamic((2, 2), (1, 6)).complement_all(),
            call("complement", "(2,2):(1,6)"),
        ),
        (RightInverse::<Rows>::LAYOUT, rows.right_inverse(), call("right_inverse", ROWS)),
        (LeftInverse::<Four>::LAYOUT, four.left_inverse(), call("left_inverse", "4:9")),
        (Nullspace::<Pad>::LAYOUT, pad.nullspace(), call("nullspace", PAD)),
        (
            MaxCommon::<Rows, Strided<(U4, U6), (U8, U1)>>::LAYOUT,
            rows.max_common_layout(&dynamic((4, 6), (8, 1))),
            call("max_common_layout", &format!("{ROWS}, (4,6):(8,1)")),
        ),
        // Tiles.
        (
            LogicalDivide::<Rows, Strided<U2, U2>>::LAYOUT,
            rows.logical_divide(&dynamic(2, 2)),
            call("logical_divide", &format!("{ROWS}, 2:2")),
        ),
        (
            LogicalDivideBy::<Matrix, Tile>::LAYOUT,
            matrix.logical_divide_by(&tile),
            call("logical_divide", &format!("{MATRIX}, <3:3,(2,4):(1,8)>")),
        ),
        (
            ZippedDivide::<Matrix, Tile>::LAYOUT,
            matrix.zipped_divide_by(&tile),
            call("zipped_divide", &format!("{MATRIX}, <3:3,(2,4):(1,8)>")),
        ),
        (
            TiledDivide::<Matrix, Tile>::LAYOUT,
            matrix.tiled_divide(&tile),
            call("tiled_divide", &format!("{MATRIX}, <3:3,(2,4):(1,8)>")),
        ),
        (
            FlatDivide::<Matrix, Tile>::LAYOUT,
            matrix.flat_divide(&tile),
            call("flat_divide", &format!("{MATRIX}, <3:3,(2,4):(1,8)>")),
        ),
        (
            ZippedDivide::<Rows, (Keep, U3)>::LAYOUT,
            rows.zipped_divide_by(&Tiler::Modes(&[Tiler::Keep, Tiler::Shape(&3.into())])),
            call("zipped_divide", &format!("{ROWS}, <_,3>")),
        ),
        // Copies.
        (
            LogicalProduct::<Block, Grid>::LAYOUT,
            block.logical_product(&grid),
            call("logical_product", &format!("{BLOCK}, (3,4)")),
        ),
        (
            LogicalProductBy::<Block, Copies>::LAYOUT,
            block.logical_product_by(&copies),
            call("logical_product", &format!("{BLOCK}, <3:5,4:6>")),
        ),
        (
            ZippedProduct::<Block, Copies>::LAYOUT,
            block.zipped_product(&copies),
            call("zipped_product", &format!("{BLOCK}, <3:5,4:6>")),
        ),
        (
            TiledProduct::<Block, Copies>::LAYOUT,
            block.tiled_product(&copies),
            call("tiled_product", &format!("{BLOCK}, <3:5,4:6>")),
        ),
        (
            FlatProduct::<Block, Copies>::LAYOUT,
            block.flat_product(&copies),
            call("flat_product", &format!("{BLOCK}, <3:5,4:6>")),
        ),
        (
            BlockedProduct::<Block, Grid>::LAYOUT,
            block.blocked_product(&grid),
            call("blocked_product", &format!("{BLOCK}, (3,4)")),
        ),
        (
            RakedProduct::<Block, Grid>::LAYOUT,
            block.raked_product(&grid),
            call("raked_product", &format!("{BLOCK}, (3,4)")),
        ),
        (
            TileToShape::<Block, (U4, U5), (U1, U0)>::LAYOUT,
            block.tile_to_shape(&[4, 5], &[1, 0]),
            call("tile_to_shape", &format!("{BLOCK}, (4,5), (1,0)")),
        ),
        // Elements.
        (
            Upcast::<ColumnMajor<(U32, U8)>, U4>::LAYOUT,
            dynamic((32, 8), (1, 32)).upcast(4),
            call("upcast", "(32,8), 4"),
        ),
        (Downcast::<Rows, U2>::LAYOUT, rows.downcast(2), call("downcast", &format!("{ROWS}, 2"))),
        (Recast::<Rows, U16, U32>::LAYOUT, rows.recast(16, 32), call("recast", &format!("{ROWS}, 16, 32"))),
    ];
    for (constant, value, text) in cases {
        assert_eq!(value.map(|value| value.to_string()), Ok(constant.to_string()), "{text}: the value");
        assert_eq!(
            evaluate(&text).map(|value| value.to_string()),
            Ok(constant.to_string()),
            "{text}: the text"
        );
    }
}

type Copies = (Strided<U3, U5>, Strided<U4, U6>);

#[test]
fn swizzled_and_coordinate_layouts_agree() -> Result<(), LayoutError> {
    type Swizzles = Swizzled<Sw<U3, U3, U3>, RowMajor<(U8, U64)>>;
    let swizzled = Swizzle::new(black_box(3), 3, 3)?.after(dynamic((8, 64), (64, 1)));
    let shape = IntTuple::from((8, 16));
    let tile = Tiler::Shape(&shape);
    let text = "Sw<3,3,3> o (8,64):(64,1)";
    for (constant, value, text) in [
        (Swizzles::COMPOSED, swizzled, text.to_owned()),
        (
            TiledDivide::<Swizzles, (U8, U16)>::COMPOSED,
            swizzled.tiled_divide(&tile)?,
            format!("tiled_divide({text}, <8,16>)"),
        ),
        (
            ZippedDivide::<Swizzles, (U8, U16)>::COMPOSED,
            swizzled.zipped_divide_by(&tile)?,
            format!("zipped_divide({text}, <8,16>)"),
        ),
        (
            Slice::<Swizzles, (U5, Keep)>::COMPOSED,
            swizzled.slice(&[Some(5), None])?,
            format!("slice((5,_), {text})"),
        ),
        (Upcast::<Swizzles, U8>::COMPOSED, swizzled.upcast(8)?, format!("upcast({text}, 8)")),
        (Downcast::<Swizzles, U2>::COMPOSED, swizzled.downcast(2)?, format!("downcast({text}, 2)")),
    ] {
        assert_eq!(value, constant, "{text}: the value");
        assert_eq!(
            evaluate(&text).map(|value| value.to_string()),
            Ok(constant.to_string()),
            "{text}: the text"
        );
    }
    let identity = CoordLayout::identity(black_box(IntTuple::from((32, 64))))?;
    let text = "make_identity_layout((32,64))";
    for (constant, value, text) in [
        (Identity::<(U32, U64)>::COORDS, identity, text.to_owned()),
        (
            TiledDivide::<Identity<(U32, U64)>, (U8, U16)>::COORDS,
            identity.tiled_divide(&tile)?,
            format!("tiled_divide({text}, <8,16>)"),
        ),
        (
            Compose::<Identity<(U32, U64)>, Strided<U64, U4>>::COORDS,
            identity.composition(&dynamic(64, 4))?,
            format!("composition({text}, 64:4)"),
        ),
    ] {
        assert_eq!(value, constant, "{text}: the value");
        assert_eq!(
            evaluate(&text).map(|value| value.to_string()),
            Ok(constant.to_string()),
            "{text}: the text"
        );
    }
    Ok(())
}
