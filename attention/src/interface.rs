//! The interface of the kernel: the memory of a call and the program's parameters, each stated once.

use collective::Format;
use kernel::Buffer;
use kernel::operands::{Contents, Extents, Memory, Visit};
use ptx::abi::TensorMap;

use crate::emit;
use crate::kernel::{Attention, Divided};
use crate::problem::{AttentionCall, AttentionProblem, Factors, HeadsRef};
use crate::scores::state_values;
use crate::spec::{AttentionSpec, Lengths};

/// What a launch computes of a call for its parameters.
pub(crate) struct Facts {
    /// Tensor maps of Q, of K and V, of K and V for boxes without keys, and of O.
    pub(crate) q: TensorMap,
    pub(crate) of_keys: Vec<TensorMap>,
    pub(crate) without_keys: Vec<TensorMap>,
    pub(crate) o: Option<TensorMap>,
    /// Whether K and V are read. If not, their tensor maps begin where Q does.
    pub(crate) reads_keys: bool,
    /// Heads of tiles: those of Q, or groups of these that are rows of one tile.
    pub(crate) heads: u32,
    /// Heads of Q per head of K and V; if heads are packed, those that are rows of one tile.
    pub(crate) share: u32,
    /// Heads of tiles per head of K and V.
    pub(crate) sharing: u32,
    pub(crate) tiles: u32,
    /// Tiles of queries per head. If lengths differ, some are empty.
    pub(crate) across: u32,
    /// Heads whose tiles are mixed.
    pub(crate) section: u32,
}

/// How much of each part a call reaches.
struct Reach {
    /// Batch, heads and rows of Q and O, and of K and V.
    queries: [u32; 3],
    keys: [u32; 3],
    /// Entries of the beginnings of sequences, of the numbers of keys, and of the table of pages.
    begins: u64,
    lengths: u32,
    table: u64,
    /// Whether there is anything to launch.
    launched: bool,
}

impl Attention {
    /// The parts of a call, and the program's parameters, with the values that a launch computes.
    pub(crate) fn interface(&self, call: &mut AttentionCall, facts: Option<&Facts>, visit: &mut dyn Visit) {
        let reach = self.reach(call);
        call.problem.visit(visit);
        self.tensors(call, &reach, facts, visit);
        self.vectors(call, &reach, visit);
        self.tables(call, &reach, facts, visit);
        Buffer::visit_workspace(&mut call.workspace, reach.launched, visit);
        if let Some(Divided { count, rows, offsets, .. }) = self.divided(call) {
            visit.number("parts", Some(count));
            visit.number("part_rows", Some(rows));
            for (name, offset) in ["part_counters", "part_sums", "part_outputs"].into_iter().zip(offsets) {
                visit.address_in(name, "the workspace", offset);
            }
        }
        if self.of_counter() > 0 {
            visit.address("counter", "the workspace");
        }
        self.numbers(call, facts, visit);
    }

    fn reach(&self, call: &AttentionCall) -> Reach {
        let AttentionCall { packed, pages, .. } = call;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = call.problem;
        let AttentionSpec { lengths, pages: page, .. } = self.plan.spec;
        let differ = lengths == Lengths::Packed;
        let [all_queries, all_keys] = if differ { packed.rows } else { [queries, keys] };
        let sequences = if differ { batch.min(1) } else { batch };
        let of_queries = [sequences, heads, if queries == 0 { 0 } else { all_queries }];
        let launched = !of_queries.contains(&0);
        let read = launched && keys > 0;
        let of_keys = match page {
            None => [sequences, shared, if read { all_keys } else { 0 }],
            Some(page) if read => [pages.count, shared, page],
            Some(_) => [0; 3],
        };
        let paged = launched && page.is_some();
        Reach {
            queries: of_queries,
            keys: of_keys,
            begins: if differ && launched { u64::from(batch) + 1 } else { 0 },
            lengths: if paged { batch } else { 0 },
            table: if paged && read { u64::from(batch) * u64::from(pages.each) } else { 0 },
            launched,
        }
    }

