//! A call, and the interface of the kernel: the memory of a call and the program's parameters, each stated once.

use collective::Format;
use collective::heads::{HeadRows, HeadTensor, HeadsRef, Packed, Pages, Reached};
use collective::operands::WORKSPACE;
use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{Buffer, LaunchError};

use crate::arrays::{self, ArrayRef};
use crate::emit;
use crate::factors::Factors;
use crate::kernel::Attention;
use crate::numbers::HeadNumbers;
use crate::problem::{AttentionProblem, refused};
use crate::scores::AnyScores;
use crate::spec::{AttentionSpec, Lengths};
use crate::tiles::Filled;

/// A call: the problem, and where its tensors are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionCall {
    /// The extents.
    pub problem: AttentionProblem,
    /// Queries.
    pub q: HeadsRef,
    /// Keys.
    pub k: HeadsRef,
    /// Values; nothing in latent attention, where they are the first 512 columns of the keys.
    pub v: HeadsRef,
    /// The output.
    pub o: HeadsRef,
    /// Device address of the log-sum-exp of the scores of each query, `f32`, packed `(batch, heads, queries)`; 0 if
    /// it is not needed. It is minus infinity for a query without keys.
    pub log_sum_exp: u64,
    /// Where sequences begin, if the spec has `lengths=packed`.
    pub packed: Packed,
    /// The cache, if the spec has pages.
    pub pages: Pages,
    /// The factors, if K and V have 8 bits.
    pub factors: Factors,
    /// Where the counter of tiles is, if they are drawn, and the results of parts of keys until they are merged, if the spec has parts:
    /// [`Attention::workspace`](crate::Attention::workspace) bytes, zero at first. Launches leave it as they need it; those that
    /// run at the same time need one each.
    pub workspace: Option<Buffer>,
    /// Device address of the sink of each query head, `f32`, if the spec has sinks.
    pub sinks: u64,
    /// Where the arrays of [`Scores::HEADS`](crate::Scores::HEADS) are.
    pub head_numbers: HeadNumbers,
    /// Where the arrays of the spec's formulas are: those of its scores in the order in which they stand there, then those of its mask that have other names.
    pub arrays: Vec<ArrayRef>,
    /// The values of [`Scores::COUNTS`](crate::Scores::COUNTS).
    pub counts: Vec<i32>,
    /// The values of [`Scores::REALS`](crate::Scores::REALS).
    pub reals: Vec<f32>,
}

impl AttentionCall {
    /// As [`new`](Self::new), for latent attention: K is V, too.
    pub fn latent(problem: AttentionProblem, [q, k]: [HeadsRef; 2], o: HeadsRef) -> Self {
        Self::new(problem, [q, k, HeadsRef::default()], o)
    }

    /// A call without log-sum-exp and without arguments for scores.
    pub fn new(problem: AttentionProblem, [q, k, v]: [HeadsRef; 3], o: HeadsRef) -> Self {
        Self { problem, q, k, v, o, ..Self::default() }
    }

    /// Checks that there are as many arguments as a mask or scores take.
    pub(crate) fn check_arguments(&self, scores: &dyn AnyScores) -> Result<(), LaunchError> {
        let given = [self.counts.len(), self.reals.len()];
        let needed = [scores.counts().len(), scores.reals().len()];
        let (arrays, needed_arrays) = (self.head_numbers.addresses.len(), scores.heads().len());
        if arrays > needed_arrays {
            return refused(format!(
                "{} takes {needed_arrays} arrays with a number for each head, {arrays} were given",
                scores.name()
            ));
        }
        if given == needed {
            return arrays::check(&self.arrays, scores, &self.problem);
        }
        let ([counts, reals], [needed_counts, needed_reals]) = (given, needed);
        refused(format!(
            "{} takes {needed_counts} whole and {needed_reals} real arguments, {counts} and {reals} were given",
            scores.name()
        ))
    }

    /// Visits the arguments.
    pub(crate) fn visit_arguments(&mut self, visit: &mut dyn Visit) {
        for count in &mut self.counts {
            let mut bits = count.cast_unsigned();
            visit.count(&mut bits);
            *count = bits.cast_signed();
        }
        self.reals.iter_mut().for_each(|real| visit.single(real));
    }

