//! Faults that do not end a launch.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::Trap;

/// Collects the debatable faults of launches ([`Options::warnings`](crate::Options::warnings)): what the ISA does not allow, but
/// compilers emit and cards have been seen to bear. Each instruction is listed once.
///
/// * [`Fault::MbarrierNotFenced`](crate::Fault::MbarrierNotFenced) where the async proxy works for the CTA that initialised the mbarrier:
///   a barrier of its threads orders the initialisation before the copy, but no proxy fence does.
/// * [`Fault::SharedRace`](crate::Fault::SharedRace) and [`Fault::GlobalRace`](crate::Fault::GlobalRace) of two stores, where the second one
///   stores what the first one has left there, or both are tensor stores of the same bytes to the
///   same place that nobody has waited for, as by all lanes of a warp.
/// * [`Fault::RegisterUninitialised`](crate::Fault::RegisterUninitialised),
///   [`Fault::SharedUninitialised`](crate::Fault::SharedUninitialised) and
///   [`Fault::GlobalUninitialised`](crate::Fault::GlobalUninitialised): the read gets bytes drawn with [`Options::garbage`](crate::Options::garbage).
///   Whether they matter is seen by a second run with others.
/// * [`Fault::GridNotAwaited`](crate::Fault::GridNotAwaited): the memory may be one that no earlier grid writes.
/// * [`Fault::RegistersTwice`](crate::Fault::RegistersTwice): two `setmaxnreg` without a barrier of the warpgroup between them.
/// * [`Fault::BarrierIncomplete`](crate::Fault::BarrierIncomplete) if threads have arrived at the barrier when the CTA ends, but none waits.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<BTreeMap<(usize, &'static str, u64), Trap>>);

impl Warnings {
    /// No warnings so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first warning of each instruction and rule, in the order of the program.
    pub fn list(&self) -> Vec<Trap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn add(&self, key: (usize, &'static str, u64), warning: impl FnOnce() -> Trap) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert_with(warning);
    }
}
