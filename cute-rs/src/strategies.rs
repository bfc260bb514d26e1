//! Random layouts for property tests, as `proptest` strategies. Needs the cargo feature `proptest`.
//!
//! All strategies draw layouts of rank up to 5 and depth up to 3 whose sizes allow enumerating every coordinate. They
//! shrink towards few and small extents. [`choices`] makes a strategy of a function of your own:
//!
//! ```
//! use cute_rs::Layout;
//! use cute_rs::strategies::{choices, injective_layouts};
//! use proptest::prelude::*;
//!
//! // Tiles of a layout whose rows are padded to a multiple of 8.
//! let padded = choices(|choices| {
//!     let (rows, columns) = (choices.between(1, 16), choices.between(1, 16));
//!     Layout::flat(&[rows, columns], &[(columns + 7) / 8 * 8, 1]).expect("positive extents")
//! });
//! proptest!(|(layout in padded, other in injective_layouts())| {
//!     prop_assert!(layout.at(1) >= 0 && other.size() > 0);
//! });
//! ```

use alloc::vec::Vec;
use core::fmt;

use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::swizzle::Swizzle;

/// How many numbers a case draws before they repeat.
const PICKS: usize = 96;

/// Largest number drawn: divisible by all small numbers, so that remainders are uniform.
const RANGE: u32 = 5040;

/// Most elements of a layout.
const SIZE: i64 = 256;

/// Extent and stride of a leaf.
type Leaf = (i64, i64);

/// A strategy of the values that a function makes of random [`Choices`].
pub fn choices<T: fmt::Debug, F: Fn(&mut Choices) -> T + Clone>(make: F) -> Chosen<F> {
    Chosen(make)
}

/// A strategy: see [`choices`].
#[derive(Clone)]
pub struct Chosen<F>(F);

impl<F> fmt::Debug for Chosen<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chosen")
    }
}

impl<T: fmt::Debug, F: Fn(&mut Choices) -> T + Clone> Strategy for Chosen<F> {
    type Tree = ChosenTree<F>;
    type Value = T;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let picks = (0..PICKS).map(|_| pick(runner)).collect();
        Ok(ChosenTree { make: self.0.clone(), picks, step: Step::Zero(PICKS), at: 0, undo: None })
    }
}

/// One random number below [`RANGE`].
fn pick(runner: &mut TestRunner) -> u32 {
    use proptest::prelude::Rng as _;
    runner.rng().next_u32() % RANGE
}

/// What is tried to make a case simpler.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Zeros in blocks of this length.
    Zero(usize),
    /// Half of each number.
    Halve,
    /// One less.
    Decrement,
}

/// A case that shrinks by zeroing, halving and decrementing its random numbers.
#[derive(Clone)]
pub struct ChosenTree<F> {
    make: F,
    picks: Vec<u32>,
    step: Step,
    at: usize,
    /// The numbers before the last change, and where they were.
    undo: Option<(usize, Vec<u32>)>,
}

impl<F> fmt::Debug for ChosenTree<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChosenTree").field(&self.picks).finish()
    }
}

impl<T: fmt::Debug, F: Fn(&mut Choices) -> T> ValueTree for ChosenTree<F> {
    type Value = T;

    fn current(&self) -> T {
        (self.make)(&mut Choices { picks: self.picks.clone(), next: 0 })
    }

    fn simplify(&mut self) -> bool {
        loop {
            let block = if let Step::Zero(block) = self.step { block } else { 1 };
            if self.at >= self.picks.len() {
                self.at = 0;
                self.step = match self.step {
                    Step::Zero(1) => Step::Halve,
                    Step::Zero(block) => Step::Zero(block / 2),
                    Step::Halve => Step::Decrement,
                    Step::Decrement => return false,
                };
                continue;
            }
            let end = (self.at + block).min(self.picks.len());
            let old = self.picks[self.at..end].to_vec();
            for pick in &mut self.picks[self.at..end] {
                *pick = match self.step {
                    Step::Zero(_) => 0,
                    Step::Halve => *pick / 2,
                    Step::Decrement => pick.saturating_sub(1),
                };
            }
            let changed = old != self.picks[self.at..end];
            let start = self.at;
            // A number may be halved again as long as that helps.
            if !changed || matches!(self.step, Step::Zero(_)) {
                self.at = end;
            }
            if changed {
                self.undo = Some((start, old));
                return true;
            }
        }
    }

    fn complicate(&mut self) -> bool {
        let Some((start, old)) = self.undo.take() else { return false };
        self.at = self.at.max(start + old.len());
        self.picks[start..start + old.len()].copy_from_slice(&old);
        true
    }
}

/// Random numbers that shrink to zero.
#[derive(Clone, Debug)]
pub struct Choices {
    picks: Vec<u32>,
    next: usize,
}

