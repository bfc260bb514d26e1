//! Tests of layout expressions: results are those of CuTe's documentation, errors point at the right
//! characters, and no text panics.

use cute_rs::expr::{ExprError, Value, evaluate, operations};
use cute_rs::{Basis, ComposedLayout, CoordLayout, IntTuple, Layout, Swizzle};
use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence};

#[test]
fn values() {
    for (why, source, want) in [
        ("a layout", "(4,(2,3)) : (1,(4,8))", "(4,(2,3)):(1,(4,8))"),
        ("a bare shape is column-major", "(4,(2,3))", "(4,(2,3)):(1,(4,8))"),
        ("a bare integer, too", "8", "8:1"),
        ("a rank of one is kept", "(8):(-3)", "(8):(-3)"),
        ("the layout without modes", "():()", "():()"),
        ("static integers as CuTe prints them", "(_4,_8):(_1,_-4)", "(4,8):(1,-4)"),
        ("a shape in a call is a layout", "coalesce((4,8))", "32:1"),
        ("numbers of a shape", "size((4,8))", "32"),
        ("a tuple that is computed stays one", "shape((4,8):(8,1))", "(4,8)"),
        ("and can be used again", "shape((4,8):(8,1)):stride((4,8))", "(4,8):(1,4)"),
        ("layouts side by side", "(4:2, (3,2):(8,24))", "(4,(3,2)):(2,(8,24))"),
        ("a swizzle", "Sw<3, 4, 3>", "Sw<3,4,3>"),
        ("a composed layout", "Sw<3,4,3> o 16 o (8,8):(8,1)", "Sw<3,4,3> o 16 o (8,8):(8,1)"),
        ("an offset of zero may be left out", "Sw<3,4,3> o (8,8):(8,1)", "Sw<3,4,3> o 0 o (8,8):(8,1)"),
        ("`o` composes layouts", "(6,2):(8,2) o (4,3):(3,1)", "((2,2),3):((24,2),8)"),
        ("as does the sign", "20:2 ∘ (5,4):(4,1)", "(5,4):(8,2)"),
        ("`o` is right-associative", "64:1 o 8:2 o 4:2", "4:4"),
        ("calls nest", "size(complement(composition(24:1, 4:2), 24))", "6"),
        ("lines and spaces do not matter", " composition (\n\t20:2 ,\n\t(4,5):(1,4) ) ", "(4,5):(2,8)"),
    ] {
        assert_eq!(evaluate(source).map(|v| v.to_string()), Ok(want.into()), "{why}");
    }
}

