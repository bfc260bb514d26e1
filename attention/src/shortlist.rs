//! The kernel for a request among those that are near the fastest for one like it.
//!
//! A cache of keys grows with each token, and to rank the whole space takes longer than to multiply a token. The kernels that
//! are nearly the fastest for one number of keys are those to look at for numbers nearby.

use collective::process::{Choices, Locked};
use kernel::{Machine, Predicted};

use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::request::{AttentionRequest, ChoiceKey};
use crate::spec::{AttentionSpec, Order, Parts};

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
    kernels: Vec<Attention>,
}

impl Shortlist {
    /// How much slower than the fastest a kernel may be for the most keys of requests that are alike.
    const SLOWEST: f64 = 1.75;
    /// Fewest numbers of keys that are alike: to rank the space takes as long as to choose from a list some hundred times.
    const TOGETHER: u32 = 128;
    /// Numbers of keys that have one choice: of these, a kernel has as many blocks for each.
    const EQUAL: u32 = 16;
    /// Up to this number of keys, only half of [`EQUAL`](Self::EQUAL) have one choice: in a short call some keys more or fewer count.
    const SHORT: u32 = 256;
    /// So few keys that each counts.
    const FEW: u32 = 16;
    /// So few blocks of keys that each counts.
    const BLOCKS: u32 = 3;

    /// The request that stands for all that have one list: the same, with the largest number of keys.
    pub fn like(request: &AttentionRequest) -> AttentionRequest {
        let [_, keys] = Self::ends(request);
        with_keys(request, keys)
    }

    /// The least and the largest number of keys of requests that are alike: an eighth of a power of two. Queries that are as many
    /// as keys are a prompt, whose choice is its own.
    fn ends(request: &AttentionRequest) -> [u32; 2] {
        let AttentionProblem { queries, keys, .. } = request.problem;
        let power = keys.checked_next_power_of_two().unwrap_or(1 << 31);
        let step = (power / 16).max(Self::TOGETHER);
        match keys.checked_next_multiple_of(step) {
            Some(most) if keys > 0 && queries != keys => [most - step + 1, most],
            _ => [keys, keys],
        }
    }

    /// The request that stands for those that have one choice: of few queries, and of more than a few keys, of which each counts.
    fn equal(request: &AttentionRequest) -> AttentionRequest {
        let AttentionProblem { queries, keys, .. } = request.problem;
        let few = queries.saturating_mul(4).max(Self::FEW);
        let together = if keys > Self::SHORT { Self::EQUAL } else { Self::EQUAL / 2 };
        match keys.checked_next_multiple_of(together) {
            Some(most) if queries <= Self::EQUAL && most.saturating_sub(together) >= few => {
                with_keys(request, most - together / 2)
            }
            _ => *request,
        }
    }

    /// The kernels for a request and for those like it.
    ///
    /// # Errors
    /// Those of [`Family::ranked`](kernel::Family::ranked).
    pub fn new(request: &AttentionRequest, machine: &Machine) -> Result<Self, String> {
        let mut kernels: Vec<Attention> = Vec::new();
        let [least, most] = Self::ends(request);
        let request = with_keys(request, most);
        request.check().map_err(|error| error.to_string())?;
        let ranked = Attention::modelled(&request, machine, usize::MAX)?;
        // Whether tiles overlap well depends on the number of blocks where these are few.
        let key = |kernel: &Attention| {
            let AttentionSpec { tile: [_, block], overlap, .. } = kernel.plan().spec;
            (tiling(kernel), overlap && least.div_ceil(block) <= Self::BLOCKS)
        };
        let slowest = Self::SLOWEST * ranked.first().map_or(0.0, |of| of.microseconds);
        for Predicted { kernel, .. } in ranked.into_iter().take_while(|of| of.microseconds <= slowest) {
            if kernels.iter().all(|known| key(known) != key(&kernel)) {
                kernels.push(kernel);
            }
        }
        Ok(Self { kernels })
    }

    /// The kernel for a request, from a list for it and for those like it. Lists and choices are kept, so that a cache that grows with each
    /// token has a new choice every 16 keys, or 8 while it is short, and a new list every 128 or more.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn first(
        request: &AttentionRequest,
        machine: &Machine,
    ) -> Result<Predicted<Attention>, String> {
        type Of = (usize, ChoiceKey);
        static LISTS: Choices<Of, Shortlist> = Choices::new(64);
        static CHOSEN: Choices<Of, Attention> = Choices::new(4096);
        let (machine_of, equal) = (number(machine), Self::equal(request));
        let chosen = CHOSEN.get((machine_of, equal.key()), |_| {
            let like = Self::like(request);
            let list = LISTS.get((machine_of, like.key()), |_| Self::new(&like, machine))?;
            list.best(&equal, machine).map(|best| best.kernel)
        })?;
        Ok(Predicted::new(Attention::clone(&chosen), chosen.predict(request, machine)))
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
        let able = self.kernels.iter().filter(|kernel| request.has(&kernel.plan().spec, machine));
        let times = able.map(|kernel| (kernel, kernel.predict(request, machine)));
        let best = times.min_by(|a, b| a.1.total_cmp(&b.1));
        let (kernel, microseconds) = best.ok_or_else(|| "no kernel of the list computes it".to_owned())?;
        Ok(Predicted::new(kernel.clone(), microseconds))
    }
}

/// The same request with another number of keys.
fn with_keys(request: &AttentionRequest, keys: u32) -> AttentionRequest {
    AttentionRequest { problem: AttentionProblem { keys, ..request.problem }, ..*request }
}

/// What lengths make fast or slow: not how consumers take turns.
fn tiling(kernel: &Attention) -> ([u32; 2], u32, Parts, u32, Order) {
    let AttentionSpec { tile, pack, parts, ctas, order, .. } = kernel.plan().spec;
    (tile, pack, parts, ctas, order)
}

/// The number of a machine, of those for which this process has chosen.
fn number(machine: &Machine) -> usize {
    static ALL: Locked<Vec<Machine>> = Locked::new(Vec::new());
    let mut all = ALL.lock();
    all.iter().position(|known| known == machine).unwrap_or_else(|| {
        all.push(*machine);
        all.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Lengths, Mask};
    use kernel::Family;

    /// What the list says is the fastest is, by the model, as fast as what the whole space has.
    #[test]
    fn the_best_of_the_list_is_the_best_of_all() {
        let (machine, mut random) = (Machine::h200(), fastrand::Rng::with_seed(20));
        let (mut equal, mut count) = (0, 0);
        for _ in 0..2000 {
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
            let sizes = [[64, 64], [128, 128], [96, 96], [192, 128], [256, 256], [80, 80], [112, 112]];
            let head = sizes[random.usize(..7)];
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
            let chosen = Attention::first(&request, &machine).expect("one computes it");
            for (found, most) in [(&found, 1.005), (&chosen, 1.01)] {
                let ratio = found.microseconds / wanted.microseconds;
                assert!((1.0..most).contains(&ratio), "{}: {ratio}", Attention::problem(&request));
            }
            equal += usize::from(chosen.kernel.plan().spec == wanted.kernel.plan().spec);
            count += 1;
        }
        assert!(count > 1000 && 100 * equal > 97 * count, "{equal} of {count}");
    }
}
