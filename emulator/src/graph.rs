//! The control flow of a program: its blocks, its loops, the order in which lanes of a warp that are at different places execute,
//! and where they may meet again.
//!
//! PTX does not say where the threads of a warp reconverge after a branch. Here they do so as early as they can: of lanes at
//! different places, those that are first in the *order* execute, and lanes wait at the beginning of a block that earlier lanes may
//! still come to. The order is that of the program, except that a loop comes before what follows it, and a round of a loop before
//! the next round. Source: Diamos et al., "SIMD re-convergence at thread frontiers", MICRO 2011, whose frontier of a block is the
//! set of blocks to which lanes that wait for it may have gone.
//!
//! Loops are the strongly connected parts of the graph, and those within them without the edges to the loop's first block, which is
//! where it is entered. So every graph has them, also one that no structured program has.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::OnceLock;

/// The rounds of the loops that lanes are in, outermost first: the loop, and the number of times it has begun anew.
pub(crate) type Rounds = Vec<(u32, u64)>;

/// A place in the program: a block, an operation in it, and the rounds of the loops around it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) block: usize,
    pub(crate) pc: usize,
    pub(crate) rounds: &'a Rounds,
}

/// The blocks of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// The blocks that may follow each block.
    next: Vec<Vec<usize>>,
    /// The loops around each block, outermost first.
    loops: Vec<Vec<u32>>,
    /// For the first block of a loop: the loop's index in `loops`.
    first: Vec<Option<usize>>,
    /// The place of each block in the order.
    position: Vec<u32>,
    /// The blocks that may come after a block, if the outermost loops go through no more rounds: one bit per block, for each number of
    /// such loops and each block. They are computed when they are asked for.
    after: Vec<OnceLock<Box<[u64]>>>,
}

impl Graph {
    /// The graph of blocks with these successors. Block 0 is where the program begins; ties in the order go by number.
    pub(crate) fn new(next: Vec<Vec<usize>>) -> Self {
        let count = next.len();
        let mut graph = Self {
            next,
            loops: vec![Vec::new(); count],
            first: vec![None; count],
            position: vec![0; count],
            after: Vec::new(),
        };
        let mut before = vec![Vec::new(); count];
        for (block, next) in graph.next.iter().enumerate() {
            next.iter().for_each(|&other| before[other].push(block));
        }
        let mut found = Found { loops: 0, position: 0, before };
        graph.nest((0..count).collect(), &BTreeSet::new(), &mut found);
        let depths = graph.loops.iter().map(Vec::len).max().unwrap_or(0) + 1;
        graph.after = (0..depths * count).map(|_| OnceLock::new()).collect();
        graph
    }

    /// Whether a block begins a loop.
    pub(crate) fn begins_loop(&self, block: usize) -> bool {
        self.first[block].is_some()
    }

    /// Counts the rounds of lanes that go from one block to another.
    pub(crate) fn go(&self, rounds: &mut Rounds, from: usize, to: usize) {
        let Some(at) = self.first[to] else { return };
        let around = &self.loops[to];
        let known = rounds.iter().zip(around).take_while(|((known, _), own)| known == *own).count();
        let again = self.loops[from].get(at) == Some(&around[at]);
        let count = if again { self.round(rounds, to, at) + 1 } else { 0 };
        rounds.truncate(known.min(at));
        rounds.extend(around[rounds.len()..at].iter().map(|&own| (own, 0)));
        rounds.push((around[at], count));
    }

    fn round(&self, rounds: &Rounds, block: usize, at: usize) -> u64 {
        rounds.get(at).filter(|(known, _)| *known == self.loops[block][at]).map_or(0, |(_, round)| *round)
    }

    /// The order of two places, and the number of loops around both in which the rounds are equal.
    fn compare(&self, a: Place<'_>, b: Place<'_>) -> (Ordering, usize) {
        let common = self.loops[a.block].iter().zip(&self.loops[b.block]).take_while(|(a, b)| a == b).count();
        for at in 0..common {
            let order = self.round(a.rounds, a.block, at).cmp(&self.round(b.rounds, b.block, at));
            if order.is_ne() {
                return (order, at);
            }
        }
        let position = |place: Place<'_>| (self.position[place.block], place.pc);
        (position(a).cmp(&position(b)), common)
    }

