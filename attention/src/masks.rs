//! The masks and score functions that a spec can name, and how they are combined.

use std::sync::Arc;

use collective::{Accuracy, Fast, Real};

use crate::count::Count;
use crate::formula::FormulaScores;
use crate::scores::{AnyScores, Scope, Scores, any};
use crate::spec::{AttentionSpec, Mask};

/// Every query sees every key.
#[derive(Clone, Copy, Debug)]
pub struct Full;

impl Scores for Full {
    fn name() -> String {
        "full".into()
    }
}

/// A query sees the keys up to its own. The last query stands at the last key.
#[derive(Clone, Copy, Debug)]
pub struct Causal;

impl Scores for Causal {
    const MASKS: bool = true;

    fn name() -> String {
        "causal".into()
    }

    #[track_caller]
    fn range<N: Count>(of: &Scope<'_, N>, row: N) -> Option<[N; 2]> {
        Some([row.constant(0), of.diagonal(row).plus(1)])
    }
}

/// A query sees at most `left` keys before its own, its own, and at most `right` keys after it. Both numbers are from 0
/// to 2^30: `right` is 0 for a causal window, 2^30 for no limit. The last query stands at the last key.
#[derive(Clone, Copy, Debug)]
pub struct Window;

impl Scores for Window {
    const MASKS: bool = true;
    const GROWS: bool = false;
    const COUNTS: &'static [&'static str] = &["left", "right"];

    fn name() -> String {
        "window".into()
    }

    #[track_caller]
    fn range<N: Count>(of: &Scope<'_, N>, row: N) -> Option<[N; 2]> {
        let own = of.diagonal(row);
        Some([own - of.counts[0], own.plus(1) + of.counts[1]])
    }
}

/// Keys are in chunks of `chunk`. A query sees the keys of its own chunk up to its own. The last query stands at the
/// last key.
#[derive(Clone, Copy, Debug)]
pub struct Chunked;

impl Scores for Chunked {
    const MASKS: bool = true;
    const GROWS: bool = false;
    const COUNTS: &'static [&'static str] = &["chunk"];

    fn name() -> String {
        "chunked".into()
    }

    #[track_caller]
    fn range<N: Count>(of: &Scope<'_, N>, row: N) -> Option<[N; 2]> {
        let (own, chunk) = (of.diagonal(row), of.counts[0]);
        Some([own / chunk * chunk, own.plus(1)])
    }
}

/// Scores are `cap * tanh(score / cap)`. The device's `tanh` errs by up to 1e-7, so that scores err by that times the cap.
#[derive(Clone, Copy, Debug)]
pub struct SoftCap;

impl Scores for SoftCap {
    const CHANGES: bool = true;
    const REALS: &'static [&'static str] = &["cap"];
    const PER_HEAD: usize = 1;

    fn name() -> String {
        "softcap".into()
    }

    #[track_caller]
    fn per_head<N: Count>(of: &Scope<'_, N>) -> Vec<N::Real> {
        vec![of.reals[0].recip()]
    }

    #[track_caller]
    fn score<N: Count>(of: &Scope<'_, N>, _row: N, _key: N, x: N::Real) -> N::Real {
        Fast::tanh(x * of.reals[1]) * of.reals[0]
    }
}

/// Scores fall with the distance of query and key, by the slope of the head per key. The usual slope of head `h` of `n` is
/// `2^(-8 (h + 1) / n)`. The last query stands at the last key.
#[derive(Clone, Copy, Debug)]
pub struct Alibi;

impl Scores for Alibi {
    const CHANGES: bool = true;
    const HEADS: &'static [&'static str] = &["slopes"];

    fn name() -> String {
        "alibi".into()
    }

    #[track_caller]
    fn score<N: Count>(of: &Scope<'_, N>, row: N, key: N, x: N::Real) -> N::Real {
        x - (of.diagonal(row) - key).real().abs() * of.reals[0]
    }
}

/// The scope as one of a pair sees it.
fn part<'a, N: Count>(of: &Scope<'a, N>, counts: &'a [N], reals: &'a [N::Real]) -> Scope<'a, N> {
    Scope { counts, reals, ..*of }
}

/// The scopes of both of a pair, with their arguments alone.
fn parts<'a, A: Scores, N: Count>(of: &Scope<'a, N>) -> [Scope<'a, N>; 2] {
    let (counts, more_counts) = of.counts.split_at(A::counts().len());
    let (reals, more_reals) = of.reals.split_at(A::reals().len());
    [part(of, counts, reals), part(of, more_counts, more_reals)]
}

