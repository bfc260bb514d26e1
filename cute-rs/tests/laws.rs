//! Tests of the equations of the algebra on random layouts: each check runs a law of [`cute_rs::laws`] on
//! 2500 cases with a result; with `cargo xtask test --long`, on 10 000.

use cute_rs::atom::SwizzleMode;
use cute_rs::laws::{self, check};
use cute_rs::strategies::{
    Choices, blocks_and_grids, choices, compact_layouts, composable_pairs, congruent_pairs, divisible_tilers,
    injective_layouts, layouts, shapes, signed_layouts, swizzles,
};
use cute_rs::{
    ComposedLayout, CoordLayout, IntTuple, Layout, MmaAtom, Swizzle, ThreadValue, TiledCopy, TiledMma, Tiler,
};
use proptest::strategy::Strategy;

fn cases() -> u32 {
    if std::env::var_os("FALCHION_LONG").is_some() { 10_000 } else { 2500 }
}

/// A layout, and for its first modes a part that `part` draws, or nothing in one of four cases.
fn by_mode(
    choices: &mut Choices,
    part: impl Fn(&mut Choices, &Layout) -> Layout,
) -> (Layout, Vec<Option<Layout>>) {
    let layout = choices.injective_layout();
    let count = choices.between(1, layout.rank() as i64) as usize;
    let parts = (0..count).map(|i| (!choices.one_in(4)).then(|| part(choices, &layout.mode(i)))).collect();
    (layout, parts)
}

/// For each mode, a fixed coordinate or none.
fn open(choices: &mut Choices, rank: usize) -> Vec<Option<i64>> {
    (0..rank).map(|_| choices.one_in(2).then(|| choices.below(60))).collect()
}

#[test]
fn tuples_are_their_trees() {
    check(cases(), 100, choices(|choices| choices.tuple(-4, 12)), |tuple| laws::tuple_structure(&tuple));
}

#[test]
fn tuples_relate_as_their_trees_do() {
    let pairs = choices(|choices| {
        let a = choices.tuple(-2, 4);
        // Unrelated, of the same nesting, or refined.
        let b = match choices.below(3) {
            0 => choices.tuple(-2, 4),
            1 => {
                let leaves: Vec<_> = (0..a.len()).map(|i| a.leaf(i) + choices.between(-1, 1)).collect();
                IntTuple::flat(&leaves).and_then(|flat| flat.unflatten(&a)).unwrap_or(a)
            }
            _ => {
                let shape = choices.layout().shape();
                return (shape.product_each().expect("small"), shape);
            }
        };
        (a, b)
    });
    check(cases(), 100, pairs, |(a, b)| laws::tuple_relations(&a, &b));
}

#[test]
fn coordinates_stand_for_each_other() {
    check(cases(), 100, (shapes(), shapes()), |(a, b)| laws::coordinates(&a, &b));
}

#[test]
fn coordinates_come_in_any_order() {
    let drawn = choices(|choices| {
        let shape = choices.layout().shape();
        let places: Vec<_> = (0..shape.len()).map(|_| choices.below(4)).collect();
        let order = IntTuple::flat(&places).and_then(|flat| flat.unflatten(&shape));
        (shape, if choices.one_in(4) { IntTuple::int(0) } else { order.unwrap_or(shape) })
    });
    check(cases(), 100, drawn, |(shape, order)| laws::ordered_coordinates(&shape, &order));
}

#[test]
fn shapes_are_divided_from_the_left() {
    let divisors = choices(|choices| {
        let shape = choices.layout().shape();
        // The product of the extents before a leaf, times a number up to the extent of that leaf.
        let leaf = choices.index(shape.len());
        let before: i64 = (0..leaf).map(|i| shape.leaf(i)).product();
        (shape, before * choices.between(1, shape.leaf(leaf)))
    });
    check(cases(), 60, divisors, |(shape, n)| laws::shape_division(&shape, n));
    check(cases(), 15, (shapes(), 1_i64..40), |(shape, n)| laws::shape_division(&shape, n));
}

#[test]
fn tuples_are_edited() {
    let drawn =
        choices(|choices| (choices.tuple(-2, 9), choices.tuple(-2, 9), choices.index(5), choices.index(5)));
    check(cases(), 100, drawn, |(a, b, i, j)| laws::tuple_edits(&a, &b, i, j));
}