#[test]
fn operations_as_cute_documents_them() {
    for (source, want) in [
        ("coalesce((2,(1,6)):(1,(6,2)))", "12:1"),
        ("composition((10,2):(16,4), (5,4):(1,5))", "(5,(2,2)):(16,(80,4))"),
        ("composition((12,(4,8)):(59,(13,1)), <3:4,8:2>)", "(3,(2,4)):(236,(26,1))"),
        ("composition((12,(4,8)):(59,(13,1)), <3,8>)", "(3,(4,2)):(59,(13,1))"),
        ("complement(4:1, 24)", "6:4"),
        ("complement(6:4, 24)", "4:1"),
        ("complement((4,6):(1,4), 24)", "1:0"),
        ("complement(4:2, 24)", "(2,3):(1,8)"),
        ("complement((2,4):(1,6), 24)", "3:2"),
        ("complement((2,2):(1,6), 24)", "(3,2):(2,12)"),
        ("logical_divide((4,2,3):(2,1,8), 4:2)", "((2,2),(2,3)):((4,1),(2,8))"),
        (
            "logical_divide((9,(4,8)):(59,(13,1)), <3:3,(2,4):(1,8)>)",
            "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))",
        ),
        (
            "zipped_divide((9,(4,8)):(59,(13,1)), <3:3,(2,4):(1,8)>)",
            "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))",
        ),
        ("zipped_divide((8,6):(6,1), <4,_>)", "((4),(2,6)):((6),(24,1))"),
        ("local_tile((8,6):(6,1), <4,2>, (1,2))", "Sw<0,0,0> o 28 o (4,2):(6,1)"),
        ("local_tile((8,6):(6,1), <4,2>, (0,_))", "(4,2,3):(6,1,2)"),
        ("local_tile((8,6):(6,1), <4,2>, 5)", "Sw<0,0,0> o 28 o (4,2):(6,1)"),
        ("inner_partition(Sw<1,0,3> o 8 o (8,8):(8,1), <4,2>, (1,0))", "Sw<1,0,3> o 40 o (4,2):(8,1)"),
        ("outer_partition((8,6):(6,1), <4,2>, (3,1))", "Sw<0,0,0> o 19 o (2,3):(24,2)"),
        ("local_partition((8,6):(6,1), (2,2):(2,1), 3)", "Sw<0,0,0> o 7 o (4,3):(12,2)"),
        ("zipped_divide((4,2,3):(2,1,8), 4:2)", "((2,2),(2,3)):((4,1),(2,8))"),
        ("tiled_divide((8,6):(6,1), <4,2>)", "((4,2),2,3):((6,1),24,2)"),
        ("tiled_divide((8,6):(6,1), <4>)", "((4),2,6):((6),24,1)"),
        ("flat_divide((8,6):(6,1), <4,2>)", "(4,2,2,3):(6,1,24,2)"),
        ("logical_divide((8,6):(6,1), <4,_>)", "((4,2),6):((6,24),1)"),
        ("logical_divide((8,(6,4)), <_,<2,_>>)", "(8,((2,3),4)):(1,((8,16),48))"),
        ("filter((2,4,3):(0,1,4))", "12:1"),
        ("raked_product((2,5):(5,1), (3,4):(1,3))", "((3,2),(4,5)):((10,5),(30,1))"),
        ("logical_product((2,2):(4,1), 6:1)", "((2,2),(2,3)):((4,1),(2,8))"),
        ("logical_product((2,2):(4,1), (4,2):(2,1))", "((2,2),(4,2)):((4,1),(8,2))"),
        ("blocked_product((2,5):(5,1), (3,4):(1,3))", "((2,3),(5,4)):((5,10),(1,30))"),
        (
            "tile_to_shape(Sw<3,3,3> o 0 o (8,64):(64,1), (128,128), (2,1))",
            "Sw<3,3,3> o 0 o ((8,16),(64,2)):((64,1024),(1,512))",
        ),
        ("right_inverse((4,8):(8,1))", "(8,4):(4,1)"),
        ("left_inverse((4,3):(1,8))", "(4,2,3):(1,12,4)"),
        ("slice((2,_), (4,8):(8,1))", "(8):(1)"),
        ("slice((4,8):(8,1), (_,3))", "(4):(8)"),
        ("slice((2,_), Sw<3,0,3> o 0 o (8,8):(8,1))", "Sw<3,0,3> o 16 o (8):(1)"),
        ("slice((_,(1,_)), (3,(2,3)):(3,(12,1)))", "(3,3):(3,1)"),
        ("slice((_,(1,_)), Sw<0,0,0> o 0 o (3,(2,3)):(3,(12,1)))", "Sw<0,0,0> o 12 o (3,3):(3,1)"),
        ("slice(_, (4,8):(8,1))", "(4,8):(8,1)"),
        ("slice((1,2), (4,8):(8,1))", "():()"),
        ("dice((1,_), (4,8):(8,1))", "(4):(8)"),
        ("dice((1,2), (4,8):(8,1))", "(4,8):(8,1)"),
        ("take((2,3,4), 1, 3)", "(3,4):(2,6)"),
        ("select((2,3,4), 2, 0)", "(4,2):(6,1)"),
        ("append((2,3), 4:9)", "(2,3,4):(1,2,9)"),
        ("prepend((2,3), 4:9)", "(4,2,3):(9,1,2)"),
        ("replace((2,3), 1, 4:9)", "(2,4):(1,9)"),
        ("reverse((2,3))", "(3,2):(2,1)"),
        ("zip((2,4), (3,5):(8,24))", "((2,3),(4,5)):((1,8),(2,24))"),
        ("with_shape((4,6):(6,1), (2,12))", "(2,(2,6)):(6,(12,1))"),
        ("make_ordered_layout((3,(2,4)), (2,(3,1)))", "(3,(2,4)):(4,(12,1))"),
        ("make_layout_like((4,8):(100,2))", "(4,8):(8,1)"),
        ("shape_div((3,6,2,8), 9)", "(1,2,2,8)"),
        ("ceil_div((1000,512), (128,256))", "(8,2)"),
        ("at((4,8):(8,1), (2,3))", "19"),
        ("crd2idx((2,(1,3)), (4,(2,4)):(2,(1,8)))", "29"),
        ("idx2crd(23, (4,(2,4)))", "(3,(1,2))"),
        ("group((2,3,5,7), 1, 3)", "(2,(3,5),7):(1,(2,6),30)"),
        ("get((2,(3,5)):(1,(2,6)), 1)", "(3,5):(2,6)"),
        ("flatten((2,(3,5)):(1,(2,6)))", "(2,3,5):(1,2,6)"),
        ("row_major((2,3))", "(2,3):(3,1)"),
        ("cosize((4,8):(1,16))", "116"),
        ("cosize(Sw<2,0,3> o 1 o (4,8):(1,16))", "128"),
        ("cosize(Sw<0,0,0> o 1 o (4,8):(1,16))", "117"),
        ("flat_divide((8,(6,4)), <_,<2,_>>)", "((2),8,(3,4)):((8),1,(16,48))"),
        ("coalesce((2,(1,6)):(1,(6,2)), (1,1))", "(2,6):(1,2)"),
        ("coalesce_x((4,1):(1,10))", "(4,1):(1,10)"),
        ("filter((4,3,2):(1,0,4), (1,1,1))", "(4,1,2):(1,0,4)"),
        ("filter_zeros((4,3,2):(1,0,4))", "(4,1,2):(1,0,4)"),
        ("unflatten((2,3,4), (0,(0,0)))", "(2,(3,4)):(1,(2,6))"),
        ("wrap(8:2)", "(8):(2)"),
        ("insert((2,3), 1, 4:9)", "(2,4,3):(1,9,2)"),
        ("remove((2,3,4), 1)", "(2,4):(1,6)"),
        ("padded((2,3), 4)", "(2,3,1,1):(1,2,0,0)"),
        ("tile_unzip(((2,3),(4,5),6):((1,2),(6,24),120), 2)", "((2,4),(3,5,6)):((1,6),(2,24,120))"),
        ("get((2,(3,5)):(1,(2,6)), 1, 0)", "3:2"),
        ("make_fragment_like(((2,2),4,3):((8,1),64,16))", "((2,2),4,3):((1,2),12,4)"),
        ("domain_distribute((3,8), 4)", "4:3"),
        ("domain_offset((1,2), Sw<2,0,3> o (4,8):(8,1))", "Sw<2,0,3> o 10 o (4,8):(8,1)"),
        ("domain_offset((1,2), (4,8):(8,1))", "Sw<0,0,0> o 10 o (4,8):(8,1)"),
        ("nullspace((4,3):(1,0))", "3:4"),
        ("max_common_layout((4,8):(8,1), (4,8):(12,1))", "8:4"),
        ("max_common_vector((4,8):(8,1), (4,8):(12,1))", "8"),
        ("max_common_vector(Sw<3,3,3> o (8,64):(64,1), (8,64):(64,1))", "8"),
        ("max_common_layout(Sw<3,3,3> o (8,64):(64,1), (8,64):(64,1))", "8:8"),
        ("max_common_vector(Sw<3,3,3> o (8,64):(64,1), Sw<2,2,3> o (8,64):(64,1))", "4"),
        ("right_inverse(Sw<2,0,2> o 0 o (4,4):(4,1))", "(4,4):(4,1) o 0 o Sw<2,0,2>"),
        ("left_inverse(Sw<2,0,2> o 16 o (4,4):(4,1))", "(4,4):(4,1) o -16 o Sw<2,0,2>"),
        ("at(left_inverse(Sw<2,0,2> o 16 o (4,4):(4,1)), at(Sw<2,0,2> o 16 o (4,4):(4,1), 7))", "7"),
        ("(4,4):(4,1) o -16 o Sw<2,0,2>", "(4,4):(4,1) o -16 o Sw<2,0,2>"),
        ("right_inverse(Sw<2,0,2>)", "Sw<2,0,2>"),
        ("composition(Sw<1,0,3>, Sw<1,1,3>)", "Sw<2,0,3>"),
        ("composition(Sw<2,0,3>, (4,8):(8,1))", "Sw<2,0,3> o 0 o (4,8):(8,1)"),
        ("composition(Sw<2,0,3>, 16, (4,8):(8,1))", "Sw<2,0,3> o 16 o (4,8):(8,1)"),
        ("Sw<1,0,3> o Sw<1,1,3> o (4,8)", "Sw<2,0,3> o 0 o (4,8):(1,4)"),
        ("logical_product(Sw<2,0,3> o (8,4):(4,1), 2:1)", "Sw<2,0,3> o 0 o ((8,4),2):((4,1),32)"),
        ("max_alignment((8,4):(1,12))", "4"),
        ("upcast((64,4):(1,128), 4)", "(16,4):(1,32)"),
        ("downcast((16,4):(1,32), 4)", "(64,4):(1,128)"),
        ("recast(Sw<3,4,3> o (8,128):(128,1), 8, 16)", "Sw<3,3,3> o 0 o (8,64):(64,1)"),
        ("logical_product((2,2), <2:1,_>)", "((2,2),2):((1,2),2)"),
        ("zipped_product((2,4), <2,4>)", "((2,4),(2,(2,2))):((1,2),(2,(1,8)))"),
        ("tiled_product((2,4), <2,4>)", "((2,4),2,(2,2)):((1,2),2,(1,8))"),
        ("flat_product((2,4), <2,4>)", "(2,4,2,(2,2)):(1,2,2,(1,8))"),
        ("crd2crd((1,5), (3,6), (9,2))", "(7,1)"),
        ("get_hier_coord(19, (4,8):(8,1))", "(2,3)"),
        ("get_1d_coord(19, (4,8):(8,1))", "14"),
        ("product((2,(3,4)))", "24"),
        ("product_each((2,(3,4)))", "(2,12)"),
        ("product_like((2,(3,4)), (0,0))", "(2,12)"),
        ("prefix_product((2,(3,4)))", "(1,(2,6))"),
        ("sum((2,(3,4)))", "9"),
        ("max((2,(3,4)))", "4"),
        ("min((2,(3,4)))", "2"),
        ("gcd((4,(6,10)))", "2"),
        ("lcm((4,(6,10)))", "60"),
        ("inner_product((1,2), (3,4))", "11"),
        ("elem_add((64,32), (5,6))", "(69,38)"),
        ("elem_scale((1,2), (3,4))", "(3,8)"),
        ("shape_mod((3,6,2,8), 9)", "(3,3,1,1)"),
        ("round_up((1000,500), (128,256))", "(1024,512)"),
        ("congruent((1,(2,3)), (4,(5,6)))", "1"),
        ("weakly_congruent((1,2), (4,(5,6)))", "1"),
        ("compatible((4,6), ((2,2),6))", "1"),
        ("compatible(24, 32)", "0"),
        ("evenly_divides((8,6), (4,3))", "1"),
        ("elem_less((127,0), (128,64))", "1"),
        ("lex_less((1,9), (2,0))", "1"),
        ("colex_less((1,9), (2,0))", "0"),
        ("rank((4,(2,3)))", "2"),
        ("depth((4,(2,3)))", "2"),
    ] {
        assert_eq!(evaluate(source).map(|v| v.to_string()), Ok(want.into()), "{source}");
    }
}

