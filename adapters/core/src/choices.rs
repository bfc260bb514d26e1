//! What was chosen, by what the choice depends on.

use core::fmt;
use core::hash::Hash;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What was chosen, by what the choice depends on: for a `static`.
pub struct Choices<Of, K> {
    all: Mutex<Option<HashMap<Of, Arc<K>>>>,
    most: usize,
}

impl<Of, K> fmt::Debug for Choices<Of, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choices").field("most", &self.most).finish_non_exhaustive()
    }
}

impl<Of: Eq + Hash, K> Choices<Of, K> {
    /// Keeps at most so many choices. Beyond that, all are forgotten.
    pub const fn new(most: usize) -> Self {
        Self { all: Mutex::new(None), most }
    }

    fn all<T>(&self, with: impl FnOnce(&mut HashMap<Of, Arc<K>>) -> T) -> T {
        with(self.all.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
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
        Ok(self.all(|all| {
            if all.len() >= self.most {
                all.clear();
            }
            Arc::clone(all.entry(of).or_insert(made))
        }))
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.all(HashMap::clear);
    }
}
