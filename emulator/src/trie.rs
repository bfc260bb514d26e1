//! A map whose copies share their parts: a copy costs nothing, a change copies one path.
//!
//! A Patricia tree (Okasaki and Gill, "Fast mergeable integer maps", 1998): a fork splits keys by the highest bit in
//! which they differ.

use std::sync::Arc;

/// Values by key, in the order of the keys. Equal maps have equal trees.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trie<V>(Option<Arc<Node<V>>>);

#[derive(Debug, PartialEq, Eq)]
enum Node<V> {
    Leaf(u128, V),
    Fork(Fork<V>),
}

#[derive(Debug, PartialEq, Eq)]
struct Fork<V> {
    /// The bits that all keys share, above the bit in which the two sides differ; zeros below.
    prefix: u128,
    bit: u32,
    /// Number of keys.
    len: usize,
    sides: [Arc<Node<V>>; 2],
}

/// What becomes of two values of a key.
#[derive(Debug)]
pub(crate) enum Combined<V> {
    First,
    Second,
    New(V),
}

/// Combines two values of a key.
pub(crate) type Combine<'c, V> = &'c dyn Fn(&V, &V) -> Combined<V>;

impl<V> Clone for Trie<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V> Default for Trie<V> {
    fn default() -> Self {
        Self(None)
    }
}

impl<V> Trie<V> {
    /// One value.
    pub(crate) fn of(key: u128, value: V) -> Self {
        Self(Some(Arc::new(Node::Leaf(key, value))))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |node| node.len())
    }

    pub(crate) fn get(&self, key: u128) -> Option<&V> {
        let mut node = self.0.as_deref()?;
        loop {
            match node {
                Node::Leaf(own, value) => return (*own == key).then_some(value),
                Node::Fork(fork) => node = &fork.sides[side(key, fork.bit)],
            }
        }
    }

    /// Adds a value, or combines the known value of the key with it.
    pub(crate) fn add(&mut self, key: u128, value: V, combine: Combine<'_, V>) {
        self.join(&Self::of(key, value), combine);
    }

    /// Adds the values of another map. Costs no more than what is not shared.
    pub(crate) fn join(&mut self, other: &Self, combine: Combine<'_, V>) {
        self.0 = match (self.0.take(), &other.0) {
            (Some(mine), Some(theirs)) => Some(joined(&mine, theirs, combine)),
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
    }

    /// Keeps the keys that another map has too, with combined values.
    pub(crate) fn meet(&mut self, other: &Self, combine: Combine<'_, V>) {
        self.0 = self.0.take().zip(other.0.as_ref()).and_then(|(mine, theirs)| met(&mine, theirs, combine));
    }

    /// The values of keys below `end`, in the order of the keys.
    pub(crate) fn below(&self, end: u128) -> impl Iterator<Item = (u128, &V)> {
        let mut rest: Vec<&Node<V>> = self.0.iter().map(|node| &**node).collect();
        core::iter::from_fn(move || {
            loop {
                match rest.pop()? {
                    node if node.prefix() >= end => {}
                    Node::Leaf(key, value) => return Some((*key, value)),
                    Node::Fork(fork) => rest.extend(fork.sides.iter().rev().map(|side| &**side)),
                }
            }
        })
    }
}

/// Which side of a fork at a bit a key is on.
fn side(key: u128, bit: u32) -> usize {
    (key >> bit & 1) as usize
}

impl<V> Node<V> {
    fn prefix(&self) -> u128 {
        match self {
            Self::Leaf(key, _) => *key,
            Self::Fork(fork) => fork.prefix,
        }
    }

    /// The bit of a fork.
    fn bit(&self) -> Option<u32> {
        match self {
            Self::Leaf(..) => None,
            Self::Fork(fork) => Some(fork.bit),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(..) => 1,
            Self::Fork(fork) => fork.len,
        }
    }

    fn fork(sides: [Arc<Self>; 2], bit: u32) -> Arc<Self> {
        let prefix = sides[0].prefix() >> bit >> 1 << bit << 1;
        let len = sides.iter().map(|side| side.len()).sum();
        Arc::new(Self::Fork(Fork { prefix, bit, len, sides }))
    }
}

