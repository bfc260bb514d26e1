//! Values that are made at their first use, of which the last ones that were asked for are kept.

use std::sync::Arc;

use collective::process::{Locked, Once};

/// Number of values that a table keeps. The kernels of a space, of which an epilogue has one of its own, take 3 MB and
/// are made in 20 ms.
const MOST: usize = 8;

/// A key and its value.
type Row<K, V> = (K, Arc<Once<V>>);

/// Keys with their values, the one that was asked for last at the end. The table is locked only to look a key up:
/// threads that ask for a value that another thread makes wait for it, and no others do.
pub(super) struct Table<K, V>(Locked<Vec<Row<K, V>>>);

impl<K: PartialEq + Clone, V: Clone> Table<K, V> {
    pub(super) const fn new() -> Self {
        Self(Locked::new(Vec::new()))
    }

    /// The value of a key. `make` is called if there is none.
    pub(super) fn get(&self, key: &K, make: impl FnOnce() -> V) -> V {
        let value = {
            let mut all = self.0.lock();
            let row = match all.iter().position(|(known, _)| known == key) {
                Some(place) => all.remove(place),
                None => (key.clone(), Arc::default()),
            };
            let value = Arc::clone(&row.1);
            all.push(row);
            let more = all.len().saturating_sub(MOST);
            all.drain(..more);
            value
        };
        value.get_or_init(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Table};

    #[test]
    fn the_last_ones_are_kept() {
        let (table, made) = (Table::new(), core::cell::Cell::new(0));
        let get = |key: usize| {
            let make = || {
                made.set(made.get() + 1);
                10 * key
            };
            assert_eq!(table.get(&key, make), 10 * key);
        };
        (0..MOST).chain(0..MOST).for_each(get);
        assert_eq!(made.get(), MOST, "each once");
        get(0);
        get(MOST);
        get(0);
        assert_eq!(made.get(), MOST + 1, "asked for before the new one");
        get(1);
        assert_eq!(made.get(), MOST + 2, "that of which nobody asked for longest");
    }
}
