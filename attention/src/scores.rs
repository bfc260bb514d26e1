//! Which keys a query sees, and what becomes of a score: masks and score functions, written once for host and
//! device.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use collective::Bounded;
use ptx::Value;

use crate::count::Count;

/// What a mask or a score function may depend on, apart from the query and the key.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a, N: Count> {
    /// Number of queries of the sequence.
    pub queries: N,
    /// Number of keys of the sequence.
    pub keys: N,
    /// The query head.
    pub head: N,
    /// The sequence.
    pub batch: N,
    /// The values of [`Scores::COUNTS`].
    pub counts: &'a [N],
    /// The values of [`Scores::REALS`].
    pub reals: &'a [N::Real],
}

impl<N: Count> Scope<'_, N> {
    /// The key at which query `row` stands if the last query stands at the last key.
    #[track_caller]
    pub fn diagonal(&self, row: N) -> N {
        row + (self.keys - self.queries)
    }
}

/// A mask, a score function, or both, as a type.
///
/// [`seen`](Self::seen) and [`seen_by_all`](Self::seen_by_all) tell the kernel which keys it can leave out for a
/// block of queries, and for which it need not ask. Both must agree with [`sees`](Self::sees): check that with
/// [`consistent`].
///
/// ```
/// use attention::{Count, Scope, Scores};
/// use collective::Real;
///
/// /// Causal, with scores that fall with the distance: `reals[0]` per key.
/// struct Fading;
/// impl Scores for Fading {
///     const MASKS: bool = true;
///     const CHANGES: bool = true;
///     const REALS: &'static [&'static str] = &["slope"];
///     fn name() -> String {
///         "fading".into()
///     }
///     fn seen<N: Count>(of: &Scope<'_, N>, [_, last]: [N; 2]) -> [N; 2] {
///         [last.constant(0), of.diagonal(last).plus(1)]
///     }
///     fn seen_by_all<N: Count>(of: &Scope<'_, N>, [first, _]: [N; 2]) -> [N; 2] {
///         [first.constant(0), of.diagonal(first).plus(1)]
///     }
///     fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
///         key.at_most(of.diagonal(row))
///     }
///     fn score<N: Count>(of: &Scope<'_, N>, row: N, key: N, x: N::Real) -> N::Real {
///         x - (of.diagonal(row) - key).real() * of.reals[0]
///     }
/// }
/// attention::consistent::<Fading>(&[], &[0.5])?;
/// # Ok::<(), String>(())
/// ```
pub trait Scores: 'static {
    /// Whether it masks: whether some query may not see some key.
    const MASKS: bool = false;
    /// Whether it changes scores.
    const CHANGES: bool = false;
    /// Names of its whole-number arguments. Each is a kernel parameter.
    const COUNTS: &'static [&'static str] = &[];
    /// Names of its real arguments. Each is a kernel parameter.
    const REALS: &'static [&'static str] = &[];

    /// An identifier for kernel names.
    fn name() -> String;

    /// A range of keys, from the first to one past the last, with every key that at least one of the queries
    /// `rows`, first to last, sees. It may reach beyond the keys that there are. By default: all keys.
    fn seen<N: Count>(of: &Scope<'_, N>, rows: [N; 2]) -> [N; 2] {
        [rows[0].constant(0), of.keys]
    }

    /// A range of keys, from the first to one past the last, that each of the queries `rows`, first to last, sees.
    /// It may be empty, and it may reach beyond the keys that there are. By default: empty, if it masks.
    fn seen_by_all<N: Count>(of: &Scope<'_, N>, rows: [N; 2]) -> [N; 2] {
        let zero = rows[0].constant(0);
        if Self::MASKS { [zero, zero] } else { [zero, of.keys] }
    }

    /// Whether query `row` sees key `key`. By default it does.
    fn sees<N: Count>(_of: &Scope<'_, N>, row: N, _key: N) -> N::Truth {
        row.equals(row)
    }

    /// The score of a query and a key. `x` is their product times the scale. By default: `x`.
    fn score<N: Count>(_of: &Scope<'_, N>, _row: N, _key: N, x: N::Real) -> N::Real {
        x
    }
}

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
    fn seen<N: Count>(of: &Scope<'_, N>, [_, last]: [N; 2]) -> [N; 2] {
        [last.constant(0), of.diagonal(last).plus(1)]
    }

    #[track_caller]
    fn seen_by_all<N: Count>(of: &Scope<'_, N>, [first, _]: [N; 2]) -> [N; 2] {
        [first.constant(0), of.diagonal(first).plus(1)]
    }

    #[track_caller]
    fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        key.at_most(of.diagonal(row))
    }
}

