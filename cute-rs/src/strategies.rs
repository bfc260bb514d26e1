//! Random layouts for property tests, as `proptest` strategies. Needs the cargo feature `proptest`.
//!
//! All strategies draw layouts of rank up to 5 and depth up to 3. The layouts are small enough that a test
//! can enumerate every coordinate. Cases shrink towards few and small extents. [`choices`] turns your own
//! function into a strategy:
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

/// The number of random numbers per case. A case that draws more reads them again from the first.
const PICKS: usize = 96;

/// Random numbers are below this. It is divisible by all numbers up to 10, so that remainders are uniform.
const RANGE: u32 = 5040;

/// The largest size of a layout, in elements.
const SIZE: i64 = 256;

/// Extent and stride of a leaf.
type Leaf = (i64, i64);

/// Returns a strategy whose values `make` computes from random [`Choices`].
pub fn choices<T: fmt::Debug, F: Fn(&mut Choices) -> T + Clone>(make: F) -> Chosen<F> {
    Chosen(make)
}

/// The strategy that [`choices`] returns.
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

/// A kind of change that may make a case simpler.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sets blocks of this length to zero.
    Zero(usize),
    /// Halves each number.
    Halve,
    /// Subtracts 1 from each number.
    Decrement,
}

/// A case that shrinks by zeroing, halving and decrementing its random numbers.
#[derive(Clone)]
pub struct ChosenTree<F> {
    make: F,
    picks: Vec<u32>,
    step: Step,
    at: usize,
    /// The index of the last change, and the numbers before it.
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
            // A number that was halved or decremented is changed again until the case passes.
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

/// The source of random numbers for one case. The numbers shrink towards zero.
#[derive(Clone, Debug)]
pub struct Choices {
    picks: Vec<u32>,
    next: usize,
}

impl Choices {
    /// Draws a number from 0 to `n - 1`, for small `n` (less than 5040).
    pub fn below(&mut self, n: i64) -> i64 {
        let pick = self.picks[self.next % self.picks.len()];
        self.next += 1;
        i64::from(pick) % n.max(1)
    }

    /// Draws a number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below(high - low + 1)
    }

