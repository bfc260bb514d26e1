//! Formulas as the scores of a kernel.

use collective::expression::digest;
use collective::{Bounded, Dual};
use ptx::Value;

use super::array::Array;
use super::evaluate::{At, Computed, HostArrays, Loaded, Read, load};
use super::ranges::{Range, of_truth};
use super::typed::{Truth, Typed, Variable};
use super::{MaskFormula, ScoreFormula};
use crate::count::{Count, Differentiated};
use crate::scores::{AnyScores, DeviceScope, Scope};

/// The scores and the mask of formulas.
#[derive(Debug)]
pub(crate) struct FormulaScores {
    score: Option<ScoreFormula>,
    mask: Option<MaskFormula>,
    range: Range,
}

impl FormulaScores {
    pub(crate) fn new(score: Option<ScoreFormula>, mask: Option<MaskFormula>) -> Self {
        let range = match mask.map(MaskFormula::root) {
            Some(Typed::Truth(mask)) => Range::of(mask),
            _ => Range::default(),
        };
        Self { score, mask, range }
    }

    /// The range of keys of a query on the host.
    #[cfg(test)]
    pub(super) fn host_range(&self, of: &Scope<'_, i64>, arrays: HostArrays<'_>, row: i64) -> [i64; 2] {
        self.range_of(&plain(of), row, &|array, index| arrays.load(array, index))
    }

    fn mask(&self) -> Option<(&'static Truth, Vec<&'static Array>)> {
        let mask = self.mask?;
        let Typed::Truth(truth) = mask.root() else { return None };
        Some((truth, mask.0.arrays.iter().collect()))
    }

    /// The keys that a query of these numbers sees are in this range.
    fn range_of<N: Computed>(&self, of: &Scope<'_, N>, row: N, read: Read<'_, N>) -> [N; 2] {
        let arrays = self.mask().map_or_else(Vec::new, |(_, arrays)| arrays);
        let zero = row.constant(0);
        self.range.at(&At { of, row, key: zero, x: zero.real(), arrays: &arrays, read })
    }

    fn sees_by<N: Computed>(&self, of: &Scope<'_, N>, [row, key]: [N; 2], read: Read<'_, N>) -> N::Truth {
        match self.mask() {
            Some((mask, arrays)) => {
                At { of, row, key, x: row.constant(0).real(), arrays: &arrays, read }.truth(mask)
            }
            None => row.equals(row),
        }
    }

    fn score_by<N: Computed>(
        &self,
        of: &Scope<'_, N>,
        [row, key]: [N; 2],
        x: N::Real,
        read: Read<'_, N>,
    ) -> N::Real {
        let Some(score) = self.score else { return x };
        let arrays: Vec<_> = score.0.arrays.iter().collect();
        let at = At { of, row, key, x, arrays: &arrays, read };
        match score.root() {
            Typed::Number(number) => at.number(number),
            Typed::Whole(whole) => at.whole(whole).real(),
            Typed::Truth(_) => x,
        }
    }

    /// The score, and its derivative by `x`.
    fn slope_by<N: Computed>(
        &self,
        of: &Scope<'_, N>,
        [row, key]: [N; 2],
        x: N::Real,
        read: Read<'_, N>,
    ) -> [N::Real; 2] {
        let [queries, keys, head, batch, row, key] =
            [of.queries, of.keys, of.head, of.batch, row, key].map(Differentiated);
        let of = Scope { queries, keys, head, batch, counts: &[], reals: &[] };
        let fixed = |array: &Array, index: &[Differentiated<N>]| {
            let index: Vec<_> = index.iter().map(|of| of.0).collect();
            match read(array, &index) {
                Loaded::Whole(whole) => Loaded::Whole(Differentiated(whole)),
                Loaded::Real(real) => Loaded::Real(Dual::fixed(real)),
            }
        };
        let score = self.score_by(&of, [row, key], Dual::variable(x), &fixed);
        [score.value, score.derivative()]
    }
}

fn device<'f>(of: &DeviceScope<'_, 'f>) -> impl Fn(&Array, &[Value<'f, i32>]) -> Loaded<Value<'f, i32>> {
    let f = of.keys.builder();
    move |array, index| load(f, array, index)
}

