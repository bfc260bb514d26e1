//! What attention kernels must write, in f64; and what they compute, block by block.

use collective::Bounded;
use kernel::{Blocks, Expected, Family, Inputs, Needed};
use reference::attention::sequences::SequenceRows;
use reference::attention::{Row, Score};
use reference::{Format, Wanted};

use crate::call::AttentionCall;
use crate::factors::Factors;
use crate::formula::HostArrays;

use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::request::AttentionRequest;
use crate::scores::{AnyScores, Scope};
use crate::spec::{AttentionSpec, Lengths, Mask, Parts};

/// The reference's name of a format.
pub(crate) fn named(format: collective::Format) -> Format {
    Format::named(format.name()).unwrap_or(Format::F32)
}

impl Attention {
    /// What it must write for a call, under a mask of specs: a kernel with another one is wrong.
    pub(crate) fn expected(&self, mask: Mask, call: &AttentionCall, inputs: &Inputs<'_>) -> Vec<Expected> {
        let asked = Self::new(AttentionSpec { mask, ..self.plan().spec });
        let asked = asked.ok().filter(|_| Family::spec(self).is_some()).unwrap_or_else(|| self.clone());
        let of = Reference::new(&asked, call, inputs);
        let count = of.places.extents(0).into_iter().map(|extent| extent as usize).product();
        let dv = self.plan().spec.head[1] as usize;
        let (o, sums) = inputs
            .rows(count, |index| {
                let (o, sum) = of.row(index);
                ((index * dv, o), (index, vec![sum]))
            })
            .into_iter()
            .unzip();
        let sums = (call.log_sum_exp != 0).then(|| Expected::near("the log-sum-exp", sums));
        [Expected::near("O", o)].into_iter().chain(sums).collect()
    }