/// How the keys of two nodes lie to each other.
enum Lie<'n, V> {
    /// They are the same key, with these values.
    Same(&'n V, &'n V),
    /// They are forks at the same bit.
    Forks(&'n Fork<V>, &'n Fork<V>),
    /// Those of the second belong to one side of the first.
    Inside(&'n Fork<V>, usize),
    /// Those of the first belong to one side of the second.
    Outside(&'n Fork<V>, usize),
    /// They differ in this bit.
    Apart(u32),
}

fn lie<'n, V>(a: &'n Node<V>, b: &'n Node<V>) -> Lie<'n, V> {
    let apart = (a.prefix() ^ b.prefix()).checked_ilog2();
    match (a, b) {
        _ if apart > a.bit().max(b.bit()) => Lie::Apart(apart.unwrap_or(0)),
        (Node::Leaf(_, mine), Node::Leaf(_, theirs)) => Lie::Same(mine, theirs),
        (Node::Fork(mine), Node::Fork(theirs)) if mine.bit == theirs.bit => Lie::Forks(mine, theirs),
        (Node::Fork(mine), _) if a.bit() > b.bit() => Lie::Inside(mine, side(b.prefix(), mine.bit)),
        (_, Node::Fork(theirs)) => Lie::Outside(theirs, side(a.prefix(), theirs.bit)),
        (Node::Fork(mine), Node::Leaf(key, _)) => Lie::Inside(mine, side(*key, mine.bit)),
    }
}

/// What becomes of two leaves of one key.
fn combined<V>((a, b): (&Arc<Node<V>>, &Arc<Node<V>>), combined: Combined<V>) -> Arc<Node<V>> {
    match combined {
        Combined::First => Arc::clone(a),
        Combined::Second => Arc::clone(b),
        Combined::New(value) => Arc::new(Node::Leaf(a.prefix(), value)),
    }
}

fn joined<V>(a: &Arc<Node<V>>, b: &Arc<Node<V>>, combine: Combine<'_, V>) -> Arc<Node<V>> {
    if Arc::ptr_eq(a, b) {
        return Arc::clone(a);
    }
    let shared = |whole: &Arc<Node<V>>, fork: &Fork<V>, at: usize, part: Arc<Node<V>>| {
        if Arc::ptr_eq(&part, &fork.sides[at]) {
            return Arc::clone(whole);
        }
        let mut sides = fork.sides.clone();
        sides[at] = part;
        Node::fork(sides, fork.bit)
    };
    match lie(a, b) {
        Lie::Same(mine, theirs) => combined((a, b), combine(mine, theirs)),
        Lie::Forks(mine, theirs) => {
            let sides: [_; 2] =
                core::array::from_fn(|at| joined(&mine.sides[at], &theirs.sides[at], combine));
            let same = |fork: &Fork<V>| (0..2).all(|at| Arc::ptr_eq(&sides[at], &fork.sides[at]));
            match (same(mine), same(theirs)) {
                (true, _) => Arc::clone(a),
                (false, true) => Arc::clone(b),
                (false, false) => Node::fork(sides, mine.bit),
            }
        }
        Lie::Inside(mine, at) => shared(a, mine, at, joined(&mine.sides[at], b, combine)),
        Lie::Outside(theirs, at) => shared(b, theirs, at, joined(a, &theirs.sides[at], combine)),
        Lie::Apart(bit) => {
            let mut sides = [Arc::clone(a), Arc::clone(b)];
            sides.rotate_left(side(a.prefix(), bit));
            Node::fork(sides, bit)
        }
    }
}

fn met<V>(a: &Arc<Node<V>>, b: &Arc<Node<V>>, combine: Combine<'_, V>) -> Option<Arc<Node<V>>> {
    if Arc::ptr_eq(a, b) {
        return Some(Arc::clone(a));
    }
    match lie(a, b) {
        Lie::Same(mine, theirs) => Some(combined((a, b), combine(mine, theirs))),
        Lie::Forks(mine, theirs) => {
            let [one, other] = core::array::from_fn(|at| met(&mine.sides[at], &theirs.sides[at], combine));
            match (one, other) {
                (Some(one), Some(other)) => Some(Node::fork([one, other], mine.bit)),
                (one, other) => one.or(other),
            }
        }
        Lie::Inside(mine, at) => met(&mine.sides[at], b, combine),
        Lie::Outside(theirs, at) => met(a, &theirs.sides[at], combine),
        Lie::Apart(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Map = BTreeMap<u128, u32>;

    fn larger(mine: &u32, theirs: &u32) -> Combined<u32> {
        if mine >= theirs { Combined::First } else { Combined::Second }
    }

    fn smaller(mine: &u32, theirs: &u32) -> Combined<u32> {
        if mine == theirs { Combined::First } else { Combined::New(*mine.min(theirs)) }
    }

    fn of(map: &Map) -> Trie<u32> {
        let mut all = Trie::default();
        map.iter().for_each(|(&key, &value)| all.add(key, value, &larger));
        all
    }

    fn list(map: &Trie<u32>) -> Map {
        map.below(u128::MAX).map(|(key, value)| (key, *value)).collect()
    }

    /// Every pair of some maps, against the definition.
    #[test]
    fn joins_and_meets_are_those_of_maps() {
        const KEYS: [u128; 9] = [0, 1, 2, 3, 128, 129, 1 << 64, (1 << 64) + 128, 1 << 127];
        let map = |seed: usize| -> Map {
            let each = |(at, &key): (usize, &u128)| (key, ((seed * 7 + at * 5 + seed * at) % 4) as u32);
            KEYS.iter().enumerate().map(each).filter(|(_, value)| *value > 0).collect()
        };
        for (a, b) in (0..16).flat_map(|a| (0..16).map(move |b| (map(a), map(b)))) {
            let (mut all, mut both) = (of(&a), of(&a));
            assert_eq!(list(&all), a);
            all.join(&of(&b), &larger);
            both.meet(&of(&b), &smaller);
            let mut want = a.clone();
            b.iter().for_each(|(&key, &value)| {
                let mine = want.entry(key).or_default();
                *mine = value.max(*mine);
            });
            assert_eq!(all, of(&want), "{a:?} and {b:?}");
            assert_eq!(all.len(), want.len());
            for key in KEYS {
                assert_eq!(all.get(key), want.get(&key));
                assert!(
                    all.below(key)
                        .map(|(key, value)| (key, *value))
                        .eq(want.range(..key).map(|(&k, &v)| (k, v)))
                );
            }
            let want = a.iter().filter_map(|(key, mine)| Some((*key, *b.get(key)?.min(mine)))).collect();
            assert_eq!(both, of(&want), "{a:?} and {b:?}");
        }
    }

    #[test]
    fn what_has_all_values_is_shared() {
        let (few, many) = (of(&[(3, 1)].into()), of(&[(3, 2), (40, 1)].into()));
        let mut all = few.clone();
        all.join(&many, &larger);
        assert!(Arc::ptr_eq(all.0.as_ref().unwrap(), many.0.as_ref().unwrap()));
        all.join(&few, &larger);
        assert!(Arc::ptr_eq(all.0.as_ref().unwrap(), many.0.as_ref().unwrap()));
    }
}
