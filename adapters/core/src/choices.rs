//! What doors have chosen, until something is measured.

use core::fmt;
use core::hash::Hash;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use falchion::collective::process;
use falchion::kernel::driver::{Context, times_kept};
use falchion::kernel::{Machine, Predicted};

use crate::picked::{Offered, Picked, choose};
use crate::refusal::{Refusal, of_driver};

/// What was chosen, by what the choice depends on: for a `static`. Those that were asked for last are kept, until this process has measured
/// kernels: then each is chosen again.
pub struct Choices<Of: Eq + Hash, K> {
    all: process::Choices<(u64, Of), K>,
    /// How often measured times had been kept.
    times: AtomicU64,
}

impl<Of: Eq + Hash, K> fmt::Debug for Choices<Of, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

impl<Of: Eq + Hash, K> Choices<Of, K> {
    /// Keeps at most so many choices, and at least one.
    pub const fn new(most: usize) -> Self {
        Self { all: process::Choices::new(most), times: AtomicU64::new(0) }
    }

    /// What is known, or what is made now. It is made without a lock.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get<E>(&self, of: Of, make: impl FnOnce(&Of) -> Result<K, E>) -> Result<Arc<K>, E> {
        let now = times_kept();
        if self.times.swap(now, Relaxed) != now {
            self.all.clear();
        }
        self.all.get((now, of), |(_, of)| make(of))
    }
}

/// A family whose kernels depend on nothing of a request but what their specs say, so that requests may share them.
pub trait Shared: Offered<Spec: Eq + Hash> {
    /// What a choice depends on.
    type Key: Eq + Hash;

    /// That of a request.
    fn key(request: &Self::Request<'_>) -> Self::Key;
}

/// What a choice depends on: the card, what is asked, and the text of a spec.
type Of<K> = (Option<usize>, <K as Shared>::Key, Option<String>);

/// Kernels that were picked, with what a door adds to each (its workspaces): for a `static`. A request whose choice is another one's has
/// the same value, so that a cache that grows with each token needs few kernels.
pub struct Picks<K: Shared, T = Picked<K>> {
    by_request: Choices<Of<K>, Arc<T>>,
    by_kernel: process::Choices<(Option<usize>, K::Spec), T>,
}

impl<K: Shared, T> fmt::Debug for Picks<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picks").field("family", &K::NAME).finish_non_exhaustive()
    }
}

impl<K: Shared, T> Picks<K, T> {
    /// Keeps at most so many choices.
    pub const fn new(most: usize) -> Self {
        Self { by_request: Choices::new(most), by_kernel: process::Choices::new(most) }
    }

    /// The kernel for a request, as [`Picked::new`], on a card of this machine, or by the facts of [`machine`] for none. `make` adds what a
    /// door keeps.
    ///
    /// # Errors
    /// Those of [`Picked::new`].
    pub fn get(
        &self,
        request: &K::Request<'_>,
        spec: Option<&str>,
        card: Option<usize>,
        make: impl FnOnce(Picked<K>) -> T,
    ) -> Result<Arc<T>, Refusal> {
        let of = (card, K::key(request), spec.map(str::to_owned));
        let known = self.by_request.get(of, |_| {
            let chosen: Predicted<K> = choose(request, spec, &machine(card)?, card)?;
            match chosen.kernel.spec() {
                Some(of) => self.by_kernel.get((card, of), |_| Picked::of(chosen, request).map(make)),
                None => Picked::of(chosen, request).map(|picked| Arc::new(make(picked))),
            }
        })?;
        Ok(Arc::clone(&known))
    }

    /// The kernel that is measured to be the fastest on a card, as [`Picked::tuned`].
    ///
    /// # Errors
    /// Those of [`Picked::tuned`].
    pub fn tuned(
        &self,
        request: &K::Request<'_>,
        ordinal: usize,
        budget: u32,
        make: impl FnOnce(Picked<K>) -> T,
    ) -> Result<Arc<T>, Refusal> {
        let picked = Picked::tuned(request, ordinal, budget)?;
        match picked.spec() {
            Some(of) => self.by_kernel.get((Some(ordinal), of), |_| Ok(make(picked))),
            None => Ok(Arc::new(make(picked))),
        }
    }
}

/// The numbers by which kernels are chosen on a card of this machine; without one, those of an H200.
///
/// # Errors
/// The driver's.
pub fn machine(card: Option<usize>) -> Result<Machine, Refusal> {
    static KNOWN: process::Choices<usize, Machine> = process::Choices::new(64);
    let Some(ordinal) = card else { return Ok(Machine::h200()) };
    KNOWN.get(ordinal, |_| context(ordinal)?.machine().map_err(of_driver)).map(|known| *known)
}

/// The primary context of a card, which stays as long as the process: choices ask it often.
pub(crate) fn context(ordinal: usize) -> Result<Arc<Context>, Refusal> {
    static KNOWN: process::Choices<usize, Arc<Context>> = process::Choices::new(64);
    let known = KNOWN.get(ordinal, |_| Context::primary(ordinal).map_err(of_driver))?;
    Ok(Arc::clone(&known))
}
