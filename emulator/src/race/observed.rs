//! Which strong writes a thread has seen.
//!
//! A write that a thread has seen by a strong read, or by an atomic operation with a result, comes before all
//! that follows there, though nothing else of the writing thread does (PTX ISA 8.9 "Causality order", second
//! rule: a write precedes in observation order the read that returns it, through a chain of atomic operations
//! too). So a thread may reset a flag by a plain store after it has seen the flag set.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of chains of a word that are remembered.
const CHAINS: usize = 8;

/// What a thread has seen: by word, some chains of writes, each with the number of its first write and the
/// largest number seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed(Option<Arc<BTreeMap<u64, Vec<Link>>>>);

/// A write of a word: the number of the write with which its chain of atomic operations began, and its own.
pub(crate) type Link = (u64, u64);

/// The words of some memory.
pub(super) trait Words {
    /// The key of the word at an address, in what threads have seen.
    fn key(&self, address: u64) -> u64;

    /// The strong write of the word at an address that a lane of a warp made at this count of the warp.
    fn made(&self, address: u64, by: (u32, u32, u32)) -> Option<Link>;
}

impl Observed {
    /// The thread has seen a write.
    pub(crate) fn add(&mut self, key: u64, (chain, number): Link) {
        if self.has(key, (chain, number)) {
            return;
        }
        let words = Arc::make_mut(self.0.get_or_insert_default());
        let chains = words.entry(key).or_default();
        match chains.iter_mut().find(|(first, _)| *first == chain) {
            Some((_, last)) => *last = number.max(*last),
            None => chains.push((chain, number)),
        }
        if chains.len() > CHAINS {
            chains.remove(0);
        }
    }

    /// Whether the thread has seen a write.
    pub(crate) fn has(&self, key: u64, (chain, number): Link) -> bool {
        let chains = self.0.as_ref().and_then(|words| words.get(&key)).into_iter().flatten();
        chains.into_iter().any(|&(first, last)| first == chain && last >= number)
    }

    /// Adds what another thread has seen.
    pub(crate) fn join(&mut self, other: &Self) {
        let Some(theirs) = &other.0 else { return };
        match &self.0 {
            None => self.0.clone_from(&other.0),
            Some(mine) if Arc::ptr_eq(mine, theirs) => {}
            Some(_) => {
                for (&key, chains) in theirs.iter() {
                    chains.iter().for_each(|&link| self.add(key, link));
                }
            }
        }
    }

    /// Keeps what another thread has seen too.
    pub(crate) fn meet(&mut self, other: &Self) {
        let Some(mine) = &self.0 else { return };
        if other.0.as_ref().is_some_and(|theirs| Arc::ptr_eq(mine, theirs)) {
            return;
        }
        let mut both = Self::default();
        for (&key, chains) in mine.iter() {
            let theirs = other.0.as_ref().and_then(|words| words.get(&key)).into_iter().flatten();
            for &(chain, last) in theirs {
                let common = chains.iter().filter(|(first, _)| *first == chain);
                common.for_each(|&(_, mine)| both.add(key, (chain, last.min(mine))));
            }
        }
        *self = both;
    }

    /// What concerns words whose keys are kept.
    pub(crate) fn filtered(&self, keep: impl Fn(u64) -> bool) -> Self {
        let Some(words) = &self.0 else { return Self::default() };
        if words.keys().all(|&key| keep(key)) {
            return self.clone();
        }
        let mut kept = BTreeMap::clone(words);
        kept.retain(|&key, _| keep(key));
        Self((!kept.is_empty()).then(|| Arc::new(kept)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_seen_up_to_a_write() {
        let mut one = Observed::default();
        one.add(8, (3, 5));
        assert!(one.has(8, (3, 4)) && !one.has(8, (3, 6)) && !one.has(8, (2, 4)) && !one.has(9, (3, 4)));
        let mut other = Observed::default();
        other.add(8, (3, 4));
        other.add(9, (1, 1));
        let mut both = one.clone();
        both.meet(&other);
        assert!(both.has(8, (3, 4)) && !both.has(8, (3, 5)) && !both.has(9, (1, 1)));
        one.join(&other);
        assert!(one.has(8, (3, 5)) && one.has(9, (1, 1)));
        assert!(!one.filtered(|key| key == 9).has(8, (3, 5)));
        (10..30).for_each(|chain| one.add(8, (chain, chain)));
        assert!(one.has(8, (29, 29)) && !one.has(8, (3, 5)), "the last ones are kept");
    }
}
