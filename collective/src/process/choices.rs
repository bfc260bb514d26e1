//! What was chosen, by what the choice depends on.

use core::fmt;
use core::hash::Hash;
use core::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use super::Locked;

/// What was chosen, by what the choice depends on: for a `static`. Those that were asked for last are kept.
pub struct Choices<Of: Eq + Hash, K> {
    all: Locked<Option<LruCache<Of, Arc<K>>>>,
    most: NonZeroUsize,
}

impl<Of: Eq + Hash, K> fmt::Debug for Choices<Of, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choices").field("most", &self.most).finish_non_exhaustive()
    }
}

impl<Of: Eq + Hash, K> Choices<Of, K> {
    /// Keeps at most so many choices, and at least one.
    pub const fn new(most: usize) -> Self {
        let most = match NonZeroUsize::new(most) {
            Some(most) => most,
            None => NonZeroUsize::MIN,
        };
        Self { all: Locked::new(None), most }
    }

    fn all<T>(&self, with: impl FnOnce(&mut LruCache<Of, Arc<K>>) -> T) -> T {
        with(self.all.lock().get_or_insert_with(|| LruCache::new(self.most)))
    }

    /// What is known, or what is made now. It is made without a lock.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get<E>(&self, of: Of, make: impl FnOnce(&Of) -> Result<K, E>) -> Result<Arc<K>, E> {
        if let Some(known) = self.all(|all| all.get(&of).cloned()) {
            return Ok(known);
        }
        let made = Arc::new(make(&of)?);
        // What is forgotten is dropped without the lock, too: it may unload a kernel.
        let (kept, _forgotten) = self.all(|all| match all.get(&of) {
            Some(other) => (Arc::clone(other), None),
            None => (Arc::clone(&made), all.push(of, Arc::clone(&made))),
        });
        Ok(kept)
    }

    /// Forgets all.
    pub fn clear(&self) {
        let _forgotten = self.all.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use super::Choices;

    #[test]
    fn those_that_were_asked_for_last_are_kept() {
        static ALL: Choices<u32, u32> = Choices::new(2);
        let mut made = 0;
        let mut get = |of| {
            let kept = ALL.get(of, |of| {
                made += 1;
                if *of > 9 { Err(*of) } else { Ok(10 * of) }
            });
            (kept.map(|kept| *kept), made)
        };
        assert_eq!([get(1), get(2), get(1), get(3)], [(Ok(10), 1), (Ok(20), 2), (Ok(10), 2), (Ok(30), 3)]);
        assert_eq!([get(1), get(2)], [(Ok(10), 3), (Ok(20), 4)], "2 was forgotten for 3");
        assert_eq!([get(11), get(11)], [(Err(11), 5), (Err(11), 6)], "errors are not kept");
        ALL.clear();
        assert_eq!(get(2), (Ok(20), 7));
    }
}