#[test]
fn a_layout_is_its_leaves() {
    check(cases(), 100, layouts(), |layout| laws::evaluation(&layout));
    check(cases(), 100, signed_layouts(), |layout| laws::evaluation(&layout));
}

#[test]
fn coalesce_keeps_the_function_and_is_minimal() {
    check(cases(), 100, signed_layouts(), |layout| laws::coalesce(&layout));
}

#[test]
fn composition_is_one_after_the_other() {
    check(cases(), 100, composable_pairs(), |(a, b)| laws::composition(&a, &b));
    // Pairs that may have no result: A may have negative strides, and B may have one.
    let odd = choices(|choices| {
        let a = choices.signed_layout();
        (a, choices.nearly_composable_with(&a))
    });
    check(cases(), 50, odd, |(a, b)| laws::composition(&a, &b));
    check(cases(), 20, (layouts(), signed_layouts()), |(a, b)| laws::composition(&a, &b));
}

#[test]
fn composition_goes_mode_by_mode() {
    let drawn = choices(|choices| by_mode(choices, Choices::composable_with));
    check(cases(), 100, drawn, |(layout, tilers)| laws::composition_by_mode(&layout, &tilers));
}

#[test]
fn layouts_take_other_shapes() {
    let drawn = choices(|choices| {
        let layout = choices.layout();
        let shape = if choices.one_in(3) { choices.layout() } else { choices.composable_with(&layout) };
        (layout, shape.shape())
    });
    check(cases(), 30, drawn, |(layout, shape)| laws::with_shape(&layout, &shape));
}

#[test]
fn complement_fills_up_without_overlap() {
    check(cases(), 60, (layouts(), 1_i64..1000), |(layout, n)| laws::complement(&layout, n));
    check(cases(), 100, (injective_layouts(), 1_i64..1000), |(layout, n)| laws::complement(&layout, n));
}

#[test]
fn inverses_undo() {
    check(cases(), 40, layouts(), |layout| laws::inverses(&layout));
    check(cases(), 100, injective_layouts(), |layout| laws::inverses(&layout));
}

#[test]
fn common_layouts_agree() {
    check(cases(), 100, congruent_pairs(), |(a, b)| laws::common(&a, &b));
    let compact = (compact_layouts(), compact_layouts())
        .prop_map(|(a, b)| if a.size() == b.size() { (a, b) } else { (a, a) });
    check(cases(), 100, compact, |(a, b)| laws::common(&a, &b));
}

#[test]
fn alignment_keeps_groups_whole() {
    check(cases(), 100, injective_layouts(), |layout| laws::alignment(&layout));
}

#[test]
fn items_are_spread_over_a_shape() {
    check(cases(), 100, (shapes(), 1_i64..64), |(shape, n)| laws::distribution(&shape, n));
}

#[test]
fn logical_divide_walks_tiles() {
    check(cases(), 100, divisible_tilers(), |(layout, tiler)| laws::logical_divide(&layout, &tiler));
    let odd = choices(|choices| {
        let layout = choices.layout();
        (layout, choices.nearly_composable_with(&layout))
    });
    check(cases(), 40, odd, |(layout, tiler)| laws::logical_divide(&layout, &tiler));
}

#[test]
fn divides_go_mode_by_mode() {
    let drawn = choices(|choices| by_mode(choices, Choices::composable_with));
    check(cases(), 100, drawn, |(layout, tilers)| laws::divides_by_mode(&layout, &tilers));
}

#[test]
fn logical_product_repeats() {
    let drawn = choices(|choices| {
        let block = choices.injective_layout();
        let rank = choices.between(1, 3) as usize;
        (block, choices.grid(rank))
    });
    check(cases(), 60, drawn, |(block, grid)| laws::logical_product(&block, &grid));
}

#[test]
fn products_go_mode_by_mode() {
    let drawn = choices(|choices| by_mode(choices, |choices, _| choices.grid(1)));
    check(cases(), 40, drawn, |(block, grids)| laws::products_by_mode(&block, &grids));
}

#[test]
fn blocks_repeat_mode_by_mode() {
    check(cases(), 50, blocks_and_grids(), |(block, grid)| laws::blocked_and_raked(&block, &grid));
}

#[test]
fn blocks_fill_a_shape_in_order() {
    let drawn = choices(|choices| {
        let block = choices.injective_layout();
        let counts: Vec<_> = (0..block.rank()).map(|_| choices.between(1, 3)).collect();
        let mut order: Vec<_> = (0..block.rank()).collect();
        choices.shuffle(&mut order);
        (block, counts, order)
    });
    check(cases(), 50, drawn, |(block, counts, order)| laws::filled_shape(&block, &counts, &order));
}

