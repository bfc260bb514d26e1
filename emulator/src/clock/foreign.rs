//! Counts of other clusters, in a list that clocks share.

use std::sync::Arc;

/// How many times longer a list is than one whose counts are looked up one by one.
const FEW: usize = 16;

/// Counts by number in the grid, sorted and shared. `None` is the empty list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Foreign(pub(super) Option<Arc<Vec<(u32, u32)>>>);

impl Foreign {
    pub(super) fn list(&self) -> &[(u32, u32)] {
        self.0.as_ref().map_or(&[], |list| list)
    }

    pub(super) fn of(&self, number: u32) -> u32 {
        let list = self.list();
        list.binary_search_by_key(&number, |(number, _)| *number).map_or(0, |at| list[at].1)
    }

    /// Raises every count to that of another list. Takes the other list itself if it knows all of this one.
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
        match merged(mine, theirs) {
            Merged::First => {}
            Merged::Second => self.0.clone_from(&other.0),
            Merged::New(list) => self.0 = Some(Arc::new(list)),
        }
    }

    /// Raises every count to that of a sorted list.
    pub(super) fn raise(&mut self, more: &[(u32, u32)]) {
        let Some(mine) = &mut self.0 else {
            self.0 = (!more.is_empty()).then(|| Arc::new(more.to_vec()));
            return;
        };
        if more.len() * FEW > mine.len() {
            return self.join(&Self(Some(Arc::new(more.to_vec()))));
        }
        for &(number, count) in more {
            match mine.binary_search_by_key(&number, |(number, _)| *number) {
                Ok(at) if mine[at].1 >= count => {}
                Ok(at) => Arc::make_mut(mine)[at].1 = count,
                Err(at) => Arc::make_mut(mine).insert(at, (number, count)),
            }
        }
    }

    /// Lowers every count to that of another list.
    pub(super) fn meet(&mut self, other: &Self) {
        if self == other {
            return;
        }
        let mut both = self.list().to_vec();
        both.retain_mut(|(number, count)| {
            *count = (*count).min(other.of(*number));
            *count > 0
        });
        self.0 = (!both.is_empty()).then(|| Arc::new(both));
    }

    pub(super) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        if self.list().iter().any(|(number, _)| !keep(*number)) {
            let kept: Vec<_> = self.list().iter().copied().filter(|(number, _)| keep(*number)).collect();
            self.0 = (!kept.is_empty()).then(|| Arc::new(kept));
        }
    }
}

/// The larger counts of two lists.
enum Merged {
    /// The first list has them all.
    First,
    /// The second list has them all.
    Second,
    New(Vec<(u32, u32)>),
}

fn merged(a: &[(u32, u32)], b: &[(u32, u32)]) -> Merged {
    let same = a.len() == b.len() && a.iter().zip(b).all(|((one, _), (other, _))| one == other);
    if same {
        let pairs = || a.iter().zip(b).map(|((_, mine), (_, theirs))| (mine, theirs));
        if pairs().all(|(mine, theirs)| mine >= theirs) {
            return Merged::First;
        }
        if pairs().all(|(mine, theirs)| theirs >= mine) {
            return Merged::Second;
        }
        let all = a.iter().zip(b).map(|((number, mine), (_, theirs))| (*number, *mine.max(theirs)));
        return Merged::New(all.collect());
    }
    let mut all = Vec::with_capacity(a.len().max(b.len()));
    let (mut i, mut j) = (0, 0);
    let (mut first, mut second) = (true, true);
    loop {
        match (a.get(i), b.get(j)) {
            (None, None) => break,
            (Some(one), other) if other.is_none_or(|other| one.0 < other.0) => {
                second = false;
                all.push(*one);
                i += 1;
            }
            (one, Some(other)) if one.is_none_or(|one| other.0 < one.0) => {
                first = false;
                all.push(*other);
                j += 1;
            }
            (Some((number, mine)), Some((_, theirs))) => {
                first &= mine >= theirs;
                second &= theirs >= mine;
                all.push((*number, *mine.max(theirs)));
                (i, j) = (i + 1, j + 1);
            }
            (Some(_), None) | (None, Some(_)) => break,
        }
    }
    if first {
        Merged::First
    } else if second {
        Merged::Second
    } else {
        Merged::New(all)
    }
}
