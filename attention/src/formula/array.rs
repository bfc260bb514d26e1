//! The arrays of a formula: their names, formats and dimensions.

use collective::Format;

#[cfg(feature = "records")]
use super::typed::Arithmetic;
use super::typed::{Variable, Whole};
#[cfg(feature = "records")]
use crate::problem::AttentionProblem;

/// An array of a formula.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    /// Its name, that of its memory, and those of the program's parameters: the address, the last number of each dimension, and bytes from one
    /// element to the next.
    pub(crate) name: &'static str,
    pub(crate) memory: &'static str,
    pub(crate) address: &'static str,
    pub(crate) sizes: Vec<&'static str>,
    pub(crate) strides: Vec<&'static str>,
    pub(crate) format: Format,
    /// For each dimension what it is found by, where that is one of the variables.
    pub(super) index: Vec<Option<Variable>>,
    /// What elements are found by along each dimension.
    pub(super) found: Vec<Vec<Whole>>,
}

impl Array {
    /// Whole numbers of 32 bits in arrays of problems are below this one: documents, for example.
    pub(crate) const KINDS: u32 = 4;

    /// For each dimension what elements are found by, where that is one of the variables.
    pub(crate) fn index(&self) -> &[Option<Variable>] {
        &self.index
    }

    /// Elements along each dimension that a problem reaches.
    #[cfg(feature = "records")]
    pub(crate) fn reached(&self, problem: &AttentionProblem) -> Vec<u32> {
        let of_dimension = |found: &Vec<Whole>| {
            let most = found.iter().map(|whole| whole.between(problem)[1]).max();
            u32::try_from(most.unwrap_or(0).clamp(0, 1 << 24) + 1).unwrap_or(1)
        };
        self.found.iter().map(of_dimension).collect()
    }
}

#[cfg(feature = "records")]
impl Whole {
    /// Numbers between which it is in a problem.
    fn between(&self, problem: &AttentionProblem) -> [i64; 2] {
        let AttentionProblem { batch, heads: [heads, _], queries, keys, .. } = *problem;
        let below = |count: u32| [0, i64::from(count.max(1)) - 1];
        match self {
            Self::Constant(constant) => [i64::from(*constant); 2],
            Self::Variable(variable) => match variable {
                Variable::Query => below(queries),
                Variable::Key => below(keys),
                Variable::Head => below(heads),
                Variable::Sequence => below(batch),
                Variable::Queries => [0, queries.into()],
                Variable::Keys => [0, keys.into()],
            },
            Self::Element(_) => [0, i64::from(Array::KINDS) - 1],
            Self::Of(which, both) => {
                let [a, b] = both.each_ref().map(|of| of.between(problem));
                let ends = |of: &dyn Fn(i64, i64) -> i64| {
                    let all = [of(a[0], b[0]), of(a[0], b[1]), of(a[1], b[0]), of(a[1], b[1])];
                    [all.into_iter().min().unwrap_or(0), all.into_iter().max().unwrap_or(0)]
                };
                match which {
                    Arithmetic::Add => ends(&i64::saturating_add),
                    Arithmetic::Subtract => ends(&i64::saturating_sub),
                    Arithmetic::Multiply => ends(&i64::saturating_mul),
                    Arithmetic::Least => ends(&i64::min),
                    Arithmetic::Most => ends(&i64::max),
                    // A divisor between is at least 1 by amount.
                    Arithmetic::Divide if b[0] > 0 => ends(&|a, b| a / b.max(1)),
                    Arithmetic::Divide => [-a[0].abs().max(a[1].abs()), a[0].abs().max(a[1].abs())],
                    Arithmetic::Remainder => {
                        let most = b[0].abs().max(b[1].abs()).saturating_sub(1).max(0);
                        [if a[0] < 0 { -most } else { 0 }, most.min(a[1].max(0))]
                    }
                }
            }
            Self::Where(_, both) => {
                let [a, b] = both.each_ref().map(|of| of.between(problem));
                [a[0].min(b[0]), a[1].max(b[1])]
            }
        }
    }
}