#[test]
fn slices_are_parts() {
    let drawn = choices(|choices| {
        let layout = choices.layout();
        (layout, open(choices, layout.rank()))
    });
    check(cases(), 100, drawn, |(layout, coord)| laws::slices(&layout, &coord));
}

#[test]
fn layouts_are_edited() {
    let drawn =
        choices(|choices| (choices.signed_layout(), choices.layout(), choices.index(5), choices.index(5)));
    check(cases(), 100, drawn, |(a, b, i, j)| laws::layout_edits(&a, &b, i, j));
}

#[test]
fn strides_are_generated_in_order() {
    let drawn = choices(|choices| {
        let order: Vec<_> = (0..5).map(|_| choices.below(4)).collect();
        (choices.layout(), order)
    });
    check(cases(), 100, drawn, |(layout, order)| laws::generated_strides(&layout, &order));
}

#[test]
fn elements_are_joined_and_split() {
    let drawn = choices(|choices| (choices.injective_layout(), [2, 4, 8, 3, 1][choices.index(5)]));
    check(cases(), 20, drawn, |(layout, n)| laws::recasts(&layout, n));
    // Layouts whose elements were split, so that they can be joined again.
    let split = choices(|choices| {
        let (layout, n) = (choices.injective_layout(), [2, 4, 8, 3, 1][choices.index(5)]);
        let (shape, stride) = (layout.shape(), layout.stride());
        let unit = stride.leaves().position(|stride| stride == 1);
        let extents: Vec<_> =
            shape.leaves().enumerate().map(|(i, s)| if Some(i) == unit { s * n } else { s }).collect();
        let strides: Vec<_> = stride.leaves().map(|d| if d == 1 { 1 } else { d * n }).collect();
        let nested = |leaves: &[i64]| IntTuple::flat(leaves).and_then(|flat| flat.unflatten(&shape));
        let (extents, strides) =
            (nested(&extents).expect("few leaves"), nested(&strides).expect("few leaves"));
        (Layout::new(extents, strides).expect("positive extents"), n)
    });
    check(cases(), 80, split, |(layout, n)| laws::recasts(&layout, n));
}

#[test]
fn swizzles_are_their_bits() {
    check(cases(), 5, (swizzles(), swizzles(), 0_i64..1 << 16), |(a, b, x)| laws::swizzle(a, b, x));
    // Two parts of one swizzle, whose composition is that swizzle.
    let parts = choices(|choices| {
        let whole = choices.swizzle();
        let low = choices.below(i64::from(whole.bits) + 1) as u32;
        let (first, second) = (
            Swizzle { bits: low, ..whole },
            Swizzle { bits: whole.bits - low, base: whole.base + low, ..whole },
        );
        let pair = if choices.one_in(2) { (first, second) } else { (second, first) };
        (pair, choices.below(1 << 16))
    });
    check(cases(), 100, parts, |((a, b), x)| laws::swizzle(a, b, x));
}

#[test]
fn composed_layouts_add_then_permute() {
    let drawn = choices(|choices| {
        let composed = choices.composed_layout();
        let b = choices.composable_with(&composed.layout);
        (composed, b, open(choices, composed.rank()))
    });
    check(cases(), 100, drawn, |(layout, b, fixed)| laws::composed(&layout, &b, &fixed));
    let pairs = choices(|choices| {
        let a = choices.composed_layout();
        // Another swizzle after the same layout or after the reversed layout, or no swizzle.
        let other = choices.composed_layout();
        let layout = if choices.one_in(2) { a.layout } else { a.layout.reverse() };
        let plain = Swizzle::NONE.after(layout);
        (a, if choices.one_in(3) { plain } else { ComposedLayout { layout, ..other } })
    });
    check(cases(), 60, pairs, |(a, b)| laws::composed_common(&a, &b));
    let repeated = choices(|choices| (choices.composed_layout(), choices.grid(2)));
    check(cases(), 50, repeated, |(block, grid)| laws::composed_products(&block, &grid));
}