impl Choices {
    /// A number from 0 up to `n - 1`, for small `n`.
    pub fn below(&mut self, n: i64) -> i64 {
        let pick = self.picks[self.next % self.picks.len()];
        self.next += 1;
        i64::from(pick) % n.max(1)
    }

    /// A number from `low` up to `high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` cases, and not in the simplest.
    pub fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == n - 1
    }

    /// An index of a list of `len` things.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as i64) as usize
    }

    /// Exchanges items at random.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, i - self.index(i + 1));
        }
    }

    /// One to six extents with a product of at most 256.
    pub fn extents(&mut self) -> Vec<i64> {
        let mut size = 1;
        let mut extents = Vec::new();
        for _ in 0..=self.below(6) {
            let extent = [2, 4, 3, 1, 6, 5][self.index(6)];
            if size * extent <= SIZE {
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
            2 => leaves.iter_mut().for_each(|leaf| leaf.1 = [0, 1, 2, 3, 4, 6, 8, 12][self.index(8)]),
            _ => {}
        }
        leaves
    }

    /// Leaves of a layout that walks over coordinates of A: factors of A's extents with the coordinate's step along
    /// each, some of them merged, some left out, in any order.
    fn walk(&mut self, a: &Layout, odd: bool) -> Vec<Leaf> {
        let mut factors: Vec<Leaf> = Vec::new();
        let mut step = 1;
        for i in 0..a.shape().len() {
            let extent = a.shape().leaf(i);
            let divisors: Vec<_> = (1..=extent).filter(|d| extent % d == 0).collect();
            let first = divisors[self.index(divisors.len())];
            for factor in [first, extent / first] {
                let merged = self.one_in(2) && !factors.is_empty();
                match factors.last_mut().filter(|last| merged && last.0 * last.1 == step) {
                    Some(last) => last.0 *= factor,
                    None => factors.push((factor, step)),
                }
                step *= factor;
            }
        }
        let whole = factors.first().copied().unwrap_or((1, 0));
        factors.retain(|_| !self.one_in(3));
        self.shuffle(&mut factors);
        if factors.is_empty() {
            factors.push(whole);
        }
        if odd {
            let i = self.index(factors.len());
            match self.below(5) {
                0 => factors.push((3, 0)),
                1 => factors[i].0 = 1 + self.below(factors[i].0),
                2 => factors[i].1 = self.below(7),
                3 => factors[i].1 = -factors[i].1,
                _ => {}
            }
        }
        factors
    }

    /// Nests leaves, at most three deep and five wide.
    fn nest(&mut self, leaves: &[Leaf]) -> Layout {
        if leaves.len() == 1 && self.one_in(2) {
            return leaf(leaves[0]);
        }
        self.group(leaves, 3)
    }

    fn group(&mut self, leaves: &[Leaf], depth: u32) -> Layout {
        let room = if depth == 1 { 1 } else { 5_usize.pow(depth - 1) };
        let mut modes = Vec::new();
        let mut rest = leaves;
        while !rest.is_empty() {
            let least = rest.len().saturating_sub(room * (4 - modes.len())).max(1);
            let most = rest.len().min(room);
            let (mode, others) = rest.split_at(least + self.index(most - least + 1));
            modes.push(match mode {
                &[only] if depth == 1 || self.below(3) < 2 => leaf(only),
                _ => self.group(mode, depth - 1),
            });
            rest = others;
        }
        Layout::concat(&modes).unwrap_or(Layout::EMPTY)
    }

    /// Any layout with strides of 0 and more.
    pub fn layout(&mut self) -> Layout {
        let leaves = self.leaves();
        self.nest(&leaves)
    }

    /// Any layout; some strides are negative.
    pub fn signed_layout(&mut self) -> Layout {
        let mut leaves = self.leaves();
        for leaf in &mut leaves {
            leaf.1 *= if self.one_in(3) { -1 } else { 1 };
        }
        self.nest(&leaves)
    }

    /// A layout that takes no value twice and whose modes each step over all smaller ones.
    pub fn injective_layout(&mut self) -> Layout {
        let extents = self.extents();
        let gaps = self.one_in(2);
        let leaves = self.injective(&extents, gaps);
        self.nest(&leaves)
    }

    /// A layout that takes every value below its size once.
    pub fn compact_layout(&mut self) -> Layout {
        let extents = self.extents();
        let leaves = self.injective(&extents, false);
        self.nest(&leaves)
    }

    /// A small compact layout with this many modes, for a grid of blocks.
    pub fn grid(&mut self, rank: usize) -> Layout {
        let extents: Vec<_> = (0..rank).map(|_| 1 + self.below(3)).collect();
        let leaves = self.injective(&extents, false);
        if rank == 1 && self.one_in(2) {
            return leaf(leaves[0]);
        }
        let modes: Vec<_> = leaves.iter().map(|&only| leaf(only)).collect();
        Layout::concat(&modes).unwrap_or(Layout::EMPTY)
    }

    /// A layout into the integer coordinates of `a` whose composition with `a` has a result.
    pub fn composable_with(&mut self, a: &Layout) -> Layout {
        let walk = self.walk(a, false);
        self.nest(&walk)
    }

    /// A layout into the integer coordinates of `a` or near them, whose composition with `a` may have no result.
    pub fn nearly_composable_with(&mut self, a: &Layout) -> Layout {
        let walk = self.walk(a, true);
        self.nest(&walk)
    }

    /// A tuple of integers between `low` and `high`.
    pub fn tuple(&mut self, low: i64, high: i64) -> IntTuple {
        let leaves: Vec<Leaf> = (0..=self.below(6)).map(|_| (1, self.between(low, high))).collect();
        self.nest(&leaves).stride()
    }

    /// A swizzle of up to 4 bits, over offsets of up to 12.
    pub fn swizzle(&mut self) -> Swizzle {
        let (bits, base) = (self.below(5) as u32, self.below(4) as u32);
        let shift = bits as i32 + self.below(3) as i32;
        Swizzle { bits, base, shift: if self.one_in(3) { -shift } else { shift } }
    }

    /// A swizzle after a layout without negative offsets.
    pub fn composed_layout(&mut self) -> ComposedLayout {
        let (swizzle, layout) = (self.swizzle(), self.injective_layout());
        let offset = if self.one_in(2) { 0 } else { self.below(64) };
        ComposedLayout { swizzle, offset, layout }
    }

    /// The identity of a shape, walked through by another layout.
    pub fn coord_layout(&mut self) -> CoordLayout {
        let shape = self.layout();
        let identity = CoordLayout::identity(shape.shape());
        let walked = identity.and_then(|identity| identity.composition(&self.composable_with(&shape)));
        // A walk over the shape's own coordinates has a result.
        walked.or(identity).unwrap_or_else(|error| unreachable!("{error}"))
    }
}