    /// The blocks of the first sequence and head.
    pub(crate) fn drawn(&self, request: &AttentionRequest) -> Option<Blocks> {
        let AttentionSpec { tile: [rows, columns], pack, parts, turns, head: [d, dv], .. } = self.plan().spec;
        let counts: Vec<i64> = Self::call(request).counts.into_iter().map(i64::from).collect();
        let &[queries, keys] = request.lengths().first()?;
        // What is in arrays is not known here.
        if request.sees.is_some_and(|sees| sees.arrays().next().is_some()) {
            return None;
        }
        let (counts, reals) = (&counts[..], &[][..]);
        let scope = Scope { queries: queries.into(), keys: keys.into(), head: 0, batch: 0, counts, reals };
        let block = [rows / pack, columns];
        let needed = (0..queries.div_ceil(block[0])).map(|tile| {
            let of = |begin: u32, size: u32, end: u32| begin * size..end.min((begin + 1) * size);
            let rows = of(tile, block[0], queries);
            let one = |at: u32| {
                let columns = of(at, columns, keys);
                Needed::of_block([rows.clone(), columns], |row, key| {
                    self.sees(&scope, HostArrays::NONE, row.into(), key.into())
                })
            };
            (0..keys.div_ceil(columns)).map(one).collect()
        });
        let consumers = self.plan().cta.consumers;
        let turns = match (consumers, turns) {
            _ if self.plan().halves.is_some() => {
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
        let (latent, halved) = (plan.spec.is_latent(), plan.halves.is_some());
        let of_consumer = if halved { "of the same 64 queries" } else { "of 64 queries each" };
        let of_values = (!latent).then(|| row("stages of V", v.stages, "blocks of values"));
        [
            row("consumer warpgroups", plan.cta.consumers, of_consumer),
            row("stages of Q", q.stages, "tiles of queries"),
            row(
                "stages of K",
                k.stages,
                match [latent, halved] {
                    [true, _] => "slabs of blocks of keys, and of values",
                    [_, true] => "slabs of blocks of keys",
                    _ => "blocks of keys",
                },
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

/// An element of an array of a call.
pub(crate) fn read(
    call: &AttentionCall,
    scores: &dyn AnyScores,
    inputs: &Inputs<'_>,
    name: &'static str,
    numbers: &[i64],
) -> f64 {
    let mut all = scores.arrays().into_iter().zip(&call.arrays);
    let Some((array, of)) = all.find(|(array, _)| array.name == name) else { return 0.0 };
    let at = of.index(numbers);
    if array.format == collective::Format::S32 {
        return f64::from(inputs.numbers(array.memory, at, 1)[0].cast_signed());
    }
    inputs.elements(array.memory, at, 1)[0]
}

/// A call, with what is in its memory.
struct Reference<'a> {
    kernel: &'a Attention,
    call: &'a AttentionCall,
    inputs: &'a Inputs<'a>,
    places: SequenceRows,
    /// The numbers of pages, by sequence.
    table: Vec<u32>,
    counts: Vec<i64>,
    reals: Vec<Bounded>,
}

impl<'a> Reference<'a> {
    fn new(kernel: &'a Attention, call: &'a AttentionCall, inputs: &'a Inputs<'a>) -> Self {
        let AttentionSpec { lengths, pages, .. } = kernel.plan().spec;
        let AttentionProblem { batch, heads, queries, keys, .. } = call.problem;
        let (packed, count) = (lengths == Lengths::Packed, batch as usize);
        let begins = |name| -> Vec<u32> {
            let begins = inputs.numbers(name, 0, count + 1);
            begins.windows(2).map(|pair| pair[1] - pair[0]).collect()
        };
        let of_queries = if packed { begins("the beginnings of queries") } else { vec![queries; count] };
        let of_keys = match pages {
            Some(_) => inputs.numbers("the numbers of keys", 0, count),
            None if packed => begins("the beginnings of keys"),
            None => vec![keys; count],
        };
        let rows = of_queries.into_iter().zip(of_keys).map(|(queries, of)| [queries, of.min(keys)]);
        let entries = if pages.is_some() && keys > 0 { count * call.pages.each as usize } else { 0 };
        let table = if entries > 0 { inputs.numbers("the table of pages", 0, entries) } else { Vec::new() };
        let counts = call.counts.iter().map(|&count| count.into()).collect();
        let reals = call.reals.iter().map(|&real| Bounded::exact(real.into())).collect();
        Self { kernel, call, inputs, places: SequenceRows::of(rows, heads, packed), table, counts, reals }
    }

    /// The number of a key of a sequence among the rows of a head of all keys.
    fn key(&self, [sequence, head, key]: [usize; 3]) -> usize {
        let Some(page) = self.kernel.plan().spec.pages.map(|page| page as usize) else {
            return self.places.index(1, [sequence, head, key]);
        };
        let number = self.table[sequence * self.call.pages.each as usize + key / page] as usize;
        (number * self.places.heads[1] + head) * page + key % page
    }

    /// The factor of a head of Q, K or V.
    fn factor(&self, i: usize, head: usize) -> f32 {
        let Factors { addresses, per_head } = self.call.factors;
        if !self.kernel.plan().spec.is_scaled() || addresses[i] == 0 {
            return 1.0;
        }
        let name = ["the factors of Q", "the factors of K", "the factors of V"][i];
        self.inputs.elements(name, if per_head { head } else { 0 }, 1)[0] as f32
    }

    /// A row of O, and its log-sum-exp.
    fn row(&self, index: usize) -> (Vec<(f64, f64)>, (f64, f64)) {
        let Self { kernel, call, inputs, places, counts, reals, .. } = self;
        let AttentionSpec { format, output, head: [d, dv], tile, parts, sinks, .. } = kernel.plan().spec;
        let (format, d, dv) = (named(format), d as usize, dv as usize);
        let [b, h, r] = places.place(0, index);
        let [queries, keys] = places.sequences[b].rows.map(i64::from);
        let numbers = kernel.scores.heads().into_iter().map(|name| {
            let at = call.head_numbers.index(b, h, places.heads[0]);
            Bounded::exact(inputs.elements(name, at, 1)[0])
        });
        let reals: Vec<_> = reals.iter().copied().chain(numbers).collect();
        let of = Scope { queries, keys, head: h as i64, batch: b as i64, counts, reals: &reals };
        let head = h / (places.heads[0] / places.heads[1]);
        let [of_q, of_k, of_v] = [0, 1, 2].map(|i| self.factor(i, head));
        let score = if format == Format::E4m3 { Score::of_bytes } else { Score::of };
        let query = inputs.elements("Q", index * d, d);
        let (mut row, mut seen) = (Row::new(format, tile[1]), Vec::new());
        if parts != Parts::One {
            row.merge();
        }
        if sinks {
            row.sink(inputs.elements("the sinks", h, 1)[0]);
        }
        let of_arrays =
            |name: &'static str, numbers: &[i64]| read(call, &*kernel.scores, inputs, name, numbers);
        let arrays = HostArrays(&of_arrays);
        for key in (0..keys).filter(|&key| kernel.sees(&of, arrays, r as i64, key)) {
            let at = self.key([b, head, key as usize]);
            let own = score(&query, &inputs.elements("K", at * d, d), call.problem.scale).times([of_q, of_k]);
            let changed = kernel.score(&of, arrays, [r as i64, key], Bounded::new(own.value, own.error));
            row.key(Score { value: changed.value, error: changed.error });
            seen.push(at);
        }
        row.factor(of_v);
        let (name, width) = if kernel.plan().spec.is_latent() { ("K", d) } else { ("V", dv) };
        let within = |wanted: Wanted| (wanted.value, wanted.bound());
        let o = row.outputs(named(output), dv, &|key| inputs.elements(name, seen[key] * width, dv));
        (o.into_iter().map(within).collect(), within(row.log_sum_exp()))
    }
}