#[test]
fn strides_along_components() {
    for (source, want) in [
        // An identity layout and its tiles.
        ("make_identity_layout((4,(2,3)))", "(4,(2,3)):(1@0,(1@0@1,1@1@1))"),
        ("make_identity_layout(8)", "8:1"),
        ("tiled_divide(make_identity_layout((32,8)), <8,4>)", "((8,4),4,2):((1@0,1@1),8@0,4@1)"),
        ("at(make_identity_layout((4,(2,3))), 17)", "(1,(0,2))"),
        ("at((4,5):(1@1,1@0), (3,4))", "(4,3)"),
        ("shape((4,5):(1@1,1@0))", "(4,5)"),
        ("coshape((4,5):(1@1,64@0))", "(257,4)"),
        ("cosize((4,5):(1@1,64@0))", "1028"),
        ("coshape((4,8):(8,1))", "32"),
        // Both notations of a component; the coarsest profile.
        ("(4,5):(E<1>,E<0,1>)", "(4,5):(1@1,1@1@0)"),
        ("(4,5):(E<0>,E<0,1>)", "a component of which another stride takes a part"),
        ("(4,5):(E<0>,E<1,1>)", "(4,5):(1@0,1@1@1)"),
        ("at((4,5):(E<0>,3@1@1), (3,2))", "(3,(0,6))"),
        ("(2,4):(0@0,2@1)", "(2,4):(0,2@1)"),
        ("(2,4):(0@0,0@1)", "(2,4):(0,0)"),
        // Modes.
        ("(4:1@0, 5:1@1)", "(4,5):(1@0,1@1)"),
        ("make_layout(4:1@0, (5,6):(0,1@1))", "(4,(5,6)):(1@0,(0,1@1))"),
        ("(4:1@0, 5:1)", "a stride of 1 along a component"),
        ("get((4,5):(1@0,1@1), 1)", "5:1@1"),
        ("select((4,5):(1@0,1@1), 1, 0)", "(5,4):(1@1,1@0)"),
        ("group((4,5,6):(1@0,1@1,1@2), 0, 2)", "((4,5),6):((1@0,1@1),1@2)"),
        ("slice((_,2), (4,5):(1@0,1@1))", "(4):(1@0)"),
        ("coalesce((2,4,6):(1@0,2@0,1@1))", "(8,6):(1@0,1@1)"),
        ("coalesce((2,4):(1@0,2@1))", "(2,4):(1@0,2@1)"),
        // Compositions with a coordinate layout on the left and on the right.
        ("composition(make_identity_layout((8,6)), 4:2)", "4:2@0"),
        ("composition((8,16):(16,1), (4,4):(4@1,2@0))", "(4,4):(4,32)"),
        ("(8,16):(16,1) o 4:2@0", "4:32"),
        ("Sw<2,0,3> o (8,16):(16,1) o 4:2@0", "Sw<2,0,3> o 0 o 4:32"),
        ("composition(Sw<2,0,3> o (8,16):(16,1), 4:2@0)", "Sw<2,0,3> o 0 o 4:32"),
        ("(8,16):(1@1,1@0) o (4,2):(1@1,1@0)", "(4,2):(1@0,1@1)"),
        // Operations that have no result for coordinate layouts.
        ("complement((4,5):(1@0,1@1))", "a coordinate layout where a layout or a shape is needed"),
        // Inverses.
        ("right_inverse((4,5):(1@1,1@0))", "(5,4):(4,1)"),
        ("left_inverse((4,5):(2@1,1@0))", "(5,(2,4)):(4,(20,1))"),
        ("left_inverse((4,5):(1@0,1@0))", "stride 1 is no positive multiple of 5"),
        // Parts with their first coordinates.
        ("local_tile((8,12):(1@0,1@1), <4,3>, (1,2))", "(4,6) o (4,3):(1@0,1@1)"),
        ("local_tile((8,12):(1@0,1@1), <4,3>, (1,_))", "(4,0) o (4,3,4):(1@0,1@1,3@1)"),
        ("local_tile((8,12):(1@0,1@1), <4,3>, (0,0))", "(4,3):(1@0,1@1)"),
        (
            "local_partition(local_tile((8,12):(1@0,1@1), <4,3>, (1,2)), (2,3):(1,2), 3)",
            "(5,7) o (2,1):(2@0,0)",
        ),
        ("outer_partition((8,12):(1@0,1@1), <8,12>, (3,5))", "(3,5)"),
        ("at(local_tile((8,12):(1@0,1@1), <4,3>, (1,2)), (3,1))", "(7,7)"),
        ("size((4,6) o (4,3):(1@0,1@1))", "12"),
        ("(4,6) o 4:1@0", "(4,6) o 4:1@0"),
        ("Sw<2,0,3> o 4:1@0", "a coordinate layout where a layout or a shape is needed"),
        ("(4,5):(1@0,(1,1@1))", "are nested differently"),
        ("1@0", "a stride along a component where a value is needed"),
        ("4:1@", "the number of a mode, as in `2@1@0` should follow"),
        ("4:E<>", "found `>` where the number of a mode"),
        ("4:E<0", "where `,` of a component `E<i,j>` should follow"),
        ("4:E", "where `<` of a component"),
        ("4:1@-1", "mode numbers of 0 and more"),
        ("4:1@0@0@0@0@0@0@0", "nested deeper than 6 levels"),
        ("4:1@300", "300 leaves in one tuple"),
        ("4:1@100", "33 leaves in one tuple"),
        ("size(1@0)", "a stride along a component where a layout"),
    ] {
        let got = evaluate(source).map_or_else(|error| error.message().to_owned(), |v| v.to_string());
        let refused = want.contains(' ');
        assert!(if refused { got.contains(want) } else { got == want }, "{source}: {got}");
    }
}

