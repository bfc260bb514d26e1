//! What adapters add to attention.

use falchion::attention::{
    Attention, AttentionCall, AttentionProblem, AttentionRequest, AttentionSpec, ChoiceKey, Lengths, Packed,
    Pages,
};
use falchion::kernel::LaunchError;

use crate::choices::Shared;
use crate::host::Hosted;
use crate::picked::Offered;

impl Hosted<AttentionCall> for Attention {
    fn check_tables(
        &self,
        call: &AttentionCall,
        read: &dyn Fn(u64, u64) -> Vec<u32>,
    ) -> Result<(), LaunchError> {
        let AttentionProblem { batch, keys, .. } = call.problem;
        let AttentionSpec { lengths, pages, .. } = self.plan().spec;
        if lengths == Lengths::Packed {
            let sides = if pages.is_some() { 1 } else { 2 };
            check_packed(&call.packed, &call.problem, sides, read)?;
        }
        let Some(page) = pages.filter(|_| keys > 0) else { return Ok(()) };
        let Pages { lengths, table, each, .. } = call.pages;
        let of_keys: Vec<u32> = read(lengths, batch.into()).into_iter().map(|of| of.min(keys)).collect();
        let table = read(table, u64::from(batch) * u64::from(each));
        call.pages.check(page, &of_keys, &table).map_err(|reason| LaunchError::Problem { reason })
    }
}

/// Checks where the sequences of a packed call begin, of queries, and of keys if there are two sides.
pub(crate) fn check_packed(
    packed: &Packed,
    problem: &AttentionProblem,
    sides: usize,
    read: &dyn Fn(u64, u64) -> Vec<u32>,
) -> Result<(), LaunchError> {
    // Keys in pages begin nowhere.
    let begins = packed.begins.iter().take(sides);
    let begins: Vec<_> = begins.map(|&begins| read(begins, u64::from(problem.batch) + 1)).collect();
    let begins: Vec<_> = begins.iter().map(Vec::as_slice).collect();
    let checked = packed.check([problem.queries, problem.keys], &begins);
    checked.map_err(|reason| LaunchError::Problem { reason })
}

impl Offered for Attention {
    type Runs = Self;
    type Arguments = AttentionCall;

    fn runs(self, _request: &AttentionRequest) -> Self {
        self
    }

    fn places(call: &AttentionCall) -> [u64; 3] {
        let AttentionProblem { batch, queries, .. } = call.problem;
        [batch.into(), queries.into(), call.packed.rows[0].into()]
    }
}

impl Shared for Attention {
    type Key = ChoiceKey;

    fn key(request: &AttentionRequest) -> ChoiceKey {
        request.key()
    }
}