    /// Which of two places is first in the order.
    pub(crate) fn order(&self, a: Place<'_>, b: Place<'_>) -> Ordering {
        self.compare(a, b).0
    }

    /// Whether lanes at one place may still come to another one, which is at the beginning of a block.
    pub(crate) fn may_come(&self, from: Place<'_>, to: Place<'_>) -> bool {
        let (order, equal) = self.compare(from, to);
        order.is_lt() && self.after(equal, from.block)[to.block / 64] >> (to.block % 64) & 1 == 1
    }

    /// The blocks that may come after a block, if the `depth` outermost loops go through no more rounds.
    fn after(&self, depth: usize, block: usize) -> &[u64] {
        let count = self.next.len();
        self.after[depth * count + block].get_or_init(|| {
            let mut seen = vec![0; count.div_ceil(64)].into_boxed_slice();
            let mut open = vec![block];
            while let Some(block) = open.pop() {
                for &next in &self.next[block] {
                    let again = |at: usize| self.loops[block].get(at) == self.loops[next].get(at);
                    let ends = self.first[next].is_some_and(|at| at < depth && again(at));
                    let bit = 1u64 << (next % 64);
                    if !ends && seen[next / 64] & bit == 0 {
                        seen[next / 64] |= bit;
                        open.push(next);
                    }
                }
            }
            seen
        })
    }

    /// Finds the loops among some blocks, and puts the blocks into order. `cut` are first blocks of loops around, to which no edges
    /// are followed.
    fn nest(&mut self, blocks: Vec<usize>, cut: &BTreeSet<usize>, found: &mut Found) {
        for part in self.parts(&blocks, cut, found) {
            let [only] = part[..] else {
                self.nest_loop(part, cut, found);
                continue;
            };
            if self.next[only].contains(&only) && !cut.contains(&only) {
                self.nest_loop(part, cut, found);
                continue;
            }
            self.position[only] = found.position;
            found.position += 1;
        }
    }

    fn nest_loop(&mut self, part: Vec<usize>, cut: &BTreeSet<usize>, found: &mut Found) {
        // Where it is entered; the program itself enters block 0.
        let entered = |&block: &usize| {
            block == 0 || found.before[block].iter().any(|other| part.binary_search(other).is_err())
        };
        let entry = part.iter().copied().filter(|block| !cut.contains(block)).find(entered);
        let first = entry.or(part.first().copied()).unwrap_or(0);
        let own = found.loops;
        found.loops += 1;
        self.first[first] = Some(self.loops[first].len());
        part.iter().for_each(|&block| self.loops[block].push(own));
        let mut cut = cut.clone();
        cut.insert(first);
        self.nest(part, &cut, found);
    }

    /// The strongly connected parts of some blocks in topological order; of parts of which none must come first, the one with the lowest
    /// number. The blocks of a part are in increasing order.
    fn parts(&self, blocks: &[usize], cut: &BTreeSet<usize>, found: &Found) -> Vec<Vec<usize>> {
        const NONE: usize = usize::MAX;
        let inside: BTreeSet<usize> = blocks.iter().copied().collect();
        let follows =
            |from: &usize, to: &usize| inside.contains(from) && inside.contains(to) && !cut.contains(to);
        // Kosaraju's algorithm: blocks in the order in which a depth-first search leaves them, then searches backwards.
        let mut left = Vec::with_capacity(blocks.len());
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        for &root in blocks {
            if !seen.insert(root) {
                continue;
            }
            let mut path = vec![(root, 0)];
            while let Some((block, at)) = path.last_mut() {
                let (from, edge) = (*block, self.next[*block].get(*at).copied());
                *at += 1;
                match edge {
                    Some(to) if follows(&from, &to) && seen.insert(to) => path.push((to, 0)),
                    Some(_) => {}
                    None => {
                        left.push(from);
                        path.pop();
                    }
                }
            }
        }
        let mut part_of = std::collections::BTreeMap::new();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for &root in left.iter().rev() {
            if part_of.contains_key(&root) {
                continue;
            }
            let mut part = Vec::new();
            let mut open = vec![root];
            part_of.insert(root, parts.len());
            while let Some(block) = open.pop() {
                part.push(block);
                for from in &found.before[block] {
                    if follows(from, &block) && !part_of.contains_key(from) {
                        part_of.insert(*from, parts.len());
                        open.push(*from);
                    }
                }
            }
            part.sort_unstable();
            parts.push(part);
        }
        let of = |block: &usize| part_of.get(block).copied().unwrap_or(NONE);
        let edges = |part: &[usize]| {
            let all = part.iter().flat_map(|from| self.next[*from].iter().map(move |to| (from, to)));
            let all = all.filter(|&(from, to)| follows(from, to) && of(from) != of(to));
            all.map(|(_, to)| of(to)).collect::<BTreeSet<usize>>()
        };
        let mut missing = vec![0; parts.len()];
        parts.iter().flat_map(|part| edges(part)).for_each(|to| missing[to] += 1);
        let free = (0..parts.len()).filter(|&part| missing[part] == 0);
        let mut free: BinaryHeap<_> = free.map(|part| Reverse((parts[part][0], part))).collect();
        let mut ordered = Vec::with_capacity(parts.len());
        while let Some(Reverse((_, part))) = free.pop() {
            for to in edges(&parts[part]) {
                missing[to] -= 1;
                if missing[to] == 0 {
                    free.push(Reverse((parts[to][0], to)));
                }
            }
            ordered.push(core::mem::take(&mut parts[part]));
        }
        ordered
    }
}

