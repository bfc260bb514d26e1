//! What the backward pass must write, in f64.

use collective::Bounded;
use kernel::{Expected, Family, Inputs};
use reference::Wanted;
use reference::attention::Score;
use reference::attention::sequences::{Gradients, SequenceRows};

use super::call::BackwardCall;
use super::kernel::AttentionBackward;
use super::spec::BackwardSpec;
use crate::expected::{named, read};
use crate::formula::HostArrays;
use crate::problem::AttentionProblem;
use crate::scores::Scope;
use crate::spec::{Lengths, Mask};

impl AttentionBackward {
    /// What it must write for a call, under a mask of specs: rows of dQ, and then of dK and dV, which have as many. A kernel with another
    /// mask is wrong.
    pub(crate) fn expected(&self, mask: Mask, call: &BackwardCall, inputs: &Inputs<'_>) -> Vec<Expected> {
        let BackwardSpec { head, format, lengths, .. } = self.plan().spec;
        let AttentionProblem { batch, heads, queries, keys, scale } = call.forward.problem;
        let asked = Self::new(BackwardSpec { mask, ..self.plan().spec });
        let asked = asked.ok().filter(|_| Family::spec(self).is_some()).unwrap_or_else(|| self.clone());
        let (packed, count) = (lengths == Lengths::Packed, batch as usize);
        let rows = |name, all| -> Vec<u32> {
            match packed {
                true => inputs.numbers(name, 0, count + 1).windows(2).map(|pair| pair[1] - pair[0]).collect(),
                false => vec![all; count],
            }
        };
        let of_queries = rows("the beginnings of queries", queries);
        let of_keys = rows("the beginnings of keys", keys);
        let places =
            SequenceRows::of(of_queries.into_iter().zip(of_keys).map(|(a, b)| [a, b]), heads, packed);
        let [of_queries, of_keys] = [0, 1]
            .map(|side| places.extents(side).into_iter().map(|extent| extent as usize).product::<usize>());
        let counts: Vec<i64> = call.forward.counts.iter().map(|&count| count.into()).collect();
        let reals: Vec<_> = call.forward.reals.iter().map(|&real| Bounded::exact(real.into())).collect();
        let of_arrays =
            |name: &'static str, numbers: &[i64]| read(&call.forward, &*asked.scores, inputs, name, numbers);
        let arrays = HostArrays(&of_arrays);
        let [d, dv] = head.map(|d| d as usize);
        let width = |name: &str| if matches!(name, "V" | "O" | "dO") { dv } else { d };
        let expected = Gradients {
            places: &places,
            scale,
            format: named(format),
            score: &|place: [usize; 4], x: Score| {
                let [queries, keys] = [0, 1].map(|side| places.rows(place[0], side) as i64);
                let at = call.forward.head_numbers.index(place[0], place[1], heads[0] as usize);
                let [batch, head, row, key] = place.map(|number| number as i64);
                let numbers = asked.scores.heads().into_iter();
                let numbers = numbers.map(|name| Bounded::exact(inputs.elements(name, at, 1)[0]));
                let reals: Vec<_> = reals.iter().copied().chain(numbers).collect();
                let of = Scope { queries, keys, head, batch, counts: &counts, reals: &reals };
                let x = Bounded::new(x.value, x.error);
                let [score, slope] = asked.slope(&of, arrays, [row, key], x);
                (Score { value: score.value, error: score.error }, (slope.value, slope.error))
            },
            sees: &|place: [usize; 4]| {
                let [queries, keys] = [0, 1].map(|side| places.rows(place[0], side) as i64);
                let [batch, head, row, key] = place.map(|number| number as i64);
                let of = Scope { queries, keys, head, batch, counts: &counts, reals: &reals };
                asked.sees(&of, arrays, row, key)
            },
            row: &|name, row| inputs.elements(name, row * width(name), width(name)),
            log_sum_exp: &|row| inputs.elements("the log-sum-exp", row, 1)[0],
        };
        let within = |row: Vec<Wanted>| row.iter().map(|wanted| (wanted.value, wanted.bound())).collect();
        let d_q = inputs.rows(of_queries, |index| (index * d, within(expected.query(index))));
        let (d_k, d_v) = inputs
            .rows(of_keys, |index| {
                let [of_k, of_v] = expected.key(index).map(within);
                ((index * d, of_k), (index * dv, of_v))
            })
            .into_iter()
            .unzip();
        [("dQ", d_q), ("dK", d_k), ("dV", d_v)].map(|(name, elements)| Expected::near(name, elements)).into()
    }

    /// Numbers of the plan.
    pub(crate) fn told(&self) -> Vec<[String; 3]> {
        let plan = self.plan();
        let collective::RoleRegisters { producer, consumer, .. } = plan.cta.registers;
        let row = |what: &str, value: u32, why: &str| [what.to_owned(), value.to_string(), why.to_owned()];
        let (keys, of_do) = match plan.pair {
            Some(pair) => ("with the same 64 keys", pair.do_ring),
            None => ("of 64 keys each", plan.rings.q),
        };
        vec![
            row("consumer warpgroups", plan.cta.consumers, keys),
            row("stages of Q", plan.rings.q.stages, "tiles of queries"),
            row("stages of dO", of_do.stages, "tiles of queries"),
            row("buffers of dS", plan.rings.ds.stages, "tiles of queries"),
            row("registers, producer", producer, "after setmaxnreg"),
            row("registers, consumer", consumer, "after setmaxnreg"),
        ]
    }
}