#[test]
fn threads_hold_rows_and_columns() {
    let drawn = choices(|choices| {
        let (rows, columns) = ([8, 4, 6, 16][choices.index(4)], choices.between(1, 8));
        let tile = Layout::column_major(IntTuple::from((rows, columns))).expect("positive extents");
        let walk =
            if choices.one_in(4) { choices.layout() } else { choices.composable_with(&tile) }.flatten();
        let walk = if walk.shape().is_int() { walk.wrap().expect("one level") } else { walk };
        let threads = choices.between(1, walk.rank() as i64) as usize;
        let one = Layout::flat(&[1], &[0]).expect("a point");
        let padded = walk.append(&one).expect("few leaves");
        let rank = padded.rank();
        let owners = padded.group(threads, rank).and_then(|owners| owners.group(0, threads));
        (owners.expect("two modes"), rows, columns)
    });
    check(cases(), 60, drawn, |(layout, rows, columns)| laws::thread_value(&layout, rows, columns));
}

#[test]
fn identities_yield_their_coordinates() {
    let drawn = choices(|choices| {
        let tile: Vec<_> = (0..5).map(|_| choices.below(8)).collect();
        (choices.layout().shape(), tile)
    });
    check(cases(), 100, drawn, |(shape, tile)| laws::identity(&shape, &tile));
}

#[test]
fn coordinate_layouts_sum_by_component() {
    let drawn = choices(|choices| {
        let coords = choices.coord_layout();
        // A layout A whose shape has exactly the range of the coordinates that occur.
        let leaves = coords.profile().len();
        let most = |k| (0..coords.size()).map(|i| coords.at(i).leaf(k)).max().unwrap_or(0);
        let extents: Vec<_> = (0..leaves).map(|k| most(k) + 1).collect();
        let strides: Vec<_> = (0..leaves).map(|_| choices.below(50)).collect();
        let nested =
            |values: &[i64]| IntTuple::flat(values).and_then(|flat| flat.unflatten(&coords.profile()));
        let (shape, stride) = (nested(&extents).expect("few leaves"), nested(&strides).expect("few leaves"));
        (coords, Layout::new(shape, stride).expect("positive extents"), choices.layout())
    });
    check(cases(), 100, drawn, |(coords, a, b)| laws::coordinate_layout(&coords, &b, &a));
}

#[test]
fn coordinates_are_found_again() {
    check(cases(), 100, choices(Choices::coord_layout), |coords| laws::coordinate_inverses(&coords));
    // Tiles of an identity layout, with their modes in any order. They have every coordinate exactly once.
    let tiled = choices(|choices| {
        let layout = choices.layout();
        let tile = tile_of(choices, &layout);
        let tiler = IntTuple::flat(&tile).expect("few modes");
        let identity = CoordLayout::identity(layout.shape()).expect("positive extents");
        let tiles = identity.flat_divide(&Tiler::Shape(&tiler)).unwrap_or(identity);
        let mut order: Vec<_> = (0..tiles.rank()).collect();
        choices.shuffle(&mut order);
        tiles.select(&order).expect("each mode once")
    });
    check(cases(), 90, tiled, |coords| laws::coordinate_inverses(&coords));
}

/// One extent per mode. Some do not divide the mode.
fn tile_of(choices: &mut Choices, layout: &Layout) -> Vec<i64> {
    let extent = |choices: &mut Choices, i| {
        let mode = layout.mode(i);
        let first = mode.shape().leaf(0);
        if choices.one_in(5) {
            choices.between(1, mode.size())
        } else {
            [first, mode.size(), 1][choices.index(3)]
        }
    };
    (0..layout.rank()).map(|i| extent(choices, i)).collect()
}

#[test]
fn tiles_hold_their_elements() {
    let drawn = choices(|choices| {
        let layout = choices.layout();
        let tile = tile_of(choices, &layout);
        (layout, tile)
    });
    check(cases(), 50, drawn, |(layout, tile)| laws::tiles(&layout, &tile));
    let swizzled = choices(|choices| {
        let layout = choices.composed_layout();
        let tile = tile_of(choices, &layout.layout);
        (layout, tile)
    });
    check(cases(), 50, swizzled, |(layout, tile)| laws::composed_tiles(&layout, &tile));
}

