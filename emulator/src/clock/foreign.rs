//! Counts of other clusters, in a tree whose parts clocks share.
//!
//! A thread that learns something new copies the path to it and shares the rest. So a chain of CTAs, each of
//! which learns what the one before knows and adds its own counts, costs time and memory in proportion to its
//! length.

use std::sync::Arc;

/// Number of parts of a node, and of counts of a leaf.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 5;

/// A tree over the lowest 15 bits of a number.
type Tree = Node<Node<Leaf>>;
/// Trees by the upper bits of the number, sorted.
type Trees = Vec<(u32, Arc<Tree>)>;

/// Counts by number in the grid. `None` has no counts. A tree, node
/// or leaf without counts is not stored, so equal counts are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Foreign(pub(super) Option<Arc<Trees>>);

impl Foreign {
    fn trees(&self) -> &[(u32, Arc<Tree>)] {
        self.0.as_ref().map_or(&[], |trees| trees)
    }

    fn of_trees(trees: Trees) -> Self {
        Self((!trees.is_empty()).then(|| Arc::new(trees)))
    }

    /// The count that all lanes have reached.
    pub(super) fn of(&self, number: u32) -> u32 {
        self.count(number).map_or(0, |count| count.least)
    }

    /// The count of a number; `None` if no lane has one.
    pub(super) fn count(&self, number: u32) -> Option<&Count> {
        let trees = self.trees();
        let at = trees.binary_search_by_key(&(number >> Tree::BITS), |(upper, _)| *upper).ok()?;
        trees[at].1.count(number)
    }

    /// Raises every count to that of another value. Takes the other value itself if it knows all of this one.
    pub(super) fn join(&mut self, other: &Self) {
        let (Some(mine), Some(theirs)) = (&self.0, &other.0) else {
            if self.0.is_none() {
                self.0.clone_from(&other.0);
            }
            return;
        };
        if Arc::ptr_eq(mine, theirs) {
            return;
        }
        let (mut first, mut second) = (true, true);
        let mut all = Vec::with_capacity(mine.len().max(theirs.len()));
        let (mut mine, mut theirs) = (mine.iter().peekable(), theirs.iter().peekable());
        loop {
            let (one, other) = (mine.peek().map(|one| one.0), theirs.peek().map(|other| other.0));
            let Some(upper) = one.into_iter().chain(other).min() else { break };
            let one = mine.next_if(|one| one.0 == upper).map(|(_, tree)| tree);
            let other = theirs.next_if(|other| other.0 == upper).map(|(_, tree)| tree);
            if let Some(tree) = joined((one, other), (&mut first, &mut second)) {
                all.push((upper, tree));
            }
        }
        if second {
            // Of equal values both become one, so that they are not compared again.
            self.0.clone_from(&other.0);
        } else if !first {
            *self = Self::of_trees(all);
        }
    }

    /// Raises every count to that of a list.
    pub(super) fn raise(&mut self, more: &[(u32, u32)]) {
        for &(number, least) in more {
            self.raise_to(number, &Count { least, lanes: None });
        }
    }

    /// Raises one count to another.
    pub(super) fn raise_to(&mut self, number: u32, count: &Count) {
        if self.count(number).is_none_or(|mine| !mine.has(count)) {
            let trees = Arc::make_mut(self.0.get_or_insert_default());
            let upper = number >> Tree::BITS;
            let at = trees.binary_search_by_key(&upper, |(upper, _)| *upper).unwrap_or_else(|at| {
                trees.insert(at, (upper, Arc::default()));
                at
            });
            Arc::make_mut(&mut trees[at].1).raise(number, count);
        }
    }

    /// Lowers every count to that of another value.
    pub(super) fn meet(&mut self, other: &Self) {
        if self == other {
            return;
        }
        let theirs = other.trees();
        let met = self.trees().iter().filter_map(|(upper, tree)| {
            let at = theirs.binary_search_by_key(upper, |(upper, _)| *upper).ok()?;
            Some((*upper, met(tree, &theirs[at].1)?))
        });
        *self = Self::of_trees(met.collect());
    }