    /// States the arguments, as parameters with their names.
    pub(crate) fn state_arguments(&self, scores: &dyn AnyScores, visit: &mut dyn Visit) {
        for (i, name) in scores.counts().into_iter().enumerate() {
            visit.signed(name, self.counts.get(i).copied());
        }
        for (i, name) in scores.reals().into_iter().enumerate() {
            visit.number(name, self.reals.get(i).copied());
        }
    }
}

impl Attention {
    /// The parts of a call, and the program's parameters, with the values that a launch computes.
    pub(crate) fn interface(&self, call: &mut AttentionCall, filled: Option<&Filled>, visit: &mut dyn Visit) {
        call.problem.visit(visit);
        HeadTensor::state_all(self.tensors(call), visit);
        self.vectors(call, visit);
        self.tables(call, visit);
        let launches = self.launches(call);
        Buffer::visit_workspace(&mut call.workspace, launches, visit);
        if let Some(divided) = self.divided(call) {
            divided.state(visit);
        }
        if self.of_counter() > 0 {
            visit.address("counter", WORKSPACE);
        }
        self.numbers(call, filled, visit);
    }

    /// Batch, heads and rows of Q and O, and of K and V, that a call reaches.
    pub(crate) fn reach(&self, call: &AttentionCall) -> [[u32; 3]; 2] {
        let AttentionCall { packed, pages, .. } = call;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = call.problem;
        let differ = self.plan.spec.lengths == Lengths::Packed;
        let [all_queries, all_keys] = if differ { packed.rows } else { [queries, keys] };
        let sequences = if differ { batch.min(1) } else { batch };
        let of_queries = [sequences, heads, if queries == 0 { 0 } else { all_queries }];
        let is_read = keys > 0 && !of_queries.contains(&0);
        let of_keys = match self.plan.spec.pages {
            _ if !is_read => [0; 3],
            Some(page) => [pages.count, shared, page],
            None => [sequences, shared, all_keys],
        };
        [of_queries, of_keys]
    }

    /// Whether there is anything to launch.
    pub(crate) fn launches(&self, call: &AttentionCall) -> bool {
        !self.reach(call)[0].contains(&0)
    }