/// `s:d`.
fn leaf((extent, stride): Leaf) -> Layout {
    Layout::leaf(extent, stride)
}

/// Declares a strategy for a method of [`Choices`].
macro_rules! strategies {
    ($($(#[$doc:meta])* $name:ident -> $value:ty = $make:expr;)+) => {$(
        $(#[$doc])*
        pub fn $name() -> impl Strategy<Value = $value> + Clone {
            choices($make)
        }
    )+};
}

strategies! {
    /// Layouts with strides of 0 and more: injective ones, ones with broadcasts, and arbitrary ones.
    layouts -> Layout = |choices: &mut Choices| choices.layout();
    /// Layouts of which some strides are negative.
    signed_layouts -> Layout = |choices: &mut Choices| choices.signed_layout();
    /// Layouts that take no value twice and whose modes each step over all smaller ones.
    injective_layouts -> Layout = |choices: &mut Choices| choices.injective_layout();
    /// Layouts that take every value below their size once.
    compact_layouts -> Layout = |choices: &mut Choices| choices.compact_layout();
    /// Shapes.
    shapes -> IntTuple = |choices: &mut Choices| choices.layout().shape();
    /// Pairs A, B whose composition has a result.
    composable_pairs -> (Layout, Layout) = |choices: &mut Choices| {
        let a = choices.layout();
        (a, choices.composable_with(&a))
    };
    /// Pairs of layouts of one shape.
    congruent_pairs -> (Layout, Layout) = |choices: &mut Choices| {
        let a = choices.layout();
        let strides: Vec<_> = (0..a.shape().len()).map(|_| choices.below(20)).collect();
        let b = IntTuple::flat(&strides).and_then(|flat| flat.unflatten(&a.shape()));
        (a, b.and_then(|stride| Layout::new(a.shape(), stride)).unwrap_or(a))
    };
    /// A layout and a tiler that divides it.
    divisible_tilers -> (Layout, Layout) = |choices: &mut Choices| {
        let a = choices.layout();
        (a, choices.composable_with(&a))
    };
    /// A block and a grid of as many modes.
    blocks_and_grids -> (Layout, Layout) = |choices: &mut Choices| {
        let block = choices.injective_layout();
        (block, choices.grid(block.rank()))
    };
    /// Swizzles.
    swizzles -> Swizzle = |choices: &mut Choices| choices.swizzle();
    /// Swizzled injective layouts.
    composed_layouts -> ComposedLayout = |choices: &mut Choices| choices.composed_layout();
    /// Coordinate layouts: an identity, walked through by another layout.
    coord_layouts -> CoordLayout = |choices: &mut Choices| choices.coord_layout();
}