/// An operation whose number leaves 64 bits has no result, and the error names the tuple.
#[test]
fn numbers_beyond_64_bits_are_errors() {
    const HALF: &str = "4611686018427387904";
    const LEAST: &str = "-9223372036854775808";
    for (call, want) in [
        ("product((H,H))", "the product of (H,H) leaves 64 bits; use smaller numbers"),
        ("product((H,H,0))", "0"),
        ("product((H,-2))", "L"),
        ("product_each((2,(H,4)))", "the product of (H,4) leaves 64 bits"),
        ("product_each((H,H))", "(H,H)"),
        ("product_like((2,(H,4)), (0,0))", "the product of (2,(H,4)) leaves 64 bits"),
        ("prefix_product((H,4,1))", "the running product of (H,4,1) leaves 64 bits"),
        ("prefix_product((H,4))", "(1,H)"),
        ("sum((H,H))", "the sum of (H,H) leaves 64 bits"),
        ("sum((H,H,-1))", "9223372036854775807"),
        ("gcd(L)", "the greatest common divisor of L leaves 64 bits"),
        ("gcd((L,6))", "2"),
        ("lcm((H,3))", "the least common multiple of (H,3) leaves 64 bits"),
        ("lcm((H,H,2))", "H"),
        ("lcm((H,3,0))", "0"),
        ("lcm(L)", "the least common multiple of L leaves 64 bits"),
        ("inner_product((H,1), (2,1))", "the inner product of (H,1) and (2,1) leaves 64 bits"),
        ("inner_product((H,H), (2,-1))", "H"),
        ("elem_add((1,H), (1,H))", "the elementwise sum of (1,H) and (1,H) leaves 64 bits"),
        ("elem_scale((1,H), (1,2))", "the elementwise product of (1,H) and (1,2) leaves 64 bits"),
        ("compatible(9223372036854775807, (H,H))", "0"),
        ("evenly_divides((1048576,1048576), 1099511627776)", "1"),
        ("get(4, 0)", "4:1"),
        ("get(4:2, 0)", "4:2"),
        ("get((4,8), 1, 0)", "8:4"),
        ("take(4, 1, 1)", "():()"),
    ] {
        let spelt = |text: &str| text.replace('H', HALF).replace('L', LEAST);
        let got = evaluate(&spelt(call)).map_or_else(|error| error.message().to_owned(), |v| v.to_string());
        let want = spelt(want);
        assert!(if want.contains(' ') { got.contains(&want) } else { got == want }, "{call}: {got}");
    }
}

