//! What adapters add to kernels over rows.

use falchion::kernel::LaunchError;
use falchion::rows::{AppendedPages, RowCall, RowProblem, RowSpec, Rows};

use crate::choices::Shared;
use crate::host::Hosted;
use crate::picked::Offered;

impl Hosted<RowCall> for Rows {
    fn check_tables(&self, call: &RowCall, read: &dyn Fn(u64, u64) -> Vec<u32>) -> Result<(), LaunchError> {
        let RowCall::AppendPages(of) = call else { return Ok(()) };
        let AppendedPages { rows, slots, wide, .. } = *of;
        let words = read(slots, u64::from(rows) * if wide { 2 } else { 1 });
        let slot = |words: &[u32]| match *words {
            [low, high] => (u64::from(high) << 32 | u64::from(low)).cast_signed(),
            [low, ..] => low.cast_signed().into(),
            [] => -1,
        };
        let slots: Vec<i64> = words.chunks(if wide { 2 } else { 1 }).map(slot).collect();
        of.check(&slots).map_err(|reason| LaunchError::Problem { reason })
    }
}

impl Offered for Rows {
    type Runs = Self;
    type Arguments = RowCall;

    fn runs(self, _request: &RowProblem) -> Self {
        self
    }
}

impl Shared for Rows {
    /// The kernels that compute it.
    type Key = Vec<RowSpec>;

    fn key(request: &RowProblem) -> Vec<RowSpec> {
        request.specs().collect()
    }
}