    /// Keeps only the counts of the numbers for which `keep` is true.
    pub(super) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        let mut all = true;
        self.each((0, u32::MAX), &mut |number, _| all &= keep(number));
        if !all {
            let kept = |(upper, tree): &(u32, Arc<Tree>)| {
                Some((*upper, Arc::new(tree.kept(upper << Tree::BITS, &keep)?)))
            };
            *self = Self::of_trees(self.trees().iter().filter_map(kept).collect());
        }
    }

    /// Calls `see` with each number from `first` to `last`, both included, that has a count.
    pub(super) fn each(&self, (first, last): (u32, u32), see: &mut dyn FnMut(u32, &Count)) {
        let trees = self.trees();
        let from = trees.partition_point(|(upper, _)| *upper < first >> Tree::BITS);
        for (upper, tree) in trees[from..].iter().take_while(|(upper, _)| *upper <= last >> Tree::BITS) {
            tree.each(upper << Tree::BITS, (first, last), see);
        }
    }
}

/// A part of a tree.
pub(super) trait Part: Clone + Default + PartialEq {
    /// Number of the lower bits of a number that a part distinguishes.
    const BITS: u32;

    fn count(&self, number: u32) -> Option<&Count>;

    fn raise(&mut self, number: u32, count: &Count);

    /// The larger counts of two parts. Clears a flag if the first, or the second, does not have them all.
    fn joined(&self, other: &Self, has: (&mut bool, &mut bool)) -> Self;

    /// The smaller counts of two parts; `None` if there are none.
    fn met(&self, other: &Self) -> Option<Self>;

    /// The counts that are kept, of a part whose first number is `from`; `None` if there are none.
    fn kept(&self, from: u32, keep: &dyn Fn(u32) -> bool) -> Option<Self>;

    /// Calls `see` with each number in a range that has a count, of a part whose first number is `from`.
    fn each(&self, from: u32, range: (u32, u32), see: &mut dyn FnMut(u32, &Count));
}

/// How far the lanes of a warp have got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// What all lanes have reached.
    least: u32,
    /// The counts of the lanes, unless they are all the same.
    lanes: Option<Arc<[u32; 32]>>,
}

impl Count {
    /// Counts of the lanes of a warp.
    pub(super) fn of_lanes(lanes: [u32; 32]) -> Self {
        let least = lanes.iter().copied().min().unwrap_or(0);
        let same = lanes.iter().all(|&count| count == least);
        Self { least, lanes: (!same).then(|| Arc::new(lanes)) }
    }

    pub(super) fn least(&self) -> u32 {
        self.least
    }

    /// The counts of the lanes, unless they are all the same.
    pub(super) fn lanes(&self) -> Option<&[u32; 32]> {
        self.lanes.as_deref()
    }

    fn of(&self, lane: usize) -> u32 {
        self.lanes.as_ref().map_or(self.least, |lanes| lanes[lane])
    }

    /// Whether no lane has less than in another count.
    fn has(&self, other: &Self) -> bool {
        match (&self.lanes, &other.lanes) {
            (_, None) => self.least >= other.least,
            (Some(mine), Some(theirs)) if Arc::ptr_eq(mine, theirs) => true,
            (_, Some(theirs)) => theirs.iter().enumerate().all(|(lane, &count)| self.of(lane) >= count),
        }
    }

    fn combined(&self, other: &Self, choose: fn(u32, u32) -> u32) -> Self {
        Self::of_lanes(core::array::from_fn(|lane| choose(self.of(lane), other.of(lane))))
    }
}

/// Counts of consecutive numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leaf([Count; PARTS]);

/// Parts of consecutive numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node<T>([Option<Arc<T>>; PARTS]);

/// Joins two parts of which one may be missing, and shares what has all counts.
fn joined<T: Part>(
    (one, other): (Option<&Arc<T>>, Option<&Arc<T>>),
    (first, second): (&mut bool, &mut bool),
) -> Option<Arc<T>> {
    match (one, other) {
        (Some(one), Some(other)) if !Arc::ptr_eq(one, other) => {
            let (mut of_one, mut of_other) = (true, true);
            let all = one.joined(other, (&mut of_one, &mut of_other));
            *first &= of_one;
            *second &= of_other;
            Some(match (of_one, of_other) {
                (true, _) => Arc::clone(one),
                (false, true) => Arc::clone(other),
                (false, false) => Arc::new(all),
            })
        }
        (Some(one), None) => {
            *second = false;
            Some(Arc::clone(one))
        }
        (None, Some(other)) => {
            *first = false;
            Some(Arc::clone(other))
        }
        (same, _) => same.cloned(),
    }
}

