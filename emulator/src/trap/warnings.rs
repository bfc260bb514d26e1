//! Faults that do not end a launch.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::Trap;

/// Collects the debatable faults of launches ([`Options::warnings`](crate::Options::warnings)): what the ISA does not allow, but
/// compilers emit and cards have been seen to bear. Each instruction is listed once.
///
/// There is one so far, [`Fault::MbarrierNotFenced`](crate::Fault::MbarrierNotFenced) where the async proxy works for the CTA that
/// initialised the mbarrier: a barrier of its threads orders the initialisation before the copy, but no proxy fence does.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<BTreeMap<usize, Trap>>);

impl Warnings {
    /// No warnings so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first warning of each instruction, in the order of the program.
    pub fn list(&self) -> Vec<Trap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn add(&self, pc: usize, warning: impl FnOnce() -> Trap) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(pc).or_insert_with(warning);
    }
}