#[test]
fn threads_hold_each_element_once() {
    let drawn = choices(|choices| {
        let rank = choices.between(1, 3) as usize;
        let threads = choices.grid(rank);
        // Threads with a stride, such as the first threads of consecutive warps.
        let apart = [1, 1, 4, 32][choices.index(4)];
        let strides: Vec<_> = (0..threads.shape().len()).map(|i| threads.stride().leaf(i) * apart).collect();
        let stride = IntTuple::flat(&strides).and_then(|flat| flat.unflatten(&threads.shape()));
        let spread = stride.and_then(|stride| Layout::new(threads.shape(), stride)).unwrap_or(threads);
        let shape: Vec<_> = (0..rank)
            .map(|i| threads.mode(i).size() * choices.between(1, 3) - i64::from(choices.one_in(6)))
            .map(|extent| extent.max(1))
            .collect();
        let layout = IntTuple::flat(&shape).and_then(Layout::row_major).expect("positive extents");
        (layout, spread)
    });
    check(cases(), 80, drawn, |(layout, threads)| laws::threads(&layout, &threads));
}

#[test]
fn predicates_say_what_is_inside() {
    let drawn = choices(|choices| {
        let rank = choices.between(1, 3);
        let shape: Vec<_> = (0..rank).map(|_| choices.between(1, 9)).collect();
        let tile: Vec<_> = (0..rank).map(|_| choices.between(1, 5)).collect();
        (shape, tile)
    });
    check(cases(), 100, drawn, |(shape, tile)| laws::predicate(&shape, &tile));
}

#[test]
fn copies_move_each_element_once() {
    let drawn = choices(|choices| {
        let rank = choices.between(1, 3) as usize;
        let (threads, values) = (choices.grid(rank), choices.grid(rank));
        let tiles: Vec<_> = (0..rank).map(|_| choices.between(1, 3)).collect();
        (threads, values, tiles)
    });
    check(cases(), 100, drawn, |(threads, values, tiles)| laws::tiled_copy(&threads, &values, &tiles));
}

#[test]
fn groups_copy_side_by_side() {
    let drawn = choices(|choices| {
        let copy = TiledCopy::new(&choices.grid(2), &choices.grid(2)).expect("compact grids");
        // A copy that writes in another order than it reads, as `stmatrix` does.
        let exchanged = TiledCopy::between(copy.source().reverse(), copy.source(), copy.tile());
        let copy = if choices.one_in(2) { exchanged.expect("the same elements") } else { copy };
        (copy, [choices.between(1, 4), choices.between(1, 4)])
    });
    check(cases(), 60, drawn, |(copy, groups)| laws::grouped_copy(&copy, &groups));
}

#[test]
fn registers_are_handed_on() {
    let drawn = choices(|choices| {
        let rank = 2;
        let (threads, values) = (choices.grid(rank), choices.grid(rank));
        let copy = TiledCopy::new(&threads, &values).expect("compact grids");
        // Each thread holds the same elements in another order, or the elements of other threads.
        let (first, second) = (copy.source().mode(0), copy.source().mode(1).flatten());
        let mut order: Vec<_> = (0..second.rank()).collect();
        choices.shuffle(&mut order);
        let values = second.select(&order).expect("each mode once");
        let fragment = Layout::concat(&[first, values]).expect("few modes");
        if choices.one_in(4) { (copy, copy.source().reverse()) } else { (copy, fragment) }
    });
    check(cases(), 60, drawn, |(copy, fragment)| laws::retile(&copy, &fragment));
}

/// A thread-value layout that assigns each element of a tile to one thread or, with `shared`, to all threads.
fn dealt(choices: &mut Choices, threads: i64, shape: [i64; 2], shared: bool) -> ThreadValue {
    let [rows, columns] = shape;
    let all = Layout::flat(&[rows, columns], &[1, rows]).expect("positive extents");
    let layout = if shared {
        Layout::concat(&[Layout::flat(&[threads], &[0]).expect("positive").mode(0), all])
    } else {
        // Threads along one mode of the tile, values along the other.
        let (first, second) = if choices.one_in(2) { (0, 1) } else { (1, 0) };
        let lanes = all.mode(first);
        Layout::concat(&[lanes, all.mode(second)])
    };
    ThreadValue::new(layout.expect("few modes"), rows, columns).expect("two modes")
}

