//! The equations of the algebra, on random layouts.
//!
//! Results are judged by plain integer arithmetic of this file: a layout is read as a list of `(extent, stride)`
//! leaves, and offsets are summed up from its digits.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use cute_rs::{ComposedLayout, IntTuple, Layout, LayoutError, Swizzle};
use proptest::prelude::any;
use proptest::test_runner::{Config, TestError, TestRunner};

const CASES: u32 = 1000;

/// Runs a law on random choices; it says whether the operation had a result. At least `accepted` per cent must.
fn holds(accepted: u32, law: impl Fn(&mut Choices) -> bool) {
    let count = AtomicU32::new(0);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let choices = proptest::collection::vec(any::<u32>(), 96);
    let result = TestRunner::new(config).run(&choices, |picks| {
        let had_result = law(&mut Choices { picks, next: 0 });
        count.fetch_add(had_result.into(), Ordering::Relaxed);
        Ok(())
    });
    match result {
        Ok(()) => {}
        // The reason names the layouts; the picks behind them say nothing.
        Err(TestError::Fail(reason, _) | TestError::Abort(reason)) => panic!("{reason}"),
    }
    let count = count.into_inner();
    assert!(count * 100 >= accepted * CASES, "only {count} of {CASES} cases had a result");
}

// Random layouts.

/// Random numbers that shrink to zero.
struct Choices {
    picks: Vec<u32>,
    next: usize,
}

impl Choices {
    /// A number below `n`.
    fn below(&mut self, n: i64) -> i64 {
        let pick = self.picks[self.next % self.picks.len()];
        self.next += 1;
        i64::from(pick) % n
    }

    fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == n - 1
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, i - self.below(i as i64 + 1) as usize);
        }
    }

    /// One to six extents with a product of at most 600.
    fn extents(&mut self) -> Vec<i64> {
        let mut size = 1;
        let mut extents = Vec::new();
        for _ in 0..=self.below(6) {
            let extent = [2, 4, 3, 1, 6, 5][self.below(6) as usize];
            if size * extent <= 600 {
                size *= extent;
                extents.push(extent);
            }
        }
        extents
    }

    /// Strides that step over each other in a random order, with gaps or without: an injective layout.
    fn injective(&mut self, extents: &[i64], gaps: bool) -> Vec<Leaf> {
        let mut order: Vec<_> = (0..extents.len()).collect();
        if !self.one_in(3) {
            self.shuffle(&mut order);
        }
        let mut leaves: Vec<_> = extents.iter().map(|&s| (s, 0)).collect();
        let mut stride = 1;
        for i in order {
            stride *= if gaps { 1 + self.below(4) / 2 } else { 1 };
            leaves[i].1 = stride;
            stride *= extents[i];
        }
        leaves
    }

    /// Any leaves: injective ones, with strides of zero, or with arbitrary strides.
    fn leaves(&mut self) -> Vec<Leaf> {
        let extents = self.extents();
        let gaps = self.one_in(2);
        let mut leaves = self.injective(&extents, gaps);
        match self.below(3) {
            1 => leaves.iter_mut().for_each(|leaf| leaf.1 *= i64::from(!self.one_in(3))),
            2 => {
                leaves.iter_mut().for_each(|leaf| leaf.1 = [0, 1, 2, 3, 4, 6, 8, 12][self.below(8) as usize]);
            }
            _ => {}
        }
        leaves
    }

    /// Leaves of a layout that walks over coordinates of A: factors of A's extents with the coordinate's step along
    /// each, some of them merged, some left out, in any order.
    fn walk(&mut self, a: &[Leaf], odd: bool) -> Vec<Leaf> {
        let mut factors: Vec<Leaf> = Vec::new();
        let mut step = 1;
        for &(extent, _) in a {
            let divisors: Vec<_> = (1..=extent).filter(|d| extent % d == 0).collect();
            let first = divisors[self.below(divisors.len() as i64) as usize];
            for factor in [first, extent / first] {
                let merged = self.one_in(2) && !factors.is_empty();
                match factors.last_mut().filter(|last| merged && last.0 * last.1 == step) {
                    Some(last) => last.0 *= factor,
                    None => factors.push((factor, step)),
                }
                step *= factor;
            }
        }
        let whole = factors[0];
        factors.retain(|_| !self.one_in(3));
        self.shuffle(&mut factors);
        if factors.is_empty() {
            factors.push(whole);
        }
        if odd {
            let i = self.below(factors.len() as i64) as usize;
            match self.below(4) {
                0 => factors.push((3, 0)),
                1 => factors[i].0 = 1 + self.below(factors[i].0),
                2 => factors[i].1 = self.below(7),
                _ => {}
            }
        }
        factors
    }

    /// Nests leaves, at most three deep and four wide.
    fn nest(&mut self, leaves: &[Leaf]) -> Layout {
        if leaves.len() == 1 && self.one_in(2) {
            return leaf(leaves[0]);
        }
        self.group(leaves, 3)
    }

    fn group(&mut self, leaves: &[Leaf], depth: u32) -> Layout {
        let room = if depth == 1 { 1 } else { 4_usize.pow(depth - 1) };
        let mut modes = Vec::new();
        let mut rest = leaves;
        while !rest.is_empty() {
            let least = rest.len().saturating_sub(room * (3 - modes.len())).max(1);
            let most = rest.len().min(room);
            let (mode, others) = rest.split_at(least + self.below((most - least + 1) as i64) as usize);
            modes.push(match mode {
                &[only] if depth == 1 || self.below(3) > 0 => leaf(only),
                _ => self.group(mode, depth - 1),
            });
            rest = others;
        }
        Layout::concat(&modes).expect("few leaves")
    }

    fn layout(&mut self) -> Layout {
        let leaves = self.leaves();
        self.nest(&leaves)
    }

    fn injective_layout(&mut self) -> Layout {
        let extents = self.extents();
        let gaps = self.one_in(2);
        let leaves = self.injective(&extents, gaps);
        self.nest(&leaves)
    }
}