/// What each of a pair finds in the scope's reals: its arguments, the numbers of its arrays, and its own [`per_head`](Scores::per_head), if these
/// are there yet.
fn reals_of<A: Scores, B: Scores, N: Count>(of: &Scope<'_, N>) -> [Vec<N::Real>; 2] {
    let lengths =
        [A::reals().len(), B::reals().len(), A::heads().len(), B::heads().len(), A::PER_HEAD, B::PER_HEAD];
    let mut rest = of.reals;
    let parts = lengths.map(|length| {
        let (part, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        part
    });
    [0, 1].map(|i| [parts[i], parts[i + 2], parts[i + 4]].concat())
}

impl<A: Scores, B: Scores> Scores for (A, B) {
    const MASKS: bool = A::MASKS || B::MASKS;
    const GROWS: bool = A::GROWS || B::GROWS;
    const CHANGES: bool = A::CHANGES || B::CHANGES;
    const PER_HEAD: usize = A::PER_HEAD + B::PER_HEAD;

    fn name() -> String {
        format!("{}_{}", A::name(), B::name())
    }

    fn counts() -> Vec<&'static str> {
        [A::counts(), B::counts()].concat()
    }

    fn reals() -> Vec<&'static str> {
        [A::reals(), B::reals()].concat()
    }

    fn heads() -> Vec<&'static str> {
        [A::heads(), B::heads()].concat()
    }

    #[track_caller]
    fn range<N: Count>(of: &Scope<'_, N>, row: N) -> Option<[N; 2]> {
        let [a, b] = parts::<A, N>(of);
        match (A::range(&a, row), B::range(&b, row)) {
            (Some(a), Some(b)) => Some(both(a, b)),
            (range, None) if !B::MASKS => range,
            (None, range) if !A::MASKS => range,
            _ => None,
        }
    }

    #[track_caller]
    fn seen<N: Count>(of: &Scope<'_, N>, rows: [N; 2]) -> [N; 2] {
        let [a, b] = parts::<A, N>(of);
        match (A::MASKS, B::MASKS) {
            (_, false) => A::seen(&a, rows),
            (false, true) => B::seen(&b, rows),
            (true, true) => both(A::seen(&a, rows), B::seen(&b, rows)),
        }
    }

    #[track_caller]
    fn seen_by_all<N: Count>(of: &Scope<'_, N>, rows: [N; 2]) -> [N; 2] {
        let [a, b] = parts::<A, N>(of);
        match (A::MASKS, B::MASKS) {
            (_, false) => A::seen_by_all(&a, rows),
            (false, true) => B::seen_by_all(&b, rows),
            (true, true) => both(A::seen_by_all(&a, rows), B::seen_by_all(&b, rows)),
        }
    }

    #[track_caller]
    fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        let [a, b] = parts::<A, N>(of);
        match (A::MASKS, B::MASKS) {
            (_, false) => A::sees(&a, row, key),
            (false, true) => B::sees(&b, row, key),
            (true, true) => A::sees(&a, row, key) & B::sees(&b, row, key),
        }
    }

    #[track_caller]
    fn per_head<N: Count>(of: &Scope<'_, N>) -> Vec<N::Real> {
        let ([a, b], [of_a, of_b]) = (parts::<A, N>(of), reals_of::<A, B, N>(of));
        [A::per_head(&part(&a, a.counts, &of_a)), B::per_head(&part(&b, b.counts, &of_b))].concat()
    }

    #[track_caller]
    fn score<N: Count>(of: &Scope<'_, N>, row: N, key: N, x: N::Real) -> N::Real {
        let ([a, b], [of_a, of_b]) = (parts::<A, N>(of), reals_of::<A, B, N>(of));
        let x = if A::CHANGES { A::score(&part(&a, a.counts, &of_a), row, key, x) } else { x };
        if B::CHANGES { B::score(&part(&b, b.counts, &of_b), row, key, x) } else { x }
    }
}

/// The keys in both ranges.
#[track_caller]
fn both<N: Count>([begin, end]: [N; 2], [second, second_end]: [N; 2]) -> [N; 2] {
    [begin.max(second), end.min(second_end)]
}

/// The scores of a spec: its formulas; or those of its mask, then its cap, then its bias.
pub(crate) fn of_spec(spec: &AttentionSpec) -> Arc<dyn AnyScores> {
    fn with<M: Scores>(spec: &AttentionSpec) -> Arc<dyn AnyScores> {
        match (spec.soft_cap, spec.alibi) {
            (false, false) => any::<M>(),
            (true, false) => any::<(M, SoftCap)>(),
            (false, true) => any::<(M, Alibi)>(),
            (true, true) => any::<((M, SoftCap), Alibi)>(),
        }
    }
    if spec.score.is_some() || spec.sees.is_some() {
        return Arc::new(FormulaScores::new(spec.score, spec.sees));
    }
    match spec.mask {
        Mask::Full => with::<Full>(spec),
        Mask::Causal => with::<Causal>(spec),
        Mask::Window => with::<Window>(spec),
        Mask::Chunked => with::<Chunked>(spec),
    }
}
