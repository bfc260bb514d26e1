//! What a mask says of ranges of keys: its conditions that are linear in the query and the key.

use super::evaluate::{At, Computed};
use super::typed::{Arithmetic, Comparison, Element, Truth, Variable, Whole};

/// A limit of a range of keys: a multiple of the query, and numbers that are the same for all queries.
#[derive(Clone, Debug, PartialEq)]
struct Linear {
    query: i32,
    key: i32,
    rest: Vec<(i32, Whole)>,
}

/// An end of a range of keys, which does not decrease from one query to the next.
#[derive(Clone, Debug, PartialEq)]
enum End {
    /// Of these factors of the query, and numbers with theirs.
    Linear(i32, Vec<(i32, Whole)>),
    Least(Box<[End; 2]>),
    Most(Box<[End; 2]>),
}

/// A range in which all keys are that a query sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Range {
    begin: Option<End>,
    end: Option<End>,
    /// Whether the query sees all of its keys.
    pub(super) is_exact: bool,
}

impl Range {
    /// The range of a mask.
    pub(super) fn of(mask: &Truth) -> Self {
        match mask {
            Truth::Whole(comparison, both) => Self::compared(*comparison, both),
            Truth::All(both) => {
                let [a, b] = both.each_ref().map(Self::of);
                Self {
                    begin: either(a.begin, b.begin, End::Most),
                    end: either(a.end, b.end, End::Least),
                    is_exact: a.is_exact && b.is_exact,
                }
            }
            Truth::Any(both) => {
                let [a, b] = both.each_ref().map(Self::of);
                let is_exact = a.is_exact && b.is_exact && a.begin.is_none() && b.begin.is_none();
                Self {
                    begin: a.begin.zip(b.begin).map(|(a, b)| End::Least(Box::new([a, b]))),
                    end: a.end.zip(b.end).map(|(a, b)| End::Most(Box::new([a, b]))),
                    is_exact,
                }
            }
            Truth::Less(_) | Truth::Not(_) => Self::default(),
        }
    }

    fn compared(comparison: Comparison, [a, b]: &[Whole; 2]) -> Self {
        let (Some(a), Some(b)) = (Linear::of(a), Linear::of(b)) else { return Self::default() };
        // `difference <= 0`.
        let Some(mut difference) = a.plus(b, -1) else { return Self::default() };
        if comparison == Comparison::Less {
            difference.rest.push((1, Whole::Constant(1)));
        }
        let Linear { query, key, rest } = difference;
        let negated = || rest.iter().map(|(factor, of)| (-factor, of.clone())).collect::<Vec<_>>();
        let after = |mut rest: Vec<(i32, Whole)>| {
            rest.push((1, Whole::Constant(1)));
            rest
        };
        // What the key is equal to, or at most, or at least; ends do not decrease.
        let (factor, limit) = match key {
            1 => (-query, negated()),
            -1 => (query, rest.clone()),
            _ => return Self::default(),
        };
        if factor < 0 {
            return Self::default();
        }
        let begin = || End::Linear(factor, limit.clone());
        let end = || End::Linear(factor, after(limit.clone()));
        let (begin, end) = match (comparison, key) {
            (Comparison::Equal, _) => (Some(begin()), Some(end())),
            (_, 1) => (None, Some(end())),
            _ => (Some(begin()), None),
        };
        Self { begin, end, is_exact: true }
    }

    /// Whether later queries see more keys.
    pub(super) fn grows(&self) -> bool {
        self.begin.is_none() && self.end.as_ref().is_some_and(End::grows)
    }

    /// The first key, and the one after the last, of a query.
    pub(super) fn at<N: Computed>(&self, at: &At<'_, N>) -> [N; 2] {
        let begin = self.begin.as_ref().map_or_else(|| at.row.constant(0), |end| end.at(at));
        [begin, self.end.as_ref().map_or(at.of.keys, |end| end.at(at))]
    }
}

fn either(a: Option<End>, b: Option<End>, both: fn(Box<[End; 2]>) -> End) -> Option<End> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(Box::new([a, b]))),
        (a, None) => a,
        (None, b) => b,
    }
}

impl End {
    fn grows(&self) -> bool {
        match self {
            Self::Linear(factor, _) => *factor > 0,
            Self::Least(both) => both.iter().all(Self::grows),
            Self::Most(both) => both.iter().any(Self::grows),
        }
    }