// Plain arithmetic.

/// Extent and stride.
type Leaf = (i64, i64);

fn leaf((extent, stride): Leaf) -> Layout {
    Layout::new(IntTuple::int(extent), IntTuple::int(stride)).expect("a positive extent")
}

fn leaves(layout: &Layout) -> Vec<Leaf> {
    (0..layout.shape().len()).map(|i| (layout.shape().leaf(i), layout.stride().leaf(i))).collect()
}

fn size(leaves: &[Leaf]) -> i64 {
    leaves.iter().map(|leaf| leaf.0).product()
}

/// The offset of an integer coordinate; the last leaf goes on.
fn offset(leaves: &[Leaf], coord: i64) -> i64 {
    let mut rest = coord;
    let mut sum = 0;
    for (i, &(extent, stride)) in leaves.iter().enumerate() {
        let digit = if i + 1 == leaves.len() { rest } else { rest % extent };
        sum += digit * stride;
        rest /= extent;
    }
    sum
}

fn offsets(layout: &Layout) -> Vec<i64> {
    let leaves = leaves(layout);
    (0..size(&leaves)).map(|i| offset(&leaves, i)).collect()
}

/// The coordinate of each mode, the first fastest.
fn coords(modes: &[i64], mut i: i64) -> Vec<i64> {
    let digit = |&extent: &i64| {
        let digit = i % extent;
        i /= extent;
        digit
    };
    modes.iter().map(digit).collect()
}

fn mode_sizes(layout: &Layout) -> Vec<i64> {
    (0..layout.rank()).map(|i| size(&leaves(&layout.mode(i)))).collect()
}

/// The `count` smallest shifts at which copies of these offsets fill up the numbers from zero without overlap.
fn shifts(tile: &[i64], count: usize) -> Vec<i64> {
    let mut taken = HashSet::new();
    let mut shifts = Vec::new();
    for shift in 0.. {
        if shifts.len() == count {
            break;
        }
        if !taken.contains(&shift) {
            shifts.push(shift);
            assert!(tile.iter().all(|&offset| taken.insert(offset + shift)), "copies of {tile:?} overlap");
        }
    }
    shifts
}

