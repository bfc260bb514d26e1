//! What a launch computes: lengths and heads, and where Q, K, V and O are.

use kernel::operands::Visit;
use kernel::{Buffer, LaunchError};

use crate::checks::{LIMIT, refused};

/// The extents of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionProblem {
    /// Number of sequences.
    pub batch: u32,
    /// Heads of Q and O, and heads of K and V. The first is a multiple of the second: consecutive heads of Q share
    /// one of K and V.
    pub heads: [u32; 2],
    /// Number of queries of a sequence; of the longest one, if lengths differ.
    pub queries: u32,
    /// Number of keys of a sequence; of the most, if lengths differ.
    pub keys: u32,
    /// What products of queries and keys are multiplied by, usually `1 / sqrt(d)`. Above zero.
    pub scale: f32,
}

impl AttentionProblem {
    /// A problem with as many heads of K and V as of Q, and the usual scale for heads of `d` elements.
    pub fn new(batch: u32, heads: u32, [queries, keys]: [u32; 2], d: u32) -> Self {
        Self { batch, heads: [heads; 2], queries, keys, scale: (f64::from(d).sqrt().recip()) as f32 }
    }

    /// Checks the numbers.
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = *self;
        for (name, extent) in [
            ("the number of sequences", batch),
            ("the number of heads", heads),
            ("the number of queries", queries),
            ("the number of keys", keys),
        ] {
            if extent >= LIMIT {
                return Err(LaunchError::Extent { name, extent: extent.into(), limit: LIMIT });
            }
        }
        if shared == 0 && heads > 0 || shared > 0 && !heads.is_multiple_of(shared) {
            return refused(format!(
                "there are {heads} heads of queries and {shared} of keys, a multiple of the latter was needed"
            ));
        }
        if !(scale > 0.0 && scale.is_finite()) {
            return refused(format!("the scale is {scale}, a finite number above zero was needed"));
        }
        Ok(())
    }

    /// What scores are multiplied by to be exponents of 2, and natural ones. Those that are `scaled` were multiplied by the scale before.
    pub(crate) fn exponents(&self, scaled: bool) -> [f32; 2] {
        let factor = if scaled { 1.0 } else { self.scale };
        [factor * core::f32::consts::LOG2_E, factor]
    }

    /// Visits the numbers, which are parts of a call.
    pub(crate) fn visit(&mut self, visit: &mut dyn Visit) {
        let Self { batch, heads: [heads, shared], queries, keys, scale } = self;
        for count in [batch, heads, shared, queries, keys] {
            visit.count(count);
        }
        visit.single(scale);
    }

    /// States the program's parameter `scale`.
    pub(crate) fn state_scale(&self, visit: &mut dyn Visit) {
        visit.number("scale", Some(self.scale));
    }
}

/// Where the rows of a tensor are: `batch` sequences of `heads` heads of rows that follow each other at a fixed
/// distance. All strides are in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadsRef {
    /// Device address of the first element.
    pub address: u64,
    /// From one row to the next.
    pub row: u64,
    /// From one head to the next.
    pub head: u64,
    /// From one sequence to the next.
    pub batch: u64,
}

impl HeadsRef {
    /// A packed tensor `(batch, heads, length, d)`.
    pub fn heads_first(address: u64, [heads, length, d]: [u32; 3]) -> Self {
        let [heads, length, row] = [heads, length, d].map(u64::from);
        let head = length * row;
        Self { address, row, head, batch: heads.saturating_mul(head) }
    }

    /// A packed tensor `(batch, length, heads, d)`.
    pub fn length_first(address: u64, [heads, length, d]: [u32; 3]) -> Self {
        let [heads, length, head] = [heads, length, d].map(u64::from);
        let row = heads * head;
        Self { address, head, row, batch: length.saturating_mul(row) }
    }

    /// How often lines of elements are repeated, and at which distance.
    pub(crate) fn repeats(&self, [batch, heads, rows, _]: [u32; 4]) -> [(u32, u64); 3] {
        [(rows, self.row), (heads, self.head), (batch, self.batch)]
    }

    /// Elements from the first to one past the last one; 0 if there are none.
    pub fn reach(&self, [batch, heads, rows, d]: [u32; 4]) -> u64 {
        if batch == 0 || heads == 0 || rows == 0 {
            return 0;
        }
        let last = |count: u32, stride: u64| u64::from(count - 1).saturating_mul(stride);
        let rows = last(rows, self.row).saturating_add(u64::from(d));
        rows.saturating_add(last(heads, self.head)).saturating_add(last(batch, self.batch))
    }
}

/// Where sequences of different lengths begin. Their rows follow each other in each tensor, whose `batch` stride is not
/// used; the log-sum-exp is packed `(heads, queries)`.
///
/// Whatever is in the tables, a launch reads and writes the tensors alone. A sequence that is longer than the problem
/// says has wrong results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Device addresses of `batch + 1` numbers, `u32`: the sums of the numbers of queries, and of keys, of the sequences
    /// before. The first is 0, the last the number of all.
    pub begins: [u64; 2],
    /// Number of queries, and of keys, of all sequences.
    pub rows: [u32; 2],
}