    /// Q, K, V and O.
    fn tensors(&self, call: &mut AttentionCall, reach: &Reach, facts: Option<&Facts>, visit: &mut dyn Visit) {
        let AttentionSpec { format, cache, output, head: [d, dv], lengths, .. } = self.plan.spec;
        let cache = cache.unwrap_or(format);
        let read = |i, format| (Contents::Multiplied(i, format), format, false);
        let shape = |[batch, heads, rows]: [u32; 3], d| [batch, heads, rows, d];
        state("Q", (&mut call.q, shape(reach.queries, d)), read(0, format), visit);
        visit.tensor_map("q_map", "Q", facts.map(|of| of.q.clone()));
        let all = [("k_map", "K", &mut call.k, d), ("v_map", "V", &mut call.v, dv)];
        let reads_keys = facts.is_none_or(|of| of.reads_keys);
        for (i, (map, name, tensor, d)) in all.into_iter().take(self.operands()).enumerate() {
            state(name, (tensor, shape(reach.keys, d)), read(1, cache), visit);
            let within = if reads_keys { name } else { "Q" };
            visit.tensor_map(map, within, facts.and_then(|of| of.of_keys.get(i).cloned()));
        }
        let written = (Contents::Output(output), output, true);
        state("O", (&mut call.o, shape(reach.queries, dv)), written, visit);
        if self.plan.output.is_some() {
            return visit.tensor_map("o_map", "O", facts.and_then(|of| of.o.clone()));
        }
        let (bytes, HeadsRef { address, row, head, batch }) = (u64::from(output.bytes()), call.o);
        // One that is too long is that of the only head or sequence, and not used.
        let strides = [row, head, batch].map(|stride| stride.wrapping_mul(bytes));
        visit.address("o", "O");
        for (name, stride) in ["o_row", "o_head", "o_batch"].into_iter().zip(strides) {
            visit.number(name, Some(stride));
        }
        // Neighbours are stored together if they all begin at a multiple of their size.
        let of_batch = if lengths == Lengths::Packed { 0 } else { strides[2] };
        let pairs = [address, strides[0], strides[1], of_batch];
        visit.flag("o_pairs", Some(pairs.iter().all(|of| of.is_multiple_of(2 * bytes))));
    }

    /// How many of K and V are tensors of their own: latent attention reads its V where it reads K.
    fn operands(&self) -> usize {
        if self.plan.latent.is_some() { 1 } else { 2 }
    }

    /// The log-sum-exp, the sinks and the factors.
    fn vectors(&self, call: &mut AttentionCall, reach: &Reach, visit: &mut dyn Visit) {
        let AttentionProblem { heads: [heads, shared], .. } = call.problem;
        let given = call.log_sum_exp != 0;
        visit.form(given.into());
        let rows = reach.queries.map(u64::from).into_iter().fold(1, u64::saturating_mul);
        let (address, extents) = (&mut call.log_sum_exp, Extents::line(32, if given { rows } else { 0 }));
        let (name, contents) = ("the log-sum-exp", Contents::Output(Format::F32));
        visit.memory(Memory { name, address, extents, contents, writes: true });
        visit.address("log_sum_exp", name);
        let sinks = self.plan.spec.sinks;
        let (address, extents) = (&mut call.sinks, Extents::line(32, if sinks { heads.into() } else { 0 }));
        let (name, contents) = ("the sinks", Contents::Source(Format::F32));
        visit.memory(Memory { name, address, extents, contents, writes: false });
        if sinks {
            visit.address("sinks", name);
        }
        if !self.plan.spec.is_scaled() {
            return;
        }
        let Factors { addresses, per_head } = &mut call.factors;
        visit.form((*per_head).into());
        let all = if *per_head { u64::from(shared) } else { 1 };
        let names = [
            ("q_factors", "the factors of Q"),
            ("k_factors", "the factors of K"),
            ("v_factors", "the factors of V"),
        ];
        for ((parameter, name), address) in names.into_iter().zip(addresses) {
            let given = *address != 0;
            visit.form(given.into());
            let extents = Extents::line(32, if given && reach.launched { all } else { 0 });
            visit.memory(Memory { name, address, extents, contents: Contents::Scales, writes: false });
            visit.address(parameter, name);
        }
        visit.number("factors_per_head", Some(u32::from(*per_head)));
    }

