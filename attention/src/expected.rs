//! What attention kernels must write, in f64; and what they compute, block by block.

use kernel::{Blocks, Expected, Family, Inputs, Needed};
use reference::attention::{Row, Score};
use reference::{Format, Wanted};

use crate::family::AttentionRequest;
use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::scores::Scope;
use crate::spec::{AttentionSpec, Lengths, Parts};

/// The reference's name of a format.
pub(crate) fn named(format: collective::Format) -> Format {
    Format::named(format.name()).unwrap_or(Format::F32)
}

impl Attention {
    /// What it must write.
    pub(crate) fn expected(&self, request: &AttentionRequest, inputs: &Inputs<'_>) -> Vec<Expected> {
        let AttentionRequest { head: [d, dv], mask, pages, problem, .. } = *request;
        let AttentionProblem { heads: [heads, shared], queries, scale, .. } = problem;
        // A kernel with another mask is wrong.
        let asked = Self::new(AttentionSpec { mask, ..self.plan().spec });
        let asked = asked.ok().filter(|_| Family::spec(self).is_some()).unwrap_or_else(|| self.clone());
        let (format, output) = (named(request.format), named(request.output));
        let latent = self.plan().latent.is_some();
        let row_of =
            |name, length: u32, row: usize| inputs.elements(name, row * length as usize, length as usize);
        let lengths = request.lengths();
        let each = pages.map_or(0, |page| problem.keys.div_ceil(page));
        let table = match pages {
            Some(_) => inputs.numbers("the table of pages", 0, (problem.batch * each) as usize),
            None => Vec::new(),
        };
        let packed = request.lengths == Lengths::Packed;
        let before: Vec<u32> =
            lengths.iter().scan(0, |sum, rows| Some(core::mem::replace(sum, *sum + rows[0]))).collect();
        let all_queries = if packed { lengths.iter().map(|rows| rows[0]).sum() } else { queries };
        let counts: Vec<i64> = Self::call(request).counts.into_iter().map(i64::from).collect();
        let sequences = if packed { 1 } else { lengths.len() };
        let all = inputs.rows(sequences * (heads * all_queries) as usize, |index| {
            let at = index as u32;
            let [b, h, r] = [at / all_queries / heads, at / all_queries % heads, at % all_queries];
            let b = if packed { before.partition_point(|&first| first <= r) - 1 } else { b as usize };
            let (first, r) = if packed { (before[b], r - before[b]) } else { (0, r) };
            let [queries, keys] = lengths[b];
            let of = Scope {
                queries: queries.into(),
                keys: keys.into(),
                head: h.into(),
                batch: b as i64,
                counts: &counts,
                reals: &[],
            };
            let head = h / (heads / shared);
            let place = |key: u32| {
                let (matrix, rows, row) = match pages {
                    Some(page) => (table[b * each as usize + (key / page) as usize], page, key % page),
                    None if packed => (0, all_queries, first + key),
                    None => (b as u32, keys, key),
                };
                ((matrix * shared + head) * rows + row) as usize
            };
            // A cache of its own format has factors, and Q has none.
            let scaled = request.cache.is_some() || request.format.bits() == 8;
            let [factor_q, factor_k, factor_v] = [
                ("the factors of Q", scaled && request.cache.is_none()),
                ("the factors of K", scaled),
                ("the factors of V", scaled),
            ]
            .map(|(name, given)| if given { inputs.elements(name, head as usize, 1)[0] as f32 } else { 1.0 });
            let score = if format == Format::E4m3 { Score::of_bytes } else { Score::of };
            let query = row_of("Q", d, index);
            let (mut row, mut seen) = (Row::new(format, self.plan().spec.tile[1]), Vec::new());
            if self.plan().spec.parts != Parts::One {
                row.merge();
            }
            for key in (0..keys).filter(|&key| asked.sees(&of, r.into(), key.into())) {
                let place = place(key);
                row.key(score(&query, &row_of("K", d, place), scale).times([factor_q, factor_k]));
                seen.push(place);
            }
            row.factor(factor_v);
            let within = |wanted: Wanted| (wanted.value, wanted.bound());
            let of_key = |key: usize| match latent {
                true => inputs.elements("K", seen[key] * d as usize, dv as usize),
                false => row_of("V", dv, seen[key]),
            };
            let o = row.outputs(output, dv as usize, &of_key);
            let o = (index * dv as usize, o.into_iter().map(within).collect());
            (o, (index, vec![within(row.log_sum_exp())]))
        });
        let (o, sums) = all.into_iter().unzip();
        let sums = request.log_sum_exp.then_some(Expected { name: "the log-sum-exp", elements: sums });
        [Expected { name: "O", elements: o }].into_iter().chain(sums).collect()
    }

