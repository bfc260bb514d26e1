//! Which keys a query sees, and what becomes of a score: masks and score functions, written once for host and
//! device.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use collective::{Bounded, Dual};
use ptx::Value;

use crate::count::{Count, Differentiated};
use crate::formula::{Array, HostArrays};

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
    /// The values of [`Scores::REALS`]; for [`score`](Scores::score) and [`per_head`](Scores::per_head) after them the head's numbers of
    /// [`Scores::HEADS`].
    pub reals: &'a [N::Real],
}

impl<N: Count> Scope<'_, N> {
    /// The key at which query `row` stands if the last query stands at the last key.
    #[track_caller]
    pub fn diagonal(&self, row: N) -> N {
        row + (self.keys - self.queries)
    }
}

/// A mask, a score function, or both, as a type. A pair `(A, B)` is both masks, and `B`'s function of `A`'s scores.
///
/// If the keys that a query sees are a range, [`range`](Self::range) says all of it:
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
///     fn range<N: Count>(of: &Scope<'_, N>, row: N) -> Option<[N; 2]> {
///         Some([row.constant(0), of.diagonal(row).plus(1)])
///     }
///     fn score<N: Count>(of: &Scope<'_, N>, row: N, key: N, x: N::Real) -> N::Real {
///         x - (of.diagonal(row) - key).real() * of.reals[0]
///     }
/// }
/// attention::consistent::<Fading>(&[], &[0.5])?;
/// # Ok::<(), String>(())
/// ```
///
/// Otherwise [`sees`](Self::sees) says it, and [`seen`](Self::seen) and [`seen_by_all`](Self::seen_by_all) tell the
/// kernel which keys it can leave out for a block of queries, and for which it need not ask. These must agree with
/// `sees`: check that with [`consistent`].
pub trait Scores: 'static {
    /// Whether it masks: whether some query may not see some key.
    const MASKS: bool = false;
    /// Whether later queries see more keys, so that tiles of different lengths have to be dealt out evenly. By
    /// default, if it masks.
    const GROWS: bool = Self::MASKS;
    /// Whether it changes scores.
    const CHANGES: bool = false;
    /// Names of its whole-number arguments. Each is a kernel parameter.
    const COUNTS: &'static [&'static str] = &[];
    /// Names of its real arguments. Each is a kernel parameter.
    const REALS: &'static [&'static str] = &[];
    /// Names of its arrays in device memory that have a real number for each head of queries. Each is a kernel parameter.
    const HEADS: &'static [&'static str] = &[];
    /// Length of the result of [`per_head`](Self::per_head).
    const PER_HEAD: usize = 0;

    /// An identifier for kernel names.
    fn name() -> String;

    /// Names of all whole-number arguments. [`COUNTS`](Self::COUNTS), except for a pair.
    fn counts() -> Vec<&'static str> {
        Self::COUNTS.to_vec()
    }

    /// Names of all real arguments. [`REALS`](Self::REALS), except for a pair.
    fn reals() -> Vec<&'static str> {
        Self::REALS.to_vec()
    }

    /// Names of all arrays with a number for each head. [`HEADS`](Self::HEADS), except for a pair.
    fn heads() -> Vec<&'static str> {
        Self::HEADS.to_vec()
    }

    /// The range of keys that query `row` sees, from the first to one past the last, if it is a range. It may reach
    /// beyond the keys that there are. Neither end may decrease from one query to the next.
    fn range<N: Count>(_of: &Scope<'_, N>, _row: N) -> Option<[N; 2]> {
        None
    }

    /// A range of keys, from the first to one past the last, with every key that at least one of the queries
    /// `rows`, first to last, sees. It may reach beyond the keys that there are. By default that of
    /// [`range`](Self::range), or all keys.
    fn seen<N: Count>(of: &Scope<'_, N>, [first, last]: [N; 2]) -> [N; 2] {
        match (Self::range(of, first), Self::range(of, last)) {
            (Some([begin, _]), Some([_, end])) => [begin, end],
            _ => [first.constant(0), of.keys],
        }
    }

    /// A range of keys, from the first to one past the last, that each of the queries `rows`, first to last, sees.
    /// It may be empty, and it may reach beyond the keys that there are. By default that of [`range`](Self::range);
    /// without one it is empty, if it masks.
    fn seen_by_all<N: Count>(of: &Scope<'_, N>, [first, last]: [N; 2]) -> [N; 2] {
        let zero = first.constant(0);
        match (Self::range(of, first), Self::range(of, last)) {
            (Some([_, end]), Some([begin, _])) => [begin, end],
            _ if Self::MASKS => [zero, zero],
            _ => [zero, of.keys],
        }
    }

    /// Whether query `row` sees key `key`. By default, if it is in its [`range`](Self::range), or always.
    fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        match Self::range(of, row) {
            Some([begin, end]) => begin.at_most(key) & key.less(end),
            None => row.equals(row),
        }
    }

    /// Numbers that are the same for all queries and keys of a head. [`score`](Self::score) finds them in the scope's
    /// `reals`, after its arguments and the numbers of its arrays.
    fn per_head<N: Count>(_of: &Scope<'_, N>) -> Vec<N::Real> {
        Vec::new()
    }

    /// The score of a query and a key. `x` is their product times the scale. By default: `x`. The backward pass has its derivative from the
    /// same function.
    fn score<N: Count>(_of: &Scope<'_, N>, _row: N, _key: N, x: N::Real) -> N::Real {
        x
    }
}