fn met<T: Part>(one: &Arc<T>, other: &Arc<T>) -> Option<Arc<T>> {
    if Arc::ptr_eq(one, other) { Some(Arc::clone(one)) } else { one.met(other).map(Arc::new) }
}

impl Leaf {
    fn any(self) -> Option<Self> {
        self.0.iter().any(|count| *count != Count::default()).then_some(self)
    }
}

impl Part for Leaf {
    const BITS: u32 = PART_BITS;

    fn count(&self, number: u32) -> Option<&Count> {
        self.0.get(number as usize % PARTS)
    }

    fn raise(&mut self, number: u32, count: &Count) {
        let mine = &mut self.0[number as usize % PARTS];
        *mine = mine.combined(count, u32::max);
    }

    fn joined(&self, other: &Self, (first, second): (&mut bool, &mut bool)) -> Self {
        Self(core::array::from_fn(|at| {
            let (mine, theirs) = (&self.0[at], &other.0[at]);
            let (one, other) = (mine.has(theirs), theirs.has(mine));
            *first &= one;
            *second &= other;
            match (one, other) {
                (true, _) => mine.clone(),
                (false, true) => theirs.clone(),
                (false, false) => mine.combined(theirs, u32::max),
            }
        }))
    }

    fn met(&self, other: &Self) -> Option<Self> {
        Self(core::array::from_fn(|at| self.0[at].combined(&other.0[at], u32::min))).any()
    }

    fn kept(&self, from: u32, keep: &dyn Fn(u32) -> bool) -> Option<Self> {
        let kept = |at: usize| if keep(from + at as u32) { self.0[at].clone() } else { Count::default() };
        Self(core::array::from_fn(kept)).any()
    }

    fn each(&self, from: u32, (first, last): (u32, u32), see: &mut dyn FnMut(u32, &Count)) {
        for (number, count) in (from..=from + (PARTS - 1) as u32).zip(&self.0) {
            if *count != Count::default() && (first..=last).contains(&number) {
                see(number, count);
            }
        }
    }
}

impl<T: Part> Node<T> {
    fn place(number: u32) -> usize {
        (number >> T::BITS) as usize % PARTS
    }

    fn any(self) -> Option<Self> {
        self.0.iter().any(Option::is_some).then_some(self)
    }

    /// The parts that there are, each with its first number.
    fn parts(&self, from: u32) -> impl Iterator<Item = (u32, &T)> {
        let numbers = (0..PARTS as u32).map(move |at| from + (at << T::BITS));
        numbers.zip(&self.0).filter_map(|(from, part)| Some((from, part.as_deref()?)))
    }
}

impl<T: Part> Part for Node<T> {
    const BITS: u32 = T::BITS + PART_BITS;

    fn count(&self, number: u32) -> Option<&Count> {
        self.0[Self::place(number)].as_ref()?.count(number)
    }

    fn raise(&mut self, number: u32, count: &Count) {
        Arc::make_mut(self.0[Self::place(number)].get_or_insert_default()).raise(number, count);
    }

    fn joined(&self, other: &Self, (first, second): (&mut bool, &mut bool)) -> Self {
        let part = |at: usize| (self.0[at].as_ref(), other.0[at].as_ref());
        Self(core::array::from_fn(|at| joined(part(at), (first, second))))
    }

    fn met(&self, other: &Self) -> Option<Self> {
        Self(core::array::from_fn(|at| met(self.0[at].as_ref()?, other.0[at].as_ref()?))).any()
    }

    fn kept(&self, from: u32, keep: &dyn Fn(u32) -> bool) -> Option<Self> {
        let part = |at: usize| {
            let kept = self.0[at].as_ref()?.kept(from + ((at as u32) << T::BITS), keep)?;
            Some(Arc::new(kept))
        };
        Self(core::array::from_fn(part)).any()
    }

