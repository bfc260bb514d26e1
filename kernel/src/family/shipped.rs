//! Measurements of a family's problems that come with a library.

use core::hash::Hash;
use std::collections::HashMap;

use collective::process::Once;

use super::{Family, Predicted};
use crate::select::{Card, Machine, measured_words};
use crate::sheet::Sheet;

/// What was measured of exact problems on one card, and comes with a library: for a `static`. The kernels of such a problem are
/// [ranked](Family::ranked) first on that card.
///
/// It is a text. Lines that begin with `#` are comments; each spec has a line with its number, from 0 on; and each problem has a line with
/// numbers of specs and their microseconds, the fastest first. What cannot be read is left out. The text is read when a request on that card first asks, and each look-up
/// is one in a hash table, by the part `P` of a request that decides which kernel is fastest.
pub struct ShippedOf<K: Family, P: 'static> {
    card: Card,
    text: &'static str,
    part: fn(&K::Request<'static>) -> P,
    known: Once<Known<K, P>>,
}

/// The kernels of each problem, by the specs of a sheet.
type Known<K, P> = (HashMap<P, &'static str>, Sheet<<K as Family>::Spec>);

impl<K: Family, P> core::fmt::Debug for ShippedOf<K, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ShippedOf")
            .field("family", &K::NAME)
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}

impl<K: Family, P: Eq + Hash> ShippedOf<K, P> {
    /// The measurements of a text on a card. `part` is what a choice depends on, of a request that its problem's text gives.
    pub const fn new(card: Card, text: &'static str, part: fn(&K::Request<'static>) -> P) -> Self {
        Self { card, text, part, known: Once::new() }
    }

    /// The fastest of the kernels that were measured for exactly this part of a request on a machine's card, and can compute the request.
    pub fn fastest(&self, request: &K::Request<'_>, part: &P, machine: &Machine) -> Option<Predicted<K>> {
        if machine.card != self.card {
            return None;
        }
        let (kernels, sheet) = self.known.get_or_init(|| self.read());
        let kernels = sheet.kernels(kernels.get(part)?);
        let times: Vec<_> = kernels.map(|(spec, microseconds)| (spec.clone(), microseconds)).collect();
        let of = K::measured(request, machine, &times)?;
        Some(Predicted { reason: measured_words(of.microseconds), ..of })
    }

    fn read(&self) -> Known<K, P> {
        let (sheet, problems) = Sheet::parse(self.text, |spec| spec.parse().ok());
        let part = |problem: &str| Some((self.part)(&K::request(problem).ok()?));
        (problems.into_iter().filter_map(|(problem, of)| Some((part(problem)?, of))).collect(), sheet)
    }
}

/// A kernel that was measured for a request, if one was, and then those of a model's ranking, at most `most` in all: an implementation of
/// [`Family::ranked`] for a family with [`ShippedOf`].
///
/// # Errors
/// Those of the ranking. Where one kernel is wanted and one was measured, nothing is ranked.
pub fn measured_first<K: Family>(
    measured: Option<Predicted<K>>,
    most: usize,
    rank: impl FnOnce(usize) -> Result<Vec<Predicted<K>>, String>,
) -> Result<Vec<Predicted<K>>, String> {
    let Some(first) = measured else { return rank(most) };
    let mut all = if most > 1 { rank(most)? } else { Vec::new() };
    let spec = first.kernel.spec();
    all.retain(|of| of.kernel.spec() != spec);
    all.insert(0, first);
    all.truncate(most);
    Ok(all)
}