#[test]
fn errors_point_at_characters() {
    for (source, marked, message) in [
        ("", "", "the expression ends where a layout"),
        ("(4,8", "(", "`(` is never closed by `)`"),
        ("(4,,8)", ",", "found `,` where a layout"),
        ("(4 8)", "8", "found 8 where `,` or `)` should follow"),
        ("4:1 5", "5", "found 5 where the end of the expression"),
        ("4:1:2", ":", "found `:` where the end"),
        ("(4,8):(1", "(", "never closed"),
        ("4x8", "4x8", "`4x8` is not a number"),
        ("99999999999999999999", "99999999999999999999", "does not fit into 64 bits"),
        ("(4,8):(1,%)", "%", "`%` has no meaning here"),
        ("size", "size", "`size` is not a value; an operation is written `size(…)`"),
        ("o 4", "o", "found `o` where a layout"),
        ("Sw<3,4>", ">", "found `>` where `,` of a swizzle"),
        ("Sw<3,4,2>", "Sw<3,4,2>", "choose S of at least B"),
        ("Sw<9,16,9>", "Sw<9,16,9>", "sum is at most 32"),
        ("Sw<-1,4,3>", "Sw<-1,4,3>", "from 0 to 32"),
        ("size(compositon(4,2))", "compositon", "did you mean `composition`?"),
        ("frobnicate(4)", "frobnicate", "there is no operation `frobnicate`; there are append, at, "),
        ("size(4, composition(4))", "composition(4)", "has 1 argument; it is written `composition(A,T)`"),
        ("composition(4:1, Sw<1,0,1>)", "Sw<1,0,1>", "a swizzle where a layout or a shape is needed"),
        ("complement(Sw<1,0,1> o 8:1, 4)", "Sw<1,0,1> o 8:1", "a composed layout where a layout without"),
        ("(4,Sw<1,0,1>)", "Sw<1,0,1>", "where an integer or a tuple of integers is needed"),
        ("<4,2>", "<4,2>", "a tiler where a value is needed"),
        ("(4,_)", "(4,_)", "a tuple with `_` where a value is needed"),
        ("(4,8):(1,(4,8))", "(4,8):(1,(4,8))", "are nested differently; nest the stride"),
        ("size((4,0))", "(4,0)", "shape (4,0) has an extent below 1"),
        ("(4,-8)", "(4,-8)", "has an extent below 1"),
        ("get((4,8), 2)", "get((4,8), 2)", "there is no mode 2 among 2"),
        (
            "max_common_layout(16, 8)",
            "max_common_layout(16, 8)",
            "one layout has 16 elements and the other 8; give both",
        ),
        ("get_hier_coord(33, (4,8):(8,1))", "33", "no coordinate of (4,8):(8,1) was found at offset 33"),
        (
            "coalesce((4,8):(1@0,1@1@0))",
            "(4,8):(1@0,1@1@0)",
            "give all strides along one component the same path",
        ),
        ("(4,8):(1@0,1@x)", "x", "found `x` where the number of a mode"),
        ("at(4:E<0,-1>, 2)", "E<0,-1>", "mode numbers of 0 and more"),
        (
            "size(composition((6,2):(8,2), 4:4))",
            "composition((6,2):(8,2), 4:4)",
            "stride 4 neither divides the extent 6",
        ),
        ("2:1 o (6,2):(8,2) o 4:4", "(6,2):(8,2) o 4:4", "stride 4 neither divides"),
        ("(1000000,1000000,1000000)", "(1000000,1000000,1000000)", "has more than 1099511627776 elements"),
        ("2:1099511627776", "2:1099511627776", "reaches over at most"),
        ("logical_divide((8,8), <4,4,4>)", "logical_divide((8,8), <4,4,4>)", "3 modes where 2"),
        ("get(4, 1)", "get(4, 1)", "there is no mode 1 among 1; name a mode"),
        ("take(4, 3, 1)", "take(4, 3, 1)", "modes 3..1 are no range within 0..1; let the range begin"),
        ("take((2,3,5), 2, 1)", "take((2,3,5), 2, 1)", "modes 2..1 are no range within 0..3"),
        ("take((2,3,5), 1, 4)", "take((2,3,5), 1, 4)", "there is no mode 3 among 3"),
        ("∘", "∘", "found `o` where"),
        ("ä", "ä", "`ä` has no meaning here"),
    ] {
        let error = evaluate(source).expect_err(source);
        assert_eq!(&source[error.span()], marked, "{source}: {error}");
        assert!(error.message().contains(message), "{source}: {error}");
    }
}