    /// What divides rows into sequences, and pages.
    fn tables(&self, call: &mut AttentionCall, reach: &Reach, facts: Option<&Facts>, visit: &mut dyn Visit) {
        let (differ, page) = (self.plan.spec.lengths == Lengths::Packed, self.plan.spec.pages);
        let AttentionCall { problem, packed, pages, .. } = call;
        let names = ["the beginnings of queries", "the beginnings of keys"];
        let entries = [reach.begins, if page.is_some() { 0 } else { reach.begins }];
        for (i, (name, address)) in names.into_iter().zip(&mut packed.begins).enumerate() {
            let (extents, contents) = (Extents::line(32, entries[i]), Contents::Table);
            visit.memory(Memory { name, address, extents, contents, writes: false });
        }
        packed.rows.iter_mut().for_each(|rows| visit.count(rows));
        if differ {
            emit::Lengths::state(packed, problem.batch, page.is_none(), visit);
        }
        let indices = Contents::Indices(pages.count.max(1));
        for (name, address, entries, contents) in [
            ("the numbers of keys", &mut pages.lengths, reach.lengths.into(), Contents::Table),
            ("the table of pages", &mut pages.table, reach.table, indices),
        ] {
            let extents = Extents::line(32, entries);
            visit.memory(Memory { name, address, extents, contents, writes: false });
        }
        visit.count(&mut pages.each);
        visit.count(&mut pages.count);
        if page.is_some() {
            emit::Pages::state(pages, problem.keys == 0, visit);
        }
        if differ || page.is_some() {
            for (i, name) in ["k_outside", "v_outside"].into_iter().take(self.operands()).enumerate() {
                visit.tensor_map(name, "Q", facts.and_then(|of| of.without_keys.get(i).cloned()));
            }
        }
    }

    /// Numbers of the launch, and those of the scores.
    fn numbers(&self, call: &mut AttentionCall, facts: Option<&Facts>, visit: &mut dyn Visit) {
        let AttentionProblem { queries, keys, .. } = call.problem;
        visit.number("queries", Some(queries));
        visit.number("keys", Some(keys));
        visit.number("heads", facts.map(|of| of.heads));
        visit.number("share", facts.map(|of| of.share));
        visit.number("tiles", facts.map(|of| of.tiles));
        visit.number("across", facts.map(|of| of.across));
        visit.number("section", facts.map(|of| of.section));
        if self.plan.latent.is_some() && self.plan.spec.pack > 1 {
            visit.number("groups", facts.map(|of| of.sharing));
        }
        // Scores of one's own begin with products times the scale.
        let [to_log2, to_ln] = call.problem.exponents(self.scores.changes());
        call.problem.state_scale(visit);
        visit.number("to_log2", Some(to_log2));
        visit.number("to_ln", Some(to_ln));
        for count in &mut call.counts {
            let mut bits = count.cast_unsigned();
            visit.count(&mut bits);
            *count = bits.cast_signed();
        }
        call.reals.iter_mut().for_each(|real| visit.single(real));
        state_values(&*self.scores, &call.counts, &call.reals, visit);
    }
}

/// A tensor of heads as memory, with its strides.
fn state(
    name: &'static str,
    (of, shape): (&mut HeadsRef, [u32; 4]),
    (contents, format, writes): (Contents, Format, bool),
    visit: &mut dyn Visit,
) {
    let extents = Extents::line(format.bits(), of.reach(shape));
    visit.memory(Memory { name, address: &mut of.address, extents, contents, writes });
    visit.lines(shape[3].into(), of.repeats(shape));
    [&mut of.row, &mut of.head, &mut of.batch].into_iter().for_each(|length| visit.length(length));
}
