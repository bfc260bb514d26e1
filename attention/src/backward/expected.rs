//! What the backward pass must write, in f64.

use kernel::{Expected, Family, Inputs};
use reference::Wanted;
use reference::attention::sequences::{Gradients, Places};

use super::kernel::AttentionBackward;
use super::spec::BackwardSpec;
use crate::expected::named;
use crate::family::AttentionRequest;
use crate::scores::Scope;
use crate::spec::Lengths;

impl AttentionBackward {
    /// What it must write: rows of dQ, and then of dK and dV, which have as many.
    pub(crate) fn expected(&self, request: &AttentionRequest, inputs: &Inputs<'_>) -> Vec<Expected> {
        let AttentionRequest { head, mask, lengths, problem, .. } = *request;
        // A kernel with another mask is wrong.
        let asked = Self::new(BackwardSpec { mask, ..self.plan().spec });
        let asked = asked.ok().filter(|_| Family::spec(self).is_some()).unwrap_or_else(|| self.clone());
        let places = Places::of(request.lengths(), problem.heads, lengths == Lengths::Packed);
        let [of_queries, of_keys] = [0, 1]
            .map(|side| places.extents(side).into_iter().map(|extent| extent as usize).product::<usize>());
        let counts: Vec<i64> = Self::call(request).counts.into_iter().map(i64::from).collect();
        let [d, dv] = head.map(|d| d as usize);
        let width = |name: &str| if matches!(name, "V" | "O" | "dO") { dv } else { d };
        let expected = Gradients {
            places: &places,
            scale: problem.scale,
            format: named(request.format),
            sees: &|place: [usize; 4]| {
                let [queries, keys] = [0, 1].map(|side| places.rows(place[0], side) as i64);
                let [batch, head, row, key] = place.map(|number| number as i64);
                asked.sees(&Scope { queries, keys, head, batch, counts: &counts, reals: &[] }, row, key)
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
        [("dQ", d_q), ("dK", d_k), ("dV", d_v)].map(|(name, elements)| Expected { name, elements }).into()
    }

    /// Numbers of the plan.
    pub(crate) fn told(&self) -> Vec<[String; 3]> {
        let plan = self.plan();
        let collective::RoleRegisters { producer, consumer, .. } = plan.cta.registers;
        let row = |what: &str, value: u32, why: &str| [what.to_owned(), value.to_string(), why.to_owned()];
        let (keys, of_do) = match plan.pair {
            Some(pair) => ("with the same 64 keys", pair.do_ring),
            None => ("of 64 keys each", plan.q_ring),
        };
        vec![
            row("consumer warpgroups", plan.cta.consumers, keys),
            row("stages of Q", plan.q_ring.stages, "tiles of queries"),
            row("stages of dO", of_do.stages, "tiles of queries"),
            row("buffers of dS", plan.ds_ring.stages, "tiles of queries"),
            row("registers, producer", producer, "after setmaxnreg"),
            row("registers, consumer", consumer, "after setmaxnreg"),
        ]
    }
}