#[test]
fn each_kind_is_read_alone() {
    let text = |value: Result<String, ExprError>| value.unwrap_or_else(|error| error.message().to_owned());
    let as_layout = |source: &str| text(source.parse::<Layout>().map(|layout| layout.to_string()));
    let as_tuple = |source: &str| text(source.parse::<IntTuple>().map(|tuple| tuple.to_string()));
    let as_composed = |source: &str| text(source.parse::<ComposedLayout>().map(|layout| layout.to_string()));
    let as_coords = |source: &str| text(source.parse::<CoordLayout>().map(|layout| layout.to_string()));
    let as_swizzle = |source: &str| text(source.parse::<Swizzle>().map(|swizzle| swizzle.to_string()));
    for (why, got, want) in [
        ("a layout", as_layout("(4,8):(8,1)"), "(4,8):(8,1)"),
        ("a shape stands for one", as_layout("(4,8)"), "(4,8):(1,4)"),
        ("a swizzle is none", as_layout("Sw<1,0,1>"), "a swizzle where a layout is needed"),
        ("nor is a size", as_layout("size(4:1)"), "an integer where a layout is needed"),
        ("a tuple", as_tuple("(4,(2,3))"), "(4,(2,3))"),
        ("an integer", as_tuple("size((4,8))"), "32"),
        (
            "a layout is no tuple",
            as_tuple("4:1"),
            "a layout where an integer or a tuple of integers is needed",
        ),
        ("a swizzled layout", as_composed("Sw<1,0,1> o 4:1"), "Sw<1,0,1> o 0 o 4:1"),
        ("a layout without a swizzle", as_composed("4:1"), "Sw<0,0,0> o 0 o 4:1"),
        ("coordinates", as_coords("4:1@0"), "4:1@0"),
        ("offsets are no coordinates", as_coords("4:1"), "a layout where a coordinate layout is needed"),
        ("a swizzle", as_swizzle("Sw<1,0,1>"), "Sw<1,0,1>"),
        ("a number is no swizzle", as_swizzle("3"), "an integer where a swizzle is needed"),
        ("no expression", as_swizzle("Sw<1"), "the expression ends where `,` of a swizzle"),
    ] {
        assert!(got.starts_with(want), "{why}: {got}");
    }
}