/// Whether the ranges of a mask agree with what it sees, for queries, keys and blocks of many numbers.
///
/// # Errors
/// The first query and key on which they disagree.
pub fn consistent<S: Scores>(counts: &[i64], reals: &[f32]) -> Result<(), String> {
    let reals: Vec<_> = reals.iter().map(|&real| Bounded::exact(real.into())).collect();
    for (queries, keys) in [(1, 1), (1, 9), (9, 1), (7, 7), (12, 20), (20, 12), (33, 40)] {
        let of = Scope { queries, keys, head: 1, batch: 1, counts, reals: &reals };
        for first in 0..queries {
            for last in first..Ord::min(queries, first + 8) {
                let [seen, all] = [S::seen(&of, [first, last]), S::seen_by_all(&of, [first, last])];
                for (row, key) in (first..=last).flat_map(|row| (0..keys).map(move |key| (row, key))) {
                    let within = |[begin, end]: [i64; 2]| (begin..end).contains(&key);
                    let sees = S::sees(&of, row, key) || !S::MASKS;
                    if sees && !within(seen) {
                        return Err(format!(
                            "query {row} of {queries} sees key {key} of {keys}, but `seen` of queries {first} to {last} is {seen:?}"
                        ));
                    }
                    if !sees && within(all) {
                        return Err(format!(
                            "query {row} of {queries} does not see key {key} of {keys}, but `seen_by_all` of queries {first} to {last} is {all:?}"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The scope on the device.
pub(crate) type DeviceScope<'a, 'f> = Scope<'a, Value<'f, i32>>;

/// Scores without their type.
pub(crate) trait AnyScores: fmt::Debug + Send + Sync {
    fn name(&self) -> String;
    fn masks(&self) -> bool;
    fn changes(&self) -> bool;
    fn counts(&self) -> &'static [&'static str];
    fn reals(&self) -> &'static [&'static str];
    fn host_sees(&self, of: &Scope<'_, i64>, row: i64, key: i64) -> bool;
    fn host_score(&self, of: &Scope<'_, i64>, place: [i64; 2], x: Bounded) -> Bounded;
    fn seen<'f>(&self, of: &DeviceScope<'_, 'f>, rows: [Value<'f, i32>; 2]) -> [Value<'f, i32>; 2];
    fn seen_by_all<'f>(&self, of: &DeviceScope<'_, 'f>, rows: [Value<'f, i32>; 2]) -> [Value<'f, i32>; 2];
    fn sees<'f>(&self, of: &DeviceScope<'_, 'f>, row: Value<'f, i32>, key: Value<'f, i32>)
    -> Value<'f, bool>;
    fn score<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        place: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> Value<'f, f32>;
}

struct Typed<S>(PhantomData<fn() -> S>);

impl<S: Scores> fmt::Debug for Typed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&S::name())
    }
}

impl<S: Scores> AnyScores for Typed<S> {
    fn name(&self) -> String {
        S::name()
    }

    fn masks(&self) -> bool {
        S::MASKS
    }

    fn changes(&self) -> bool {
        S::CHANGES
    }

    fn counts(&self) -> &'static [&'static str] {
        S::COUNTS
    }

    fn reals(&self) -> &'static [&'static str] {
        S::REALS
    }

    fn host_sees(&self, of: &Scope<'_, i64>, row: i64, key: i64) -> bool {
        !S::MASKS || S::sees(of, row, key)
    }

    fn host_score(&self, of: &Scope<'_, i64>, [row, key]: [i64; 2], x: Bounded) -> Bounded {
        if S::CHANGES { S::score(of, row, key, x) } else { x }
    }

    fn seen<'f>(&self, of: &DeviceScope<'_, 'f>, rows: [Value<'f, i32>; 2]) -> [Value<'f, i32>; 2] {
        S::seen(of, rows)
    }

    fn seen_by_all<'f>(&self, of: &DeviceScope<'_, 'f>, rows: [Value<'f, i32>; 2]) -> [Value<'f, i32>; 2] {
        S::seen_by_all(of, rows)
    }

    fn sees<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        row: Value<'f, i32>,
        key: Value<'f, i32>,
    ) -> Value<'f, bool> {
        S::sees(of, row, key)
    }

    fn score<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        [row, key]: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> Value<'f, f32> {
        S::score(of, row, key, x)
    }
}

/// The scores of a type.
pub(crate) fn any<S: Scores>() -> Arc<dyn AnyScores> {
    Arc::new(Typed::<S>(PhantomData))
}