    /// True in one of `n` cases on average. The simplest case is false, unless `n` is 1.
    pub fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == n - 1
    }

    /// Draws an index of a list of `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as i64) as usize
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, i - self.index(i + 1));
        }
    }

    /// Draws 1 to 6 extents, from 1 to 6 each, with a product of at most 256.
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

    /// Leaves of an injective layout. In a random order of the leaves, each stride steps over all smaller
    /// leaves; with `gaps`, it may be up to twice as large.
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

    /// Any leaves: injective ones, ones with some strides of zero, or ones with arbitrary strides.
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

    /// Leaves of a layout into the integer coordinates of A. Each leaf is a factor of an extent of A, and its
    /// stride is the step of that factor in the coordinate. Some factors are merged, some are left out, and
    /// they come in any order. With `odd`, one leaf may be changed so that the composition with A may have no
    /// result.
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

    /// Nests leaves: depth at most 3, and at most 5 modes per level.
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

    /// Draws any layout without negative strides.
    pub fn layout(&mut self) -> Layout {
        let leaves = self.leaves();
        self.nest(&leaves)
    }

    /// Draws any layout; some strides may be negative.
    pub fn signed_layout(&mut self) -> Layout {
        let mut leaves = self.leaves();
        for leaf in &mut leaves {
            leaf.1 *= if self.one_in(3) { -1 } else { 1 };
        }
        self.nest(&leaves)
    }

    /// Draws an injective layout: no two coordinates have the same offset. In order of strides, each leaf
    /// steps over all smaller ones.
    pub fn injective_layout(&mut self) -> Layout {
        let extents = self.extents();
        let gaps = self.one_in(2);
        let leaves = self.injective(&extents, gaps);
        self.nest(&leaves)
    }

    /// Draws a compact layout: it takes each offset below its size exactly once.
    pub fn compact_layout(&mut self) -> Layout {
        let extents = self.extents();
        let leaves = self.injective(&extents, false);
        self.nest(&leaves)
    }

    /// Draws a compact layout of `rank` modes with extents from 1 to 3, for a grid of blocks.
    pub fn grid(&mut self, rank: usize) -> Layout {
        let extents: Vec<_> = (0..rank).map(|_| 1 + self.below(3)).collect();
        let leaves = self.injective(&extents, false);
        if rank == 1 && self.one_in(2) {
            return leaf(leaves[0]);
        }
        let modes: Vec<_> = leaves.iter().map(|&only| leaf(only)).collect();
        Layout::concat(&modes).unwrap_or(Layout::EMPTY)
    }

    /// Draws a layout B into the integer coordinates of `a` such that the composition of `a` and B has a
    /// result.
    pub fn composable_with(&mut self, a: &Layout) -> Layout {
        let walk = self.walk(a, false);
        self.nest(&walk)
    }

    /// Draws a layout B into the integer coordinates of `a`, or close to them. The composition of `a` and B
    /// may have no result.
    pub fn nearly_composable_with(&mut self, a: &Layout) -> Layout {
        let walk = self.walk(a, true);
        self.nest(&walk)
    }

    /// Draws a nested tuple of 1 to 6 integers from `low` to `high`, both included.
    pub fn tuple(&mut self, low: i64, high: i64) -> IntTuple {
        let leaves: Vec<Leaf> = (0..=self.below(6)).map(|_| (1, self.between(low, high))).collect();
        self.nest(&leaves).stride()
    }

    /// Draws a swizzle `Sw<B,M,S>` with B from 0 to 4, M from 0 to 3, and the absolute value of S from B to B
    /// + 2.
    pub fn swizzle(&mut self) -> Swizzle {
        let (bits, base) = (self.below(5) as u32, self.below(4) as u32);
        let shift = bits as i32 + self.below(3) as i32;
        Swizzle { bits, base, shift: if self.one_in(3) { -shift } else { shift } }
    }

    /// Draws a composed layout: a swizzle after an injective layout, with an offset from 0 to 63 between
    /// them.
    pub fn composed_layout(&mut self) -> ComposedLayout {
        let (swizzle, layout) = (self.swizzle(), self.injective_layout());
        let offset = if self.one_in(2) { 0 } else { self.below(64) };
        ComposedLayout { swizzle, offset, layout }
    }

    /// Draws a coordinate layout: the composition of the identity of a shape and another layout.
    pub fn coord_layout(&mut self) -> CoordLayout {
        let shape = self.layout();
        let identity = CoordLayout::identity(shape.shape());
        let walked = identity.and_then(|identity| identity.composition(&self.composable_with(&shape)));
        // A composition with a layout into the shape's own coordinates has a result.
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
    /// Layouts without negative strides: injective ones, ones with broadcasts, and arbitrary ones.
    layouts -> Layout = |choices: &mut Choices| choices.layout();
    /// Layouts in which some strides may be negative.
    signed_layouts -> Layout = |choices: &mut Choices| choices.signed_layout();
    /// Injective layouts: no two coordinates have the same offset. In order of strides, each leaf steps over
    /// all smaller ones.
    injective_layouts -> Layout = |choices: &mut Choices| choices.injective_layout();
    /// Compact layouts: each offset below the size occurs exactly once.
    compact_layouts -> Layout = |choices: &mut Choices| choices.compact_layout();
    /// Shapes of up to 256 elements.
    shapes -> IntTuple = |choices: &mut Choices| choices.layout().shape();
    /// Pairs (A, B) whose composition `A o B` has a result.
    composable_pairs -> (Layout, Layout) = |choices: &mut Choices| {
        let a = choices.layout();
        (a, choices.composable_with(&a))
    };
    /// Pairs of layouts of the same shape. The strides of the second are arbitrary, from 0 to 19.
    congruent_pairs -> (Layout, Layout) = |choices: &mut Choices| {
        let a = choices.layout();
        let strides: Vec<_> = (0..a.shape().len()).map(|_| choices.below(20)).collect();
        let b = IntTuple::flat(&strides).and_then(|flat| flat.unflatten(&a.shape()));
        (a, b.and_then(|stride| Layout::new(a.shape(), stride)).unwrap_or(a))
    };
    /// Pairs of a layout and a tiler that can divide it.
    divisible_tilers -> (Layout, Layout) = |choices: &mut Choices| {
        let a = choices.layout();
        (a, choices.composable_with(&a))
    };
    /// Pairs of an injective block and a compact grid of the same rank.
    blocks_and_grids -> (Layout, Layout) = |choices: &mut Choices| {
        let block = choices.injective_layout();
        (block, choices.grid(block.rank()))
    };
    /// Swizzles.
    swizzles -> Swizzle = |choices: &mut Choices| choices.swizzle();
    /// Composed layouts: a swizzle after an injective layout, with an offset or without.
    composed_layouts -> ComposedLayout = |choices: &mut Choices| choices.composed_layout();
    /// Coordinate layouts: compositions of an identity and another layout.
    coord_layouts -> CoordLayout = |choices: &mut Choices| choices.coord_layout();
}
