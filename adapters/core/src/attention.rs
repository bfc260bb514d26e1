//! What adapters add to attention.

use falchion::attention::{
    Attention, AttentionCall, AttentionProblem, AttentionRequest, AttentionSpec, HeadsRef, Lengths, Mask,
    Packed, Pages,
};
use falchion::kernel::LaunchError;

use crate::host::Hosted;
use crate::picked::Offered;
use crate::refusal::Refusal;

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
        call.pages.check(page, &of_keys, &read(table, u64::from(batch) * u64::from(each)))
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
    packed.check(problem, &begins.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

impl Offered for Attention {
    type Runs = Self;
    type Arguments = AttentionCall;

    fn check(request: &AttentionRequest) -> Result<(), String> {
        request.check().map_err(|error| error.to_string())
    }

    fn runs(self, _request: &AttentionRequest) -> Self {
        self
    }

    fn places(call: &AttentionCall) -> [u64; 3] {
        let AttentionProblem { batch, queries, .. } = call.problem;
        [batch.into(), queries.into(), call.packed.rows[0].into()]
    }
}

/// The mask of adapters' arguments, and its numbers: a window has the most keys before a query's own, and after it; a negative number
/// is no limit.
///
/// # Errors
/// Numbers beyond 2^30.
pub fn masked(causal: bool, window: Option<[i32; 2]>) -> Result<(Mask, [i32; 2]), Refusal> {
    const MOST: i32 = 1 << 30;
    let Some([left, right]) = window.filter(|window| window.iter().any(|&keys| keys >= 0)) else {
        return Ok((if causal { Mask::Causal } else { Mask::Full }, [0; 2]));
    };
    if left > MOST || right > MOST {
        return Err(Refusal::Invalid(format!("window is ({left}, {right}), at most {MOST} was needed")));
    }
    let limited = |keys: i32| if keys < 0 { MOST } else { keys };
    let numbers = [limited(left), if causal { 0 } else { limited(right) }];
    let causal = numbers == [MOST, 0];
    Ok(if causal { (Mask::Causal, [0; 2]) } else { (Mask::Window, numbers) })
}

/// A call without log-sum-exp, sequences of different lengths, or pages, with the numbers of the request's mask. In latent attention V is a
/// part of K, and nothing here.
///
/// # Errors
/// V is another tensor in latent attention.
pub fn call_of(
    request: &AttentionRequest,
    problem: AttentionProblem,
    [q, k, v]: [HeadsRef; 3],
    o: HeadsRef,
) -> Result<AttentionCall, Refusal> {
    let call = match request.is_latent() {
        true if v == HeadsRef::default() => AttentionCall::latent(problem, [q, k], o),
        true => {
            let [d, dv] = request.head;
            return Err(Refusal::Invalid(format!(
                "v is a tensor of its own, the first {dv} of the {d} elements of each head of k were needed: a view of them, or none"
            )));
        }
        false => AttentionCall::new(problem, [q, k, v], o),
    };
    Ok(AttentionCall { counts: request.counts().to_vec(), ..call })
}