    fn at<N: Computed>(&self, at: &At<'_, N>) -> N {
        match self {
            Self::Linear(query, rest) => {
                let times = |factor: i32, of: N| if factor == 1 { of } else { of * of.constant(factor) };
                let known =
                    |of: &Whole| if let Whole::Constant(constant) = of { Some(*constant) } else { None };
                let constant = rest.iter().filter_map(|(factor, of)| Some(factor.wrapping_mul(known(of)?)));
                let constant = constant.fold(0, i32::wrapping_add);
                let others = rest.iter().filter(|(_, of)| !matches!(of, Whole::Constant(_)));
                let others = others.map(|(factor, of)| times(*factor, at.whole(of)));
                let query = (*query != 0).then(|| times(*query, at.row));
                let sum = query.into_iter().chain(others).reduce(|a, b| a + b);
                match sum {
                    Some(sum) if constant == 0 => sum,
                    Some(sum) => sum.plus(constant),
                    None => at.row.constant(constant),
                }
            }
            Self::Least(both) => {
                let [a, b] = both.each_ref().map(|end| end.at(at));
                a.min(b)
            }
            Self::Most(both) => {
                let [a, b] = both.each_ref().map(|end| end.at(at));
                a.max(b)
            }
        }
    }
}

impl Linear {
    fn of(whole: &Whole) -> Option<Self> {
        let alone = |query, key| Self { query, key, rest: Vec::new() };
        Some(match whole {
            Whole::Variable(Variable::Query) => alone(1, 0),
            Whole::Variable(Variable::Key) => alone(0, 1),
            Whole::Of(Arithmetic::Add, both) => Self::of(&both[0])?.plus(Self::of(&both[1])?, 1)?,
            Whole::Of(Arithmetic::Subtract, both) => Self::of(&both[0])?.plus(Self::of(&both[1])?, -1)?,
            Whole::Of(Arithmetic::Multiply, both) => {
                let (of, factor) = match both.as_ref() {
                    [of, Whole::Constant(factor)] | [Whole::Constant(factor), of] => (of, *factor),
                    _ => return Self::fixed(whole),
                };
                alone(0, 0).plus(Self::of(of)?, factor)?
            }
            Whole::Constant(_)
            | Whole::Variable(_)
            | Whole::Element(_)
            | Whole::Of(..)
            | Whole::Where(..) => {
                return Self::fixed(whole);
            }
        })
    }

    /// A number that is the same for all queries and keys.
    fn fixed(whole: &Whole) -> Option<Self> {
        let depends = depends(whole, &|variable| matches!(variable, Variable::Query | Variable::Key));
        (!depends).then(|| Self { query: 0, key: 0, rest: vec![(1, whole.clone())] })
    }

    /// The sum with a multiple of another, if its factors fit.
    fn plus(self, other: Self, factor: i32) -> Option<Self> {
        let sum = |a: i32, b: i32| a.checked_add(b.checked_mul(factor)?);
        let mut rest = self.rest;
        for (of, whole) in other.rest {
            rest.push((of.checked_mul(factor)?, whole));
        }
        Some(Self { query: sum(self.query, other.query)?, key: sum(self.key, other.key)?, rest })
    }
}

/// Whether a number depends on a variable like this.
pub(super) fn depends(whole: &Whole, is: &dyn Fn(Variable) -> bool) -> bool {
    match whole {
        Whole::Constant(_) => false,
        Whole::Variable(variable) => is(*variable),
        Whole::Element(Element { index, .. }) => index.iter().any(|of| depends(of, is)),
        Whole::Of(_, both) => both.iter().any(|of| depends(of, is)),
        Whole::Where(truth, both) => of_truth(truth, is) || both.iter().any(|of| depends(of, is)),
    }
}

/// The same of a truth. Real numbers in it count as if they did.
pub(super) fn of_truth(truth: &Truth, is: &dyn Fn(Variable) -> bool) -> bool {
    match truth {
        Truth::Whole(_, both) => both.iter().any(|of| depends(of, is)),
        Truth::Less(_) => true,
        Truth::All(both) | Truth::Any(both) => both.iter().any(|of| of_truth(of, is)),
        Truth::Not(of) => of_truth(of, is),
    }
}
