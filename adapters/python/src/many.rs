//! How many GEMMs a call has: one, a batch, or groups of rows.

use falchion::kernel::GroupedProblem;
use pyo3::prelude::*;

use crate::array::{Array, extent, invalid};

/// How many GEMMs there are, and the shape of the result in front of its rows and columns.
pub(crate) struct Many<'py> {
    pub(crate) products: GroupedProblem,
    /// The shape of the result, whose last extent is N.
    pub(crate) shape: Vec<i64>,
    /// The offsets of groups of rows.
    pub(crate) offsets: Option<Array<'py>>,
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
    a: &Array<'py>,
    b: &Array<'py>,
    [n, matrices]: [i64; 2],
    groups: Option<Array<'py>>,
) -> PyResult<Many<'py>> {
    let [rows, _] = a.last(1);
    if let Some(offsets) = groups {
        let count = offsets.last(0)[0] - 1;
        if offsets.rank() != 1 || count < 1 || !offsets.is_whole() || offsets.last(0)[1] != 1 {
            return invalid(format!(
                "groups has shape {} of {}, a contiguous vector of one int32 more than there are groups was needed",
                offsets.shape_words(),
                offsets.type_words()
            ));
        }
        if a.rank() != 2 || matrices != count || b.rank() == 2 {
            return invalid(format!(
                "a has shape {} and b {} of {matrices} matrices, (M, K) and ({count}, K, N) were needed, as groups has {} offsets",
                a.shape_words(),
                b.shape_words(),
                count + 1
            ));
        }
        if let Some(found) = offsets.numbers()?
            && (found.first().is_some_and(|&first| first < 0)
                || found.last().is_some_and(|&last| last > rows)
                || !found.is_sorted())
        {
            return invalid(format!(
                "groups is {found:?}, numbers from 0 to the {rows} rows of a that do not fall were needed"
            ));
        }
        let (count, address) = (extent("groups", &offsets, count)?, offsets.address);
        let products = GroupedProblem::GroupedContiguous { count, offsets: address };
        return Ok(Many { products, shape: vec![rows, n], offsets: Some(offsets) });
    }
    match (a.rank(), b.rank()) {
        (2, 2) => Ok(Many { products: GroupedProblem::One, shape: vec![rows, n], offsets: None }),
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
            Ok(Many { products, shape: vec![count, rows, n], offsets: None })
        }
        _ => invalid(format!(
            "a has shape {} and b {}, matrices or batches of matrices were needed",
            a.shape_words(),
            b.shape_words()
        )),
    }
}