#[test]
fn instructions_hold_each_element() {
    let drawn = choices(|choices| {
        let (m, n) = (choices.between(1, 4), choices.between(1, 4));
        let k = choices.between(1, 3);
        let c = if choices.one_in(2) {
            Layout::flat(&[m, n], &[1, m]).expect("positive extents")
        } else {
            Layout::flat(&[n, m], &[m, 1]).expect("positive extents")
        };
        let threads = c.mode(0).size();
        let c = ThreadValue::new(c, m, n).expect("two modes");
        let shared = choices.one_in(2);
        let a = dealt(choices, threads, [m, k], shared);
        let a = if a.layout().mode(0).size() == threads { a } else { dealt(choices, threads, [m, k], true) };
        let b = dealt(choices, threads, [n, k], true);
        let atom = MmaAtom::new(a, b, c).expect("extents agree");
        let groups = [0; 3].map(|_| choices.between(1, 3));
        let mma = TiledMma::new(atom, groups).expect("positive groups");
        let repeats = [0; 3].map(|_| choices.between(1, 2));
        let blocks = choices.between(1, 3);
        // A permutation that puts the rows of each group next to each other instead of interleaving them.
        let rows = Layout::flat(&[m, groups[0], blocks], &[1, m * blocks, m]).expect("positive extents");
        let rows = choices.one_in(2).then_some(rows);
        (mma.permuted([rows, None, None]).expect("a permutation"), groups, rows, repeats)
    });
    check(cases(), 90, drawn, |(mma, groups, rows, repeats)| {
        laws::tiled_mma(&mma, groups, rows.as_ref(), repeats)
    });
}

/// Draws a tensor of 1 to 3 modes, a tile of it, and a layout of the tile in shared memory. The rows of that
/// layout are along the contiguous mode, usually as wide as the swizzle. The other leaves are in any order,
/// with gaps or without.
#[test]
fn boxes_put_elements_where_the_shared_layout_says() {
    let drawn = choices(|choices| {
        let bits = [16, 8, 32][choices.index(3)];
        let mode = SwizzleMode::ALL[choices.index(4)];
        let rank = choices.between(1, 3) as usize;
        let contiguous = choices.index(rank);
        let unit = i64::from(128 / bits);
        let width = match mode {
            SwizzleMode::None => unit * choices.between(1, 3),
            SwizzleMode::B32 | SwizzleMode::B64 | SwizzleMode::B128 if choices.one_in(10) => unit,
            SwizzleMode::B32 | SwizzleMode::B64 | SwizzleMode::B128 => i64::from(mode.elements(bits)),
        };
        let blocks = choices.between(1, 2);
        let others = |choices: &mut Choices| [8, 16, 24, 1, 8, 3][choices.index(6)];
        let tile: Vec<_> =
            (0..rank).map(|i| if i == contiguous { width * blocks } else { others(choices) }).collect();
        // The strides of the tensor: the contiguous mode first, then the others in any order.
        let shape: Vec<_> = tile.iter().map(|extent| extent * choices.between(1, 3)).collect();
        let mut order: Vec<_> = (0..rank).filter(|&i| i != contiguous).collect();
        choices.shuffle(&mut order);
        let mut strides = vec![1; rank];
        let mut stride = (shape[contiguous] + unit - 1) / unit * unit;
        for &i in &order {
            strides[i] = if choices.one_in(20) { stride + 1 } else { stride };
            stride *= shape[i];
        }
        let global = Layout::flat(&shape, &strides).expect("positive extents");
        // The shared layout: the row first, then the other leaves of the tile, usually in any order.
        let mut leaves: Vec<_> = (0..rank).filter(|&i| i != contiguous).collect();
        leaves.push(rank);
        if choices.one_in(2) {
            choices.shuffle(&mut leaves);
        }
        let (mut steps, mut step) = (vec![0; rank + 1], width);
        for &leaf in &leaves {
            steps[leaf] = if choices.one_in(3) { (step + 1023) / 1024 * 1024 } else { step };
            step = steps[leaf] * if leaf == rank { blocks } else { tile[leaf] };
        }
        let leaf = |extent, step| Layout::flat(&[extent], &[step]).expect("positive extents").mode(0);
        let modes: Vec<_> = (0..rank)
            .map(|i| match i == contiguous {
                true => Layout::flat(&[width, blocks], &[1, steps[rank]]).expect("positive extents"),
                false => leaf(tile[i], steps[i]),
            })
            .collect();
        let shared = mode.swizzle(bits).after(Layout::concat(&modes).expect("few modes"));
        (global, shared, tile, bits, [1, 1, 1, 2, 3][choices.index(5)])
    });
    check(cases(), 40, drawn, |(global, shared, tile, bits, slices)| {
        laws::tensor_boxes(&global, &shared, &tile, bits, slices)
    });
}