/// What has been found so far.
struct Found {
    loops: u32,
    position: u32,
    /// The blocks before each block.
    before: Vec<Vec<usize>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(block: usize, rounds: &'a Rounds) -> Place<'a> {
        Place { block, pc: block, rounds }
    }

    /// `if { 1 } else { 2 }; 3`.
    #[test]
    fn the_branches_of_an_if_wait_behind_it() {
        let graph = Graph::new(vec![vec![1, 2], vec![3], vec![3], vec![]]);
        let rounds = Rounds::new();
        let may = |from, to| graph.may_come(at(from, &rounds), at(to, &rounds));
        assert!(may(1, 3) && may(2, 3) && may(0, 3));
        assert!(!may(1, 2) && !may(2, 1) && !may(3, 1));
        assert_eq!(graph.order(at(1, &rounds), at(2, &rounds)), Ordering::Less);
    }

    /// `loop { 1; if { 2; break? } ; 3 }; 4`.
    #[test]
    fn lanes_that_leave_a_loop_wait_and_the_others_meet_in_it() {
        let graph = Graph::new(vec![vec![1], vec![2, 3], vec![3, 4], vec![1], vec![]]);
        let mut rounds = Rounds::new();
        graph.go(&mut rounds, 0, 1);
        let may = |from, to| graph.may_come(at(from, &rounds), at(to, &rounds));
        assert!(may(2, 3), "after the inner if, although that may leave the loop");
        assert!(may(2, 4) && may(3, 4), "behind the loop");
        assert!(!may(3, 2), "not in this round");
        let mut later = rounds.clone();
        graph.go(&mut later, 3, 1);
        assert_eq!((rounds[0].1, later[0].1), (0, 1));
        assert!(graph.may_come(at(2, &rounds), at(1, &later)), "in the next round");
        assert!(!graph.may_come(at(1, &later), at(3, &rounds)), "never back");
        assert_eq!(graph.order(at(3, &rounds), at(1, &later)), Ordering::Less);
    }

    /// Two loops, one in the other, and a loop that is entered at two places.
    #[test]
    fn loops_in_loops_begin_anew() {
        let graph = Graph::new(vec![vec![1], vec![2], vec![2, 3], vec![1, 4], vec![]]);
        let mut rounds = Rounds::new();
        for (from, to) in [(0, 1), (1, 2), (2, 2), (2, 2), (2, 3), (3, 1), (1, 2), (2, 2)] {
            graph.go(&mut rounds, from, to);
        }
        assert_eq!(rounds.iter().map(|(_, round)| *round).collect::<Vec<_>>(), [1, 1]);
        let twice = Graph::new(vec![vec![1, 2], vec![2, 3], vec![1], vec![]]);
        let none = Rounds::new();
        assert!(twice.begins_loop(1), "the first block at which it is entered");
        assert!(twice.may_come(at(2, &none), at(3, &none)) && twice.may_come(at(1, &none), at(3, &none)));
    }
}
