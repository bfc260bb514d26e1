//! The kernel for a request among those that are near the fastest for one like it.
//!
//! A cache of keys grows with each token, and to rank the whole space takes longer than to multiply a token. The kernels that
//! are nearly the fastest for one number of keys are those to look at for numbers nearby.

use std::sync::Arc;

use collective::process::Choices;
use kernel::{Family, Machine, Predicted, cheapest};

use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::request::AttentionRequest;
use crate::spec::AttentionSpec;

/// Kernels that may be the fastest for a request, and for those that differ from it in the number of keys a little.
///
/// ```
/// use attention::{Attention, AttentionProblem, AttentionRequest, Shortlist};
/// use kernel::{Family, Machine};
///
/// let machine = Machine::h200();
/// let of = |keys| AttentionRequest { workspace: true, ..AttentionRequest::new(AttentionProblem::new(1, 8, [1, keys], 128), 128) };
/// let list = Shortlist::new(&of(1000), &machine)?;
/// assert_eq!(Shortlist::like(&of(1000)), Shortlist::like(&of(1001)));
/// let (chosen, ranked) = (list.best(&of(1001), &machine)?, Attention::ranked(&of(1001), &machine, 1)?);
/// assert_eq!(chosen.kernel.plan().spec, ranked[0].kernel.plan().spec);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct Shortlist {
    specs: Vec<AttentionSpec>,
}

impl Shortlist {
    /// Kernels of each of the two ends of the numbers of keys that are alike.
    const MOST: usize = 16;

    /// The request that stands for all that have one list: the same, with the largest number of keys.
    pub fn like(request: &AttentionRequest) -> AttentionRequest {
        let [_, keys] = Self::ends(request);
        let problem = AttentionProblem { keys, ..request.problem };
        AttentionRequest { problem, ..*request }
    }

    /// The least and the largest number of keys of requests that are alike: an eighth of a power of two. Queries that are as many
    /// as keys are a prompt, whose choice is its own.
    fn ends(request: &AttentionRequest) -> [u32; 2] {
        let AttentionProblem { queries, keys, .. } = request.problem;
        let step = keys.max(64).checked_next_power_of_two().map_or(1 << 28, |power| power / 16);
        match keys.checked_next_multiple_of(step) {
            Some(most) if keys > 0 && queries != keys => [most - step + 1, most],
            _ => [keys, keys],
        }
    }

    /// The kernels for a request and for those like it.
    ///
    /// # Errors
    /// Those of [`Family::ranked`].
    pub fn new(request: &AttentionRequest, machine: &Machine) -> Result<Self, String> {
        let mut specs: Vec<AttentionSpec> = Vec::new();
        let [least, most] = Self::ends(request);
        for keys in if least == most { vec![most] } else { vec![most, least] } {
            let problem = AttentionProblem { keys, ..request.problem };
            let ranked = Attention::ranked(&AttentionRequest { problem, ..*request }, machine, Self::MOST)?;
            for spec in ranked.into_iter().map(|of| of.kernel.plan().spec) {
                if !specs.contains(&spec) {
                    specs.push(spec);
                }
            }
        }
        Ok(Self { specs })
    }

    /// The list for a request and for those like it, from the ones that were needed last.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn kept(request: &AttentionRequest, machine: &Machine) -> Result<Arc<Self>, String> {
        /// By the card's facts, and the request for which a list was made.
        static KEPT: Choices<String, Shortlist> = Choices::new(64);
        let like = Self::like(request);
        KEPT.get(format!("{:?} {like:?}", machine.card), |_| Self::new(&like, machine))
    }

    /// The fastest of them for a request that is like the list's.
    ///
    /// # Errors
    /// None of them computes it.
    pub fn best(
        &self,
        request: &AttentionRequest,
        machine: &Machine,
    ) -> Result<Predicted<Attention>, String> {
        let of_request = self.specs.iter().copied().filter(|spec| request.has(spec, machine));
        let best = cheapest(of_request, 1, |kernel: &Attention| kernel.predict(request, machine));
        best?.pop().ok_or_else(|| "no kernel of the list computes it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Lengths, Mask};

    /// What the list says is the fastest is, by the model, as fast as what the whole space has.
    #[test]
    fn the_best_of_the_list_is_the_best_of_all() {
        let (machine, mut random) = (Machine::h200(), fastrand::Rng::with_seed(20));
        let (mut equal, mut count) = (0, 0);
        for _ in 0..300 {
            let shared = [1, 2, 4, 8][random.usize(..4)];
            let heads = [shared * [1, 3, 4, 7, 8][random.usize(..5)], shared];
            let most = 1 << random.u32(1..17);
            let keys = random.u32(1..most);
            let queries = match random.u32(..3) {
                0 => random.u32(1..5),
                1 => random.u32(1..200),
                _ => keys,
            };
            let batch = random.u32(1..40);
            let head = [[64, 64], [128, 128], [96, 96], [192, 128], [256, 256]][random.usize(..5)];
            let problem = AttentionProblem {
                heads,
                ..AttentionProblem::new(batch, heads[0], [queries, keys], head[0])
            };
            let request = AttentionRequest {
                head,
                mask: if random.bool() { Mask::Causal } else { Mask::Full },
                lengths: if random.u32(..4) == 0 { Lengths::Packed } else { Lengths::Equal },
                pages: (random.u32(..4) == 0).then_some(64),
                workspace: random.u32(..4) > 0,
                ..AttentionRequest::new(problem, head[0])
            };
            // The list of another number of keys that is like this one.
            let [least, most] = Shortlist::ends(&request);
            assert!((least..=most).contains(&keys), "{keys}");
            let of_other = random.u32(least..=most);
            let of_other = if [keys, of_other].contains(&queries) { keys } else { of_other };
            let other =
                AttentionRequest { problem: AttentionProblem { keys: of_other, ..problem }, ..request };
            let wanted = match Attention::ranked(&request, &machine, 1) {
                Ok(ranked) => ranked.into_iter().next().expect("at least one"),
                Err(_) => continue,
            };
            let found = Shortlist::new(&other, &machine).expect("the same kernels are legal");
            assert_eq!(Shortlist::like(&other).problem.keys, most);
            let found = found.best(&request, &machine).expect("one computes it");
            let ratio = found.microseconds / wanted.microseconds;
            assert!((1.0..1.005).contains(&ratio), "{}: {ratio}", Attention::problem(&request));
            equal += usize::from(found.kernel.plan().spec == wanted.kernel.plan().spec);
            count += 1;
        }
        assert!(count > 200 && 100 * equal > 97 * count, "{equal} of {count}");
    }
}