/// The fewest modes of any flat layout with these offsets.
fn fewest_modes(offsets: &[i64]) -> Option<usize> {
    let n = offsets.len();
    let runs = |s: &usize| (0..*s).all(|i| offsets[i] == i as i64 * offsets[1 % n]);
    if n == 1 {
        return Some(0);
    }
    let firsts = (2..=n).filter(|&s| n.is_multiple_of(s)).take_while(runs);
    let splits = |s: &usize| (0..n).all(|i| offsets[i] == offsets[i % s] + offsets[i - i % s]);
    let rest = |s: usize| fewest_modes(&offsets.iter().copied().step_by(s).collect::<Vec<_>>());
    firsts.filter(splits).filter_map(rest).min().map(|modes| modes + 1)
}

// The laws.

#[test]
fn a_layout_is_its_leaves() {
    holds(100, |choices| {
        let layout = choices.layout();
        let table = offsets(&layout);
        assert_eq!(layout.size(), table.len() as i64, "{layout}");
        assert_eq!(layout.cosize(), table.iter().max().unwrap() + 1, "{layout}");
        let sizes = mode_sizes(&layout);
        for (i, &want) in (0..).zip(&table) {
            let modes = coords(&sizes, i);
            let unsigned: Vec<_> = modes.iter().map(|&c| c as u32).collect();
            assert_eq!(layout.at(i), want, "{layout} at {i}");
            assert_eq!(layout.at_modes(&modes), want, "{layout} at {modes:?}");
            assert_eq!(layout.at_coord(&layout.coord(i)), Ok(want), "{layout} at {}", layout.coord(i));
            assert_eq!(layout.flatten().at(i), want, "{layout} flattened, at {i}");
            assert_eq!(layout.apply(i as u32), Ok(want as u32), "{layout} at {i}, with operators");
            assert_eq!(
                layout.apply_modes(&unsigned),
                Ok(want as u32),
                "{layout} at {modes:?}, with operators"
            );
        }
        true
    });
}

#[test]
fn coalesce_keeps_the_function_and_is_minimal() {
    holds(100, |choices| {
        let layout = choices.layout();
        let table = offsets(&layout);
        let coalesced = layout.coalesce();
        assert_eq!(offsets(&coalesced), table, "{layout} -> {coalesced}");
        assert!(coalesced.depth() <= 1, "{layout} -> {coalesced}");
        let modes = leaves(&coalesced).iter().filter(|leaf| leaf.0 > 1).count();
        assert_eq!(Some(modes), fewest_modes(&table), "{layout} -> {coalesced}");
        true
    });
}

#[test]
fn composition_is_one_after_the_other() {
    // How many pairs have a result, and a result of several leaves for one leaf of B.
    let split = AtomicU32::new(0);
    holds(90, |choices| {
        let a = choices.layout();
        let odd = choices.one_in(4);
        let walk = choices.walk(&leaves(&a), odd);
        let b = choices.nest(&walk);
        let r = match a.composition(&b) {
            Ok(r) => r,
            Err(error) => {
                assert!(odd, "{a} o {b} has a result: {error}");
                return false;
            }
        };
        let a_leaves = leaves(&a);
        let want: Vec<_> = offsets(&b).iter().map(|&c| offset(&a_leaves, c)).collect();
        assert_eq!(offsets(&r), want, "{a} o {b} -> {r}");
        assert!(b.shape().compatible(&r.shape()), "{a} o {b} -> {r}");
        split.fetch_add((r.shape().len() > b.shape().len()).into(), Ordering::Relaxed);
        true
    });
    assert!(split.into_inner() > CASES / 20, "modes are split, too");
}

#[test]
fn composition_of_unrelated_layouts_is_right_or_refused() {
    holds(30, |choices| {
        let (a, b) = (choices.layout(), choices.layout());
        let Ok(r) = a.composition(&b) else { return false };
        let a_leaves = leaves(&a);
        let want: Vec<_> = offsets(&b).iter().map(|&c| offset(&a_leaves, c)).collect();
        assert_eq!(offsets(&r), want, "{a} o {b} -> {r}");
        true
    });
}

