//! Arrays of formulas in device memory: what a call says of them.

use collective::Format;
use kernel::LaunchError;
use kernel::operands::{Contents, Extents, Visit};

use crate::formula::{Array, Variable};
use crate::problem::{AttentionProblem, refused};
use crate::scores::AnyScores;

/// An array in device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayRef {
    /// Its address.
    pub address: u64,
    /// The number of elements along each dimension, at least 1. What is found beyond them is the nearest one.
    pub shape: Vec<u32>,
    /// Elements from one to the next along each dimension; 0 if all are the same one.
    pub strides: Vec<u64>,
}

impl ArrayRef {
    /// A packed array, whose last dimension is contiguous.
    pub fn packed(address: u64, shape: impl Into<Vec<u32>>) -> Self {
        let shape = shape.into();
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = u64::from(shape[i]).saturating_mul(strides[i]);
        }
        Self { address, shape, strides }
    }

    /// Elements from the first to the last one.
    fn reach(&self) -> u64 {
        let last = |(size, stride): (&u32, &u64)| u64::from(size.saturating_sub(1)).saturating_mul(*stride);
        self.shape.iter().zip(&self.strides).map(last).fold(1, u64::saturating_add)
    }

    /// Where the element with these numbers is, in elements from the first one. What is beyond the array is its nearest one.
    pub fn index(&self, numbers: &[i64]) -> usize {
        let each = numbers.iter().zip(&self.shape).zip(&self.strides).map(|((number, size), stride)| {
            let at = (*number).clamp(0, i64::from((*size).max(1)) - 1);
            (at as usize).saturating_mul(*stride as usize)
        });
        each.fold(0, usize::saturating_add)
    }
}

/// Checks the arrays of a call.
pub(crate) fn check(
    arrays: &[ArrayRef],
    scores: &dyn AnyScores,
    problem: &AttentionProblem,
) -> Result<(), LaunchError> {
    let all = scores.arrays();
    if arrays.len() != all.len() {
        let names: Vec<_> = all.iter().map(|array| array.name).collect();
        let (needed, given, names) = (all.len(), arrays.len(), names.join(", "));
        return refused(format!("the formulas have {needed} arrays ({names}), {given} were given"));
    }
    for (of, array) in arrays.iter().zip(all) {
        let (name, needed) = (array.name, array.sizes.len());
        let [dimensions, strides] = [of.shape.len(), of.strides.len()];
        if [dimensions, strides] != [needed; 2] {
            return refused(format!(
                "the array {name} has {dimensions} dimensions and {strides} strides, {needed} were needed"
            ));
        }
        for (i, (&size, index)) in of.shape.iter().zip(array.index()).enumerate() {
            let AttentionProblem { batch, heads: [heads, _], queries, keys, .. } = *problem;
            let (least, what) = match index {
                Some(Variable::Sequence) => (batch, "sequences"),
                Some(Variable::Head) => (heads, "heads"),
                Some(Variable::Query) => (queries, "queries"),
                Some(Variable::Key) => (keys, "keys"),
                _ => (1, "elements"),
            };
            if size < least.max(1) || size > 1 << 31 {
                let least = least.max(1);
                return refused(format!(
                    "the array {name} has {size} elements along dimension {i}, {least} {what} at least, and at most 2^31, were needed"
                ));
            }
        }
    }
    Ok(())
}

/// Visits the arrays, if these are read, and states the parameters.
pub(crate) fn visit(
    arrays: &mut Vec<ArrayRef>,
    scores: &dyn AnyScores,
    is_read: bool,
    visit: &mut dyn Visit,
) {
    let all = scores.arrays();
    // Arrays that are missing are nowhere, which a launch refuses.
    if arrays.len() < all.len() {
        arrays.resize(all.len(), ArrayRef::default());
    }
    for (of, array) in arrays.iter_mut().zip(all) {
        let dimensions = array.sizes.len();
        of.shape.resize(dimensions, 1);
        of.strides.resize(dimensions, 0);
        let reach = if is_read { of.reach() } else { 0 };
        let extents = Extents::line(array.format.bits(), reach);
        let is_whole = array.format == Format::S32;
        let contents =
            if is_whole { Contents::Indices(Array::KINDS) } else { Contents::Source(array.format) };
        visit.input(array.address, (array.memory, &mut of.address), extents, contents);
        for (size, stride) in of.shape.iter_mut().zip(&mut of.strides) {
            visit.count(size);
            visit.length(stride);
        }
        for (i, (size, stride)) in of.shape.iter().zip(&of.strides).enumerate() {
            let bytes = stride.saturating_mul(u64::from(array.format.bits() / 8));
            visit.number(array.sizes[i], Some(size.saturating_sub(1)));
            visit.number(array.strides[i], Some(bytes));
        }
    }
}

/// Packed arrays for what a request asks: each element that can be found is there.
#[cfg(feature = "records")]
pub(crate) fn of_problem(scores: &dyn AnyScores, problem: &AttentionProblem) -> Vec<ArrayRef> {
    let each = |array: &Array| ArrayRef::packed(1 << 8, array.reached(problem));
    scores.arrays().into_iter().map(each).collect()
}