impl Packed {
    /// Checks where sequences of queries begin, and of keys, if the host knows it.
    ///
    /// # Errors
    /// The first number that is not where a sequence begins or the last one ends, or the first sequence that is longer than the problem
    /// says.
    pub fn check(&self, problem: &AttentionProblem, begins: &[&[u32]]) -> Result<(), kernel::LaunchError> {
        let most = [problem.queries, problem.keys];
        for (i, (begins, side)) in begins.iter().zip(["queries", "keys"]).enumerate() {
            let (all, most, name) = (self.rows[i], most[i], format!("the beginnings of {side}"));
            let ends = [(0, 0), (begins.len().saturating_sub(1), all)];
            if let Some((at, needed)) = ends.into_iter().find(|&(at, needed)| begins.get(at) != Some(&needed))
            {
                let found = begins.get(at).map_or_else(|| "nothing".to_owned(), u32::to_string);
                return crate::checks::refused(format!(
                    "{name} have {found} as number {at}, {needed} was needed: the first is 0, and the last the number of all"
                ));
            }
            let mut steps = begins.windows(2).enumerate();
            if let Some((at, pair)) = steps.find(|(_, of)| of[1] < of[0] || of[1] - of[0] > most) {
                return crate::checks::refused(format!(
                    "{name} have {} as number {at} and {} as the next, from {} to {} were needed: a sequence has at most {most}",
                    pair[0],
                    pair[1],
                    pair[0],
                    pair[0].saturating_add(most)
                ));
            }
        }
        Ok(())
    }
}

/// A cache of keys and values in pages. The strides of K and V named `batch` are those from one page to the next; a page
/// has the keys of one sequence that follow each other.
///
/// A page that is not in the cache is never read: the kernel traps. Entries of the table after a sequence's last page, and
/// keys and values of a page after the sequence's last key, may be anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Device address of the number of keys of each sequence, `u32`. More than the problem's are cut off.
    pub lengths: u64,
    /// Device address of the numbers of each sequence's pages, `u32`, in the order of its keys.
    pub table: u64,
    /// Entries of the table per sequence: enough for the problem's keys.
    pub each: u32,
    /// Number of pages of the cache.
    pub count: u32,
}

impl Pages {
    /// Checks a table that the host knows, for pages of `page` keys.
    ///
    /// # Errors
    /// The first page that a sequence needs and that is not in the cache, or not in the table.
    pub fn check(&self, page: u32, lengths: &[u32], table: &[u32]) -> Result<(), kernel::LaunchError> {
        let each = self.each as usize;
        for (sequence, &keys) in lengths.iter().enumerate() {
            let needed = keys.div_ceil(page.max(1)) as usize;
            if needed > each || (sequence + 1) * each > table.len() {
                return crate::checks::refused(format!(
                    "sequence {sequence} has {keys} keys, which need {needed} pages; the table has {each} per sequence, and {} in all",
                    table.len()
                ));
            }
            let own = &table[sequence * each..][..needed];
            if let Some(i) = own.iter().position(|&page| page >= self.count) {
                let (page, count) = (own[i], self.count);
                return crate::checks::refused(format!(
                    "page {i} of sequence {sequence} is page {page} of a cache of {count} pages"
                ));
            }
        }
        Ok(())
    }
}

/// The factors of Q, K and V in 8 bits: what their elements are multiplied by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Factors {
    /// Device addresses of the factors of Q, of K and of V, `f32`, those of Q and K above zero; 0 if all are 1.
    pub addresses: [u64; 3],
    /// Whether each head of K and V, with the heads of Q that share it, has its own; if not, there is one for all.
    pub per_head: bool,
}

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
    /// The values of [`Scores::COUNTS`](crate::Scores::COUNTS).
    pub counts: Vec<i32>,
    /// The values of [`Scores::REALS`](crate::Scores::REALS).
    pub reals: Vec<f32>,
}

const NO_TENSOR: HeadsRef = HeadsRef { address: 0, row: 0, head: 0, batch: 0 };
const NO_PAGES: Pages = Pages { lengths: 0, table: 0, each: 0, count: 0 };
const NO_FACTORS: Factors = Factors { addresses: [0; 3], per_head: false };
const NONE: Packed = Packed { begins: [0; 2], rows: [0; 2] };

impl AttentionCall {
    /// As [`new`](Self::new), for latent attention: K is V, too.
    pub const fn latent(problem: AttentionProblem, [q, k]: [HeadsRef; 2], o: HeadsRef) -> Self {
        Self::new(problem, [q, k, NO_TENSOR], o)
    }

    /// A call without log-sum-exp and without arguments for scores.
    pub const fn new(problem: AttentionProblem, [q, k, v]: [HeadsRef; 3], o: HeadsRef) -> Self {
        Self {
            problem,
            q,
            k,
            v,
            o,
            log_sum_exp: 0,
            packed: NONE,
            pages: NO_PAGES,
            factors: NO_FACTORS,
            workspace: None,
            sinks: 0,
            counts: Vec::new(),
            reals: Vec::new(),
        }
    }
}