#[test]
fn complement_fills_up_without_overlap() {
    holds(60, |choices| {
        let layout = choices.layout();
        let cotarget = 1 + choices.below(1000);
        let Ok(rest) = layout.complement(cotarget) else { return false };
        let without_zeros: Vec<_> = leaves(&layout).into_iter().filter(|leaf| leaf.1 != 0).collect();
        let tile: Vec<_> = (0..size(&without_zeros)).map(|i| offset(&without_zeros, i)).collect();
        let copies = offsets(&rest);
        assert!(copies.is_sorted_by(|a, b| a < b), "complement({layout}, {cotarget}) = {rest} increases");
        let sums: HashSet<_> = copies.iter().flat_map(|c| tile.iter().map(move |t| t + c)).collect();
        assert_eq!(
            sums.len(),
            copies.len() * tile.len(),
            "complement({layout}, {cotarget}) = {rest} is disjoint"
        );
        let covered = (0..sums.len() as i64).all(|i| sums.contains(&i));
        assert!(covered && sums.len() as i64 >= cotarget, "complement({layout}, {cotarget}) = {rest} covers");
        true
    });
}

#[test]
fn inverses_undo() {
    holds(40, |choices| {
        let layout = choices.layout();
        let table = offsets(&layout);
        let right = layout.right_inverse().unwrap();
        for (i, &c) in (0..).zip(&offsets(&right)) {
            assert_eq!(table[c as usize], i, "right_inverse({layout}) = {right}");
        }
        let distinct = table.iter().collect::<HashSet<_>>().len() == table.len();
        if distinct && table.iter().all(|&offset| offset < table.len() as i64) {
            assert_eq!(
                right.size(),
                layout.size(),
                "{layout} is a permutation, {right} is all of its inverse"
            );
        }
        let Ok(left) = layout.left_inverse() else { return false };
        assert!(distinct, "{layout} repeats offsets and has no left inverse, not {left}");
        let left_leaves = leaves(&left);
        for (i, &o) in (0..).zip(&table) {
            assert_eq!(offset(&left_leaves, o), i, "left_inverse({layout}) = {left}");
        }
        true
    });
}

#[test]
fn injective_layouts_have_complements_and_left_inverses() {
    holds(100, |choices| {
        let layout = choices.injective_layout();
        layout.complement(1000).is_ok() && layout.left_inverse().is_ok()
    });
}

#[test]
fn logical_divide_walks_tiles() {
    holds(80, |choices| {
        let a = choices.layout();
        let odd = choices.one_in(6);
        let walk = choices.walk(&leaves(&a), odd);
        let tiler = choices.nest(&walk);
        let r = match a.logical_divide(&tiler) {
            Ok(r) => r,
            Err(error) => {
                assert!(odd, "{a} / {tiler} has a result: {error}");
                return false;
            }
        };
        if walk.iter().any(|leaf| leaf.1 == 0 && leaf.0 > 1) {
            return false; // A tile that repeats elements covers none of the others twice.
        }
        let (a_leaves, inside) = (leaves(&a), offsets(&tiler));
        let sizes = mode_sizes(&r);
        assert_eq!(sizes[0], tiler.size(), "{a} / {tiler} -> {r}");
        assert!(sizes[0] * sizes[1] >= a.size(), "{a} / {tiler} -> {r} reaches all");
        let starts = shifts(&inside, sizes[1] as usize);
        let pairs = starts.iter().flat_map(|start| inside.iter().map(move |c| c + start));
        let want: Vec<_> = pairs.map(|coord| offset(&a_leaves, coord)).collect();
        assert_eq!(offsets(&r), want, "{a} / {tiler} -> {r}");
        true
    });
}

