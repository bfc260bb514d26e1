//! How many GEMMs a call has: one, a batch, or groups of rows.

use falchion::kernel::GroupedProblem;
use pyo3::prelude::*;

use crate::array::{Array, Found, extent, invalid};

/// How many GEMMs there are, and the shape of the result in front of its rows and columns.
pub(crate) struct Many<'py> {
    pub(crate) products: GroupedProblem,
    /// The shape of the result, whose last extent is N.
    pub(crate) shape: Vec<i64>,
    /// The offsets of groups of rows; and the first and the last, if the host knows them.
    pub(crate) groups: Option<(Array<'py>, Option<[i64; 2]>)>,
}

impl Many<'_> {
    pub(crate) fn tag(&self) -> (u8, u32) {
        match self.products {
            GroupedProblem::Batched { count } => (1, count),
            GroupedProblem::GroupedContiguous { count, .. } => (2, count),
            _ => (0, 1),
        }
    }
}

/// The GEMMs of two arrays. `n` are the columns of B, and `matrices` how many there are.
pub(crate) fn many<'py>(
    a: &Found<'py>,
    b: &Found<'py>,
    [n, matrices]: [i64; 2],
    groups: Option<Array<'py>>,
) -> PyResult<Many<'py>> {
    let [rows, _] = a.last(1);
    if let Some(offsets) = groups {
        let count = offsets.last(0)[0] - 1;
        if offsets.rank() != 1 || count < 1 {
            return invalid(format!(
                "groups has shape {}, a vector of one number more than there are groups was needed",
                offsets.shape_words()
            ));
        }
        let offsets = offsets.flat("groups")?;
        if a.rank() != 2 || matrices != count || b.rank() == 2 || b.rank() > 3 {
            return invalid(format!(
                "a has shape {} and b {} of {matrices} matrices, (M, K) and ({count}, K, N) were needed, as groups has {} offsets",
                a.shape_words(),
                b.shape_words(),
                count + 1
            ));
        }
        let numbers = offsets.numbers()?;
        if let Some(found) = &numbers
            && (found.first().is_some_and(|&first| first < 0)
                || found.last().is_some_and(|&last| last > rows)
                || !found.is_sorted())
        {
            return invalid(format!(
                "groups is {found:?}, numbers from 0 to the {rows} rows of a that do not fall were needed"
            ));
        }
        let (count, address) = (extent("groups", &offsets, count)?, offsets.address());
        let products = GroupedProblem::GroupedContiguous { count, offsets: address };
        let ends = numbers.and_then(|found| Some([*found.first()?, *found.last()?]));
        return Ok(Many { products, shape: vec![rows, n], groups: Some((offsets, ends)) });
    }
    match (a.rank(), b.rank()) {
        (2, 2) => Ok(Many { products: GroupedProblem::One, shape: vec![rows, n], groups: None }),
        (3, 3) | (2, 3) | (3, 2) => {
            let counts = [a.last(2)[0], b.last(2)[0]];
            let count = if counts[0] == 1 { counts[1] } else { counts[0] };
            if counts.iter().any(|&of| of != 1 && of != count) {
                return invalid(format!(
                    "a has shape {} and b {}: the same number of matrices was needed, or one",
                    a.shape_words(),
                    b.shape_words()
                ));
            }
            let products = GroupedProblem::Batched { count: extent("a", a, count)? };
            Ok(Many { products, shape: vec![count, rows, n], groups: None })
        }
        _ => invalid(format!(
            "a has shape {} and b {}, matrices or batches of matrices were needed",
            a.shape_words(),
            b.shape_words()
        )),
    }
}