    fn each(&self, from: u32, (first, last): (u32, u32), see: &mut dyn FnMut(u32, &Count)) {
        for (from, part) in self.parts(from) {
            let end = from + ((1 << T::BITS) - 1);
            if from <= last && first <= end {
                part.each(from, (first, last), see);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of warps, of counters, and of earlier grids.
    const NUMBERS: [u32; 8] = [0, 1, 31, 32, 40_000, 1 << 31, (1 << 31) + 4096, u32::MAX];

    fn of(counts: &[(u32, u32)]) -> Foreign {
        let mut all = Foreign::default();
        all.raise(counts);
        all
    }

    fn listed(counts: &Foreign) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        counts.each((0, u32::MAX), &mut |number, count| all.push((number, count.least)));
        all
    }

    /// Every pair of a dozen lists, against the definition.
    #[test]
    fn larger_and_smaller_counts_are_those_of_lists() {
        let list = |seed: u32| -> Vec<(u32, u32)> {
            let each = |(at, &number): (u32, &u32)| (number, (seed * 7 + at * 5 + seed * at) % 4);
            (0..).zip(&NUMBERS).map(each).filter(|(_, count)| *count > 0).collect()
        };
        for (a, b) in (0..12).flat_map(|a| (0..12).map(move |b| (list(a), list(b)))) {
            let (one, other) = (of(&a), of(&b));
            assert_eq!(listed(&one), a, "sorted, and nothing else");
            let (mut larger, mut smaller, mut kept) = (one.clone(), one.clone(), one.clone());
            larger.join(&other);
            smaller.meet(&other);
            kept.retain(|number| number % 2 == 0);
            for number in NUMBERS {
                let (mine, theirs) = (one.of(number), other.of(number));
                assert_eq!(larger.of(number), mine.max(theirs), "{number} of {a:?} and {b:?}");
                assert_eq!(smaller.of(number), mine.min(theirs), "{number} of {a:?} and {b:?}");
                assert_eq!(kept.of(number), if number % 2 == 0 { mine } else { 0 });
            }
            for value in [&larger, &smaller, &kept] {
                assert_eq!(*value, of(&listed(value)), "equal counts are equal values");
            }
            let mut between = Vec::new();
            one.each((1, 1 << 31), &mut |number, count| between.push((number, count.least)));
            assert!(between.iter().eq(a.iter().filter(|(number, _)| (1..=1 << 31).contains(number))));
        }
    }

    /// Lanes with different counts, with each other and with counts of whole warps.
    #[test]
    fn lanes_are_joined_one_by_one() {
        let half = |low: u32, high: u32| core::array::from_fn(|lane| if lane < 16 { low } else { high });
        let counts = [half(0, 0), half(2, 2), half(0, 3), half(3, 0), half(1, 3), half(3, 1)];
        for (a, b) in counts.iter().flat_map(|a| counts.iter().map(move |b| (a, b))) {
            let [one, other] = [a, b].map(|lanes| {
                let mut all = Foreign::default();
                all.raise_to(7, &Count::of_lanes(*lanes));
                all
            });
            let (mut larger, mut smaller) = (one.clone(), one.clone());
            larger.join(&other);
            smaller.meet(&other);
            for lane in [0, 31] {
                let of = |all: &Foreign| all.count(7).map_or(0, |count| count.of(lane));
                assert_eq!(of(&larger), a[lane].max(b[lane]), "{a:?} {b:?}");
                assert_eq!(of(&smaller), a[lane].min(b[lane]), "{a:?} {b:?}");
            }
            assert_eq!(larger.of(7), larger.count(7).map_or(0, |count| count.of(0).min(count.of(31))));
        }
    }

    #[test]
    fn what_has_all_counts_is_shared() {
        let few = of(&[(3, 1)]);
        let many = of(&[(3, 2), (40_000, 1)]);
        let mut one = few.clone();
        one.join(&many);
        assert!(Arc::ptr_eq(one.0.as_ref().unwrap(), many.0.as_ref().unwrap()));
        one.join(&few);
        assert!(Arc::ptr_eq(one.0.as_ref().unwrap(), many.0.as_ref().unwrap()));
        one.raise(&[(4, 1)]);
        let trees = [&one, &many].map(|value| Arc::clone(&value.trees()[1].1));
        assert!(Arc::ptr_eq(&trees[0], &trees[1]), "the tree of the other number is the same");
    }
}