#[test]
fn carets_stand_under_the_span() {
    let error = evaluate("coalesce(\n\tähm(4), 3)").unwrap_err();
    assert_eq!(error.position(), (2, 2));
    assert_eq!(error.to_string(), "line 2, column 2: `ä` has no meaning here\n  \tähm(4), 3)\n  \t^");
    let error = evaluate("size(4 o\n  Sw<1,0,1>)").unwrap_err();
    assert_eq!(error.position(), (2, 3));
    let error = evaluate("complement(\n (2,2):(1,1),\n 4)").unwrap_err();
    let last = error.to_string().lines().last().map(String::from);
    assert_eq!(last.as_deref(), Some("  ^^^^^^^^^^^"), "of several lines the first is marked");
    let error = evaluate("coalesce(4").unwrap_err().to_string();
    assert!(error.ends_with("\n  coalesce(4\n          ^"), "{error}");
}

#[test]
fn deep_nesting_is_an_error_and_not_an_overflow() {
    for (open, close) in [("(", ")"), ("<", ">"), ("size(", ")")] {
        let source = format!("{}4{}", open.repeat(100_000), close.repeat(100_000));
        let error = evaluate(&source).unwrap_err();
        assert!(error.message().contains("nested deeper than"), "{error:?}");
    }
    let deep = format!("{}4{}", "(".repeat(60), ")".repeat(60));
    assert_eq!(deep.parse().map(|v: Value| v.to_string()), Ok(deep));
    assert!(evaluate(&"4 o ".repeat(10_000)).is_err());
}

#[test]
fn every_operation_is_named_by_its_usage() {
    for operation in operations() {
        assert!(operation.usage.starts_with(&format!("{}(", operation.name)));
        let error = evaluate(&format!("{}()", operation.name)).unwrap_err();
        assert!(error.message().contains(operation.usage), "{error}");
    }
}

// Random texts and values.

/// Nested extents and strides with the same nesting.
fn nested() -> impl Strategy<Value = (IntTuple, IntTuple)> {
    let leaf = (1i64..9, -20i64..200).prop_map(|(s, d)| (IntTuple::int(s), IntTuple::int(d)));
    leaf.prop_recursive(3, 12, 4, |inner| {
        proptest::collection::vec(inner, 1..4).prop_map(|modes| {
            let (shapes, strides): (Vec<_>, Vec<_>) = modes.into_iter().unzip();
            let few = "at most 12 leaves";
            (IntTuple::tuple(&shapes).expect(few), IntTuple::tuple(&strides).expect(few))
        })
    })
}

fn layouts() -> impl Strategy<Value = Layout> {
    nested().prop_map(|(shape, stride)| Layout::new(shape, stride).expect("nested alike"))
}

fn swizzles() -> impl Strategy<Value = Swizzle> {
    (0u32..6, 0u32..8, 0u32..4).prop_map(|(bits, base, more)| Swizzle {
        bits,
        base,
        shift: (bits + more).cast_signed(),
    })
}

/// The identity layout of a shape, with all strides multiplied by a random factor.
fn coords() -> impl Strategy<Value = CoordLayout> {
    (nested(), -3i64..9).prop_map(|((shape, _), scale)| {
        let identity = CoordLayout::identity(shape).expect("positive extents");
        let strides: Vec<_> = (0..shape.len()).map(|i| identity.stride(i)).collect();
        let path = |basis: &Basis| basis.path().collect::<Vec<_>>();
        let scaled: Vec<_> =
            strides.iter().map(|basis| Basis::new(scale, &path(basis)).expect("short")).collect();
        CoordLayout::new(shape, &scaled, identity.profile()).expect("a component each")
    })
}