/// A scope without arguments: formulas have none.
fn plain<'a, N: Count>(of: &Scope<'_, N>) -> Scope<'a, N> {
    Scope { queries: of.queries, keys: of.keys, head: of.head, batch: of.batch, counts: &[], reals: &[] }
}

impl AnyScores for FormulaScores {
    fn name(&self) -> String {
        let score = self.score.map_or("", ScoreFormula::text);
        format!("text_{:016x}", digest(&format!("{score};{}", self.mask.map_or("", MaskFormula::text))))
    }

    fn masks(&self) -> bool {
        self.mask.is_some()
    }

    fn grows(&self) -> bool {
        self.range.grows()
    }

    fn is_ranged(&self) -> bool {
        self.mask.is_some() && self.range.is_exact
    }

    fn changes(&self) -> bool {
        self.score.is_some()
    }

    fn masks_by_head(&self) -> bool {
        self.mask().is_some_and(|(mask, _)| of_truth(mask, &|variable| variable == Variable::Head))
    }

    fn are_large(&self) -> bool {
        self.score.is_some()
    }

    fn counts(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn reals(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn heads(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn arrays(&self) -> Vec<&'static Array> {
        let (of_score, of_mask) = (self.score.map(|of| &of.0.arrays), self.mask.map(|of| &of.0.arrays));
        let mut all: Vec<&'static Array> = of_score.into_iter().flatten().collect();
        for array in of_mask.into_iter().flatten() {
            if !all.iter().any(|of| of.name == array.name) {
                all.push(array);
            }
        }
        all
    }

    fn host_sees(&self, of: &Scope<'_, i64>, arrays: HostArrays<'_>, row: i64, key: i64) -> bool {
        self.sees_by(&plain(of), [row, key], &|array, index| arrays.load(array, index))
    }

    fn host_score(
        &self,
        of: &Scope<'_, i64>,
        arrays: HostArrays<'_>,
        place: [i64; 2],
        x: Bounded,
    ) -> Bounded {
        self.score_by(&plain(of), place, x, &|array, index| arrays.load(array, index))
    }

    fn host_slope(
        &self,
        of: &Scope<'_, i64>,
        arrays: HostArrays<'_>,
        place: [i64; 2],
        x: Bounded,
    ) -> [Bounded; 2] {
        if self.score.is_none() {
            return [x, Bounded::exact(1.0)];
        }
        self.slope_by(&plain(of), place, x, &|array, index| arrays.load(array, index))
    }

    fn range<'f>(&self, of: &DeviceScope<'_, 'f>, row: Value<'f, i32>) -> Option<[Value<'f, i32>; 2]> {
        self.is_ranged().then(|| self.range_of(&plain(of), row, &device(of)))
    }

    fn seen<'f>(&self, of: &DeviceScope<'_, 'f>, [first, last]: [Value<'f, i32>; 2]) -> [Value<'f, i32>; 2] {
        let [begin, _] = self.range_of(&plain(of), first, &device(of));
        let [_, end] = self.range_of(&plain(of), last, &device(of));
        [begin, end]
    }

    fn seen_by_all<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        [first, last]: [Value<'f, i32>; 2],
    ) -> [Value<'f, i32>; 2] {
        if self.mask.is_none() {
            return [first.constant(0), of.keys];
        }
        if !self.range.is_exact {
            return [first.constant(0), first.constant(0)];
        }
        let [_, end] = self.range_of(&plain(of), first, &device(of));
        let [begin, _] = self.range_of(&plain(of), last, &device(of));
        [begin, end]
    }

    fn sees<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        row: Value<'f, i32>,
        key: Value<'f, i32>,
    ) -> Value<'f, bool> {
        self.sees_by(&plain(of), [row, key], &device(of))
    }

    fn per_head<'f>(&self, _of: &DeviceScope<'_, 'f>) -> Vec<Value<'f, f32>> {
        Vec::new()
    }

    fn score<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        place: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> Value<'f, f32> {
        self.score_by(&plain(of), place, x, &device(of))
    }

    fn slope<'f>(
        &self,
        of: &DeviceScope<'_, 'f>,
        place: [Value<'f, i32>; 2],
        x: Value<'f, f32>,
    ) -> [Value<'f, f32>; 2] {
        self.slope_by(&plain(of), place, x, &device(of))
    }
}