    /// Q, K, V and O. Latent attention reads its V where it reads K.
    pub(crate) fn tensors<'c>(&self, call: &'c mut AttentionCall) -> Vec<HeadTensor<'c>> {
        let (plan, [of_queries, of_keys], share) = (&self.plan, self.reach(call), self.tiles(call).share);
        let AttentionSpec { format, cache, output, head: [d, dv], lengths, pack, pages, .. } = plan.spec;
        let AttentionProblem { queries, keys, .. } = call.problem;
        let rows = |most| if lengths == Lengths::Packed { HeadRows::Packed(most) } else { HeadRows::Equal };
        let rows_of_keys = if pages.is_some() { HeadRows::Page } else { rows(keys) };
        let map = |name, tile| Reached::Map(name, tile, [pack, share]);
        let [k_map, v_map] = plan.copied();
        let [k_map, v_map] =
            [("k_map", k_map), ("v_map", v_map)].map(|(name, of)| Reached::Map(name, of, [1; 2]));
        let o_map = plan.output.map(|tile| map("o_map", tile));
        let o_map = o_map.unwrap_or(Reached::Strides(emit::O, output.bytes().into()));
        let cache = cache.unwrap_or(format);
        let AttentionCall { q, k, v, o, .. } = call;
        [
            ("Q", q, (of_queries, d), rows(queries), (format, Some(0)), map("q_map", plan.tiles[0])),
            ("K", k, (of_keys, d), rows_of_keys, (cache, Some(1)), k_map),
            ("V", v, (of_keys, dv), rows_of_keys, (cache, Some(1)), v_map),
            ("O", o, (of_queries, dv), rows(queries), (output, None), o_map),
        ]
        .into_iter()
        .filter(|(name, ..)| !plan.spec.is_latent() || *name != "V")
        .map(|(name, at, ([batch, heads, lines], d), rows, (format, operand), reached)| HeadTensor {
            name,
            at,
            shape: [batch, heads, lines, d],
            rows,
            format,
            used: operand.into(),
            reached,
        })
        .collect()
    }

    /// The log-sum-exp, the sinks, the numbers of heads and the factors.
    fn vectors(&self, call: &mut AttentionCall, visit: &mut dyn Visit) {
        let ([of_queries, _], launches) = (self.reach(call), self.launches(call));
        if self.plan.output.is_none() {
            // Neighbours are stored together if they all begin at a multiple of their size.
            let (bytes, HeadsRef { address, row, head, batch }) =
                (self.plan.spec.output.bytes().into(), call.o);
            let batch = if self.plan.spec.lengths == Lengths::Packed { 0 } else { batch };
            let places = [row, head, batch].map(|stride: u64| stride.wrapping_mul(bytes));
            let pairs = places.into_iter().chain([address]).all(|of| of.is_multiple_of(2 * bytes));
            visit.flag("o_pairs", Some(pairs));
        }
        let AttentionProblem { batch, heads: [heads, shared], .. } = call.problem;
        let given = call.log_sum_exp != 0;
        visit.form(given.into());
        let rows = of_queries.map(u64::from).into_iter().fold(given.into(), u64::saturating_mul);
        let sums = ("the log-sum-exp", &mut call.log_sum_exp);
        visit.output("log_sum_exp", sums, Extents::line(32, rows), Format::F32);
        let (name, sinks) = ("the sinks", self.plan.spec.sinks);
        let (address, extents) = (&mut call.sinks, Extents::line(32, if sinks { heads.into() } else { 0 }));
        visit.memory(Memory {
            name,
            address,
            extents,
            contents: Contents::Source(Format::F32),
            writes: false,
        });
        if sinks {
            visit.address("sinks", name);
        }
        call.head_numbers.visit(&*self.scores, [batch, heads], launches, visit);
        arrays::visit(&mut call.arrays, &*self.scores, launches, visit);
        if self.plan.spec.is_scaled() {
            call.factors.visit(shared, launches, visit);
        }
    }

    /// What divides rows into sequences, and pages.
    fn tables(&self, call: &mut AttentionCall, visit: &mut dyn Visit) {
        let launches = self.launches(call);
        let (differ, page) = (self.plan.spec.lengths == Lengths::Packed, self.plan.spec.pages);
        let AttentionProblem { batch, keys, .. } = call.problem;
        let entries = if differ && launches { u64::from(batch) + 1 } else { 0 };
        call.packed.visit([entries, if page.is_some() { 0 } else { entries }], visit);
        if differ {
            call.packed.state(batch, page.is_none(), visit);
        }
        let sequences = if page.is_some() && launches { batch } else { 0 };
        call.pages.visit(sequences, keys > 0, visit);
        if page.is_some() {
            call.pages.state(keys == 0, visit);
        }
        if differ || page.is_some() {
            let q = ("Q", call.q.address);
            let all = self.tensors(call);
            let read = all.iter().skip(1).take(self.plan.operands() - 1);
            read.zip(["k_outside", "v_outside"]).for_each(|(of, name)| of.state_outside(name, q, visit));
        }
    }

    /// Numbers of the launch, and those of the scores.
    fn numbers(&self, call: &mut AttentionCall, filled: Option<&Filled>, visit: &mut dyn Visit) {
        let AttentionProblem { queries, keys, .. } = call.problem;
        visit.number("queries", Some(queries));
        visit.number("keys", Some(keys));
        visit.number("heads", filled.map(|of| of.heads));
        visit.number("share", filled.map(|of| of.share));
        visit.number("tiles", filled.map(|of| of.tiles));
        visit.number("across", filled.map(|of| of.across));
        visit.number("section", filled.map(|of| of.section));
        if self.plan.spec.is_latent() && self.plan.spec.pack > 1 {
            visit.number("groups", filled.map(|of| of.sharing));
        }
        // Scores of one's own begin with products times the scale.
        let [to_log2, to_ln] = call.problem.exponents(self.scores.changes());
        call.problem.state_scale(visit);
        visit.number("to_log2", Some(to_log2));
        visit.number("to_ln", Some(to_ln));
        call.visit_arguments(visit);
        call.state_arguments(&*self.scores, visit);
    }
}