fn values_of_every_kind() -> impl Strategy<Value = Value> {
    proptest::prop_oneof![
        any::<i64>().prop_map(Value::from),
        nested().prop_map(|(_, stride)| Value::from(stride)),
        layouts().prop_map(Value::from),
        swizzles().prop_map(Value::from),
        coords().prop_map(Value::from),
        (swizzles(), -9i64..99, layouts())
            .prop_map(|(swizzle, offset, layout)| Value::from(ComposedLayout { swizzle, offset, layout })),
    ]
}

/// Fragments of the text of expressions.
fn pieces() -> impl Strategy<Value = String> {
    let names: Vec<_> = operations().iter().map(|operation| format!("{}(", operation.name)).collect();
    let signs = [
        "(", ")", "<", ">", ",", ":", "_", " o ", "Sw<", "-", "\n", "é", "0", "1", "2", "4:1", "(4,8)", "@",
        "E<", "1@0",
    ];
    let numbers = ["9223372036854775807", "-9223372036854775808", "1099511627776", "65536", "7"];
    proptest::prop_oneof![
        select(names),
        select(signs.map(String::from).to_vec()),
        select(signs.map(String::from).to_vec()),
        select(numbers.map(String::from).to_vec()),
        layouts().prop_map(|layout| layout.to_string()),
        any::<char>().prop_map(String::from),
    ]
}

const SEEDS: [&str; 11] = [
    "composition((6,2):(8,2), (4,3):(3,1))",
    "logical_divide((9,(4,8)):(59,(13,1)), <3:3,(2,4):(1,8)>)",
    "zipped_divide((64,128):(128,1), <16,(8,2):(1,16)>)",
    "tile_to_shape(Sw<3,3,3> o 0 o (8,64):(64,1), (128,64), (2,1))",
    "blocked_product((2,5):(5,1), (3,4):(1,3))",
    "left_inverse(complement((2,2):(1,6), 24))",
    "slice((2,_), Sw<2,4,3> o 16 o (4,8):(8,1))",
    "at(right_inverse((4,8):(8,1)), (2,3))",
    "crd2idx((1,(0,2)), (4,(2,3)):(-1,(4,8)))",
    "zipped_divide((64,(8,16)):(1@0,(E<0,1>,1@1@1)), <16,(8,2):(1,16)>)",
    "composition((8,16):(16,1), (4,4):(4@1,2@0))",
];

/// Checks that the text gives a value that can be printed and read again, or an error whose carets are under
/// the text.
fn examine(source: &str) {
    match evaluate(source) {
        Ok(value) => assert_eq!(value.to_string().parse::<Value>(), Ok(value), "{source}"),
        Err(error) => examine_error(source, &error),
    }
}

fn examine_error(source: &str, error: &ExprError) {
    let span = error.span();
    assert!(span.start <= span.end && source.get(span).is_some(), "{source:?}: {error:?}");
    let (line, column) = error.position();
    assert!(line >= 1 && column >= 1);
    assert!(error.to_string().ends_with('^'));
    assert!(!error.message().is_empty());
}

proptest! {
    #![proptest_config(Config { cases: 10_000, failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))), ..Config::default() })]

    #[test]
    fn printing_and_reading_gives_the_value_back(value in values_of_every_kind()) {
        prop_assert_eq!(value.to_string().parse::<Value>(), Ok(value));
    }

    #[test]
    fn no_text_panics(source in any::<String>()) {
        examine(&source);
    }

    #[test]
    fn no_sequence_of_pieces_panics(pieces in proptest::collection::vec(pieces(), 0..24)) {
        examine(&pieces.concat());
    }

    #[test]
    fn no_edit_of_an_expression_panics(
        seed in select(SEEDS.to_vec()),
        edits in proptest::collection::vec((any::<usize>(), 0usize..3, pieces()), 1..4),
    ) {
        let mut characters: Vec<char> = seed.chars().collect();
        for (at, removed, piece) in edits {
            let at = at % (characters.len() + 1);
            let end = (at + removed).min(characters.len());
            characters.splice(at..end, piece.chars());
        }
        examine(&characters.into_iter().collect::<String>());
    }

    #[test]
    fn no_call_panics(
        name in select(operations().iter().map(|operation| operation.name).collect::<Vec<_>>()),
        arguments in proptest::collection::vec(
            proptest::prop_oneof![
                layouts().prop_map(|layout| layout.to_string()),
                nested().prop_map(|(shape, _)| shape.to_string()),
                values_of_every_kind().prop_map(|value| value.to_string()),
                (layouts(), layouts()).prop_map(|(a, b)| format!("<{a},_,{b}>")),
                (0i64..64, select([1i64, 1 << 20, 1 << 39].to_vec())).prop_map(|(n, by)| (n * by).to_string()),
                (select([1i64, 1 << 20, 1 << 39].to_vec()), -9i64..9).prop_map(|(s, d)| format!("(2,{s}):({d},{d})")),
            ],
            1..4,
        ),
    ) {
        examine(&format!("{name}({})", arguments.join(",")));
    }
}
