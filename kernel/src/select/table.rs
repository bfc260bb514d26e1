//! Values that are made at their first use and kept as long as the process runs.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Keys with their values. The table is locked only to look a key up: threads that ask for a value that another
/// thread makes wait for it, and no others do.
pub(super) struct Table<K, V>(Mutex<Vec<(K, Arc<OnceLock<V>>)>>);

impl<K: PartialEq + Clone, V: Clone> Table<K, V> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The value of a key. `make` is called if there is none yet.
    pub(super) fn get(&self, key: &K, make: impl FnOnce() -> V) -> V {
        let value = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match all.iter().find(|(known, _)| known == key) {
                Some((_, value)) => Arc::clone(value),
                None => {
                    let value = Arc::default();
                    all.push((key.clone(), Arc::clone(&value)));
                    value
                }
            }
        };
        value.get_or_init(make).clone()
    }
}