/// Whether the ranges of a mask agree with what it sees, for queries, keys and blocks of many numbers.
///
/// # Errors
/// The first query and key on which they disagree.
pub fn consistent<S: Scores>(counts: &[i64], reals: &[f32]) -> Result<(), String> {
    let reals: Vec<_> = reals.iter().map(|&real| Bounded::exact(real.into())).collect();
    let within = |[begin, end]: [i64; 2], key| (begin..end).contains(&key);
    for (queries, keys) in [(1, 1), (1, 9), (9, 1), (7, 7), (12, 20), (20, 12), (33, 40)] {
        let of = Scope { queries, keys, head: 1, batch: 1, counts, reals: &reals };
        for first in 0..queries {
            for last in first..Ord::min(queries, first + 8) {
                let [seen, all] = [S::seen(&of, [first, last]), S::seen_by_all(&of, [first, last])];
                for (row, key) in (first..=last).flat_map(|row| (0..keys).map(move |key| (row, key))) {
                    let sees = S::sees(&of, row, key) || !S::MASKS;
                    if let Some(range) = S::range(&of, row).filter(|&range| within(range, key) != sees) {
                        return Err(format!(
                            "`sees` of query {row} of {queries} and key {key} of {keys} is {sees}, but its range is {range:?}"
                        ));
                    }
                    if sees && !within(seen, key) {
                        return Err(format!(
                            "query {row} of {queries} sees key {key} of {keys}, but `seen` of queries {first} to {last} is {seen:?}"
                        ));
                    }
                    if !sees && within(all, key) {
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
    fn grows(&self) -> bool;
    /// Whether the keys that a query sees are a range, whose ends do not decrease.
    fn is_ranged(&self) -> bool;
    fn changes(&self) -> bool;
    fn counts(&self) -> Vec<&'static str>;
    fn reals(&self) -> Vec<&'static str>;
    fn heads(&self) -> Vec<&'static str>;
    /// Arrays of any number of dimensions.
    fn arrays(&self) -> Vec<&'static Array>;
    /// Whether the heads of a sequence see different keys.
    fn masks_by_head(&self) -> bool;
    /// Whether scores may be so large that their products are rounded by more than 1.
    fn are_large(&self) -> bool;
    fn host_sees(&self, of: &Scope<'_, i64>, arrays: HostArrays<'_>, row: i64, key: i64) -> bool;
    fn host_score(&self, of: &Scope<'_, i64>, arrays: HostArrays<'_>, place: [i64; 2], x: Bounded)
    -> Bounded;
    /// The score, and its derivative by `x`.
    fn host_slope(
        &self,
        of: &Scope<'_, i64>,
        arrays: HostArrays<'_>,
        place: [i64; 2],
        x: Bounded,
    ) -> [Bounded; 2];
    fn range<'f>(&self, of: &DeviceScope<'_, 'f>, row: Value<'f, i32>) -> Option<[Value<'f, i32>; 2]>;
    fn seen<'f>(&self, of: &DeviceScope<'_, 'f>, rows: [Value<'f, i32>; 2]) -> [Value<'f, i32>; 2];
    fn seen_by_all<'f>(&self, of: &DeviceScope<'_, 'f>, rows: [Value<'f, i32>; 2]) -> [Value<'f, i32>; 2];
    fn sees<'f>(&self, of: &DeviceScope<'_, 'f>, row: Value<'f, i32>, key: Value<'f, i32>)
    -> Value<'f, bool>;
    fn per_head<'f>(&self, of: &DeviceScope<'_, 'f>) -> Vec<Value<'f, f32>>;
    fn score<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        place: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> Value<'f, f32>;
    /// The score, and its derivative by `x`.
    fn slope<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        place: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> [Value<'f, f32>; 2];
}

/// The score of a query and a key, and its derivative by `x`. The scope's reals do not depend on it.
#[track_caller]
fn slope<S: Scores, N: Count>(of: &Scope<'_, N>, [row, key]: [N; 2], x: N::Real) -> [N::Real; 2] {
    let counts: Vec<_> = of.counts.iter().map(|&count| Differentiated(count)).collect();
    let reals: Vec<_> = of.reals.iter().map(|&real| Dual::fixed(real)).collect();
    let [queries, keys, head, batch, row, key] =
        [of.queries, of.keys, of.head, of.batch, row, key].map(Differentiated);
    let of = Scope { queries, keys, head, batch, counts: &counts, reals: &reals };
    let score = S::score(&of, row, key, Dual::variable(x));
    [score.value, score.derivative()]
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

    fn grows(&self) -> bool {
        S::GROWS
    }

    fn is_ranged(&self) -> bool {
        let (counts, reals) = (vec![1; S::counts().len()], vec![Bounded::exact(1.0); S::reals().len()]);
        let of = Scope { queries: 1, keys: 1, head: 0, batch: 0, counts: &counts, reals: &reals };
        S::range(&of, 0i64).is_some()
    }

    fn changes(&self) -> bool {
        S::CHANGES
    }

    fn counts(&self) -> Vec<&'static str> {
        S::counts()
    }

    fn reals(&self) -> Vec<&'static str> {
        S::reals()
    }

    fn heads(&self) -> Vec<&'static str> {
        S::heads()
    }

    fn arrays(&self) -> Vec<&'static Array> {
        Vec::new()
    }

    // Tiles ask for one head of those that are packed.
    fn masks_by_head(&self) -> bool {
        false
    }

    fn are_large(&self) -> bool {
        false
    }

    fn host_sees(&self, of: &Scope<'_, i64>, _: HostArrays<'_>, row: i64, key: i64) -> bool {
        !S::MASKS || S::sees(of, row, key)
    }

    fn host_score(
        &self,
        of: &Scope<'_, i64>,
        _: HostArrays<'_>,
        [row, key]: [i64; 2],
        x: Bounded,
    ) -> Bounded {
        if !S::CHANGES {
            return x;
        }
        let reals = [of.reals, &S::per_head(of)].concat();
        S::score(&Scope { reals: &reals, ..*of }, row, key, x)
    }

    fn host_slope(
        &self,
        of: &Scope<'_, i64>,
        _: HostArrays<'_>,
        place: [i64; 2],
        x: Bounded,
    ) -> [Bounded; 2] {
        if !S::CHANGES {
            return [x, Bounded::exact(1.0)];
        }
        let reals = [of.reals, &S::per_head(of)].concat();
        slope::<S, _>(&Scope { reals: &reals, ..*of }, place, x)
    }

    fn range<'f>(&self, of: &DeviceScope<'_, 'f>, row: Value<'f, i32>) -> Option<[Value<'f, i32>; 2]> {
        S::range(of, row)
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

    fn per_head<'f>(&self, of: &DeviceScope<'_, 'f>) -> Vec<Value<'f, f32>> {
        S::per_head(of)
    }

    fn score<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        [row, key]: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> Value<'f, f32> {
        S::score(of, row, key, x)
    }

    fn slope<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        place: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> [Value<'f, f32>; 2] {
        slope::<S, _>(of, place, x)
    }
}

/// The scores of a type.
pub(crate) fn any<S: Scores>() -> Arc<dyn AnyScores> {
    Arc::new(Typed::<S>(PhantomData))
}