#[test]
fn zipped_divide_walks_tiles_of_every_mode() {
    holds(100, |choices| {
        let layout = choices.layout();
        let sizes = mode_sizes(&layout);
        let with_tiler = 1 + choices.below(layout.rank() as i64) as usize;
        let walks: Vec<_> = (0..with_tiler).map(|i| choices.walk(&leaves(&layout.mode(i)), false)).collect();
        let tilers: Vec<_> = walks.iter().map(|walk| choices.nest(walk)).collect();
        let r =
            layout.zipped_divide(&tilers).unwrap_or_else(|error| panic!("{layout} / {tilers:?}: {error}"));
        let (tile, rest) = (r.mode(0), r.mode(1));
        assert_eq!((r.rank(), tile.rank(), rest.rank()), (2, with_tiler, sizes.len()), "{layout} -> {r}");
        // Mode by mode: a tile's offsets, and those of its starts.
        for (i, walk) in walks.iter().enumerate() {
            let mode = leaves(&layout.mode(i));
            let inside: Vec<_> = (0..size(walk)).map(|c| offset(walk, c)).collect();
            let starts = shifts(&inside, (sizes[i] / size(walk)) as usize);
            let of = |coords: &[i64]| coords.iter().map(|&c| offset(&mode, c)).collect::<Vec<_>>();
            assert_eq!(offsets(&tile.mode(i)), of(&inside), "{layout} / {tilers:?} -> {r}, tile of mode {i}");
            assert_eq!(
                offsets(&rest.mode(i)),
                of(&starts),
                "{layout} / {tilers:?} -> {r}, starts of mode {i}"
            );
        }
        for i in with_tiler..sizes.len() {
            assert_eq!(rest.mode(i), layout.mode(i), "{layout} / {tilers:?} -> {r}, mode {i} is whole");
        }
        true
    });
}

#[test]
fn logical_product_repeats() {
    holds(60, |choices| {
        let block = choices.injective_layout();
        let extents: Vec<_> = (0..=choices.below(2)).map(|_| 1 + choices.below(4)).collect();
        let grid = choices.injective(&extents, false);
        let tiler = choices.nest(&grid);
        let Ok(r) = block.logical_product(&tiler) else { return false };
        let (tile, order) = (offsets(&block), offsets(&tiler));
        let starts = shifts(&tile, order.len());
        let copies = order.iter().map(|&copy| starts[copy as usize]);
        let want: Vec<_> = copies.flat_map(|start| tile.iter().map(move |t| start + t)).collect();
        assert_eq!(offsets(&r), want, "{block} x {tiler} -> {r}");
        assert_eq!((r.rank(), r.mode(0)), (2, block), "{block} x {tiler} -> {r}");
        true
    });
}

/// `r` is copies of `block`, `counts[i]` along mode `i`, and the copy at a place of the grid is the `number`-th.
fn assert_repeats(block: &Layout, counts: &[i64], number: impl Fn(&[i64]) -> i64, r: &Layout) {
    let (tile, sizes) = (offsets(block), mode_sizes(block));
    let starts = shifts(&tile, counts.iter().product::<i64>() as usize);
    let whole: Vec<_> = sizes.iter().zip(counts).map(|(s, n)| s * n).collect();
    assert_eq!(mode_sizes(r), whole, "{block} over {counts:?} -> {r}");
    let places: Vec<_> = (0..r.rank()).map(|i| leaves(&r.mode(i))).collect();
    for i in 0..whole.iter().product() {
        let coord = coords(&whole, i);
        let (mut inside, mut step) = (0, 1);
        for (c, s) in coord.iter().zip(&sizes) {
            inside += c % s * step;
            step *= s;
        }
        let place: Vec<_> = coord.iter().zip(&sizes).map(|(c, s)| c / s).collect();
        let want = tile[inside as usize] + starts[number(&place) as usize];
        let got: i64 = places.iter().zip(&coord).map(|(mode, &c)| offset(mode, c)).sum();
        assert_eq!(got, want, "{block} over {counts:?} -> {r} at {coord:?}");
    }
}

#[test]
fn blocks_repeat_mode_by_mode() {
    holds(60, |choices| {
        let block = choices.injective_layout();
        let counts: Vec<_> = (0..block.rank()).map(|_| 1 + choices.below(3)).collect();
        let leaves = choices.injective(&counts, false);
        let grid = match leaves[..] {
            [(count, stride)] if choices.one_in(2) => {
                Layout::new(IntTuple::int(count), IntTuple::int(stride))
            }
            _ => {
                let (shape, stride): (Vec<_>, Vec<_>) = leaves.iter().copied().unzip();
                Layout::flat(&shape, &stride)
            }
        };
        let grid = grid.unwrap();
        let Ok(r) = block.blocked_product(&grid) else { return false };
        let number = |place: &[i64]| place.iter().zip(&leaves).map(|(c, (_, stride))| c * stride).sum();
        assert_repeats(&block, &counts, number, &r);
        true
    });
}