    /// The blocks of the first sequence and head.
    pub(crate) fn drawn(&self, request: &AttentionRequest) -> Option<Blocks> {
        let AttentionSpec { tile: [rows, columns], pack, parts, turns, head: [d, dv], .. } = self.plan().spec;
        let counts: Vec<i64> = Self::call(request).counts.into_iter().map(i64::from).collect();
        let &[queries, keys] = request.lengths().first()?;
        let (counts, reals) = (&counts[..], &[][..]);
        let scope = Scope { queries: queries.into(), keys: keys.into(), head: 0, batch: 0, counts, reals };
        let block = [rows / pack, columns];
        let needed = (0..queries.div_ceil(block[0])).map(|tile| {
            let of = |begin: u32, size: u32, end: u32| begin * size..end.min((begin + 1) * size);
            let rows = of(tile, block[0], queries);
            let one = |at: u32| {
                let columns = of(at, columns, keys);
                Needed::of_block([rows.clone(), columns], |row, key| {
                    self.sees(&scope, row.into(), key.into())
                })
            };
            (0..keys.div_ceil(columns)).map(one).collect()
        });
        let consumers = self.plan().cta.consumers;
        let turns = match (consumers, turns) {
            _ if self.plan().latent.is_some() => {
                "Two warpgroups have half of the columns of V each, and the scores of every second block."
                    .to_owned()
            }
            (1, _) => "One warpgroup computes everything.".to_owned(),
            (_, true) => format!(
                "{consumers} warpgroups take turns: while one multiplies, the others compute weights."
            ),
            (_, false) => format!("{consumers} warpgroups compute without turns."),
        };
        let split = if parts == Parts::One { "" } else { " The keys of a tile are divided among CTAs." };
        Some(Blocks {
            of: format!("The first sequence and head: {queries} queries, {keys} keys.{split}"),
            axes: ["queries", "keys"],
            block,
            needed: needed.collect(),
            products: vec![
                format!("S = Q * K^T: {rows} x {columns}, over {d} elements of a head"),
                format!("O += P * V: {rows} x {dv}, over {columns} keys, with P = exp(S - max)"),
            ],
            turns,
        })
    }

    /// Numbers of the plan.
    pub(crate) fn told(&self) -> Vec<[String; 3]> {
        let plan = self.plan();
        let [q, k, v] = plan.rings;
        let collective::RoleRegisters { producer, consumer, .. } = plan.cta.registers;
        let row = |what: &str, value: u32, why: &str| [what.to_owned(), value.to_string(), why.to_owned()];
        let latent = plan.latent.is_some();
        let of_consumer = if latent { "of the same 64 queries" } else { "of 64 queries each" };
        let of_values = (!latent).then(|| row("stages of V", v.stages, "blocks of values"));
        [
            row("consumer warpgroups", plan.cta.consumers, of_consumer),
            row("stages of Q", q.stages, "tiles of queries"),
            row(
                "stages of K",
                k.stages,
                if latent { "blocks of keys, and of values" } else { "blocks of keys" },
            ),
        ]
        .into_iter()
        .chain(of_values)
        .chain([
            row("registers, producer", producer, "after setmaxnreg"),
            row("registers, consumer", consumer, "after setmaxnreg"),
        ])
        .collect()
    }
}