#[test]
fn blocks_fill_a_shape_in_order() {
    holds(60, |choices| {
        let block = choices.injective_layout();
        let counts: Vec<_> = (0..block.rank()).map(|_| 1 + choices.below(3)).collect();
        let shape: Vec<_> = mode_sizes(&block).iter().zip(&counts).map(|(s, n)| s * n).collect();
        let mut order: Vec<_> = (0..block.rank()).collect();
        choices.shuffle(&mut order);
        let r = match block.tile_to_shape(&shape, &order) {
            Ok(r) => r,
            Err(LayoutError::Order { .. } | LayoutError::Rank { .. }) => {
                panic!("{shape:?} in order {order:?} is legal")
            }
            Err(_) => return false, // The blocks do not fit into the gaps of one.
        };
        let number = |place: &[i64]| {
            let digits = order.iter().rev().map(|&mode| (place[mode], counts[mode]));
            digits.fold(0, |number, (digit, count)| number * count + digit)
        };
        assert_repeats(&block, &counts, number, &r);
        true
    });
}

#[test]
fn slices_and_groups_are_parts_of_the_function() {
    holds(100, |choices| {
        let layout = choices.layout();
        let sizes = mode_sizes(&layout);
        let fixed: Vec<_> = sizes.iter().map(|&n| choices.one_in(2).then(|| choices.below(n))).collect();
        let (rest, start) = layout.slice(&fixed).unwrap();
        let mut free: Vec<_> = (0..layout.size()).map(|i| (i, coords(&sizes, i))).collect();
        free.retain(|(_, coord)| coord.iter().zip(&fixed).all(|(c, f)| f.is_none_or(|f| f == *c)));
        let want: Vec<_> = free.iter().map(|(i, _)| offset(&leaves(&layout), *i)).collect();
        let got: Vec<_> = offsets(&rest).iter().map(|o| o + start).collect();
        assert_eq!(got, want, "{layout} at {fixed:?}");

        let begin = choices.below(sizes.len() as i64) as usize;
        let end = begin + 1 + choices.below((sizes.len() - begin) as i64) as usize;
        let grouped = layout.group(begin, end).unwrap();
        assert_eq!(offsets(&grouped), offsets(&layout), "{layout}, {begin}..{end} grouped: {grouped}");
        assert_eq!(
            grouped.rank(),
            sizes.len() + 1 - (end - begin),
            "{layout}, {begin}..{end} grouped: {grouped}"
        );
        true
    });
}

#[test]
fn swizzles_are_their_own_inverses() {
    holds(100, |choices| {
        let bits = choices.below(5) as u32;
        let base = choices.below(4) as u32;
        let shift = bits + choices.below(3) as u32;
        let swizzle = Swizzle { bits, base, shift: shift.cast_signed() };
        let period = 1_u64 << (bits + base + shift);
        let image: HashSet<_> = (0..period).map(|offset| swizzle.apply(offset)).collect();
        assert_eq!(image.len() as u64, period, "{swizzle} is a bijection");
        for offset in 0..period {
            let field = (offset >> (base + shift)) % (1 << bits);
            let want = (0..bits).fold(offset, |o, bit| match field >> bit & 1 {
                0 => o,
                _ if o >> (base + bit) & 1 == 0 => o + (1 << (base + bit)),
                _ => o - (1 << (base + bit)),
            });
            assert_eq!(swizzle.apply(offset), want, "{swizzle} of {offset}");
            assert_eq!(swizzle.apply(want), offset, "{swizzle} of {want}");
            assert_eq!(swizzle.apply_to(offset as u32), want as u32, "{swizzle} of {offset}, with operators");
        }
        let composed = ComposedLayout { swizzle, offset: choices.below(64), layout: choices.layout() };
        let sizes = mode_sizes(&composed.layout);
        for (i, &inner) in (0..).zip(&offsets(&composed.layout)) {
            let want = swizzle.apply((composed.offset + inner) as u64);
            let unsigned: Vec<_> = coords(&sizes, i).iter().map(|&c| c as u32).collect();
            assert_eq!(composed.at(i) as u64, want, "{composed} at {i}");
            assert_eq!(composed.apply_modes(&unsigned), Ok(want as u32), "{composed} at {i}, with operators");
        }
        true
    });
}
